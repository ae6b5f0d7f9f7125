//! Shadow stacks: which hooked functions are on a stack, and where each really returns to.
//!
//! A hooked function returns to its stub; where it was called from is kept here. A thread has one shadow stack for each
//! real stack that it runs on, since handlers on alternate stacks and coroutines come and go at any moment.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::sys;

/// How many real stacks a thread is remembered to run on.
pub(super) const STACKS: usize = 24;

/// The least and the most entries of a shadow stack.
const LEAST_ENTRIES: usize = 1 << 12;
const MOST_ENTRIES: usize = 1 << 20;

/// A hooked function that has been entered and not left. `routines` knows the layout.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Entry {
    /// Where its return address is on the stack. With [`SLOW`] where leaving it is not the common case.
    slot: usize,
    /// What that was.
    pub(super) real: usize,
    /// The place in its stub that `enter` returned to.
    pub(super) stub: usize,
    /// When it was entered.
    pub(super) entered: u64,
}

/// In an entry's slot, which is aligned to eight bytes: `leave` takes the slow way.
const SLOW: usize = 1;

/// From the place in a stub that `enter` returns to, to the place that the function returns to.
const TO_LEAVE: usize = 10;

/// From the stub's header to the place in it that `enter` returns to.
pub(super) const FROM_HEADER: usize = 38;

impl Entry {
    pub(super) fn new(slot: usize, real: usize, stub: usize, entered: u64, slow: bool) -> Self {
        Self { slot: slot | if slow { SLOW } else { 0 }, real, stub, entered }
    }

    /// Where its return address is on the stack.
    pub(super) fn slot(&self) -> usize {
        self.slot & !SLOW
    }

    /// Whether something has to be told when it is left.
    pub(super) fn is_slow(&self) -> bool {
        self.slot & SLOW != 0
    }

    /// Has `leave` take the slow way.
    pub(super) fn make_slow(&mut self) {
        self.slot |= SLOW;
    }

    /// What its slot holds while it is hooked: a place in its stub.
    pub(super) fn armed(&self) -> usize {
        self.stub + TO_LEAVE
    }

    /// # Safety
    ///
    /// The slot is on a stack that is still mapped.
    pub(super) unsafe fn is_armed(&self) -> bool {
        // SAFETY: promised by the caller; slots are aligned, since the stack pointer is at every call.
        unsafe { *(self.slot() as *const usize) == self.armed() }
    }

    /// The header of its function.
    pub(super) fn header(&self) -> &'static Header {
        // SAFETY: stubs and their headers are never unmapped, and this is how far apart they are.
        unsafe { &*((self.stub - FROM_HEADER) as *const Header) }
    }
}

/// What a stub starts with. The outside writes it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Header {
    /// The function's address.
    pub(super) function: usize,
    /// What it is watched for: a place in the table of [`watch`](super::watch), plus 1; 0 for nothing.
    pub(super) watch: AtomicU64,
    /// The routine that its stub calls.
    pub(super) enter: AtomicUsize,
    /// The second word of its records: function number and kind, see [`record`](crate::shared::header).
    pub(super) record: u64,
}

impl Header {
    /// What it is watched for.
    pub(super) fn watch(&self) -> u64 {
        // ORDERING: who was led here by the watched routine sees it; others may see it later.
        self.watch.load(Ordering::Relaxed)
    }
}

/// The shadow of one real stack.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Shadow {
    /// Where the real stack is.
    pub(super) low: usize,
    pub(super) size: usize,
    /// The youngest entry.
    pub(super) top: *mut Entry,
    /// The entry below the oldest, whose slot is higher than any.
    pub(super) base: *mut Entry,
    /// The last entry that may be the youngest, and how many there is memory for.
    pub(super) limit: *mut Entry,
    pub(super) entries: usize,
    /// Whether the program has said where the stack is.
    pub(super) is_learned: bool,
}

impl Shadow {
    pub(super) fn holds(&self, slot: usize) -> bool {
        slot.wrapping_sub(self.low) < self.size
    }

    pub(super) fn overlaps(&self, low: usize, high: usize) -> bool {
        self.size > 0 && self.low < high && low < self.low + self.size
    }

    pub(super) fn is_empty(&self) -> bool {
        self.top == self.base
    }

    /// The entries, from the youngest one, which is `top`, to the oldest.
    ///
    /// # Safety
    ///
    /// Entries above the base up to there are initialised.
    pub(super) unsafe fn entries(base: *mut Entry, top: *mut Entry) -> impl Iterator<Item = Entry> {
        let count = (top as usize).saturating_sub(base as usize) / size_of::<Entry>();
        // SAFETY: promised by the caller.
        (0..count).map(move |place| unsafe { *top.wrapping_sub(place) })
    }

    /// Makes it the shadow of a stack that lies there, with nothing on it. Whether there was memory for that.
    pub(super) fn assign(&mut self, low: usize, high: usize, most_depth: usize) -> bool {
        // No two return addresses are closer than sixteen bytes: one would be the other's.
        let wanted = ((high - low) / 16).clamp(LEAST_ENTRIES, MOST_ENTRIES);
        if self.entries < wanted {
            // The old one is left to be: somebody may be looking for an address in it. It is small in comparison.
            let Some(memory) = sys::map((wanted + 2) * size_of::<Entry>()) else { return false };
            self.base = memory.cast();
            self.entries = wanted;
            // SAFETY: fresh memory that is large enough, aligned to a page.
            unsafe { (*self.base).slot = usize::MAX };
        }
        (self.low, self.size, self.top, self.is_learned) = (low, high - low, self.base, false);
        // SAFETY: there are two entries more than `entries`.
        self.limit = unsafe { self.base.add(self.entries.min(most_depth)) };
        true
    }
}
