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
    bytes_written: AtomicU64,
    lost_events: AtomicU64,
    lost_spans: AtomicU64,
    removed_bytes: AtomicU64,
    removed_sessions: AtomicU64,
    places: Mutex<BTreeMap<String, PathBuf>>,
}

/// How many sessions' places are remembered. Names start with the time, so the oldest go first.
const MOST_PLACES: usize = 4096;

impl DiskCounters {
    /// Bytes written to files.
    pub fn bytes_written(&self) -> u64 {
        read(&self.bytes_written)
    }

    /// Events that could not be kept. Each is in a gap of its session too, where there is one for its stream.
    pub fn lost_events(&self) -> u64 {
        read(&self.lost_events)
    }

    /// Spans that could not be kept. Each is counted in a limit of its session too, where its manifest could be written.
    pub fn lost_spans(&self) -> u64 {
        read(&self.lost_spans)
    }

    /// Bytes of sessions that were removed to make room.
    pub fn removed_bytes(&self) -> u64 {
        read(&self.removed_bytes)
    }

    /// Sessions, or parts of them, that were removed to make room.
    pub fn removed_sessions(&self) -> u64 {
        read(&self.removed_sessions)
    }

    /// The directory that the session of this name was written to last.
    pub fn place(&self, session: &str) -> Option<PathBuf> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).get(session).cloned()
    }

    pub(super) fn wrote(&self, bytes: u64) {
        add(&self.bytes_written, bytes);
    }

    pub(super) fn lost(&self, events: u64) {
        add(&self.lost_events, events);
    }

    pub(super) fn lose_spans(&self, spans: u64) {
        add(&self.lost_spans, spans);
    }

    pub(super) fn removed(&self, bytes: u64) {
        add(&self.removed_bytes, bytes);
        add(&self.removed_sessions, 1);
    }

    pub(super) fn set_place(&self, session: &str, dir: &Path) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.insert(session.into(), dir.into());
        if places.len() > MOST_PLACES {
            places.pop_first();
        }
    }
}

// ORDERING: each number is read by itself; none says anything about other memory.
fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}
