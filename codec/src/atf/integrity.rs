//! What a file's bytes are worth.

use std::fmt;

use crc32fast::Hasher;
use thiserror::Error;

use super::{EDGE_BYTES, Origin, writer::Totals};
use crate::heph::DecodeError;

/// The state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Integrity {
    /// It was finished, and every check passes.
    Intact,
    /// Its writer has not finished it, or was killed.
    Unfinished {
        /// How many events can be read.
        events: u64,
    },
    /// It is not what its writer wrote.
    Corrupt(Corrupt),
}

/// Why a file cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say what the fields are
pub enum OpenError {
    /// It ends before its header does: its writer was stopped before the first event.
    #[error("the file has {found} bytes, its header takes {EDGE_BYTES}")]
    Short { found: usize },
    /// Its header is not one.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

impl From<OpenError> for Integrity {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Short { .. } => Self::Unfinished { events: 0 },
            OpenError::Corrupt(corrupt) => Self::Corrupt(corrupt),
        }
    }
}

/// What is wrong with a file, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("at byte {offset}: {what}")]
pub struct Corrupt {
    /// Where.
    pub offset: u64,
    /// What.
    pub what: Corruption,
}

/// What can be wrong with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say what the fields are
pub enum Corruption {
    /// Not a file of this kind, or not a footer where there should be one.
    #[error("expected the magic \"{}\", found \"{}\"", .expected.escape_ascii(), .found.escape_ascii())]
    Magic { expected: [u8; 4], found: [u8; 4] },
    /// Not little-endian.
    #[error("expected byte order 1 (little-endian), found {found}")]
    Endian { found: u8 },
    /// Another version of the format.
    #[error("expected version 1, found {found}")]
    Version { found: u8 },
    /// Events that are not 32 bytes.
    #[error("expected events of 32 bytes, found {found}")]
    EventSize { found: u32 },
    /// Events that do not start behind the header.
    #[error("expected the first event at byte 64, found {found}")]
    EventsOffset { found: u64 },
    /// The file ends before the footer that its header promises.
    #[error("expected a footer of 64 bytes, found {found} bytes")]
    FooterCut { found: u64 },
    /// Bytes behind the footer.
    #[error("expected the end of the file, found {found} more bytes")]
    TrailingBytes { found: u64 },
    /// A field of the header or footer does not agree with the events.
    #[error("{field}: expected {expected}, found {found}")]
    Disagreement { field: &'static str, expected: u64, found: u64 },
    /// The events are not those that the checksum was made of.
    #[error("expected checksum {expected:08x}, the events have {found:08x}")]
    Checksum { expected: u32, found: u32 },
    /// An event of a kind that does not exist.
    #[error("expected a kind from 1 to 3, found {found}")]
    Kind { found: u32 },
    /// A detail event whose length does not fit.
    #[error("expected a length from 24 to {limit}, found {found}")]
    Length { limit: u64, found: u32 },
    /// A detail event that is too short for what it should hold.
    #[error("expected {needed} bytes of payload, found {found}")]
    Payload { needed: u64, found: u64 },
    /// A detail event with more stack than the format allows.
    #[error("expected at most {limit} bytes of stack, found {found}")]
    Stack { limit: u64, found: u64 },
    /// A detail event whose attributes cannot be read.
    #[error("in attributes, {0}")]
    Attributes(DecodeError),
}

/// A footer as a file's shape tells it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Footer<'a> {
    /// The events end at a footer.
    Finished(&'a [u8; EDGE_BYTES]),
    /// There is no footer, and none was promised.
    Unfinished,
    /// There should be a footer.
    Broken(Corrupt),
}

impl Footer<'_> {
    /// Whether the file just lacks its end.
    pub(crate) fn is_cut(&self) -> bool {
        match self {
            Self::Finished(_) => false,
            Self::Unfinished => true,
            Self::Broken(corrupt) => matches!(corrupt.what, Corruption::FooterCut { .. }),
        }
    }
}

