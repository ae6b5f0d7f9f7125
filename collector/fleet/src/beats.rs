//! Which recorders are alive.

use std::{collections::HashMap, time::Duration};

/// How many own beats a recorder sees before it takes the sessions of one that it has not heard of meanwhile.
pub(crate) const LEASE_BEATS: u64 = 5;

/// How long a recorder holds its sessions without being heard of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lease(pub(crate) Duration);

impl Lease {
    /// How often it says that it is there.
    pub(crate) fn beat_time(self) -> Duration {
        self.0 / 5
    }

    /// After how long without an own beat that was taken it reads nothing more: well before others take its sessions.
    pub(crate) fn fence_time(self) -> Duration {
        self.0 * 3 / 5
    }
}

/// What the keys of recorders start with.
const RECORDERS: &str = "r.";

/// The key of a recorder's beats.
pub(crate) fn key(id: &str) -> String {
    format!("{RECORDERS}{id}")
}

/// When recorders were last heard of, counted in own beats that came back. No clock is asked: while a cluster takes nothing,
/// nobody grows older.
#[derive(Debug)]
pub(crate) struct Beats {
    own: String,
    count: u64,
    last: HashMap<String, u64>,
}

impl Beats {
    pub(crate) fn new(own: &str) -> Self {
        Self { own: own.into(), count: 0, last: HashMap::new() }
    }

    /// Something was written under a key. Whether it is one of a recorder.
    pub(crate) fn heard(&mut self, key: &str, is_there: bool) -> bool {
        let Some(id) = key.strip_prefix(RECORDERS) else { return false };
        self.count += u64::from(id == self.own);
        match is_there {
            true => _ = self.last.insert(id.into(), self.count),
            false => _ = self.last.remove(id),
        }
        true
    }

    /// Whether a recorder has not been heard of for so many beats. One that has ended has said so.
    pub(crate) fn is_gone(&self, id: &str, beats: u64) -> bool {
        self.last.get(id).is_none_or(|last| self.count - last >= beats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_silent_while_others_are_heard_is_gone() {
        let mut beats = Beats::new("me");
        assert!(!beats.heard("s.00.0", true));
        assert!(beats.heard("r.you", true) && beats.heard("r.it", true));
        assert!(beats.is_gone("nobody", 5));
        for beat in 0..5 {
            assert!(!beats.is_gone("you", 5), "{beat}");
            beats.heard("r.me", true);
            beats.heard("r.it", true);
        }
        assert!(beats.is_gone("you", 5) && !beats.is_gone("you", 10) && !beats.is_gone("it", 5));
        beats.heard("r.it", false);
        assert!(beats.is_gone("it", 5));
    }
}
