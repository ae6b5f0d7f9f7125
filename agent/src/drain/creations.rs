//! Which thread created which.

use std::collections::{HashMap, VecDeque};

use codec::StreamId;

/// How many creations of one handle are remembered. Handles are used again and again.
const MOST_OF_A_HANDLE: usize = 8;

/// How many handles are remembered.
const MOST_HANDLES: usize = 65_536;

/// Calls of `pthread_create` that have not been joined to a thread, by the handle of the thread they made.
#[derive(Debug, Default)]
pub(super) struct Creations(HashMap<u64, VecDeque<Creation>>);

/// All calls of `pthread_create`, to look at once no more can come: until then, one that has not come yet may be taken
/// for another.
#[derive(Debug, Default)]
pub(super) struct AllCreations {
    by_handle: HashMap<u64, Vec<Creation>>,
    count: usize,
}

impl AllCreations {
    /// Adds one, as long as there is room.
    pub(super) fn add(&mut self, handle: u64, creation: Creation) {
        if self.count < MOST_HANDLES {
            self.count += 1;
            self.by_handle.entry(handle).or_default().push(creation);
        }
    }

    /// Who created the thread with this handle that was first seen then: the last one before.
    pub(super) fn creator(&self, handle: u64, seen: u64) -> Option<StreamId> {
        let before = self.by_handle.get(&handle)?.iter().filter(|creation| creation.entered <= seen);
        before.max_by_key(|creation| creation.entered).map(|creation| creation.by)
    }
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
        if self.0.len() >= MOST_HANDLES && !self.0.contains_key(&handle) {
            return;
        }
        let all = self.0.entry(handle).or_default();
        if all.len() >= MOST_OF_A_HANDLE {
            all.pop_front();
        }
        all.push_back(creation);
    }

    /// Takes out who created the thread with this handle that was first seen then: the last one before.
    pub(super) fn take(&mut self, handle: u64, seen: u64) -> Option<StreamId> {
        let all = self.0.get_mut(&handle)?;
        let before = all.iter().enumerate().filter(|(_, creation)| creation.entered <= seen);
        let (at, creation) = before.max_by_key(|(_, creation)| creation.entered).map(|(at, found)| (at, *found))?;
        all.remove(at);
        // Those before made threads that were never seen.
        all.retain(|other| other.entered > creation.entered);
        if all.is_empty() {
            self.0.remove(&handle);
        }
        Some(creation.by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_all_are_known_none_is_taken_for_another() {
        let mut all = AllCreations::default();
        for (by, entered) in [(3, 300), (1, 100), (2, 200)] {
            all.add(7, Creation { by: StreamId(by), entered });
        }
        for (seen, creator) in [(50, None), (150, Some(1)), (200, Some(2)), (299, Some(2)), (900, Some(3))] {
            assert_eq!(all.creator(7, seen), creator.map(StreamId), "{seen}");
        }
        assert_eq!(all.creator(8, 900), None);
    }

    #[test]
    fn the_last_creation_before_a_thread_was_seen_made_it() {
        let mut creations = Creations::default();
        for (by, entered) in [(1, 100), (2, 300), (3, 200)] {
            creations.add(7, Creation { by: StreamId(by), entered });
        }
        assert_eq!(creations.take(7, 50), None);
        assert_eq!(creations.take(8, 500), None);
        assert_eq!(creations.take(7, 250), Some(StreamId(3)));
        assert_eq!(creations.take(7, 250), None, "the one before made another thread");
        assert_eq!(creations.take(7, 300), Some(StreamId(2)));
        assert!(creations.0.is_empty());
    }
}
