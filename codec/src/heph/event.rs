//! Event packets: one thing that happened on a stream.

use bytes::BufMut;

use super::{
    Attributes, DecodeError, Encode, EncodeError, check_room, check_size,
    packet::{Kind, expect_whole},
    wire::{Reader, Wire},
};
use crate::{
    Counter, SessionNs, StreamId, SubstreamId,
    layout::{Layout, record},
};

/// The constant that event packets start with.
pub const EVENT_MAGIC: u32 = 0xC1FC_1FB7;

/// The fixed part of an event packet.
pub const EVENT_LAYOUT: Layout = Layout { name: "event packet", fields: EventHead::FIELDS };

record! { be;
    /// What an event packet starts with.
    pub(crate) struct EventHead[42] {
        magic: u32,
        size: u32,
        stream: u32,
        counter: u32,
        substream: u64,
        start: u64,
        end: u64,
        description_length: u16,
    }
}

impl EventHead {
    #[inline]
    pub(crate) fn new(stamp: &Stamp, size: u32, description_length: u16) -> Self {
        Self {
            magic: EVENT_MAGIC,
            size,
            stream: stamp.stream.0,
            counter: stamp.counter.0,
            substream: stamp.substream.0,
            start: stamp.start.0,
            end: stamp.end.0,
            description_length,
        }
    }

    #[inline]
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp {
            stream: StreamId(self.stream),
            counter: Counter(self.counter),
            substream: SubstreamId(self.substream),
            start: SessionNs(self.start),
            end: SessionNs(self.end),
        }
    }
}

/// Where and when an event happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Stamp {
    /// The stream it happened on.
    pub stream: StreamId,
    /// Its number in the stream.
    pub counter: Counter,
    /// The substream it belongs to.
    pub substream: SubstreamId,
    /// When it started.
    pub start: SessionNs,
    /// When it ended.
    pub end: SessionNs,
}

/// Something that happened on a stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Event<'a> {
    /// Where and when.
    pub stamp: Stamp,
    /// What it was.
    pub description: &'a str,
    /// More about it.
    pub attributes: Attributes<'a>,
}

impl<'a> Event<'a> {
    /// Decodes `packet`, which must be one whole event packet and nothing else.
    #[inline]
    pub fn decode(packet: &'a [u8]) -> Result<Self, DecodeError> {
        expect_whole(packet, Kind::Event)?;
        read_event(packet, Attributes::read)
    }
}

/// Decodes an event packet whose magic and size have been checked; `attributes` reads those.
#[inline]
pub(crate) fn read_event<'a>(
    packet: &'a [u8],
    attributes: impl FnOnce(&mut Reader<'a>) -> Result<Attributes<'a>, DecodeError>,
) -> Result<Event<'a>, DecodeError> {
    // The description's length is read with its string, behind the other 40 bytes.
    const FIXED: usize = EventHead::LEN - 2;
    let Some(head) = packet.first_chunk() else {
        return Err(DecodeError::Incomplete { offset: 0, size: EventHead::LEN, found: packet.len() });
    };
    let head = EventHead::from_bytes(head);
    let mut reader = Reader::new(packet.get(FIXED..).unwrap_or_default(), FIXED);
    let description = reader.string("description")?;
    Ok(Event { stamp: head.stamp(), description, attributes: attributes(&mut reader)? })
}

impl Encode for Event<'_> {
    fn encoded_len(&self) -> Result<usize, EncodeError> {
        event_size(self.description, self.attributes.measure()?)
    }

    #[inline]
    fn encode(&self, out: &mut impl BufMut) -> Result<usize, EncodeError> {
        let attributes = self.attributes.measure()?;
        write_event(&self.stamp, self.description, attributes, out, |out| self.attributes.write(out))
    }
}

/// The size of an event packet whose attributes take `attribute_bytes`.
#[inline]
pub(crate) fn event_size(description: &str, attribute_bytes: usize) -> Result<usize, EncodeError> {
    let description = description.measure("description")?;
    let size = (EventHead::LEN - 2).saturating_add(description).saturating_add(attribute_bytes);
    check_size(size)?;
    Ok(size)
}

/// Writes an event packet whose attributes take `attribute_bytes` and are written by `attributes`.
#[inline]
pub(crate) fn write_event<B: BufMut>(
    stamp: &Stamp,
    description: &str,
    attribute_bytes: usize,
    out: &mut B,
    attributes: impl FnOnce(&mut B),
) -> Result<usize, EncodeError> {
    let size = event_size(description, attribute_bytes)?;
    let description_length = u16::try_from(description.len()).unwrap_or(u16::MAX);
    let head = EventHead::new(stamp, check_room(size, out)?, description_length);
    out.put_slice(&head.to_bytes());
    out.put_slice(description.as_bytes());
    attributes(out);
    Ok(size)
}
