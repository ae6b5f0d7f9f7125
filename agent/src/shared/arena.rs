//! The block of memory itself, mapped from outside.

use std::{
    fs::File,
    io,
    os::{
        fd::OwnedFd,
        unix::fs::{FileExt, MetadataExt},
    },
    ptr::{self, NonNull},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FallocateFlags, SeekFrom, fallocate, seek},
    mm::{MapFlags, ProtFlags, mmap, munmap},
};

use super::{
    CONTROL_BYTES, Control, HEAD_BYTES, MAGIC, MOST_SLOTS, RingHead, SLOT_BYTES, Shape, VERSION,
    ring::{self, MappedRing},
};

/// Why the memory of a target cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// It cannot be read or mapped.
    #[error("cannot map the memory that is shared with the target: {0}")]
    Map(#[source] io::Error),
    /// It is not ours, or a library of another version made it.
    #[error("the memory that is shared with the target is not laid out as this version does it")]
    Layout,
}

/// The memory, mapped outside the target.
///
/// The target writes to it at any time, and a program that is traced may write anything anywhere. So nothing here is
/// trusted: fields are atomics, records are copied out before they are looked at.
#[derive(Debug)]
pub struct Arena {
    file: File,
    base: NonNull<u8>,
    bytes: usize,
    shape: Shape,
    /// The process that the target is, where it matters whether it lives.
    target: OnceLock<OwnedFd>,
}

