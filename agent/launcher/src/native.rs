//! Getting into a process without anybody's help: threads are stopped and borrowed, and the library is mapped by hand.

mod borrowed;
mod execution;
mod left;
mod seen;
mod system_call;

use std::{
    ffi::CString,
    io, thread,
    time::{Duration, Instant},
};

use agent::{
    mapped::{MapError, MappedLibrary},
    shared::{BORROWED_LEAVES, BORROWED_NOBODY, Command},
    tracee::{Waiting, go_on},
};
use anyhow::{Context, Result, anyhow, bail};
use nix::{
    libc::PTRACE_EVENT_EXEC,
    sys::ptrace::{self, Options},
    unistd::Pid,
};

pub(crate) use self::{
    borrowed::{Borrowed, Lent, entry_point, interrupt, while_stopped},
    execution::{Executed, Execution},
    left::{hold, let_go, let_go_all, let_go_of, let_go_of_left, seize, stopped},
    seen::{Seen, look},
};
use crate::{
    install::{Maps, TargetMemory, file_name},
    library, process, signals,
};

/// The library in a target.
#[derive(Debug, Clone)]
pub(crate) struct Library {
    base: u64,
    end: u64,
    symbols: Vec<(&'static str, u64)>,
}

/// What of the library is used by its name.
const SYMBOLS: [&str; 11] = [
    "spoor_open",
    "spoor_close",
    "spoor_serve",
    "spoor_command",
    "spoor_protect",
    "spoor_borrowed",
    "SPOOR_BORROWED_STACK",
    "SPOOR_BORROWED_RESULT",
    "SPOOR_BORROWED_FRAME",
    "SPOOR_ROUTINES",
    "SPOOR_THREAD_POINTER",
];

impl Library {
    /// Finds the library in a process, where an agent has put it before, or maps it.
    pub(crate) fn enter(thread: &mut Borrowed, pid: i32, deadline: Instant) -> Result<Self> {
        const READ_WRITE_EXECUTE: u64 = 7;
        if let Some(library) = Self::there(pid)? {
            return Ok(library);
        }
        let mapped = MappedLibrary::parse(library::BYTES)?;
        let base = thread.map(mapped.size(), READ_WRITE_EXECUTE, deadline)?;
        let library = Self::at(base, &mapped)?;
        library.fill(&mapped, thread, pid, deadline)?;
        Ok(library)
    }

    /// Waits until a thread has gone back that an agent had borrowed when it was killed. Who borrowed one before would take from it
    /// what it needs for that.
    pub(crate) fn wait_for_borrowed(pid: i32) -> Result<()> {
        /// Longer than it takes.
        const PATIENCE: Duration = Duration::from_secs(5);
        let Some(library) = Self::there(pid)? else { return Ok(()) };
        let at = library.symbol("SPOOR_BORROWED_RESULT")?;
        let memory = TargetMemory::open(pid).context("cannot open the memory of the program")?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let [word, thread] = borrowed::progress(&memory, at)?;
            match word {
                BORROWED_NOBODY => break,
                BORROWED_LEAVES if library.is_left_by(pid, thread as u32) => {
                    memory.write(at, &BORROWED_NOBODY.to_ne_bytes())?;
                    break;
                }
                _ => thread::sleep(Duration::from_millis(1)),
            }
            signals::check()?;
        }
        Ok(())
    }

    /// Whether a thread is on no stack of the library any more.
    fn is_left_by(&self, pid: i32, id: u32) -> bool {
        // One that has ended is found nowhere.
        let Ok(tid) = process::thread_outside(pid, id) else { return true };
        let mut stack = self.base;
        let looked = while_stopped(tid, Instant::now() + borrowed::STOPPING, || {
            stack = ptrace::getregs(Pid::from_raw(tid))?.rsp;
            Ok(())
        });
        looked.is_ok() && !(self.base..self.end).contains(&stack)
    }

    /// The library in a process that has it.
    pub(crate) fn of(pid: i32) -> Result<Self> {
        Self::there(pid)?.context("the library is not in the program")
    }

    /// The library in a process, if it is there.
    fn there(pid: i32) -> Result<Option<Self>> {
        let Some(base) = Self::find(pid)? else { return Ok(None) };
        Ok(Some(Self::at(base, &MappedLibrary::parse(library::BYTES)?)?))
    }

