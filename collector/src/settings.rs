//! From arguments to what the parts are to work with. Everything is checked here, before anything is opened.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use collector_core::{CatalogLimits, Config};
use fleet::{Access, Keeping};
use sinks::SyncWhen;

use crate::{
    args::{LimitArgs, SinkArgs},
    sink_spec::{OnFull, SinkSpec, Target},
};

/// How the memory that everything may take is shared out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares {
    /// Events that wait for missing ones.
    pub(crate) held: u64,
    /// Names of functions, threads and modules.
    pub(crate) catalogs: u64,
    /// Batches that wait for the sinks, of all sinks together.
    pub(crate) queues: u64,
    /// Packets of connections that have not arrived whole.
    pub(crate) connections: u64,
    /// How many spans may be open, of all sessions and sinks together.
    pub(crate) open_spans: u64,
    /// What sinks remember of what they have written: names, and what lies where in a picture.
    pub(crate) written: u64,
    /// What waits for a disk, of all `disk:` sinks together.
    pub(crate) disks: u64,
}

/// What an open span is taken to need: a frame much less, a block that waits about twice as much.
const OPEN_SPAN_BYTES: u64 = 512;

impl Shares {
    /// The rest is for what each stream and connection takes anyway, and the program. What is open is counted for more
    /// than it takes.
    pub(crate) fn of(memory: u64) -> Self {
        Self {
            held: memory / 12,
            catalogs: memory / 5,
            queues: memory / 8,
            connections: memory / 8,
            open_spans: memory / 4 / OPEN_SPAN_BYTES,
            written: memory / 12,
            disks: memory / 6,
        }
    }
}

/// The bounds of the core.
pub(crate) fn core_config(limits: &LimitArgs, session_timeout: Duration) -> Config {
    Config {
        reorder_packets: limits.reorder_packets,
        reorder_time: limits.reorder_time.0,
        replay_time: limits.replay_time.0,
        session_timeout,
        max_sessions: limits.max_sessions,
        max_streams: limits.max_streams,
        max_streams_in_all: limits.max_streams.saturating_mul(4),
        max_packet_bytes: u32::try_from(limits.max_packet_bytes.0).unwrap_or(u32::MAX),
        held_bytes: usize::try_from(Shares::of(limits.memory.0).held).unwrap_or(usize::MAX),
        ..Config::default()
    }
}

/// How many recorders there are: as many as asked for, or half as many as there are processors.
pub(crate) fn recorders(wanted: Option<u64>) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    wanted.and_then(|wanted| usize::try_from(wanted).ok()).unwrap_or(processors / 2).clamp(1, 64)
}

/// The bounds of what is remembered of names.
pub(crate) fn catalog_limits(limits: &LimitArgs) -> CatalogLimits {
    CatalogLimits {
        functions: limits.max_functions,
        threads: limits.max_streams,
        name_bytes: usize::try_from(limits.max_name_bytes.0).unwrap_or(usize::MAX),
        bytes: Shares::of(limits.memory.0).catalogs,
        ..CatalogLimits::default()
    }
}

/// A sink that is to be opened.
#[derive(Debug, Clone)]
pub(crate) struct SinkSetting {
    pub(crate) target: Target,
    pub(crate) on_full: OnFull,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) rotate_bytes: Option<u64>,
    pub(crate) rotate_every: Option<Duration>,
    pub(crate) sync: SyncWhen,
    /// What lets a sink into NATS, and what it makes a stream with.
    pub(crate) nats: (Access, Keeping),
    pub(crate) otlp_min: Duration,
}

/// Frames that took less are not exported to OTLP receivers, unless asked for.
const OTLP_MIN: Duration = Duration::from_millis(1);

/// From here on what is created has these permissions, and files are not executable.
pub(crate) fn set_mode(mode: u32) {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(!mode & 0o777));
}

/// The sinks that the arguments name, or why they do not fit together.
pub(crate) fn sinks(args: &SinkArgs) -> Result<Vec<SinkSetting>, String> {
    let targets: Vec<&Target> = args.sinks.iter().map(|spec| &spec.target).collect();
    if targets.iter().filter(|target| target.is_stdout()).count() > 1 {
        return Err("only one sink can write to standard output".into());
    }
    let files: Vec<&PathBuf> = targets.iter().filter_map(|target| path(target)).collect();
    if let Some(twice) = files.iter().enumerate().find(|(index, file)| files[..*index].contains(file)) {
        return Err(format!("two sinks would write to {}", twice.1.display()));
    }
    if args.rotate_bytes.is_some_and(|size| size.0 < 1 << 20) || args.max_bytes.is_some_and(|size| size.0 < 4 << 20) {
        return Err("--rotate-bytes must be at least 1MiB, and --max-bytes at least 4MiB".into());
    }
    if args.rotate_every.is_some_and(|period| period.0 < Duration::from_secs(1)) {
        return Err("--rotate-every must be at least 1s".into());
    }
    let receivers: Vec<String> = targets.iter().filter(|target| target.is_otlp()).map(ToString::to_string).collect();
    if let Some(twice) = receivers.iter().enumerate().find(|(index, one)| receivers[..*index].contains(one)) {
        return Err(format!("two sinks would send to {}", twice.1));
    }
    if receivers.is_empty() && args.otlp_min.is_some() {
        return Err("--otlp-min is for otlp: sinks, and there is none".into());
    }
    let on_disk = targets.iter().any(|target| matches!(target, Target::Disk { .. }));
    if !on_disk && (args.max_bytes.is_some() || args.rotate_bytes.is_some() || args.rotate_every.is_some()) {
        return Err("--max-bytes, --rotate-bytes and --rotate-every are for disk: sinks, and there is none".into());
    }
    if !on_disk && args.sync != SyncWhen::Never {
        return Err("--sync is for disk: sinks, and there is none".into());
    }
    if let Some(archive) = args.archive() {
        if !on_disk {
            return Err("--archive is for disk: sinks, and there is none".into());
        }
        let full = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.into());
        let archive = full(&archive.place);
        let disks = targets.iter().filter(|target| matches!(target, Target::Disk { .. }));
        if let Some(within) = disks.filter_map(|target| path(target)).find(|dir| archive.starts_with(full(dir))) {
            return Err(format!("--archive would put sessions where they are: into {}", within.display()));
        }
    }
    let alone = args.sinks.len() == 1;
    let setting = |spec: &SinkSpec| {
        let waits = alone || matches!(spec.target, Target::Disk { .. });
        let default = if waits { OnFull::Block } else { OnFull::Drop };
        SinkSetting {
            target: spec.target.clone(),
            on_full: spec.on_full.or(args.on_full).unwrap_or(default),
            max_bytes: args.max_bytes.map(|size| size.0),
            rotate_bytes: args.rotate_bytes.map(|size| size.0),
            rotate_every: args.rotate_every.map(|period| period.0),
            sync: args.sync,
            nats: (args.nats.access(), args.nats.keeping()),
            otlp_min: args.otlp_min.map_or(OTLP_MIN, |period| period.0),
        }
    };
    Ok(args.sinks.iter().map(setting).collect())
}

fn path(target: &Target) -> Option<&PathBuf> {
    match target {
        Target::Disk { dir: path, .. }
        | Target::Heph { file: path, .. }
        | Target::Perfetto(path)
        | Target::Chrome(path) => Some(path),
        Target::StdoutEvents | Target::StdoutSpans | Target::StdoutHeph | Target::Nats(_) | Target::Otlp(_) => None,
    }
}
