//! The `agent` command: the real one, which starts programs and attaches to them.

use std::{
    ffi::OsStr,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use crate::{
    Collector, Exit, Process, Transport,
    process::{Stdout, build},
    target::{Target, target_folder},
};

/// How long a traced program may take, on a machine that is busy with other tests.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What every line starts with that the command says itself: all others on stderr are the program's.
pub const MARK: &str = "agent: ";

/// The command's executable.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| build("agent"))
}

/// The command with these arguments.
pub fn command<S: AsRef<OsStr>>(arguments: &[S]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments);
    private(&mut command);
    command
}

/// `agent run`, up to the program's name and arguments, which come next.
pub fn run_to(collector: SocketAddr, transport: Transport, options: &[&str]) -> Command {
    let mut command = command(&["run"]);
    command.args(destination(collector, transport)).args(options).arg("--");
    command
}

/// `agent attach` to a process.
pub fn attach_to(collector: SocketAddr, transport: Transport, options: &[&str], pid: u32) -> Command {
    let mut command = command(&["attach"]);
    command.args(destination(collector, transport)).args(options).arg(pid.to_string());
    command
}

/// Has a command keep what it keeps in the target folder, where the launcher's own tests keep it too: it gets Frida once
/// for a checkout, and nothing of the user's is touched. It reads no source lines, where a test does not ask for them: of
/// libraries with large debug files that would be a good part of all work.
pub fn private(command: &mut Command) {
    let places = target_folder().join("tmp");
    command
        .env("XDG_DATA_HOME", places.join("data"))
        .env("XDG_CACHE_HOME", places.join("cache"))
        .env("SPOOR_LINES", "none");
}

/// Has the command get what it needs before the first test looks at what it says, or how long it takes.
#[track_caller]
pub fn prepare() {
    static PREPARED: OnceLock<()> = OnceLock::new();
    PREPARED.get_or_init(|| {
        let set_up = Process::start(command(&["setup"]), Stdout::Collect).exit(Duration::from_secs(600));
        assert_eq!(set_up.code, Some(0), "Frida cannot be installed:\n{}", set_up.stderr);
        let (_folder, collector) = Collector::in_folder("prepare", &[]);
        let mut command = run_to(collector.tcp(), Transport::Tcp, &[]);
        command.arg(Target::named("plain").program());
        let exit = Process::start(command, Stdout::Collect).exit(Duration::from_secs(600));
        assert_eq!(exit.code, Some(3), "the agent does not work on this machine:\n{}", exit.stderr);
    });
}

/// The lines on stderr that are the program's, and those that the command said itself.
pub fn apart(exit: &Exit) -> (Vec<&str>, Vec<&str>) {
    exit.stderr.lines().partition(|line| !line.starts_with(MARK))
}

fn destination(collector: SocketAddr, transport: Transport) -> [String; 4] {
    let transport = match transport {
        Transport::Udp => "udp",
        Transport::Tcp | Transport::Tls => "tcp",
        Transport::Quic => "quic",
        Transport::Socket => unreachable!("`agent record` alone has one"),
    };
    ["--to".into(), collector.to_string(), "--transport".into(), transport.into()]
}
