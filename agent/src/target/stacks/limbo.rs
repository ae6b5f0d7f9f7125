//! Functions that may be on a stack still, though nobody runs where it was taken to be: a hash table by their slots.

use core::ptr;

use crate::target::{shadow::Entry, sys};

/// A function, and its depth on the stack that it was called on.
#[derive(Debug, Clone, Copy)]
pub(in crate::target) struct Suspended {
    pub(in crate::target) entry: Entry,
    pub(in crate::target) depth: u32,
    /// Whether it was told to be gone.
    pub(in crate::target) is_told: bool,
}

/// How many places there are at first.
const FIRST_PLACES: usize = 256;

pub(super) struct Limbo {
    places: *mut Suspended,
    /// How many there are: a power of two, or 0.
    count: usize,
    used: usize,
}

impl Limbo {
    pub(super) const fn new() -> Self {
        Self { places: ptr::null_mut(), count: 0, used: 0 }
    }

    /// Adds a function. One that had the same slot is gone. Whether there was memory for it.
    pub(super) fn insert(&mut self, suspended: Suspended) -> bool {
        if 4 * (self.used + 1) > 3 * self.count && !self.make_room() {
            return false;
        }
        let at = self.place_of(suspended.entry.slot());
        // SAFETY: there is always a place that is free.
        unsafe {
            self.used += usize::from((*at).entry.slot() == 0);
            *at = suspended;
        }
        true
    }

    /// Takes out the function with this slot.
    pub(super) fn take(&mut self, slot: usize) -> Option<Suspended> {
        if self.count == 0 {
            return None;
        }
        let at = self.place_of(slot);
        // SAFETY: places are initialised, free ones with zeros.
        unsafe {
            let found = *at;
            if found.entry.slot() != slot {
                return None;
            }
            self.used -= 1;
            // What comes behind it may have wanted its place.
            let mut free = at.offset_from_unsigned(self.places);
            let mut next = free;
            loop {
                next = (next + 1) & (self.count - 1);
                let other = *self.places.add(next);
                if other.entry.slot() == 0 {
                    break;
                }
                let wanted = self.wanted(other.entry.slot());
                if next.wrapping_sub(wanted) & (self.count - 1) >= next.wrapping_sub(free) & (self.count - 1) {
                    *self.places.add(free) = other;
                    free = next;
                }
            }
            self.places.add(free).write_bytes(0, 1);
            Some(found)
        }
    }

    /// All of them.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        // SAFETY: places are initialised, free ones with zeros.
        let all = (0..self.count).map(|place| unsafe { (*self.places.add(place)).entry });
        all.filter(|entry| entry.slot() != 0)
    }

    fn wanted(&self, slot: usize) -> usize {
        (slot >> 3).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20 & (self.count - 1)
    }

    /// Where a slot is, or would be.
    fn place_of(&self, slot: usize) -> *mut Suspended {
        let mut place = self.wanted(slot);
        loop {
            // SAFETY: within the places, of which one is free.
            let at = unsafe { self.places.add(place) };
            // SAFETY: places are initialised.
            let there = unsafe { (*at).entry.slot() };
            if there == slot || there == 0 {
                return at;
            }
            place = (place + 1) & (self.count - 1);
        }
    }

    /// Moves what may still be on a stack to a table that is large enough.
    fn make_room(&mut self) -> bool {
        let places = core::mem::take(&mut self.count);
        let old = self.places;
        // SAFETY: places are initialised.
        let all = || (0..places).map(|place| unsafe { *old.add(place) });
        let is_there = |suspended: &Suspended| {
            let entry = suspended.entry;
            entry.slot() != 0 && sys::peek(entry.slot()) == Some(entry.armed())
        };
        let there = all().filter(is_there).count();
        let count = (2 * (there + 1)).next_power_of_two().max(FIRST_PLACES);
        let Some(memory) = sys::map(count * size_of::<Suspended>()) else {
            self.count = places;
            return false;
        };
        (self.places, self.count, self.used) = (memory.cast(), count, 0);
        for suspended in all().filter(is_there).take(count / 2) {
            // SAFETY: half of the places stay free.
            unsafe { *self.place_of(suspended.entry.slot()) = suspended };
            self.used += 1;
        }
        if places > 0 {
            // SAFETY: it was mapped with this size, and nobody else knows of it.
            unsafe { sys::call(sys::MUNMAP, [old as usize, places * size_of::<Suspended>(), 0, 0, 0, 0]) };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn it_holds_what_a_map_holds() {
        let (mut limbo, mut model) = (Limbo::new(), HashMap::new());
        // All of them stay on their stacks.
        let stub = 0x1000;
        let armed = Entry::new(8, 0, stub, 0, false).armed();
        let stack = vec![armed; 1000];
        let mut random = 11_u64;
        for turn in 0..50_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let slot = &raw const stack[(random >> 33) as usize % stack.len()] as usize;
            if random >> 63 == 0 {
                assert!(limbo.insert(Suspended {
                    entry: Entry::new(slot, turn, stub, 0, false),
                    depth: 0,
                    is_told: false
                }));
                model.insert(slot, turn);
            } else {
                assert_eq!(limbo.take(slot).map(|found| found.entry.real), model.remove(&slot));
            }
            assert_eq!(limbo.used, model.len());
        }
    }

    #[test]
    fn it_forgets_what_is_gone() {
        let mut limbo = Limbo::new();
        let stack = vec![0_usize; 100_000];
        for word in &stack {
            assert!(limbo.insert(Suspended {
                entry: Entry::new(ptr::from_ref(word) as usize, 1, 0x1000, 0, false),
                depth: 0,
                is_told: false,
            }));
        }
        assert_eq!(limbo.count, FIRST_PLACES);
    }
}
