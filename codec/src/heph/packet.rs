//! Packets of either kind, and the two words that all of them start with.

use bytes::BufMut;

use super::{
    Attributes, DecodeError, EVENT_MAGIC, EncodeError, Event, METADATA_MAGIC, Metadata, event::EventHead,
    metadata::MetadataHead, read_event,
};

/// The largest packet that is written, and that is read unless the caller says otherwise: 1 MiB.
pub const MAX_PACKET_BYTES: u32 = 1 << 20;

/// Where the size is in a packet.
const SIZE_OFFSET: usize = 4;

/// A decoded packet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Packet<'a> {
    /// An option of the trace.
    Metadata(Metadata<'a>),
    /// An event on a stream.
    Event(Event<'a>),
}

impl<'a> Packet<'a> {
    /// Decodes `packet`, which must be one whole packet and nothing else.
    #[inline]
    pub fn decode(packet: &'a [u8]) -> Result<Self, DecodeError> {
        match whole_kind(packet)? {
            Kind::Metadata => Metadata::read(packet).map(Self::Metadata),
            Kind::Event => read_event(packet, Attributes::read).map(Self::Event),
        }
    }
}

impl Encode for Packet<'_> {
    fn encoded_len(&self) -> Result<usize, EncodeError> {
        match self {
            Self::Metadata(metadata) => metadata.encoded_len(),
            Self::Event(event) => event.encoded_len(),
        }
    }

    fn encode(&self, out: &mut impl BufMut) -> Result<usize, EncodeError> {
        match self {
            Self::Metadata(metadata) => metadata.encode(out),
            Self::Event(event) => event.encode(out),
        }
    }
}

/// A value that is a packet.
pub trait Encode {
    /// The size of the packet, or why there cannot be one.
    fn encoded_len(&self) -> Result<usize, EncodeError>;

    /// Appends the packet to `out` and returns its size. On an error nothing has been appended.
    ///
    /// A `Vec` or `BytesMut` makes room. Of what cannot, such as a slice or [`BufMut::limit`], no more is used
    /// than there is: [`EncodeError::NoRoom`] says that the packet does not fit.
    fn encode(&self, out: &mut impl BufMut) -> Result<usize, EncodeError>;
}

/// The two kinds of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Metadata,
    Event,
}

impl Kind {
    #[inline]
    fn of(magic: u32) -> Option<Self> {
        match magic {
            METADATA_MAGIC => Some(Self::Metadata),
            EVENT_MAGIC => Some(Self::Event),
            _ => None,
        }
    }

    fn minimum(self) -> usize {
        match self {
            Self::Metadata => MetadataHead::LEN,
            Self::Event => EventHead::LEN,
        }
    }

    fn magic_text(self) -> &'static str {
        match self {
            Self::Metadata => "0x75D11D4D (metadata)",
            Self::Event => "0xC1FC1FB7 (event)",
        }
    }
}

/// The size of the packet that `bytes` start with, once its first eight bytes are there.
///
/// Checks the magic constant, and the size against the smallest packet of that kind and against `limit`: a
/// size that passes is safe to wait for.
#[inline]
pub fn packet_size(bytes: &[u8], limit: u32) -> Result<Option<usize>, DecodeError> {
    let Some((kind, size)) = head(bytes)? else { return Ok(None) };
    if size > limit {
        return Err(DecodeError::SizeAboveLimit { offset: SIZE_OFFSET, limit, found: size });
    }
    checked_size(kind, size).map(Some)
}

/// The kind of packet that `packet` is, if it is exactly one by its first two words.
#[inline]
pub(crate) fn whole_kind(packet: &[u8]) -> Result<Kind, DecodeError> {
    let found = packet.len();
    let Some((kind, size)) = head(packet)? else {
        return Err(DecodeError::Incomplete { offset: 0, size: 8, found });
    };
    let size = checked_size(kind, size)?;
    if size > found {
        return Err(DecodeError::Incomplete { offset: 0, size, found });
    }
    match found.saturating_sub(size) {
        0 => Ok(kind),
        count => Err(DecodeError::TrailingBytes { offset: size, count }),
    }
}

/// Like [`whole_kind`], where only one kind will do.
#[inline]
pub(crate) fn expect_whole(packet: &[u8], expected: Kind) -> Result<(), DecodeError> {
    if whole_kind(packet)? == expected {
        return Ok(());
    }
    let found = packet.first_chunk().map_or(0, |magic| u32::from_be_bytes(*magic));
    Err(DecodeError::Magic { offset: 0, expected: expected.magic_text(), found })
}

/// The size of a packet about to be written, as it is written.
#[inline]
pub(crate) fn check_size(size: usize) -> Result<u32, EncodeError> {
    match u32::try_from(size) {
        Ok(fits) if fits <= MAX_PACKET_BYTES => Ok(fits),
        _ => Err(EncodeError::PacketTooLarge { size, limit: MAX_PACKET_BYTES }),
    }
}

/// Like [`check_size`], and checks that `out` has room for it.
#[inline]
pub(crate) fn check_room(size: usize, out: &impl BufMut) -> Result<u32, EncodeError> {
    let left = out.remaining_mut();
    if size > left {
        return Err(EncodeError::NoRoom { needed: size, left });
    }
    check_size(size)
}

#[inline]
fn head(bytes: &[u8]) -> Result<Option<(Kind, u32)>, DecodeError> {
    let Some((magic, rest)) = bytes.split_first_chunk() else { return Ok(None) };
    let Some(size) = rest.first_chunk() else { return Ok(None) };
    let magic = u32::from_be_bytes(*magic);
    match Kind::of(magic) {
        Some(kind) => Ok(Some((kind, u32::from_be_bytes(*size)))),
        None => {
            Err(DecodeError::Magic { offset: 0, expected: "0x75D11D4D (metadata) or 0xC1FC1FB7 (event)", found: magic })
        }
    }
}

#[inline]
fn checked_size(kind: Kind, found: u32) -> Result<usize, DecodeError> {
    let size = usize::try_from(found).unwrap_or(usize::MAX);
    let minimum = kind.minimum();
    if size < minimum {
        return Err(DecodeError::SizeBelowMinimum { offset: SIZE_OFFSET, minimum, found });
    }
    Ok(size)
}
