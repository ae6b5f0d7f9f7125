//! Stopping every thread of the target for a moment.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::{Duration, Instant},
};

use agent::{stub::Patch, tracee};
use anyhow::{Context, Result, anyhow, bail};
use nix::{errno::Errno, libc::user_regs_struct, sys::ptrace, unistd::Pid};

use super::maps::TargetMemory;
use crate::{
    native::{self, Borrowed, Seen},
    process,
};

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
        let mut stopped = Self { threads: BTreeMap::new(), told: Vec::new() };
        // A thread that has ended may be listed for as long as the process lives, such as a main thread before the others.
        let mut ended = BTreeSet::new();
        loop {
            let is_new = |tid: &i32| !stopped.threads.contains_key(tid) && !but.contains(tid);
            let tasks = process::threads(pid)?.into_iter();
            let new: Vec<i32> = tasks.filter(|tid| is_new(tid) && !(ended.contains(tid) && has_ended(*tid))).collect();
            if new.is_empty() {
                return Ok(stopped);
            }
            new.iter().try_for_each(|tid| stopped.tell(*tid, deadline))?;
            while let Some(tid) = stopped.told.last().copied() {
                stopped.wait(tid, deadline)?;
                stopped.told.pop();
            }
            ended.extend(new.into_iter().filter(|tid| !stopped.holds(*tid)));
            if Instant::now() >= deadline {
                bail!("the program starts threads faster than they can be stopped");
            }
        }
    }

    /// Tells a thread to stop, unless it has ended.
    fn tell(&mut self, tid: i32, deadline: Instant) -> Result<()> {
        let thread = Pid::from_raw(tid);
        let patience = deadline.min(Instant::now() + EXITING);
        while process::is_unstoppable(tid) {
            if Instant::now() >= deadline {
                bail!("thread {tid} of the program waits in the system, and cannot be stopped");
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        loop {
            match native::seize(thread) {
                Ok(()) => break,
                // It has ended since.
                Err(Errno::ESRCH) => return Ok(()),
                // So has one that the system does not let go of any more, or it is just about to.
                Err(Errno::EPERM) if has_ended(tid) => return Ok(()),
                Err(Errno::EPERM) if Instant::now() < patience && process::tracer(tid).is_none() => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => bail!(process::why_unstoppable(tid, error)),
            }
        }
        self.told.push(tid);
        Ok(())
    }

    /// Waits for a thread that was told to stop.
    fn wait(&mut self, tid: i32, deadline: Instant) -> Result<()> {
        let thread = Pid::from_raw(tid);
        loop {
            match native::look(thread) {
                Ok(Seen::Event(..)) => {
                    restart_call(thread);
                    self.threads.insert(tid, 0);
                    return Ok(());
                }
                Ok(Seen::Signal(signal)) => {
                    self.threads.insert(tid, signal);
                    return Ok(());
                }
                Ok(Seen::Running) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_micros(50));
                }
                Ok(Seen::Running) => bail!("thread {tid} of the program does not stop"),
                Ok(Seen::Ended(_)) | Err(Errno::ECHILD | Errno::ESRCH) => return Ok(()),
                Err(error) => bail!("cannot wait for thread {tid} of the program: {error}"),
            }
        }
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
    const RESTART_UNLESS_HANDLED: u64 = -514_i64 as u64;
    let is_interrupted = (registers.orig_rax as i64) >= 0 && registers.rax == INTERRUPTED;
    if is_interrupted {
        registers.rax = RESTART_UNLESS_HANDLED;
    }
    is_interrupted
}

impl Drop for Stopped {
    fn drop(&mut self) {
        native::let_go_all(self.told.iter().copied().map(Pid::from_raw));
        for (tid, signal) in &self.threads {
            let thread = Pid::from_raw(*tid);
            if tracee::let_go(*tid, *signal).is_err() {
                // It was killed meanwhile, and waits to be asked how it ended. One that is not ours is none of our business.
                let _ = native::look(thread);
            }
        }
    }
}

/// Whether a thread is gone, or only waits to be forgotten.
fn has_ended(tid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{tid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, None | Some('Z' | 'X'))
}
