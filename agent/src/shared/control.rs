//! The first page: how the rings are laid out, and what the outside says to the target.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Mailbox;

/// What the memory starts with.
pub const MAGIC: u64 = u64::from_le_bytes(*b"spoor\0\0\x01");

/// The version of everything in [`shared`](super).
pub const VERSION: u32 = 4;

/// In [`Control::flags`]: a thread that finds its ring full waits instead of dropping the event.
pub const FLAG_BLOCK: u32 = 1;

/// In [`Control::flags`]: registers and stack are recorded.
pub const FLAG_DETAIL: u32 = 2;

/// In [`Control::flags`]: the processor and the system let programs write `gs`.
pub const FLAG_WRITE_GS: u32 = 4;

/// In [`Control::flags`]: forked children are followed.
pub const FLAG_FOLLOW_FORKS: u32 = 8;

/// In [`Control::flags`]: programs that the process runs in its place, or has a child run, are followed.
pub const FLAG_FOLLOW_PROGRAMS: u32 = 16;

/// In [`Control::flags`]: functions turn themselves down where a ring would overflow, or recording takes more than it may.
pub const FLAG_TURN_DOWN: u32 = 32;

/// What both halves know of the whole.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Control {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Flags, as the target was started with; the outside may change what is done where there is too much.
    pub flags: AtomicU32,
    /// Bytes in a ring: a power of two.
    pub ring_bytes: AtomicU64,
    /// How many rings there is room for.
    pub rings: AtomicU64,
    /// Bytes of stack recorded with a call.
    pub stack_bytes: AtomicU64,
    /// The longest a thread's shadow stack may get.
    pub max_depth: AtomicU64,
    /// Where the slots of functions are in the target a second time, below 2 GiB; 0 where there was no room: then all
    /// functions are full.
    pub slots: AtomicU64,
    /// From outside: how many slots are in use.
    pub slots_used: AtomicU64,
    /// From outside: 1 while events are wanted. What is called at other times is passed through.
    pub recording: AtomicU32,
    /// From outside: counts up as long as somebody empties the rings. Who waits for room watches it.
    pub heartbeat: AtomicU32,
    /// Rings below this have been in use.
    pub rings_used: AtomicU32,
    /// Threads that found no free ring.
    pub threads_without_ring: AtomicU32,
    /// What the program said its exit code is, plus 1; 0 while it has not.
    pub exit_code: AtomicU64,
    /// How often a function was given to a runtime to be called that could not be watched.
    pub unwatchable: AtomicU64,
    /// 1 while a thread asks the system to run another program in this process. Where it stays so, that was done.
    pub executing: AtomicU64,
    /// From outside: 1 while nobody is to wait for room, since the collector has taken nothing for long.
    pub stalled: AtomicU64,
    /// From outside: how many milliseconds a thread waits at least for an outside that lives and is stopped.
    pub stall_ms: AtomicU64,
    /// From outside: the thread that empties the rings, as [`Lifeline`](super::Lifeline) has it.
    pub reader: AtomicU32,
    /// Modules that were loaded or unloaded while nobody answered, and of which the outside does not know.
    pub unserved: AtomicU32,
    /// How many children the program has begun to fork.
    pub forks: AtomicU32,
    /// Children that could not be followed, since another thread was just changing what they inherited.
    pub torn: AtomicU32,
    /// From outside: what part of a thread's processor time recording may take besides, in 65,536ths; 0 for any.
    pub share: AtomicU64,
    /// From outside: what a byte of records costs, in 256ths of a nanosecond.
    pub cost: AtomicU64,
    /// Where a thread of the target waits for the outside.
    pub mailbox: Mailbox,
}

/// The kernel sets it in the word of a thread that has ended, however it ended, and takes the thread's id out.
const DIED: u32 = 0x4000_0000;

/// What is known of the thread that empties the rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReaderState {
    /// There is none, yet or any more.
    None,
    /// It is there, and may be stopped.
    Alive,
    /// It was killed.
    Dead,
}

impl ReaderState {
    /// What [`Control::reader`] tells.
    pub fn of(word: &AtomicU32) -> Self {
        // ORDERING: a hint.
        match word.load(Ordering::Relaxed) {
            0 => Self::None,
            word if word & DIED != 0 => Self::Dead,
            _ => Self::Alive,
        }
    }
}
