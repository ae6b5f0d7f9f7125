//! The writing end of a thread's ring.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{
    patience::{Patience, heartbeat},
    sys,
};
use crate::shared::{
    Control, FLAG_BLOCK, FLAG_DETAIL, Kind, MAX_RECORD_WORDS, ReaderState, RingHead, SKIP, header, tsc,
};

/// How long to sleep while the ring is full and the outside is alive.
const NAP_MICROSECONDS: u64 = 50;

/// How many events are dropped before somebody looks again whether there is room: to look costs more than to drop.
const UNLOOKED: i64 = 64;

/// Where a thread writes. `routines` knows the layout.
///
/// It lies on a page that a forked child finds empty: there, no room is ever left, and [`is_open`](Self::is_open) says no.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Writer {
    /// Where the next record goes.
    pub(super) next: usize,
    /// Up to where may be written without looking again. 0 while events are being dropped.
    pub(super) end: usize,
    /// The ring's `written`.
    pub(super) written: *const AtomicU64,
    /// What that is, less `next`.
    pub(super) bias: usize,
    /// Bytes of stack in the record of a call.
    pub(super) window: usize,
    /// Bytes in the largest record of a call.
    pub(super) largest: usize,
    head: *const RingHead,
    control: *const Control,
    start: usize,
    size: usize,
    /// Events that were dropped and are in no record yet.
    pub(super) untold: u64,
    /// How many more are dropped without a look whether there is room.
    pub(super) unlooked: i64,
    /// The ring's `dropped`.
    pub(super) dropped: *const AtomicU64,
    /// The heartbeat that the outside stopped at.
    stopped_at: u32,
    blocks: bool,
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
        *self = Self {
            next: start,
            end: start + size,
            written: &raw const head.written,
            bias: start.wrapping_neg(),
            window: window as usize,
            largest: 88 + window as usize,
            head,
            control,
            start,
            size,
            untold: 0,
            unlooked: 0,
            dropped: &raw const head.dropped,
            stopped_at: 0,
            blocks: flags & FLAG_BLOCK != 0,
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
            (&raw mut (*writer).unlooked).write_volatile(0);
            (&raw mut (*writer).end).write_volatile(0);
        }
    }

    /// Whether there is a ring. There is none in a forked child.
    pub(super) fn is_open(&self) -> bool {
        !self.head.is_null()
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
        // SAFETY: rings are never unmapped, and without one nobody asks.
        unsafe { &*self.head }
    }

    /// Writes a record that is an event, or counts it as dropped.
    pub(super) fn event(&mut self, record: &[u64]) {
        if !self.put(record) {
            self.untold += 1;
            self.unlooked = if self.is_stale { 0 } else { UNLOOKED };
            // ORDERING: only this thread writes it, and it is read when nothing is written any more.
            let dropped = self.head().dropped.load(Ordering::Relaxed);
            self.head().dropped.store(dropped + 1, Ordering::Relaxed);
        }
    }

    /// Writes a record. Whether there was room.
    pub(super) fn put(&mut self, record: &[u64]) -> bool {
        debug_assert!(record.len() <= MAX_RECORD_WORDS);
        if !self.make_room(record.len() * 8) {
            self.end = 0;
            return false;
        }
        if self.untold > 0 {
            self.copy(&[tsc::now(), header(Kind::Dropped, 3, 0, 0), self.untold]);
            self.untold = 0;
        }
        self.unlooked = 0;
        self.copy(record);
        self.publish();
        true
    }

    fn copy(&mut self, record: &[u64]) {
        for word in record {
            // SAFETY: there is room, as was made sure, and `next` is aligned since all records are whole words.
            unsafe { (self.next as *mut u64).write(*word) };
            self.next += 8;
        }
    }

    fn publish(&self) {
        // ORDERING: the reader sees what was written before.
        self.head().written.store(self.next.wrapping_add(self.bias) as u64, Ordering::Release);
    }

    /// Looks how far the ring has been read, and finds room for this many bytes in one piece. Skips to the ring's start
    /// if need be, and waits if it was told to.
    fn make_room(&mut self, bytes: usize) -> bool {
        if self.find_room(bytes) {
            return true;
        }
        if !self.blocks {
            return false;
        }
        // ORDERING: a hint for the outside.
        self.head().waiting.store(1, Ordering::Relaxed);
        let found = self.wait_for_room(bytes);
        self.head().waiting.store(0, Ordering::Relaxed);
        found
    }

    fn wait_for_room(&mut self, bytes: usize) -> bool {
        // SAFETY: it is never unmapped.
        let control: &'static Control = unsafe { &*self.control };
        let mut patience = Patience::new(control);
        while !self.find_room(bytes) {
            let Control { recording, stalled, .. } = control;
            // ORDERING: hints; what matters is how far the ring is read.
            let (recording, stalled) = (recording.load(Ordering::Relaxed), stalled.load(Ordering::Relaxed));
            let heartbeat = heartbeat(control);
            if recording == 0 || heartbeat == self.stopped_at || stalled != 0 {
                return false;
            }
            if !patience.lasts() {
                self.stopped_at = heartbeat;
                return false;
            }
            sys::sleep_microseconds(NAP_MICROSECONDS);
        }
        true
    }

    fn find_room(&mut self, bytes: usize) -> bool {
        // ORDERING: what was read is not read again, so it may be overwritten.
        let read = self.head().read.load(Ordering::Acquire) as usize;
        let free = self.size - self.next.wrapping_add(self.bias).wrapping_sub(read).min(self.size);
        // Once events are dropped, they are until there is room for many: a gap is better than a hundred small ones.
        let (needed, enough) = match self.untold {
            0 => (bytes, bytes),
            _ => (bytes + 24, self.size / 4),
        };
        let behind = self.start + self.size - self.next;
        if needed <= behind {
            let room = free >= needed.max(enough);
            self.end = if room { self.next + free.min(behind) } else { self.end };
            return room;
        }
        if free < behind + needed.max(enough) {
            return false;
        }
        if behind > 0 {
            // SAFETY: it is within the ring, free, and aligned.
            unsafe { (self.next as *mut u64).write(SKIP) };
        }
        self.next = self.start;
        self.bias = self.bias.wrapping_add(self.size);
        self.publish();
        self.end = self.start + (free - behind).min(self.size);
        true
    }
}
