//! What all sessions of a disk sink share.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, mpsc::Sender},
    time::Duration,
};

use super::{
    DiskCounters,
    counters::Count,
    files::{Files, Handles, is_full},
    finishing::Finishing,
    journal::Journal,
    part::Part,
    room::Room,
    sync::{Sync, SyncWhen},
    table::{PendingTable, SpansWhen},
};
use crate::{Budget, Cause, SinkError};

/// The directory, what is open in it, and how it stands.
pub(super) struct Volume {
    pub(super) dir: PathBuf,
    pub(super) limits: Limits,
    pub(super) handles: Handles,
    pub(super) counters: Arc<DiskCounters>,
    pub(super) shared: Arc<Shared>,
    /// Parts that could not be finished so far.
    pub(super) finishing: Vec<Finishing>,
    /// How much the directory may take, where that is limited. All recorders share it.
    pub(super) room: Option<Arc<Mutex<Room>>>,
    /// Where parts are reported whose tables of spans are to be made.
    pub(super) pending_tables: Option<Sender<PendingTable>>,
    /// Bytes that wait in memory, of all threads.
    pub(super) pending: usize,
    usage: Arc<Usage>,
    /// Why the disk takes nothing, since the last attempt that failed.
    pub(super) failing: Option<Failing>,
    /// Why no room could be made, where the last attempt failed. That keeps nobody from writing.
    pub(super) crowded: Option<Failing>,
    /// Bytes written but for those of journals, for which room is kept: only these show that the disk takes something.
    progress: u64,
    pub(super) sync: Sync,
    next_part: u64,
}

/// Bytes on disk of parts that are not finished, and those of their journals, which go. All recorders share them.
#[derive(Debug, Default)]
struct Usage {
    open: Count,
    journals: Count,
}

/// Memory that all sessions share: a budget for each thing that grows with what comes from outside. Sessions and threads
/// take shares of them.
#[derive(Debug)]
pub(super) struct Shared {
    /// When the calls of threads were.
    pub(super) depths: Budget,
    /// Functions of module 0.
    pub(super) names: Budget,
    /// Gaps.
    pub(super) gaps: Budget,
    /// What waits in journals.
    pub(super) journals: Budget,
    /// Spans on their way to a file, and those that are open.
    pub(super) spans: Budget,
    pub(super) open_spans: Budget,
}

impl Shared {
    fn new(limits: &Limits) -> Self {
        let budget = |limit| Budget::new(limit, Arc::default());
        Self {
            depths: budget(limits.depth_bytes),
            names: budget(limits.name_bytes),
            gaps: budget(limits.gap_bytes),
            journals: budget(limits.journal_bytes),
            spans: budget(limits.span_bytes),
            open_spans: budget(limits.open_span_bytes),
        }
    }
}

/// What is how large.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) rotate_bytes: Option<u64>,
    pub(super) rotate_every: Option<Duration>,
    pub(super) spans: SpansWhen,
    pub(super) sync: SyncWhen,
    /// A thread with this much is flushed.
    pub(super) flush_bytes: usize,
    /// A thread with this much takes no more while the disk takes nothing.
    pub(super) stuck_bytes: usize,
    /// The same two, for all threads together.
    pub(super) flush_total: usize,
    pub(super) stuck_total: usize,
    pub(super) most_threads: usize,
    pub(super) most_events: u32,
    /// Options in the journal of one part.
    pub(super) option_bytes: u64,
    /// What all sessions share: tables of depths, names of functions, gaps, what waits in journals, spans, and
    /// spans that are open.
    pub(super) depth_bytes: u64,
    pub(super) name_bytes: u64,
    pub(super) gap_bytes: u64,
    pub(super) journal_bytes: u64,
    pub(super) span_bytes: u64,
    pub(super) open_span_bytes: u64,
    /// Parts that wait to be finished, and the memory of these.
    pub(super) most_finishing: usize,
    pub(super) finishing_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rotate_bytes: None,
            rotate_every: None,
            spans: SpansWhen::default(),
            sync: SyncWhen::default(),
            flush_bytes: 64 << 10,
            stuck_bytes: 1 << 20,
            flush_total: 32 << 20,
            stuck_total: 64 << 20,
            most_threads: 65_536,
            most_events: u32::MAX,
            option_bytes: 256 << 20,
            depth_bytes: 16 << 20,
            name_bytes: 32 << 20,
            gap_bytes: 32 << 20,
            journal_bytes: 32 << 20,
            span_bytes: 128 << 20,
            open_span_bytes: 64 << 20,
            most_finishing: 256,
            finishing_bytes: 64 << 20,
        }
    }
}

