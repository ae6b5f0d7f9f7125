//! A collector that runs, to be measured.

use std::{
    env, fs, io,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread::{self, JoinHandle},
};

use codec::access::Pin;
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    built,
    ran::{cpu_time_ns, status_bytes},
};

/// The `collector` command, built for measuring.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| built::command("collector", "collector"))
}

/// A running collector.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stderr: Option<JoinHandle<String>>,
    /// Where it listens, if it does.
    pub address: SocketAddr,
    /// What its certificate is known by, if it has one.
    pub pin: Option<Pin>,
    /// Where its viewer is, with the token, if it has one.
    pub viewer: Option<String>,
}

impl Running {
    /// Starts one that writes to `dir` and ends after one session.
    pub fn start(dir: &Path) -> Self {
        Self::start_with(&["--once", "--sink", &format!("disk:{}", dir.display())])
    }

    /// Starts one with these options.
    pub fn start_with(options: &[&str]) -> Self {
        Self::start_any(&[&["--listen", "127.0.0.1:0"], options].concat())
    }

    /// Starts one that listens to nobody.
    pub fn recorder(options: &[&str]) -> Self {
        Self::start_any(options)
    }

    fn start_any(options: &[&str]) -> Self {
        let listens = options.contains(&"--listen");
        let mut child = Command::new(binary())
            .args(["--stats", "1h"])
            .args(options)
            .env("XDG_STATE_HOME", env::temp_dir().join("spoor-benches"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the collector starts");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut text = String::new();
        let (mut address, mut pin, mut viewer) = (None, None, None);
        let address = loop {
            let mut line = String::new();
            assert!(lines.read_line(&mut line).expect("readable") > 0, "the collector ended early: {text}");
            text += &line;
            let listening = line.strip_prefix("listening tcp ").or_else(|| line.strip_prefix("listening tls "));
            address = listening.and_then(|rest| rest.trim().parse().ok()).or(address);
            pin = line.strip_prefix("certificate ").and_then(|rest| rest.trim().parse().ok()).or(pin);
            viewer = line.strip_prefix("viewer ").map(|rest| rest.trim().to_owned()).or(viewer);
            // It says that when all its sockets listen.
            if line.starts_with("writing to ")
                && let Some(address) = address.or((!listens).then_some(SocketAddr::from(([0; 4], 0))))
            {
                break address;
            }
        };
        let stderr = thread::spawn(move || io::read_to_string(lines).unwrap_or_default());
        Self { child, stderr: Some(stderr), address, pin, viewer }
    }

    /// The memory it has now, in bytes.
    pub fn memory(&self) -> u64 {
        status_bytes(Pid::from_child(&self.child), "VmRSS:").unwrap_or(0)
    }

    /// The most memory it has had, in bytes.
    pub fn peak_memory(&self) -> u64 {
        status_bytes(Pid::from_child(&self.child), "VmHWM:").unwrap_or(0)
    }

    /// The processor time that it has taken so far, in nanoseconds.
    pub fn cpu_ns(&self) -> f64 {
        cpu_time_ns(Pid::from_child(&self.child)).unwrap_or(f64::NAN)
    }

    /// Waits for its end, which must be a good one. Returns what it said.
    pub fn wait(mut self) -> String {
        let status = self.child.wait().expect("a child");
        let said = self.stderr.take().expect("it has not been waited for").join().expect("a reader");
        assert!(status.success(), "{status}: {said}");
        said
    }

    /// Interrupts it as Ctrl-C does, so that it finishes what it has. Returns what it said.
    pub fn stop(self) -> String {
        _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        self.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Where something went wrong: it is not left running.
        _ = self.child.kill();
    }
}

/// What a session came to, as the collector puts it when the session ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// The events that are written.
    pub written: u64,
    /// Those that are not.
    pub missing: u64,
}

impl Account {
    /// Reads `session …: 3 threads, 1,234 events produced = 1,230 written + 4 missing …`.
    pub fn parse(said: &str) -> Option<Self> {
        let mut sessions = said.lines().filter(|line| line.starts_with("session "));
        let (_, rest) = sessions.find_map(|line| line.split_once(" produced = "))?;
        let mut numbers = rest.split(['+', ' ']).filter_map(|word| word.replace(',', "").parse().ok());
        Some(Self { written: numbers.next()?, missing: numbers.next()? })
    }
}

/// The events in the index files of all sessions in a directory, finished or not.
pub fn events_on_disk(dir: &Path) -> u64 {
    let below = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let threads = below(dir.into()).flat_map(below).map(|thread| thread.join("index.atf"));
    threads.map(|index| index.metadata().map_or(0, |data| data.len().saturating_sub(64) / 32)).sum()
}

/// The only session in a directory.
pub fn only_session(dir: &Path) -> PathBuf {
    let mut sessions = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    let session = sessions.next().expect("a session");
    assert!(sessions.next().is_none(), "one session");
    session
}

/// Has the collector check what was written. Panics if anything is wrong or missing.
pub fn verify(dir: &Path, events: u64) {
    let output = Command::new(binary()).arg("verify").arg(dir).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).replace(',', "");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains(&format!(" {events} events")) && said.contains(" 0 missing"), "{events} events: {said}");
}

/// The same for several sessions, which have so many events together.
pub fn verify_all(dir: &Path, events: u64) {
    let output = Command::new(binary()).arg("verify").arg(dir).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout).replace(',', "");
    let lines = said.lines().filter(|line| line.contains(": intact: "));
    let count = |line: &str| {
        assert!(line.contains(" 0 missing"), "{line}");
        line.split(" events").next()?.rsplit(' ').next()?.parse::<u64>().ok()
    };
    assert_eq!(lines.filter_map(count).sum::<u64>(), events, "{said}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_is_read() {
        let said = "session a (b, pid 1) exited 0, after 1s: 1 thread, 1,000,002 events produced = 1,000,000 written \
                    + 2 missing (agent:ring-full 2); in there";
        assert_eq!(Account::parse(said), Some(Account { written: 1_000_000, missing: 2 }));
        assert_eq!(Account::parse("0 sessions: 0 events produced = 0 written + 0 missing"), None);
    }
}
