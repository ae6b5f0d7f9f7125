//! What can be wrong with a packet, on the way in and on the way out.

use thiserror::Error;

/// Why bytes are not a packet: the field, where it is, and what was expected there.
///
/// Offsets count from the start of the bytes that were decoded: a packet, or a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say what the fields are
pub enum DecodeError {
    /// Fewer bytes than the size in the packet's header promises, or not even a header.
    #[error("packet at byte {offset}: expected {size} bytes, found {found}")]
    Incomplete { offset: usize, size: usize, found: usize },
    /// Neither a metadata nor an event packet.
    #[error("magic at byte {offset}: expected {expected}, found {found:#010X}")]
    Magic { offset: usize, expected: &'static str, found: u32 },
    /// A size that cannot hold even the fixed part of the packet.
    #[error("size at byte {offset}: expected at least {minimum}, found {found}")]
    SizeBelowMinimum { offset: usize, minimum: usize, found: u32 },
    /// A size above the receiver's limit.
    #[error("size at byte {offset}: expected at most {limit}, found {found}")]
    SizeAboveLimit { offset: usize, limit: u32, found: u32 },
    /// A fixed field, list or array that does not fit into what is left of the packet.
    #[error("{field} at byte {offset}: expected {needed} bytes, {left} left in the packet")]
    FieldPastEnd { field: &'static str, offset: usize, needed: usize, left: usize },
    /// A string whose length runs past the packet's end.
    #[error("{field} at byte {offset}: expected a string of {length} bytes, {left} left in the packet")]
    StringPastEnd { field: &'static str, offset: usize, length: usize, left: usize },
    /// A string that is not UTF-8.
    #[error("{field} at byte {offset}: expected UTF-8")]
    Utf8 { field: &'static str, offset: usize },
    /// An attribute type that does not exist.
    #[error("attribute type at byte {offset}: expected 1 to 4, or 0x81 to 0x84 for arrays, found {found:#04x}")]
    AttributeType { offset: usize, found: u8 },
    /// An array marker without the type of its elements.
    #[error("attribute type at byte {offset}: expected an element type beside the array marker 0x80")]
    LoneArrayMarker { offset: usize },
    /// An array marker whose element type is an array again.
    #[error("attribute type at byte {offset}: expected no array of arrays, found 0x80 before {found:#04x}")]
    NestedArray { offset: usize, found: u8 },
    /// Bytes behind the last field, too few to be anything.
    #[error("expected the end at byte {offset}, found {count} more bytes")]
    TrailingBytes { offset: usize, count: usize },
    /// A number outside the values that the field can have.
    #[error("{field} at byte {offset}: expected {expected}, found {found}")]
    Value { field: &'static str, offset: usize, expected: &'static str, found: u64 },
}

impl DecodeError {
    /// Where the trouble is.
    pub fn offset(&self) -> usize {
        let mut copy = *self;
        *copy.offset_mut()
    }

    /// The same error, counted from `base` bytes earlier.
    #[must_use]
    pub fn from_base(mut self, base: usize) -> Self {
        let offset = self.offset_mut();
        *offset = offset.saturating_add(base);
        self
    }

    fn offset_mut(&mut self) -> &mut usize {
        match self {
            Self::Incomplete { offset, .. }
            | Self::Magic { offset, .. }
            | Self::SizeBelowMinimum { offset, .. }
            | Self::SizeAboveLimit { offset, .. }
            | Self::FieldPastEnd { offset, .. }
            | Self::StringPastEnd { offset, .. }
            | Self::Utf8 { offset, .. }
            | Self::AttributeType { offset, .. }
            | Self::LoneArrayMarker { offset }
            | Self::NestedArray { offset, .. }
            | Self::TrailingBytes { offset, .. }
            | Self::Value { offset, .. } => offset,
        }
    }
}

/// Why a value cannot be written. Nothing has been written when one is returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say what the fields are
pub enum EncodeError {
    /// A string, list or array longer than its length field can say, or than the format allows.
    #[error("{field} has length {length}, the format allows {limit}")]
    TooLong { field: &'static str, length: usize, limit: usize },
    /// A packet larger than receivers accept by default.
    #[error("packet has {size} bytes, receivers accept {limit}")]
    PacketTooLarge { size: usize, limit: u32 },
    /// A buffer that cannot grow and is too short for the packet.
    #[error("packet has {needed} bytes, the buffer has room for {left}")]
    NoRoom { needed: usize, left: usize },
    /// An attribute beside those of the profile that has the name of one of them.
    #[error("the attribute {name} belongs to the profile")]
    Reserved { name: &'static str },
    /// A value that the field cannot have.
    #[error("{field} is not {expected}")]
    Value { field: &'static str, expected: &'static str },
    /// Something that the format requires was left out.
    #[error("{field} is missing")]
    Missing { field: &'static str },
}
