//! A program that this process starts, held at a gate until it is to begin.
//!
//! The library is preloaded. Its constructor runs before anything of the program, says through one pipe that it is
//! there, and waits at another. Both pipes, and what is in the environment for them, are gone when the program begins.

use std::{
    env,
    ffi::{CString, OsStr, OsString},
    io::{self, ErrorKind},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, bail};
use nix::{
    spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn},
    sys::{
        signal::{SigSet, Signal, kill},
        wait::waitpid,
    },
    unistd::Pid,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{FdFlags, fcntl_setfd},
    pipe::{PipeFlags, pipe_with},
};

use crate::{
    end_state::EndState,
    executable::{Executable, Unrunnable},
    install::LibraryPlace,
    native::{self, Borrowed, Lent},
    process, signals,
};

/// How often a wait looks whether somebody has asked to stop.
const GLANCE: Duration = Duration::from_millis(50);
/// How long a program that never came to the gate is waited for, to say how it ended.
const PATIENCE: Duration = Duration::from_secs(2);

/// A program at the gate. Dropped, it ends without having begun.
#[derive(Debug)]
pub(crate) struct Gated {
    program: Option<Program>,
    gate: Gate,
}

/// What holds a program.
#[derive(Debug)]
enum Gate {
    /// It reads from the other end of this pipe.
    Pipe(OwnedFd),
    /// It is stopped at its first instruction.
    Stopped,
    /// There, it serves us.
    Lent(Box<Lent>),
    /// Nothing any more.
    Open,
}

/// A program that this process started.
#[derive(Debug)]
pub(crate) struct Program {
    pid: i32,
    /// Known once it has been waited for, after which its id may be another's.
    ending: Option<EndState>,
}

impl Gated {
    /// Starts a program and waits until it stands at the gate.
    pub(crate) fn start(
        executable: &Executable,
        name: &OsStr,
        args: &[OsString],
        library: &Path,
        deadline: Instant,
    ) -> Result<Self> {
        let (ready, tell_ready) = pipe_with(PipeFlags::CLOEXEC)?;
        let (wait_open, gate) = pipe_with(PipeFlags::CLOEXEC)?;
        let added = [("SPOOR_GATE", format!("{}:{}", tell_ready.as_raw_fd(), wait_open.as_raw_fd()))];
        let environment = environment(library, &added)?;

        // These two are for the program alone: nothing else is started until this process has closed its own.
        fcntl_setfd(&tell_ready, FdFlags::empty())?;
        fcntl_setfd(&wait_open, FdFlags::empty())?;
        let spawned = spawn(executable, name, args, &environment);
        drop((tell_ready, wait_open));

        let pid = spawned.map_err(|error| cannot_run(executable, &error))?;
        let mut gated = Self { program: Some(Program { pid, ending: None }), gate: Gate::Pipe(gate) };
        gated.wait_ready(&ready, executable, deadline)?;
        Ok(gated)
    }

    /// Starts a program and stops it at its first instruction.
    pub(crate) fn stopped(executable: &Executable, name: &OsStr, args: &[OsString]) -> Result<Self> {
        let environment: Result<Vec<_>, _> = env::vars_os()
            .map(|(name, value)| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()))
            .collect();
        let path = CString::new(executable.path.as_os_str().as_bytes())?;
        let pid = native::start(&path, &arguments(name, args)?, &environment?);
        let pid = pid.map_err(|error| cannot_run(executable, &error))?;
        Ok(Self { program: Some(Program { pid, ending: None }), gate: Gate::Stopped })
    }

    /// Has the program serve us until it begins.
    pub(crate) fn lend(&mut self, thread: Borrowed, library: &LibraryPlace) -> Result<()> {
        let LibraryPlace::Native(library) = library else { bail!("the library was not mapped by hand") };
        self.gate = Gate::Lent(Box::new(thread.lend(library, "spoor_serve", &[0, 0])?));
        Ok(())
    }

    pub(crate) fn pid(&self) -> i32 {
        self.program.as_ref().map_or(0, |program| program.pid)
    }

    /// Lets the program begin.
    pub(crate) fn open(mut self) -> Result<Program> {
        let opened = match std::mem::replace(&mut self.gate, Gate::Open) {
            Gate::Pipe(pipe) => match rustix::io::write(&pipe, b"o") {
                // A program that has been killed at the gate says so when it is waited for.
                Ok(_) | Err(rustix::io::Errno::PIPE) => Ok(()),
                Err(error) => Err(anyhow!("cannot open the gate: {error}")),
            },
            Gate::Lent(lent) => lent.take_back(Instant::now() + PATIENCE),
            Gate::Stopped | Gate::Open => Err(anyhow!("the program was not prepared")),
        };
        if let Err(error) = opened
            && !process::has_ended(self.pid())
        {
            return Err(error);
        }
        self.program.take().ok_or_else(|| anyhow!("the gate is open already"))
    }

    fn wait_ready(&mut self, ready: &OwnedFd, executable: &Executable, deadline: Instant) -> Result<()> {
        let name = executable.path.display();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(anyhow!("{name} did not come to its start in time (try a longer --startup-timeout)"));
            }
            signals::check()?;
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
            let _ = kill(Pid::from_raw(program.pid), Signal::SIGKILL);
            let _ = waitpid(Pid::from_raw(program.pid), None);
        }
    }
}

