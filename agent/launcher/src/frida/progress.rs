//! Saying that something takes its time.

use std::{
    io::{self, IsTerminal, Write},
    sync::mpsc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Something that takes its time. On a terminal one line lives, elsewhere there is one at the start and one at the end.
pub(super) struct Progress {
    what: String,
    begun: Instant,
    quiet: bool,
    live: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    pub(super) fn start(what: &str, quiet: bool) -> Self {
        let begun = Instant::now();
        let live = (!quiet && io::stderr().is_terminal()).then(|| {
            let (sender, ended) = mpsc::channel();
            let what = what.to_string();
            (sender, thread::spawn(move || spin(&what, begun, &ended)))
        });
        if live.is_none() && !quiet {
            eprintln!("agent: {what}");
        }
        Self { what: what.into(), begun, quiet, live }
    }

    pub(super) fn end(self, how: &str) {
        if let Some((sender, thread)) = self.live {
            drop(sender);
            // It only writes to the terminal.
            let _ = thread.join();
            eprint!("\r\x1b[K");
        }
        if !self.quiet {
            eprintln!("agent: {}: {how} in {:.1} s", self.what, self.begun.elapsed().as_secs_f64());
        }
    }
}

fn spin(what: &str, begun: Instant, ended: &mpsc::Receiver<()>) {
    for step in ['|', '/', '-', '\\'].iter().cycle() {
        eprint!("\r\x1b[K{step} {what} {:.0} s", begun.elapsed().as_secs_f64());
        let _ = io::stderr().flush();
        if ended.recv_timeout(Duration::from_millis(200)) == Err(mpsc::RecvTimeoutError::Disconnected) {
            return;
        }
    }
}
