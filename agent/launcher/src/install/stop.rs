//! Stopping every thread of the target for a moment.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use agent::{stub::Patch, tracee};
use anyhow::{Context, Result, anyhow, bail};
use nix::{errno::Errno, libc::user_regs_struct, sys::ptrace, unistd::Pid};

use super::maps::TargetMemory;
use crate::{
    native::{self, Borrowed, Seen},
    parked, process, signals,
};

/// How long all others stand still for a thread that begins to wait in the system, at first. Another program is started within that.
const PATIENCE: Duration = Duration::from_millis(20);

/// How much time those have at least that need all threads to be stopped.
const PATIENT: Duration = Duration::from_secs(2);

/// How soon the system gives a signal for a child that has ended, after nobody waits for it any more.
const SIGNALLING: Duration = Duration::from_millis(1);

/// What the system takes for a call to be made again, unless a signal is handled first.
const RESTART_UNLESS_HANDLED: u64 = -514_i64 as u64;

/// How long a thread may take to end.
const EXITING: Duration = Duration::from_secs(3);

/// All threads of a process, stopped. They go on when this is dropped.
///
/// The system knows the thread that stopped them: only it can move them or let them go on.
#[derive(Debug)]
pub(super) struct Stopped {
    /// Each thread, and the signal that it was about to be given; 0 is none.
    threads: BTreeMap<i32, i32>,
    /// Threads that were told to stop, and have not yet. All are told before any is waited for: where processors are busy, each
    /// has to wait for its turn to stop.
    told: Vec<i32>,
}

impl Stopped {
    /// Stops all threads but these, those too that are started meanwhile.
    pub(super) fn stop(pid: i32, but: &[i32], deadline: Instant) -> Result<Self> {
        let mut patience = PATIENCE;
        loop {
            let mut stopped = Self { threads: BTreeMap::new(), told: Vec::new() };
            if stopped.stop_all(pid, but, patience, deadline)? {
                if !stopped.is_main_kept(pid)? {
                    return Ok(stopped);
                }
                // Nobody would know where it goes on. It does so by itself where its keeper was killed.
                drop(stopped);
                if Instant::now() >= deadline {
                    bail!("its main thread is kept out of Frida's way");
                }
                std::thread::sleep(SIGNALLING);
                continue;
            }
            // All go on until that one has stopped. Where one or another always waits, they stand still for longer in the end.
            patience *= 2;
        }
    }

    /// The same, unless one that begins to wait in the system meanwhile takes longer than that to stop.
    fn stop_all(&mut self, pid: i32, but: &[i32], patience: Duration, deadline: Instant) -> Result<bool> {
        // Those that wait there already are waited for first, while all others go on.
        for tid in process::threads(pid)?.into_iter().filter(|tid| !but.contains(tid) && process::is_unstoppable(*tid))
        {
            self.stop_waiting(tid, deadline)?;
        }
        // A thread that has ended may be listed for as long as the process lives, such as a main thread before the others.
        let mut ended = BTreeSet::new();
        let until = Instant::now() + patience;
        loop {
            let is_new = |tid: &i32| !self.threads.contains_key(tid) && !but.contains(tid);
            let tasks = process::threads(pid)?.into_iter();
            let new: Vec<i32> =
                tasks.filter(|tid| is_new(tid) && !(ended.contains(tid) && process::has_thread_ended(*tid))).collect();
            if new.is_empty() {
                return Ok(true);
            }
            new.iter().try_for_each(|tid| self.tell(*tid, deadline))?;
            if !self.wait_for_all(until, deadline)? {
                return Ok(false);
            }
            ended.extend(new.into_iter().filter(|tid| !self.holds(*tid)));
            if Instant::now() >= deadline {
                bail!("the program starts threads faster than they can be stopped");
            }
        }
    }

