//! The sink that writes sessions to a directory, as `docs/trace-format.md` describes.

mod counters;
mod directory;
mod earlier;
mod files;
mod finishing;
mod journal;
mod ledger;
mod look;
mod notes;
mod part;
mod removed;
mod reopen;
mod repair;
mod resume;
mod room;
mod session;
mod spans;
mod standin;
mod starts;
mod summary;
mod sync;
mod table;
mod thread;
mod verify;
mod volume;
mod whole;

use std::{collections::HashMap, fs, path::PathBuf, sync::Arc, time::Duration};

use codec::{atf::EndEntry, span::Span};

pub use self::spans::OVERVIEW;
pub use counters::{Count, DiskCounters};
pub use directory::{bare_in, is_bare, sessions_in};
pub use earlier::{EarlierSessions, Leftover, Whereabouts, finish_ended};
pub(crate) use files::is_full;
pub use files::is_held;
use files::{Files, OsFiles};
use finishing::Finishing;
pub use look::{Unfinished, look_at_unfinished};
pub use repair::{RepairOutcome, Repaired, repair};
use room::Room;
use session::OpenSession;
pub use sync::SyncWhen;
pub use table::{PendingTable, SpansWhen, TableFile, lacks_table};
pub use verify::{OverviewTrailer, Verified, is_of_session, verify};
use volume::{Failing, Limits, Volume};
pub use whole::WholePart;

use crate::{Batch, Ended, Gap, Session, Sink, SinkError, probe::probe};

/// Writes each session to a directory of its own.
///
/// What it is given waits in memory until a thread has 64 KiB, or until the next flush. While the disk takes nothing
/// it keeps up to 1 MiB for each thread and 64 MiB in all; what comes then is a gap of cause `collector:disk-full` or
/// `collector:disk-error`, and as soon as the disk takes something, it goes on. What else grows with what comes from
/// outside is bounded over all sessions too: beyond the bounds gaps are merged, names are `(other)`, and sessions that
/// end while the disk takes nothing are left to be repaired.
///
/// Should the process be killed, what was flushed can be repaired: [`repair`] does it.
pub struct DiskSink {
    sessions: HashMap<String, OpenSession>,
    volume: Volume,
}

/// How a [`DiskSink`] is to work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskOptions {
    /// Where the sessions' directories are made. It is made itself if it is not there.
    pub dir: PathBuf,
    /// How much the sessions in `dir` may take. When it is more, the oldest finished ones are removed. Those that are
    /// not finished count too, also where a killed collector has left them. Journals, which go when their sessions
    /// end, count for a quarter at most.
    pub max_bytes: Option<u64>,
    /// How much the threads of a session may write before it goes on in another part. A quarter of `max_bytes` if
    /// nothing is said.
    pub rotate_bytes: Option<u64>,
    /// From which age on a session goes on in another part.
    pub rotate_every: Option<Duration>,
    /// How many threads may have files open at a time, two each.
    pub open_threads: usize,
    /// When the tables of spans are made. It is in the manifests, for collectors to come.
    pub spans: SpansWhen,
    /// When its files are made to survive a power failure.
    pub sync: SyncWhen,
    /// How much memory all that waits may take, where that is less than the bounds of the sink.
    pub memory: Option<u64>,
}

impl DiskOptions {
    /// To write to `dir`, without limits.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            max_bytes: None,
            rotate_bytes: None,
            rotate_every: None,
            open_threads: 256,
            spans: SpansWhen::default(),
            sync: SyncWhen::default(),
            memory: None,
        }
    }
}

impl DiskSink {
    /// Opens a directory. Fails if it cannot be made or looked at, or if nothing can be made in it. One on a disk that
    /// is full may get room again, and is taken.
    pub fn open(options: DiskOptions) -> Result<Self, SinkError> {
        let limits = Limits::within(options.memory);
        Self::with_files(options, limits, Box::new(OsFiles))
    }