/// Finds the end of the events in `file`.
///
/// Returns the events section and the 64 bytes behind it. The last 64 bytes are the footer if `is_footer` says so,
/// given the length of the section before them: that is where the footer is, whatever the header promises. Only
/// where there is none does it matter that one was `promised`: its offset, 0 for none.
pub(crate) fn find_footer(
    file: &[u8],
    promised: u64,
    magic: [u8; 4],
    is_footer: impl FnOnce(&[u8; EDGE_BYTES], u64) -> bool,
) -> (&[u8], Footer<'_>) {
    let events = file.get(EDGE_BYTES..).unwrap_or_default();
    if let Some((before, footer)) = events.split_last_chunk()
        && is_footer(footer, before.len() as u64)
    {
        return (before, Footer::Finished(footer));
    }
    if promised == 0 {
        return (events, Footer::Unfinished);
    }
    let broken = |offset: u64, what: Corruption| Footer::Broken(Corrupt { offset, what });
    let length = promised.checked_sub(EDGE_BYTES as u64).and_then(|length| usize::try_from(length).ok());
    let Some((before, rest)) = length.and_then(|length| events.split_at_checked(length)) else {
        return (events, broken(file.len() as u64, Corruption::FooterCut { found: 0 }));
    };
    let start = rest.get(..4).unwrap_or(rest);
    if !magic.starts_with(start) {
        let mut found = [0; 4];
        found.iter_mut().zip(start).for_each(|(to, from)| *to = *from);
        return (events, broken(promised, Corruption::Magic { expected: magic, found }));
    }
    match rest.split_first_chunk() {
        Some((footer, [])) => (before, Footer::Finished(footer)),
        Some((_, more)) => {
            let offset = promised.saturating_add(EDGE_BYTES as u64);
            (before, broken(offset, Corruption::TrailingBytes { found: more.len() as u64 }))
        }
        None => (before, broken(promised, Corruption::FooterCut { found: rest.len() as u64 })),
    }
}

/// The checksum in a footer that was cut, if it got that far; `tail` is what lies behind the last event.
pub(crate) fn cut_checksum(tail: &[u8], magic: [u8; 4]) -> Option<u32> {
    tail.strip_prefix(&magic)?.first_chunk().map(|checksum| u32::from_le_bytes(*checksum))
}

/// How much of a header has been completed, if it is what a writer leaves that is killed meanwhile: the first bytes
/// of the complete one, and the rest as it was at the start. Where nothing or everything was written, it is whole.
pub(crate) fn completion<T: Totals>(header: &[u8; EDGE_BYTES], origin: &Origin, totals: &T) -> Option<Completion> {
    let (start, complete) = (T::header(origin, None), T::header(origin, Some(totals)));
    let written = header.iter().zip(&complete).take_while(|(a, b)| a == b).count();
    if *header == start || *header == complete {
        return Some(Completion::Whole);
    }
    (header.get(written..) == start.get(written..)).then_some(Completion::Torn)
}

/// What a header was left as.
pub(crate) enum Completion {
    /// As it was at the start, or completed.
    Whole,
    /// Something between.
    Torn,
}

/// Compares what a header or footer says with what is so.
pub(crate) fn agree(offset: u64, field: &'static str, expected: u64, found: u64) -> Result<(), Corrupt> {
    if expected == found {
        return Ok(());
    }
    Err(Corrupt { offset, what: Corruption::Disagreement { field, expected, found } })
}

/// Compares the checksum in a footer with that of the events.
pub(crate) fn agree_checksum(offset: u64, expected: u32, found: u32) -> Result<(), Corrupt> {
    if expected == found {
        return Ok(());
    }
    Err(Corrupt { offset, what: Corruption::Checksum { expected, found } })
}

/// Holds the events of a finished file against its footer, piece by piece: for readers that do not hold the file whole.
#[derive(Debug, Clone)]
pub struct RunningChecksum {
    hasher: Hasher,
    expected: u32,
    /// Where the events end that were seen.
    end: u64,
}

impl RunningChecksum {
    /// None of the events were seen yet. Index and detail files have the checksum at the same place.
    pub fn new(footer: &[u8; EDGE_BYTES]) -> Self {
        let [_, _, _, _, a, b, c, d, ..] = *footer;
        Self { hasher: Hasher::new(), expected: u32::from_le_bytes([a, b, c, d]), end: EDGE_BYTES as u64 }
    }

    /// These events come next.
    pub fn update(&mut self, events: &[u8]) {
        self.hasher.update(events);
        self.end = self.end.saturating_add(events.len() as u64);
    }

    /// Checks the events, once all of them were seen.
    pub fn check(&self) -> Result<(), Corrupt> {
        agree_checksum(self.end.saturating_add(4), self.expected, self.hasher.clone().finalize())
    }
}

/// The checksum of a whole file, as a manifest has it: CRC-32, in 8 hexadecimal digits.
#[derive(Debug, Clone, Default)]
pub struct FileChecksum(Hasher);

impl FileChecksum {
    /// That of a file with these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut checksum = Self::default();
        checksum.update(bytes);
        checksum
    }

    /// These bytes come next.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The bytes come next that a hasher has seen.
    pub(crate) fn append(&mut self, seen: &Hasher) {
        self.0.combine(seen);
    }
}

impl fmt::Display for FileChecksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0.clone().finalize())
    }
}

/// What to say of a file too short for a header: unfinished if it starts like one.
pub(crate) fn short_file(file: &[u8], expected: [u8; 4]) -> OpenError {
    if expected.starts_with(file.get(..4).unwrap_or(file)) {
        return OpenError::Short { found: file.len() };
    }
    let mut found = [0; 4];
    found.iter_mut().zip(file).for_each(|(to, from)| *to = *from);
    Corrupt { offset: 0, what: Corruption::Magic { expected, found } }.into()
}
