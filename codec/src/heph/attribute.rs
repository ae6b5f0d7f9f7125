//! Attributes: the named values behind an event's fixed fields.

use std::fmt;

use bytes::BufMut;

use super::{
    DecodeError, EncodeError, List,
    wire::{Reader, Wire},
};

/// A named value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attribute<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its value.
    pub value: Value<'a>,
}

/// The value of an attribute, in one of the eight types that Heph has.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// An unsigned number.
    U64(u64),
    /// A signed number.
    I64(i64),
    /// A floating-point number.
    F64(f64),
    /// A string.
    Str(&'a str),
    /// An array of unsigned numbers.
    U64s(List<'a, u64>),
    /// An array of signed numbers.
    I64s(List<'a, i64>),
    /// An array of floating-point numbers.
    F64s(List<'a, f64>),
    /// An array of strings.
    Strs(List<'a, &'a str>),
}

/// The type byte of an array is that of its elements with this bit set.
const ARRAY: u8 = 0b1000_0000;
const U64: u8 = 1;
const U64S: u8 = U64 | ARRAY;
const I64: u8 = 2;
const I64S: u8 = I64 | ARRAY;
const F64: u8 = 3;
const F64S: u8 = F64 | ARRAY;
const STR: u8 = 4;
const STRS: u8 = STR | ARRAY;

/// The smallest attribute: an empty name, a type, and the length of an empty string or array.
const MIN_BYTES: usize = 5;

const FIELD_NAME: &str = "attribute name";
const FIELD_TYPE: &str = "attribute type";
const FIELD_VALUE: &str = "attribute value";

impl Value<'_> {
    /// The byte that tells the type.
    pub fn type_byte(&self) -> u8 {
        match self {
            Self::U64(_) => U64,
            Self::I64(_) => I64,
            Self::F64(_) => F64,
            Self::Str(_) => STR,
            Self::U64s(_) => U64S,
            Self::I64s(_) => I64S,
            Self::F64s(_) => F64S,
            Self::Strs(_) => STRS,
        }
    }
}

/// Floating-point numbers are equal if their bits are: a value equals what it decodes to, NaN included.
impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::U64(a), Self::U64(b)) => a == b,
            (Self::I64(a), Self::I64(b)) => a == b,
            (Self::F64(a), Self::F64(b)) => a.to_bits() == b.to_bits(),
            (Self::Str(a), Self::Str(b)) => a == b,
            (Self::U64s(a), Self::U64s(b)) => a == b,
            (Self::I64s(a), Self::I64s(b)) => a == b,
            (Self::F64s(a), Self::F64s(b)) => a.iter().map(f64::to_bits).eq(b.iter().map(f64::to_bits)),
            (Self::Strs(a), Self::Strs(b)) => a == b,
            _ => false,
        }
    }
}

