//! POSIX threads: who started which thread with what, and how it ended.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use codec::{EventKind, Key};

use super::{mark, tell};
use crate::{
    shared::{Kind, Subject, Watched, header, tsc},
    target::{
        local::thread_pointer,
        open,
        shadow::Entry,
        stacks, sys,
        thread::{self, Thread},
    },
};

/// Start routines that new threads are about to enter, and their arguments. Where all places are taken, one after the other
/// is taken over.
static STARTS: [Start; 256] = [const { Start::none() }; 256];

struct Start {
    routine: AtomicUsize,
    argument: AtomicU64,
    /// Of a routine that is not hooked: where the thread library writes the handle of the new thread, and that handle once
    /// `pthread_create` has returned. 0 where the routine is hooked.
    handle_at: AtomicUsize,
    handle: AtomicUsize,
    /// What was there before: the handle of another thread, or of one that is gone and has left it to the new one.
    before: AtomicUsize,
}

/// A place in `STARTS` that is being written to. No function is there.
const BEING_WRITTEN: usize = 1;

/// The place that is taken over next.
static NEXT_START: AtomicUsize = AtomicUsize::new(0);

impl Start {
    const fn none() -> Self {
        let [routine, handle_at, handle, before] = [const { AtomicUsize::new(0) }; 4];
        Self { routine, argument: AtomicU64::new(0), handle_at, handle, before }
    }

