//! A command that runs to its end, with a deadline.

use std::{
    io,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};

/// How long a measured command may take.
const LIMIT: Duration = Duration::from_secs(180);

/// How a command ran.
#[derive(Debug)]
pub struct Ran {
    /// How long it took.
    pub seconds: f64,
    /// Its exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// What it and its children printed to stderr.
    pub stderr: String,
}

impl Ran {
    /// Runs a command without input, and looks at nothing that it prints to stdout. Where it takes too long, it and its
    /// children are killed.
    pub fn new(command: &mut Command) -> Self {
        let started = Instant::now();
        let mut child = start(command);
        let stderr = child.stderr.take().expect("a pipe");
        let reader = thread::spawn(move || {
            let mut bytes = Vec::new();
            _ = io::Read::read_to_end(&mut { stderr }, &mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let (done, waited) = channel::<()>();
        let group = Pid::from_child(&child);
        let watchdog = thread::spawn(move || {
            if waited.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
                _ = kill_process_group(group, Signal::KILL);
            }
        });
        let status = child.wait().expect("a child");
        let seconds = started.elapsed().as_secs_f64();
        // What it leaves running would keep the pipe open.
        let stderr = reader.join().expect("a reader");
        drop(done);
        watchdog.join().expect("a watchdog");
        Self { seconds, code: status.code(), stderr }
    }

    /// The same, and it must succeed.
    pub fn well(command: &mut Command) -> Self {
        let ran = Self::new(command);
        assert_eq!(ran.code, Some(0), "{command:?}: {}", ran.stderr);
        ran
    }

    /// What follows `word` in the lines on stderr that start with it.
    pub fn lines<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a str> {
        self.stderr.lines().filter_map(move |line| line.strip_prefix(word))
    }

    /// The number that follows `word` on stderr.
    pub fn number(&self, word: &str) -> Option<f64> {
        self.lines(word).find_map(|rest| rest.split_whitespace().next()?.parse().ok())
    }
}

fn start(command: &mut Command) -> Child {
    // A group of its own, so that no child is left behind.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
}
