//! A file being written: a header, the events so far with their checksum, and at last a footer.

use std::io::{self, ErrorKind, Seek, SeekFrom, Write};

use crc32fast::Hasher;
use thiserror::Error;

use super::EDGE_BYTES;
use crate::heph::EncodeError;

/// Why an event cannot be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The file has as many events as its links can count. Start another.
    #[error("the file is full: it has {limit} events")]
    Full {
        /// The most events a file can have.
        limit: u32,
    },
    /// The event is larger than the format can say.
    #[error("{field} has {found} bytes, the format allows {limit}")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Its size.
        found: usize,
        /// The largest size allowed.
        limit: usize,
    },
    /// A payload given as of an unknown type, whose type is known.
    #[error("detail type {kind} is a known one and cannot be written as another")]
    KnownType {
        /// The type.
        kind: u16,
    },
    /// The event's attributes cannot be written.
    #[error(transparent)]
    Attributes(#[from] EncodeError),
}

/// How many events a file can have: one less than 2³², since links use the last number for «none».
pub(crate) const MAX_EVENTS: u32 = u32::MAX;

/// The bytes of a file that have not been written yet, and the checksum of its events.
#[derive(Debug)]
pub(crate) struct Section {
    pending: Vec<u8>,
    /// How much of `pending` is in the checksum already, or does not belong in it.
    hashed: usize,
    hasher: Hasher,
    events_bytes: u64,
    /// How much of the file has been written.
    written: u64,
}

impl Section {
    pub(crate) fn new(header: [u8; EDGE_BYTES]) -> Self {
        Self { pending: header.to_vec(), hashed: EDGE_BYTES, hasher: Hasher::new(), events_bytes: 0, written: 0 }
    }

    /// A file whose header and events are written already: so many bytes of events, with this checksum.
    pub(crate) fn resume(events_bytes: u64, checksum: u32) -> Self {
        let written = events_bytes.saturating_add(EDGE_BYTES as u64);
        let hasher = Hasher::new_with_initial_len(checksum, events_bytes);
        Self { pending: Vec::new(), hashed: 0, hasher, events_bytes, written }
    }

    /// Appends a piece of an event.
    #[inline]
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        self.events_bytes = self.events_bytes.saturating_add(bytes.len() as u64);
    }

    /// Takes back what was appended since the events had this many bytes, none of which has been flushed.
    pub(crate) fn rewind(&mut self, events_bytes: u64) {
        let excess = usize::try_from(self.events_bytes.saturating_sub(events_bytes)).unwrap_or(usize::MAX);
        self.pending.truncate(self.pending.len().saturating_sub(excess));
        self.events_bytes = events_bytes;
    }

    pub(crate) fn events_bytes(&self) -> u64 {
        self.events_bytes
    }

    /// Gives back memory that is not in use.
    pub(crate) fn shrink(&mut self) {
        self.pending.shrink_to_fit();
    }

    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn written_bytes(&self) -> u64 {
        self.written
    }

    /// Writes what is pending. After an error, what was not written is still pending, and the next call goes
    /// on at that very byte.
    pub(crate) fn flush_to(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.hash();
        let mut written = 0;
        let result = loop {
            let rest = self.pending.get(written..).unwrap_or_default();
            if rest.is_empty() {
                break Ok(());
            }
            match out.write(rest) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(count) => written = written.saturating_add(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        let written = written.min(self.pending.len());
        self.pending.drain(..written);
        self.hashed = self.pending.len();
        self.written = self.written.saturating_add(written as u64);
        result
    }

    /// The checksum of all events so far.
    pub(crate) fn checksum(&mut self) -> u32 {
        self.hash();
        self.hasher.clone().finalize()
    }

    /// Ends the file with `footer`, to be started with `header`.
    pub(crate) fn seal(mut self, footer: [u8; EDGE_BYTES], header: [u8; EDGE_BYTES]) -> Sealed {
        self.hash();
        self.pending.extend_from_slice(&footer);
        self.hashed = self.pending.len();
        Sealed { section: self, header }
    }

    fn hash(&mut self) {
        self.hasher.update(self.pending.get(self.hashed..).unwrap_or_default());
        self.hashed = self.pending.len();
    }
}

/// A file that has all its events and its footer, and waits to be written to its end.
#[derive(Debug)]
pub struct Sealed {
    section: Section,
    header: [u8; EDGE_BYTES],
}

impl Sealed {
    /// How many bytes of the file have been written.
    pub fn written_bytes(&self) -> u64 {
        self.section.written_bytes()
    }

    /// Writes what is left of the file to the end of `out`, then the completed header over its start.
    ///
    /// After an error it can be called again; a file whose footer was not written to its end reads as unfinished.
    /// A file that was opened for appending only will not do: its start cannot be written.
    pub fn write_to(&mut self, out: &mut (impl Write + Seek)) -> io::Result<()> {
        out.seek(SeekFrom::End(0))?;
        self.section.flush_to(out)?;
        out.seek(SeekFrom::Start(0))?;
        out.write_all(&self.header)?;
        out.flush()
    }
}
