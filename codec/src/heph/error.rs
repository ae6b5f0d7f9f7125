//! What can be wrong with a packet, on the way in and on the way out.

use thiserror::Error;

/// Why bytes are not a packet: the field, where it is, and what was expected there.
///
/// Offsets count from the start of the bytes that were decoded: a packet, or a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Fewer bytes than the size in the packet's header promises, or not even a header.
    #[error("packet at byte {offset}: expected {size} bytes, found {found}")]
    Incomplete {
        /// Where the packet starts.
        offset: usize,
        /// The bytes it should have.
        size: usize,
        /// The bytes there are.
        found: usize,
    },
    /// Neither a metadata nor an event packet.
    #[error("magic at byte {offset}: expected {expected}, found {found:#010X}")]
    Magic {
        /// Where the magic constant should be.
        offset: usize,
        /// What would have done.
        expected: &'static str,
        /// What is there.
        found: u32,
    },
    /// A size that cannot hold even the fixed part of the packet.
    #[error("size at byte {offset}: expected at least {minimum}, found {found}")]
    SizeBelowMinimum {
        /// Where the size field is.
        offset: usize,
        /// The smallest packet of this kind.
        minimum: usize,
        /// The size it claims.
        found: u32,
    },
    /// A size above the receiver's limit.
    #[error("size at byte {offset}: expected at most {limit}, found {found}")]
    SizeAboveLimit {
        /// Where the size field is.
        offset: usize,
        /// The limit in force.
        limit: u32,
        /// The size it claims.
        found: u32,
    },
    /// A fixed field, list or array that does not fit into what is left of the packet.
    #[error("{field} at byte {offset}: expected {needed} bytes, {left} left in the packet")]
    FieldPastEnd {
        /// The field.
        field: &'static str,
        /// Where it starts.
        offset: usize,
        /// The bytes it takes.
        needed: usize,
        /// The bytes that are left.
        left: usize,
    },
    /// A string whose length runs past the packet's end.
    #[error("{field} at byte {offset}: expected a string of {length} bytes, {left} left in the packet")]
    StringPastEnd {
        /// The field.
        field: &'static str,
        /// Where the string's bytes start.
        offset: usize,
        /// The length it claims.
        length: usize,
        /// The bytes that are left.
        left: usize,
    },
    /// A string that is not UTF-8.
    #[error("{field} at byte {offset}: expected UTF-8")]
    Utf8 {
        /// The field.
        field: &'static str,
        /// The first byte that cannot be UTF-8.
        offset: usize,
    },
    /// An attribute type that does not exist.
    #[error("attribute type at byte {offset}: expected 1 to 4, or 0x81 to 0x84 for arrays, found {found:#04x}")]
    AttributeType {
        /// Where the type byte is.
        offset: usize,
        /// The type byte.
        found: u8,
    },
    /// An array marker without the type of its elements.
    #[error("attribute type at byte {offset}: expected an element type beside the array marker 0x80")]
    LoneArrayMarker {
        /// Where the type byte is.
        offset: usize,
    },
    /// An array marker whose element type is an array again.
    #[error("attribute type at byte {offset}: expected no array of arrays, found 0x80 before {found:#04x}")]
    NestedArray {
        /// Where the outer type byte is.
        offset: usize,
        /// The inner type byte.
        found: u8,
    },
    /// Bytes behind the last field, too few to be anything.
    #[error("expected the end at byte {offset}, found {count} more bytes")]
    TrailingBytes {
        /// Where the last field ended.
        offset: usize,
        /// How many bytes follow.
        count: usize,
    },
    /// A number outside the values that the field can have.
    #[error("{field} at byte {offset}: expected {expected}, found {found}")]
    Value {
        /// The field.
        field: &'static str,
        /// Where it is.
        offset: usize,
        /// The values it can have.
        expected: &'static str,
        /// The value it has.
        found: u64,
    },
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
pub enum EncodeError {
    /// A string, list or array longer than its length field can say, or than the format allows.
    #[error("{field} has length {length}, the format allows {limit}")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Its length, in bytes or elements.
        length: usize,
        /// The longest allowed.
        limit: usize,
    },
    /// A packet larger than receivers accept by default.
    #[error("packet has {size} bytes, receivers accept {limit}")]
    PacketTooLarge {
        /// The size it would have.
        size: usize,
        /// The limit.
        limit: u32,
    },
    /// A buffer that cannot grow and is too short for the packet.
    #[error("packet has {needed} bytes, the buffer has room for {left}")]
    NoRoom {
        /// The size of the packet.
        needed: usize,
        /// The bytes left in the buffer.
        left: usize,
    },
    /// An attribute beside those of the profile that has the name of one of them.
    #[error("the attribute {name} belongs to the profile")]
    Reserved {
        /// The name.
        name: &'static str,
    },
    /// A value that the field cannot have.
    #[error("{field} is not {expected}")]
    Value {
        /// The field.
        field: &'static str,
        /// The values it can have.
        expected: &'static str,
    },
    /// Something that the format requires was left out.
    #[error("{field} is missing")]
    Missing {
        /// What is required.
        field: &'static str,
    },
}
