//! A thread of the target that is borrowed for a moment: it makes system calls or runs a function of the library, on a
//! stack that is not its own, and then goes on as if nothing had been.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use agent::{
    registers::{ExtendedRegisters, SignalMask},
    shared::{
        BORROWED_FRAME_BYTES, BORROWED_GONE_BACK, BORROWED_LEAVES, BORROWED_NOBODY, BORROWED_STACK_BYTES,
        FRAME_EXTENDED, FRAME_REGISTERS,
    },
    tracee::go_on,
};
use anyhow::{Context, Result, bail};
use nix::{errno::Errno, libc::user_regs_struct, sys::ptrace, unistd::Pid};

use super::{Library, Seen, look, system_call::SystemCall};
use crate::{
    install::{Maps, TargetMemory, begun_anew, restart_call, restart_interrupted},
    process, signals,
};

/// How often something is looked at that is about to happen.
const GLANCE: Duration = Duration::from_micros(20);

/// How long one thread may take to stop before another is tried.
pub(super) const STOPPING: Duration = Duration::from_millis(200);

/// A thread that is stopped, with all that it was.
#[derive(Debug)]
pub(crate) struct Borrowed {
    pid: i32,
    thread: Pid,
    memory: TargetMemory,
    registers: user_regs_struct,
    extended: ExtendedRegisters,
    mask: SignalMask,
    /// Where the library says how far it is with what it was given to do.
    result: Option<u64>,
    /// Whether it is let go of when it is given back.
    is_ours: bool,
    /// Whether it is what it was.
    is_back: bool,
}

/// A thread that runs a function of the library while nobody holds it.
#[derive(Debug)]
pub(crate) struct Lent {
    borrowed: Borrowed,
    result: u64,
}

impl Borrowed {
    /// Stops a thread of a process: the main one, or any that can be stopped.
    pub(crate) fn take(pid: i32, deadline: Instant) -> Result<Self> {
        /// How long it may take where processors are busy.
        const PATIENCE: Duration = Duration::from_secs(3);
        let begun = Instant::now();
        loop {
            let mut threads = process::threads(pid)?;
            threads.sort_by_key(|tid| *tid != pid);
            let (since, mut why) = (Instant::now(), None);
            for tid in threads {
                match Self::seize(pid, tid, deadline.min(Instant::now() + STOPPING)) {
                    Ok(borrowed) => return Ok(borrowed),
                    Err(error) => why = Some(error),
                }
            }
            // None was waited for, or all have been for long enough.
            if since.elapsed() < STOPPING || begun.elapsed() >= PATIENCE || Instant::now() >= deadline {
                return Err(why.unwrap_or_else(|| anyhow::anyhow!("the program is gone")));
            }
            signals::check()?;
        }
    }

    fn seize(pid: i32, tid: i32, deadline: Instant) -> Result<Self> {
        let thread = Pid::from_raw(tid);
        if !process::becomes_stoppable(tid, deadline) {
            bail!("thread {tid} of the program waits in the system");
        }
        super::seize(thread).map_err(|error| anyhow::anyhow!(process::why_unstoppable(tid, error)))?;
        let borrowed = stops(thread, deadline).and_then(|()| Self::of_stopped(pid, tid));
        match borrowed {
            Ok(mut borrowed) => {
                borrowed.is_ours = true;
                Ok(borrowed)
            }
            Err(error) => {
                super::let_go(thread);
                Err(error)
            }
        }
    }

    /// One that this process has stopped already, and that is about to be given no signal.
    pub(crate) fn of_stopped(pid: i32, tid: i32) -> Result<Self> {
        let thread = Pid::from_raw(tid);
        let mut registers = ptrace::getregs(thread)?;
        // At once: should this process be killed, it goes on from where it is.
        if restart_interrupted(&mut registers) {
            ptrace::setregs(thread, registers)?;
        }
        let memory = TargetMemory::open(pid).context("cannot open the memory of the program")?;
        memory.may_use_gs(registers.gs_base)?;
        let extended = ExtendedRegisters::read(tid)?;
        let mask = SignalMask::read(tid)?;
        Ok(Self { pid, thread, memory, registers, extended, mask, result: None, is_ours: false, is_back: false })
    }

    /// Has it map memory, before there is anything of ours in the program.
    pub(crate) fn map(&mut self, bytes: u64, protection: u64, deadline: Instant) -> Result<u64> {
        const MMAP: u64 = 9;
        const PRIVATE_ANONYMOUS: u64 = 0x22;
        let entry = entry_point(self.pid)?;
        let at = Maps::read(self.pid)?.padding(&self.memory, entry, SystemCall::BYTES as u64).unwrap_or(entry);
        let arguments = [0, bytes, protection, PRIVATE_ANONYMOUS, u64::MAX, 0];
        let call = SystemCall { number: MMAP, arguments, back: begun_anew(self.registers), mask: self.mask };
        let mut code = vec![0; SystemCall::BYTES];
        self.memory.read(at, &mut code)?;
        self.memory.write(at, &call.code())?;
        let result = self.run_system_call(at, deadline);
        if !self.is_back {
            // At once: should this process be killed, it goes on from where it is.
            self.become_what_it_was()?;
        }
        self.memory.write(at, &code)?;
        let result = result?;
        if result > -4096_i64 as u64 {
            bail!("the program cannot have memory for the agent library: {}", Errno::from_raw(-(result as i64) as i32));
        }
        Ok(result)
    }

