//! The detail file: what was captured beside the events of the index.

mod reader;
mod writer;

pub use reader::{DetailEvents, DetailReader};
pub use writer::DetailWriter;

use super::{
    EDGE_BYTES, Origin,
    origin::{LITTLE_ENDIAN, VERSION},
};
use crate::{
    ClockNs, EventKind, FunctionId, SubstreamId,
    heph::{Attributes, MAX_PACKET_BYTES},
    layout::{Layout, record},
    profile::{MAX_STACK_WORDS, Registers},
};

/// The header of a detail file.
pub const DETAIL_HEADER_LAYOUT: Layout = Layout { name: "detail header", fields: DetailHead::FIELDS };
/// What every event of a detail file starts with.
pub const DETAIL_EVENT_LAYOUT: Layout = Layout { name: "detail event", fields: DetailRecord::FIELDS };
/// The payload of calls and returns; the stack follows.
pub const DETAIL_FUNCTION_LAYOUT: Layout = Layout { name: "detail function", fields: FunctionRecord::FIELDS };
/// The payload of keys; the attributes follow.
pub const DETAIL_KEYS_LAYOUT: Layout = Layout { name: "detail keys", fields: KeysRecord::FIELDS };
/// The payload of a context.
pub const DETAIL_CONTEXT_LAYOUT: Layout = Layout { name: "detail context", fields: ContextRecord::FIELDS };
/// The footer of a detail file.
pub const DETAIL_FOOTER_LAYOUT: Layout = Layout { name: "detail footer", fields: DetailFoot::FIELDS };

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
}

record! { le;
    struct DetailRecord[24] {
        length: u32,
        kind: u16,
        flags: u16,
        index: u32,
        thread: u32,
        timestamp: u64,
    }
}

record! { le;
    struct FunctionRecord[100] {
        function: u64,
        registers: [u64; 8],
        return_address: u64,
        frame_pointer: u64,
        stack_pointer: u64,
        stack_bytes: u16,
        reserved: u16,
    }
}

record! { le;
    struct KeysRecord[40] {
        function: u64,
        start: u64,
        end: u64,
        substream: u64,
        attributes_bytes: u32,
        reserved: u32,
    }
}

record! { le;
    struct ContextRecord[16] {
        substream: u64,
        start: u64,
    }
}

record! { le;
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

/// What the events of a file come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Totals {
    count: u64,
    bytes: u64,
    first_timestamp: u64,
    last_timestamp: u64,
    first_index: u64,
    last_index: u64,
}

impl Totals {
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

/// The longest that an event of this type can be.
fn max_length(kind: u16) -> usize {
    const MAX_PACKET: usize = MAX_PACKET_BYTES as usize;
    match kind {
        CALL | RETURN => const { DetailRecord::LEN + FunctionRecord::LEN + MAX_STACK_BYTES },
        CONTEXT => const { DetailRecord::LEN + ContextRecord::LEN },
        _ => const { DetailRecord::LEN + KeysRecord::LEN + MAX_PACKET },
    }
}

/// The header of a file with these events; with none, that of a file that has just been started.
fn header(origin: &Origin, totals: &Totals) -> DetailHead {
    DetailHead {
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
    }
}

fn footer(totals: &Totals, checksum: u32) -> DetailFoot {
    DetailFoot {
        magic: FOOTER_MAGIC,
        checksum,
        event_count: totals.count,
        events_bytes: totals.bytes,
        first_timestamp: totals.first_timestamp,
        last_timestamp: totals.last_timestamp,
        reserved: [0; 24],
    }
}
