//! The two ends of a ring: where a thread writes, and where the outside reads.
//!
//! The common case of writing is in assembly, in the target. It does what is here: its plain stores are releases, and its
//! plain loads acquires, as those of x86 are.

#[cfg(feature = "outside")]
use core::ptr;
use core::sync::atomic::Ordering;

use super::{RingHead, SKIP, atomic::Atomic};
use crate::shared::{Kind, header};

/// A ring, as either end reaches it.
pub trait Ring {
    /// The kind of the words in its head.
    type Word: Atomic<u64>;
    /// The kind of the halves of words in it.
    type Half: Atomic<u32>;

    /// Its head.
    fn head(&self) -> &RingHead<Self::Word, Self::Half>;

    /// Where it starts.
    fn start(&self) -> usize;

    /// Bytes in it.
    fn size(&self) -> usize;

    /// Writes a word so many bytes behind its start.
    ///
    /// # Safety
    ///
    /// That is within the ring, a multiple of eight, and nobody reads it meanwhile.
    unsafe fn write(&self, at: usize, word: u64);

    /// Copies so many words from there.
    ///
    /// # Safety
    ///
    /// They are within the ring, and `at` is a multiple of eight.
    #[cfg(feature = "outside")]
    unsafe fn read(&self, at: usize, words: usize, into: &mut Vec<u64>);
}

/// A ring in memory that both ends have mapped.
#[derive(Debug, Clone, Copy)]
pub struct MappedRing {
    head: *const RingHead,
    start: usize,
    size: usize,
}

impl MappedRing {
    /// The ring that lies there.
    ///
    /// # Safety
    ///
    /// So many bytes are mapped there, and are aligned to a page. Head and ring stay mapped as long as this is used.
    pub unsafe fn new(head: &RingHead, start: usize, size: usize) -> Self {
        Self { head, start, size }
    }

    /// Whether there is one. All zeros are none.
    pub fn is_some(&self) -> bool {
        !self.head.is_null()
    }
}

impl Ring for MappedRing {
    type Word = core::sync::atomic::AtomicU64;
    type Half = core::sync::atomic::AtomicU32;

    fn head(&self) -> &RingHead {
        // SAFETY: it is mapped as long as this is used, and without one nobody asks.
        unsafe { &*self.head }
    }

    fn start(&self) -> usize {
        self.start
    }

    fn size(&self) -> usize {
        self.size
    }

    unsafe fn write(&self, at: usize, word: u64) {
        // SAFETY: promised by the caller.
        unsafe { ((self.start + at) as *mut u64).write(word) };
    }

    #[cfg(feature = "outside")]
    unsafe fn read(&self, at: usize, words: usize, into: &mut Vec<u64>) {
        into.reserve(words);
        // SAFETY: the source is mapped, as the caller has promised, and the vector has room. A target that writes there
        // meanwhile, which it should not, changes what is copied and nothing else: words have no invalid values, and the
        // compiler cannot see either side of this copy.
        unsafe {
            let to = into.as_mut_ptr().add(into.len());
            ptr::copy_nonoverlapping((self.start + at) as *const u8, to.cast(), 8 * words);
            into.set_len(into.len() + words);
        }
    }
}

/// Where a thread writes. The assembly knows the layout.
#[derive(Debug)]
#[repr(C)]
pub struct WritingEnd {
    /// Where the next record goes.
    pub next: usize,
    /// Up to where may be written without looking again. 0 while events are being dropped.
    pub end: usize,
    /// The ring's `written`, less `next`.
    pub bias: usize,
    /// Events that were dropped and are in no record yet.
    pub untold: u64,
    /// The most bytes that may be written before somebody looks again, however much room there is.
    pub chunk: usize,
}

impl WritingEnd {
    /// That of an empty ring.
    pub fn new(ring: &impl Ring) -> Self {
        let start = ring.start();
        Self { next: start, end: start + ring.size(), bias: start.wrapping_neg(), untold: 0, chunk: usize::MAX }
    }

