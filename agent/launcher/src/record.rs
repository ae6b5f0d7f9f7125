//! A trace on this machine: a collector is started for it, and ends with it.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsString,
    fs,
    io::{self, BufRead, BufReader, ErrorKind, IoSlice},
    mem::MaybeUninit,
    net::{Shutdown, SocketAddr},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use agent::ship::{Tunnel, TunnelState, Tunnelled};
use anyhow::{Context, Result, anyhow, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::Value;

use crate::{
    args::RecordArgs,
    end_state::EndState,
    executable::Executable,
    process,
    settings::{Settings, SettingsError},
    signals::{Asked, Signals},
    summary::SummaryOutput,
    trace,
};

/// How often it is looked whether the collector has ended.
const GLANCE: Duration = Duration::from_millis(5);

/// After how long it is said that the collector is waited for.
const SILENCE: Duration = Duration::from_secs(1);

/// The collector ends with this command, however long nothing comes over it.
const SESSION_TIMEOUT: &str = "1000000s";

/// Runs a program and traces it, into a directory.
pub(crate) fn run(args: &RecordArgs) -> Result<EndState> {
    process::require_ground()?;
    let dir = args.output.display().to_string();
    let (socket, theirs) = UnixStream::pair().context("cannot make a socket")?;
    let closing = socket.try_clone().context("cannot make a socket")?;
    let sockets = Arc::new(SocketsOver(socket));
    let settings =
        Settings::local(&args.trace, args.follow, dir.clone(), sockets).map_err(SettingsError::or_wrong_usage)?;
    if let Some(name) = args.program.first() {
        // Nothing is to be made for a program that cannot be run.
        Executable::find(name, settings.engine.quietly())?;
    }
    let (is_new, before) = (!args.output.exists(), entries(&args.output));
    let command = find_collector(args.collector.as_deref())?;
    let collector = RecordingCollector::start(&command, &args.output, theirs, closing)?;
    let traced = trace::run(settings.clone(), &args.program);
    let status = collector.finish(&dir, settings.quiet)?;
    if traced.is_err() {
        for session in entries(&args.output).difference(&before) {
            remove_unless_traced(session);
        }
        if is_new {
            // Not where there is something in it.
            let _ = fs::remove_dir(&args.output);
        }
    }
    let ending = traced?;
    let name = command.display();
    if !status.success() {
        say!("the collector failed ({status}): {dir} has not everything; `{name} verify {dir}` tells what it has");
    } else if !settings.quiet && !matches!(settings.summary, Some(SummaryOutput::Stderr)) {
        say!("look at it with `{name} top {dir}` or `{name} tree {dir}`");
    }
    Ok(ending)
}

/// What a directory has in it.
fn entries(dir: &Path) -> BTreeSet<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Removes a session that is over and of which nothing was traced.
fn remove_unless_traced(session: &Path) {
    let is_thread =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"thread_"));
    let manifest = fs::read(session.join("manifest.json")).unwrap_or_default();
    let is_over = serde_json::from_slice::<Value>(&manifest).is_ok_and(|manifest| manifest["end"].is_object());
    if is_over && !entries(session).iter().any(is_thread) {
        let _ = fs::remove_dir_all(session);
    }
}

/// The collector: the one that was named, else the one beside this command, else the one in the search path.
fn find_collector(named: Option<&Path>) -> Result<PathBuf> {
    const NAME: &str = "collector";
    if let Some(path) = named {
        return Ok(path.into());
    }
    let beside = env::current_exe().ok().map(|own| own.with_file_name(NAME)).filter(|path| path.is_file());
    let in_path = || {
        let search = env::var_os("PATH")?;
        env::split_paths(&search).map(|folder| folder.join(NAME)).find(|path| path.is_file())
    };
    beside.or_else(in_path).ok_or_else(|| {
        anyhow!("there is no collector beside this command, and none in PATH (--collector PATH names one)")
    })
}

/// A collector that serves this process alone.
struct RecordingCollector {
    child: Child,
    connection: UnixStream,
    listener: JoinHandle<()>,
}

