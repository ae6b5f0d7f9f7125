//! Shadow stacks: which hooked functions are on a stack, and where each really returns to.
//!
//! A hooked function returns to its stub; where it was called from is kept here. Each real stack has a shadow stack: which
//! one a thread needs is in [`stacks`](super::stacks).

use core::{
    mem::offset_of,
    ptr,
    sync::atomic::{AtomicU32, AtomicUsize, Ordering},
};

use super::{
    routines,
    stacks::{LEVELS, Links},
    sys,
    thread::Thread,
};
use crate::shared::Watched;

/// A hooked function that has been entered and not left. `routines` knows the layout.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Entry {
    /// Where its return address is on the stack. With [`SLOW`] where leaving it is not the common case, and with [`DEAD`]
    /// where it is not there any more.
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

/// In an entry's slot: another thread has seen that the function is left, or that its stack is gone.
const DEAD: usize = 2;

/// In an entry's slot: another thread needed the real return address there, and it must stay.
const RELEASED: usize = 4;

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
        self.slot & !(SLOW | DEAD | RELEASED)
    }

    /// Whether something has to be told when it is left.
    pub(super) fn is_slow(&self) -> bool {
        self.slot & SLOW != 0
    }

    /// Whether it stands for nothing any more.
    pub(super) fn is_dead(&self) -> bool {
        self.slot & DEAD != 0
    }

    /// Has it stand for nothing any more.
    pub(super) fn kill(&mut self) {
        self.slot |= DEAD;
    }

    /// Whether its return address must stay as it is.
    pub(super) fn is_released(&self) -> bool {
        self.slot & RELEASED != 0
    }

    /// Has the return address of an entry stay as it is, if that entry is still this one.
    ///
    /// # Safety
    ///
    /// There was an entry at this place; somebody may push another there meanwhile.
    pub(super) unsafe fn release(at: *mut Self, this: &Self) {
        // SAFETY: entries are never unmapped.
        let slot = unsafe { AtomicUsize::from_ptr(&raw mut (*at).slot) };
        // ORDERING: who arms it again does that under the same lock.
        let _ = slot.compare_exchange(this.slot, this.slot | RELEASED, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Has `leave` take the slow way.
    pub(super) fn make_slow(&mut self) {
        self.slot |= SLOW;
    }

    /// What its slot holds while it is hooked: a place in its stub.
    pub(super) fn armed(&self) -> usize {
        self.stub + TO_LEAVE
    }

    /// Whether a word that is in a slot is a place in a stub, and not a return address of the program's.
    pub(super) fn is_armed(word: usize) -> bool {
        let enter = word.wrapping_sub(TO_LEAVE + FROM_HEADER).wrapping_add(offset_of!(Header, enter));
        sys::peek(enter).is_some_and(routines::is_enter)
    }

    /// An entry that is the oldest of all: its slot is higher than any.
    pub(super) const fn ground() -> Self {
        Self { slot: usize::MAX, real: 0, stub: 0, entered: 0 }
    }

    /// The header of its function.
    pub(super) fn header(&self) -> &'static Header {
        Header::of(self.stub)
    }
}

/// What a stub starts with. The outside writes it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Header {
    /// The function's address.
    pub(super) function: usize,
    /// What it is watched for: a place in the table of [`watch`](super::watch), plus 1; 0 for nothing.
    pub(super) watch: AtomicU32,
    /// Not 0 where its code jumps to its start. In any other, who comes there again has been called again, by a function that it
    /// jumped to and that jumped back, and of which nothing is told.
    pub(super) loops: u32,
    /// The routine that its stub calls.
    pub(super) enter: AtomicUsize,
    /// The second word of its records: function number and kind, see [`record`](crate::shared::header).
    pub(super) record: u64,
}

