//! A target without a program: rings in memory, and threads that write to them by the rules, from outside.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    sync::{Arc, atomic::Ordering},
};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::shared::{Arena, HEAD_BYTES, Kind, MAGIC, RingState, SKIP, Shape, VERSION, header, tsc};

/// The memory of a target that is not there.
#[derive(Debug)]
pub(crate) struct FakeTarget {
    pub(crate) arena: Arc<Arena>,
    file: File,
}

impl FakeTarget {
    pub(crate) fn new(ring_bytes: usize, rings: usize) -> Self {
        let shape = Shape { ring_bytes, rings };
        let file = File::from(memfd_create("rings", MemfdFlags::CLOEXEC).expect("memory"));
        file.set_len(shape.bytes().expect("it can be addressed") as u64).expect("memory");
        for (at, word) in [(0, MAGIC), (8, VERSION.into()), (16, ring_bytes as u64), (24, rings as u64)] {
            file.write_all_at(&word.to_le_bytes(), at).expect("memory");
        }
        let arena = Arc::new(Arena::map(file.try_clone().expect("a descriptor")).expect("it is laid out well"));
        Self { arena, file }
    }

    /// A thread takes a ring.
    pub(crate) fn thread(&self, ring: usize, tid: u32, name: &str) -> FakeThread {
        self.thread_with(ring, tid, name, 0)
    }

    /// The same, with the handle that pthread functions know it by.
    pub(crate) fn thread_with(&self, ring: usize, tid: u32, name: &str, pthread: u64) -> FakeThread {
        let head = self.arena.head(ring);
        assert!(!head.is_live(), "ring {ring} is taken");
        let mut bytes = [0; 16];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        head.tid.store(tid, Ordering::Relaxed);
        head.pthread.store(pthread, Ordering::Relaxed);
        head.taken.store(tsc::now(), Ordering::Relaxed);
        for (place, word) in head.name.iter().zip(bytes.as_chunks::<8>().0) {
            place.store(u64::from_le_bytes(*word), Ordering::Relaxed);
        }
        self.arena.control().rings_used.fetch_max(ring as u32 + 1, Ordering::Release);
        // ORDERING: whoever sees it live sees the rest.
        head.state.store(RingState::Live as u32, Ordering::Release);
        let file = self.file.try_clone().expect("a descriptor");
        FakeThread { arena: Arc::clone(&self.arena), file, ring, written: 0, untold: 0, produced: 0 }
    }
}

/// A thread that has a ring.
#[derive(Debug)]
pub(crate) struct FakeThread {
    arena: Arc<Arena>,
    file: File,
    pub(crate) ring: usize,
    pub(crate) written: u64,
    /// Events that were dropped and are in no record yet.
    untold: u64,
    /// Events, those that were dropped included.
    pub(crate) produced: u64,
}

impl FakeThread {
    pub(crate) fn call(&mut self, function: u32, depth: u32) -> bool {
        self.event(&[tsc::now(), header(Kind::Call, 2, depth, function)])
    }

    /// Writes an event, or drops it where there is no room. Whether there was.
    pub(crate) fn event(&mut self, record: &[u64]) -> bool {
        self.events(record, 1)
    }

    /// Writes records that are so many events together, or drops all of them.
    pub(crate) fn events(&mut self, records: &[u64], count: u64) -> bool {
        self.produced += count;
        let kept = self.put(records);
        if !kept {
            self.untold += count;
            self.arena.head(self.ring).dropped.fetch_add(count, Ordering::Relaxed);
        }
        kept
    }

    /// Writes records, if there is room.
    pub(crate) fn put(&mut self, records: &[u64]) -> bool {
        let told = match self.untold {
            0 => Vec::new(),
            untold => vec![tsc::now(), header(Kind::Dropped, 3, 0, 0), untold],
        };
        let records = [&told, records].concat();
        let (bytes, size) = (8 * records.len() as u64, self.arena.shape().ring_bytes as u64);
        // ORDERING: what was read may be overwritten.
        let free = size - (self.written - self.arena.head(self.ring).read.load(Ordering::Acquire));
        let behind = size - self.written % size;
        let skipped = if bytes > behind { behind } else { 0 };
        if free < skipped + bytes {
            return false;
        }
        if skipped > 0 {
            self.write(&[SKIP]);
            self.written += skipped;
        }
        self.write(&records);
        self.written += bytes;
        self.untold = 0;
        // ORDERING: whoever sees how far it is written sees what is.
        self.arena.head(self.ring).written.store(self.written, Ordering::Release);
        true
    }

    /// Writes words where the next record goes, and tells nobody.
    fn write(&self, words: &[u64]) {
        let Shape { ring_bytes, .. } = self.arena.shape();
        let start = self.arena.shape().head_at(self.ring) + HEAD_BYTES;
        let at = start as u64 + self.written % ring_bytes as u64;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.file.write_all_at(&bytes, at).expect("memory");
    }
}
