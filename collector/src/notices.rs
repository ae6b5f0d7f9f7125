//! What the person at the terminal is told, on standard error.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Writes lines, not too many of them, and on a terminal a last line that changes.
#[derive(Debug)]
pub(crate) struct Notices {
    state: Mutex<State>,
    terminal: bool,
}

#[derive(Debug)]
struct State {
    /// The line that changes, as it is on the terminal.
    status: String,
    /// How many more lines may be written now.
    allowance: u32,
    /// When the allowance was last raised.
    raised: Instant,
    left_out: u64,
}

/// So many lines may come at once.
const BURST: u32 = 30;

/// After that one comes in so much time.
const PACE: Duration = Duration::from_secs(2);

impl Notices {
    pub(crate) fn new() -> Self {
        let state = State { status: String::new(), allowance: BURST, raised: Instant::now(), left_out: 0 };
        Self { state: Mutex::new(state), terminal: io::stderr().is_terminal() }
    }

    /// Whether somebody is watching.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Says something that others may cause, and so perhaps too often: beyond a pace it is counted instead.
    pub(crate) fn say(&self, line: impl AsRef<str>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let earned = u32::try_from(state.raised.elapsed().as_millis() / PACE.as_millis()).unwrap_or(BURST);
        if earned > 0 {
            state.allowance = BURST.min(state.allowance.saturating_add(earned));
            state.raised = Instant::now();
        }
        if state.allowance == 0 {
            state.left_out += 1;
            return;
        }
        state.allowance -= 1;
        let left_out = std::mem::take(&mut state.left_out);
        if left_out > 0 {
            self.write(&state, &format!("({left_out} lines left out)"));
        }
        self.write(&state, line.as_ref());
    }

    /// Says something in any case.
    pub(crate) fn say_always(&self, line: impl AsRef<str>) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.write(&state, line.as_ref());
    }

    /// Replaces the line that changes. Only for terminals.
    pub(crate) fn status(&self, line: String) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.status = line;
        let mut stderr = io::stderr().lock();
        // Nothing can be done for somebody who cannot be told.
        _ = write!(stderr, "\r\x1b[K{}", state.status).and_then(|()| stderr.flush());
    }

    fn write(&self, state: &State, line: &str) {
        let mut stderr = io::stderr().lock();
        _ = if self.terminal && !state.status.is_empty() {
            write!(stderr, "\r\x1b[K{line}\n{}", state.status).and_then(|()| stderr.flush())
        } else {
            writeln!(stderr, "{line}")
        };
    }
}
