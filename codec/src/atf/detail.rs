//! The detail file: what was captured beside the events of the index.

mod reader;

pub use reader::{DetailEvents, DetailReader};

use super::{
    AppendError, EDGE_BYTES, FileWriter, Origin,
    origin::{LITTLE_ENDIAN, VERSION},
    writer::{MAX_EVENTS, Totals},
};
use crate::{
    ClockNs, EventKind, FunctionId, SubstreamId,
    heph::{Attributes, MAX_PACKET_BYTES},
    layout::{Layout, record},
    profile::{MAX_STACK_WORDS, Registers},
};

pub(super) const LAYOUTS: [Layout; 6] = [
    Layout { name: "detail header", fields: DetailHead::FIELDS },
    Layout { name: "detail event", fields: DetailRecord::FIELDS },
    Layout { name: "detail function", fields: FunctionRecord::FIELDS },
    Layout { name: "detail keys", fields: KeysRecord::FIELDS },
    Layout { name: "detail context", fields: ContextRecord::FIELDS },
    Layout { name: "detail footer", fields: DetailFoot::FIELDS },
];

/// The most bytes of stack that a detail event may have.
pub const MAX_STACK_BYTES: usize = MAX_STACK_WORDS * 8;

const HEADER_MAGIC: [u8; 4] = *b"ATD2";
const FOOTER_MAGIC: [u8; 4] = *b"2DTA";

const CALL: u16 = 3;
const RETURN: u16 = 4;
// From 16 up the types are ours.
const KEYS: u16 = 16;
const CONTEXT: u16 = 17;

record! { le;
    struct DetailHead[64] {
        magic: [u8; 4],
        endian: u8,
        version: u8,
        arch: u8,
        os: u8,
        flags: u32,
        thread: u32,
        reserved: u32,
        events_offset: u64,
        event_count: u64,
        events_bytes: u64,
        first_index: u64,
        last_index: u64,
        reserved_too: u32,
    }

    struct DetailRecord[24] {
        length: u32,
        kind: u16,
        flags: u16,
        index: u32,
        thread: u32,
        timestamp: u64,
    }

    struct FunctionRecord[100] {
        function: u64,
        registers: [u64; 8],
        return_address: u64,
        frame_pointer: u64,
        stack_pointer: u64,
        stack_bytes: u16,
        reserved: u16,
    }

    struct KeysRecord[40] {
        function: u64,
        start: u64,
        end: u64,
        substream: u64,
        attributes_bytes: u32,
        reserved: u32,
    }

    struct ContextRecord[16] {
        substream: u64,
        start: u64,
    }

    struct DetailFoot[64] {
        magic: [u8; 4],
        checksum: u32,
        event_count: u64,
        events_bytes: u64,
        first_timestamp: u64,
        last_timestamp: u64,
        reserved: [u8; 24],
    }
}

/// An event of a detail file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DetailEvent<'a> {
    /// The sequence number of the index event it belongs to.
    pub index: u32,
    /// The thread's id with the operating system.
    pub thread: u32,
    /// When it happened, as in the index.
    pub timestamp: ClockNs,
    /// Flags; none are defined.
    pub flags: u16,
    /// What was captured.
    pub body: DetailBody<'a>,
}

/// What a detail event holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DetailBody<'a> {
    /// What was captured when a function was entered.
    Call(FunctionDetail<'a>),
    /// What was captured when a function was left.
    Return(FunctionDetail<'a>),
    /// The keys of a runtime event, or the attributes of any other event that is not a function's.
    Keys(Keys<'a>),
    /// What an index event cannot say of itself.
    Context(Context),
    /// Something of a type that is not known here.
    Other {
        /// The type.
        kind: u16,
        /// The payload.
        payload: &'a [u8],
    },
}

impl<'a> DetailBody<'a> {
    /// What was captured with a function event of this kind.
    pub fn function(kind: EventKind, detail: FunctionDetail<'a>) -> Self {
        match kind {
            EventKind::Call => Self::Call(detail),
            EventKind::Return | EventKind::Exception => Self::Return(detail),
        }
    }
}

/// Registers and stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionDetail<'a> {
    /// The function.
    pub function: FunctionId,
    /// The registers.
    pub registers: Registers,
    /// The bytes of the stack from the stack pointer upward, at most [`MAX_STACK_BYTES`].
    pub stack: &'a [u8],
}

/// An event that is not a function's, as it was on the wire.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Keys<'a> {
    /// The function that stands for it in module 0; its name is the event's description.
    pub function: FunctionId,
    /// When it started.
    pub start: ClockNs,
    /// When it ended.
    pub end: ClockNs,
    /// The substream it belongs to.
    pub substream: SubstreamId,
    /// Its attributes.
    pub attributes: Attributes<'a>,
}

/// What an index event cannot say of itself. Written where it cannot be told from the events before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// The task that the thread runs from this event on.
    pub substream: SubstreamId,
    /// When the event's function was entered.
    pub start: ClockNs,
}

/// What the events of a detail file come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DetailTotals {
    count: u64,
    bytes: u64,
    first_timestamp: u64,
    last_timestamp: u64,
    first_index: u64,
    last_index: u64,
}

impl DetailTotals {
    #[inline]
    fn add(&mut self, record: &DetailRecord) {
        if self.count == 0 {
            self.first_timestamp = record.timestamp;
            self.first_index = record.index.into();
        }
        self.last_timestamp = record.timestamp;
        self.last_index = record.index.into();
        self.count = self.count.saturating_add(1);
        self.bytes = self.bytes.saturating_add(record.length.into());
    }
}

impl Totals for DetailTotals {
    fn events_bytes(&self) -> u64 {
        self.bytes
    }

