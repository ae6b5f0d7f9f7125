//! The two files of a thread together, and the links between them.

use std::{
    io::{self, Write},
    iter,
};

use thiserror::Error;

use super::{
    AppendError, Corrupt, DetailBody, DetailEvent, DetailEvents, DetailReader, DetailWriter, EDGE_BYTES, FileChecksum,
    IndexEvent, IndexReader, IndexWriter, Origin, Sealed, writer::MAX_EVENTS,
};

/// Writes the index and detail of one thread, and links them both ways.
///
/// The details of an event lie one behind the other; the event points to the first, and each points back.
#[derive(Debug)]
pub struct ThreadWriter {
    origin: Origin,
    index: IndexWriter,
    detail: Option<DetailWriter>,
}

impl ThreadWriter {
    /// A thread without events.
    pub fn new(origin: Origin) -> Self {
        Self { origin, index: IndexWriter::new(origin), detail: None }
    }

    /// Appends an event with its details and returns its sequence number, or appends nothing. `event.detail` is
    /// set here.
    pub fn append(&mut self, event: &IndexEvent, details: &[DetailBody<'_>]) -> Result<u32, AppendError> {
        let (index, thread, timestamp) = (self.index.len(), event.thread, event.timestamp);
        if index == MAX_EVENTS {
            return Err(AppendError::Full { limit: MAX_EVENTS });
        }
        let mut detail = None;
        if !details.is_empty() {
            let writer = self.detail.get_or_insert_with(|| DetailWriter::new(self.origin));
            let events = details.iter().map(|&body| DetailEvent { index, thread, timestamp, flags: 0, body });
            detail = match writer.append_all(events) {
                Ok(first) => first,
                Err(error) => {
                    self.detail.take_if(|detail| detail.is_empty());
                    return Err(error);
                }
            };
        }
        self.index.append(&IndexEvent { detail, ..*event })
    }

    /// Appends an event without details, as [`append`](Self::append) does.
    #[inline(always)]
    pub fn append_plain(&mut self, event: &IndexEvent) -> Result<u32, AppendError> {
        self.index.append(event)
    }

    /// How many events it has.
    pub fn len(&self) -> u32 {
        self.index.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Whether there are details, and so a detail file.
    pub fn has_detail(&self) -> bool {
        self.detail.is_some()
    }

    /// Gives back the memory that is kept for bytes to come: for a thread that is silent for a while.
    pub fn shrink(&mut self) {
        self.index.shrink();
        if let Some(detail) = &mut self.detail {
            detail.shrink();
        }
    }

    /// How many bytes wait to be written, to both files together.
    pub fn pending_bytes(&self) -> usize {
        let detail = self.detail.as_ref().map_or(0, DetailWriter::pending_bytes);
        self.index.pending_bytes().saturating_add(detail)
    }

    /// How many bytes of the index have been written, and of the details where there are any.
    pub fn written_bytes(&self) -> (u64, Option<u64>) {
        (self.index.written_bytes(), self.detail.as_ref().map(DetailWriter::written_bytes))
    }

    /// What the two files start with until they are sealed.
    pub fn starts(&self) -> ([u8; EDGE_BYTES], Option<[u8; EDGE_BYTES]>) {
        (self.index.start(), self.detail.as_ref().map(DetailWriter::start))
    }

    /// The checksums of the two files as they will be once they are sealed and written.
    pub fn file_checksums(&self) -> (FileChecksum, Option<FileChecksum>) {
        (self.index.file_checksum(), self.detail.as_ref().map(DetailWriter::file_checksum))
    }

    /// Writes what waits to the ends of the two files. Nothing is written to `detail` while there are no details.
    ///
    /// The details go first: then no link in the index leads nowhere, whenever the writer dies. After an error the
    /// rest still waits, and another call goes on at the very byte where this one stopped.
    pub fn flush_to(&mut self, index: &mut impl Write, detail: &mut impl Write) -> io::Result<()> {
        if let Some(writer) = &mut self.detail {
            writer.flush_to(detail)?;
        }
        self.index.flush_to(index)
    }

    /// Ends the files: the index, and the details if there are any. Write the details first.
    pub fn seal(self) -> (Sealed, Option<Sealed>) {
        (self.index.seal(), self.detail.map(DetailWriter::seal))
    }
}

/// Reads the index and detail of one thread.
#[derive(Debug, Clone)]
pub struct ThreadReader<'a> {
    /// The index.
    pub index: IndexReader<'a>,
    /// The details, where there are any.
    pub detail: Option<DetailReader<'a>>,
}

impl<'a> ThreadReader<'a> {
    /// The details of the event with this sequence number. Ends after an error.
    pub fn details_of(&self, sequence: u32) -> impl Iterator<Item = Result<DetailEvent<'a>, BrokenLink>> + use<'a> {
        let mut events = self.first_detail(sequence).transpose();
        iter::from_fn(move || match events.take()? {
            Ok(mut rest) if rest.next_index() == Some(sequence) => {
                let event = rest.next()?.map_err(BrokenLink::Detail);
                events = event.is_ok().then_some(Ok(rest));
                Some(event)
            }
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        })
    }

