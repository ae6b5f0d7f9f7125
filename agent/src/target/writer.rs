//! The writing end of a thread's ring.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{
    budget::Budget,
    patience::{Patience, heartbeat},
    sys,
};
use crate::shared::{
    Control, FLAG_BLOCK, FLAG_DETAIL, FLAG_TURN_DOWN, MAX_RECORD_WORDS, MappedRing, ReaderState, Ring, RingHead,
    WritingEnd,
};

/// How long to sleep while the ring is full and the outside is alive.
const NAP_MICROSECONDS: u64 = 50;

/// How often to sleep at most where functions turn themselves down: a ring may be full of calls of functions that are called
/// once, of which none is the one that is called too often. After that, events are dropped until there is room.
const SHORT_NAPS: u32 = 200;

/// How many events are dropped before somebody looks again whether there is room: to look costs more than to drop.
const UNLOOKED: i64 = 64;

/// Where a thread writes. `routines` knows the layout.
///
/// It lies on a page that a forked child finds empty: there, no room is ever left, and [`is_open`](Self::is_open) says no.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Writer {
    /// Where calls are counted that are not recorded. Stubs know that it comes first.
    counters: usize,
    pub(super) place: WritingEnd,
    /// The ring's `written`.
    pub(super) written: *const AtomicU64,
    /// Bytes of stack in the record of a call.
    pub(super) window: usize,
    /// Bytes in the largest record of a call.
    pub(super) largest: usize,
    /// How many more are dropped without a look whether there is room.
    pub(super) unlooked: i64,
    /// The ring's `dropped`.
    pub(super) dropped: *const AtomicU64,
    /// The ring's `interrupted`.
    pub(super) interrupted: *const AtomicU64,
    ring: MappedRing,
    control: *const Control,
    budget: Budget,
    /// The heartbeat that the outside stopped at.
    stopped_at: u32,
    /// How often it sleeps at most where there is no room.
    naps: u32,
    /// Whether its ring is of a time before the program was attached to again: the slow way has to find out.
    is_stale: bool,
    pub(super) detail: bool,
}

impl Writer {
    /// Starts to write to an empty ring.
    pub(super) fn open(&mut self, control: &'static Control, head: &'static RingHead, start: usize) {
        // ORDERING: all of it was written before the first thread could get here.
        let (flags, window) = (control.flags.load(Ordering::Relaxed), control.stack_bytes.load(Ordering::Relaxed));
        let size = control.ring_bytes.load(Ordering::Relaxed) as usize;
        // SAFETY: rings are never unmapped.
        let ring = unsafe { MappedRing::new(head, start, size) };
        *self = Self {
            counters: start + size,
            place: WritingEnd::new(&ring),
            written: &raw const head.written,
            window: window as usize,
            largest: 88 + window as usize,
            unlooked: 0,
            dropped: &raw const head.dropped,
            interrupted: &raw const head.interrupted,
            ring,
            control,
            budget: Budget::new(control, size),
            stopped_at: 0,
            naps: most_naps(flags),
            is_stale: false,
            detail: flags & FLAG_DETAIL != 0,
        };
    }

    /// Has its thread look for another ring at its next call.
    ///
    /// # Safety
    ///
    /// It lies in memory that stays mapped. Its thread may run meanwhile.
    pub(super) unsafe fn make_stale(writer: *mut Self) {
        // SAFETY: promised by the caller; the thread sees each of these now or later.
        unsafe {
            (&raw mut (*writer).is_stale).write_volatile(true);
            (&raw mut (*writer).counters).write_volatile(0);
            (&raw mut (*writer).unlooked).write_volatile(0);
            (&raw mut (*writer).place.end).write_volatile(0);
        }
    }

    /// Whether there is a ring. There is none in a forked child.
    pub(super) fn is_open(&self) -> bool {
        self.ring.is_some()
    }

    /// Whether who emptied the rings was killed.
    pub(super) fn is_deserted(&self) -> bool {
        // SAFETY: it is never unmapped.
        ReaderState::of(unsafe { &(*self.control).reader }) == ReaderState::Dead
    }

    /// Whether the thread that took the ring is the one that calls.
    pub(super) fn is_of_this_thread(&self) -> bool {
        // ORDERING: written by this thread, or by the one whose memory it has.
        self.head().tid.load(Ordering::Relaxed) == sys::gettid()
    }

    pub(super) fn head(&self) -> &RingHead {
        self.ring.head()
    }

    /// Writes a record that is an event, or counts it as dropped.
    pub(super) fn event(&mut self, record: &[u64]) {
        if !self.put(record) {
            self.place.drop_event(&self.ring);
            self.unlooked = if self.is_stale { 0 } else { UNLOOKED };
        }
    }

    /// Writes a record, and waits for room if it was told to. Whether there was.
    pub(super) fn put(&mut self, record: &[u64]) -> bool {
        debug_assert!(record.len() <= MAX_RECORD_WORDS);
        self.settle();
        let mut is_put = self.place.put(&self.ring, record);
        // Where it did not help to wait for long, it does not before there is room again.
        let may_wait = self.naps == u32::MAX || self.naps > 0 && self.place.untold == 0;
        if !is_put && may_wait {
            // ORDERING: a hint for the outside.
            self.head().waiting.store(1, Ordering::Relaxed);
            is_put = self.wait_for_room(record.len() * 8) && self.place.put(&self.ring, record);
            self.head().waiting.store(0, Ordering::Relaxed);
        }
        if is_put {
            self.unlooked = 0;
        }
        is_put
    }

    /// Looks what recording has cost, if it is time to.
    fn settle(&mut self) {
        // ORDERING: a hint.
        let read = self.head().read.load(Ordering::Relaxed) as usize;
        let (written, size) = (self.place.written(), self.ring.size());
        let free = size - written.wrapping_sub(read).min(size);
        // SAFETY: it is never unmapped.
        let control: &'static Control = unsafe { &*self.control };
        // What recording may cost can change at any time.
        // ORDERING: a hint.
        self.naps = most_naps(control.flags.load(Ordering::Relaxed));
        self.budget.update(control, written, size);
        self.place.chunk = self.budget.settle(written, self.largest, free, size);
    }

    /// Whether the function whose call or return was just recorded is to be turned down.
    pub(super) fn turns_down(&mut self) -> bool {
        self.budget.take_over()
    }

    fn wait_for_room(&mut self, bytes: usize) -> bool {
        // SAFETY: it is never unmapped.
        let control: &'static Control = unsafe { &*self.control };
        let mut patience = Patience::new(control);
        let mut naps = 0;
        while !self.place.find_room(&self.ring, bytes) {
            let Control { recording, stalled, .. } = control;
            // ORDERING: hints; what matters is how far the ring is read.
            let (recording, stalled) = (recording.load(Ordering::Relaxed), stalled.load(Ordering::Relaxed));
            let heartbeat = heartbeat(control);
            self.naps = most_naps(control.flags.load(Ordering::Relaxed));
            if recording == 0 || heartbeat == self.stopped_at || stalled != 0 || naps >= self.naps {
                return false;
            }
            naps += u32::from(self.naps < u32::MAX);
            if !patience.lasts() {
                self.stopped_at = heartbeat;
                return false;
            }
            sys::sleep_microseconds(NAP_MICROSECONDS);
        }
        true
    }
}

/// How often a thread sleeps at most where there is no room.
fn most_naps(flags: u32) -> u32 {
    match flags & (FLAG_BLOCK | FLAG_TURN_DOWN) {
        0 => 0,
        FLAG_TURN_DOWN => SHORT_NAPS,
        _ => u32::MAX,
    }
}
