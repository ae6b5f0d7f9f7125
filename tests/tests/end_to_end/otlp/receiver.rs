//! Receivers as processes.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
};

use tests::{Identity, Process, process::Stdout, wait};

use crate::otlp::sent::Spans;

/// What the receiver is made of.
pub(crate) const PACKAGES: &[&str] = &["grpcio", "opentelemetry-proto"];

/// A receiver that writes what it takes to a file.
#[derive(Debug)]
pub(crate) struct Receiver {
    process: Process,
    file: PathBuf,
    ports: [u16; 2],
    scheme: &'static str,
}

impl Receiver {
    /// Starts one that wants this token, if it is not empty, and answers the first requests like this.
    #[track_caller]
    pub(crate) fn start(python: &Path, folder: &Path, token: &str, answers: &[&str]) -> Self {
        Self::on(python, folder, [0, 0], token, answers)
    }

    /// One that takes everything, encrypted.
    #[track_caller]
    pub(crate) fn encrypted(python: &Path, folder: &Path, identity: &Identity) -> Self {
        let mut command = Self::command(python, folder, [0, 0]);
        command
            .env("TLS_CERTIFICATE", identity.file("collector.pem"))
            .env("TLS_KEY", identity.file("collector.key"))
            .arg("");
        Self::run(command, folder, "https")
    }

    /// The same on these ports, for HTTP and for gRPC.
    #[track_caller]
    pub(crate) fn on(python: &Path, folder: &Path, ports: [u16; 2], token: &str, answers: &[&str]) -> Self {
        let mut command = Self::command(python, folder, ports);
        command.arg(token).args(answers);
        Self::run(command, folder, "http")
    }

    fn command(python: &Path, folder: &Path, ports: [u16; 2]) -> Command {
        let mut command = Command::new(python);
        command
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/end_to_end/otlp/receiver.py"))
            .arg(requests(folder));
        command.args(ports.map(|port| port.to_string()));
        command
    }

    #[track_caller]
    fn run(command: Command, folder: &Path, scheme: &'static str) -> Self {
        let mut process = Process::start(command, Stdout::Hold);
        let mut line = String::new();
        let stdout = process.take_stdout().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it can be read");
        let ports: Vec<u16> = line.split_whitespace().filter_map(|port| port.parse().ok()).collect();
        let ports = ports.try_into().unwrap_or_else(|_| panic!("the receiver does not listen: {}", process.said()));
        Self { process, file: requests(folder), ports, scheme }
    }

    /// Its ports, for HTTP and for gRPC.
    pub(crate) fn ports(&self) -> [u16; 2] {
        self.ports
    }

    pub(crate) fn http(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.ports[0])
    }

    pub(crate) fn grpc(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.ports[1])
    }

    /// What it has taken so far, and those before it in the same folder.
    #[track_caller]
    pub(crate) fn taken(&self) -> Spans {
        let lines = fs::read_to_string(&self.file).expect("it has written");
        // The last line may not be there as a whole.
        Spans::read(lines.rsplit_once('\n').map_or("", |(whole, _)| whole))
    }

    /// Kills it. Returns what it has taken, and those before it in the same folder.
    #[track_caller]
    pub(crate) fn stop(&mut self) -> Spans {
        self.process.signal("KILL");
        self.taken()
    }
}

/// Where a receiver writes what it takes.
fn requests(folder: &Path) -> PathBuf {
    folder.join("requests.json")
}

/// Starts a collector of others on these ports, which sends what it takes to a receiver.
#[track_caller]
pub(crate) fn rotel(python: &Path, receiver: &Receiver, [http, grpc]: [u16; 2]) -> Process {
    let found = Command::new(python).args(["-c", "import rotel, os; print(os.path.dirname(rotel.__file__))"]).output();
    let folder = String::from_utf8(found.expect("python runs").stdout).expect("a path");
    let mut command = Command::new(Path::new(folder.trim()).join("rotel-agent"));
    command.args(["start", "--exporter", "otlp", "--otlp-exporter-protocol", "grpc", "--otlp-exporter-endpoint"]);
    command.arg(receiver.grpc()).args(["--otlp-http-endpoint", &format!("127.0.0.1:{http}")]);
    command.args(["--otlp-grpc-endpoint", &format!("127.0.0.1:{grpc}")]);
    let process = Process::start(command, Stdout::Collect);
    wait::eventually("it listens", || TcpStream::connect((Ipv4Addr::LOCALHOST, http)).is_ok());
    process
}

/// A port that nobody has just now.
pub(crate) fn free_port() -> u16 {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    socket.local_addr().expect("an address").port()
}