impl Limits {
    /// Those that come to no more than this.
    pub(super) fn within(memory: Option<u64>) -> Self {
        let most = Self::default();
        let Some(memory) = memory else { return most };
        let shared = most.depth_bytes + most.name_bytes + most.gap_bytes + most.journal_bytes;
        let all = shared + most.span_bytes + most.open_span_bytes + (most.stuck_total + most.finishing_bytes) as u64;
        let part = |bytes: u64| (u128::from(bytes) * u128::from(memory.min(all)) / u128::from(all)) as u64;
        let size = |bytes: usize| usize::try_from(part(bytes as u64)).unwrap_or(bytes);
        Self {
            flush_total: size(most.flush_total),
            stuck_total: size(most.stuck_total),
            stuck_bytes: most.stuck_bytes.min(size(most.stuck_total)),
            depth_bytes: part(most.depth_bytes),
            name_bytes: part(most.name_bytes),
            gap_bytes: part(most.gap_bytes),
            journal_bytes: part(most.journal_bytes),
            span_bytes: part(most.span_bytes),
            open_span_bytes: part(most.open_span_bytes),
            finishing_bytes: size(most.finishing_bytes),
            ..most
        }
    }
}

/// Why the disk takes nothing.
#[derive(Debug, Clone)]
pub(super) struct Failing {
    kind: io::ErrorKind,
    /// What was tried, and the error in words.
    what: String,
    text: String,
    /// What had been written when it failed.
    progress: u64,
}

/// The cause of gaps that come of an error.
fn cause_of(kind: io::ErrorKind) -> &'static str {
    match is_full(kind) {
        true => "collector:disk-full",
        false => "collector:disk-error",
    }
}

impl Failing {
    fn new(what: &str, error: &io::Error, progress: u64) -> Self {
        Self { kind: error.kind(), what: what.into(), text: error.to_string(), progress }
    }

    /// The error itself, with what was tried.
    pub(super) fn error(&self) -> io::Error {
        io::Error::new(self.kind, format!("{}: {}", self.what, self.text))
    }

    /// The error without what was tried.
    pub(super) fn alone(&self) -> io::Error {
        io::Error::new(self.kind, self.text.clone())
    }

    /// The cause of gaps that come of it.
    pub(super) fn cause(&self) -> &'static str {
        cause_of(self.kind)
    }

    /// The answer to a call that failed over it.
    pub(super) fn answer(&self, what: &str) -> SinkError {
        let source = if what == self.what { self.alone() } else { self.error() };
        SinkError::Failed { what: what.into(), source }
    }
}

impl Volume {
    pub(super) fn new(dir: PathBuf, limits: Limits, handles: usize, files: Box<dyn Files>, room: Option<Room>) -> Self {
        Self {
            dir,
            limits,
            handles: Handles::new(files, handles),
            counters: Arc::default(),
            shared: Arc::new(Shared::new(&limits)),
            finishing: Vec::new(),
            room: room.map(|room| Arc::new(Mutex::new(room))),
            pending_tables: None,
            pending: 0,
            usage: Arc::default(),
            failing: None,
            crowded: None,
            progress: 0,
            sync: Sync::new(limits.sync),
            next_part: 0,
        }
    }

