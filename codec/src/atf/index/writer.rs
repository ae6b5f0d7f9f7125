//! Writing an index file.

use std::io::{self, Write};

use super::{IndexEvent, NO_DETAIL, Totals, footer, header};
use crate::atf::{
    AppendError, EDGE_BYTES, Origin, Sealed,
    section::{MAX_EVENTS, Section},
};

/// Writes an index file: collects events, and writes them where and when the caller says.
#[derive(Debug)]
pub struct IndexWriter {
    origin: Origin,
    section: Section,
    totals: Totals,
}

impl IndexWriter {
    /// A file without events.
    pub fn new(origin: Origin) -> Self {
        let section = Section::new(header(&origin, None).to_bytes());
        Self { origin, section, totals: Totals::default() }
    }

    /// Goes on with a file that has these events and no footer.
    pub(super) fn resume(origin: Origin, totals: Totals, checksum: u32) -> Self {
        Self { origin, section: Section::resume(totals.events_bytes(), checksum), totals }
    }

    /// What the file starts with until it is sealed.
    pub fn start(&self) -> [u8; EDGE_BYTES] {
        header(&self.origin, None).to_bytes()
    }

    /// Appends an event and returns its sequence number.
    #[inline(always)]
    pub fn append(&mut self, event: &IndexEvent) -> Result<u32, AppendError> {
        let sequence = self.totals.count;
        if sequence == MAX_EVENTS || event.detail == Some(NO_DETAIL) {
            return Err(AppendError::Full { limit: MAX_EVENTS });
        }
        self.section.append(&event.to_record().to_bytes());
        self.totals.add(event);
        Ok(sequence)
    }

    /// How many events it has.
    pub fn len(&self) -> u32 {
        self.totals.count
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.totals.count == 0
    }

    /// Gives back the memory that is kept for bytes to come: for a file that grows no more for a while.
    pub fn shrink(&mut self) {
        self.section.shrink();
    }

    /// How many bytes wait to be written.
    pub fn pending_bytes(&self) -> usize {
        self.section.pending_bytes()
    }

    /// How many bytes of the file have been written.
    pub fn written_bytes(&self) -> u64 {
        self.section.written_bytes()
    }

    /// Writes what waits to the end of the file.
    ///
    /// After an error the rest still waits, and another call goes on at the very byte where this one stopped.
    pub fn flush_to(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.section.flush_to(out)
    }

    /// Ends the file. What is returned is to be written over and behind what has been flushed.
    pub fn seal(mut self) -> Sealed {
        let footer = footer(&self.totals, self.section.checksum());
        let header = header(&self.origin, Some(&self.totals));
        self.section.seal(footer.to_bytes(), header.to_bytes())
    }
}
