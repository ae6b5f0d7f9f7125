//! Threads that could not be let go of when that was due: one that waits in the system for its child to be another program does
//! not stop before that, and only a thread that is stopped can be let go of.

use std::{
    cell::RefCell,
    thread,
    time::{Duration, Instant},
};

use agent::tracee;
use nix::{
    errno::Errno,
    sys::ptrace::{self, Options},
    unistd::Pid,
};

use super::{Seen, look};
use crate::{install::restart_call, process};

thread_local! {
    /// Those of the calling thread, which alone can let go of them.
    static LEFT: RefCell<Vec<Pid>> = const { RefCell::new(Vec::new()) };
}

/// How long threads are waited for that are to be let go of, before something else is done: those that wait in the system, and
/// those that only wait for a processor.
const GLANCE: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(1);

/// Seizes a thread and tells it to stop. One that was told so before, and has not stopped yet, need not be.
pub(crate) fn seize(thread: Pid) -> Result<(), Errno> {
    if !hold(thread)? {
        // One that has ended meanwhile says so when it is waited for.
        let _ = ptrace::interrupt(thread);
    }
    Ok(())
}

/// Seizes a thread, which goes on. Whether it was told to stop before, and has not stopped yet.
pub(crate) fn hold(thread: Pid) -> Result<bool, Errno> {
    let place = |left: &[Pid]| left.iter().position(|other| *other == thread);
    let is_left = LEFT.with_borrow_mut(|left| place(left).map(|place| left.swap_remove(place)).is_some());
    if !is_left {
        ptrace::seize(thread, Options::empty())?;
    }
    Ok(is_left)
}

/// Lets go of a thread now, or as soon as it stops.
pub(crate) fn let_go(thread: Pid) {
    // One that has stopped, but was not seen to, may be about to be given a signal.
    if is_let_go(thread) {
        return;
    }
    let is_stopped = process::state(thread.as_raw()) == Some('t');
    if is_stopped && (is_let_go(thread) || ptrace::detach(thread, None).is_ok()) {
        return;
    }
    // That fails for one that is about to end, which has to be asked how it ended.
    let _ = ptrace::interrupt(thread);
    let_go_all([thread]);
}

/// Lets go of a thread that is stopped. One that was killed meanwhile has to be asked how it ended, or the system does not tell
/// others of the program's end.
pub(super) fn resume(thread: Pid) {
    if ptrace::detach(thread, None).is_err() {
        let_go_all([thread]);
    }
}

/// Lets go of threads that were told to stop, as soon as they do.
pub(crate) fn let_go_all(threads: impl IntoIterator<Item = Pid>) {
    LEFT.with_borrow_mut(|left| left.extend(threads));
    let_go_of_left(GLANCE);
    let deadline = Instant::now() + PATIENCE;
    let stops = |thread: &Pid| !process::is_unstoppable(thread.as_raw());
    while LEFT.with_borrow(|left| left.iter().any(stops)) && Instant::now() < deadline {
        let_go_of_left(GLANCE);
    }
}

/// Lets go of a thread that stops soon, where that was to be done already.
pub(crate) fn let_go_of(thread: Pid) {
    let deadline = Instant::now() + PATIENCE;
    while LEFT.with_borrow(|left| left.contains(&thread)) && Instant::now() < deadline {
        let_go_of_left(GLANCE);
    }
}

/// Lets go of those that have stopped since, and waits for that for at most so long.
pub(crate) fn let_go_of_left(patience: Duration) {
    let deadline = Instant::now() + patience;
    LEFT.with_borrow_mut(|left| {
        loop {
            left.retain(|thread| !is_let_go(*thread));
            if left.is_empty() || Instant::now() >= deadline {
                return;
            }
            thread::sleep(Duration::from_micros(50));
        }
    });
}

/// Lets go of a thread that was seen to stop, and gives it a signal; 0 is none.
pub(crate) fn stopped(thread: Pid, signal: i32) {
    // One that was killed meanwhile stays among those that are waited for.
    if tracee::let_go(thread.as_raw(), signal).is_ok() {
        LEFT.with_borrow_mut(|left| left.retain(|other| *other != thread));
    }
}

fn is_let_go(thread: Pid) -> bool {
    match look(thread) {
        Ok(Seen::Running) => false,
        Ok(Seen::Signal(signal)) => tracee::let_go(thread.as_raw(), signal).is_ok(),
        Ok(Seen::Event(..)) => {
            restart_call(thread);
            ptrace::detach(thread, None).is_ok()
        }
        Ok(Seen::Ended(_)) | Err(_) => true,
    }
}