impl Program {
    /// How it ended, if it did.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<EndState>> {
        if self.ending.is_none() {
            let pid = rustix::process::Pid::from_raw(self.pid);
            let waited = rustix::process::waitpid(pid, rustix::process::WaitOptions::NOHANG)?;
            match waited.map(|(_, status)| status) {
                // Its main thread was to be let go of.
                Some(status) if status.stopped() => {
                    let signal = status.stopping_signal().filter(|_| status.as_raw() >> 16 == 0);
                    native::stopped(Pid::from_raw(self.pid), signal.unwrap_or(0));
                }
                status => self.ending = status.map(|status| EndState::from_raw(status.as_raw())),
            }
        }
        Ok(self.ending)
    }

    /// Its end was seen elsewhere.
    pub(crate) fn has_ended(&mut self, ending: EndState) {
        self.ending = Some(ending);
    }

    /// Waits for its end, for at most so long.
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<Option<EndState>> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(ending) = self.try_wait()? {
                return Ok(Some(ending));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            process::wait_for_end(self.pid, left)?;
        }
    }
}

/// Starts the program. The standard library would sort its environment.
fn spawn(executable: &Executable, name: &OsStr, args: &[OsString], environment: &[CString]) -> io::Result<i32> {
    let arguments = arguments(name, args)?;
    let mut attributes = PosixSpawnAttr::init()?;
    // This process ignores it, as all of Rust's do.
    attributes.set_sigdefault(&SigSet::from_iter([Signal::SIGPIPE]))?;
    attributes.set_flags(PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF)?;
    let pid = posix_spawn(&*executable.path, &PosixSpawnFileActions::init()?, &attributes, &arguments, environment)?;
    Ok(pid.as_raw())
}

/// What the program is called with: its name comes first.
fn arguments(name: &OsStr, args: &[OsString]) -> io::Result<Vec<CString>> {
    let arguments = [name].into_iter().chain(args.iter().map(OsString::as_os_str));
    Ok(arguments.map(|text| CString::new(text.as_bytes())).collect::<Result<_, _>>()?)
}

/// The environment of this process, in its order, with the library preloaded before what is already, and with these
/// variables besides. The library in the program undoes all of it.
fn environment(library: &Path, added: &[(&str, String)]) -> Result<Vec<CString>> {
    let variable = |name: &[u8], value: &[u8]| CString::new([name, b"=", value].concat());
    let mut environment = Vec::new();
    let mut preload_before = None;
    for (name, value) in env::vars_os() {
        if name == "LD_PRELOAD" {
            let both = [library.as_os_str().as_bytes(), b":", value.as_bytes()].concat();
            environment.push(variable(b"LD_PRELOAD", &both)?);
            preload_before = Some(value);
        } else {
            environment.push(variable(name.as_bytes(), value.as_bytes())?);
        }
    }
    match preload_before {
        Some(before) => environment.push(variable(b"SPOOR_PRELOAD", before.as_bytes())?),
        None => environment.push(variable(b"LD_PRELOAD", library.as_os_str().as_bytes())?),
    }
    for (name, value) in added {
        environment.push(variable(name.as_bytes(), value.as_bytes())?);
    }
    Ok(environment)
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
