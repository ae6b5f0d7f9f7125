//! Levels that the user has set: they stay until the user says otherwise, whatever tracing costs.

use std::collections::BTreeMap;

use codec::SessionNs;

use super::{Levels, level_of, slots_used};
use crate::shared::{Arena, Level, pin_slot, set_slot, unpin_slot};

/// What became of functions whose levels were to be set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetLevels {
    /// How many have the level now, or have it as soon as they are hooked again.
    pub set: u64,
    /// How many cannot have it: they are not hooked, join events together, or depths are counted from them.
    pub fixed: u64,
}

/// How many functions have which level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LevelCounts {
    /// Those that are full, of those that need not be.
    pub full: u64,
    /// Those that are counted.
    pub counted: u64,
    /// Those that are off.
    pub off: u64,
    /// Those of all these that the user has set.
    pub set: u64,
}

impl Levels {
    /// Sets the level of functions, or with `None` has it be what tracing may cost.
    pub(in super::super) fn set(
        &mut self,
        arena: &Arena,
        functions: &[u32],
        level: Option<Level>,
        time: SessionNs,
    ) -> SetLevels {
        let mut result = SetLevels::default();
        for &function in functions {
            if let (true, Some(level)) = (self.is_left_alone(function), level) {
                self.pinned.insert(function, level);
                // It is off already.
                if level != Level::Off {
                    self.hook_again(function);
                }
                result.set += 1;
                continue;
            }
            let slot = arena.slot(function);
            let before = self.pinned.remove(&function);
            // What is full because the user said so can be something else.
            if let (Some(slot), Some(Level::Full)) = (slot, before) {
                unpin_slot(slot);
            }
            // It goes on as it is; what has to be is changed from here on.
            let Some(level) = level else {
                result.set += u64::from(before.is_some());
                result.fixed += u64::from(level_of(arena, function).is_none());
                // What was off is counted, to see how often it is called.
                if before == Some(Level::Off)
                    && !self.is_left_alone(function)
                    && slot.is_some_and(|slot| set_slot(slot, Level::Counted))
                {
                    self.note(time, function, Level::Counted);
                }
                // Where everything may be followed nothing else would turn it up again.
                self.is_lifted |= before.is_some();
                continue;
            };
            let is_set =
                slot.is_some_and(|slot| if level == Level::Full { pin_slot(slot) } else { set_slot(slot, level) });
            if is_set {
                self.pinned.insert(function, level);
                self.note(time, function, level);
                result.set += 1;
            } else {
                result.fixed += 1;
            }
        }
        result
    }

    /// Takes over what the user has set in the process that this one was forked from, perhaps after that.
    pub(in super::super) fn inherit(&mut self, arena: &Arena, set: &Pinned, time: SessionNs) {
        for (function, level) in set {
            self.pinned.insert(*function, *level);
            self.set(arena, &[*function], Some(*level), time);
        }
    }

    /// What the user has set.
    pub(in super::super) fn pinned(&self) -> &Pinned {
        &self.pinned
    }

    /// Has all functions be full but those that the user has set.
    pub(super) fn follow_all(&mut self, arena: &Arena, time: SessionNs) {
        let may_be = |function: u32| !self.is_pinned(function) && !self.is_left_alone(function);
        let down = self.down.iter().filter(|(function, down)| down.level != Level::Full && may_be(**function));
        let down: Vec<u32> = down.map(|(function, _)| *function).collect();
        for function in down {
            if arena.slot(function).is_some_and(|slot| set_slot(slot, Level::Full)) {
                self.changed(time, function, Level::Full);
            }
        }
    }

    /// Notes the level of a function, if that is news.
    fn note(&mut self, time: SessionNs, function: u32, level: Level) {
        if self.down.get(&function).map_or(Level::Full, |down| down.level) != level {
            self.changed(time, function, level);
        }
    }

    /// Whether its level is the user's business.
    pub(super) fn is_pinned(&self, function: u32) -> bool {
        !self.pinned.is_empty() && self.pinned.contains_key(&function)
    }

