//! Events as they travel: parcels, and the segments in them.

use super::pool::Pool;

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
    /// Empty once all of its segments are settled.
    pub(super) bytes: Vec<u8>,
    /// How many of its segments are not settled, and their bytes.
    pub(super) segments: u32,
    pub(super) unsettled_bytes: u64,
    pub(super) sent: bool,
    pub(super) sent_ms: u64,
}

impl Parcel {
    /// One of its segments is settled.
    pub(super) fn settle(&mut self, segment: &Segment, in_flight: &mut u64, kept: &mut usize, pool: &mut Pool) {
        self.segments = self.segments.saturating_sub(1);
        self.unsettled_bytes = self.unsettled_bytes.saturating_sub(segment.bytes.into());
        if self.sent {
            *in_flight = in_flight.saturating_sub(segment.bytes.into());
        }
        if self.segments == 0 {
            *kept -= self.bytes.capacity();
            pool.give(std::mem::take(&mut self.bytes));
        }
    }
}
