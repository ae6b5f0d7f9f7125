//! The program that is traced and what has come from it: how many processes there are, and what was delivered of all.

use std::{
    collections::HashSet,
    num::NonZeroU64,
    sync::{
        Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use agent::{
    drain::Clock,
    shared::ChildBirth,
    ship::{Birth, BirthKind},
};
use anyhow::{Context, Result, bail};
use codec::{SessionId, SessionNs};

use crate::{
    control::Sessions, delivery::Outcome, install::Plans, process, settings::Settings, signals::Signals,
    symbols::LineReader,
};

/// How long after its entry a call that makes a process is sure not to have returned.
const WITHIN_CALL_NS: u64 = 1000;

/// The program and what has come from it.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) settings: Settings,
    pub(crate) signals: Signals,
    /// Plans of files that are run by processes which are followed from their first instruction.
    pub(crate) plans: Arc<Plans>,
    pub(crate) lines: LineReader,
    /// All sessions have the same zero.
    clock: Mutex<Clock>,
    /// The first session.
    root: OnceLock<SessionId>,
    /// Those that can be asked while they run.
    pub(crate) sessions: Sessions,
    state: Mutex<State>,
    /// How many processes and programs are not traced.
    unfollowed: AtomicU64,
    /// Whether the program has ended, so that somebody waits for this command.
    has_ended: AtomicBool,
    /// Whether nothing is traced any more.
    is_over: AtomicBool,
    warned: Once,
    waits: Once,
}

#[derive(Debug, Default)]
struct State {
    /// How many processes are traced, beside the first.
    processes: usize,
    /// Those that are about to run a program, and are held until they do.
    held: HashSet<i32>,
    threads: Vec<JoinHandle<()>>,
    outcome: Option<Outcome>,
    let_go: usize,
}

/// A place among those that are traced at once.
#[derive(Debug)]
pub(crate) struct Seat(Arc<Family>);

/// A process that is held until it runs a program.
#[derive(Debug)]
pub(crate) struct Held(Arc<Family>, i32);

impl Family {
    pub(crate) fn new(settings: Settings, signals: Signals) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            settings,
            signals,
            plans: Arc::default(),
            lines: LineReader::start().context("cannot start a thread")?,
            clock: Mutex::new(Clock::start()),
            root: OnceLock::new(),
            sessions: Sessions::default(),
            state: Mutex::default(),
            unfollowed: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            warned: Once::new(),
            waits: Once::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock of all sessions, as it goes now.
    pub(crate) fn clock(&self) -> Clock {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.tick();
        clock.clone()
    }

    /// The first session: this one, if there was none before.
    pub(crate) fn root(&self, session: SessionId) -> SessionId {
        *self.root.get_or_init(|| session)
    }

    /// How a session came from another.
    pub(crate) fn birth(&self, parent: SessionId, how: BirthKind, told: &ChildBirth) -> Birth {
        let (tid, at) = match told.counter {
            0 => (0, SessionNs(0)),
            counter => (told.parent_tid, SessionNs(self.clock().at(counter).0 + WITHIN_CALL_NS)),
        };
        Birth { parent, how, tid, at }
    }

    /// A place for one more process.
    pub(crate) fn seat(self: &Arc<Self>, pid: i32) -> Result<Seat> {
        if self.is_over() {
            bail!("process {pid}: the program has ended");
        }
        self.refuse_confined(pid)?;
        let mut state = self.state();
        // The first has no seat.
        if state.processes + 1 >= self.settings.max_processes {
            bail!("process {pid}: {} are traced already (--max-processes)", self.settings.max_processes);
        }
        state.processes += 1;
        Ok(Seat(Arc::clone(self)))
    }

    /// Refuses a process that was confined after it, or what it came from, had begun: what is needed may be forbidden by
    /// death.
    pub(crate) fn refuse_confined(&self, pid: i32) -> Result<()> {
        let own = process::filters(std::process::id() as i32);
        if process::filters(pid) > own {
            bail!("process {pid} has confined itself with seccomp");
        }
        Ok(())
    }

    /// Holds a process until it runs a program. None where it is held already.
    pub(crate) fn hold(self: &Arc<Self>, pid: i32) -> Option<Held> {
        self.state().held.insert(pid).then(|| Held(Arc::clone(self), pid))
    }

    /// Does something on a thread of its own, which is waited for at the end.
    pub(crate) fn start(self: &Arc<Self>, act: impl FnOnce(&Arc<Self>) + Send + 'static) -> Result<()> {
        let family = Arc::clone(self);
        let thread = thread::Builder::new().name("follow".into()).spawn(move || {
            // A process waits while this thread naps. Where the system does not let it, naps are longer.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            act(&family);
        });
        let mut state = self.state();
        state.threads.retain(|thread| !thread.is_finished());
        state.threads.push(thread.context("cannot start a thread")?);
        Ok(())
    }

    /// Says that the collector is waited for, if somebody waits for this command, and once.
    pub(crate) fn tell_waiting(&self) {
        // ORDERING: a hint.
        if !self.settings.quiet && self.has_ended.load(Ordering::Relaxed) {
            self.waits.call_once(|| {
                say!(
                    "waiting for the collector at {} to confirm that it has everything (--linger); Ctrl-C ends that",
                    self.settings.collector.name
                );
            });
        }
    }

    /// Says something the first time.
    pub(crate) fn warn_once(&self, say: impl FnOnce()) {
        self.warned.call_once(say);
    }

    /// Counts what is not traced.
    pub(crate) fn unfollowed(&self) {
        // ORDERING: a count.
        self.unfollowed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a process that goes on untraced.
    pub(crate) fn let_go(&self) {
        self.state().let_go += 1;
    }

    /// Adds what was delivered of a session.
    pub(crate) fn add(&self, pid: i32, outcome: Option<Outcome>) {
        let Some(outcome) = outcome else { return };
        let mut state = self.state();
        if self.settings.verbose && state.outcome.is_some() {
            say!("of process {pid}:");
            outcome.print(&self.settings);
        }
        match &mut state.outcome {
            Some(all) => all.add(&outcome),
            none => *none = Some(outcome),
        }
    }

    /// The program has ended, or is let go of.
    pub(crate) fn has_ended(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Whether nothing is traced any more.
    pub(crate) fn is_over(&self) -> bool {
        // ORDERING: a hint.
        self.is_over.load(Ordering::Relaxed)
    }

    /// What came from the program and is still there goes on untraced. Says what was delivered.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        loop {
            let Some(thread) = self.state().threads.pop() else { break };
            if thread.join().is_err() {
                say!("a process that was started is not traced to its end (this is a bug)");
            }
        }
        let State { outcome, let_go, .. } = std::mem::take(&mut *self.state());
        if let Some(mut outcome) = outcome {
            outcome.unfollowed += self.unfollowed.load(Ordering::Relaxed);
            if !self.settings.quiet || !outcome.is_complete() {
                outcome.print(&self.settings);
            }
            self.settings.summary.iter().for_each(|output| output.write(&outcome.summary(let_go)));
        }
        if let_go > 0 && !self.settings.quiet {
            match let_go {
                1 => say!("1 process that it has started goes on untraced"),
                _ => say!("{let_go} processes that it has started go on untraced"),
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.processes = state.processes.saturating_sub(1);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.state().held.remove(&self.1);
    }
}
