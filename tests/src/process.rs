//! Commands of the workspace, and child processes with deadlines: what they print is collected while they run, and they
//! do not outlive the test.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::failure;

/// How long others get the processor between two looks at a child.
const GLANCE: Duration = Duration::from_millis(5);

/// What is done with what the child prints to stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdout {
    /// It is collected.
    Collect,
    /// It is a pipe that nobody reads, until [`Process::take_stdout`].
    Hold,
}

/// A running child.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Collects what it prints to stdout.
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Arc<Mutex<Lines>>,
    stderr_reader: Option<JoinHandle<()>>,
}

/// The lines that a child has printed, and whether there are no more.
#[derive(Debug, Default)]
struct Lines {
    lines: Vec<String>,
    closed: bool,
}

/// How a child ended and what it printed.
#[derive(Debug)]
pub struct Exit {
    /// Its exit code, unless a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// What it printed to stdout, if that was collected.
    pub stdout: Vec<u8>,
    /// What it printed to stderr.
    pub stderr: String,
}

impl Exit {
    /// What it printed to stdout, as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("stdout is UTF-8")
    }

    /// Fails the test unless the child ended well.
    #[track_caller]
    pub fn success(self) -> Self {
        assert_eq!(self.code, Some(0), "the command failed: {}", self.stderr);
        self
    }
}

impl Process {
    /// Starts a command.
    pub fn start(mut command: Command, stdout: Stdout) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stderr = Arc::<Mutex<Lines>>::default();
        let (pipe, lines) = (child.stderr.take().expect("stderr is piped"), Arc::clone(&stderr));
        let stderr_reader = Some(thread::spawn(move || read_lines(pipe, &lines)));
        let pipe = if stdout == Stdout::Collect { child.stdout.take() } else { None };
        let stdout = pipe.map(|pipe| thread::spawn(move || read_all(pipe)));
        Self { child, stdout, stderr, stderr_reader }
    }

    /// Its id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its stdin. Dropping it ends what the child can read.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Its stdout, if nobody reads it. Dropping it breaks the pipe.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Waits until `found` makes something of the lines on stderr. `None` if it does not in time, or if the child
    /// closed stderr before.
    pub fn find<T>(&self, timeout: Duration, mut found: impl FnMut(&[String]) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + timeout;
        loop {
            let state = lock(&self.stderr);
            let value = found(&state.lines);
            if value.is_some() || state.closed || Instant::now() > deadline {
                return value;
            }
            drop(state);
            thread::park_timeout(GLANCE);
        }
    }

    /// What it has printed to stderr so far.
    pub fn said(&self) -> String {
        lock(&self.stderr).lines.join("\n")
    }

    /// Sends a signal, by its name without `SIG`. Nothing happens where the child has ended.
    pub fn signal(&mut self, name: &str) {
        if self.is_running() {
            let script = format!("kill -s {name} {}", self.pid());
            let sent = Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).status();
            assert!(sent.is_ok(), "cannot run sh to send SIG{name}");
        }
    }

    /// Whether it has not ended yet.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Whether nobody can print to its stdout and stderr any more: it has ended, and so have those it started.
    pub fn is_silent(&self) -> bool {
        self.stdout.as_ref().is_none_or(JoinHandle::is_finished) && lock(&self.stderr).closed
    }

    /// Waits for its end. Fails the test where that does not come in time.
    #[track_caller]
    pub fn exit(mut self, timeout: Duration) -> Exit {
        drop(self.take_stdin());
        let deadline = Instant::now() + timeout;
        while self.is_running() {
            assert!(Instant::now() < deadline, "the command did not end within {timeout:?}; it said:\n{}", self.said());
            thread::park_timeout(GLANCE);
        }
        let status = self.child.wait().expect("it has ended");
        drop(self.take_stdout());
        let stdout = self.stdout.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        if let Some(reader) = self.stderr_reader.take() {
            let _ = reader.join();
        }
        Exit { code: status.code(), signal: status.signal(), stdout, stderr: self.said() }
    }

    /// The most memory it has had, in bytes, while it runs.
    pub fn peak_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the child runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the kernel says so");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        /// How much of what it said is told where a test fails.
        const LAST_LINES: usize = 60;
        if thread::panicking() {
            let state = lock(&self.stderr);
            let lines = &state.lines[state.lines.len().saturating_sub(LAST_LINES)..];
            failure::tell(&format!("process {} said last:\n{}", self.child.id(), lines.join("\n")));
        }
        if self.is_running() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn lock(lines: &Mutex<Lines>) -> MutexGuard<'_, Lines> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read_all(mut pipe: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = pipe.read_to_end(&mut bytes);
    bytes
}

fn read_lines(pipe: impl Read, lines: &Mutex<Lines>) {
    let mut reader = BufReader::new(pipe);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        lock(lines).lines.push(String::from_utf8_lossy(&line).trim_end().to_string());
        line.clear();
    }
    lock(lines).closed = true;
}

/// Builds a command in the profile of the tests and returns its path: a test cannot depend on a binary of another
/// package. With the features of the whole workspace, as `cargo test --workspace` has them: others would build every
/// dependency a second time.
#[track_caller]
pub fn build(binary: &str) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--workspace", "--bin", binary, "--message-format=json"]);
    if binary == "collector" && cfg!(feature = "sql") {
        cargo.args(["--features", "collector/sql"]);
    }
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    as_outside(&mut cargo);
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{binary} cannot be built: {errors}");
    let messages = output.stdout.split(|byte| *byte == b'\n').flat_map(serde_json::from_slice::<Value>);
    let named = messages.filter(|message| message["target"]["name"] == binary);
    let executable = named.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back();
    executable.unwrap_or_else(|| panic!("cargo did not name the executable of {binary}: {errors}"))
}

/// Takes what the cargo that runs the tests says of their package from the environment of a command. To another cargo it
/// looks like a change to the build scripts of others.
pub fn as_outside(command: &mut Command) {
    let said = |name: &str| name == "OUT_DIR" || name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in env::vars().filter(|(name, _)| said(name)) {
        command.env_remove(name);
    }
}