impl<'a> Wire<'a> for Attribute<'a> {
    const WIDTH: Option<usize> = None;

    #[inline]
    fn read(reader: &mut Reader<'a>, _: &'static str) -> Result<Self, DecodeError> {
        let name = reader.string(FIELD_NAME)?;
        let offset = reader.offset();
        let value = match u8::read(reader, FIELD_TYPE)? {
            U64 => Value::U64(Wire::read(reader, FIELD_VALUE)?),
            I64 => Value::I64(Wire::read(reader, FIELD_VALUE)?),
            F64 => Value::F64(Wire::read(reader, FIELD_VALUE)?),
            STR => Value::Str(Wire::read(reader, FIELD_VALUE)?),
            U64S => Value::U64s(Wire::read(reader, FIELD_VALUE)?),
            I64S => Value::I64s(Wire::read(reader, FIELD_VALUE)?),
            F64S => Value::F64s(Wire::read(reader, FIELD_VALUE)?),
            STRS => Value::Strs(Wire::read(reader, FIELD_VALUE)?),
            found => return Err(bad_type(found, offset, reader.rest())),
        };
        Ok(Self { name, value })
    }

    #[inline]
    fn measure(&self, _: &'static str) -> Result<usize, EncodeError> {
        let name = self.name.measure(FIELD_NAME)?;
        let value = match &self.value {
            Value::U64(_) | Value::I64(_) | Value::F64(_) => 8,
            Value::Str(value) => value.measure(FIELD_VALUE)?,
            Value::U64s(values) => values.measure(FIELD_VALUE)?,
            Value::I64s(values) => values.measure(FIELD_VALUE)?,
            Value::F64s(values) => values.measure(FIELD_VALUE)?,
            Value::Strs(values) => values.measure(FIELD_VALUE)?,
        };
        Ok(name.saturating_add(1).saturating_add(value))
    }

    #[inline]
    fn write(&self, out: &mut impl BufMut) {
        self.name.write(out);
        out.put_u8(self.value.type_byte());
        match &self.value {
            Value::U64(value) => value.write(out),
            Value::I64(value) => value.write(out),
            Value::F64(value) => value.write(out),
            Value::Str(value) => value.write(out),
            Value::U64s(values) => values.write(out),
            Value::I64s(values) => values.write(out),
            Value::F64s(values) => values.write(out),
            Value::Strs(values) => values.write(out),
        }
    }
}

/// Passes over an attribute, having checked it as reading it does.
#[inline]
fn skip<'a>(reader: &mut Reader<'a>) -> Result<(), DecodeError> {
    let before = *reader;
    reader.skip_string(FIELD_NAME)?;
    match u8::read(reader, FIELD_TYPE)? {
        U64 | I64 | F64 => reader.bytes(8, FIELD_VALUE).map(drop),
        STR => reader.skip_string(FIELD_VALUE),
        U64S => List::<u64>::read(reader, FIELD_VALUE).map(drop),
        _ => {
            *reader = before;
            Attribute::read(reader, "attribute").map(drop)
        }
    }
}

/// What is wrong with a type byte; `rest` is what follows it.
#[cold]
fn bad_type(found: u8, offset: usize, rest: &[u8]) -> DecodeError {
    match (found, rest.first()) {
        (ARRAY, Some(&inner @ (U64S | I64S | F64S | STRS | ARRAY))) => {
            DecodeError::NestedArray { offset, found: inner }
        }
        (ARRAY, _) => DecodeError::LoneArrayMarker { offset },
        _ => DecodeError::AttributeType { offset, found },
    }
}

/// The attributes of an event, in a packet or about to be written to one.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    source: Source<'a>,
    /// Attributes with these names belong to somebody else and are passed over.
    hidden: &'static [&'static str],
}

#[derive(Clone, Copy)]
enum Source<'a> {
    Wire(&'a [u8]),
    Values(&'a [Attribute<'a>]),
}

