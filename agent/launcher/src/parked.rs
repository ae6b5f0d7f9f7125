//! Keeping a running program's main thread out of the way while Frida comes in or leaves through it: Frida puts its general
//! registers back, and no others.
//!
//! This is done by a process of its own, the keeper: this command, started again by whoever has Frida do it. The thread goes
//! on even if that one is killed, and the command that traces with it.

use std::{
    io::{self, Read, Write},
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

use crate::{
    frida::NOT_FOR_FRIDA,
    install::{Maps, TargetMemory, restart_interrupted},
    native::{entry_point, interrupt},
    process,
    signals::Signals,
};

/// `pause`, and a jump back to it.
const LOOP: [u8; 4] = [0xf3, 0x90, 0xeb, 0xfc];

/// How far below what the thread uses of its stack Frida may use it.
const CLEARANCE: u64 = 4096;

/// How long parking it may take, and setting it going again once Frida has let go of it.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a thread is looked at that is not where it should be, and how long apart.
const LOOKS: u32 = 100;
const APART: Duration = Duration::from_millis(1);

/// A main thread that waits in a loop, at the place where the program has begun: nobody comes there again.
#[derive(Debug)]
struct Parked {
    pid: i32,
    at: u64,
    /// What was there.
    code: [u8; LOOP.len()],
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
        let at = entry_point(pid)?;
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
                let Ok(maps) = Maps::read(pid) else { return true };
                !maps.is_loading(pid) && (looks >= LOOKS || is_calm(&maps, registers))
            })?;
            let (extended, mask) = (ExtendedRegisters::read(pid)?, SignalMask::read(pid)?);
            NOT_FOR_FRIDA.write(pid)?;
            let mut code = [0; LOOP.len()];
            let memory = TargetMemory::open(pid)?;
            memory.read(at, &mut code)?;
            memory.write(at, &LOOP)?;
            let mut waiting = registers;
            // Not as if it came out of a system call: that is made again later.
            (waiting.rip, waiting.orig_rax) = (at, u64::MAX);
            waiting.rsp = registers.rsp.saturating_sub(CLEARANCE) & !15;
            ptrace::setregs(thread, waiting)?;
            Ok(Self { pid, at, code, registers, extended, mask })
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
        let mut code = [0; LOOP.len()];
        TargetMemory::open(self.pid).is_ok_and(|memory| memory.read(self.at, &mut code).is_ok()) && code == LOOP
    }

    fn unpark(&mut self) -> Result<()> {
        let thread = Pid::from_raw(self.pid);
        // Frida may not have let go of it yet. Nobody else would ever set it going.
        while let Err(error) = ptrace::seize(thread, Options::empty()) {
            if error != Errno::EPERM {
                return Err(error.into());
            }
            thread::sleep(APART);
        }
        let restored = (|| {
            if !self.is_waiting() {
                return Ok(());
            }
            // Where Frida has failed, it may be anywhere.
            let (here, mut looks) = (self.at..self.at + LOOP.len() as u64, 0);
            stop_where(thread, Instant::now() + PATIENCE, |registers| {
                looks += 1;
                looks >= LOOKS || here.contains(&registers.rip)
            })?;
            restart_interrupted(&mut self.registers);
            self.extended.write(self.pid)?;
            self.mask.write(self.pid)?;
            ptrace::setregs(thread, self.registers)?;
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
    io::stdin().read_to_end(&mut Vec::new())?;
    if let Ok(parked) = &mut parked {
        // Nobody else would set it going. Where the program has ended meanwhile, or runs another one in its place, that is told by others.
        while let Err(error) = parked.unpark()
            && parked.is_waiting()
        {
            tell(format!("the main thread of process {pid} cannot be set going again yet: {error:#}"));
            thread::sleep(PATIENCE / 10);
        }
    }
    Ok(ExitCode::SUCCESS)
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
