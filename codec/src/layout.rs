//! Layouts, declared once: the code that reads and writes them and the tables in `docs/` both follow from here.

use crate::{
    heph::{EVENT_LAYOUT, METADATA_LAYOUT},
    profile::{
        Ack, Answer, Ask, Birth, Claim, Clock, Counted, CountedCalls, Dropped, Drops, End, Epoch, FunctionName,
        Functions, Kept, LevelChange, Levels, Limit, Limits, Lost, Module, Nack, Offset, Progress, Queue, Range,
        Refused, Session, SourceLine, Sources, StreamPosition, Thread, Times, Token, TraceContext,
    },
};

/// One field of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its size, where it always has the same.
    pub bytes: Option<usize>,
}

/// A layout under the name that the documentation gives it.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The name.
    pub name: &'static str,
    /// Its fields, in order and without holes.
    pub fields: &'static [Field],
}

/// Every layout of the wire, for holding the documentation against the code.
pub const WIRE: &[Layout] = &[
    METADATA_LAYOUT,
    EVENT_LAYOUT,
    Epoch::LAYOUT,
    Clock::LAYOUT,
    Offset::LAYOUT,
    Session::LAYOUT,
    Birth::LAYOUT,
    TraceContext::LAYOUT,
    Thread::LAYOUT,
    Module::LAYOUT,
    Functions::LAYOUT,
    FunctionName::LAYOUT,
    Sources::LAYOUT,
    SourceLine::LAYOUT,
    Queue::LAYOUT,
    Limits::LAYOUT,
    Limit::LAYOUT,
    Levels::LAYOUT,
    LevelChange::LAYOUT,
    Counted::LAYOUT,
    CountedCalls::LAYOUT,
    Drops::LAYOUT,
    Dropped::LAYOUT,
    Progress::LAYOUT,
    StreamPosition::LAYOUT,
    End::LAYOUT,
    Claim::LAYOUT,
    Token::LAYOUT,
    Answer::LAYOUT,
    Ack::LAYOUT,
    Times::LAYOUT,
    Kept::LAYOUT,
    Lost::LAYOUT,
    Nack::LAYOUT,
    Range::LAYOUT,
    Refused::LAYOUT,
    Ask::LAYOUT,
];

/// The fields of a word of a run from its highest bit, each with its number of bits.
pub const RUN_WORD: &[(u32, &str)] = crate::profile::run::WORD;

/// The kinds of words in a run, by number.
pub const RUN_KINDS: &[(u64, &str)] = crate::profile::run::KINDS;

/// The prefixes in a run, by code.
pub const RUN_PREFIXES: &[(u64, &str)] = crate::profile::run::PREFIXES;

/// A value of fixed size in a [`record!`].
pub(crate) trait Scalar: Copy {
    /// Reads and writes it little-endian.
    fn get(bytes: &[u8]) -> Self;
    fn put(self, bytes: &mut [u8]);
    /// The value with its bytes in the other order.
    fn swap(self) -> Self;
}

macro_rules! integer {
    ($($int:ty),+) => {$(
        impl Scalar for $int {
            #[inline(always)]
            fn get(bytes: &[u8]) -> Self {
                bytes.try_into().map_or(0, Self::from_le_bytes)
            }
            #[inline(always)]
            fn put(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
            #[inline(always)]
            fn swap(self) -> Self {
                self.swap_bytes()
            }
        }
    )+};
}
integer!(u8, u16, u32, u64);

impl<const N: usize> Scalar for [u8; N] {
    #[inline(always)]
    fn get(bytes: &[u8]) -> Self {
        bytes.try_into().unwrap_or([0; N])
    }
    #[inline(always)]
    fn put(self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self);
    }
    #[inline(always)]
    fn swap(self) -> Self {
        self
    }
}

impl Scalar for [u64; 8] {
    #[inline(always)]
    fn get(bytes: &[u8]) -> Self {
        let mut words = [0; 8];
        words.iter_mut().zip(bytes.chunks_exact(8)).for_each(|(word, chunk)| *word = u64::get(chunk));
        words
    }
    #[inline(always)]
    fn put(self, bytes: &mut [u8]) {
        bytes.chunks_exact_mut(8).zip(self).for_each(|(chunk, word)| word.put(chunk));
    }
    #[inline(always)]
    fn swap(self) -> Self {
        self.map(u64::swap_bytes)
    }
}

/// Declares packed structures of fixed size, `be` or `le`, with their conversions and their [`Field`]s.
macro_rules! record {
    (@ordered be $value:expr) => { crate::layout::Scalar::swap($value) };
    (@ordered le $value:expr) => { $value };
    ($endian:tt; $($(#[$meta:meta])* $vis:vis struct $name:ident[$len:literal] {
        $($field:ident: $ty:ty),+ $(,)?
    })+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis struct $name {
            $($vis $field: $ty,)+
        }

        #[allow(dead_code)] // not every record needs every part
        impl $name {
            $vis const LEN: usize = $len;
            $vis const FIELDS: &'static [crate::layout::Field] = &[$(crate::layout::Field {
                name: stringify!($field),
                bytes: Some(size_of::<$ty>()),
            }),+];

            #[inline(always)]
            $vis fn from_bytes(bytes: &[u8; $len]) -> Self {
                const { assert!(0 $(+ size_of::<$ty>())+ == $len) };
                let rest = &bytes[..];
                $(
                    let (field, rest) = rest.split_at(size_of::<$ty>());
                    let $field: $ty = record!(@ordered $endian crate::layout::Scalar::get(field));
                )+
                let _ = rest;
                Self { $($field),+ }
            }

            #[inline(always)]
            $vis fn to_bytes(self) -> [u8; $len] {
                const { assert!(0 $(+ size_of::<$ty>())+ == $len) };
                let mut bytes = [0; $len];
                let rest = &mut bytes[..];
                $(
                    let (field, rest) = rest.split_at_mut(size_of::<$ty>());
                    crate::layout::Scalar::put(record!(@ordered $endian self.$field), field);
                )+
                let _ = rest;
                bytes
            }
        }
    )+};
}
pub(crate) use record;

#[cfg(test)]
mod tests {
    record! { be; struct Big[11] { a: u8, b: u16, c: u64 } }
    record! { le; struct Little[11] { a: u8, b: u16, c: [u8; 8] } }

    #[test]
    fn records_read_what_they_write_in_their_byte_order() {
        let big = Big { a: 1, b: 0x0203, c: 0x0405_0607_0809_0a0b };
        assert_eq!(big.to_bytes(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(Big::from_bytes(&big.to_bytes()), big);

        let little = Little { a: 1, b: 0x0203, c: *b"abcdefgh" };
        assert_eq!(little.to_bytes(), *b"\x01\x03\x02abcdefgh");
        assert_eq!(Little::from_bytes(&little.to_bytes()), little);
    }
}