impl<'a> Attributes<'a> {
    /// Reads all that is left of a packet.
    #[inline]
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Self::read_each(reader, skip)
    }

    /// Reads all that is left of a packet, and shows every attribute to `visit` on the way.
    #[inline]
    pub(crate) fn read_visiting(
        reader: &mut Reader<'a>,
        mut visit: impl FnMut(&Attribute<'a>),
    ) -> Result<Self, DecodeError> {
        Self::read_each(reader, |reader| Attribute::read(reader, "attribute").map(|attribute| visit(&attribute)))
    }

    #[inline]
    fn read_each(
        reader: &mut Reader<'a>,
        mut read: impl FnMut(&mut Reader<'a>) -> Result<(), DecodeError>,
    ) -> Result<Self, DecodeError> {
        let bytes = reader.rest();
        while !reader.rest().is_empty() {
            let count = reader.rest().len();
            if count < MIN_BYTES {
                return Err(DecodeError::TrailingBytes { offset: reader.offset(), count });
            }
            read(reader)?;
        }
        Ok(Self { source: Source::Wire(bytes), hidden: &[] })
    }

    /// The same attributes without those of these names.
    #[must_use]
    pub(crate) fn without(self, hidden: &'static [&'static str]) -> Self {
        Self { hidden, ..self }
    }

    /// The attributes, in order.
    pub fn iter(&self) -> AttributesIter<'a> {
        AttributesIter(*self)
    }

    /// The value of the first attribute with this name.
    pub fn find(&self, name: &str) -> Option<Value<'a>> {
        self.iter().find(|attribute| attribute.name == name).map(|attribute| attribute.value)
    }

    /// The number in the first attribute with this name, if it is an unsigned number.
    pub fn find_u64(&self, name: &str) -> Option<u64> {
        match self.find(name)? {
            Value::U64(value) => Some(value),
            _ => None,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Measures attributes that stand beside those of these names, and must not have them.
    #[inline]
    pub(crate) fn measure_beside(&self, names: &'static [&'static str]) -> Result<usize, EncodeError> {
        if let Source::Values([]) = self.source {
            return Ok(0);
        }
        let taken = self.iter().find_map(|attribute| names.iter().find(|&&name| name == attribute.name));
        taken.map_or_else(|| self.measure(), |name| Err(EncodeError::Reserved { name }))
    }

    #[inline]
    pub(crate) fn measure(&self) -> Result<usize, EncodeError> {
        match self.source {
            Source::Values([]) => Ok(0),
            Source::Wire(bytes) if self.hidden.is_empty() => Ok(bytes.len()),
            _ => {
                let mut sum = 0_usize;
                for attribute in *self {
                    sum = sum.saturating_add(attribute.measure("attribute")?);
                }
                Ok(sum)
            }
        }
    }

    #[inline]
    pub(crate) fn write(&self, out: &mut impl BufMut) {
        match self.source {
            Source::Values([]) => {}
            Source::Wire(bytes) if self.hidden.is_empty() => out.put_slice(bytes),
            _ => self.iter().for_each(|attribute| attribute.write(out)),
        }
    }
}

impl<'a> From<&'a [Attribute<'a>]> for Attributes<'a> {
    fn from(values: &'a [Attribute<'a>]) -> Self {
        Self { source: Source::Values(values), hidden: &[] }
    }
}

impl<'a, const N: usize> From<&'a [Attribute<'a>; N]> for Attributes<'a> {
    fn from(values: &'a [Attribute<'a>; N]) -> Self {
        Self::from(values.as_slice())
    }
}

impl Default for Attributes<'_> {
    fn default() -> Self {
        Self { source: Source::Values(&[]), hidden: &[] }
    }
}

impl PartialEq for Attributes<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Attributes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|a| (a.name, a.value))).finish()
    }
}

impl<'a> IntoIterator for Attributes<'a> {
    type Item = Attribute<'a>;
    type IntoIter = AttributesIter<'a>;

    fn into_iter(self) -> AttributesIter<'a> {
        self.iter()
    }
}

/// The attributes of an [`Attributes`]: those that are left.
#[derive(Debug, Clone, Copy)]
pub struct AttributesIter<'a>(Attributes<'a>);

impl<'a> Iterator for AttributesIter<'a> {
    type Item = Attribute<'a>;

    #[inline]
    fn next(&mut self) -> Option<Attribute<'a>> {
        loop {
            let attribute = match &mut self.0.source {
                Source::Wire([]) => return None,
                Source::Wire(bytes) => {
                    let mut reader = Reader::new(bytes, 0);
                    // The attributes were read once already, so this is never an error.
                    let attribute = Attribute::read(&mut reader, "attribute").ok()?;
                    *bytes = reader.rest();
                    attribute
                }
                Source::Values(values) => {
                    let (first, rest) = values.split_first()?;
                    *values = rest;
                    *first
                }
            };
            if !self.0.hidden.contains(&attribute.name) {
                return Some(attribute);
            }
        }
    }
}
