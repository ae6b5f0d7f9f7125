//! What a disk sink tells beside its answers.

use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::Cause;

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
    sessions: Mutex<BTreeMap<String, Place>>,
    /// Where parts were that were removed to make room, and that nobody has asked for.
    removed: Mutex<VecDeque<PathBuf>>,
}

/// Where a session is, and what of it could not be kept there.
#[derive(Debug, Default)]
struct Place {
    dir: Option<PathBuf>,
    lost: BTreeMap<Cause, u64>,
}

/// How many sessions' places are remembered. Names start with the time, so the oldest go first.
const MOST_PLACES: usize = 4096;

impl DiskCounters {
    /// The directory that the session of this name was written to last.
    pub fn place(&self, session: &str) -> Option<PathBuf> {
        self.sessions().get(session)?.dir.clone()
    }

    /// How many events of the session of this name could not be kept, by cause.
    pub fn lost_of(&self, session: &str) -> BTreeMap<Cause, u64> {
        self.sessions().get(session).map(|place| place.lost.clone()).unwrap_or_default()
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<String, Place>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Events of a session could not be kept.
    pub(super) fn lose(&self, session: &str, count: u64, cause: &str) {
        self.lost_events.add(count);
        self.with_place(session, |place| *place.lost.entry(Cause::from(cause)).or_default() += count);
    }

    pub(super) fn removed(&self, dir: &Path, bytes: u64) {
        self.removed_bytes.add(bytes);
        self.removed_sessions.add(1);
        let mut removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        removed.push_back(dir.into());
        if removed.len() > MOST_PLACES {
            removed.pop_front();
        }
    }

    /// Where parts were that have been removed to make room since this was last asked; the latest, if nobody asks for long.
    pub fn take_removed(&self) -> Vec<PathBuf> {
        self.removed.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    pub(super) fn set_place(&self, session: &str, dir: &Path) {
        self.with_place(session, |place| place.dir = Some(dir.into()));
    }

    fn with_place(&self, session: &str, act: impl FnOnce(&mut Place)) {
        let mut sessions = self.sessions();
        act(sessions.entry(session.into()).or_default());
        if sessions.len() > MOST_PLACES {
            sessions.pop_first();
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
