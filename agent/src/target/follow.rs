//! Children: a forked one asks for memory of its own, and who is about to run another program waits until the outside is
//! ready for that.

use core::sync::atomic::Ordering;

use super::{
    mailbox, open,
    shadow::Header,
    stacks, sys,
    thread::{self, Thread},
    watch,
};
use crate::shared::{CONTROL_BYTES, Control, FLAG_FOLLOW_PROGRAMS, Subject, Watched, tsc};

/// Has a forked child followed. Whether it is. Its one thread is not traced yet, and has put its return addresses back.
#[cold]
pub(super) fn begin(thread: &mut Thread) -> bool {
    let Some(parent) = thread::inherited() else { return false };
    // What a handler calls meanwhile would be missed.
    let signals = sys::block_signals();
    let is_followed = match stacks::are_whole() {
        true => ask(parent, thread),
        false => {
            // ORDERING: a count.
            parent.torn.fetch_add(1, Ordering::Relaxed);
            thread::forget_control();
            false
        }
    };
    // SAFETY: a page that this child has inherited, and that nobody looks at any more.
    unsafe { sys::call(sys::MUNMAP, [core::ptr::from_ref(parent) as usize, CONTROL_BYTES, 0, 0, 0, 0]) };
    sys::set_signals(signals);
    is_followed
}

/// Has the outside give the child memory of its own, and waits until it is read.
fn ask(parent: &'static Control, thread: &mut Thread) -> bool {
    stacks::restore_all();
    open::forget_earlier();
    // Where nothing was entered, it is nobody's call.
    let entered = thread.youngest().map_or(0, |entry| entry.entered);
    let birth = [u64::from(thread::id_of(thread)), entered, 0, 0];
    let pid = u64::from(sys::getpid());
    let is_followed = mailbox::serve(parent, Subject::Forked, pid, birth)
        && thread::control().is_some_and(|own| mailbox::serve(own, Subject::Forked, pid, birth));
    if !is_followed {
        thread::forget_control();
    }
    is_followed
}

const HERE: u64 = -100_i64 as u64;

/// Where nobody knows which program is about to run.
const NOWHERE: u64 = -1_i64 as u64;

/// What a function of Go says of a program that is about to run. Its first argument may be the path.
pub(super) fn go(thread: &mut Thread, header: &Header, argument: u64) {
    let is = |watched| header.is(watched);
    match () {
        () if header.watch() == 0 => {}
        () if is(Watched::GoFork) => thread.notes.program = argument,
        () if is(Watched::GoForked) => before_program([HERE, thread.notes.program]),
        () if is(Watched::GoExecute) => {
            watch::executing(true);
            before_program([NOWHERE, 0]);
        }
        () if is(Watched::GoNotExecuted) => watch::executing(false),
        () => {}
    }
}

/// The program that a function is about to run, if its stub is one of those that do: a directory's descriptor, and the path
/// from there. Without a path, the descriptor is the program's.
pub(super) fn program(stub: usize, arguments: [u64; 2]) -> Option<[u64; 2]> {
    let is = |watched| Header::of(stub).is(watched);
    let [first, second] = arguments;
    match () {
        () if is(Watched::Execute) => Some([HERE, first]),
        () if is(Watched::ExecuteAt) => Some([first, second]),
        () if is(Watched::ExecuteFile) => Some([first, 0]),
        () => None,
    }
}

/// Tells the outside that the calling thread is about to run another program: that of the traced process, or that of a child
/// which has its memory for the moment.
#[cold]
pub(super) fn before_program([directory, path]: [u64; 2]) {
    // ORDERING: it does not change.
    let follows = |control: &&Control| control.flags.load(Ordering::Relaxed) & FLAG_FOLLOW_PROGRAMS != 0;
    let Some(control) = thread::control().filter(follows) else { return };
    // ORDERING: a hint.
    if control.recording.load(Ordering::Relaxed) == 0 {
        return;
    }
    let signals = sys::block_signals();
    // A child has the thread's memory, and an id of its own.
    let parent = Thread::even_after_fork().map_or(0, |thread| thread::id_of(thread));
    let birth = [parent.into(), tsc::now(), directory, path];
    mailbox::serve(control, Subject::Executes, sys::getpid().into(), birth);
    sys::set_signals(signals);
}