    /// Opens a directory for several recorders. Each has sessions of its own; all bounds are for all of them together.
    pub fn open_many(options: DiskOptions, count: usize) -> Result<Vec<Self>, SinkError> {
        let limits = Limits::within(options.memory);
        let share = |bytes: usize| bytes / count.max(1);
        let limits = Limits {
            flush_total: share(limits.flush_total),
            stuck_total: share(limits.stuck_total),
            most_finishing: share(limits.most_finishing),
            finishing_bytes: share(limits.finishing_bytes),
            ..limits
        };
        let open_threads = share(options.open_threads);
        let options = DiskOptions { open_threads, ..options };
        let first = Self::with_files(options, limits, Box::new(OsFiles))?;
        let sibling =
            |_| Self { sessions: HashMap::new(), volume: first.volume.sibling(open_threads, Box::new(OsFiles)) };
        let others: Vec<_> = (1..count).map(sibling).collect();
        Ok([first].into_iter().chain(others).collect())
    }

    fn with_files(options: DiskOptions, limits: Limits, files: Box<dyn Files>) -> Result<Self, SinkError> {
        let dir = options.dir;
        let failed = |source| SinkError::Failed { what: format!("cannot use {}", dir.display()), source };
        fs::create_dir_all(&dir).and_then(|()| probe(&dir)).map_err(failed)?;
        let room = options.max_bytes.map(|max_bytes| Room::scan(&dir, max_bytes)).transpose().map_err(failed)?;
        let rotate_bytes = options.rotate_bytes.or(options.max_bytes.map(|max_bytes| max_bytes / 4));
        let option_bytes =
            options.max_bytes.map_or(limits.option_bytes, |max_bytes| limits.option_bytes.min(max_bytes / 4));
        let (rotate_every, spans, sync) = (options.rotate_every, options.spans, options.sync);
        let limits = Limits { rotate_bytes, rotate_every, option_bytes, spans, sync, ..limits };
        let volume = Volume::new(dir, limits, options.open_threads, files, room);
        Ok(Self { sessions: HashMap::new(), volume })
    }

    /// What it counts while it works, and where it has written what.
    pub fn counters(&self) -> Arc<DiskCounters> {
        Arc::clone(&self.volume.counters)
    }

    /// Flushes every session, and finishes what could not be finished before.
    fn flush_all(&mut self) -> Result<(), SinkError> {
        let before = self.volume.failing.take();
        let what = format!("cannot write to {}", self.volume.dir.display());
        // The parts before those that are open: only when a part is finished another is begun on disk.
        let settled = self.volume.settle();
        self.volume.note(&what, settled);
        for session in self.sessions.values_mut() {
            let result = session.flush(&mut self.volume);
            self.volume.note(&what, result);
        }
        // In between it is only kept up with, header by header; here it is counted.
        let open = self.sessions.values().map(|session| session.part.pending_bytes());
        let finishing = self.volume.finishing.iter().map(Finishing::pending_bytes);
        self.volume.pending = open.chain(finishing).fold(0, usize::saturating_add);
        let synced = self.volume.step_sync();
        self.volume.note(&what, synced);
        self.volume.unless_recovered(before);
        self.answer(&what)?;
        self.volume.crowded.as_ref().map_or(Ok(()), |crowded| Err(crowded.answer(&what)))
    }

    /// How the last attempts to write went.
    fn answer(&self, what: &str) -> Result<(), SinkError> {
        self.volume.failing.as_ref().map_or(Ok(()), |failing| Err(failing.answer(what)))
    }

    /// The session, which may have been started by nobody.
    fn session(&mut self, session: &Arc<Session>) -> (&mut OpenSession, &mut Volume) {
        let Self { sessions, volume } = self;
        let open = sessions.entry(session.name.clone()).or_insert_with(|| OpenSession::new(session, volume));
        (open, volume)
    }

    fn finish(&mut self, name: &str, ended: &Ended) -> Result<(), SinkError> {
        let Some(mut open) = self.sessions.remove(name) else { return Ok(()) };
        // Parts before its last come first. What cannot be finished now is told by the next flush.
        if self.volume.is_finishing(&open.base) {
            let _ = self.volume.settle();
        }
        self.volume.failing = None;
        open.finish(&mut self.volume, ended, true);
        self.volume.with_room(|room| room.forget(&open.base));
        for part in &mut self.volume.finishing {
            part.session.take_if(|name| *name == open.base);
        }
        self.answer("cannot finish a session")
    }
}

