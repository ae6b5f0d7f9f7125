//! The index: every call, return and exception of one thread, 32 bytes each.

mod reader;
mod writer;

pub use reader::{IndexEvents, IndexReader};
pub use writer::IndexWriter;

use super::Origin;
use super::origin::{LITTLE_ENDIAN, VERSION};
use crate::{
    ClockNs, EventKind, FunctionId,
    layout::{Layout, record},
};

/// The header of an index file.
pub const INDEX_HEADER_LAYOUT: Layout = Layout { name: "index header", fields: IndexHead::FIELDS };
/// An event of an index file.
pub const INDEX_EVENT_LAYOUT: Layout = Layout { name: "index event", fields: IndexRecord::FIELDS };
/// The footer of an index file.
pub const INDEX_FOOTER_LAYOUT: Layout = Layout { name: "index footer", fields: IndexFoot::FIELDS };

const HEADER_MAGIC: [u8; 4] = *b"ATI2";
const FOOTER_MAGIC: [u8; 4] = *b"2ITA";
const EVENT_BYTES: u32 = 32;
const HAS_DETAIL: u32 = 1;
const NO_DETAIL: u32 = u32::MAX;

record! { le;
    struct IndexHead[64] {
        magic: [u8; 4],
        endian: u8,
        version: u8,
        arch: u8,
        os: u8,
        flags: u32,
        thread: u32,
        clock: u8,
        reserved: [u8; 7],
        event_bytes: u32,
        event_count: u32,
        events_offset: u64,
        footer_offset: u64,
        first_timestamp: u64,
        last_timestamp: u64,
    }
}

record! { le;
    struct IndexRecord[32] {
        timestamp: u64,
        function: u64,
        thread: u32,
        kind: u32,
        depth: u32,
        detail: u32,
    }
}

record! { le;
    struct IndexFoot[64] {
        magic: [u8; 4],
        checksum: u32,
        event_count: u64,
        first_timestamp: u64,
        last_timestamp: u64,
        events_bytes: u64,
        reserved: [u8; 24],
    }
}

/// An event of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEvent {
    /// When it happened.
    pub timestamp: ClockNs,
    /// The function.
    pub function: FunctionId,
    /// The thread's id with the operating system.
    pub thread: u32,
    /// Whether the function was entered or left.
    pub kind: EventKind,
    /// How many traced functions were below it on the stack.
    pub depth: u32,
    /// The position of its first event in the detail file, where it has any.
    pub detail: Option<u32>,
}

impl IndexEvent {
    /// How many bytes an event takes.
    pub const BYTES: usize = IndexRecord::LEN;

    /// When the event in these bytes happened, if it can be decoded and has no detail.
    #[inline]
    pub fn plain_time(bytes: &[u8; Self::BYTES]) -> Option<ClockNs> {
        let record = IndexRecord::from_bytes(bytes);
        let is_plain = record.detail == NO_DETAIL && EventKind::from_number(record.kind.into()).is_some();
        is_plain.then_some(ClockNs(record.timestamp))
    }

    #[inline]
    fn to_record(self) -> IndexRecord {
        IndexRecord {
            timestamp: self.timestamp.0,
            function: self.function.0,
            thread: self.thread,
            kind: self.kind.number(),
            depth: self.depth,
            detail: self.detail.unwrap_or(NO_DETAIL),
        }
    }

    /// The event, or the kind that does not exist.
    #[inline]
    fn from_record(record: IndexRecord) -> Result<Self, u32> {
        let kind = EventKind::from_number(record.kind.into()).ok_or(record.kind)?;
        Ok(Self {
            timestamp: ClockNs(record.timestamp),
            function: FunctionId(record.function),
            thread: record.thread,
            kind,
            depth: record.depth,
            detail: (record.detail != NO_DETAIL).then_some(record.detail),
        })
    }
}

/// What the events of a file come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Totals {
    count: u32,
    first_timestamp: u64,
    last_timestamp: u64,
    has_detail: bool,
}

impl Totals {
    #[inline]
    fn add(&mut self, event: &IndexEvent) {
        if self.count == 0 {
            self.first_timestamp = event.timestamp.0;
        }
        self.last_timestamp = event.timestamp.0;
        self.has_detail |= event.detail.is_some();
        self.count = self.count.saturating_add(1);
    }

    fn events_bytes(&self) -> u64 {
        u64::from(self.count).saturating_mul(IndexRecord::LEN as u64)
    }
}

/// The header of a file with these events; without them, that of a file that has just been started.
fn header(origin: &Origin, totals: Option<&Totals>) -> IndexHead {
    let footer_offset = totals.map(|totals| totals.events_bytes().saturating_add(super::EDGE_BYTES as u64));
    let totals = totals.copied().unwrap_or_default();
    IndexHead {
        magic: HEADER_MAGIC,
        endian: LITTLE_ENDIAN,
        version: VERSION,
        arch: origin.arch.into(),
        os: origin.os.into(),
        flags: if totals.has_detail { HAS_DETAIL } else { 0 },
        thread: origin.thread,
        clock: origin.clock.into(),
        reserved: [0; 7],
        event_bytes: EVENT_BYTES,
        event_count: totals.count,
        events_offset: super::EDGE_BYTES as u64,
        footer_offset: footer_offset.unwrap_or(0),
        first_timestamp: totals.first_timestamp,
        last_timestamp: totals.last_timestamp,
    }
}

fn footer(totals: &Totals, checksum: u32) -> IndexFoot {
    IndexFoot {
        magic: FOOTER_MAGIC,
        checksum,
        event_count: totals.count.into(),
        first_timestamp: totals.first_timestamp,
        last_timestamp: totals.last_timestamp,
        events_bytes: totals.events_bytes(),
        reserved: [0; 24],
    }
}
