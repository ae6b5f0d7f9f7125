//! What a traced process makes of itself: children that it forks, and programs that it runs in its place or has a child run.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering, mpsc},
    thread,
    time::{Duration, Instant},
};

use agent::{
    plan::Image,
    shared::{ChildBirth, Command},
    ship::{Birth, BirthKind},
};
use anyhow::{Context, Result, anyhow, bail};
use codec::profile::EndReason;

use super::{
    ENTERING, LOADING, MOMENT, Trace,
    entered::{Entered, open_rings, opened, shared_memory},
    member::Forked,
};
use crate::{
    args::Follow,
    delivery::Delivery,
    end_state::EndState,
    executable::raises_rights,
    family::{Family, Seat},
    install::{LibraryPlace, TargetMemory},
    native::{Borrowed, Executed, Execution},
    process,
};

/// How long a process that has ended is waited for by what it has just forked, and a child by a thread of ours.
const BEING_BORN: Duration = Duration::from_secs(1);

/// A program that a process is about to run in its place.
#[derive(Debug)]
pub(super) struct Replacement {
    execution: Execution,
    tid: i32,
    birth: Birth,
}

impl Trace {
    /// Has a child followed that waits in the mailbox.
    pub(super) fn forked(&mut self, told: &ChildBirth) {
        self.forked += 1;
        let deadline = Instant::now() + LOADING;
        let followed = process::outside(told.pid, self.arena.inode()).and_then(|pid| {
            let is_there = || !process::has_ended(pid);
            let followed = self.follow_forked(told, pid, &is_there, deadline);
            let told = self.arena.ask_while(Command::GoOn, &[followed.is_ok().into()], deadline, &is_there);
            if told.is_err() {
                self.arena.forget_request();
            }
            followed
        });
        if let Err(error) = followed {
            self.unfollowed(&format!("{error:#}"));
        }
    }

    fn follow_forked(
        &mut self,
        told: &ChildBirth,
        pid: i32,
        is_there: &dyn Fn() -> bool,
        deadline: Instant,
    ) -> Result<()> {
        let family = &self.family;
        let seat = family.seat(pid)?;
        let birth = family.birth(self.delivery.session(), BirthKind::Forked, told);
        let descriptor = open_rings(&family.settings, |bytes, rings, stack, flags| {
            let arguments = [bytes, rings, u64::from(stack), u64::from(flags)];
            opened(self.arena.ask_while(Command::Open, &arguments, deadline, is_there)?)
        })?;
        let arena = shared_memory(pid, descriptor);
        self.arena.ask_while(Command::Close, &[descriptor as u64], deadline, is_there)?;
        let arena = arena?;
        let (installer, functions) = self.installer.inherit(pid, Arc::clone(&arena))?;
        let forked = Forked { seat, pid, birth, arena, installer, functions };
        family.start(move |family| forked.follow(family))
    }

    /// Hears of the children that a process has forked which ends, or is let go of. They say so at their first call.
    pub(super) fn await_forked(&mut self) {
        if self.family.settings.follow == Follow::None {
            return;
        }
        let arena = Arc::clone(&self.arena);
        let control = arena.control();
        let deadline = Instant::now() + BEING_BORN;
        loop {
            // ORDERING: counts.
            let [forks, torn] = [&control.forks, &control.torn].map(|count| count.load(Ordering::Relaxed));
            if let Some(agent::shared::MailboxRequest::Forked(told)) = arena.request() {
                self.forked(&told);
            } else if self.forked + torn >= forks || Instant::now() >= deadline {
                for _ in 0..torn {
                    self.unfollowed("a child was forked while another thread changed what it has inherited");
                }
                return;
            } else {
                thread::sleep(MOMENT);
            }
        }
    }

    /// Has a program followed that a thread is about to run, which waits in the mailbox.
    pub(super) fn executes(&mut self, told: &ChildBirth) {
        let pid = process::outside(told.pid, self.arena.inode());
        // What becomes of the process itself is told with that, if anything is.
        let is_own = pid.as_ref().is_ok_and(|pid| *pid == self.pid);
        if let Err(error) = pid.and_then(|pid| self.hold(told, pid)) {
            self.unfollowed(&format!("{error:#}"));
            self.is_told = is_own;
        }
        // A thread that is not there any more has not waited.
        let _ = self.arena.go_on(Instant::now() + LOADING);
    }

    fn hold(&mut self, told: &ChildBirth, pid: i32) -> Result<()> {
        let tid = process::thread_outside(pid, told.tid)?;
        let session = self.delivery.session();
        refuse_more_rights(pid, told)?;
        if pid == self.pid {
            if self.replacement.as_ref().is_none_or(|replacement| replacement.tid != tid) {
                let birth = self.family.birth(session, BirthKind::Replaced, told);
                self.replacement = Some(Replacement { execution: Execution::of(pid, tid)?, tid, birth });
            }
            return Ok(());
        }
        // One that was held before, and has not found its program, looks for it elsewhere.
        let Some(held) = self.family.hold(pid) else { return Ok(()) };
        let seat = self.family.seat(pid)?;
        let birth = self.family.birth(session, BirthKind::Spawned, told);
        let (tell, is_held) = mpsc::channel();
        self.family.start(move |family| {
            let _held = held;
            match Execution::of(pid, tid) {
                Ok(execution) => {
                    let _ = tell.send(Ok(()));
                    spawned(family, execution, pid, birth, seat);
                }
                // Nobody waits where it is too late.
                Err(error) => drop(tell.send(Err(error))),
            }
        })?;
        is_held.recv_timeout(BEING_BORN).map_err(|_| anyhow!("it could not be held in time"))?
    }

