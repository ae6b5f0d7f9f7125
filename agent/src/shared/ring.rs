//! The head of a ring: whose it is, how far it is written, how far it is read.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

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
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct RingHead {
    /// A [`RingState`].
    pub state: AtomicU32,
    /// The thread's id with the system.
    pub tid: AtomicU32,
    /// The handle that pthread functions know the thread by.
    pub pthread: AtomicU64,
    /// When it took the ring, by the counter.
    pub taken: AtomicU64,
    /// The thread's name then, padded with zeros.
    pub name: [AtomicU64; 2],
    _pad: [u64; 2],
    /// How far it is written.
    pub written: AtomicU64,
    /// Events that found no room, in all. Those that are not in a `dropped` record yet come behind everything written.
    pub dropped: AtomicU64,
    /// Calls that were passed through unrecorded because the shadow stack was full.
    pub too_deep: AtomicU64,
    /// Calls that were passed through unrecorded because they were made by a signal handler that had interrupted the
    /// recording of another.
    pub interrupted: AtomicU64,
    /// 1 while the thread waits for room. A handler that jumps out of that leaves it so until the next time.
    pub waiting: AtomicU64,
    /// Calls that were passed through unrecorded because another thread seemed to run on the same stack.
    pub unplaced: AtomicU64,
    _pad_writer: [u64; 2],
    /// How far it is read.
    pub read: AtomicU64,
    _pad_reader: [u64; 7],
}

const _: () = assert!(size_of::<RingHead>() == 192);

impl RingHead {
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
