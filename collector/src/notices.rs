//! What the person at the terminal is told, on standard error.

use std::{
    fmt::Display,
    io::{self, IsTerminal, Write},
    sync::{
        Mutex, PoisonError,
        mpsc::{self, Receiver, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use tracing::{info, warn};

/// Writes lines, not too many of them, and on a terminal a last line that changes.
///
/// A thread does the writing: whoever reads standard error may stop, and nobody shall wait for that.
#[derive(Debug)]
pub(crate) struct Notices {
    pace: Mutex<Pace>,
    lines: SyncSender<Line>,
    terminal: bool,
}

#[derive(Debug)]
enum Line {
    /// A line that stays.
    Said(String),
    /// The line that changes.
    Status(String),
    /// Everything before has been written when this is answered.
    Last(SyncSender<()>),
}

/// So many lines may wait to be written.
const WAITING: usize = 1000;

/// So many lines may come at once.
const BURST: u32 = 30;

/// After that one comes in so much time.
const PACE: Duration = Duration::from_secs(2);

/// How long the last lines are waited for.
const LAST_TIME: Duration = Duration::from_secs(1);

impl Notices {
    pub(crate) fn new() -> Self {
        let (lines, waiting) = mpsc::sync_channel(WAITING);
        let terminal = io::stderr().is_terminal();
        thread::spawn(move || write(&waiting, terminal));
        Self { pace: Mutex::new(Pace { allowance: BURST, raised: Instant::now(), left_out: 0 }), lines, terminal }
    }

    /// Whether somebody is watching.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether another line may come that others can cause, and so perhaps too often: beyond a pace they are counted.
    fn may_say(&self) -> bool {
        let Some(left_out) = self.pace.lock().unwrap_or_else(PoisonError::into_inner).step() else { return false };
        if left_out > 0 {
            info!("({left_out} lines left out)");
        }
        true
    }

    /// Logs something that others may cause, and so perhaps too often: beyond a pace it is counted instead.
    pub(crate) fn say(&self, line: impl Display) {
        if self.may_say() {
            info!("{line}");
        }
    }

    /// The same, of something that is wrong.
    pub(crate) fn warn(&self, line: impl Display) {
        if self.may_say() {
            warn!("{line}");
        }
    }

    /// Prints a line, unless nobody has read for long.
    pub(crate) fn print(&self, line: String) {
        _ = self.lines.try_send(Line::Said(line));
    }

    /// Replaces the line that changes. There is none but on terminals.
    pub(crate) fn status(&self, line: String) {
        if self.terminal {
            _ = self.lines.try_send(Line::Status(line));
        }
    }

    /// Waits until everything has been written, for a moment.
    pub(crate) fn finish(&self) {
        let left_out = std::mem::take(&mut self.pace.lock().unwrap_or_else(PoisonError::into_inner).left_out);
        if left_out > 0 {
            info!("({left_out} lines left out)");
        }
        let (written, done) = mpsc::sync_channel(1);
        if self.lines.try_send(Line::Last(written)).is_ok() {
            _ = done.recv_timeout(LAST_TIME);
        }
    }
}

/// How many lines may still come.
#[derive(Debug)]
struct Pace {
    allowance: u32,
    /// When the allowance was last raised.
    raised: Instant,
    left_out: u64,
}

impl Pace {
    /// Whether another line may come, and how many did not come before it.
    fn step(&mut self) -> Option<u64> {
        let earned = u32::try_from(self.raised.elapsed().as_millis() / PACE.as_millis()).unwrap_or(BURST);
        if earned > 0 {
            self.allowance = BURST.min(self.allowance.saturating_add(earned));
            self.raised = Instant::now();
        }
        let Some(allowance) = self.allowance.checked_sub(1) else {
            self.left_out += 1;
            return None;
        };
        self.allowance = allowance;
        Some(std::mem::take(&mut self.left_out))
    }
}

fn write(lines: &Receiver<Line>, terminal: bool) {
    let mut stderr = io::stderr();
    let mut status = String::new();
    let clear = if terminal { "\r\x1b[K" } else { "" };
    while let Ok(line) = lines.recv() {
        // Nothing can be done for somebody who cannot be told.
        _ = match line {
            Line::Said(line) => write!(stderr, "{clear}{line}\n{status}"),
            Line::Status(line) => {
                // A line that wraps around could not be cleared.
                let columns = rustix::termios::tcgetwinsize(&stderr).map_or(80, |size| size.ws_col.max(20));
                status = line.chars().take(usize::from(columns) - 1).collect();
                write!(stderr, "{clear}{status}")
            }
            Line::Last(written) => {
                if !status.is_empty() {
                    _ = writeln!(stderr);
                    status.clear();
                }
                _ = written.send(());
                Ok(())
            }
        }
        .and_then(|()| stderr.flush());
    }
}
