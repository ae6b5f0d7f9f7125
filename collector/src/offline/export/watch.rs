//! How far an export is, on a terminal.

use std::{
    io::{self, IsTerminal, Write},
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::tables::Progress;

/// After how long something is shown, and how often from then on.
const FIRST: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_millis(200);

/// How wide the bar is.
const BAR: usize = 30;

/// Shows a bar while it is there and somebody watches, if the export takes longer than a moment.
pub(super) struct Watch {
    /// Closed when it is over.
    over: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(super) fn start(progress: &Arc<Progress>) -> Self {
        let (over, ended) = mpsc::channel();
        let progress = Arc::clone(progress);
        let show = move || {
            let (mut wait, mut is_shown) = (FIRST, false);
            while ended.recv_timeout(wait) == Err(mpsc::RecvTimeoutError::Timeout) {
                wait = EVERY;
                let Some(percent) = progress.percent() else { continue };
                let full = BAR * usize::try_from(percent).unwrap_or(0) / 100;
                let _ = write!(io::stderr(), "\r[{:BAR$}] {percent:>3} %", "#".repeat(full));
                is_shown = true;
            }
            if is_shown {
                let _ = write!(io::stderr(), "\r\x1b[K");
            }
        };
        // Where there is no thread to be had, there is no bar.
        let thread = io::stderr().is_terminal().then(|| thread::Builder::new().spawn(show).ok()).flatten();
        Self { over: Some(over), thread }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