    /// The details from the first that belongs to this event on, if it has any.
    fn first_detail(&self, sequence: u32) -> Result<Option<DetailEvents<'a>>, BrokenLink> {
        let event = self.index.get(sequence).transpose().map_err(BrokenLink::Index)?;
        let Some(position) = event.and_then(|event| event.detail) else { return Ok(None) };
        let events = self.detail.as_ref().map(|detail| detail.from(position.into()));
        match events {
            Some(events) if events.next_index() == Some(sequence) => Ok(Some(events)),
            _ => Err(BrokenLink::Forward { sequence, position }),
        }
    }

    /// Follows every link both ways.
    ///
    /// Where the index is unfinished, the details may have come further: they are flushed first.
    pub fn check_links(&self) -> Result<(), BrokenLink> {
        self.follow_links().map(drop)
    }

    /// Follows every link both ways, and tells how many details belong to the events of the index.
    fn follow_links(&self) -> Result<u32, BrokenLink> {
        let mut details = self.detail.as_ref().map(DetailReader::events).map(Numbered::new);
        for (sequence, event) in (0..).zip(self.index.events()) {
            let event = event.map_err(BrokenLink::Index)?;
            let next = match details.as_mut() {
                Some(details) => details.next_index()?,
                None => None,
            };
            match (event.detail, next) {
                (None, Some((position, index))) if index <= sequence => {
                    return Err(BrokenLink::Backward { position, index });
                }
                (None, _) => {}
                (Some(to), Some((position, index))) if to == position && index == sequence => {
                    if let Some(details) = details.as_mut() {
                        details.skip(sequence)?;
                    }
                }
                (Some(position), _) => return Err(BrokenLink::Forward { sequence, position }),
            }
        }
        let Some(mut details) = details else { return Ok(0) };
        match details.next_index()? {
            Some((position, index)) if self.index.is_finished() || index < self.index.len() => {
                Err(BrokenLink::Backward { position, index })
            }
            _ => Ok(details.position),
        }
    }

    /// Goes on behind every whole event of the index, and the details of those. Where none has any, there is no detail
    /// file any more.
    ///
    /// Only files that lack nothing but their ends can go on, and only where every link leads somewhere.
    pub fn resume(&self) -> Result<ThreadWriter, BrokenLink> {
        let details = self.follow_links()?;
        let index = self.index.resume().map_err(BrokenLink::Index)?;
        let detail = self.detail.as_ref().filter(|_| details > 0).map(|detail| detail.resume(details.into()));
        let detail = detail.transpose().map_err(BrokenLink::Detail)?;
        Ok(ThreadWriter { origin: *self.index.origin(), index, detail })
    }
}

/// Detail events with their positions, one of them ahead.
struct Numbered<'a> {
    events: DetailEvents<'a>,
    ahead: Option<u32>,
    position: u32,
}

impl<'a> Numbered<'a> {
    fn new(events: DetailEvents<'a>) -> Self {
        Self { events, ahead: None, position: 0 }
    }

    /// The position of the next event and the index event it belongs to.
    fn next_index(&mut self) -> Result<Option<(u32, u32)>, BrokenLink> {
        if self.ahead.is_none() {
            let next = self.events.next().transpose().map_err(BrokenLink::Detail)?;
            self.ahead = next.map(|event| event.index);
        }
        Ok(self.ahead.map(|index| (self.position, index)))
    }

    /// Passes over the events that belong to this index event.
    fn skip(&mut self, sequence: u32) -> Result<(), BrokenLink> {
        while self.next_index()?.is_some_and(|(_, index)| index == sequence) {
            self.ahead = None;
            self.position = self.position.saturating_add(1);
        }
        Ok(())
    }
}

/// A link that leads to the wrong place, or what kept it from being followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say what the fields are
pub enum BrokenLink {
    /// An index event whose details are not where it says.
    #[error("index event {sequence}: its details are not at position {position}")]
    Forward { sequence: u32, position: u32 },
    /// A detail event that the index event it names does not lead to.
    #[error("detail event {position}: index event {index} does not lead to it")]
    Backward { position: u32, index: u32 },
    /// The index cannot be read.
    #[error("index file: {0}")]
    Index(Corrupt),
    /// The detail file cannot be read.
    #[error("detail file: {0}")]
    Detail(Corrupt),
}
