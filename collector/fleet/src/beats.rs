//! Which recorders are alive.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// How often a recorder says that it is there.
pub(crate) const BEAT_TIME: Duration = Duration::from_secs(2);

/// After how much silence its sessions may be taken.
pub(crate) const LEASE_TIME: Duration = Duration::from_secs(10);

/// After how long without an own beat that was taken a recorder reads nothing more: well before others take its sessions.
pub(crate) const FENCE_TIME: Duration = Duration::from_secs(6);

/// What the keys of recorders start with.
const RECORDERS: &str = "r.";

/// The key of a recorder's beats.
pub(crate) fn key(id: &str) -> String {
    format!("{RECORDERS}{id}")
}

/// When recorders were last heard of, by this machine's clock alone: others may show another time.
#[derive(Debug, Default)]
pub(crate) struct Beats(HashMap<String, Instant>);

impl Beats {
    /// Something was written under a key. Whether it is one of a recorder.
    pub(crate) fn heard(&mut self, key: &str, is_there: bool) -> bool {
        let Some(id) = key.strip_prefix(RECORDERS) else { return false };
        match is_there {
            true => _ = self.0.insert(id.into(), Instant::now()),
            false => _ = self.0.remove(id),
        }
        true
    }

    /// Nothing could be heard until now, from anybody.
    pub(crate) fn start_anew(&mut self) {
        self.0.values_mut().for_each(|last| *last = Instant::now());
    }

    /// Whether a recorder has not been heard of for so long. One that has ended has said so.
    pub(crate) fn is_gone(&self, id: &str, patience: Duration) -> bool {
        self.0.get(id).is_none_or(|last| last.elapsed() >= patience)
    }
}
