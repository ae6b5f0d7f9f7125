//! A target without a program: rings in memory, and threads that write to them by the rules, from outside.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    sync::{Arc, atomic::Ordering},
};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::shared::{Arena, Kind, MAGIC, Shape, VERSION, WritingEnd, header, tsc};

/// The memory of a target that is not there.
#[derive(Debug)]
pub(crate) struct FakeTarget {
    pub(crate) arena: Arc<Arena>,
}

impl FakeTarget {
    pub(crate) fn new(ring_bytes: usize, rings: usize) -> Self {
        let shape = Shape { ring_bytes, rings };
        let file = File::from(memfd_create("rings", MemfdFlags::CLOEXEC).expect("memory"));
        file.set_len(shape.bytes().expect("it can be addressed") as u64).expect("memory");
        for (at, word) in [(0, MAGIC), (8, VERSION.into()), (16, ring_bytes as u64), (24, rings as u64)] {
            file.write_all_at(&word.to_le_bytes(), at).expect("memory");
        }
        let arena = Arc::new(Arena::map(file).expect("it is laid out well"));
        Self { arena }
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
        head.open();
        let place = WritingEnd::new(&self.arena.ring(ring));
        FakeThread { arena: Arc::clone(&self.arena), ring, place, produced: 0 }
    }
}

/// A thread that has a ring.
#[derive(Debug)]
pub(crate) struct FakeThread {
    arena: Arc<Arena>,
    pub(crate) ring: usize,
    place: WritingEnd,
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
            (0..count).for_each(|_| self.place.drop_event(&self.arena.ring(self.ring)));
        }
        kept
    }

    /// Writes records, if there is room.
    pub(crate) fn put(&mut self, records: &[u64]) -> bool {
        self.place.put(&self.arena.ring(self.ring), records)
    }
}
