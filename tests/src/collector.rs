//! The collector as a process.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use crate::{
    Folder, Transport,
    metrics::Metrics,
    process::{Exit, Process, Stdout, build},
};

/// How long a collector may take to start or to end, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running collector. It is killed when this is dropped.
#[derive(Debug)]
pub struct Collector {
    process: Process,
    udp: Vec<SocketAddr>,
    tcp: Vec<SocketAddr>,
    metrics: Option<SocketAddr>,
}

impl Collector {
    /// Starts a collector on a free port, writing to this folder, with these arguments besides.
    #[track_caller]
    pub fn to_disk(folder: &Path, arguments: &[&str]) -> Self {
        Self::start(&[&["--listen", "127.0.0.1:0", "--sink", &disk(folder)], arguments].concat(), Stdout::Collect)
    }

    /// Starts a collector that writes to a folder of its own. `name` is for those who look at what a failed test left.
    #[track_caller]
    pub fn in_folder(name: &str, arguments: &[&str]) -> (Folder, Self) {
        let folder = Folder::new(name);
        let collector = Self::to_disk(folder.path(), arguments);
        (folder, collector)
    }

    /// Like [`to_disk`](Self::to_disk), with a stdout that nobody reads.
    #[track_caller]
    pub fn held(folder: &Path, arguments: &[&str]) -> Self {
        Self::start(&[&["--listen", "127.0.0.1:0", "--sink", &disk(folder)], arguments].concat(), Stdout::Hold)
    }

    /// Like [`to_disk`](Self::to_disk), without tables of spans: programs that call much take long for those.
    #[track_caller]
    pub fn events_to_disk(folder: &Path) -> Self {
        Self::start(&["--listen", "127.0.0.1:0", "--sink", &format!("{},spans=no", disk(folder))], Stdout::Collect)
    }

    /// Starts a collector with these arguments and waits until all its sockets listen.
    #[track_caller]
    pub fn start(arguments: &[&str], stdout: Stdout) -> Self {
        Self::start_in(&[], arguments, stdout)
    }

    /// The same with these variables in its environment.
    #[track_caller]
    pub fn start_in(variables: &[(&str, &str)], arguments: &[&str], stdout: Stdout) -> Self {
        let mut command = command(arguments);
        command.envs(variables.iter().copied());
        let process = Process::start(command, stdout);
        // It says that when all its sockets listen.
        let writes =
            |lines: &[String]| lines.iter().any(|line| line.starts_with("writing to ")).then(|| lines.to_vec());
        let lines = process.find(PATIENCE, writes);
        let lines = lines.unwrap_or_else(|| panic!("the collector does not listen; it said:\n{}", process.said()));
        Self {
            udp: listening(&lines, ["udp ", "quic "]),
            tcp: listening(&lines, ["tcp ", "tls "]),
            metrics: lines
                .iter()
                .find_map(|line| line.strip_prefix("metrics http://")?.strip_suffix("/metrics")?.parse().ok()),
            process,
        }
    }

    /// The address of its first socket for this.
    pub fn address(&self, transport: Transport) -> SocketAddr {
        match transport {
            Transport::Udp | Transport::Quic => self.udp(),
            Transport::Tcp | Transport::Tls | Transport::Socket => self.tcp(),
        }
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

    /// Everything that it has said on stderr.
    pub fn said(&self) -> String {
        self.process.said()
    }

    /// Waits for a line on stderr that contains this.
    #[track_caller]
    pub fn wait_for(&self, text: &str) -> String {
        let line = self.process.find(PATIENCE, |lines| lines.iter().find(|line| line.contains(text)).cloned());
        line.unwrap_or_else(|| panic!("no {text:?} in what the collector said:\n{}", self.process.said()))
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

/// The same with these variables in its environment.
#[track_caller]
pub fn run_in(variables: &[(&str, &str)], arguments: &[&str]) -> Exit {
    let mut command = command(arguments);
    command.envs(variables.iter().copied());
    Process::start(command, Stdout::Collect).exit(PATIENCE)
}

/// Runs a command of the collector on a folder.
#[track_caller]
pub fn run_on(name: &str, folder: &Path, arguments: &[&str]) -> Exit {
    let mut all = vec![OsStr::new(name), folder.as_os_str()];
    all.extend(arguments.iter().map(OsStr::new));
    run(&all)
}

/// Starts `collector view` on a folder, and returns the address that it prints.
#[track_caller]
pub fn view<S: AsRef<OsStr>>(folder: &Path, arguments: &[S]) -> (Process, String) {
    let mut command = command(&["view", "--no-open"]);
    command.args(arguments).arg(folder);
    let mut process = Process::start(command, Stdout::Hold);
    let mut line = String::new();
    let stdout = process.take_stdout().expect("nobody else reads it");
    BufReader::new(stdout).read_line(&mut line).expect("it prints a line");
    (process, line.trim().to_owned())
}

/// Fails the test unless the collector's own check finds a session sound.
#[track_caller]
pub fn verified(session: &Path) {
    run_on("verify", session, &[]).success();
}

fn command<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments);
    command
}

/// The sockets that the collector says it listens on, of one protocol or what is encrypted over it.
fn listening(lines: &[String], protocols: [&str; 2]) -> Vec<SocketAddr> {
    let address = |line: &String| {
        let rest = line.strip_prefix("listening ")?;
        let rest = protocols.iter().find_map(|protocol| rest.strip_prefix(protocol))?;
        rest.split_whitespace().next()?.parse().ok()
    };
    lines.iter().filter_map(address).collect()
}

/// The collector's executable.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| build("collector"))
}
