//! Recording sessions that other collectors have received: see the crate `fleet`.

use std::{
    fs, io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use codec::SessionId;
use collector_core::Config;
use fleet::{Address, Intake, Limits, Link, Ready, Recorder};
use sinks::disk::Whereabouts;
use tokio::sync::mpsc;
use tracing::{error, info};

use crate::{args::RunArgs, receiver::Receiver};

/// The file in a directory that tells it from others, on whatever machine it is.
const STORAGE: &str = ".storage";

/// How long is waited for events that are missing in a stream: an edge that was killed leaves them to its agent, which sends
/// them to the next.
const PATIENCE: Duration = Duration::from_secs(120);

/// The bounds of the core for what comes from a stream: its sender is not there to prove anything, what it lacks an edge has
/// told of, and who reads the stream knows when it is silent.
pub(crate) fn core_config(config: Config) -> Config {
    let (replay_time, reorder_time) = (config.replay_time.max(PATIENCE), config.reorder_time.max(PATIENCE));
    let (openings_per_second, session_timeout) = (u64::MAX, Duration::MAX);
    Config { wants_claims: false, openings_per_second, session_timeout, replay_time, reorder_time, ..config }
}

/// A stream that can be read.
pub(crate) struct Opened {
    link: Link,
    dirs: Vec<PathBuf>,
    storage: String,
    limits: Limits,
}

/// Connects to a stream, for a recorder with these directories.
pub(crate) async fn open<'a>(
    address: &Address,
    args: &RunArgs,
    dirs: impl Iterator<Item = &'a Path>,
) -> Result<Opened> {
    let dirs: Vec<_> = dirs.map(Path::to_path_buf).collect();
    let Some(dir) = dirs.first() else { bail!("--source needs a disk: sink to record to") };
    let storage = storage(dir).with_context(|| format!("cannot use {}", dir.join(STORAGE).display()))?;
    let (access, keeping) = (args.sinks.nats.access(), args.sinks.nats.keeping());
    let link = Link::connect(address, &access, keeping).await.with_context(|| format!("cannot read {address}"))?;
    let (max_sessions, silence) = (args.limits.max_sessions, args.session_timeout.0);
    let limits = Limits { max_sessions, lease: args.sinks.nats.lease(), silence };
    Ok(Opened { link, dirs, storage, limits })
}

/// What a directory is known by, which is made up the first time.
fn storage(dir: &Path) -> io::Result<String> {
    let path = dir.join(STORAGE);
    fs::create_dir_all(dir)?;
    let draft = dir.join(format!("{STORAGE}.{}", process::id()));
    if !path.exists() {
        let seed = format!("{:?} {} {}", std::time::SystemTime::now(), process::id(), dir.display());
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = format!("{host}-{:016x}", codec::profile::Fingerprint::of(seed.as_bytes()).0);
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        io::Write::write_all(&mut file, name.as_bytes())?;
        // Another may have been faster: the first name counts.
        let linked = fs::hard_link(&draft, &path);
        fs::remove_file(&draft)?;
        linked.or_else(|error| if path.exists() { Ok(()) } else { Err(error) })?;
    }
    let name = fs::read_to_string(&path)?.trim().to_string();
    if name.is_empty() { Err(io::Error::other("it is empty")) } else { Ok(name) }
}

impl Opened {
    /// Makes it ready to be read.
    pub(crate) fn start(self, receiver: &Arc<Receiver>) -> Source {
        let Self { link, dirs, storage, limits } = self;
        info!("reading {}, for storage {storage}", link.address);
        let (told, over) = mpsc::unbounded_channel();
        receiver.tell_over(told);
        let reading = Reading { receiver: Arc::clone(receiver), dirs };
        let recorder = Recorder::new(link.clone(), Arc::new(reading), storage, limits);
        Source { recorder, link, over, receiver: Arc::clone(receiver) }
    }
}

/// A stream that is read.
pub(crate) struct Source {
    recorder: Recorder<Reading>,
    link: Link,
    over: mpsc::UnboundedReceiver<SessionId>,
    receiver: Arc<Receiver>,
}

impl Source {
    /// What tells whether there is a connection.
    pub(crate) fn contact(&self) -> impl Fn() -> bool + use<> {
        let link = self.link.clone();
        move || link.is_up()
    }

    /// Reads for ever.
    pub(crate) async fn read(&mut self) {
        let lost = self.recorder.run(&mut self.over).await;
        error!("{lost}; it ends as it is, and may be started again");
        self.receiver.notices.finish();
        // The other recorder may be writing the same files: nothing more may be written here, not even an end.
        process::exit(1);
    }

    /// Gives up all sessions. Their files are closed.
    pub(crate) async fn release(mut self) {
        self.recorder.release(&mut self.over).await;
    }
}

/// The way from a stream to the receiver.
struct Reading {
    receiver: Arc<Receiver>,
    dirs: Vec<PathBuf>,
}

impl Intake for Reading {
    fn open(&self, number: u64, from: String) {
        self.receiver.post.add_stream(number, from, None);
    }

    fn prepare(&self, id: SessionId) -> Ready {
        match self.receiver.look_for(id, &self.dirs) {
            Whereabouts::Busy => Ready::NotYet,
            Whereabouts::Here => Ready::Here,
            Whereabouts::Nowhere => Ready::Nowhere,
        }
    }

    fn take(&self, number: u64, id: SessionId, packets: &[u8]) -> bool {
        self.receiver.ledger.nats_bytes.fetch_add(packets.len() as u64, Relaxed);
        // They are whole.
        self.receiver.bytes(number, packets, true);
        !self.receiver.holds_events(id)
    }

    fn room(&self) -> impl Future<Output = ()> + Send {
        self.receiver.room()
    }

    fn is_kept(&self, id: SessionId) -> bool {
        self.receiver.is_kept(id)
    }

    fn lose_contact(&self, id: SessionId) {
        self.receiver.lose_contact(id);
    }

    fn close(&self, number: u64) {
        self.receiver.disconnected(number);
        self.receiver.post.remove_stream(number);
    }

    fn is_elsewhere(&self, id: SessionId) {
        if let Some(dir) = self.receiver.discard(id) {
            info!(
                "session {id} was taken over by another recorder, which has the whole of it: {} is removed",
                dir.display()
            );
        }
    }
}