    /// Takes the place of what was here, if that is still what it was.
    fn write(&self, before: usize, routine: usize, argument: u64, handle_at: usize) -> bool {
        // ORDERING: whoever has made it its own writes the rest before the routine can be seen.
        let is_ours =
            self.routine.compare_exchange(before, BEING_WRITTEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if is_ours {
            self.argument.store(argument, Ordering::Relaxed);
            self.handle_at.store(handle_at, Ordering::Relaxed);
            self.handle.store(0, Ordering::Relaxed);
            self.before.store(sys::peek(handle_at).unwrap_or(0), Ordering::Relaxed);
            self.routine.store(routine, Ordering::Release);
        }
        is_ours
    }

    /// Whether it is of this routine and argument.
    fn is(&self, routine: usize, argument: u64) -> bool {
        // ORDERING: pairs with the release above.
        self.routine.load(Ordering::Acquire) == routine && self.argument.load(Ordering::Relaxed) == argument
    }

    /// Removes what is here, if that is still this routine.
    fn take(&self, routine: usize) -> bool {
        // ORDERING: nobody else gets it.
        self.routine.compare_exchange(routine, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

fn expect_routine(routine: usize, argument: u64, handle_at: usize) {
    // SAFETY: there is code where a word can be read; where there is none, no thread can start.
    let is_hooked = sys::peek(routine).is_none() || unsafe { mark::is_hooked(routine) };
    let handle_at = if is_hooked { 0 } else { handle_at };
    if STARTS.iter().any(|start| start.write(0, routine, argument, handle_at)) {
        return;
    }
    // ORDERING: any place is as good as another.
    let start = &STARTS[NEXT_START.fetch_add(1, Ordering::Relaxed) % STARTS.len()];
    let before = start.routine.load(Ordering::Relaxed);
    let _ = before != BEING_WRITTEN && start.write(before, routine, argument, handle_at);
}

/// Whether this is a routine that some thread is expected to start with. Two threads with the same routine and argument
/// may stand for one another here; which thread it is it knows by itself.
pub(super) fn is_routine(function: usize, argument: u64) -> bool {
    STARTS.iter().any(|start| start.is(function, argument) && start.take(function))
}

/// `pthread_create` has returned, and with it what it has written may be gone. Whoever had the handle before is gone.
fn keep_handle(routine: usize, argument: u64, handle_at: usize, handle: usize) {
    forget_handle(handle);
    let is_it = |start: &&Start| start.is(routine, argument) && start.handle_at.load(Ordering::Relaxed) == handle_at;
    if let Some(start) = STARTS.iter().find(is_it) {
        // ORDERING: one of them is there at any time.
        start.handle.store(handle, Ordering::Release);
        start.handle_at.store(0, Ordering::Release);
    }
}

/// A thread that is gone has not made a call that was recorded, and will not.
fn forget_handle(handle: usize) {
    for start in &STARTS {
        // ORDERING: the routine first: what takes this place in the meantime has another, or no handle yet.
        let routine = start.routine.load(Ordering::Acquire);
        if routine > BEING_WRITTEN && handle != 0 && start.handle.load(Ordering::Acquire) == handle {
            start.take(routine);
        }
    }
}

/// A thread makes its first call that is recorded. If the routine that it was created with is not hooked, this is the
/// only place where it can be told that the thread has started.
pub(super) fn begun(thread: &mut Thread, entry: &Entry) {
    let own = thread_pointer();
    let find = |is_own: &dyn Fn(&Start) -> bool| {
        STARTS.iter().find(|start| start.routine.load(Ordering::Acquire) > BEING_WRITTEN && is_own(start))
    };
    // ORDERING: pairs with the release in `keep_handle`: it is read from where it was written first.
    let is_written = |start: &Start| {
        let handle_at = start.handle_at.load(Ordering::Acquire);
        handle_at != 0 && sys::peek(handle_at) == Some(own)
    };
    let is_kept = |start: &Start| start.handle.load(Ordering::Acquire) == own;
    // What was there before it was called says nothing, unless nobody else has this handle: it is given out again.
    let is_new = |start: &Start| is_written(start) && start.before.load(Ordering::Relaxed) != own;
    let Some(start) = find(&is_new).or_else(|| find(&is_kept)).or_else(|| find(&is_written)) else { return };
    let (routine, argument) = (start.routine.load(Ordering::Acquire), start.argument.load(Ordering::Relaxed));
    if !start.take(routine) {
        return;
    }
    let keys = [(Key::Pthread, own as u64), (Key::StartRoutine, routine as u64), (Key::Argument, argument)];
    tell(thread, Watched::PthreadStarted, EventKind::Call, (entry.entered, entry.entered), &keys);
}

pub(super) fn routine_entered(thread: &mut Thread, argument: u64, entry: &Entry) {
    let routine = entry.header().function as u64;
    let keys = [(Key::Pthread, thread_pointer() as u64), (Key::StartRoutine, routine), (Key::Argument, argument)];
    let at = (entry.entered, entry.entered);
    tell(thread, Watched::PthreadStartRoutine, EventKind::Call, at, &keys);
    thread.awaiting_routine = 0;
    thread.notes.routine_slot = entry.slot();
    if let Some(entry) = thread.youngest() {
        entry.make_slow();
    }
}

/// It returned with this, or was left without returning.
pub(super) fn routine_left(thread: &mut Thread, result: Option<u64>, entry: &Entry, time: u64) {
    thread.notes.routine_slot = 0;
    let own = (Key::Pthread, thread_pointer() as u64);
    let at = (entry.entered, time);
    match result {
        Some(value) => {
            let keys = [own, (Key::ExitValue, value)];
            tell(thread, Watched::PthreadStartRoutine, EventKind::Return, at, &keys);
        }
        None => tell(thread, Watched::PthreadStartRoutine, EventKind::Exception, at, &[own]),
    }
}

pub(super) fn entered(thread: &mut Thread, watched: Watched, arguments: [u64; 6], entry: &Entry) {
    let [first, second, third, fourth, ..] = arguments;
    let mut tell = |keys: &[(Key, u64)]| {
        tell(thread, watched, EventKind::Call, (entry.entered, entry.entered), keys);
    };
    match watched {
        Watched::PthreadCreate => {
            expect_routine(third as usize, fourth, first as usize);
            if let Some((low, high)) = given_stack(second as usize) {
                stacks::learn(low, high);
            }
            let detached = u64::from(is_detached(second as usize));
            tell(&[(Key::StartRoutine, third), (Key::Argument, fourth), (Key::Detached, detached)]);
        }
        Watched::PthreadExit => tell(&[(Key::Pthread, thread_pointer() as u64), (Key::ExitValue, first)]),
        Watched::PthreadCancel | Watched::PthreadDetach => tell(&[(Key::Pthread, first)]),
        _ if joins(watched) => tell(&[(Key::Pthread, first)]),
        Watched::MakeContext => {
            // Where a context says which stack it is to have: behind two words.
            let word = |place: usize| sys::peek(first as usize + 8 * place);
            if let (Some(low), Some(size)) = (word(2), word(4)) {
                stacks::learn(low, low.saturating_add(size));
            }
        }
        Watched::MakeFastContext => {
            let (end, size) = (first as usize, second as usize);
            stacks::learn(end.saturating_sub(size), end);
        }
        Watched::SigAltStack if first != 0 => {
            // A description of the stack, if the program's pointer is good: where, flags, size.
            const DISABLE: usize = 2;
            let word = |place: usize| sys::peek(first as usize + 8 * place);
            if let (Some(low), Some(flags), Some(size)) = (word(0), word(1), word(2))
                && flags & DISABLE == 0
            {
                stacks::learn(low, low.saturating_add(size));
            }
        }
        Watched::Exit | Watched::ExitAtOnce => {
            // A child that shares our memory until it is another program has an id of its own.
            if let Some(control) = thread::control().filter(|_| thread::is_traced_process()) {
                // ORDERING: read once the process is gone.
                control.exit_code.store((first & 0xFF) + 1, Ordering::Relaxed);
            }
        }
        Watched::Fork => {
            if let Some(control) = thread::control() {
                // ORDERING: a count.
                control.forks.fetch_add(1, Ordering::Relaxed);
            }
        }
        Watched::Execute | Watched::ExecuteAt | Watched::ExecuteFile => executing(true),
        Watched::Unshare | Watched::SetNamespace | Watched::SetCapabilities | Watched::ProcessControl
            if needs_to_be_alone(watched, first) && thread::is_traced_process() =>
        {
            open::spoor_serve(Subject::Alone as u32, 0);
        }
        _ => {}
    }
}

/// Whether a call is about to change what threads of one process must have in common, or what only a process with one
/// thread may change.
fn needs_to_be_alone(watched: Watched, argument: u64) -> bool {
    const NEW_USER: u64 = 0x1000_0000;
    const MEMORY_HANDLERS_THREADS: u64 = 0x1_0900;
    const DROP_CAPABILITY: u64 = 24;
    const SECURE_BITS: u64 = 28;
    const AMBIENT_CAPABILITIES: u64 = 47;
    const KEEP_CAPABILITIES: u64 = 8;
    match watched {
        Watched::Unshare => argument & (NEW_USER | MEMORY_HANDLERS_THREADS) != 0,
        Watched::ProcessControl => {
            [DROP_CAPABILITY, SECURE_BITS, AMBIENT_CAPABILITIES, KEEP_CAPABILITIES].contains(&(argument & 0xFFFF_FFFF))
        }
        _ => true,
    }
}

/// Notes that this process is about to become another program, or that nothing came of that.
pub(in crate::target) fn executing(now: bool) {
    if let Some(control) = thread::control().filter(|_| thread::is_traced_process()) {
        // ORDERING: read once the program is gone.
        control.executing.store(now.into(), Ordering::Relaxed);
    }
}

pub(super) fn left(thread: &mut Thread, watched: Watched, arguments: [u64; 6], result: u64, entry: &Entry, time: u64) {
    // The lower half is what an `int` is returned in.
    let result = u64::from(result as u32);
    let [first, second, third, fourth, ..] = arguments;
    let mut tell = |keys: &[(Key, u64)]| tell(thread, watched, EventKind::Return, (entry.entered, time), keys);
    match watched {
        Watched::PthreadCreate if result == 0 && first != 0 => {
            // SAFETY: it has succeeded, so the program's pointer was good, and holds the new thread's handle.
            let handle = unsafe { *(first as usize as *const u64) };
            keep_handle(third as usize, fourth, first as usize, handle as usize);
            let (routine, argument) = ((Key::StartRoutine, third), (Key::Argument, fourth));
            tell(&[(Key::Result, result), (Key::Pthread, handle), routine, argument]);
        }
        _ if joins(watched) && result == 0 && second != 0 => {
            // SAFETY: as above, and holds the value that the thread ended with.
            let value = unsafe { *(second as usize as *const u64) };
            tell(&[(Key::Result, result), (Key::Pthread, first), (Key::ExitValue, value)]);
        }
        Watched::PthreadCreate => {
            // No thread will enter it.
            is_routine(third as usize, fourth);
            tell(&[(Key::Result, result)]);
        }
        Watched::PthreadCancel | Watched::PthreadDetach => tell(&[(Key::Result, result), (Key::Pthread, first)]),
        _ if joins(watched) => {
            tell(&[(Key::Result, result), (Key::Pthread, first)]);
        }
        Watched::Execute | Watched::ExecuteAt | Watched::ExecuteFile => executing(false),
        Watched::Fork if (result as i32) < 0 => {
            if let Some(control) = thread::control() {
                // ORDERING: a count.
                control.forks.fetch_sub(1, Ordering::Relaxed);
            }
        }
        Watched::PthreadSetName => {
            let [low, high] = sys::thread_name();
            thread.writer().put(&[tsc::now(), header(Kind::Name, 4, 0, 0), low, high]);
        }
        _ => {}
    }
}

/// Whether it waits for the end of the thread that is its first argument, and writes to where its second says.
fn joins(watched: Watched) -> bool {
    use Watched::*;
    matches!(watched, PthreadJoin | PthreadTryJoin | PthreadTimedJoin | PthreadClockJoin)
}

/// The stack that a thread with these attributes is to have, if the program has one for it. In glibc's attributes, behind
/// the flags and the size of the guard, there are where it ends and how large it is.
fn given_stack(attributes: usize) -> Option<(usize, usize)> {
    const GIVEN: u32 = 8;
    let word = |place: usize| sys::peek(attributes + 8 * place);
    let (flags, end, size) = (word(1)?, word(3)?, word(4)?);
    (attributes != 0 && flags as u32 & GIVEN != 0).then(|| (end.saturating_sub(size), end))
}

/// Whether a thread with these attributes is detached from the start. In glibc's attributes, behind the scheduling
/// parameter and policy, there is a word of flags.
fn is_detached(attributes: usize) -> bool {
    const DETACHED: u32 = 1;
    attributes != 0 && sys::peek(attributes + 8).is_some_and(|flags| flags as u32 & DETACHED != 0)
}
