//! Metadata packets: one option of the whole trace.

use bytes::BufMut;

use super::{
    DecodeError, Encode, EncodeError, check_room, check_size,
    packet::{Kind, expect_whole},
    wire::{Reader, Wire},
};
use crate::layout::{Layout, record};

/// The constant that metadata packets start with.
pub const METADATA_MAGIC: u32 = 0x75D1_1D4D;

/// The fixed part of a metadata packet.
pub const METADATA_LAYOUT: Layout = Layout { name: "metadata packet", fields: MetadataHead::FIELDS };

record! { be;
    /// What a metadata packet starts with.
    pub(crate) struct MetadataHead[10] {
        magic: u32,
        size: u32,
        option_name_length: u16,
    }
}

/// An option and its value, whatever it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// The option's name.
    pub name: &'a str,
    /// The option's value, in the layout of that option.
    pub value: &'a [u8],
}

impl<'a> Metadata<'a> {
    /// Decodes `packet`, which must be one whole metadata packet and nothing else.
    pub fn decode(packet: &'a [u8]) -> Result<Self, DecodeError> {
        expect_whole(packet, Kind::Metadata)?;
        Self::read(packet)
    }

    /// Decodes a metadata packet whose magic and size have been checked.
    pub(crate) fn read(packet: &'a [u8]) -> Result<Self, DecodeError> {
        const FIXED: usize = MetadataHead::LEN - 2;
        let mut reader = Reader::new(packet.get(FIXED..).unwrap_or_default(), FIXED);
        let name = reader.string("option name")?;
        Ok(Self { name, value: reader.rest() })
    }

    /// How far into the packet the value starts.
    pub fn value_offset(&self) -> usize {
        MetadataHead::LEN.saturating_add(self.name.len())
    }
}

impl Encode for Metadata<'_> {
    fn encoded_len(&self) -> Result<usize, EncodeError> {
        metadata_size(self.name, self.value.len())
    }

    fn encode(&self, out: &mut impl BufMut) -> Result<usize, EncodeError> {
        write_metadata(self.name, self.value.len(), out, |out| out.put_slice(self.value))
    }
}

/// The size of a metadata packet whose value takes `value_bytes`.
pub(crate) fn metadata_size(name: &str, value_bytes: usize) -> Result<usize, EncodeError> {
    let name = name.measure("option name")?;
    let size = (MetadataHead::LEN - 2).saturating_add(name).saturating_add(value_bytes);
    check_size(size)?;
    Ok(size)
}

/// Writes a metadata packet whose value takes `value_bytes` and is written by `value`.
pub(crate) fn write_metadata<B: BufMut>(
    name: &str,
    value_bytes: usize,
    out: &mut B,
    value: impl FnOnce(&mut B),
) -> Result<usize, EncodeError> {
    let size = metadata_size(name, value_bytes)?;
    let head = MetadataHead {
        magic: METADATA_MAGIC,
        size: check_room(size, out)?,
        option_name_length: u16::try_from(name.len()).unwrap_or(u16::MAX),
    };
    out.put_slice(&head.to_bytes());
    out.put_slice(name.as_bytes());
    value(out);
    Ok(size)
}
