//! The tee: every sink is told the same story, each through a queue of its own.

mod ending;
mod lane;
mod owed;
mod spanner;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Result, anyhow};
use bytes::Bytes;
use collector_core::spans::SpanConfig;
use sinks::{
    Batch, ChromeSink, DiskCounters, DiskOptions, DiskSink, Ended, Gap, HephCompatSink, HephSink, LineSink,
    PerfettoSink, Session, Sink, SinkError,
};

use self::lane::Lane;
pub(crate) use self::{
    ending::{Ending, PATIENCE},
    lane::LaneCounters,
};
use crate::{
    notices::Notices,
    settings::{Shares, SinkSetting},
    sink_spec::Target,
};

/// What the sinks are told.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    Started(Arc<Session>),
    Options(Arc<Session>, Bytes),
    Events(Arc<Batch>),
    Gap(Arc<Session>, Gap),
    Ended(Arc<Session>, Ended),
}

impl Item {
    /// How many events it holds.
    fn events(&self) -> u64 {
        match self {
            Self::Events(batch) => batch.events(),
            _ => 0,
        }
    }

    fn session(&self) -> &Arc<Session> {
        match self {
            Self::Events(batch) => &batch.session,
            Self::Started(session) | Self::Options(session, _) | Self::Gap(session, _) | Self::Ended(session, _) => {
                session
            }
        }
    }
}

/// All sinks.
#[derive(Debug)]
pub(crate) struct Tee {
    lanes: Vec<Lane>,
    disks: Vec<(String, Arc<DiskCounters>)>,
    ending: Arc<Ending>,
}

impl Tee {
    /// Opens all sinks, or none.
    pub(crate) fn open(
        settings: &[SinkSetting],
        spans: &SpanConfig,
        memory: u64,
        notices: &Arc<Notices>,
    ) -> Result<Self> {
        let shares = Shares::of(memory);
        let queue_bytes = shares.queues / settings.len().max(1) as u64;
        let spanning = settings.iter().filter(|setting| setting.target.wants_spans()).count();
        let max_open = shares.open_spans / (spanning.max(1) as u64);
        let spans = SpanConfig { max_open: usize::try_from(max_open).unwrap_or(usize::MAX), ..spans.clone() };
        let mut disks = Vec::new();
        let mut opened = Vec::new();
        for setting in settings {
            let name = setting.target.to_string();
            let sink = open(setting, &mut disks).map_err(|error| anyhow!("cannot open sink {name}: {error}"))?;
            opened.push((name, sink));
        }
        let ending = Arc::new(Ending::default());
        let lanes = opened.into_iter().zip(settings).map(|((name, sink), setting)| {
            let spans = setting.target.wants_spans().then(|| spans.clone());
            Lane::start(name, sink, setting.on_full, queue_bytes, spans, notices.clone(), ending.clone())
        });
        Ok(Self { lanes: lanes.collect::<Result<_>>()?, disks, ending })
    }

    /// What says that it is to end.
    pub(crate) fn ending(&self) -> Arc<Ending> {
        self.ending.clone()
    }

    /// Tells all sinks. Waits for those that are to be waited for.
    pub(crate) async fn give(&mut self, item: Item) {
        for lane in &mut self.lanes {
            lane.give(item.clone()).await;
        }
    }

    /// What each sink counts, with its name.
    pub(crate) fn counters(&self) -> Vec<(String, Arc<LaneCounters>)> {
        self.lanes.iter().map(|lane| (lane.name().to_owned(), lane.counters())).collect()
    }

    /// What the disk sinks count, with their names.
    pub(crate) fn disks(&self) -> &[(String, Arc<DiskCounters>)] {
        &self.disks
    }

    /// Where a session is written. A sink that has not come to it yet will take its name.
    pub(crate) fn places(&self, session: &Session) -> impl Iterator<Item = PathBuf> {
        self.disks.iter().map(|(name, disk)| {
            let name = name.strip_suffix(",spans=no").unwrap_or(name);
            let dir = Path::new(name.strip_prefix("disk:").unwrap_or(name));
            disk.place(&session.name).unwrap_or_else(|| dir.join(&session.name))
        })
    }

    /// Finishes all sinks. Blocks until they have written everything. Returns whether all of them could.
    pub(crate) fn close(self) -> bool {
        // All are told before any is waited for: one that hangs must not keep the others open.
        let threads: Vec<_> = self.lanes.into_iter().map(Lane::end).collect();
        let finished: Vec<bool> = threads.into_iter().map(|thread| thread.join().unwrap_or(false)).collect();
        finished.into_iter().all(|finished| finished)
    }
}

fn open(setting: &SinkSetting, disks: &mut Vec<(String, Arc<DiskCounters>)>) -> Result<Box<dyn Sink>, SinkError> {
    Ok(match &setting.target {
        Target::Disk { dir, .. } => {
            let options = DiskOptions {
                max_bytes: setting.max_bytes,
                rotate_bytes: setting.rotate_bytes,
                rotate_every: setting.rotate_every,
                ..DiskOptions::new(dir)
            };
            let sink = DiskSink::open(options)?;
            disks.push((setting.target.to_string(), sink.counters()));
            Box::new(sink)
        }
        Target::StdoutEvents => Box::new(LineSink::events(std::io::stdout())),
        Target::StdoutSpans => Box::new(LineSink::spans(std::io::stdout())),
        Target::Perfetto(file) => Box::new(PerfettoSink::create(file)?),
        Target::Chrome(file) => Box::new(ChromeSink::create(file)?),
        Target::StdoutHeph => Box::new(HephSink::new(std::io::stdout())),
        Target::Heph { file, compat: false } => Box::new(HephSink::create(file)?),
        Target::Heph { file, compat: true } => Box::new(HephCompatSink::open(file)?),
    })
}
