//! Levels: how much of a function's calls is told, which can change at any moment while the program runs.
//!
//! A hooked function jumps to the gate of its stub, and that jumps on through its slot: a word in the shared memory, by the
//! function's number, which holds an address in the stub. So one store changes the level, from outside as from inside, and
//! no thread has to be stopped for that. A function that was entered before is left as it was entered.
//!
//! Before the header of a stub that has a gate, see [`stub`](crate::stub):
//!
//! | from the header | bytes | what |
//! |---:|---:|---|
//! | −112 | 1 | nothing |
//! | −111 | 96 | counts the call, and jumps to the copy; for a thread that is not known, as if it were full |
//! | −15 | 1 | nothing |
//! | −14 | 5 | jumps to where a full call goes |
//! | −9 | 1 | nothing |
//! | −8 | 7 | the gate: `jmp [slot]` |
//! | −1 | 1 | nothing |
//!
//! Headers are aligned, so that the lowest bits of a slot say which of these it holds, and so where the header is.

#[cfg(feature = "outside")]
use core::sync::atomic::{AtomicU64, Ordering};

use super::BEFORE_CODE;

/// How many functions have slots: those with the lowest numbers. All others are full for good.
pub const MOST_SLOTS: usize = 1 << 19;

/// Bytes of all slots, and of the counters of one ring: a word for each function.
pub const SLOT_BYTES: usize = 8 * MOST_SLOTS;

/// Bytes before the header of a stub that has a gate.
pub const BEFORE_HEADER: usize = 112;

/// How far before the header a counted call goes, and one that is full for good; and where the gate is.
pub const COUNTED: usize = 111;
/// See [`COUNTED`].
pub const PINNED: usize = 14;
/// See [`COUNTED`].
pub const GATE: usize = 8;

/// How far behind the header the copy of a function's first instructions is, where a call goes of which nothing is told.
pub const OFF: usize = 54;

/// What the gate of every stub begins with.
pub const GATE_START: [u8; 3] = [0xFF, 0x24, 0x25];

/// Headers are multiples of this.
const ALIGN: u64 = 16;

/// How much of a function's calls is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// Every call, and its return.
    Full = 0,
    /// How many calls each thread has made.
    Counted = 1,
    /// Nothing.
    Off = 2,
}

impl Level {
    /// The level with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Full, Self::Counted, Self::Off].into_iter().find(|level| *level as u32 == number)
    }

    /// What the slot of a function holds whose header is there.
    pub const fn slot(self, header: u64) -> u64 {
        match self {
            Self::Full => header + BEFORE_CODE as u64,
            Self::Counted => header - COUNTED as u64,
            Self::Off => header + OFF as u64,
        }
    }
}

/// What the slot holds of a function that must stay full.
pub const fn pinned_slot(header: u64) -> u64 {
    header - PINNED as u64
}

/// What a slot says: the level, whether that must stay, and where the header is. `None` where there is no gate.
pub fn read_slot(slot: u64) -> Option<(Level, bool, u64)> {
    const FULL: u64 = BEFORE_CODE as u64 % ALIGN;
    const COUNT: u64 = (BEFORE_HEADER - COUNTED) as u64 % ALIGN;
    const PIN: u64 = (BEFORE_HEADER - PINNED) as u64 % ALIGN;
    const COPY: u64 = OFF as u64 % ALIGN;
    match (slot, slot % ALIGN) {
        (0, _) => None,
        (_, FULL) => Some((Level::Full, false, slot.wrapping_sub(BEFORE_CODE as u64))),
        (_, PIN) => Some((Level::Full, true, slot.wrapping_add(PINNED as u64))),
        (_, COUNT) => Some((Level::Counted, false, slot.wrapping_add(COUNTED as u64))),
        (_, COPY) => Some((Level::Off, false, slot.wrapping_sub(OFF as u64))),
        _ => None,
    }
}

/// Sets the level of a function by its slot. Whether it has it now: not where it must stay full, or has no gate.
#[cfg(feature = "outside")]
pub fn set_slot(slot: &AtomicU64, level: Level) -> bool {
    // ORDERING: the code that it leads to has been there before the function could be called.
    let set = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| match read_slot(before) {
        Some((_, false, header)) => Some(level.slot(header)),
        _ => None,
    });
    set.is_ok()
}

/// Has a function be full and stay so. Whether it is, and need not have been before.
#[cfg(feature = "outside")]
pub fn pin_slot(slot: &AtomicU64) -> bool {
    // ORDERING: as in `set_slot`.
    let set = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| match read_slot(before) {
        Some((_, false, header)) => Some(pinned_slot(header)),
        _ => None,
    });
    set.is_ok()
}

/// Has a function that was pinned be full as others are.
#[cfg(feature = "outside")]
pub fn unpin_slot(slot: &AtomicU64) {
    // ORDERING: as in `set_slot`.
    let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| match read_slot(before) {
        Some((_, true, header)) => Some(Level::Full.slot(header)),
        _ => None,
    });
}

#[cfg(all(test, feature = "outside"))]
mod tests {
    use super::*;

    #[test]
    fn a_slot_says_which_level_it_is_and_whose() {
        let header = 0x7F00_1234_5670;
        for level in [Level::Full, Level::Counted, Level::Off] {
            assert_eq!(read_slot(level.slot(header)), Some((level, false, header)));
        }
        assert_eq!(read_slot(pinned_slot(header)), Some((Level::Full, true, header)));
        assert_eq!((read_slot(0), read_slot(header + 3)), (None, None));
    }

    #[test]
    fn what_must_stay_full_does() {
        let header = 0x10_0000;
        let slot = AtomicU64::new(Level::Full.slot(header));
        for level in [Level::Counted, Level::Off, Level::Full] {
            assert!(set_slot(&slot, level));
            assert_eq!(slot.load(Ordering::Relaxed), level.slot(header));
        }
        for stays in [pinned_slot(header), 0] {
            let slot = AtomicU64::new(stays);
            assert!(!set_slot(&slot, Level::Counted));
            assert_eq!(slot.load(Ordering::Relaxed), stays);
        }
    }
}