impl Sink for DiskSink {
    fn start(&mut self, session: &Arc<Session>) -> Result<(), SinkError> {
        let (open, volume) = self.session(session);
        let result = open.open(volume);
        match volume.note("cannot make a directory", result) {
            true => Ok(()),
            false => self.answer("cannot start a session"),
        }
    }

    /// Goes on in the directory that it had. Where that is not possible, it goes on in another.
    fn resume(&mut self, session: &Arc<Session>) -> Result<(), SinkError> {
        // It may have ended a moment ago. What cannot be finished now is told by the next flush.
        let _ = self.volume.settle();
        match OpenSession::resume(&mut self.volume, session) {
            Ok(Some(open)) => _ = self.sessions.insert(session.name.clone(), open),
            Ok(None) => return self.start(session),
            // It may go on once there is room.
            Err(source) if is_full(source.kind()) => {
                let what = format!("cannot go on with session {}", session.name);
                return Err(SinkError::Failed { what, source });
            }
            Err(source) => {
                self.start(session)?;
                let what = format!("session {} goes on in another directory", session.name);
                return Err(SinkError::Failed { what, source });
            }
        }
        Ok(())
    }

    fn options(&mut self, session: &Arc<Session>, packets: &[u8]) -> Result<(), SinkError> {
        self.session(session).0.part.journal.options(packets);
        Ok(())
    }

    fn ending(&mut self, session: &Arc<Session>, packets: &[u8]) -> Result<(), SinkError> {
        self.options(session, packets)
    }

    fn events(&mut self, batch: &Arc<Batch>) -> Result<(), SinkError> {
        let (open, volume) = self.session(&batch.session);
        let mut result = Ok(());
        for run in batch.iter() {
            if let Err(error) = open.run(volume, run) {
                result = Err(error);
            }
        }
        open.rotate_if_due(volume);
        if volume.pending > volume.limits.flush_total && volume.failing.is_none() {
            // What could not be written still waits; the next flush tells.
            let _ = self.flush_all();
        }
        result
    }

    fn gap(&mut self, session: &Arc<Session>, gap: &Gap) -> Result<(), SinkError> {
        let (open, volume) = self.session(session);
        open.gap(volume, gap)
    }

    /// Spans wait in memory until there are many, and are of use only once the part is finished.
    fn spans(&mut self, session: &Arc<Session>, spans: &[Span]) -> Result<(), SinkError> {
        let (open, volume) = self.session(session);
        let result = open.spans(volume, spans);
        open.rotate_if_due(volume);
        result
    }

    fn end(&mut self, session: &Arc<Session>, ended: &Ended) -> Result<(), SinkError> {
        self.session(session);
        self.finish(&session.name, ended)
    }

    fn leave(&mut self, session: &Arc<Session>) {
        if let Some(open) = self.sessions.remove(&session.name) {
            self.volume.leave_open(open.part);
        }
        if let Some(dir) = self.volume.counters.place(&session.name) {
            self.volume.leave_finishing(&dir);
        }
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        for session in self.sessions.values_mut() {
            session.rotate_if_due(&mut self.volume);
        }
        self.flush_all()
    }

    fn takes_more(&self) -> bool {
        self.volume.failing.is_none()
    }

    fn is_kept(&self) -> bool {
        self.volume.sync.is_kept()
    }

    /// Sessions that nobody ended are finished as `stopped`. What the disk does not take even now stays as a killed
    /// collector would have left it.
    fn close(&mut self) -> Result<(), SinkError> {
        let names: Vec<_> = self.sessions.keys().cloned().collect();
        let mut result = Ok(());
        for name in names {
            let end = EndEntry { how: "stopped".into(), ..EndEntry::default() };
            result = result.and(self.finish(&name, &Ended { end, ..Ended::default() }));
        }
        result = result.and(self.flush_all());
        let cause = self.volume.failing.as_ref().map_or("collector:disk-error", Failing::cause);
        for mut part in std::mem::take(&mut self.volume.finishing) {
            self.volume.leave(&mut part, cause);
        }
        result
    }
}

#[cfg(test)]
mod tests;
