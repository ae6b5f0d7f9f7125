//! Threads that could not be let go of when that was due: one that waits in the system for its child to be another program does
//! not stop before that, and only a thread that is stopped can be let go of.

use std::{
    cell::RefCell,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        ptrace,
        signal::Signal,
        wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid},
    },
    unistd::Pid,
};

use crate::{install::restart_call, process};

thread_local! {
    /// Those of the calling thread, which alone can let go of them.
    static LEFT: RefCell<Vec<Pid>> = const { RefCell::new(Vec::new()) };
}

/// How long a thread is waited for that is to be let go of, before something else is done.
const PATIENCE: Duration = Duration::from_millis(5);

/// Lets go of a thread now, or as soon as it stops.
pub(crate) fn let_go(thread: Pid) {
    if ptrace::detach(thread, None).is_ok() || ptrace::interrupt(thread).is_err() {
        return;
    }
    let_go_all([thread]);
}

/// Lets go of threads that were told to stop, as soon as they do.
pub(crate) fn let_go_all(threads: impl IntoIterator<Item = Pid>) {
    LEFT.with_borrow_mut(|left| left.extend(threads));
    let_go_of_left(PATIENCE);
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

/// Lets go of a thread that was seen to stop.
pub(crate) fn stopped(thread: Pid, signal: Option<Signal>) {
    let _ = ptrace::detach(thread, signal);
    LEFT.with_borrow_mut(|left| left.retain(|other| *other != thread));
}

/// What has become of a thread that this one traces. How a program has ended that this process has started is left to who waits
/// for that: it can be asked for once.
pub(crate) fn look(thread: Pid) -> nix::Result<WaitStatus> {
    let any = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD | WaitPidFlag::WNOHANG;
    match waitid(Id::Pid(thread), any | WaitPidFlag::WEXITED | WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT)? {
        ended @ (WaitStatus::Exited(..) | WaitStatus::Signaled(..)) if process::is_own_child(thread.as_raw()) => {
            Ok(ended)
        }
        WaitStatus::StillAlive => Ok(WaitStatus::StillAlive),
        _ => waitpid(thread, Some(any)),
    }
}

fn is_let_go(thread: Pid) -> bool {
    match look(thread) {
        Ok(WaitStatus::StillAlive) => false,
        Ok(WaitStatus::Stopped(_, signal)) => ptrace::detach(thread, signal).is_ok(),
        Ok(WaitStatus::PtraceEvent(..)) => {
            restart_call(thread);
            ptrace::detach(thread, None).is_ok()
        }
        Ok(_) | Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn how_a_program_of_ours_has_ended_can_still_be_asked_for() {
        let mut program = Command::new("sh").args(["-c", "exit 7"]).spawn().expect("it starts");
        let thread = Pid::from_raw(program.id() as i32);
        while look(thread) == Ok(WaitStatus::StillAlive) {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(look(thread), Ok(WaitStatus::Exited(thread, 7)));
        assert_eq!(program.wait().expect("its end").code(), Some(7));
    }
}
