//! The best peer, `uftrace`, to be measured beside the agent.

use std::{
    ffi::OsStr,
    fs,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use crate::{built, ran::Ran};

/// Its version; or why it cannot be had. Installs it where that is missing and allowed.
pub fn available() -> Result<&'static str, &'static str> {
    static FOUND: OnceLock<Result<String, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        if built::installed("uftrace").is_none() {
            let ran = Ran::new(Command::new("apt-get").args(["install", "-y", "uftrace"]));
            if ran.code != Some(0) {
                return Err("uftrace is not installed (apt-get install uftrace)".into());
            }
        }
        Ok(built::version("uftrace").split(" (").next().unwrap_or_default().trim().into())
    });
    found.as_deref().map_err(String::as_str)
}

/// `uftrace record` of functions that nobody compiled for it, up to the program's name and arguments, which come next.
///
/// Without what it does besides by default, calls into libraries and switches between threads: that only makes it slower.
pub fn record<S: AsRef<OsStr>>(folder: &Path, functions: &str, options: &[S]) -> Command {
    let mut command = Command::new("uftrace");
    command.args(["record", "--no-libcall", "--no-event", "-P", functions, "-d"]).arg(folder).args(options);
    command
}

/// The options for arguments and return values: what comes closest to full detail.
pub fn with_values(function: &str) -> [String; 4] {
    let arguments = (1..=6).map(|number| format!("arg{number}/x")).collect::<Vec<_>>().join(",");
    ["-A".into(), format!("{function}@{arguments}"), "-R".into(), format!("{function}@retval/x")]
}

/// How many calls of a function it recorded.
pub fn calls(folder: &Path, function: &str) -> u64 {
    let output = Command::new("uftrace").args(["report", "--no-pager", "-f", "call", "-d"]).arg(folder).output();
    let said = String::from_utf8_lossy(&output.expect("uftrace runs").stdout).into_owned();
    let row = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    row.filter(|row| row.last() == Some(&function)).find_map(|row| row.first()?.parse().ok()).unwrap_or(0)
}

/// `uftrace recv`, which writes down what `uftrace record --host` sends.
#[derive(Debug)]
pub struct Receiver {
    child: Child,
    /// Where it listens.
    pub port: u16,
}

impl Receiver {
    /// Starts one that writes to a folder.
    pub fn start(folder: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let mut command = Command::new("uftrace");
        command.args(["recv", "--port", &port.to_string(), "-d"]).arg(folder);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let receiver = Self { child: child.expect("uftrace runs"), port };
        let deadline = Instant::now() + Duration::from_secs(10);
        // Not by connecting: it takes whoever connects for a program that is traced.
        while !listens(port) {
            assert!(Instant::now() < deadline, "uftrace recv does not listen");
            thread::sleep(Duration::from_millis(5));
        }
        receiver
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn listens(port: u16) -> bool {
    let listening = format!(":{port:04X} ");
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines()).any(|line| line.contains(&listening) && line.contains(" 0A "))
}
