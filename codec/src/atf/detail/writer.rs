//! Writing a detail file.

use std::io::{self, Write};

use super::{
    CALL, CONTEXT, ContextRecord, DetailBody, DetailEvent, DetailRecord, FunctionDetail, FunctionRecord, KEYS,
    KeysRecord, MAX_STACK_BYTES, RETURN, Totals, footer, header, max_length,
};
use crate::atf::{
    AppendError, EDGE_BYTES, Origin, Sealed,
    section::{MAX_EVENTS, Section},
};

/// Writes a detail file: collects events, and writes them where and when the caller says.
#[derive(Debug)]
pub struct DetailWriter {
    origin: Origin,
    section: Section,
    totals: Totals,
    /// For the attributes of one event, kept to be used again.
    attributes: Vec<u8>,
}

impl DetailWriter {
    /// A file without events.
    pub fn new(origin: Origin) -> Self {
        let section = Section::new(header(&origin, &Totals::default()).to_bytes());
        Self { origin, section, totals: Totals::default(), attributes: Vec::new() }
    }

    /// Goes on with a file that has these events and no footer.
    pub(super) fn resume(origin: Origin, totals: Totals, checksum: u32) -> Self {
        Self { origin, section: Section::resume(totals.bytes, checksum), totals, attributes: Vec::new() }
    }

    /// What the file starts with until it is sealed.
    pub fn start(&self) -> [u8; EDGE_BYTES] {
        header(&self.origin, &Totals::default()).to_bytes()
    }

    /// Appends an event and returns its position.
    #[inline]
    pub fn append(&mut self, event: &DetailEvent<'_>) -> Result<u32, AppendError> {
        let full = AppendError::Full { limit: MAX_EVENTS };
        let position = u32::try_from(self.totals.count).ok().filter(|&count| count < MAX_EVENTS).ok_or(full)?;
        match &event.body {
            DetailBody::Call(detail) => self.append_function(event, CALL, detail)?,
            DetailBody::Return(detail) => self.append_function(event, RETURN, detail)?,
            DetailBody::Keys(keys) => {
                keys.attributes.measure()?;
                self.attributes.clear();
                keys.attributes.write(&mut self.attributes);
                let attributes = std::mem::take(&mut self.attributes);
                let record = KeysRecord {
                    function: keys.function.0,
                    start: keys.start.0,
                    end: keys.end.0,
                    substream: keys.substream.0,
                    attributes_bytes: u32::try_from(attributes.len()).unwrap_or(u32::MAX),
                    reserved: 0,
                };
                let appended = self.append_record(event, KEYS, &record.to_bytes(), &attributes);
                self.attributes = attributes;
                appended?;
            }
            DetailBody::Context(context) => {
                let record = ContextRecord { substream: context.substream.0, start: context.start.0 };
                self.append_record(event, CONTEXT, &record.to_bytes(), &[])?;
            }
            &DetailBody::Other { kind: kind @ (CALL | RETURN | KEYS | CONTEXT), .. } => {
                return Err(AppendError::KnownType { kind });
            }
            DetailBody::Other { kind, payload } => self.append_record(event, *kind, payload, &[])?,
        }
        Ok(position)
    }

    #[inline]
    fn append_function(
        &mut self,
        event: &DetailEvent<'_>,
        kind: u16,
        detail: &FunctionDetail<'_>,
    ) -> Result<(), AppendError> {
        let too_long = AppendError::TooLong { field: "stack", found: detail.stack.len(), limit: MAX_STACK_BYTES };
        let stack_bytes = u16::try_from(detail.stack.len()).map_err(|_| too_long)?;
        if usize::from(stack_bytes) > MAX_STACK_BYTES {
            return Err(too_long);
        }
        let record = FunctionRecord {
            function: detail.function.0,
            registers: detail.registers.general,
            return_address: detail.registers.return_address,
            frame_pointer: detail.registers.frame_pointer,
            stack_pointer: detail.registers.stack_pointer,
            stack_bytes,
            reserved: 0,
        };
        self.append_record(event, kind, &record.to_bytes(), detail.stack)
    }

    #[inline]
    fn append_record(
        &mut self,
        event: &DetailEvent<'_>,
        kind: u16,
        payload: &[u8],
        more: &[u8],
    ) -> Result<(), AppendError> {
        let length = DetailRecord::LEN.saturating_add(payload.len()).saturating_add(more.len());
        let limit = max_length(kind);
        let too_long = AppendError::TooLong { field: "detail event", found: length, limit };
        let record = DetailRecord {
            length: u32::try_from(length).ok().filter(|_| length <= limit).ok_or(too_long)?,
            kind,
            flags: event.flags,
            index: event.index,
            thread: event.thread,
            timestamp: event.timestamp.0,
        };
        self.section.append(&record.to_bytes());
        self.section.append(payload);
        self.section.append(more);
        self.totals.add(&record);
        Ok(())
    }

    /// Appends events that stay together: all of them, or on an error none. Returns the position of the first.
    pub(crate) fn append_all<'d>(
        &mut self,
        events: impl Iterator<Item = DetailEvent<'d>>,
    ) -> Result<Option<u32>, AppendError> {
        let (totals, bytes) = (self.totals, self.section.events_bytes());
        let mut first = None;
        for event in events {
            match self.append(&event) {
                Ok(position) => _ = first.get_or_insert(position),
                Err(error) => {
                    self.totals = totals;
                    self.section.rewind(bytes);
                    return Err(error);
                }
            }
        }
        Ok(first)
    }

    /// How many events it has.
    pub fn len(&self) -> u64 {
        self.totals.count
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.totals.count == 0
    }

    /// Gives back the memory that is kept for bytes to come: for a file that grows no more for a while.
    pub fn shrink(&mut self) {
        self.section.shrink();
        self.attributes.shrink_to_fit();
    }

    /// How many bytes wait to be written.
    pub fn pending_bytes(&self) -> usize {
        self.section.pending_bytes()
    }

    /// How many bytes of the file have been written.
    pub fn written_bytes(&self) -> u64 {
        self.section.written_bytes()
    }

    /// Writes what waits to the end of the file, as [`IndexWriter::flush_to`](super::super::IndexWriter::flush_to).
    pub fn flush_to(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.section.flush_to(out)
    }

    /// Ends the file. What is returned is to be written over and behind what has been flushed.
    pub fn seal(mut self) -> Sealed {
        let footer = footer(&self.totals, self.section.checksum());
        let header = header(&self.origin, &self.totals);
        self.section.seal(footer.to_bytes(), header.to_bytes())
    }
}
