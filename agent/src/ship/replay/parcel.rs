//! Events as they travel: parcels, the segments in them, and the buffers that they use again.

/// Consecutive events of one stream in a parcel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) parcel: u64,
    pub(super) first: u64,
    pub(super) count: u32,
    pub(super) offset: u32,
    pub(super) bytes: u32,
    /// When it was last sent again, in milliseconds, and up to which byte.
    pub(super) again_ms: u64,
    pub(super) again_bytes: u32,
}

impl Segment {
    pub(super) fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }
}

/// What a datagram carries.
#[derive(Debug)]
pub(super) struct Parcel {
    /// Empty once all of its segments are kept.
    pub(super) bytes: Vec<u8>,
    /// How many of its segments are not kept by the collector.
    pub(super) segments: u32,
    /// The bytes of those that the collector has not received.
    pub(super) unreceived_bytes: u64,
    pub(super) sent: bool,
    pub(super) sent_ms: u64,
}

impl Parcel {
    /// The collector has received one of its segments.
    pub(super) fn receive(&mut self, segment: &Segment, in_flight: &mut u64) {
        self.unreceived_bytes = self.unreceived_bytes.saturating_sub(segment.bytes.into());
        if self.sent {
            *in_flight = in_flight.saturating_sub(segment.bytes.into());
        }
        // It was sent before it was to be sent again.
        self.sent |= self.unreceived_bytes == 0;
    }

    /// One of its segments is not needed any longer.
    pub(super) fn free(&mut self, kept: &mut usize, pool: &mut Pool) {
        self.segments = self.segments.saturating_sub(1);
        if self.segments == 0 {
            *kept -= self.bytes.capacity();
            pool.give(std::mem::take(&mut self.bytes));
        }
    }
}

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