    /// Has it run the code at this place, and tells what the system call returned. Where that fails, it may be out of the code already.
    fn run_system_call(&mut self, at: u64, deadline: Instant) -> Result<u64> {
        let mut registers = self.registers;
        (registers.rip, registers.orig_rax) = (at, u64::MAX);
        ptrace::setregs(self.thread, registers)?;
        // Not before: should this process be killed in between, the code unblocks them.
        SignalMask(u64::MAX).write(self.thread.as_raw())?;
        for tries in 1.. {
            ptrace::cont(self.thread, None)?;
            // Stopped at once, it would never get on where processors are busy.
            thread::sleep(GLANCE * tries.min(50));
            interrupt(self.thread, deadline)?;
            let there = ptrace::getregs(self.thread)?;
            match there.rip.checked_sub(at).map(|from| from as usize) {
                Some(from) if SystemCall::WAITING.contains(&from) => return Ok(there.rax),
                Some(..SystemCall::BYTES) => {}
                _ => {
                    self.is_back = true;
                    break;
                }
            }
        }
        bail!("the program had to wait too long, and has gone on");
    }

    /// Has it run a function of the library.
    pub(crate) fn call(&mut self, library: &Library, name: &str, arguments: &[u64], deadline: Instant) -> Result<u64> {
        let result = self.prepare(library, name, arguments)?;
        ptrace::cont(self.thread, None)?;
        let returned = self.wait_for(result, true, deadline);
        interrupt(self.thread, deadline)?;
        if self.has_gone_back(result)? {
            bail!("the program had to wait too long, and has gone on");
        }
        returned
    }

    /// Whether it has become what it was by itself. It stands still.
    fn has_gone_back(&mut self, result: u64) -> Result<bool> {
        let has_gone_back = [BORROWED_GONE_BACK, BORROWED_LEAVES].contains(&progress(&self.memory, result)?[0]);
        if has_gone_back {
            self.is_back = true;
            if self.is_ours {
                super::left::resume(self.thread);
                Library::wait_for_borrowed(self.pid)?;
            }
        }
        Ok(has_gone_back)
    }

    /// Has it run a function of the library, and lets go of it.
    pub(crate) fn lend(mut self, library: &Library, name: &str, arguments: &[u64]) -> Result<Lent> {
        let result = self.prepare(library, name, arguments)?;
        ptrace::detach(self.thread, None)?;
        // Nobody can make it what it was before it is taken back.
        (self.is_ours, self.is_back) = (true, true);
        Ok(Lent { borrowed: self, result })
    }

    /// Has it begin a function of the library when it goes on. Returns where the library says that it is done.
    fn prepare(&mut self, library: &Library, name: &str, arguments: &[u64]) -> Result<u64> {
        const PLAIN_FLAGS: u64 = 0x202;
        let mut registers = ptrace::getregs(self.thread)?;
        if self.registers.fs_base == 0 {
            self.registers.fs_base = library.symbol("SPOOR_THREAD_POINTER")?;
        }
        let mut given = [0; 6];
        given.iter_mut().zip(arguments).for_each(|(place, argument)| *place = *argument);
        [registers.rdi, registers.rsi, registers.rdx, registers.rcx, registers.r8, registers.r9] = given;
        registers.r12 = library.symbol(name)?;
        registers.rip = library.symbol("spoor_borrowed")?;
        registers.rsp = library.symbol("SPOOR_BORROWED_STACK")? + BORROWED_STACK_BYTES as u64;
        (registers.fs_base, registers.eflags, registers.orig_rax) = (self.registers.fs_base, PLAIN_FLAGS, u64::MAX);
        let result = library.symbol("SPOOR_BORROWED_RESULT")?;
        self.memory.write(result, &[0; 16])?;
        self.result = Some(result);
        self.memory.write(library.symbol("SPOOR_BORROWED_FRAME")?, &self.frame())?;
        ptrace::setregs(self.thread, registers)?;
        // Not before: should this process be killed in between, nobody would undo it.
        SignalMask(u64::MAX).write(self.thread.as_raw())?;
        Ok(result)
    }

    /// What it was, for it to become that by itself should this process be killed. What it waited for begins anew then.
    fn frame(&self) -> Vec<u8> {
        let was = begun_anew(self.registers);
        let (features, extended) = self.extended.saved();
        let general = [
            [was.r15, was.r14, was.r13, was.r12, was.rbp],
            [was.rbx, was.r11, was.r10, was.r9, was.r8],
            [was.rax, was.rcx, was.rdx, was.rsi, was.rdi],
            [was.rip, was.cs, was.eflags, was.rsp, was.ss],
        ];
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
        let mut frame = words(&[self.mask.0, features]);
        frame.resize(FRAME_REGISTERS, 0);
        frame.extend(words(general.as_flattened()));
        frame.resize(FRAME_EXTENDED, 0);
        frame.extend(extended.iter().take(BORROWED_FRAME_BYTES - FRAME_EXTENDED));
        frame
    }