    /// Writes a record, if there is room, and before it how many events were dropped. Whether there was.
    pub fn put(&mut self, ring: &impl Ring, record: &[u64]) -> bool {
        if !self.find_room(ring, record.len() * 8) {
            self.end = 0;
            return false;
        }
        if self.untold > 0 {
            let time = record.first().copied().unwrap_or(1);
            self.copy(ring, &[time, header(Kind::Dropped, 3, 0, 0), self.untold]);
            self.untold = 0;
        }
        self.copy(ring, record);
        self.publish(ring);
        true
    }

    /// Counts an event that there was no room for.
    pub fn drop_event(&mut self, ring: &impl Ring) {
        self.untold += 1;
        let dropped = &ring.head().dropped;
        // ORDERING: only this thread writes it, and it is read when nothing is written any more.
        dropped.store(dropped.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn copy(&mut self, ring: &impl Ring, record: &[u64]) {
        for word in record {
            // SAFETY: there is room, as was made sure, and all records are whole words.
            unsafe { ring.write(self.next - ring.start(), *word) };
            self.next += 8;
        }
    }

    /// How much was written, in all.
    pub fn written(&self) -> usize {
        self.next.wrapping_add(self.bias)
    }

    fn publish(&self, ring: &impl Ring) {
        // ORDERING: the reader sees what was written before.
        ring.head().written.store(self.written() as u64, Ordering::Release);
    }

    /// Looks how far the ring has been read, and finds room for this many bytes in one piece. Skips to the ring's start
    /// if need be.
    pub fn find_room(&mut self, ring: &impl Ring, bytes: usize) -> bool {
        // ORDERING: what was read is not read again, so it may be overwritten.
        let read = ring.head().read.load(Ordering::Acquire) as usize;
        let (start, size) = (ring.start(), ring.size());
        let free = size - self.written().wrapping_sub(read).min(size);
        // Once events are dropped, they are until there is room for many: a gap is better than a hundred small ones.
        let (needed, enough) = match self.untold {
            0 => (bytes, bytes),
            _ => (bytes + 24, size / 4),
        };
        let behind = start + size - self.next;
        if needed <= behind {
            let room = free >= needed.max(enough);
            self.end = if room { self.next + free.min(behind).min(self.chunk.max(needed)) } else { self.end };
            return room;
        }
        if free < behind + needed.max(enough) {
            return false;
        }
        if behind > 0 {
            // SAFETY: it is within the ring, and free.
            unsafe { ring.write(self.next - ring.start(), SKIP) };
        }
        self.next = start;
        self.bias = self.bias.wrapping_add(size);
        self.publish(ring);
        self.end = start + (free - behind).min(size).min(self.chunk.max(needed));
        true
    }
}

/// Copies words that a ring holds behind what was read, at most this many, up to the ring's end. Where the writer skipped
/// to the start, so does this. Returns how far the ring is read then, if `words` are taken off it.
#[cfg(feature = "outside")]
pub(crate) fn copy(ring: &impl Ring, most_words: usize, words: &mut Vec<u64>) -> u64 {
    words.clear();
    // ORDERING: only this side writes it.
    let mut read = ring.head().read.load(Ordering::Relaxed);
    // ORDERING: pairs with the writer's release: what was written before is visible.
    let written = ring.head().written.load(Ordering::Acquire);
    loop {
        let size = ring.size() as u64;
        let (at, there) = (read & (size - 1) & !7, written.saturating_sub(read).min(size));
        let count = there.min(size - at).min(8 * most_words as u64) / 8;
        if count == 0 {
            return read;
        }
        // SAFETY: it ends within the ring.
        unsafe { ring.read(at as usize, count as usize, words) };
        if words.first() != Some(&SKIP) {
            return read;
        }
        // Nothing else is behind the skip, up to the ring's end.
        words.clear();
        read += size - at;
        advance(ring, read);
    }
}

/// Says that a ring is read up to here.
#[cfg(feature = "outside")]
pub(crate) fn advance(ring: &impl Ring, read: u64) {
    // ORDERING: the writer may overwrite what was copied; the copies come before.
    ring.head().read.store(read, Ordering::Release);
}
