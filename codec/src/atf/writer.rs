//! A file being written: a header, the events so far with their checksum, and at last a footer.

use std::io::{self, ErrorKind, Seek, SeekFrom, Write};

use crc32fast::Hasher;
use thiserror::Error;

use super::{EDGE_BYTES, FileChecksum, Origin};
use crate::heph::EncodeError;

/// Why an event cannot be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say what the fields are
pub enum AppendError {
    /// The file has as many events as its links can count. Start another.
    #[error("the file is full: it has {limit} events")]
    Full { limit: u32 },
    /// The event is larger than the format can say.
    #[error("{field} has {found} bytes, the format allows {limit}")]
    TooLong { field: &'static str, found: usize, limit: usize },
    /// A payload given as of an unknown type, whose type is known.
    #[error("detail type {kind} is a known one and cannot be written as another")]
    KnownType { kind: u16 },
    /// The event's attributes cannot be written.
    #[error(transparent)]
    Attributes(#[from] EncodeError),
}

/// How many events a file can have: one less than 2³², since links use the last number for «none».
pub(crate) const MAX_EVENTS: u32 = u32::MAX;

/// What the events of a file come to: what its header and footer say of them.
pub trait Totals: Copy + Default {
    /// The header of a file with these events; without them, that of a file that has just been started.
    fn header(origin: &Origin, totals: Option<&Self>) -> [u8; EDGE_BYTES];

    /// The footer behind these events.
    fn footer(&self, checksum: u32) -> [u8; EDGE_BYTES];

    /// How many bytes these events take.
    fn events_bytes(&self) -> u64;
}

/// Writes a file: collects events, and writes them where and when the caller says.
#[derive(Debug)]
pub struct FileWriter<T> {
    origin: Origin,
    pub(super) totals: T,
    /// What has not been written yet.
    pub(super) pending: Vec<u8>,
    /// How much of `pending` is in the checksum already, or does not belong in it.
    hashed: usize,
    hasher: Hasher,
    /// How much of the file has been written.
    written: u64,
}

impl<T: Totals> FileWriter<T> {
    /// A file without events.
    pub fn new(origin: Origin) -> Self {
        let pending = T::header(&origin, None).to_vec();
        Self { origin, totals: T::default(), pending, hashed: EDGE_BYTES, hasher: Hasher::new(), written: 0 }
    }

    /// Goes on with a file that has these events and no footer.
    pub(super) fn resume(origin: Origin, totals: T, checksum: u32) -> Self {
        let events_bytes = totals.events_bytes();
        let hasher = Hasher::new_with_initial_len(checksum, events_bytes);
        let written = events_bytes.saturating_add(EDGE_BYTES as u64);
        Self { origin, totals, pending: Vec::new(), hashed: 0, hasher, written }
    }

    /// What the file starts with until it is sealed.
    pub fn start(&self) -> [u8; EDGE_BYTES] {
        T::header(&self.origin, None)
    }

    /// How many bytes of the file have been written.
    pub fn written_bytes(&self) -> u64 {
        self.written
    }

    /// Gives back the memory that is kept for bytes to come: for a file that grows no more for a while.
    pub fn shrink(&mut self) {
        self.pending.shrink_to_fit();
    }

    /// How many bytes wait to be written.
    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Writes what waits to the end of the file.
    ///
    /// After an error the rest still waits, and another call goes on at the very byte where this one stopped.
    pub fn flush_to(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.hash();
        let result = flush(&mut self.pending, &mut self.written, out);
        self.hashed = self.pending.len();
        result
    }

    /// Ends the file. What is returned is to be written over and behind what has been flushed.
    pub fn seal(mut self) -> Sealed {
        self.hash();
        self.pending.extend_from_slice(&self.totals.footer(self.hasher.finalize()));
        let header = T::header(&self.origin, Some(&self.totals));
        Sealed { pending: self.pending, header, written: self.written }
    }

    /// The checksum of the file as it will be once it is sealed and written.
    pub fn file_checksum(&self) -> FileChecksum {
        let mut events = self.hasher.clone();
        events.update(self.pending.get(self.hashed..).unwrap_or_default());
        let mut checksum = FileChecksum::of(&T::header(&self.origin, Some(&self.totals)));
        checksum.append(&events);
        checksum.update(&self.totals.footer(events.finalize()));
        checksum
    }

    fn hash(&mut self) {
        self.hasher.update(self.pending.get(self.hashed..).unwrap_or_default());
        self.hashed = self.pending.len();
    }
}

/// A file that has all its events and its footer, and waits to be written to its end.
#[derive(Debug)]
pub struct Sealed {
    pending: Vec<u8>,
    header: [u8; EDGE_BYTES],
    written: u64,
}

impl Sealed {
    /// How many bytes of the file have been written.
    pub fn written_bytes(&self) -> u64 {
        self.written
    }

    /// Writes what is left of the file to the end of `out`, then the completed header over its start.
    ///
    /// After an error it can be called again; a file whose footer was not written to its end reads as unfinished.
    /// A file that was opened for appending only will not do: its start cannot be written.
    pub fn write_to(&mut self, out: &mut (impl Write + Seek)) -> io::Result<()> {
        out.seek(SeekFrom::End(0))?;
        flush(&mut self.pending, &mut self.written, out)?;
        out.seek(SeekFrom::Start(0))?;
        out.write_all(&self.header)?;
        out.flush()
    }
}

/// Writes what is pending. After an error, what was not written is still pending.
fn flush(pending: &mut Vec<u8>, all: &mut u64, out: &mut impl Write) -> io::Result<()> {
    let mut written = 0;
    let result = loop {
        let rest = pending.get(written..).unwrap_or_default();
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
    pending.drain(..written.min(pending.len()));
    *all = all.saturating_add(written as u64);
    result
}