impl RecordingCollector {
    /// Starts it, and waits until it is ready. It ends when the connection does, so also when this process is killed.
    fn start(command: &Path, dir: &Path, theirs: UnixStream, connection: UnixStream) -> Result<Self> {
        let mut sink = OsString::from("disk:");
        sink.push(dir);
        let mut start = Command::new(command);
        start.args(["--stdin", "--log-format", "json", "--session-timeout", SESSION_TIMEOUT, "--sink"]).arg(sink);
        // Ctrl-C at the terminal is for the program, so the collector is in a group of its own.
        start.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let spawned = start.spawn().with_context(|| format!("cannot start {}", command.display()));
        // With it goes the other end of the connection, which is the collector's alone.
        drop(start);
        let mut child = spawned?;
        let stderr = child.stderr.take().context("the collector has no standard error")?;
        let mut lines = BufReader::new(stderr);
        if let Err(error) = wait_ready(&mut lines) {
            let _ = child.wait();
            return Err(error);
        }
        let listener = thread::spawn(move || {
            while let Some(line) = next_line(&mut lines) {
                line.tell();
            }
        });
        Ok(Self { child, connection, listener })
    }

    /// Ends the connection, and waits until the collector has written everything. Ctrl-C is for it, too.
    fn finish(mut self, dir: &str, quiet: bool) -> Result<ExitStatus> {
        let signals = Signals::watch()?;
        // Where the collector is gone, so is the connection.
        let _ = self.connection.shutdown(Shutdown::Both);
        let (begun, mut has_told) = (Instant::now(), false);
        let status = loop {
            if let Some(status) = self.child.try_wait().context("cannot wait for the collector")? {
                break status;
            }
            if signals.asked() != Asked::Nothing {
                signals.acknowledge();
                let pid = i32::try_from(self.child.id()).unwrap_or_default();
                // It has not been waited for, so that its id is still its own.
                let _ = kill(Pid::from_raw(pid), Signal::SIGINT);
            }
            if !quiet && !has_told && begun.elapsed() >= SILENCE {
                has_told = true;
                say!("waiting for the collector to finish {dir}; Ctrl-C ends that");
            }
            thread::sleep(GLANCE);
        };
        let _ = self.listener.join();
        Ok(status)
    }
}

/// What the collector says.
enum Line {
    /// In its log, with its level.
    Logged { level: String, message: String },
    /// Before it has one.
    Plain(String),
}

impl Line {
    /// Says it to the user, if that is worth it.
    fn tell(&self) {
        match self {
            Self::Logged { level, message } if level == "warn" || level == "error" => say!("collector: {message}"),
            Self::Logged { .. } => {}
            Self::Plain(text) => say!("collector: {text}"),
        }
    }
}

fn next_line(lines: &mut BufReader<ChildStderr>) -> Option<Line> {
    let mut bytes = Vec::new();
    let length = lines.read_until(b'\n', &mut bytes).ok()?;
    if length == 0 {
        return None;
    }
    let text = String::from_utf8_lossy(&bytes).trim_end().to_string();
    let logged: Option<Value> = serde_json::from_str(&text).ok();
    let word = |name: &str| Some(logged.as_ref()?.get(name)?.as_str()?.to_string());
    Some(match (word("level"), word("message")) {
        (Some(level), Some(message)) => Line::Logged { level, message },
        _ => Line::Plain(text),
    })
}

/// Waits until the collector has opened what it writes to. What it says instead is why it could not.
fn wait_ready(lines: &mut BufReader<ChildStderr>) -> Result<()> {
    let mut why = None;
    while let Some(line) = next_line(lines) {
        match line {
            Line::Logged { message, .. } if message.starts_with("writing to ") => return Ok(()),
            Line::Plain(text) if why.is_none() && !text.is_empty() => why = Some(text),
            line => line.tell(),
        }
    }
    let why = why.unwrap_or_else(|| "it ended without a word".into());
    bail!("the collector did not start: {}", why.trim_start_matches("collector: ").trim_start_matches("error: "))
}

/// Connections to a collector that receives them over a socket.
#[derive(Debug)]
struct SocketsOver(UnixStream);

impl Tunnel for SocketsOver {
    fn open(&self, _: SocketAddr) -> io::Result<Tunnelled> {
        let (socket, theirs) = UnixStream::pair()?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut sent = SendAncillaryBuffer::new(&mut space);
        let descriptors = [theirs.as_fd()];
        sent.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(&self.0, &[IoSlice::new(&[0])], &mut sent, SendFlags::NOSIGNAL)
            .map_err(|_| io::Error::new(ErrorKind::NotConnected, "the collector has ended"))?;
        let state = Arc::new(TunnelState::default());
        state.opened();
        Ok(Tunnelled { socket, state })
    }
}
