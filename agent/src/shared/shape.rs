//! How the memory is laid out, and what else both halves write to or read.

use super::level::SLOT_BYTES;

/// Bytes before the slots of functions, which the first ring's head is behind.
pub const CONTROL_BYTES: usize = 1 << 16;

/// Bytes of a ring's head, of which most are unused: a ring starts on a page.
pub const HEAD_BYTES: usize = 4096;

/// How large the rings are and how many there is room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes in a ring: a power of two, and at least a page.
    pub ring_bytes: usize,
    /// How many rings.
    pub rings: usize,
}

impl Shape {
    /// Bytes in all, if that many can be addressed.
    pub fn bytes(&self) -> Option<usize> {
        self.rings
            .checked_mul(self.ring_bytes.checked_add(HEAD_BYTES + SLOT_BYTES)?)?
            .checked_add(CONTROL_BYTES + SLOT_BYTES)
    }

    /// Where the head of a ring is. The ring lies behind it.
    pub fn head_at(&self, ring: usize) -> usize {
        CONTROL_BYTES + SLOT_BYTES + ring * (HEAD_BYTES + self.ring_bytes + SLOT_BYTES)
    }

    /// Where the counters of a ring are, behind the ring: a word for each function that has a slot.
    pub fn counters_at(&self, ring: usize) -> usize {
        self.head_at(ring) + HEAD_BYTES + self.ring_bytes
    }
}

/// Bytes of the stack that a borrowed thread has.
pub const BORROWED_STACK_BYTES: usize = 1 << 16;

/// What is told of a borrowed thread: it has become by itself what it was.
pub const BORROWED_GONE_BACK: u64 = 2;
/// What is told where no thread is borrowed.
pub const BORROWED_NOBODY: u64 = 3;
/// What is told of one that has gone back but for a few instructions.
pub const BORROWED_LEAVES: u64 = 4;

/// Bytes of the frame that says what a borrowed thread was, and where the general and the extended registers are in it. It
/// begins with the signals that are blocked, and which extended registers are meant.
pub const BORROWED_FRAME_BYTES: usize = 16 << 10;
/// See [`BORROWED_FRAME_BYTES`]. They are in the order of ptrace, without the number of the system call.
pub const FRAME_REGISTERS: usize = 64;
/// See [`BORROWED_FRAME_BYTES`]. They are as the processor has them.
pub const FRAME_EXTENDED: usize = 256;

/// Where it is in what `gs` points to, of a thread that is known, that it says where it is itself.
pub const LOCAL_THIS: usize = 16;

/// Where its state is in that, and its thread pointer; and where in the state of a thread that is traced it says where its
/// counters are.
pub const LOCAL_STATE: usize = 0;
/// See [`LOCAL_STATE`].
pub const LOCAL_POINTER: usize = 8;
/// See [`LOCAL_STATE`].
pub const STATE_COUNTERS: usize = 4096;

/// How far its code is from where a stub starts.
pub const BEFORE_CODE: usize = 32;

/// What the code of every stub begins with.
pub const CODE_START: [u8; 18] =
    [0xFF, 0x15, 0xEA, 0xFF, 0xFF, 0xFF, 0x48, 0x8D, 0x64, 0x24, 0x08, 0xE8, 6, 0, 0, 0, 0xFF, 0x25];
