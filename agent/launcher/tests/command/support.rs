//! Starting the command, with a deadline for everything.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, Once,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use crate::collector;

/// How long anything may take. The first also installs Frida.
const DEADLINE: Duration = Duration::from_secs(240);

/// The command, with Frida installed in places of its own. All tests share them, also those of the package `tests`, so
/// that Frida is installed once.
pub(crate) fn agent(args: &[&str]) -> Command {
    static SET_UP: Once = Once::new();
    SET_UP.call_once(|| {
        let ended = run(&mut private(&["setup", "--quiet"]));
        assert_eq!(ended.code(), Some(0), "{ended:?}");
    });
    private(args)
}

fn private(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent"));
    let places = Path::new(env!("CARGO_TARGET_TMPDIR"));
    command.env("XDG_DATA_HOME", places.join("data")).env("XDG_CACHE_HOME", places.join("cache"));
    command.args(args);
    command
}

/// The command with what it takes to send to a collector that wants nothing.
pub(crate) fn sending(args: &[&str]) -> Command {
    let [command, rest @ ..] = args else { panic!("no command") };
    let mut sending = agent(&[command, "--transport", "tcp", "--to", &collector::address().to_string()]);
    sending.args(rest);
    sending
}

/// `agent run`, quietly.
pub(crate) fn agent_run(program: &[&str]) -> Command {
    let mut command = sending(&["run", "--quiet", "--"]);
    command.args(program);
    command
}

/// How a command ended, and what it wrote.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    pub(crate) fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// What it says when it fails: one line.
    pub(crate) fn error(&self) -> &str {
        let line = self.stderr.trim_end();
        assert!(line.starts_with("agent: ") && !line.contains('\n'), "expected one line: {line}");
        line
    }
}

/// Runs a command to its end, without input.
pub(crate) fn run(command: &mut Command) -> Ended {
    run_with(command, b"")
}

/// Runs a command to its end.
pub(crate) fn run_with(command: &mut Command, input: &'static [u8]) -> Ended {
    let mut running = Running::start(command);
    let mut stdin = running.child.stdin.take().expect("a pipe");
    // A program need not read its input.
    let writer = thread::spawn(move || drop(stdin.write_all(input)));
    let ended = running.end();
    writer.join().expect("written");
    ended
}

/// A command that runs.
pub(crate) struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
    said: Arc<Mutex<String>>,
    listener: Option<thread::JoinHandle<()>>,
    deadline: Instant,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let (sender, lines) = mpsc::channel();
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        thread::spawn(move || {
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
                line.clear();
            }
        });
        let mut errors = child.stderr.take().expect("a pipe");
        let said = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&said);
        let listener = thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = errors.read(&mut buffer) {
                heard.lock().expect("a lock").push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        });
        Self { child, lines, said, listener: Some(listener), deadline: Instant::now() + DEADLINE }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it writes.
    pub(crate) fn line(&mut self) -> String {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => line.trim_end().to_string(),
            Err(_) => panic!("no line came: {:?}", self.end()),
        }
    }

    /// Waits until it has said something on its standard error.
    pub(crate) fn wait_said(&mut self, what: &str) {
        while !self.said.lock().expect("a lock").contains(what) {
            if self.child.try_wait().expect("waited").is_some() || Instant::now() > self.deadline {
                panic!("it has not said {what:?}: {:?}", self.end());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn send(&self, signal: &str) {
        send(self.pid(), signal);
    }

    /// Gives it a line of input.
    pub(crate) fn tell(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("a pipe");
        // At once: it may end when it has read the first byte.
        stdin.write_all(format!("{line}\n").as_bytes()).expect("written");
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self) -> Ended {
        drop(self.child.stdin.take());
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("waited") {
                break status;
            }
            if Instant::now() > self.deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!("it did not end");
            }
            thread::sleep(Duration::from_millis(5));
        };
        if let Some(listener) = self.listener.take() {
            listener.join().expect("read");
        }
        Ended { status, stdout: self.lines.iter().collect(), stderr: self.said.lock().expect("a lock").clone() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It is our own child, and has been waited for only if this does nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal by its name.
pub(crate) fn send(pid: u32, signal: &str) {
    let sent = Command::new("kill").args(["-s", signal, &pid.to_string()]).status().expect("kill runs");
    assert!(sent.success(), "the signal is sent");
}

/// A folder for one test, removed with it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // ORDERING: only the numbers have to differ.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("launcher-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    /// Writes a file that may be executed.
    pub(crate) fn executable(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        fs::write(&path, contents).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
        path.to_str().expect("text").to_string()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("text").to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
