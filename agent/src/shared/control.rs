//! The first page: how the rings are laid out, what the outside says to the target, and the mailbox between them.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// What the memory starts with.
pub const MAGIC: u64 = u64::from_le_bytes(*b"spoor\0\0\x01");

/// The version of everything in [`shared`](super).
pub const VERSION: u32 = 1;

/// In [`Control::flags`]: a thread that finds its ring full waits instead of dropping the event.
pub const FLAG_BLOCK: u32 = 1;

/// In [`Control::flags`]: registers and stack are recorded.
pub const FLAG_DETAIL: u32 = 2;

/// What both halves know of the whole.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Control {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Flags, as the target was started with.
    pub flags: AtomicU32,
    /// Bytes in a ring: a power of two.
    pub ring_bytes: AtomicU64,
    /// How many rings there is room for.
    pub rings: AtomicU64,
    /// Bytes of stack recorded with a call.
    pub stack_bytes: AtomicU64,
    /// The longest a thread's shadow stack may get.
    pub max_depth: AtomicU64,
    _pad: [u64; 2],
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
    _pad_notes: [u64; 3],
    /// Where a thread of the target waits for the outside.
    pub mailbox: Mailbox,
}

/// One thread of the target asks the outside for something, and does what it is told until it is told to go on.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Mailbox {
    /// The thread whose turn it is; 0 for nobody.
    pub owner: AtomicU32,
    /// A [`Turn`], and what both sides wait on.
    pub turn: AtomicU32,
    /// What the thread tells: 0 that it is ready for hooks to be installed, 1 that a module was loaded, 2 unloaded.
    pub subject: AtomicU32,
    /// Which [`Command`] the outside gives.
    pub command: AtomicU32,
    /// The module's base address.
    pub module: AtomicU64,
    /// What the command is about.
    pub arguments: [AtomicU64; 4],
    /// What came of it.
    pub answer: AtomicU64,
}

/// Whose turn it is in the mailbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Turn {
    /// Nobody's.
    Nobody = 0,
    /// The outside's: a thread requests something, or has done what it was told.
    Outside = 1,
    /// The thread's: it has a command to execute.
    Target = 2,
}

/// What a thread in the mailbox is told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Command {
    /// Go on.
    GoOn = 0,
    /// Map memory that can be read and executed at argument 0, argument 1 bytes. The answer is where, or 0 if the place
    /// is taken.
    Map = 1,
    /// Never trace the thread whose id is argument 0.
    Ignore = 2,
    /// The [`Landmark`](super::Landmark) whose number is argument 0 is at argument 1, and ends before argument 2.
    Landmark = 3,
    /// Put the real return addresses back on all stacks: nothing is hooked any more.
    Restore = 4,
}

impl Command {
    /// The command with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::GoOn, Self::Map, Self::Ignore, Self::Landmark, Self::Restore]
            .into_iter()
            .find(|command| *command as u32 == number)
    }
}
