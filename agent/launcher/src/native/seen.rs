//! What has become of threads that the calling thread traces. A signal is its number here: the real-time ones have no names.

use nix::{errno::Errno, unistd::Pid};
use rustix::process::{WaitId, WaitIdOptions, WaitOptions, WaitStatus, waitid, waitpid};

use crate::{end_state::EndState, install::restart_call, process};

/// Threads as well as processes, and no children that other threads wait for.
const TRACED: u32 = 0x6000_0000;

/// What has become of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It goes on.
    Running,
    /// It has stopped, and is about to be given a signal.
    Signal(i32),
    /// It has stopped for who traces it: the event, and the signal that says which kind of that.
    Event(i32, i32),
    /// It has ended.
    Ended(EndState),
}

impl Seen {
    fn of(status: Option<WaitStatus>) -> Self {
        let Some(status) = status else { return Self::Running };
        match (status.stopping_signal(), status.as_raw() >> 16) {
            (None, _) => Self::Ended(EndState::from_raw(status.as_raw())),
            (Some(signal), 0) => Self::Signal(signal),
            (Some(signal), event) => Self::Event(event, signal),
        }
    }
}

/// Waits until something has become of a thread.
pub(super) fn wait(thread: Pid) -> Result<Seen, Errno> {
    loop {
        match see(thread, WaitOptions::empty()) {
            Err(Errno::EINTR) => {}
            seen => return seen,
        }
    }
}

/// What has become of a thread. How a program has ended that this process has started is left to who waits for that: it can be
/// asked for once.
pub(crate) fn look(thread: Pid) -> Result<Seen, Errno> {
    let any = WaitIdOptions::from_bits_retain(TRACED) | WaitIdOptions::EXITED | WaitIdOptions::STOPPED;
    let only_look = WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let Some(status) = waitid(WaitId::Pid(id(thread)?), any | only_look).map_err(errno)? else {
        return Ok(Seen::Running);
    };
    let ended = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Some(EndState::Exited(code)),
        (_, signal) => signal.map(EndState::Signaled),
    };
    match ended {
        Some(ended) if process::is_own_child(thread.as_raw()) => Ok(Seen::Ended(ended)),
        _ => see(thread, WaitOptions::NOHANG),
    }
}

fn see(thread: Pid, options: WaitOptions) -> Result<Seen, Errno> {
    let options = options | WaitOptions::from_bits_retain(TRACED);
    let seen = Seen::of(waitpid(Some(id(thread)?), options).map_err(errno)?.map(|(_, status)| status));
    if matches!(seen, Seen::Signal(_)) {
        // A traced thread stops also for a signal that is ignored, and would otherwise not have interrupted its system call.
        restart_call(thread);
    }
    Ok(seen)
}

fn id(thread: Pid) -> Result<rustix::process::Pid, Errno> {
    rustix::process::Pid::from_raw(thread.as_raw()).ok_or(Errno::ESRCH)
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_raw(error.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::{process::Command, thread, time::Duration};

    use super::*;

    #[test]
    fn how_a_program_of_ours_has_ended_can_still_be_asked_for() {
        let mut program = Command::new("sh").args(["-c", "exit 7"]).spawn().expect("it starts");
        let thread = Pid::from_raw(program.id() as i32);
        while look(thread) == Ok(Seen::Running) {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(look(thread), Ok(Seen::Ended(EndState::Exited(7))));
        assert_eq!(program.wait().expect("its end").code(), Some(7));
    }
}