    /// Waits until the function has returned, and tells what. Where the thread is held, it may be stopped meanwhile: by a signal
    /// that was on its way, or when somebody stops the program. It goes on.
    fn wait_for(&self, result: u64, is_held: bool, deadline: Instant) -> Result<u64> {
        loop {
            let [done, value] = progress(&self.memory, result)?;
            if done != 0 {
                return Ok(value);
            }
            if Instant::now() >= deadline {
                bail!("the program does not get on with what it was given to do");
            }
            signals::check()?;
            match if is_held { look(self.thread)? } else { Seen::Running } {
                Seen::Event(..) => ptrace::cont(self.thread, None)?,
                Seen::Signal(signal) => go_on(self.thread.as_raw(), signal)?,
                Seen::Ended(_) => bail!("the program has ended"),
                Seen::Running => thread::sleep(GLANCE),
            }
        }
    }

    fn become_what_it_was(&mut self) -> Result<()> {
        // What the library knows it by.
        self.registers.gs_base = ptrace::getregs(self.thread)?.gs_base;
        self.extended.write(self.thread.as_raw())?;
        self.mask.write(self.thread.as_raw())?;
        Ok(ptrace::setregs(self.thread, self.registers)?)
    }

    /// Makes it what it was, and lets it go on unless others have stopped it.
    pub(crate) fn give_back(mut self) -> Result<()> {
        self.restore()
    }

    fn restore(&mut self) -> Result<()> {
        self.is_back = true;
        let restored = self.become_what_it_was();
        if let (Ok(()), Some(result)) = (&restored, self.result) {
            // Where nobody could say so, the next agent waits longer than a thread takes to go back.
            let _ = self.memory.write(result, &BORROWED_NOBODY.to_ne_bytes());
        }
        if self.is_ours {
            super::left::resume(self.thread);
        }
        restored
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if !self.is_back {
            // Something has failed already, which is told.
            let _ = self.restore();
        }
    }
}

impl Lent {
    /// Waits until the function has returned, and makes the thread what it was.
    pub(crate) fn take_back(mut self, deadline: Instant) -> Result<()> {
        self.borrowed.wait_for(self.result, false, deadline)?;
        super::seize(self.borrowed.thread)?;
        stops(self.borrowed.thread, deadline)?;
        if self.borrowed.has_gone_back(self.result)? { Ok(()) } else { self.borrowed.restore() }
    }
}

/// How far the library says that a borrowed thread is, and what goes with that.
pub(super) fn progress(memory: &TargetMemory, result: u64) -> Result<[u64; 2]> {
    let mut words = [0; 16];
    memory.read(result, &mut words).context("the program is gone")?;
    Ok([0, 8].map(|at| u64::from_ne_bytes(words[at..at + 8].try_into().unwrap_or_default())))
}

/// Does something while a thread of the target is stopped.
pub(crate) fn while_stopped(tid: i32, deadline: Instant, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let thread = Pid::from_raw(tid);
    super::seize(thread)?;
    let done = stops(thread, deadline).and_then(|()| act());
    restart_call(thread);
    super::let_go(thread);
    done
}

/// Stops a thread that is seized, where it is about to be given no signal. What it is given before that, it gets.
pub(crate) fn interrupt(thread: Pid, deadline: Instant) -> Result<()> {
    // Once: the system keeps it until it is done, whatever comes before.
    ptrace::interrupt(thread)?;
    stops(thread, deadline)
}

/// Waits until a thread has stopped that was told to.
fn stops(thread: Pid, deadline: Instant) -> Result<()> {
    loop {
        match look(thread)? {
            Seen::Event(..) => return Ok(()),
            Seen::Signal(signal) => go_on(thread.as_raw(), signal)?,
            Seen::Ended(_) => bail!("thread {thread} of the program has ended"),
            Seen::Running if Instant::now() < deadline => thread::sleep(GLANCE),
            Seen::Running => {
                bail!("thread {thread} of the program does not stop (is it in a debugger, or waiting in the system?)")
            }
        }
    }
}

/// Where the program begins, as the system told it. Nobody comes there again.
pub(crate) fn entry_point(pid: i32) -> Result<u64> {
    const AT_ENTRY: u64 = 9;
    let told = process::look_into(pid, |folder| fs::read(folder.join("auxv")))
        .context("cannot read what the program was started with")?;
    let words: Vec<u64> = told.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    let entry = words.as_chunks::<2>().0.iter().find(|[kind, _]| *kind == AT_ENTRY);
    entry.map(|[_, at]| *at).context("the program does not say where it has begun")
}