// SAFETY: the mapping belongs to the value, and what it holds is only reached through atomics and copies.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps the memory behind a file that the target made.
    pub fn map(file: File) -> Result<Self, ArenaError> {
        let mut start = [0; 64];
        file.read_exact_at(&mut start, 0).map_err(ArenaError::Map)?;
        let word = |at: usize| u64::from_le_bytes(start[at..at + 8].try_into().expect("eight bytes"));
        let shape = Shape { ring_bytes: word(16) as usize, rings: word(24) as usize };
        let sane = word(0) == MAGIC && word(8) as u32 == VERSION && shape.ring_bytes.is_power_of_two();
        let length = file.metadata().map_err(ArenaError::Map)?.len();
        let bytes = shape.bytes().filter(|bytes| sane && shape.ring_bytes >= HEAD_BYTES && *bytes as u64 == length);
        let bytes = bytes.ok_or(ArenaError::Layout)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: a new mapping, at an address that the system chooses, of a file that is as long as it says. Nobody
        // shortens it: the target has no descriptor of it any more.
        let base = unsafe { mmap(ptr::null_mut(), bytes, protection, flags, &file, 0) };
        let base = base.map_err(|error| ArenaError::Map(error.into()))?;
        let base = NonNull::new(base.cast()).ok_or(ArenaError::Layout)?;
        Ok(Self { file, base, bytes, shape, target: OnceLock::new() })
    }

    /// The file's number, by which it is known in the maps of whoever has mapped it.
    pub fn inode(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.ino())
    }

    /// Says which process the target is: nobody waits for one that has ended.
    pub fn is_of(&self, process: OwnedFd) {
        // There is one.
        let _ = self.target.set(process);
    }

    /// Whether the target is known to have ended.
    pub fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let is_over =
            |process| poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)).is_ok_and(|ended| ended > 0);
        self.target.get().is_some_and(is_over)
    }

    /// How it is laid out.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The first page.
    pub fn control(&self) -> &Control {
        // SAFETY: the mapping starts with it, is aligned to a page, and all of its fields are atomics or unused.
        unsafe { self.base.cast().as_ref() }
    }

    /// How many rings have ever been in use.
    pub fn rings_used(&self) -> usize {
        // ORDERING: pairs with the release of the thread that took the ring.
        (self.control().rings_used.load(Ordering::Acquire) as usize).min(self.shape.rings)
    }

    /// The head of a ring.
    pub fn head(&self, ring: usize) -> &RingHead {
        assert!(ring < self.shape.rings, "there is no ring {ring}");
        // SAFETY: within the mapping, since there are so many rings; aligned to a page; all fields are atomics.
        unsafe { self.base.add(self.shape.head_at(ring)).cast().as_ref() }
    }

    /// Copies words that a ring holds behind what was read, at most this many, up to the ring's end. Where the writer
    /// skipped to the start, so does this. Returns how far the ring is read then, if `words` are taken off it.
    ///
    /// The copy may end inside a record; there is more behind then.
    pub fn copy(&self, ring: usize, most_words: usize, words: &mut Vec<u64>) -> u64 {
        ring::copy(&self.ring(ring), most_words, words)
    }

    /// Says that a ring is read up to here.
    pub fn advance(&self, ring: usize, read: u64) {
        ring::advance(&self.ring(ring), read);
    }

    /// A ring, as both ends have it.
    pub fn ring(&self, ring: usize) -> MappedRing {
        let start = self.base.as_ptr() as usize + self.shape.head_at(ring) + HEAD_BYTES;
        // SAFETY: there are so many rings, as `head` makes sure, and all of them are mapped as long as this is.
        unsafe { MappedRing::new(self.head(ring), start, self.shape.ring_bytes) }
    }

    /// The slot of a function, if it has a number that has one: what it holds says which [level](super::Level) it has.
    pub fn slot(&self, function: u32) -> Option<&AtomicU64> {
        self.word(CONTROL_BYTES, function)
    }

    /// How many calls of a function the thread of a ring has counted.
    pub fn counter(&self, ring: usize, function: u32) -> Option<&AtomicU64> {
        assert!(ring < self.shape.rings, "there is no ring {ring}");
        self.word(self.shape.counters_at(ring), function)
    }

    /// How many calls the thread of a ring has counted, by function. What nobody has written to is not touched: it would take up
    /// memory then.
    pub fn counted(&self, ring: usize, mut each: impl FnMut(u32, u64)) {
        const WORDS: usize = 4096 / 8;
        let start = self.shape.counters_at(ring);
        let mut at = start;
        while at < start + SLOT_BYTES
            && let Ok(data) = seek(&self.file, SeekFrom::Data(at as u64))
            && (data as usize) < start + SLOT_BYTES
        {
            let first = (data as usize - start) / 8;
            for function in first..(first + WORDS).min(MOST_SLOTS) {
                // ORDERING: a count.
                let count = self.counter(ring, function as u32).map_or(0, |count| count.load(Ordering::Relaxed));
                if count > 0 {
                    each(function as u32, count);
                }
            }
            at = start + 8 * (first + WORDS);
        }
    }

    /// The word of a function among those that are there.
    fn word(&self, at: usize, function: u32) -> Option<&AtomicU64> {
        let function = Some(function as usize).filter(|function| *function < MOST_SLOTS)?;
        // SAFETY: within the mapping, since each of these has so many words, and is aligned to a page.
        Some(unsafe { self.base.add(at + 8 * function).cast().as_ref() })
    }

    /// Gives a ring, whose thread is gone and which is empty, to the next new thread, and its memory back to the system.
    pub fn free(&self, ring: usize) {
        let head = self.head(ring);
        let (start, bytes) = (self.shape.head_at(ring) + HEAD_BYTES, self.shape.ring_bytes + SLOT_BYTES);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if fallocate(&self.file, flags, start as u64, bytes as u64).is_err() {
            // The memory stays in use, and is used again with the ring. The next thread begins to count anew.
            for counter in (0..).map_while(|function| self.counter(ring, function)) {
                // ORDERING: made visible by the state below.
                counter.store(0, Ordering::Relaxed);
            }
        }
        head.free();
    }
}

impl Arena {
    /// Gives the memory of all rings back to the system: nobody will read them. The slots stay, for children that have them.
    pub fn release(&self) {
        let start = self.shape.head_at(0);
        let (start, bytes) = (start as u64, (self.bytes - start) as u64);
        // Where this is refused the memory stays in use until the program ends.
        let _ = fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, start, bytes);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this size, and nothing borrows from it any more. Nothing can be done about errors.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests;
