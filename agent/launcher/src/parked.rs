//! Keeping a running program's main thread out of the way while Frida comes in or leaves through it: Frida puts its general
//! registers back, and no others.
//!
//! This is done by a process of its own, the keeper: this command, started again by whoever has Frida do it. The thread goes
//! on even if that one is killed, and the command that traces with it; and by itself, where the keeper is killed.

mod waiting;

use std::{
    io::{self, Write},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use agent::registers::{ExtendedRegisters, SignalMask};
use anyhow::{Result, anyhow, bail};
use nix::{
    errno::Errno,
    libc::user_regs_struct,
    sys::ptrace::{self, Options},
    unistd::Pid,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub(crate) use self::waiting::is_kept;
use self::waiting::{BYTES, Moment, UNTIL_AT, code, is_code, waiting};
use crate::{
    frida::NOT_FOR_FRIDA,
    install::{Maps, TargetMemory, restart_interrupted},
    native::{entry_point, interrupt},
    process,
    signals::Signals,
};

/// How often the thread is told to wait on.
const BEAT: Duration = Duration::from_millis(100);

/// How long parking it may take, and setting it going again once Frida has let go of it.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a thread is looked at that is not where it should be, and how long apart.
const LOOKS: u32 = 100;
const APART: Duration = Duration::from_millis(1);

/// A main thread that waits in a loop, where nobody else comes: behind the code of a module, or where the program has begun.
#[derive(Debug)]
struct Parked {
    pid: i32,
    at: u64,
    /// What was there.
    code: [u8; BYTES],
    /// Until when it waits.
    until: Moment,
    /// Whether that was over before it was told to wait on, so that it may have gone back by itself.
    may_be_back: bool,
    registers: user_regs_struct,
    extended: ExtendedRegisters,
    /// The signals that it blocks. While it waits it takes none: some are lost where Frida stops it just then, and Frida's threads are
    /// made by it and block what it does.
    mask: SignalMask,
}

impl Parked {
    /// Stops the main thread, remembers all its registers, and has it wait.
    fn park(pid: i32) -> Result<Self> {
        Self::try_to_park(pid).map_err(|error| match process::has_main_thread_ended(pid) && !process::has_ended(pid) {
            true => anyhow!("its main thread has ended, through which Frida comes in"),
            false => error,
        })
    }

    fn try_to_park(pid: i32) -> Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        let thread = Pid::from_raw(pid);
        let entry = entry_point(pid)?;
        // Frida has the main thread wait until its library is loaded, and loading that waits for this.
        while Maps::read(pid).is_ok_and(|maps| maps.is_loading(pid)) {
            if Instant::now() >= deadline {
                bail!(
                    "a library is being loaded in it all the time, and Frida would wait for that (try again later, or --engine native)"
                );
            }
            thread::sleep(APART);
        }
        ptrace::seize(thread, Options::empty()).map_err(|error| anyhow!(process::why_unstoppable(pid, error)))?;
        let parked = (|| {
            let mut looks = 0;
            let registers = stop_where(thread, deadline, |registers| {
                looks += 1;
                let (Ok(maps), Ok(memory)) = (Maps::read(pid), TargetMemory::open(pid)) else { return true };
                // Where another keeper was killed, it goes back by itself.
                !maps.is_loading(pid)
                    && !is_kept(&memory, registers.rip)
                    && (looks >= LOOKS || is_calm(&maps, registers))
            })?;
            let (extended, mask) = (ExtendedRegisters::read(pid)?, SignalMask::read(pid)?);
            let memory = TargetMemory::open(pid)?;
            let at = Maps::read(pid)?.padding(&memory, entry, BYTES as u64).unwrap_or(entry);
            let mut there = [0; BYTES];
            memory.read(at, &mut there)?;
            let (frame, waits) = waiting(registers, &extended, mask, at);
            memory.write(waits.rsp, &frame)?;
            let until = Moment::in_time();
            memory.write(at, &code(until))?;
            ptrace::setregs(thread, waits)?;
            // Not before: should this process be killed, nobody else would undo it.
            NOT_FOR_FRIDA.write(pid)?;
            Ok(Self { pid, at, code: there, until, may_be_back: false, registers, extended, mask })
        })();
        // Where it could not be parked, it goes on as it was.
        let detached = ptrace::detach(thread, None);
        let parked =
            parked.map_err(|error: anyhow::Error| error.context("cannot park the main thread of the program"))?;
        detached?;
        Ok(parked)
    }

    /// Whether the process is still the program whose thread waits there.
    fn is_waiting(&self) -> bool {
        let mut there = [0; BYTES];
        TargetMemory::open(self.pid).is_ok_and(|memory| memory.read(self.at, &mut there).is_ok()) && is_code(&there)
    }

    /// Has the thread wait on.
    fn wait_on(&mut self) {
        let until = Moment::in_time();
        if self.is_waiting() {
            // It may be gone since.
            let _ = TargetMemory::open(self.pid).and_then(|memory| memory.write(self.at + UNTIL_AT, &until.bytes()));
        }
        self.may_be_back |= self.until.is_over();
        self.until = until;
    }

    fn unpark(&mut self) -> Result<()> {
        let thread = Pid::from_raw(self.pid);
        // Frida may not have let go of it yet. Nobody else would ever set it going.
        while let Err(error) = ptrace::seize(thread, Options::empty()) {
            if error != Errno::EPERM {
                return Err(error.into());
            }
            self.wait_on();
            thread::sleep(APART);
        }
        let restored = (|| {
            if !self.is_waiting() {
                return Ok(());
            }
            // Where Frida has failed, it may be anywhere.
            let (here, mut looks) = (self.at..self.at + BYTES as u64, 0);
            let found = stop_where(thread, Instant::now() + PATIENCE, |registers| {
                looks += 1;
                looks >= LOOKS || here.contains(&registers.rip)
            })?;
            let is_back = (self.may_be_back || self.until.is_over()) && !here.contains(&found.rip);
            if !is_back {
                restart_interrupted(&mut self.registers);
                self.extended.write(self.pid)?;
                self.mask.write(self.pid)?;
                ptrace::setregs(thread, self.registers)?;
            }
            Ok(TargetMemory::open(self.pid)?.write(self.at, &self.code)?)
        })();
        // One that was killed meanwhile is let go of already.
        let _ = ptrace::detach(thread, None);
        restored
    }
}

/// What the keeper does: parks the thread, says so or why it could not be done, and sets it going again when its input ends.
pub(crate) fn keep(pid: i32) -> Result<ExitCode> {
    // Whoever wants to end the command that traces does not want to end this.
    let _signals = Signals::watch()?;
    let mut parked = Parked::park(pid);
    tell(parked.as_ref().map_or_else(|error| format!("{error:#}"), |_| "parked".into()));
    while !has_input_ended() {
        if let Ok(parked) = &mut parked {
            parked.wait_on();
        }
    }
    if let Ok(parked) = &mut parked {
        // Nobody else would set it going. Where the program has ended meanwhile, or runs another one in its place, that is told by others.
        while let Err(error) = parked.unpark()
            && parked.is_waiting()
        {
            tell(format!("the main thread of process {pid} cannot be set going again yet: {error:#}"));
            parked.wait_on();
            thread::sleep(PATIENCE / 10);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether there is no input any more, which is waited for a little. There is never any but its end.
fn has_input_ended() -> bool {
    let beat = Timespec::try_from(BEAT).unwrap_or_default();
    poll(&mut [PollFd::new(&io::stdin(), PollFlags::IN)], Some(&beat)).is_ok_and(|ready| ready > 0)
}

/// Tells whoever started this, if it is still there.
fn tell(line: String) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Stops a thread that is seized, where it is about to be given no signal and its registers are as wanted.
fn stop_where(
    thread: Pid,
    deadline: Instant,
    mut is_wanted: impl FnMut(&user_regs_struct) -> bool,
) -> Result<user_regs_struct> {
    loop {
        interrupt(thread, deadline)?;
        let mut registers = ptrace::getregs(thread)?;
        if is_wanted(&registers) {
            return Ok(registers);
        }
        if restart_interrupted(&mut registers) {
            ptrace::setregs(thread, registers)?;
        }
        ptrace::cont(thread, None)?;
        if Instant::now() >= deadline {
            bail!("it does not come to where it can wait");
        }
        thread::sleep(APART);
    }
}

/// Whether a thread is where it holds nothing that Frida needs: not in the C library or the loader, unless it waits for the
/// system there.
fn is_calm(maps: &Maps, registers: &user_regs_struct) -> bool {
    // read, poll, select, pause, nanosleep, accept, recvfrom, recvmsg, wait4, semop, msgrcv, rt_sigtimedwait, rt_sigsuspend,
    // futex, semtimedop, clock_nanosleep, epoll_wait, waitid, pselect6, ppoll, epoll_pwait, accept4, recvmmsg, epoll_pwait2
    const WAITING: [u64; 24] =
        [0, 7, 23, 34, 35, 43, 45, 47, 61, 65, 70, 128, 130, 202, 220, 230, 232, 247, 270, 271, 281, 288, 299, 441];
    if WAITING.contains(&registers.orig_rax) {
        return true;
    }
    let name = maps.name_at(registers.rip).and_then(|name| name.rsplit('/').next()).unwrap_or_default();
    !["libc.", "libc-", "ld-", "libpthread", "libdl"].iter().any(|start| name.starts_with(start))
}
