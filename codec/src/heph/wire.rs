//! The types that packets are made of: how each is read, measured and written, big-endian.

use bytes::BufMut;

use super::{DecodeError, EncodeError};
use crate::{
    AnswerKind, Arch, BirthKind, ClockKind, Counter, FunctionId, LevelKind, ModuleId, Os, Position, SessionId,
    SessionNs, StreamId, SubstreamId,
};

/// A place in a packet's bytes, from which fields are taken one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    /// Reads `bytes`, which lie `offset` bytes into the packet.
    #[inline]
    pub(crate) fn new(bytes: &'a [u8], offset: usize) -> Self {
        Self { rest: bytes, offset }
    }

    /// What has not been read yet.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// How far into the packet the next field is.
    #[inline]
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Takes the next `count` bytes.
    #[inline]
    pub(crate) fn bytes(&mut self, count: usize, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            return Err(self.past_end(count, field));
        };
        self.advance(rest, count);
        Ok(taken)
    }

    /// Takes the next `N` bytes as an array.
    #[inline]
    pub(crate) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], DecodeError> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.past_end(N, field));
        };
        self.advance(rest, N);
        Ok(*taken)
    }

    /// Takes a string with its 16-bit length.
    #[inline]
    pub(crate) fn string(&mut self, field: &'static str) -> Result<&'a str, DecodeError> {
        let length = usize::from(u16::read(self, field)?);
        let offset = self.offset;
        let Some((taken, rest)) = self.rest.split_at_checked(length) else {
            return Err(DecodeError::StringPastEnd { field, offset, length, left: self.rest.len() });
        };
        self.advance(rest, length);
        str::from_utf8(taken).map_err(|error| {
            let offset = offset.saturating_add(error.valid_up_to());
            DecodeError::Utf8 { field, offset }
        })
    }

    /// Passes over a string, having checked it as [`string`](Self::string) does.
    #[inline]
    pub(crate) fn skip_string(&mut self, field: &'static str) -> Result<(), DecodeError> {
        let before = *self;
        let length = u16::read(self, field)?;
        match self.rest.split_at_checked(length.into()) {
            // Nearly all strings are short and ASCII, and need no call.
            Some((taken, rest)) if taken.iter().all(u8::is_ascii) => {
                self.advance(rest, taken.len());
                Ok(())
            }
            _ => {
                *self = before;
                self.string(field).map(drop)
            }
        }
    }

    #[inline]
    fn advance(&mut self, rest: &'a [u8], count: usize) {
        self.rest = rest;
        self.offset = self.offset.wrapping_add(count); // `count` bytes were there: no wrap
    }

    #[cold]
    fn past_end(&self, needed: usize, field: &'static str) -> DecodeError {
        DecodeError::FieldPastEnd { field, offset: self.offset, needed, left: self.rest.len() }
    }
}

/// A type that has a place in packets. The set is closed: it is made of what the format offers.
pub trait Wire<'a>: Copy {
    /// The bytes it takes, where that is always the same number and any such bytes are a value.
    const WIDTH: Option<usize>;

    /// Takes a value from the packet.
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError>;

    /// Checks that the value can be written, and tells how many bytes it will take.
    fn measure(&self, field: &'static str) -> Result<usize, EncodeError>;

    /// Writes a value that has been measured.
    fn write(&self, out: &mut impl BufMut);

    /// Writes values that have been measured, one after the other.
    #[inline]
    fn write_all(values: &[Self], out: &mut impl BufMut) {
        values.iter().for_each(|value| value.write(out));
    }
}

macro_rules! number {
    ($($number:ty),+) => {$(
        impl<'a> Wire<'a> for $number {
            const WIDTH: Option<usize> = Some(size_of::<Self>());

            #[inline]
            fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
                reader.array(field).map(Self::from_be_bytes)
            }

            #[inline]
            fn measure(&self, _: &'static str) -> Result<usize, EncodeError> {
                Ok(size_of::<Self>())
            }

            #[inline]
            fn write(&self, out: &mut impl BufMut) {
                out.put_slice(&self.to_be_bytes());
            }

            /// Eight at a time, since each piece put costs about as much as a word copied.
            #[inline]
            fn write_all(values: &[Self], out: &mut impl BufMut) {
                let (blocks, rest) = values.as_chunks::<8>();
                for block in blocks {
                    out.put_slice(block.map(Self::to_be_bytes).as_flattened());
                }
                rest.iter().for_each(|value| value.write(out));
            }
        }
    )+};
}
number!(u8, u16, u32, u64, u128, i32, i64, f64);

/// Types that travel as another: `$type` as `$inner`, by the two conversions given.
macro_rules! travels_as {
    ($($type:ty as $inner:ty: $from:expr, $into:expr;)+) => {$(
        impl<'a> $crate::heph::wire::Wire<'a> for $type {
            const WIDTH: Option<usize> = <$inner as $crate::heph::wire::Wire<'a>>::WIDTH;

            #[inline]
            fn read(
                reader: &mut $crate::heph::wire::Reader<'a>,
                field: &'static str,
            ) -> Result<Self, $crate::heph::DecodeError> {
                <$inner as $crate::heph::wire::Wire<'a>>::read(reader, field).map($from)
            }

            #[inline]
            fn measure(&self, _: &'static str) -> Result<usize, $crate::heph::EncodeError> {
                Ok(size_of::<$inner>())
            }

            #[inline]
            fn write(&self, out: &mut impl bytes::BufMut) {
                let into: fn(Self) -> $inner = $into;
                into(*self).write(out);
            }
        }
    )+};
}
pub(crate) use travels_as;

