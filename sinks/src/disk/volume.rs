//! What all sessions of a disk sink share.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use super::{DiskCounters, files::Files, finishing::Finishing, handles::Handles, room::Room};
use crate::SinkError;

/// The directory, what is open in it, and how it stands.
pub(super) struct Volume {
    pub(super) dir: PathBuf,
    pub(super) limits: Limits,
    pub(super) handles: Handles,
    pub(super) counters: Arc<DiskCounters>,
    pub(super) finishing: Vec<Finishing>,
    pub(super) room: Option<Room>,
    /// Bytes that wait in memory, of all threads.
    pub(super) pending: usize,
    /// Bytes on disk of parts that are not finished.
    pub(super) open_bytes: u64,
    /// Why the disk takes nothing, since the last attempt that failed.
    pub(super) failing: Option<Failing>,
    next_part: u64,
}

/// What is how large.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) rotate_bytes: Option<u64>,
    pub(super) rotate_every: Option<Duration>,
    /// A thread with this much is flushed.
    pub(super) flush_bytes: usize,
    /// A thread with this much takes no more while the disk takes nothing.
    pub(super) stuck_bytes: usize,
    /// The same two, for all threads together.
    pub(super) flush_total: usize,
    pub(super) stuck_total: usize,
    pub(super) most_threads: usize,
    pub(super) most_events: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rotate_bytes: None,
            rotate_every: None,
            flush_bytes: 64 << 10,
            stuck_bytes: 1 << 20,
            flush_total: 32 << 20,
            stuck_total: 64 << 20,
            most_threads: 65_536,
            most_events: u32::MAX,
        }
    }
}

/// Why the disk takes nothing.
#[derive(Debug, Clone)]
pub(super) struct Failing {
    kind: io::ErrorKind,
    /// The error in words, with what was tried.
    text: String,
}

impl Failing {
    /// The cause of gaps that come of it.
    pub(super) fn cause(&self) -> &'static str {
        match self.kind {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "collector:disk-full",
            _ => "collector:disk-error",
        }
    }

    /// The answer to a call that failed over it.
    pub(super) fn answer(&self, what: &str) -> SinkError {
        SinkError::Failed { what: what.into(), source: io::Error::new(self.kind, self.text.clone()) }
    }
}

impl Volume {
    pub(super) fn new(dir: PathBuf, limits: Limits, handles: usize, files: Box<dyn Files>, room: Option<Room>) -> Self {
        Self {
            dir,
            limits,
            handles: Handles::new(files, handles),
            counters: Arc::default(),
            finishing: Vec::new(),
            room,
            pending: 0,
            open_bytes: 0,
            failing: None,
            next_part: 0,
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
            self.failing = Some(Failing { kind: error.kind(), text: format!("{what}: {error}") });
        }
        result.is_ok()
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
        self.open_bytes = self.open_bytes.saturating_add(bytes);
        self.counters.wrote(bytes);
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
        self.make_room().and(result)
    }

    fn make_room(&mut self) -> io::Result<()> {
        let (counters, open_bytes) = (&self.counters, self.open_bytes);
        self.room.as_mut().map_or(Ok(()), |room| room.enforce(open_bytes, |bytes| counters.removed(bytes)))
    }
}