    fn header(origin: &Origin, totals: Option<&Self>) -> [u8; EDGE_BYTES] {
        let totals = totals.copied().unwrap_or_default();
        let head = DetailHead {
            magic: HEADER_MAGIC,
            endian: LITTLE_ENDIAN,
            version: VERSION,
            arch: origin.arch.into(),
            os: origin.os.into(),
            flags: 0,
            thread: origin.thread,
            reserved: 0,
            events_offset: EDGE_BYTES as u64,
            event_count: totals.count,
            events_bytes: totals.bytes,
            first_index: totals.first_index,
            last_index: totals.last_index,
            reserved_too: 0,
        };
        head.to_bytes()
    }

    fn footer(&self, checksum: u32) -> [u8; EDGE_BYTES] {
        let foot = DetailFoot {
            magic: FOOTER_MAGIC,
            checksum,
            event_count: self.count,
            events_bytes: self.bytes,
            first_timestamp: self.first_timestamp,
            last_timestamp: self.last_timestamp,
            reserved: [0; 24],
        };
        foot.to_bytes()
    }
}

/// The longest that an event of this type can be.
fn max_length(kind: u16) -> usize {
    const MAX_PACKET: usize = MAX_PACKET_BYTES as usize;
    match kind {
        CALL | RETURN => const { DetailRecord::LEN + FunctionRecord::LEN + MAX_STACK_BYTES },
        CONTEXT => const { DetailRecord::LEN + ContextRecord::LEN },
        _ => const { DetailRecord::LEN + KeysRecord::LEN + MAX_PACKET },
    }
}

/// Writes a detail file.
pub type DetailWriter = FileWriter<DetailTotals>;

impl DetailWriter {
    /// Appends an event and returns its position.
    #[inline]
    pub fn append(&mut self, event: &DetailEvent<'_>) -> Result<u32, AppendError> {
        let full = AppendError::Full { limit: MAX_EVENTS };
        let position = u32::try_from(self.totals.count).ok().filter(|&count| count < MAX_EVENTS).ok_or(full)?;
        match &event.body {
            DetailBody::Call(detail) => self.append_function(event, CALL, detail)?,
            DetailBody::Return(detail) => self.append_function(event, RETURN, detail)?,
            DetailBody::Keys(keys) => {
                let bytes = keys.attributes.measure()?;
                let record = KeysRecord {
                    function: keys.function.0,
                    start: keys.start.0,
                    end: keys.end.0,
                    substream: keys.substream.0,
                    attributes_bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
                    reserved: 0,
                };
                self.append_record(event, KEYS, &record.to_bytes(), bytes)?;
                keys.attributes.write(&mut self.pending);
            }
            DetailBody::Context(context) => {
                let record = ContextRecord { substream: context.substream.0, start: context.start.0 };
                self.append_record(event, CONTEXT, &record.to_bytes(), 0)?;
            }
            &DetailBody::Other { kind: kind @ (CALL | RETURN | KEYS | CONTEXT), .. } => {
                return Err(AppendError::KnownType { kind });
            }
            DetailBody::Other { kind, payload } => self.append_record(event, *kind, payload, 0)?,
        }
        Ok(position)
    }

    #[inline]
    fn append_function(
        &mut self,
        event: &DetailEvent<'_>,
        kind: u16,
        detail: &FunctionDetail<'_>,
    ) -> Result<(), AppendError> {
        let too_long = AppendError::TooLong { field: "stack", found: detail.stack.len(), limit: MAX_STACK_BYTES };
        let stack_bytes = u16::try_from(detail.stack.len()).map_err(|_| too_long)?;
        if usize::from(stack_bytes) > MAX_STACK_BYTES {
            return Err(too_long);
        }
        let record = FunctionRecord {
            function: detail.function.0,
            registers: detail.registers.general,
            return_address: detail.registers.return_address,
            frame_pointer: detail.registers.frame_pointer,
            stack_pointer: detail.registers.stack_pointer,
            stack_bytes,
            reserved: 0,
        };
        self.append_record(event, kind, &record.to_bytes(), detail.stack.len())?;
        self.pending.extend_from_slice(detail.stack);
        Ok(())
    }

    /// Appends what an event starts with. So many more bytes must follow.
    #[inline]
    fn append_record(
        &mut self,
        event: &DetailEvent<'_>,
        kind: u16,
        payload: &[u8],
        more: usize,
    ) -> Result<(), AppendError> {
        let length = DetailRecord::LEN.saturating_add(payload.len()).saturating_add(more);
        let limit = max_length(kind);
        let too_long = AppendError::TooLong { field: "detail event", found: length, limit };
        let record = DetailRecord {
            length: u32::try_from(length).ok().filter(|_| length <= limit).ok_or(too_long)?,
            kind,
            flags: event.flags,
            index: event.index,
            thread: event.thread,
            timestamp: event.timestamp.0,
        };
        self.pending.extend_from_slice(&record.to_bytes());
        self.pending.extend_from_slice(payload);
        self.totals.add(&record);
        Ok(())
    }

    /// Appends events that stay together: all of them, or on an error none. Returns the position of the first.
    pub(crate) fn append_all<'d>(
        &mut self,
        events: impl Iterator<Item = DetailEvent<'d>>,
    ) -> Result<Option<u32>, AppendError> {
        let (totals, bytes) = (self.totals, self.pending.len());
        let mut first = None;
        for event in events {
            match self.append(&event) {
                Ok(position) => _ = first.get_or_insert(position),
                Err(error) => {
                    self.totals = totals;
                    self.pending.truncate(bytes);
                    return Err(error);
                }
            }
        }
        Ok(first)
    }

    /// Whether it has no events.
    pub fn is_empty(&self) -> bool {
        self.totals.count == 0
    }
}