travels_as! {
    StreamId as u32: StreamId, |v| v.0;
    SubstreamId as u64: SubstreamId, |v| v.0;
    Counter as u32: Counter, |v| v.0;
    Position as u64: Position, |v| v.0;
    ModuleId as u32: ModuleId, |v| v.0;
    FunctionId as u64: FunctionId, |v| v.0;
    SessionNs as u64: SessionNs, |v| v.0;
    SessionId as u128: |v| SessionId(v.to_be_bytes()), |v| u128::from_be_bytes(v.0);
    Arch as u8: Arch::from, u8::from;
    Os as u8: Os::from, u8::from;
    ClockKind as u8: ClockKind::from, u8::from;
    BirthKind as u8: BirthKind::from, u8::from;
    AnswerKind as u8: AnswerKind::from, u8::from;
    LevelKind as u8: LevelKind::from, u8::from;
}

impl<'a> Wire<'a> for &'a str {
    const WIDTH: Option<usize> = None;

    #[inline]
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        reader.string(field)
    }

    #[inline]
    fn measure(&self, field: &'static str) -> Result<usize, EncodeError> {
        prefixed(self.len(), self.len(), field)
    }

    #[inline]
    fn write(&self, out: &mut impl BufMut) {
        write_length(self.len(), out);
        out.put_slice(self.as_bytes());
    }
}

impl<'a> Wire<'a> for &'a [u8] {
    const WIDTH: Option<usize> = None;

    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        let length = u16::read(reader, field)?;
        reader.bytes(length.into(), field)
    }

    fn measure(&self, field: &'static str) -> Result<usize, EncodeError> {
        prefixed(self.len(), self.len(), field)
    }

    fn write(&self, out: &mut impl BufMut) {
        write_length(self.len(), out);
        out.put_slice(self);
    }
}

/// A value that may be absent: a byte, 0 or 1, and behind a 1 the value.
impl<'a, T: Wire<'a>> Wire<'a> for Option<T> {
    const WIDTH: Option<usize> = None;

    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        let offset = reader.offset();
        match u8::read(reader, field)? {
            0 => Ok(None),
            1 => T::read(reader, field).map(Some),
            found => {
                Err(DecodeError::Value { field, offset, expected: "0 (absent) or 1 (present)", found: found.into() })
            }
        }
    }

    fn measure(&self, field: &'static str) -> Result<usize, EncodeError> {
        let value = self.as_ref().map_or(Ok(0), |value| value.measure(field))?;
        Ok(value.saturating_add(1))
    }

    fn write(&self, out: &mut impl BufMut) {
        out.put_u8(u8::from(self.is_some()));
        if let Some(value) = self {
            value.write(out);
        }
    }
}

/// The size of something with a 16-bit length before it: `length` elements in `bytes` bytes.
#[inline]
pub(crate) fn prefixed(length: usize, bytes: usize, field: &'static str) -> Result<usize, EncodeError> {
    let limit = usize::from(u16::MAX);
    if length > limit {
        return Err(EncodeError::TooLong { field, length, limit });
    }
    Ok(bytes.saturating_add(2))
}

/// Writes the 16-bit length of something that [`prefixed`] has measured.
#[inline]
pub(crate) fn write_length(length: usize, out: &mut impl BufMut) {
    debug_assert!(length <= usize::from(u16::MAX), "measured before it is written");
    out.put_u16(u16::try_from(length).unwrap_or(u16::MAX));
}

/// Declares structures that travel as their fields, one after the other.
macro_rules! wire_struct {
    ($($(#[$meta:meta])* pub struct $name:ident $(<$lt:lifetime>)? as $title:literal {
        $($(#[$field_meta:meta])* pub $field:ident: $ty:ty,)+
    })+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name $(<$lt>)? {
            $($(#[$field_meta])* pub $field: $ty,)+
        }

        impl<'a> $name $(<$lt>)? {
            /// The layout, as the documentation shows it.
            pub const LAYOUT: $crate::layout::Layout = $crate::layout::Layout {
                name: $title,
                fields: &[$($crate::layout::Field {
                    name: stringify!($field),
                    bytes: <$ty as $crate::heph::wire::Wire<'a>>::WIDTH,
                }),+],
            };
        }

        impl<'a> $crate::heph::wire::Wire<'a> for $name $(<$lt>)? {
            const WIDTH: Option<usize> =
                $crate::heph::wire::total(&[$(<$ty as $crate::heph::wire::Wire<'a>>::WIDTH),+]);

            fn read(
                reader: &mut $crate::heph::wire::Reader<'a>,
                _: &'static str,
            ) -> Result<Self, $crate::heph::DecodeError> {
                Ok(Self {
                    $($field: $crate::heph::wire::Wire::read(reader, concat!($title, " ", stringify!($field)))?,)+
                })
            }

            fn measure(&self, _: &'static str) -> Result<usize, $crate::heph::EncodeError> {
                let bytes = 0_usize;
                $(let bytes = bytes.saturating_add(self.$field.measure(concat!($title, " ", stringify!($field)))?);)+
                Ok(bytes)
            }

            fn write(&self, out: &mut impl bytes::BufMut) {
                $(self.$field.write(out);)+
            }
        }
    )+};
}
pub(crate) use wire_struct;

/// The width of fields of these widths together.
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // evaluated by the compiler
pub(crate) const fn total(widths: &[Option<usize>]) -> Option<usize> {
    let mut sum = 0;
    let mut i = 0;
    while i < widths.len() {
        match widths[i] {
            Some(width) => sum += width,
            None => return None,
        }
        i += 1;
    }
    Some(sum)
}