    /// How many functions have which level.
    pub(in super::super) fn counts(&self, arena: &Arena) -> LevelCounts {
        let mut counts = LevelCounts { set: self.pinned.len() as u64, ..LevelCounts::default() };
        for function in 0..slots_used(arena) {
            match level_of(arena, function) {
                Some(Level::Full) => counts.full += 1,
                Some(Level::Counted) => counts.counted += 1,
                Some(Level::Off) => counts.off += 1,
                None => {}
            }
        }
        counts
    }
}

/// The levels that the user has set, by function.
pub(in super::super) type Pinned = BTreeMap<u32, Level>;

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::Ordering,
        time::{Duration, Instant},
    };

    use super::*;
    use crate::{drain::fake::FakeTarget, shared::pinned_slot};

    #[test]
    fn what_the_user_has_set_stays_until_the_user_says_otherwise() {
        let target = FakeTarget::new(1 << 16, 1);
        let (arena, now) = (&target.arena, Instant::now());
        let header = |function: u32| 0x10_0000 + 0x100 * u64::from(function);
        for function in 0..4 {
            arena.slot(function).expect("a slot").store(Level::Full.slot(header(function)), Ordering::Relaxed);
        }
        // It joins events together.
        arena.slot(3).expect("a slot").store(pinned_slot(header(3)), Ordering::Relaxed);
        arena.control().slots_used.store(4, Ordering::Relaxed);
        let mut levels = Levels::new(now);
        levels.begin(arena, super::super::Pace::Rings, SessionNs(0));
        let set = |levels: &mut Levels, functions: &[u32], level| levels.set(arena, functions, level, SessionNs(1));
        assert_eq!(set(&mut levels, &[0, 3], Some(Level::Counted)), SetLevels { set: 1, fixed: 1 });
        assert_eq!(set(&mut levels, &[1], Some(Level::Off)), SetLevels { set: 1, fixed: 0 });
        assert_eq!(set(&mut levels, &[2], Some(Level::Full)), SetLevels { set: 1, fixed: 0 });
        assert_eq!(levels.take_changes().len(), 2);
        // Nobody calls them, so that there would be room for all; and what is full does not turn itself down.
        assert!(!set_slot(arena.slot(2).expect("a slot"), Level::Counted));
        for look in 1..50 {
            levels.look(arena, &[0], now + Duration::from_millis(20 * look), SessionNs(2), || None);
        }
        let counts = levels.counts(arena);
        assert_eq!((counts.full, counts.counted, counts.off, counts.set), (2, 1, 1, 3));
        assert_eq!(levels.turned_down().functions, 2);
        // A forked child begins with all of that.
        let mut child = Levels::new(now);
        child.begin(arena, super::super::Pace::Rings, SessionNs(0));
        child.inherit(arena, levels.pinned(), SessionNs(0));
        assert_eq!((child.counts(arena), child.pinned()), (counts, levels.pinned()));
        assert_eq!(set(&mut levels, &[0, 1, 2, 3], None), SetLevels { set: 3, fixed: 0 });
        assert!(set_slot(arena.slot(2).expect("a slot"), Level::Counted));
        for look in 50..500 {
            levels.look(arena, &[0], now + Duration::from_millis(20 * look), SessionNs(3), || None);
        }
        assert_eq!(levels.counts(arena).full, 4);
        // Where everything may be followed, all is that is nobody's business.
        assert_eq!(set(&mut levels, &[1], Some(Level::Off)).set, 1);
        assert!(set_slot(arena.slot(0).expect("a slot"), Level::Counted));
        levels.set_pace(super::super::Pace::Any);
        levels.look(arena, &[0], now + Duration::from_secs(20), SessionNs(4), || None);
        let counts = levels.counts(arena);
        assert_eq!((counts.full, counts.counted, counts.off), (3, 0, 1));
        // Nor is it turned down for good because it was set once, be it that everything was followed from the start.
        let mut levels = Levels::new(now);
        levels.begin(arena, super::super::Pace::Any, SessionNs(0));
        assert_eq!(set(&mut levels, &[0, 1], Some(Level::Off)).set, 2);
        assert_eq!(set(&mut levels, &[0, 1, 9], None), SetLevels { set: 2, fixed: 1 });
        levels.look(arena, &[0], now + Duration::from_secs(40), SessionNs(5), || None);
        assert_eq!(levels.counts(arena).full, 4);
    }
}
