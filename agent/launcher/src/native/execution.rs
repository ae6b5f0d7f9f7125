//! A thread that is about to run another program: it is stopped at the first instruction of that.

use std::io;

use agent::tracee::go_on;
use anyhow::{Result, anyhow};
use nix::{
    errno::Errno,
    libc::{PTRACE_EVENT_EXEC, SIGTRAP},
    sys::ptrace::{self, Options},
    unistd::Pid,
};

use super::{Seen, look, seen};
use crate::end_state::EndState;

/// A thread that is held until its process runs another program. Dropped, it is let go of.
#[derive(Debug)]
pub(crate) struct Execution {
    process: Pid,
    thread: Pid,
    is_held: bool,
}

/// What has become of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Executed {
    /// Nothing yet.
    NotYet,
    /// The process is another program, and is stopped at its first instruction.
    Done,
    /// The process has ended, or somebody has stopped it, and it is let go of.
    Over(Option<EndState>),
}

impl Execution {
    /// Holds a thread, which waits for us.
    pub(crate) fn of(pid: i32, tid: i32) -> Result<Self> {
        let (process, thread) = (Pid::from_raw(pid), Pid::from_raw(tid));
        // It may have been held before. It waits for us, so that it stops.
        super::let_go_of(thread);
        ptrace::seize(thread, Options::PTRACE_O_TRACEEXEC)
            .map_err(|error| anyhow!("thread {tid} of process {pid} cannot be held: {error}"))?;
        Ok(Self { process, thread, is_held: true })
    }

    /// Looks what has become of it. Signals that it is given meanwhile it gets.
    pub(crate) fn look(&mut self) -> io::Result<Executed> {
        let mut seen = look(self.thread);
        // With the program it gets the id of the process.
        if self.thread != self.process && matches!(seen, Ok(Seen::Running) | Err(Errno::ECHILD)) {
            seen = match look(self.process) {
                Err(Errno::ECHILD) => seen,
                other => other,
            };
        }
        match seen {
            Ok(Seen::Event(PTRACE_EVENT_EXEC, _)) => {
                self.thread = self.process;
                leave_call(self.process)?;
                return Ok(Executed::Done);
            }
            Ok(Seen::Event(_, SIGTRAP)) => ptrace::cont(self.thread, None)?,
            Ok(Seen::Signal(signal)) => go_on(self.thread.as_raw(), signal)?,
            // Somebody has stopped it.
            Ok(Seen::Event(..)) => {
                self.let_go();
                return Ok(Executed::Over(None));
            }
            Ok(Seen::Ended(ended)) => return Ok(self.ended(ended)),
            Err(Errno::ECHILD) => return Ok(self.ended(EndState::Unknown)),
            Ok(Seen::Running) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Executed::NotYet)
    }

    fn ended(&mut self, ending: EndState) -> Executed {
        self.is_held = false;
        Executed::Over(Some(ending))
    }

    /// Somebody else holds it from here on, or nobody.
    pub(crate) fn hand_over(mut self) {
        self.is_held = false;
    }

    fn let_go(&mut self) {
        self.is_held = false;
        super::let_go(self.thread);
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        if self.is_held {
            self.let_go();
        }
    }
}

/// Has a process that has just become another program get out of the call that did it, which changes its registers.
pub(super) fn leave_call(process: Pid) -> io::Result<()> {
    ptrace::interrupt(process)?;
    ptrace::cont(process, None)?;
    loop {
        match seen::wait(process)? {
            Seen::Event(..) => return Ok(()),
            Seen::Signal(signal) => go_on(process.as_raw(), signal)?,
            Seen::Ended(_) | Seen::Running => return Err(Errno::ESRCH.into()),
        }
    }
}