impl Header {
    /// That of the stub that has this place, to which `enter` returns.
    pub(super) fn of(stub: usize) -> &'static Self {
        // SAFETY: stubs and their headers are never unmapped, and this is how far apart they are.
        unsafe { &*((stub - FROM_HEADER) as *const Self) }
    }

    /// What it is watched for.
    pub(super) fn watch(&self) -> u32 {
        // ORDERING: who was led here by the watched routine sees it; others may see it later.
        self.watch.load(Ordering::Relaxed)
    }

    /// Whether it is watched for this.
    pub(super) fn is(&self, watched: Watched) -> bool {
        self.watch() == watched as u32 + 1
    }
}

/// What is known of where a stack lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The program has said it.
    Told,
    /// It is the main thread's own.
    Main,
    /// It is another thread's own, and nothing else is mapped with it.
    Own,
    /// It is in a mapping that looks like a stack. There may be several in it.
    Mapped,
}

/// The shadow of one real stack. It belongs to the table of [`stacks`](super::stacks), and is never unmapped.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Shadow {
    /// On each level of the index, the next one. It comes first, see [`of_links`](Self::of_links).
    pub(super) next: Links,
    /// Where the real stack is.
    pub(super) low: usize,
    pub(super) size: usize,
    pub(super) place: Place,
    /// The youngest entry, unless somebody runs on it: then that thread knows.
    pub(super) top: *mut Entry,
    /// The entry below the oldest, whose slot is higher than any. Null where it has no memory.
    pub(super) base: *mut Entry,
    /// How much memory it has.
    pub(super) class: usize,
    /// Who runs on it, or did so last and was not seen to leave.
    pub(super) owner: *mut Thread,
    /// Where an unwinder was called whose stack this is, if it may still be at work; otherwise 0.
    pub(super) unwinder: usize,
    /// Of which time its entries are.
    pub(super) generation: u32,
    /// The shadow that was made before this one.
    pub(super) older: *mut Self,
}

impl Shadow {
    /// One of a stack that lies there, with nothing on it and no memory.
    pub(super) fn at(low: usize, high: usize) -> Self {
        Self {
            next: [ptr::null_mut(); LEVELS],
            low,
            size: high - low,
            place: Place::Mapped,
            top: ptr::null_mut(),
            base: ptr::null_mut(),
            class: 0,
            owner: ptr::null_mut(),
            unwinder: 0,
            generation: 0,
            older: ptr::null_mut(),
        }
    }

    /// The shadow that these links are of.
    ///
    /// # Safety
    ///
    /// They are a shadow's.
    pub(super) unsafe fn of_links(links: *mut Links) -> *mut Self {
        links.cast()
    }

    pub(super) fn holds(&self, address: usize) -> bool {
        address.wrapping_sub(self.low) < self.size
    }

    pub(super) fn end(&self) -> usize {
        self.low + self.size
    }

    /// The youngest entry.
    pub(super) fn live_top(&self) -> *mut Entry {
        // SAFETY: threads are never unmapped. One that runs writes this word at any time.
        if self.owner.is_null() { self.top } else { unsafe { (&raw const (*self.owner).top).read_volatile() } }
    }

    /// The entries, from the youngest one to the oldest.
    pub(super) fn entries(&self) -> impl Iterator<Item = *mut Entry> + use<> {
        entries(self.base, self.live_top())
    }
}

/// The entries from the youngest one, which is `top`, to the oldest, which is behind `base`.
pub(super) fn entries(base: *mut Entry, top: *mut Entry) -> impl Iterator<Item = *mut Entry> {
    let count = (top as usize).saturating_sub(base as usize) / size_of::<Entry>();
    (0..count).map(move |place| top.wrapping_sub(place))
}

/// What a thread has as its youngest entry that runs on no stack that is known.
pub(super) fn no_entry() -> *mut Entry {
    static NONE: NoEntry = NoEntry(Entry::ground());
    (&raw const NONE.0).cast_mut()
}

struct NoEntry(Entry);

// SAFETY: it is only read.
unsafe impl Sync for NoEntry {}
