//! Which thread created which.

use std::collections::HashMap;

use codec::StreamId;

/// How many creations of one handle are remembered. Handles are used again and again.
const MOST_OF_A_HANDLE: usize = 8;

/// How many handles are remembered.
const MOST_HANDLES: usize = 65_536;

/// Calls of `pthread_create`, by the handle of the thread they made, those of a handle in the order of time.
#[derive(Debug, Default)]
pub(super) struct Creations(HashMap<u64, Vec<Creation>>);

/// A call of `pthread_create`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Creation {
    /// Who called it.
    pub(super) by: StreamId,
    /// When it was called, by the counter: the new thread was not there before.
    pub(super) entered: u64,
}

impl Creations {
    pub(super) fn add(&mut self, handle: u64, creation: Creation) {
        if self.0.len() >= MOST_HANDLES && !self.0.contains_key(&handle) {
            return;
        }
        let all = self.0.entry(handle).or_default();
        all.insert(all.partition_point(|other| other.entered <= creation.entered), creation);
        // The oldest is forgotten: of a thread that it made, no other is then taken for the creator.
        if all.len() > MOST_OF_A_HANDLE {
            all.remove(0);
        }
    }

    /// Who created the thread with this handle that was first seen then: the last one before, of those that are known.
    /// One that becomes known later may take its place.
    pub(super) fn creator(&self, handle: u64, seen: u64) -> Option<StreamId> {
        self.0.get(&handle)?.iter().rfind(|creation| creation.entered <= seen).map(|creation| creation.by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_creation_before_a_thread_was_seen_made_it() {
        let mut creations = Creations::default();
        for (by, entered) in [(3, 300), (1, 100), (2, 200)] {
            creations.add(7, Creation { by: StreamId(by), entered });
        }
        for (seen, creator) in [(50, None), (150, Some(1)), (200, Some(2)), (299, Some(2)), (900, Some(3))] {
            assert_eq!(creations.creator(7, seen), creator.map(StreamId), "{seen}");
        }
        assert_eq!(creations.creator(8, 900), None);
        // The oldest is forgotten first.
        (0..6).for_each(|more| creations.add(7, Creation { by: StreamId(4), entered: 400 + more }));
        assert_eq!((creations.creator(7, 350), creations.creator(7, 150)), (Some(StreamId(3)), None));
    }
}
