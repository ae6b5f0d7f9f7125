//! The index: every call, return and exception of one thread, 32 bytes each.

mod reader;

pub use reader::{IndexEvents, IndexReader};

use super::{
    AppendError, EDGE_BYTES, FileWriter, Origin,
    origin::{LITTLE_ENDIAN, VERSION},
    writer::{MAX_EVENTS, Totals},
};
use crate::{
    ClockNs, EventKind, FunctionId,
    layout::{Layout, record},
};

pub(super) const LAYOUTS: [Layout; 3] = [
    Layout { name: "index header", fields: IndexHead::FIELDS },
    Layout { name: "index event", fields: IndexRecord::FIELDS },
    Layout { name: "index footer", fields: IndexFoot::FIELDS },
];

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

    struct IndexRecord[32] {
        timestamp: u64,
        function: u64,
        thread: u32,
        kind: u32,
        depth: u32,
        detail: u32,
    }

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

/// What the events of an index file come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexTotals {
    count: u32,
    first_timestamp: u64,
    last_timestamp: u64,
    has_detail: bool,
}

impl IndexTotals {
    #[inline]
    fn add(&mut self, event: &IndexEvent) {
        if self.count == 0 {
            self.first_timestamp = event.timestamp.0;
        }
        self.last_timestamp = event.timestamp.0;
        self.has_detail |= event.detail.is_some();
        self.count = self.count.saturating_add(1);
    }
}

impl Totals for IndexTotals {
    fn events_bytes(&self) -> u64 {
        u64::from(self.count).saturating_mul(IndexRecord::LEN as u64)
    }

    fn header(origin: &Origin, totals: Option<&Self>) -> [u8; EDGE_BYTES] {
        let footer_offset = totals.map(|totals| totals.events_bytes().saturating_add(EDGE_BYTES as u64));
        let totals = totals.copied().unwrap_or_default();
        let head = IndexHead {
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
            events_offset: EDGE_BYTES as u64,
            footer_offset: footer_offset.unwrap_or(0),
            first_timestamp: totals.first_timestamp,
            last_timestamp: totals.last_timestamp,
        };
        head.to_bytes()
    }

    fn footer(&self, checksum: u32) -> [u8; EDGE_BYTES] {
        let foot = IndexFoot {
            magic: FOOTER_MAGIC,
            checksum,
            event_count: self.count.into(),
            first_timestamp: self.first_timestamp,
            last_timestamp: self.last_timestamp,
            events_bytes: self.events_bytes(),
            reserved: [0; 24],
        };
        foot.to_bytes()
    }
}

/// Writes an index file.
pub type IndexWriter = FileWriter<IndexTotals>;

impl IndexWriter {
    /// Appends an event and returns its sequence number.
    #[inline(always)]
    pub fn append(&mut self, event: &IndexEvent) -> Result<u32, AppendError> {
        let sequence = self.totals.count;
        if sequence == MAX_EVENTS || event.detail == Some(NO_DETAIL) {
            return Err(AppendError::Full { limit: MAX_EVENTS });
        }
        self.pending.extend_from_slice(&event.to_record().to_bytes());
        self.totals.add(event);
        Ok(sequence)
    }

    /// How many events it has.
    pub fn len(&self) -> u32 {
        self.totals.count
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.totals.count == 0
    }
}
