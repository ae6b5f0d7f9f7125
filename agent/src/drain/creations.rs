//! Which thread created which.

use std::collections::HashMap;

use codec::StreamId;

/// How many creations are remembered: a thread may be found long after its creation is known.
const MOST: usize = 65_536;

/// How many of each handle stay when there are more. Handles are used again and again.
const KEPT_OF_A_HANDLE: usize = 8;

/// Calls of `pthread_create`, by the handle of the thread they made, those of a handle in the order of time.
#[derive(Debug, Default)]
pub(super) struct Creations {
    by_handle: HashMap<u64, Vec<Creation>>,
    count: usize,
}

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
        if self.count >= MOST {
            self.thin_out();
        }
        let all = self.by_handle.entry(handle).or_default();
        all.insert(all.partition_point(|other| other.entered <= creation.entered), creation);
        self.count += 1;
    }

    /// Forgets the oldest of each handle: of a thread that one of them made, no other is then taken for the creator.
    fn thin_out(&mut self) {
        for all in self.by_handle.values_mut() {
            all.drain(..all.len().saturating_sub(KEPT_OF_A_HANDLE));
        }
        self.count = self.by_handle.values().map(Vec::len).sum();
        if self.count > MOST / 2 {
            (self.by_handle, self.count) = (HashMap::new(), 0);
        }
    }

    /// Who created the thread with this handle that was first seen then: the last one before, of those that are known.
    /// One that becomes known later may take its place.
    pub(super) fn creator(&self, handle: u64, seen: u64) -> Option<StreamId> {
        let all = self.by_handle.get(&handle)?;
        let before = all.partition_point(|creation| creation.entered <= seen);
        all.get(before.checked_sub(1)?).map(|creation| creation.by)
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
        // When there are too many, the oldest of each handle are forgotten.
        let more = MOST as u64;
        (0..more).for_each(|more| creations.add(9, Creation { by: StreamId(4), entered: 400 + more }));
        assert_eq!(creations.creator(7, 250), Some(StreamId(2)));
        assert_eq!((creations.creator(9, 400), creations.creator(9, 400 + more)), (None, Some(StreamId(4))));
        assert!(creations.count < 20);
    }
}
