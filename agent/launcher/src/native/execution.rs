//! A thread that is about to run another program: it is stopped at the first instruction of that.

use std::{io, time::Duration};

use anyhow::{Result, anyhow};
use nix::{
    errno::Errno,
    libc::PTRACE_EVENT_EXEC,
    sys::{
        ptrace::{self, Options},
        signal::Signal,
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

use crate::end_state::EndState;

/// How long a thread that waits for us may take to stop.
const STOPPING: Duration = Duration::from_millis(100);

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
        super::let_go_of_left(STOPPING);
        ptrace::seize(thread, Options::PTRACE_O_TRACEEXEC)
            .map_err(|error| anyhow!("thread {tid} of process {pid} cannot be held: {error}"))?;
        Ok(Self { process, thread, is_held: true })
    }

    /// Looks what has become of it. Signals that it is given meanwhile it gets.
    pub(crate) fn look(&mut self) -> io::Result<Executed> {
        let mut seen = wait(self.thread);
        // With the program it gets the id of the process.
        if self.thread != self.process && matches!(seen, Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD)) {
            seen = match wait(self.process) {
                Err(Errno::ECHILD) => seen,
                other => other,
            };
        }
        match seen {
            Ok(WaitStatus::PtraceEvent(_, _, PTRACE_EVENT_EXEC)) => {
                self.thread = self.process;
                leave_call(self.process)?;
                return Ok(Executed::Done);
            }
            Ok(WaitStatus::PtraceEvent(_, Signal::SIGTRAP, _)) => ptrace::cont(self.thread, None)?,
            Ok(WaitStatus::Stopped(_, signal)) => ptrace::cont(self.thread, signal)?,
            // Somebody has stopped it.
            Ok(WaitStatus::PtraceEvent(..)) => {
                self.let_go();
                return Ok(Executed::Over(None));
            }
            Ok(WaitStatus::Exited(_, code)) => return Ok(self.ended(EndState::Exited(code))),
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(self.ended(EndState::Signaled(signal as i32))),
            Err(Errno::ECHILD) => return Ok(self.ended(EndState::Unknown)),
            Ok(_) => {}
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

fn wait(thread: Pid) -> nix::Result<WaitStatus> {
    waitpid(thread, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD | WaitPidFlag::WNOHANG))
}

/// Has a process that has just become another program get out of the call that did it, which changes its registers.
pub(super) fn leave_call(process: Pid) -> nix::Result<()> {
    ptrace::interrupt(process)?;
    ptrace::cont(process, None)?;
    loop {
        match waitpid(process, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD))? {
            WaitStatus::PtraceEvent(..) => return Ok(()),
            WaitStatus::Stopped(_, signal) => ptrace::cont(process, signal)?,
            _ => return Err(Errno::ESRCH),
        }
    }
}
