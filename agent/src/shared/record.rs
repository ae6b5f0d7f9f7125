//! What a ring holds: records of whole words.
//!
//! | word | meaning |
//! |---:|---|
//! | 0 | when, by the [counter](super::tsc); 0 in place of a record says that the next one is at the ring's start |
//! | 1 | from the lowest bit: kind (8 bits), words in the record (8), depth (24), function (24) |
//!
//! and behind these two, by kind:
//!
//! | kind | words |
//! |---|---|
//! | call | nothing; with detail rdi, rsi, rdx, rcx, r8, r9, return address, rbp, rsp, and then words of the stack |
//! | return | when it was entered; with detail rax, rdx, return address, rbp, rsp |
//! | exception | when it was entered |
//! | dropped | how many events did not fit before this record |
//! | runtime | when it was entered, the numbers of up to eight keys as bytes (lowest first, 0xFF for none), their values. The depth is the phase, the function a place in [`RUNTIME_FUNCTIONS`](super::RUNTIME_FUNCTIONS) |
//! | label | the address of a queue, then the bytes of its label, padded with zeros |
//! | substream | what the thread is busy with from here on; 0 for nothing in particular |
//! | level | nothing that means anything: the function has the [level](super::Level) whose number is the depth from here on |
//! | name | two words: the thread's name, padded with zeros |
//!
//! Function numbers are the session's own: the outside gives one to every function that it hooks.

use core::{error::Error, fmt};

use codec::Key;

/// The largest record: a call with 512 bytes of stack.
pub const MAX_RECORD_WORDS: usize = 2 + 9 + 64;

/// The largest depth that a record can tell. Deeper ones are told as this.
pub const MAX_DEPTH: u32 = (1 << 24) - 1;

/// The largest function number.
pub const MAX_FUNCTION: u32 = (1 << 24) - 1;

/// How many keys a runtime record may have.
pub const MAX_KEYS: usize = 8;

/// What a record tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Kind {
    Call = 1,
    Return = 2,
    Exception = 3,
    Dropped = 4,
    Runtime = 5,
    Label = 6,
    Substream = 7,
    Name = 8,
    Level = 9,
}

impl Kind {
    #[inline(always)]
    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Call,
            2 => Self::Return,
            3 => Self::Exception,
            4 => Self::Dropped,
            5 => Self::Runtime,
            6 => Self::Label,
            7 => Self::Substream,
            8 => Self::Name,
            9 => Self::Level,
            _ => return None,
        })
    }
}

/// The second word of a record.
#[inline(always)]
pub const fn header(kind: Kind, words: usize, depth: u32, function: u32) -> u64 {
    kind as u64 | (words as u64) << 8 | (depth as u64) << 16 | (function as u64) << 40
}

/// A record, read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// When, by the counter.
    pub time: u64,
    /// What it tells.
    pub kind: Kind,
    /// How deep; of a runtime record the phase.
    pub depth: u32,
    /// Which function.
    pub function: u32,
    /// The words behind the first two.
    pub rest: &'a [u64],
}

/// Why words are no record. The program may have written over the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordError(pub u64);

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no record: its second word is {:#x}", self.0)
    }
}

impl Error for RecordError {}

/// The record at the start of these words, and how many words it takes. `None` where more words are needed.
#[inline]
pub fn parse(words: &[u64]) -> Result<Option<(Record<'_>, usize)>, RecordError> {
    let [time, header, ..] = *words else { return Ok(None) };
    let length = (header >> 8 & 0xFF) as usize;
    let Some(kind) = Kind::from_number(header as u8) else { return Err(RecordError(header)) };
    if length < kind.least_words() {
        return Err(RecordError(header));
    }
    let Some(rest) = words.get(2..length) else { return Ok(None) };
    let (depth, function) = ((header >> 16) as u32 & MAX_DEPTH, (header >> 40) as u32);
    Ok(Some((Record { time, kind, depth, function, rest }, length)))
}

impl Kind {
    /// Whether it is an event, which has a position in its stream.
    pub fn is_event(self) -> bool {
        matches!(self, Self::Call | Self::Return | Self::Exception | Self::Runtime)
    }

    /// How many words a record of this kind has at least.
    fn least_words(self) -> usize {
        match self {
            Self::Call => 2,
            Self::Return | Self::Exception | Self::Dropped | Self::Substream | Self::Label | Self::Level => 3,
            Self::Runtime | Self::Name => 4,
        }
    }
}

impl Record<'_> {
    /// The keys of a runtime record and their values.
    pub fn keys(&self) -> impl Iterator<Item = (Key, u64)> {
        let numbers = self.rest.get(1).copied().unwrap_or(u64::MAX).to_le_bytes();
        let values = self.rest.get(2..).unwrap_or_default();
        let key = |(number, value): (u8, &u64)| Key::ALL.get(usize::from(number)).map(|key| (*key, *value));
        numbers.into_iter().take(MAX_KEYS).zip(values).filter_map(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_back() {
        let words = [7, header(Kind::Return, 3, MAX_DEPTH, MAX_FUNCTION), 5, 99];
        let record = Record { time: 7, kind: Kind::Return, depth: MAX_DEPTH, function: MAX_FUNCTION, rest: &[5] };
        assert_eq!(parse(&words), Ok(Some((record, 3))));
    }

    #[test]
    fn every_truncation_asks_for_more() {
        let words = [7, header(Kind::Runtime, 5, 1, 0), 5, u64::MAX - 0xFF, 9];
        for length in 0..words.len() {
            assert_eq!(parse(&words[..length]), Ok(None), "{length} words");
        }
        let (record, length) = parse(&words).expect("a record").expect("whole");
        assert_eq!((length, record.keys().collect::<Vec<_>>()), (5, vec![(Key::Pthread, 9)]));
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for second in [0, 0xFF, header(Kind::Return, 2, 0, 0), header(Kind::Call, 1, 0, 0)] {
            assert_eq!(parse(&[1, second, 0, 0]), Err(RecordError(second)));
        }
    }
}