    /// Another that writes to the same directory, within the same bounds.
    pub(super) fn sibling(&self, handles: usize, files: Box<dyn Files>) -> Self {
        Self {
            counters: Arc::clone(&self.counters),
            shared: Arc::clone(&self.shared),
            room: self.room.clone(),
            usage: Arc::clone(&self.usage),
            ..Self::new(self.dir.clone(), self.limits, handles, files, None)
        }
    }

    /// Does something with the room that the directory has, where that is limited.
    pub(super) fn with_room<T>(&self, act: impl FnOnce(&mut Room) -> T) -> Option<T> {
        // What a holder that panicked left is good enough: sizes are looked at again.
        let mut room = self.room.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        Some(act(&mut room))
    }

    /// A part is finished, and its table of spans may be made.
    pub(super) fn report_pending_table(&self, dir: &Path) {
        if let Some(tables) = &self.pending_tables {
            // Where nobody makes tables any more, the next collector does.
            let _ = tables.send(PendingTable::new(dir, self.room.clone(), self.counters.clone()));
        }
    }

    /// A number for a part that no other has.
    pub(super) fn part_id(&mut self) -> u64 {
        self.next_part += 1;
        self.next_part
    }

    /// Notes how an attempt to write went.
    pub(super) fn note(&mut self, what: &str, result: io::Result<()>) -> bool {
        if let Err(error) = &result {
            self.failing = Some(Failing::new(what, error, self.progress));
        }
        result.is_ok()
    }

    /// After attempts that did not fail: unless something was written since, what failed before still does.
    pub(super) fn unless_recovered(&mut self, before: Option<Failing>) {
        let still = before.filter(|before| before.progress == self.progress);
        self.failing = self.failing.take().or(still);
    }

    /// Why a thread with this much waiting can take no more, if it cannot.
    pub(super) fn stuck(&self, pending: usize) -> Option<&Failing> {
        let full = pending >= self.limits.stuck_bytes || self.pending >= self.limits.stuck_total;
        self.failing.as_ref().filter(|_| full)
    }

    /// How much may wait in a thread before it is looked after; the more threads there are, the less.
    pub(super) fn flush_bytes(&self, threads: usize) -> usize {
        if self.failing.is_some() {
            return self.limits.stuck_bytes;
        }
        let share = self.limits.flush_total / threads.max(1);
        share.clamp(self.limits.flush_bytes.min(4096), self.limits.flush_bytes)
    }

    pub(super) fn wrote(&mut self, bytes: u64) {
        self.usage.open.add(bytes);
        self.count(bytes);
    }

    /// An unfinished part, which has this many bytes, is an open one again.
    pub(super) fn reopened(&mut self, dir: &Path, bytes: u64, journal_bytes: u64) {
        self.usage.open.add(bytes);
        self.usage.journals.add(journal_bytes);
        self.with_room(|room| room.reopen(dir));
    }

    /// Counts bytes that were written.
    pub(super) fn count(&mut self, bytes: u64) {
        self.progress = self.progress.saturating_add(bytes);
        self.sync.wrote();
        self.counters.bytes_written.add(bytes);
    }

    /// Makes what was written survive a power failure, where it is time to.
    pub(super) fn step_sync(&mut self) -> io::Result<()> {
        self.sync.step(&self.dir)
    }

    /// Writes what waits in a journal, as long as room for this many bytes stays behind it.
    pub(super) fn flush_journal(&mut self, journal: &mut Journal, keep: u64) -> io::Result<()> {
        self.write_journal(journal, |journal| journal.flush(keep))
    }

    fn write_journal<T>(&mut self, journal: &mut Journal, write: impl FnOnce(&mut Journal) -> T) -> T {
        let before = journal.bytes();
        let result = write(journal);
        let written = journal.bytes().saturating_sub(before);
        self.usage.journals.add(written);
        self.counters.bytes_written.add(written);
        result
    }

    /// Bytes of a file of a part that goes on are gone.
    pub(super) fn gave_back(&mut self, bytes: u64) {
        self.usage.open.subtract(bytes);
    }