    /// Stops a thread that waits in the system, as soon as it does not. It is told so only then: when its child has ended, the
    /// system would give the signal for that to another thread, where it would interrupt a call.
    fn stop_waiting(&mut self, tid: i32, deadline: Instant) -> Result<()> {
        let thread = Pid::from_raw(tid);
        // Whoever has little time leaves it alone until then: it could be let go of only when it has stopped.
        if Instant::now() + PATIENT > deadline {
            return if process::becomes_stoppable(tid, deadline) { Ok(()) } else { Err(waits_for_long(tid)) };
        }
        if native::hold(thread).is_err() {
            // It is told as others are, and says why it cannot be.
            return Ok(());
        }
        self.told.push(tid);
        let mut last = Instant::now();
        while !self.has_stopped(tid)? {
            let now = Instant::now();
            if process::is_unstoppable(tid) {
                last = now;
                signals::check()?;
                if now >= deadline {
                    return Err(waits_for_long(tid));
                }
            } else if now >= last + SIGNALLING {
                let _ = ptrace::interrupt(thread);
                self.wait(tid, deadline, deadline)?;
                break;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        self.told.pop();
        Ok(())
    }

    /// Waits for those that were told to stop. Whether they have, where one waits in the system at that time.
    fn wait_for_all(&mut self, until: Instant, deadline: Instant) -> Result<bool> {
        while let Some(tid) = self.told.last().copied() {
            if !self.wait(tid, until, deadline)? {
                return Ok(false);
            }
            self.told.pop();
        }
        Ok(true)
    }

    /// Tells a thread to stop, unless it has ended.
    fn tell(&mut self, tid: i32, deadline: Instant) -> Result<()> {
        let thread = Pid::from_raw(tid);
        let patience = deadline.min(Instant::now() + EXITING);
        loop {
            match native::seize(thread) {
                Ok(()) => break,
                // It has ended since.
                Err(Errno::ESRCH) => return Ok(()),
                // So has one that the system does not let go of any more, or it is just about to.
                Err(Errno::EPERM) if process::has_thread_ended(tid) => return Ok(()),
                Err(Errno::EPERM) if Instant::now() < patience && process::tracer(tid).is_none() => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => bail!(process::why_unstoppable(tid, error)),
            }
        }
        self.told.push(tid);
        Ok(())
    }

    /// Waits for a thread that was told to stop. Whether it has, where it waits in the system at that time.
    fn wait(&mut self, tid: i32, until: Instant, deadline: Instant) -> Result<bool> {
        while !self.has_stopped(tid)? {
            let now = Instant::now();
            if now >= until.min(deadline) {
                match process::is_unstoppable(tid) {
                    true if now >= deadline => return Err(waits_for_long(tid)),
                    true => return Ok(false),
                    false if now >= deadline => bail!("thread {tid} of the program does not stop"),
                    false => {}
                }
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(true)
    }

    /// Whether a thread has stopped, and is one of them now, or has ended.
    fn has_stopped(&mut self, tid: i32) -> Result<bool> {
        let thread = Pid::from_raw(tid);
        match native::look(thread) {
            Ok(Seen::Event(..)) => {
                restart_call(thread);
                self.threads.insert(tid, 0);
            }
            Ok(Seen::Signal(signal)) => drop(self.threads.insert(tid, signal)),
            Ok(Seen::Running) => return Ok(false),
            Ok(Seen::Ended(_)) | Err(Errno::ECHILD | Errno::ESRCH) => {}
            Err(error) => bail!("cannot wait for thread {tid} of the program: {error}"),
        }
        Ok(true)
    }

    /// Whether the main thread is one of them, and waits for a keeper.
    fn is_main_kept(&self, pid: i32) -> Result<bool> {
        let registers = self.threads.get(&pid).and_then(|_| ptrace::getregs(Pid::from_raw(pid)).ok());
        let Some(registers) = registers else { return Ok(false) };
        Ok(parked::is_kept(&TargetMemory::open(pid).context("the program is gone")?, registers.rip))
    }

    /// Whether a thread is one of them.
    pub(super) fn holds(&self, tid: i32) -> bool {
        self.threads.contains_key(&tid)
    }

    /// One of them, to be had to do something. It is given back stopped.
    pub(super) fn borrow(&self, pid: i32) -> Result<Borrowed> {
        let calm = self.threads.iter().filter(|(_, signal)| **signal == 0).map(|(tid, _)| *tid);
        let mut why = None;
        for tid in calm {
            match Borrowed::of_stopped(pid, tid) {
                Ok(borrowed) => return Ok(borrowed),
                Err(error) => why = Some(error),
            }
        }
        Err(why.unwrap_or_else(|| anyhow!("all threads of the program are given signals")))
    }

    /// Whether a thread is about to execute one of these addresses.
    pub(super) fn is_any_in(&self, code: impl Fn(u64) -> bool) -> bool {
        let registers = |tid: &i32| ptrace::getregs(Pid::from_raw(*tid)).ok();
        self.threads.keys().filter_map(registers).any(|registers| code(registers.rip))
    }

    /// Has `gs` of all threads point somewhere, by which the library knows them, unless it does so already.
    pub(super) fn point_gs_to(&self, address: u64, memory: &TargetMemory) -> Result<()> {
        // One that was killed meanwhile calls nothing.
        let registers = |tid: &i32| Some((Pid::from_raw(*tid), ptrace::getregs(Pid::from_raw(*tid)).ok()?));
        let threads: Vec<_> = self.threads.keys().filter_map(registers).collect();
        threads.iter().try_for_each(|(_, registers)| memory.may_use_gs(registers.gs_base))?;
        for (thread, mut registers) in threads.into_iter().filter(|(_, registers)| registers.gs_base == 0) {
            registers.gs_base = address;
            ptrace::setregs(thread, registers).with_context(|| format!("cannot set gs of thread {thread}"))?;
        }
        Ok(())
    }

    /// Moves threads that are in the middle of what jumps replace to the copies of that.
    pub(super) fn move_out_of(&self, patches: &[&Patch]) -> Result<()> {
        let mut moves: Vec<_> = patches.iter().flat_map(|patch| patch.moves.iter().copied()).collect();
        moves.sort_unstable();
        let to = |at: u64| moves.binary_search_by_key(&at, |(from, _)| *from).ok().map(|place| moves[place].1);
        // A thread that was moved can go on in any case.
        self.move_threads(to).map(drop)
    }

    /// Moves threads that are at one of these addresses, from which they could not go on, to where they can.
    fn move_threads(&self, to: impl Fn(u64) -> Option<u64>) -> Result<usize> {
        let mut moved = 0;
        for tid in self.threads.keys() {
            let thread = Pid::from_raw(*tid);
            // One that was killed meanwhile goes nowhere.
            let Ok(mut registers) = ptrace::getregs(thread) else { continue };
            if let Some(to) = to(registers.rip) {
                registers.rip = to;
                ptrace::setregs(thread, registers).with_context(|| format!("cannot move thread {tid}"))?;
                moved += 1;
            }
        }
        Ok(moved)
    }
}

/// Has the system call of a stopped thread made again that failed only because of that.
pub(crate) fn restart_call(thread: Pid) {
    // One that was killed meanwhile is not asked for its registers.
    if let Ok(mut registers) = ptrace::getregs(thread)
        && restart_interrupted(&mut registers)
    {
        let _ = ptrace::setregs(thread, registers);
    }
}

/// Has a system call made again that failed only because its thread was stopped. Whether there is one. A signal that comes
/// meanwhile interrupts it all the same.
pub(crate) fn restart_interrupted(registers: &mut user_regs_struct) -> bool {
    const INTERRUPTED: u64 = -4_i64 as u64;
    let is_interrupted = (registers.orig_rax as i64) >= 0 && registers.rax == INTERRUPTED;
    if is_interrupted {
        registers.rax = RESTART_UNLESS_HANDLED;
    }
    is_interrupted
}

/// What a stopped thread is where it goes on by itself: what it waited for in the system begins anew.
pub(crate) fn begun_anew(mut registers: user_regs_struct) -> user_regs_struct {
    /// What the system says to itself of calls that are to be made again.
    const AGAIN: [i64; 5] = [-4, -512, -513, -514, -516];
    if (registers.orig_rax as i64) >= 0 && AGAIN.contains(&(registers.rax as i64)) {
        registers.rip -= 2;
        registers.rax = registers.orig_rax;
    }
    registers
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // Those that wait for something last: they would notice signals that the others are given because they are traced.
        let waits =
            |thread: Pid| ptrace::getregs(thread).is_ok_and(|registers| registers.rax == RESTART_UNLESS_HANDLED);
        let mut threads: Vec<_> = self.threads.iter().collect();
        threads.sort_by_cached_key(|(tid, _)| waits(Pid::from_raw(**tid)));
        // One that was killed meanwhile has to be asked how it ended, or the system does not tell others of the program's end; and
        // it may not have ended yet.
        let killed: Vec<_> = threads
            .into_iter()
            .filter(|(tid, signal)| tracee::let_go(**tid, **signal).is_err())
            .map(|(tid, _)| Pid::from_raw(*tid))
            .collect();
        let told: Vec<_> = self.told.iter().copied().map(Pid::from_raw).collect();
        for thread in &told {
            // One that waits in the system was not told yet. Only one that has stopped can be let go of.
            let _ = ptrace::interrupt(*thread);
        }
        native::let_go_all(told.into_iter().chain(killed));
    }
}

fn waits_for_long(tid: i32) -> anyhow::Error {
    anyhow!("thread {tid} of the program waits in the system, and cannot be stopped")
}
