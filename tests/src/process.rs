//! A child process with deadlines: what it prints is collected while it runs, and it does not outlive the test.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::process::ExitStatusExt,
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

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
    pid: u32,
    stdin: Option<ChildStdin>,
    held: Option<ChildStdout>,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Arc<Lines>,
    stderr_reader: Option<JoinHandle<()>>,
    status: Receiver<ExitStatus>,
    exited: Option<ExitStatus>,
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
        let stderr = Arc::new(Lines::default());
        let stderr_reader = child.stderr.take().map(|pipe| {
            let lines = Arc::clone(&stderr);
            thread::spawn(move || lines.read(pipe))
        });
        let pipe = child.stdout.take().expect("stdout is piped");
        let (held, collector) = match stdout {
            Stdout::Hold => (Some(pipe), None),
            Stdout::Collect => (None, Some(thread::spawn(move || read_all(pipe)))),
        };
        Self {
            pid: child.id(),
            stdin: child.stdin.take(),
            held,
            stdout: collector,
            stderr,
            stderr_reader,
            status: watch(child),
            exited: None,
        }
    }

    /// Its id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its stdin. Dropping it ends what the child can read.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// Its stdout, if nobody reads it. Dropping it breaks the pipe.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.held.take()
    }

    /// Waits until `found` makes something of the lines on stderr. `None` if it does not in time, or if the child
    /// closed stderr before.
    pub fn find<T>(&self, timeout: Duration, mut found: impl FnMut(&[String]) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + timeout;
        let mut state = self.stderr.lock();
        loop {
            if let Some(value) = found(&state.lines) {
                return Some(value);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if state.closed || left.is_zero() {
                return None;
            }
            state = match self.stderr.changed.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// The lines on stderr so far.
    pub fn stderr(&self) -> Vec<String> {
        self.stderr.lock().lines.clone()
    }

    /// Sends a signal, by its name without `SIG`. Nothing happens where the child has ended.
    pub fn signal(&mut self, name: &str) {
        if self.is_running() {
            let script = format!("kill -s {name} {}", self.pid);
            let sent = Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).status();
            assert!(sent.is_ok(), "cannot run sh to send SIG{name}");
        }
    }

    /// Whether it has not ended yet.
    pub fn is_running(&mut self) -> bool {
        self.exited = self.exited.or_else(|| self.status.try_recv().ok());
        self.exited.is_none()
    }

    /// Waits for its end. Fails the test where that does not come in time.
    #[track_caller]
    pub fn exit(mut self, timeout: Duration) -> Exit {
        self.stdin = None;
        let status = self.exited.or_else(|| self.status.recv_timeout(timeout).ok());
        let Some(status) = status else {
            let stderr = self.stderr().join("\n");
            panic!("the command did not end within {timeout:?}; it said:\n{stderr}");
        };
        self.exited = Some(status);
        self.held = None;
        let stdout = self.stdout.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        if let Some(reader) = self.stderr_reader.take() {
            let _ = reader.join();
        }
        Exit { code: status.code(), signal: status.signal(), stdout, stderr: self.stderr().join("\n") }
    }

    /// The most memory it has had, in bytes, while it runs.
    pub fn peak_bytes(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// The memory it has, in bytes, while it runs.
    pub fn resident_bytes(&self) -> u64 {
        self.memory("VmRSS:")
    }

    fn memory(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).expect("the child runs");
        let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the kernel says so");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.is_running() {
            self.signal("KILL");
            let _ = self.status.recv_timeout(Duration::from_secs(10));
        }
    }
}

/// Waits for a child's end in a thread, so that others can wait for that with a deadline.
fn watch(mut child: Child) -> Receiver<ExitStatus> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        if let Ok(status) = child.wait() {
            let _ = sender.send(status);
        }
    });
    receiver
}

fn read_all(mut pipe: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = pipe.read_to_end(&mut bytes);
    bytes
}

/// The lines that a child has printed.
#[derive(Debug, Default)]
struct Lines {
    state: Mutex<LinesState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LinesState {
    lines: Vec<String>,
    closed: bool,
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, LinesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, pipe: impl Read) {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_string();
            self.lock().lines.push(text);
            self.changed.notify_all();
            line.clear();
        }
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    fn shell(script: &str, stdout: Stdout) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start(command, stdout)
    }

    #[test]
    fn output_and_code_are_collected() {
        let exit = shell("echo out; echo err >&2; exit 3", Stdout::Collect).exit(LONG);
        assert_eq!((exit.code, exit.text(), exit.stderr.as_str()), (Some(3), "out\n", "err"));
    }

    #[test]
    fn a_line_is_found_as_soon_as_it_is_there() {
        let mut process = shell("echo ready 7 >&2; read line; echo got $line >&2", Stdout::Collect);
        let number =
            process.find(LONG, |lines| lines.iter().find_map(|line| line.strip_prefix("ready ")?.parse().ok()));
        assert_eq!(number, Some(7));
        assert!(process.peak_bytes() >= process.resident_bytes() / 2);
        drop(process.take_stdin());
        assert_eq!(process.find(LONG, |lines| lines.iter().position(|line| line == "got")), Some(1));
        assert_eq!(process.find(LONG, |lines| lines.iter().position(|line| line == "never")), None);
        process.exit(LONG).success();
    }

    #[test]
    fn signals_arrive() {
        let mut process = shell("trap 'exit 5' TERM; echo up >&2; while :; do read line; done", Stdout::Collect);
        process.find(LONG, |lines| lines.first().cloned()).expect("it is up");
        process.signal("TERM");
        assert_eq!(process.exit(LONG).code, Some(5));
    }

    #[test]
    fn held_output_can_be_broken_off() {
        let mut process = shell("trap '' PIPE; while echo line; do :; done; exit 4", Stdout::Hold);
        drop(process.take_stdout());
        assert_eq!(process.exit(LONG).code, Some(4));
    }
}
