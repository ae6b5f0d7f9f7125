//! The head of a ring: whose it is, how far it is written, how far it is read.

mod atomic;
mod ends;
#[cfg(test)]
mod model;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use self::atomic::Atomic;
pub use self::ends::{MappedRing, Ring, WritingEnd};
#[cfg(feature = "outside")]
pub(super) use self::ends::{advance, copy};

/// In place of a record: the next one is at the ring's start.
pub const SKIP: u64 = 0;

/// Whether a ring belongs to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum RingState {
    /// It belongs to nobody, and the next new thread may take it.
    Free = 0,
    /// A thread is about to take it; nothing else in the head is valid yet.
    Taken = 1,
    /// It belongs to a thread. Only the outside makes it free again, once the thread is gone and the ring is empty.
    Live = 2,
}

/// The head of a ring. The writer's fields and the reader's are on lines of their own, since each is written often.
///
/// `written` and `read` count bytes since the ring was taken and never wrap; the place in the ring is the count modulo
/// its size. No record goes past the end of the ring.
///
/// Everything that both sides do with it is written for any kind of atomics: a model checker has its own.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct RingHead<A = AtomicU64, B = AtomicU32> {
    /// A [`RingState`].
    pub state: B,
    /// The thread's id with the system.
    pub tid: B,
    /// The handle that pthread functions know the thread by.
    pub pthread: A,
    /// When it took the ring, by the counter.
    pub taken: A,
    /// The thread's name then, padded with zeros.
    pub name: [A; 2],
    _pad: [u64; 2],
    /// How far it is written.
    pub written: A,
    /// Events that found no room, in all. Those that are not in a `dropped` record yet come behind everything written.
    pub dropped: A,
    /// Calls that were passed through unrecorded because the shadow stack was full.
    pub too_deep: A,
    /// Calls that were passed through unrecorded because they were made by a signal handler that had interrupted the
    /// recording of another.
    pub interrupted: A,
    /// 1 while the thread waits for room. A handler that jumps out of that leaves it so until the next time.
    pub waiting: A,
    /// Calls that were passed through unrecorded because they were made on memory that is not known to be a stack, or that
    /// another thread runs on.
    pub unplaced: A,
    _pad_writer: [u64; 2],
    /// How far it is read.
    pub read: A,
    _pad_reader: [u64; 7],
}

const _: () = assert!(size_of::<RingHead>() == 192);

impl<A: Atomic<u64>, B: Atomic<u32>> RingHead<A, B> {
    /// Whether it may be nobody's: a look, which costs less than to try.
    pub fn may_be_free(&self) -> bool {
        // ORDERING: a hint.
        self.state.load(Ordering::Relaxed) == RingState::Free as u32
    }

    /// Has the ring belong to the thread that calls, if it is nobody's. Whether it was.
    pub fn take(&self) -> bool {
        // ORDERING: whoever freed it has reset the head before; only one thread gets it.
        self.state.exchange(RingState::Free as u32, RingState::Taken as u32, Ordering::Acquire)
    }

    /// Says that the head is filled in.
    pub fn open(&self) {
        // ORDERING: whoever sees it live sees what was written before.
        self.state.store(RingState::Live as u32, Ordering::Release);
    }

    /// Gives the ring to the next thread that wants one. Its own thread is gone, and it is empty.
    pub fn free(&self) {
        let counters = [&self.written, &self.dropped, &self.too_deep, &self.interrupted, &self.unplaced];
        for counter in counters.into_iter().chain([&self.waiting, &self.read]) {
            // ORDERING: made visible by the state below.
            counter.store(0, Ordering::Relaxed);
        }
        // ORDERING: pairs with the acquire of the thread that takes it.
        self.state.store(RingState::Free as u32, Ordering::Release);
    }

    /// Whether the ring belongs to a thread, and all of the head is valid.
    pub fn is_live(&self) -> bool {
        // ORDERING: pairs with the writer's release when it has filled in the head.
        self.state.load(Ordering::Acquire) == RingState::Live as u32
    }

    /// The name that the thread had when it took the ring.
    pub fn name(&self) -> [u8; 16] {
        let mut name = [0; 16];
        for (bytes, word) in name.as_chunks_mut::<8>().0.iter_mut().zip(&self.name) {
            // ORDERING: written before the state became live.
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        name
    }
}
