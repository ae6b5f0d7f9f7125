//! A collector that runs, to be measured.

use std::{
    fs, io,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread::{self, JoinHandle},
};

/// The `collector` command, built for release.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let output = Command::new(env!("CARGO"))
            .args(["build", "-p", "collector", "--release", "--message-format=json-render-diagnostics"])
            .stderr(Stdio::inherit())
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "the collector can be built");
        let lines = String::from_utf8(output.stdout).expect("UTF-8");
        let path =
            lines.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()).find_map(|line| {
                let is_it = line["target"]["name"] == "collector" && line["executable"].is_string();
                is_it.then(|| line["executable"].as_str().unwrap_or_default().into())
            });
        path.expect("cargo says where it is")
    })
}

/// A running collector.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stderr: JoinHandle<String>,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Running {
    /// Starts one that writes to `dir` and ends after one session.
    pub fn start(dir: &Path) -> Self {
        let sink = format!("disk:{}", dir.display());
        let mut child = Command::new(binary())
            .args(["--listen", "127.0.0.1:0", "--once", "--stats", "1h", "--sink", &sink])
            .stderr(Stdio::piped())
            .spawn()
            .expect("the collector starts");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut text = String::new();
        let address = loop {
            let mut line = String::new();
            assert!(lines.read_line(&mut line).expect("readable") > 0, "the collector ended early: {text}");
            text += &line;
            if let Some(rest) = line.strip_prefix("listening tcp ") {
                break rest.trim().parse().expect("an address");
            }
        };
        let stderr = thread::spawn(move || io::read_to_string(lines).unwrap_or_default());
        Self { child, stderr, address }
    }

    /// The memory it has now, in bytes.
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse::<u64>().ok());
        kib.unwrap_or(0) * 1024
    }

    /// Waits for its end, which must be a good one. Returns what it said.
    pub fn wait(mut self) -> String {
        let status = self.child.wait().expect("a child");
        let said = self.stderr.join().expect("a reader");
        assert!(status.success(), "{status}: {said}");
        said
    }
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
