//! Signals that come to this process while a program is traced.
//!
//! A signal that somebody sends to `agent run` is meant for the program, and is handed on. One that the terminal sends
//! has reached the program already, since both are in the foreground, and would come twice. When there is no program to
//! hand them to, they ask to stop, and asked twice, to hurry.

use std::{
    fs, io,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI32, AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::process::{Signal, pidfd_send_signal};
use signal_hook::{
    consts::signal::{SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH},
    iterator::{
        Handle, SignalsInfo,
        exfiltrator::{WithOrigin, origin::Origin},
    },
    low_level::siginfo::Cause,
};

use crate::{args::Selected, process};

/// Those that ask to stop when there is no program to hand them to.
const STOPS: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
/// The others that are handed on. The rest, those for job control above all, do what they always do.
const OTHERS: [i32; 5] = [SIGALRM, SIGCONT, SIGUSR1, SIGUSR2, SIGWINCH];
/// A second request within this time means: at once.
const TWICE: Duration = Duration::from_secs(3);

/// What somebody wants of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To go on.
    Nothing,
    /// To come to an end.
    Stop,
    /// To end at once.
    Hurry,
}

/// Somebody asked to stop while that was possible without any harm.
#[derive(Debug, Clone, Copy, thiserror::Error, PartialEq, Eq)]
#[error("stopped by {}", crate::end_state::signal_name(self.0))]
pub(crate) struct Interrupted(pub(crate) i32);

/// The signal that asked to stop, or 0. One for the process, as signals are.
static STOP: AtomicI32 = AtomicI32::new(0);

/// How often each of the signals came that are not handed on, and which those are, as bits.
static RECEIVED: [AtomicU32; 32] = [const { AtomicU32::new(0) }; 32];
static CLAIMED: AtomicU32 = AtomicU32::new(0);

/// Signals to this process that start and stop sending.
#[derive(Debug)]
pub(crate) struct SignalTriggers(Vec<(i32, u32, bool)>);

impl SignalTriggers {
    /// From now on they are not handed on.
    pub(crate) fn new(selected: &Selected) -> Self {
        let starts = selected.start_signals.iter().map(|signal| (*signal, 0, true));
        let all: Vec<_> = starts.chain(selected.stop_signals.iter().map(|signal| (*signal, 0, false))).collect();
        for (signal, ..) in &all {
            // ORDERING: a number that stands for nothing else.
            CLAIMED.fetch_or(1 << signal, Ordering::Relaxed);
        }
        Self(all)
    }

    /// Which of them came since the last time: whether each starts sending, or stops it.
    pub(crate) fn look(&mut self) -> Vec<bool> {
        let mut came = Vec::new();
        for (signal, seen, is_start) in &mut self.0 {
            // ORDERING: a count.
            let count = RECEIVED.get(signal.unsigned_abs() as usize).map_or(0, |count| count.load(Ordering::Relaxed));
            if std::mem::replace(seen, count) != count {
                came.push(*is_start);
            }
        }
        came
    }
}

/// Fails once somebody has asked to stop. For whatever waits, and may give up without any harm.
pub(crate) fn check() -> Result<(), Interrupted> {
    // ORDERING: it is a number and stands for nothing else.
    match STOP.load(Ordering::Relaxed) {
        0 => Ok(()),
        signal => Err(Interrupted(signal)),
    }
}

/// Whether something was given up since somebody has asked to stop.
pub(crate) fn is_interrupted(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<Interrupted>())
}

/// Signals are watched as long as this lives.
#[derive(Debug)]
pub(crate) struct Signals {
    state: Arc<Mutex<State>>,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct State {
    program: Option<(i32, OwnedFd)>,
    asked: Asked,
    last: Option<Instant>,
}

impl Signals {
    /// Begins to watch. What was ignored when this process started stays ignored, here and in the program.
    pub(crate) fn watch() -> io::Result<Self> {
        let ignored = ignored();
        let wanted = STOPS.iter().chain(&OTHERS).filter(|signal| ignored & (1 << (**signal - 1)) == 0);
        let mut signals = SignalsInfo::<WithOrigin>::new(wanted)?;
        let handle = signals.handle();
        let state = Arc::new(Mutex::new(State { program: None, asked: Asked::Nothing, last: None }));
        let watched = Arc::clone(&state);
        let thread = thread::spawn(move || {
            for origin in &mut signals {
                lock(&watched).receive(&origin);
            }
        });
        Ok(Self { state, handle, thread: Some(thread) })
    }

    /// From now on signals are for this program.
    pub(crate) fn forward_to(&self, pid: i32) -> io::Result<()> {
        lock(&self.state).program = Some((pid, process::open(pid)?));
        Ok(())
    }

    /// The program is gone: from now on signals are for this process.
    pub(crate) fn stop_forwarding(&self) {
        lock(&self.state).program = None;
    }

    /// What was asked for so far.
    pub(crate) fn asked(&self) -> Asked {
        lock(&self.state).asked
    }

    /// What was asked for is being done: only what is asked for from now on counts.
    pub(crate) fn acknowledge(&self) {
        lock(&self.state).asked = Asked::Nothing;
        // ORDERING: as in `check`.
        STOP.store(0, Ordering::Relaxed);
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // It cannot fail in a way that would matter now.
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn receive(&mut self, origin: &Origin) {
        let signal = origin.signal;
        // ORDERING: as in `SignalTriggers`.
        if let Some(count) = RECEIVED.get(signal.unsigned_abs() as usize)
            && CLAIMED.load(Ordering::Relaxed) & (1 << signal) != 0
        {
            count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if let Some((pid, descriptor)) = &self.program {
            let Some(number) = Signal::from_named_raw(signal) else { return };
            if is_for(*pid, origin) {
                // If it fails, the program has just ended.
                let _ = pidfd_send_signal(descriptor, number);
            }
            return;
        }
        if !STOPS.contains(&signal) {
            return;
        }
        // ORDERING: it is a number and stands for nothing else.
        STOP.store(signal, Ordering::Relaxed);
        let again = self.last.is_some_and(|last| last.elapsed() < TWICE);
        self.asked = if again || self.asked == Asked::Hurry { Asked::Hurry } else { Asked::Stop };
        self.last = Some(Instant::now());
    }
}

/// Whether the program has not had a signal that came to this process.
fn is_for(pid: i32, origin: &Origin) -> bool {
    match origin.cause {
        Cause::Sent(_) => {}
        _ => return false,
    }
    // What the program sends to its group it has had itself.
    if origin.process.is_some_and(|sender| sender.pid == pid) {
        return false;
    }
    // A shell continues the whole group; to continue what runs would only call its handlers again.
    origin.signal != SIGCONT || process::state(pid) == Some('T')
}

/// The signals that this process ignores, as bits.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}
