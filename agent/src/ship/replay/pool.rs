//! Buffers that are used again.

/// What a small buffer holds.
const SMALL_BYTES: usize = 4 << 10;

/// How many bytes of each kind are kept for later.
const MOST_SPARE_BYTES: usize = 16 << 20;

/// An event that did not fit any more is encoded before that is noticed: one with all registers and the largest stack.
const ROOM_FOR_ONE_MORE: usize = 1 << 10;

/// Large buffers, which hold a parcel while it is filled, and small ones, for parcels that were sent almost empty.
#[derive(Debug)]
pub(super) struct Pool {
    large_bytes: usize,
    large: Vec<Vec<u8>>,
    small: Vec<Vec<u8>>,
}

impl Pool {
    pub(super) fn new(limit: usize) -> Self {
        Self { large_bytes: limit + ROOM_FOR_ONE_MORE, large: Vec::new(), small: Vec::new() }
    }

    pub(super) fn take_large(&mut self) -> Vec<u8> {
        self.large.pop().unwrap_or_else(|| Vec::with_capacity(self.large_bytes))
    }

    /// A small buffer, where that is worth it for so many bytes.
    pub(super) fn take_small(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let worth = bytes <= SMALL_BYTES && self.large_bytes > 4 * SMALL_BYTES;
        worth.then(|| self.small.pop().unwrap_or_else(|| Vec::with_capacity(SMALL_BYTES)))
    }

    pub(super) fn give(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        let spare = match buffer.capacity() {
            capacity if capacity >= self.large_bytes => &mut self.large,
            SMALL_BYTES => &mut self.small,
            _ => return,
        };
        if spare.len() * buffer.capacity() < MOST_SPARE_BYTES {
            spare.push(buffer);
        }
    }
}