    /// Finishes a part now, or keeps it until the disk lets it.
    pub(super) fn finish(&mut self, mut part: Finishing) -> io::Result<()> {
        let result = part.step(self);
        if let Err(error) = &result {
            let held = self.finishing.iter().map(Finishing::memory_bytes).fold(0, usize::saturating_add);
            let fits = held.saturating_add(part.memory_bytes()) <= self.limits.finishing_bytes;
            match fits && self.finishing.len() < self.limits.most_finishing {
                true => self.finishing.push(part),
                false => self.leave(&mut part, cause_of(error.kind())),
            }
        }
        self.make_room();
        result
    }

    /// Whether a part of this session, which goes on, could not be finished so far.
    pub(super) fn is_finishing(&self, session: &str) -> bool {
        self.finishing.iter().any(|part| part.session.as_deref() == Some(session))
    }

    /// Goes on with parts that could not be finished so far, and removes what is too much.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        let mut result = Ok(());
        let mut waiting = std::mem::take(&mut self.finishing);
        waiting.retain_mut(|part| match part.step(self) {
            Ok(()) => false,
            Err(error) => {
                result = Err(error);
                true
            }
        });
        self.finishing = waiting;
        self.make_room();
        result
    }

    /// Leaves a part as its files are, for another collector to go on with. Should nobody, its journal says what is missing.
    pub(super) fn leave_open(&mut self, mut part: Part) {
        let ends: Vec<_> = part.threads.iter().map(|(stream, thread)| (*stream, thread.first, thread.next)).collect();
        part.threads.keys().for_each(|stream| self.handles.close((part.id, *stream)));
        self.write_journal(&mut part.journal, |journal| journal.give_up(&ends, Cause::stopped().as_str()));
        self.left(part.dir.as_deref(), part.pending_bytes(), part.bytes, &part.journal);
    }

    /// The same for one that could not be finished so far, if it is in this directory.
    pub(super) fn leave_finishing(&mut self, dir: &Path) {
        let Some(at) = self.finishing.iter().position(|part| part.dir == dir) else { return };
        let mut part = self.finishing.swap_remove(at);
        self.give_up(&mut part, Cause::stopped().as_str());
    }

    /// Leaves a part as a killed collector would have left it. What was not written of it is lost, and the journal
    /// says so.
    pub(super) fn leave(&mut self, part: &mut Finishing, cause: &str) {
        part.give_up_spans(self);
        let lost = self.give_up(part, cause);
        self.counters.lost_events.add(lost);
    }

    /// Leaves the files of a part that is being finished. How many events are not in them.
    fn give_up(&mut self, part: &mut Finishing, cause: &str) -> u64 {
        part.close_files(&mut self.handles);
        let (ends, lost) = part.ends();
        self.write_journal(&mut part.journal, |journal| journal.give_up(&ends, cause));
        self.left(Some(&part.dir), part.pending_bytes(), part.bytes, &part.journal);
        lost
    }

    /// The files of a part are left to whoever goes on with them or repairs them.
    fn left(&mut self, dir: Option<&Path>, pending: usize, bytes: u64, journal: &Journal) {
        self.pending = self.pending.saturating_sub(pending);
        self.closed(bytes, journal);
        if let Some(dir) = dir {
            self.with_room(|room| room.add_unfinished(dir));
        }
    }

    /// The bytes of a part are no longer those of an open one.
    pub(super) fn closed(&mut self, bytes: u64, journal: &Journal) {
        self.usage.open.subtract(bytes);
        self.usage.journals.subtract(journal.bytes());
    }

    fn make_room(&mut self) {
        let (open_bytes, journal_bytes) = (self.usage.open.get(), self.usage.journals.get());
        let enforced = self
            .with_room(|room| room.enforce(open_bytes, journal_bytes, |dir, bytes| self.counters.removed(dir, bytes)));
        let Some(result) = enforced else { return };
        self.crowded = result.err().map(|error| Failing::new("cannot remove an old session", &error, self.progress));
    }
}
