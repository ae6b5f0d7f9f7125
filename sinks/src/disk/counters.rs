//! What a disk sink tells beside its answers.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// Numbers that a disk sink counts and others read, and where it has written what.
#[derive(Debug, Default)]
pub struct DiskCounters {
    /// Bytes written to files.
    pub bytes_written: Count,
    /// Events that could not be kept. Each is in a gap of its session too, where there is one for its stream.
    pub lost_events: Count,
    /// Spans that could not be kept. Each is counted in a limit of its session too, where its manifest could be written.
    pub lost_spans: Count,
    /// Bytes of sessions that were removed to make room.
    pub removed_bytes: Count,
    /// Sessions, or parts of them, that were removed to make room.
    pub removed_sessions: Count,
    places: Mutex<BTreeMap<String, PathBuf>>,
}

/// How many sessions' places are remembered. Names start with the time, so the oldest go first.
const MOST_PLACES: usize = 4096;

impl DiskCounters {
    /// The directory that the session of this name was written to last.
    pub fn place(&self, session: &str) -> Option<PathBuf> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).get(session).cloned()
    }

    pub(super) fn removed(&self, bytes: u64) {
        self.removed_bytes.add(bytes);
        self.removed_sessions.add(1);
    }

    pub(super) fn set_place(&self, session: &str, dir: &Path) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.insert(session.into(), dir.into());
        if places.len() > MOST_PLACES {
            places.pop_first();
        }
    }
}

/// A number that many count.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

// ORDERING: each number is read by itself; none says anything about other memory.
impl Count {
    /// What it has come to.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn subtract(&self, less: u64) {
        // ORDERING: as above.
        _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |sum| Some(sum.saturating_sub(less)));
    }
}
