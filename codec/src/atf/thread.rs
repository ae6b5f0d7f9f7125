//! The two files of a thread together, and the links between them.

use thiserror::Error;

use super::{
    AppendError, Corrupt, DetailBody, DetailEvent, DetailEvents, DetailReader, DetailWriter, IndexEvent, IndexReader,
    IndexWriter, Origin, section::MAX_EVENTS,
};

/// Writes the index and detail of one thread, and links them both ways.
///
/// The details of an event lie one behind the other; the event points to the first, and each points back.
/// Flush the detail file before the index: then no link in the index leads nowhere, whenever the writer dies.
#[derive(Debug)]
pub struct ThreadWriter {
    origin: Origin,
    /// The index.
    pub index: IndexWriter,
    /// The details, once there are any.
    pub detail: Option<DetailWriter>,
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
            detail = writer.append_all(events)?;
        }
        self.index.append(&IndexEvent { detail, ..*event })
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
    /// The details of the event with this sequence number.
    pub fn details_of(&self, sequence: u32) -> impl Iterator<Item = Result<DetailEvent<'a>, Corrupt>> + use<'a> {
        let position = self.index.get(sequence).and_then(Result::ok).and_then(|event| event.detail);
        let details = self.detail.as_ref().zip(position).map(|(detail, at)| detail.from(at.into()));
        let own =
            move |event: &Result<DetailEvent<'_>, _>| event.as_ref().map_or(true, |event| event.index == sequence);
        details.into_iter().flatten().take_while(own)
    }

    /// The event that the detail at this position belongs to.
    pub fn event_of(&self, position: u32) -> Option<Result<IndexEvent, Corrupt>> {
        match self.detail.as_ref()?.get(position)? {
            Ok(detail) => self.index.get(detail.index),
            Err(corrupt) => Some(Err(corrupt)),
        }
    }

    /// Follows every link both ways.
    pub fn check_links(&self) -> Result<(), BrokenLink> {
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
        match details.as_mut().map(Numbered::next_index).transpose()?.flatten() {
            Some((position, index)) => Err(BrokenLink::Backward { position, index }),
            None => Ok(()),
        }
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
pub enum BrokenLink {
    /// An index event whose details are not where it says.
    #[error("index event {sequence}: its details are not at position {position}")]
    Forward {
        /// The index event.
        sequence: u32,
        /// Where it points.
        position: u32,
    },
    /// A detail event that the index event it names does not lead to.
    #[error("detail event {position}: index event {index} does not lead to it")]
    Backward {
        /// The position of the detail event.
        position: u32,
        /// The index event it names.
        index: u32,
    },
    /// The index cannot be read.
    #[error("index file: {0}")]
    Index(Corrupt),
    /// The detail file cannot be read.
    #[error("detail file: {0}")]
    Detail(Corrupt),
}
