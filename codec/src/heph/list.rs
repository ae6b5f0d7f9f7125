//! Sequences of values of one type, in a packet or about to be written to one.

use std::{fmt, iter};

use bytes::BufMut;

use super::{
    DecodeError, EncodeError,
    wire::{Reader, Wire, prefixed, write_length},
};

/// A list of up to 65,535 values: a 16-bit count and the values one after the other.
///
/// It borrows either a packet's bytes, checked when the packet was decoded, or a slice to be encoded; both
/// read the same.
#[derive(Clone, Copy)]
pub struct List<'a, T>(Repr<'a, T>);

#[derive(Clone, Copy)]
enum Repr<'a, T> {
    Wire { bytes: &'a [u8], count: usize },
    Values(&'a [T]),
}

impl<'a, T: Wire<'a>> List<'a, T> {
    /// How many of the first `values` a list of at most `bytes` can have: for splitting a list over packets.
    pub fn fitting(values: &[T], bytes: usize) -> usize {
        let mut left = bytes.saturating_sub(2);
        let fits = |value: &&T| match value.measure("list").ok().and_then(|bytes| left.checked_sub(bytes)) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        };
        values.iter().take(u16::MAX.into()).take_while(fits).count()
    }

    /// These values in order, in parts that each fit a list of at most `bytes`, or are one value that does not.
    pub fn parts(values: &[T], bytes: usize) -> impl Iterator<Item = &[T]> {
        let mut rest = values;
        iter::from_fn(move || {
            let (part, behind) = rest.split_at_checked(Self::fitting(rest, bytes).max(1))?;
            rest = behind;
            Some(part)
        })
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        match self.0 {
            Repr::Wire { count, .. } => count,
            Repr::Values(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values, in order.
    pub fn iter(&self) -> ListIter<'a, T> {
        ListIter(*self)
    }
}

impl<'a> List<'a, u64> {
    /// Words as they are in a packet.
    pub(crate) fn from_words(words: &'a [[u8; 8]]) -> Self {
        Self(Repr::Wire { bytes: words.as_flattened(), count: words.len() })
    }

    /// The words as they are in a packet, if they are in one.
    pub(crate) fn wire_words(&self) -> Option<&'a [[u8; 8]]> {
        match self.0 {
            Repr::Wire { bytes, .. } => Some(bytes.as_chunks().0),
            Repr::Values(_) => None,
        }
    }
}

impl<'a, T> From<&'a [T]> for List<'a, T> {
    fn from(values: &'a [T]) -> Self {
        Self(Repr::Values(values))
    }
}

impl<'a, T, const N: usize> From<&'a [T; N]> for List<'a, T> {
    fn from(values: &'a [T; N]) -> Self {
        Self(Repr::Values(values))
    }
}

impl<T> Default for List<'_, T> {
    fn default() -> Self {
        Self(Repr::Values(&[]))
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for List<'a, T> {
    const WIDTH: Option<usize> = None;

    #[inline]
    fn read(reader: &mut Reader<'a>, field: &'static str) -> Result<Self, DecodeError> {
        let count = usize::from(u16::read(reader, field)?);
        let bytes = match T::WIDTH {
            Some(width) => reader.bytes(count.saturating_mul(width), field)?,
            None => {
                let start = reader.rest();
                for _ in 0..count {
                    T::read(reader, field)?;
                }
                let length = start.len().saturating_sub(reader.rest().len());
                start.get(..length).unwrap_or_default()
            }
        };
        Ok(Self(Repr::Wire { bytes, count }))
    }

    #[inline]
    fn measure(&self, field: &'static str) -> Result<usize, EncodeError> {
        let bytes = match self.0 {
            Repr::Wire { bytes, .. } => bytes.len(),
            Repr::Values(values) => match T::WIDTH {
                Some(width) => values.len().saturating_mul(width),
                None => {
                    let mut sum = 0_usize;
                    for value in values {
                        sum = sum.saturating_add(value.measure(field)?);
                    }
                    sum
                }
            },
        };
        prefixed(self.len(), bytes, field)
    }

    #[inline]
    fn write(&self, out: &mut impl BufMut) {
        write_length(self.len(), out);
        match self.0 {
            Repr::Wire { bytes, .. } => out.put_slice(bytes),
            Repr::Values(values) => T::write_all(values, out),
        }
    }
}

impl<'a, T: Wire<'a> + PartialEq> PartialEq for List<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a, T: Wire<'a> + Eq> Eq for List<'a, T> {}

impl<'a, T: Wire<'a> + fmt::Debug> fmt::Debug for List<'a, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Wire<'a>> IntoIterator for List<'a, T> {
    type Item = T;
    type IntoIter = ListIter<'a, T>;

    fn into_iter(self) -> ListIter<'a, T> {
        self.iter()
    }
}

/// The values of a [`List`]: those that are left.
#[derive(Clone, Copy)]
pub struct ListIter<'a, T>(List<'a, T>);

impl<'a, T: Wire<'a>> Iterator for ListIter<'a, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        match &mut self.0.0 {
            Repr::Wire { bytes, count } => {
                *count = count.checked_sub(1)?;
                let mut reader = Reader::new(bytes, 0);
                // The list was read once already, so this is never an error.
                let value = T::read(&mut reader, "list").ok();
                *bytes = reader.rest();
                value
            }
            Repr::Values(values) => {
                let (first, rest) = values.split_first()?;
                *values = rest;
                Some(*first)
            }
        }
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.len(), Some(self.0.len()))
    }
}

impl<'a, T: Wire<'a>> ExactSizeIterator for ListIter<'a, T> {}