    /// Looks what has become of a program that the process was about to run in its place. If that runs, it is traced from here
    /// on. How the process ended, if that was seen.
    pub(super) fn follow_replacement(&mut self) -> Option<EndState> {
        let replacement = self.replacement.as_mut()?;
        match replacement.execution.look() {
            Ok(Executed::NotYet) => {
                if !self.is_executing() {
                    // Nothing came of it.
                    self.replacement = None;
                }
                None
            }
            Ok(Executed::Done) => {
                self.host.take().inspect(|host| host.target_is_gone());
                let Replacement { execution, birth, .. } = self.replacement.take()?;
                match Self::of_program(&self.family, execution, self.pid, birth) {
                    Ok(mut next) => {
                        next.seat = self.seat.take();
                        let before = std::mem::replace(self, next);
                        let family = Arc::clone(&self.family);
                        let _ = family.start(move |_| before.close(EndReason::Replaced));
                    }
                    Err(error) => {
                        self.is_over = true;
                        self.unfollowed(&format!("{error:#}"));
                        self.delivery.end(EndReason::Replaced);
                    }
                }
                None
            }
            Ok(Executed::Over(ending)) => {
                self.replacement = None;
                ending
            }
            Err(_) => {
                self.replacement = None;
                None
            }
        }
    }

    /// A program that is stopped at its first instruction.
    fn of_program(family: &Arc<Family>, execution: Execution, pid: i32, birth: Birth) -> Result<Self> {
        let started = Instant::now();
        let deadline = started + family.settings.startup_timeout.unwrap_or(ENTERING);
        let link = format!("/proc/{pid}/exe");
        let path = std::fs::read_link(&link).unwrap_or_default();
        let what = || format!("process {pid}, {}", path.display());
        Image::open(&link).map_err(|error| anyhow!("{}: {error}", what()))?;
        family.refuse_confined(pid)?;
        let delivery = Delivery::start(family, pid, Some(birth)).with_context(what)?;
        let mut thread = Borrowed::of_stopped(pid, pid).with_context(what)?;
        let mut entered = Entered::natively(&family.settings, pid, &mut thread, deadline).with_context(what)?;
        let LibraryPlace::Native(library) = &entered.library else { bail!("the library was not mapped by hand") };
        let lent = thread.lend(library, "spoor_serve", &[0, 0])?;
        execution.hand_over();
        entered.is_serving = true;
        let trace = Self::install(family, entered, delivery, started);
        let back = lent.take_back(deadline);
        let trace = trace.with_context(what)?;
        back.with_context(what)?;
        Ok(trace)
    }

    /// Tells that something which came from it is not traced.
    pub(super) fn unfollowed(&self, why: &str) {
        self.delivery.limit("process-not-followed", 1, why);
        self.family.unfollowed();
    }
}

/// Follows a child that is about to run a program.
fn spawned(family: &Arc<Family>, mut execution: Execution, pid: i32, birth: Birth, seat: Seat) {
    let mut nap = MOMENT;
    while !family.is_over() {
        match execution.look() {
            Ok(Executed::NotYet) => {
                thread::sleep(nap);
                nap = (nap * 2).min(Duration::from_millis(2));
            }
            Ok(Executed::Done) => {
                match Trace::of_program(family, execution, pid, birth) {
                    Ok(mut trace) => {
                        trace.seat = Some(seat);
                        trace.attend();
                    }
                    Err(error) => {
                        family.unfollowed();
                        say!("not traced: {error:#}");
                    }
                }
                return;
            }
            Ok(Executed::Over(_)) | Err(_) => return,
        }
    }
}

/// A program that gets rights of its own loses them where somebody holds it who could not have given them.
fn refuse_more_rights(pid: i32, told: &ChildBirth) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    const NOWHERE: i32 = -1;
    if told.program.0 == NOWHERE {
        bail!("it is not known which program it is, which might have rights of its own");
    }
    let Some(path) = program(pid, told) else { return Ok(()) };
    let metadata = std::fs::metadata(&path)?;
    match raises_rights(&path, &metadata) {
        Some(what) => {
            // As the program knows it.
            let text = path.display().to_string();
            let name = ["root", "cwd/"].iter().find_map(|link| text.strip_prefix(&format!("/proc/{pid}/{link}")));
            bail!("{} {what}, and would lose that", name.unwrap_or(&text))
        }
        None => Ok(()),
    }
}

/// The file that a thread is about to run.
fn program(pid: i32, told: &ChildBirth) -> Option<PathBuf> {
    const HERE: i32 = -100;
    const LONGEST: usize = 4096;
    let (directory, at) = told.program;
    let folder = match directory {
        HERE => PathBuf::from(format!("/proc/{pid}/cwd")),
        descriptor => PathBuf::from(format!("/proc/{pid}/fd/{descriptor}")),
    };
    if at == 0 {
        return Some(folder);
    }
    let memory = TargetMemory::open(pid).ok()?;
    let mut path = Vec::new();
    let mut byte = [0];
    while path.len() < LONGEST {
        memory.read(at + path.len() as u64, &mut byte).ok()?;
        if byte[0] == 0 {
            break;
        }
        path.push(byte[0]);
    }
    let path = PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(path));
    match path.strip_prefix("/") {
        Ok(absolute) => Some(PathBuf::from(format!("/proc/{pid}/root")).join(absolute)),
        Err(_) => Some(folder.join(path)),
    }
}
