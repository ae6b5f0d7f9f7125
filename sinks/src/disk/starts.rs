//! When the calls of a thread were, as far as it is remembered.

use crate::Budget;

/// When the latest call at each depth was, as a reader of the file knows it too.
///
/// Depths come from outside, and all threads share one budget. A depth that has no room is not remembered: then a
/// return from it says itself when its call was.
#[derive(Debug, Default)]
pub(super) struct Starts {
    at: Vec<u64>,
    room: Budget,
}

/// No call was seen at this depth.
const NO_START: u64 = u64::MAX;

/// How many depths are remembered at most.
const DEPTHS: usize = 4096;
/// Up to here a thread may use all of the budget, beyond it only half: many shallow threads matter more than a deep one.
const FEW_DEPTHS: usize = 64;
/// How many are made at once at least.
const FEWEST_DEPTHS: usize = 8;

impl Starts {
    pub(super) fn new(room: Budget) -> Self {
        Self { at: Vec::new(), room }
    }

    /// When the latest call at a depth was, where that is remembered.
    #[inline]
    pub(super) fn get(&self, depth: u32) -> Option<u64> {
        let start = self.at.get(usize::try_from(depth).ok()?).copied();
        start.filter(|start| *start != NO_START)
    }

    #[inline]
    pub(super) fn note(&mut self, depth: u32, start: u64) {
        let depth = usize::try_from(depth).unwrap_or(usize::MAX);
        match self.at.get_mut(depth) {
            Some(known) => *known = start,
            None if depth < DEPTHS => self.note_deeper(depth, start),
            None => {}
        }
    }

    #[inline(never)]
    fn note_deeper(&mut self, depth: usize, start: u64) {
        let most = self.at.capacity();
        if depth >= most {
            let wanted = (depth + 1).next_power_of_two().max(FEWEST_DEPTHS);
            let bytes = (wanted.saturating_sub(most) * size_of::<u64>()) as u64;
            let taken = if wanted <= FEW_DEPTHS { self.room.take(bytes) } else { self.room.take_of_half(bytes) };
            if !taken {
                return;
            }
            self.at.reserve_exact(wanted.saturating_sub(self.at.len()));
        }
        self.at.resize(depth, NO_START);
        self.at.push(start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_threads_leave_room_for_shallow_ones_and_give_back_what_they_had() {
        let budget = Budget::new(100_000, std::sync::Arc::default());
        let mut threads: Vec<_> = (0..1000).map(|_| Starts::new(budget.share())).collect();
        for thread in &mut threads {
            thread.note(4095, 7);
        }
        let deep = threads.iter().filter(|thread| thread.get(4095) == Some(7)).count();
        assert_eq!((deep, budget.in_use()), (1, 32_768));
        for thread in &mut threads {
            thread.note(63, 8);
        }
        let shallow = threads.iter().filter(|thread| thread.get(63) == Some(8)).count();
        assert_eq!(shallow, 1 + (100_000 - 32_768) / 512);
        assert!(budget.in_use() <= 100_000);
        drop(threads);
        assert_eq!(budget.in_use(), 0);
    }

    #[test]
    fn only_what_was_noted_is_known() {
        let mut starts = Starts::default();
        for (depth, start) in [(3, 30), (0, 1), (3, 31), (4096, 5), (u32::MAX, 6)] {
            starts.note(depth, start);
        }
        assert_eq!(
            [0, 1, 3, 4, 4096, u32::MAX].map(|depth| starts.get(depth)),
            [Some(1), None, Some(31), None, None, None]
        );
    }
}
