//! A program that this process starts, held at a gate until it is to begin.
//!
//! The library is preloaded. Its constructor runs before anything of the program, says through one pipe that it is
//! there, and waits at another. Both pipes, and what is in the environment for them, are gone when the program begins.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, ErrorKind},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::Path,
    process::{Child, Command},
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{FdFlags, fcntl_setfd},
    pipe::{PipeFlags, pipe_with},
};

use crate::{
    ending::Ending,
    executable::{Executable, Unrunnable},
    signals::Signals,
};

/// How often a wait looks whether somebody has asked to stop.
const GLANCE: Duration = Duration::from_millis(50);
/// How long a program that never came to the gate is waited for, to say how it ended.
const PATIENCE: Duration = Duration::from_secs(2);

/// A program at the gate. Dropped, it ends without having begun.
#[derive(Debug)]
pub(crate) struct Gated {
    program: Option<Program>,
    gate: OwnedFd,
}

/// A program that this process started.
#[derive(Debug)]
pub(crate) struct Program {
    child: Child,
    pid: i32,
}

impl Gated {
    /// Starts a program and waits until it stands at the gate.
    pub(crate) fn start(
        executable: &Executable,
        name: &OsStr,
        args: &[OsString],
        library: &Path,
        signals: &Signals,
        deadline: Instant,
    ) -> Result<Self> {
        let (ready, tell_ready) = pipe_with(PipeFlags::CLOEXEC)?;
        let (wait_open, gate) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut command = Command::new(&executable.path);
        command.arg0(name).args(args);
        let before = env::var_os("LD_PRELOAD").filter(|value| !value.is_empty());
        let mut preload = library.as_os_str().to_owned();
        if let Some(before) = before {
            preload.push(":");
            preload.push(&before);
            command.env("SPOOR_PRELOAD", before);
        }
        command.env("LD_PRELOAD", preload);
        command.env("SPOOR_GATE", format!("{}:{}", tell_ready.as_raw_fd(), wait_open.as_raw_fd()));

        // These two are for the program alone: nothing else is started until this process has closed its own.
        fcntl_setfd(&tell_ready, FdFlags::empty())?;
        fcntl_setfd(&wait_open, FdFlags::empty())?;
        let spawned = command.spawn();
        drop((tell_ready, wait_open));

        let child = spawned.map_err(|error| cannot_run(executable, &error))?;
        let pid = i32::try_from(child.id())?;
        let mut gated = Self { program: Some(Program { child, pid }), gate };
        gated.wait_ready(&ready, executable, signals, deadline)?;
        Ok(gated)
    }

    pub(crate) fn pid(&self) -> i32 {
        self.program.as_ref().map_or(0, |program| program.pid)
    }

    /// Lets the program begin.
    pub(crate) fn open(mut self) -> Result<Program> {
        let program = self.program.take().ok_or_else(|| anyhow!("the gate is open already"))?;
        match rustix::io::write(&self.gate, b"o") {
            // A program that has been killed at the gate says so when it is waited for.
            Ok(_) | Err(rustix::io::Errno::PIPE) => Ok(program),
            Err(error) => {
                self.program = Some(program);
                Err(anyhow!("cannot open the gate: {error}"))
            }
        }
    }

    fn wait_ready(
        &mut self,
        ready: &OwnedFd,
        executable: &Executable,
        signals: &Signals,
        deadline: Instant,
    ) -> Result<()> {
        let name = executable.path.display();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(anyhow!("{name} did not come to its start in time (try a longer --startup-timeout)"));
            }
            signals.check()?;
            let slice = Timespec::try_from(left.min(GLANCE))?;
            match poll(&mut [PollFd::new(ready, PollFlags::IN)], Some(&slice)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => continue,
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            match rustix::io::read(ready, &mut [0_u8; 1]) {
                Ok(1) => return Ok(()),
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The pipe was closed and nothing said: the program runs without the library, or is gone.
        let ending = self.program.as_mut().and_then(|program| program.wait(PATIENCE).ok().flatten());
        let how = ending.map_or("it was stopped".to_string(), |ending| format!("it {ending}"));
        Err(Unrunnable::new(format!(
            "cannot trace {name}: it did not load the agent library, and {how} (is it linked statically, or protected from \
             LD_PRELOAD?)"
        ))
        .into())
    }
}

impl Drop for Gated {
    fn drop(&mut self) {
        if let Some(program) = &mut self.program {
            // It has not been waited for, so that its id is still its own.
            let _ = program.child.kill();
            let _ = program.child.wait();
        }
    }
}

impl Program {
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// How it ended, if it did.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<Ending>> {
        Ok(self.child.try_wait()?.map(Ending::from))
    }

    /// Waits for its end, for at most so long.
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<Option<Ending>> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(ending) = self.try_wait()? {
                return Ok(Some(ending));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            crate::process::wait_for_end(self.pid, left)?;
        }
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) -> io::Result<Ending> {
        self.child.kill()?;
        self.child.wait().map(Ending::from)
    }
}

fn cannot_run(executable: &Executable, error: &io::Error) -> Unrunnable {
    let why = match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::NOEXEC) => "it is neither a program nor a script that says what interprets it".into(),
        Some(rustix::io::Errno::TOOBIG) => "its arguments and environment are too long".into(),
        _ if error.kind() == ErrorKind::NotFound => "the loader that it names does not exist".into(),
        _ => error.to_string(),
    };
    Unrunnable::new(format!("cannot run {}: {why}", executable.path.display()))
}