    fn at(base: u64, mapped: &MappedLibrary<'_>) -> Result<Self, MapError> {
        let symbols: Result<_, MapError> =
            SYMBOLS.iter().map(|name| Ok((*name, base + mapped.symbol(name)?))).collect();
        Ok(Self { base, end: base + mapped.size(), symbols: symbols? })
    }

    /// Where it is in a process, if it is: mapped by hand, or loaded by Frida.
    fn find(pid: i32) -> Result<Option<u64>> {
        let maps = Maps::read(pid).context("the program is gone")?;
        let memory = TargetMemory::open(pid).context("cannot open the memory of the program")?;
        let loaded = maps.modules().into_iter().filter(|module| file_name(&module.path).starts_with("libagent-"));
        let starts: Vec<u64> = maps.starts_of("").chain(loaded.map(|module| module.base)).collect();
        Ok(starts.into_iter().find(|start| is_at(&memory, *start)))
    }

    /// Whether it is in a process, mapped by hand.
    pub(crate) fn is_mapped_by_hand(pid: i32) -> bool {
        let (Ok(maps), Ok(memory)) = (Maps::read(pid), TargetMemory::open(pid)) else { return false };
        maps.starts_of("").any(|start| is_at(&memory, start))
    }

    /// Writes it to the memory that is mapped for it.
    fn fill(&self, mapped: &MappedLibrary<'_>, thread: &mut Borrowed, pid: i32, deadline: Instant) -> Result<()> {
        let memory = TargetMemory::open(pid)?;
        let segments = mapped.segments(self.base)?;
        // What it is known by comes last.
        for segment in segments.iter().rev() {
            memory
                .write(self.base + segment.start, &segment.bytes)
                .context("cannot write to the memory of the program")?;
        }
        // By itself: a thread that runs the library can go on by itself should this process be killed.
        if thread.call(self, "spoor_protect", &[self.base], deadline)? != 0 {
            bail!("the program may not have the memory for the agent library");
        }
        Ok(())
    }

    /// Where it is.
    pub(crate) fn range(&self) -> std::ops::Range<u64> {
        self.base..self.end
    }

    fn symbol(&self, name: &str) -> Result<u64> {
        let found = self.symbols.iter().find(|(known, _)| *known == name);
        found.map(|(_, at)| *at).ok_or_else(|| anyhow!("the agent library has no {name}"))
    }

    /// The addresses of its routines, in its order, once it has made the shared memory.
    pub(crate) fn routines(&self, pid: i32) -> Result<Vec<u64>> {
        const MOST: usize = 64;
        let at = self.symbol("SPOOR_ROUTINES")?;
        let memory = TargetMemory::open(pid)?;
        let word = |place: usize| {
            let mut bytes = [0; 8];
            memory.read(at + 8 * place as u64, &mut bytes).map(|()| u64::from_ne_bytes(bytes))
        };
        let count = (word(0)? as usize).min(MOST);
        Ok((1..=count).map(word).collect::<io::Result<_>>()?)
    }

    /// Has a thread execute a command.
    pub(crate) fn execute(
        &self,
        thread: &mut Borrowed,
        command: Command,
        arguments: &[u64],
        deadline: Instant,
    ) -> Result<u64> {
        let all: Vec<u64> = [command as u64].into_iter().chain(arguments.iter().copied()).collect();
        thread.call(self, "spoor_command", &all, deadline)
    }
}

/// Whether the library starts there.
fn is_at(memory: &TargetMemory, start: u64) -> bool {
    const COMPARED: usize = 1024;
    let mut there = [0; COMPARED];
    memory.read(start, &mut there).is_ok() && library::BYTES.starts_with(&there)
}

/// Starts a program and stops it at its first instruction. Whoever traces it, its end is this process's business.
pub(crate) fn start(path: &std::ffi::CStr, arguments: &[CString], environment: &[CString]) -> io::Result<i32> {
    let mut waiting = Waiting::start(path, arguments, environment)?;
    let thread = Pid::from_raw(waiting.pid);
    ptrace::seize(thread, Options::PTRACE_O_TRACEEXEC | Options::PTRACE_O_EXITKILL)?;
    waiting.go()?;
    loop {
        match seen::wait(thread)? {
            Seen::Event(PTRACE_EVENT_EXEC, _) => {
                execution::leave_call(thread)?;
                return Ok(waiting.pid);
            }
            Seen::Event(..) => ptrace::cont(thread, None)?,
            Seen::Signal(signal) => go_on(waiting.pid, signal)?,
            Seen::Ended(_) => return Err(waiting.failure()),
            Seen::Running => {}
        }
    }
}
