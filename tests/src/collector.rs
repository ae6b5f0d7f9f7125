//! The collector as a process.

use std::{
    ffi::OsStr,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use crate::{
    executable,
    metrics::Metrics,
    process::{Exit, Process, Stdout},
};

/// How long a collector may take to start or to end, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running collector. It is killed when this is dropped.
#[derive(Debug)]
pub struct Collector {
    process: Process,
    udp: Vec<SocketAddr>,
    tcp: Vec<SocketAddr>,
    metrics: Option<SocketAddr>,
}

impl Collector {
    /// Starts a collector with these arguments and waits until all its sockets listen.
    #[track_caller]
    pub fn start<S: AsRef<OsStr>>(arguments: &[S]) -> Self {
        Self::start_with(arguments, Stdout::Collect)
    }

    /// Starts a collector on a free port, writing to this folder, with these arguments besides.
    #[track_caller]
    pub fn to_disk(folder: &Path, arguments: &[&str]) -> Self {
        let sink = disk(folder);
        let mut all = vec!["--listen", "127.0.0.1:0", "--sink", &sink];
        all.extend(arguments);
        Self::start(&all)
    }

    /// Like [`to_disk`](Self::to_disk), without tables of spans: programs that call much take long for those.
    #[track_caller]
    pub fn events_to_disk(folder: &Path) -> Self {
        Self::start(&["--listen", "127.0.0.1:0", "--sink", &format!("{},spans=no", disk(folder))])
    }

    /// Like [`start`](Self::start), and says what happens to its stdout.
    #[track_caller]
    pub fn start_with<S: AsRef<OsStr>>(arguments: &[S], stdout: Stdout) -> Self {
        let has = |name: &str| arguments.iter().filter(|argument| argument.as_ref() == OsStr::new(name)).count();
        let listens = has("--listen");
        let (udp, tcp) = match (has("--udp"), has("--tcp")) {
            (0, 0) => (listens, listens),
            (0, _) => (0, listens),
            (_, 0) => (listens, 0),
            _ => (listens, listens),
        };
        let metrics = has("--metrics");
        let process = Process::start(command(arguments), stdout);
        let mut found = (Vec::new(), Vec::new(), None);
        let ready = process.find(PATIENCE, |lines| {
            found = (listening(lines, "udp"), listening(lines, "tcp"), scraped_at(lines));
            (found.0.len() >= udp && found.1.len() >= tcp && found.2.iter().count() >= metrics).then_some(())
        });
        assert!(ready.is_some(), "the collector does not listen; it said:\n{}", process.stderr().join("\n"));
        Self { process, udp: found.0, tcp: found.1, metrics: found.2 }
    }

    /// The address of its first UDP socket.
    pub fn udp(&self) -> SocketAddr {
        self.udp[0]
    }

    /// The address of its first TCP socket.
    pub fn tcp(&self) -> SocketAddr {
        self.tcp[0]
    }

    /// The addresses of all its UDP sockets.
    pub fn all_udp(&self) -> &[SocketAddr] {
        &self.udp
    }

    /// The addresses of all its TCP sockets.
    pub fn all_tcp(&self) -> &[SocketAddr] {
        &self.tcp
    }

    /// Its numbers now. It must have been started with `--metrics`.
    #[track_caller]
    pub fn metrics(&self) -> Metrics {
        let address = self.metrics.expect("the collector was started with --metrics");
        Metrics::fetch(address, PATIENCE).unwrap_or_else(|error| panic!("no metrics from {address}: {error}"))
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Interrupts it as Ctrl-C does, and waits for its end.
    #[track_caller]
    pub fn stop(self) -> Exit {
        self.end_by("INT")
    }

    /// Sends a signal, by its name without `SIG`, and waits for its end.
    #[track_caller]
    pub fn end_by(mut self, signal: &str) -> Exit {
        self.process.signal(signal);
        self.process.exit(PATIENCE)
    }

    /// Waits until it ends by itself.
    #[track_caller]
    pub fn exit(self, timeout: Duration) -> Exit {
        self.process.exit(timeout)
    }

    /// Kills it in the middle of whatever it does.
    #[track_caller]
    pub fn kill(self) {
        let exit = self.end_by("KILL");
        assert_eq!(exit.code, None, "the collector ended before it was killed: {}", exit.stderr);
    }

    /// Waits for a line on stderr that contains this.
    #[track_caller]
    pub fn wait_for(&self, text: &str) -> String {
        let line = self.process.find(PATIENCE, |lines| lines.iter().find(|line| line.contains(text)).cloned());
        line.unwrap_or_else(|| panic!("no {text:?} in what the collector said:\n{}", self.process.stderr().join("\n")))
    }
}

/// The argument of `--sink` for a folder.
pub fn disk(folder: &Path) -> String {
    format!("disk:{}", folder.display())
}

/// Runs a command of the collector to its end.
#[track_caller]
pub fn run<S: AsRef<OsStr>>(arguments: &[S]) -> Exit {
    Process::start(command(arguments), Stdout::Collect).exit(PATIENCE)
}

/// Runs a command of the collector on a folder.
#[track_caller]
pub fn run_on(name: &str, folder: &Path, arguments: &[&str]) -> Exit {
    let mut all = vec![OsStr::new(name), folder.as_os_str()];
    all.extend(arguments.iter().map(OsStr::new));
    run(&all)
}

fn command<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments);
    command
}

/// The sockets that the collector says it listens on, of one protocol.
fn listening(lines: &[String], protocol: &str) -> Vec<SocketAddr> {
    let address = |line: &String| {
        let (_, rest) = line.split_once("listening ")?;
        rest.strip_prefix(protocol)?.split_whitespace().next()?.parse().ok()
    };
    lines.iter().filter_map(address).collect()
}

/// Where the collector says its metrics are.
fn scraped_at(lines: &[String]) -> Option<SocketAddr> {
    lines.iter().find_map(|line| line.split_once("metrics http://")?.1.strip_suffix("/metrics")?.parse().ok())
}

/// The collector's executable.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| executable::build("collector"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_what_the_collector_says() {
        let lines = [
            "listening udp 127.0.0.1:41234 receive-buffer 8388608",
            "listening tcp [::1]:41235",
            "metrics http://127.0.0.1:9100/metrics",
            "something else",
        ]
        .map(String::from);
        assert_eq!(listening(&lines, "udp"), ["127.0.0.1:41234".parse().expect("an address")]);
        assert_eq!(listening(&lines, "tcp"), ["[::1]:41235".parse().expect("an address")]);
        assert_eq!(scraped_at(&lines), Some("127.0.0.1:9100".parse().expect("an address")));
        assert_eq!(scraped_at(&lines[..2]), None);
    }
}
