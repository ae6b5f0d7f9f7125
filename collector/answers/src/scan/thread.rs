//! The events and gaps of one thread, one after the other.

use std::{
    io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use codec::atf::{
    BrokenLink, Corrupt, DetailEvent, DetailEvents, DetailReader, EDGE_BYTES, GapEntry, IndexEvent, IndexReader,
    OpenError, ThreadEntry,
};

use super::{
    Consumer, Raw, Run,
    pages::{Pages, read_at},
};
use crate::trace::Trace;

/// A thread that is being read.
#[derive(Debug)]
pub(super) struct ThreadScan<'a> {
    stream: u32,
    index: Pages,
    details: Option<Details>,
    gaps: Vec<&'a GapEntry>,
    gap: usize,
    sequence: u32,
    position: u64,
    /// The event that comes next.
    next: Next,
    /// What its files lack of what the manifest says.
    wrong: Option<String>,
    /// The device and the number of its index.
    file: (u64, u64),
    /// Whether more comes later, also of what is missing.
    pub(super) goes_on: bool,
}

/// How far a thread was read.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    file: (u64, u64),
    first: u64,
    sequence: u32,
    position: u64,
    gap: usize,
    /// Where the details that come next are in their file, and how many come before them.
    details: Option<(u64, u32)>,
}

/// What comes next in an index.
#[derive(Debug, Clone, Copy)]
enum Next {
    Event(IndexEvent),
    Wrong(Corrupt),
    End,
}

pub(super) const FIRST: u64 = EDGE_BYTES as u64;
const EVENT: u64 = IndexEvent::BYTES as u64;

/// How many events are handed over at a time.
const MOST_RUN: usize = 1 << 16;

impl<'a> ThreadScan<'a> {
    /// Opens the files of a thread, for so many of its events: none where its collector was stopped before it wrote
    /// anything.
    pub(super) fn open(
        trace: &Trace,
        thread: &ThreadEntry,
        gaps: Vec<&'a GapEntry>,
        page: usize,
        most: Option<u64>,
    ) -> Result<Option<Self>> {
        let dir = trace.thread_dir(thread.id);
        let index = dir.join("index.atf");
        let ends = Ends::look(&index).with_context(|| format!("cannot read {}", index.display()))?;
        let head = match IndexReader::open(&ends.head) {
            Ok(head) => Some(head),
            Err(OpenError::Short { .. }) if trace.is_unfinished => return Ok(None),
            Err(OpenError::Short { .. }) => None,
            Err(error) => return Err(error).with_context(|| index.display().to_string()),
        };
        let footer = ends.footer(IndexReader::is_footer);
        let end = match footer.is_some() {
            true => ends.length.saturating_sub(FIRST),
            // A header that promises a footer where there is none is damage: all behind it is looked at.
            false if head.is_some_and(|head| head.has_detail().is_some()) && ends.length > FIRST => ends.length,
            false => events_end(&index, ends.length).with_context(|| format!("cannot read {}", index.display()))?,
        };
        let known = most.map(|events| FIRST.saturating_add(events.saturating_mul(EVENT)));
        let (footer, end) = match known {
            Some(known) if known < end => (None, known),
            _ => (footer, end),
        };
        let details = Details::open(dir.join("detail.atf"), page)?;
        let (position, is_whole) = (thread.first.unwrap_or(0), footer.is_some());
        let index = Pages::new(index, FIRST, end, page).checked_by(footer);
        let mut scan = Self {
            stream: thread.id,
            index,
            details,
            gaps,
            gap: 0,
            sequence: 0,
            position,
            next: Next::End,
            wrong: None,
            file: ends.file,
            goes_on: false,
        };
        if !trace.is_unfinished {
            scan.wrong = scan.compare(thread, is_whole);
        }
        // One event is enough to know where the thread begins.
        scan.peek(IndexEvent::BYTES)?;
        Ok(Some(scan))
    }

    /// How far it was read.
    pub(super) fn place(&self) -> Place {
        let missing = self.gaps.iter().take(self.gap).map(|gap| gap.count).fold(0, u64::saturating_add);
        Place {
            file: self.file,
            first: self.position.saturating_sub(missing).saturating_sub(self.sequence.into()),
            sequence: self.sequence,
            position: self.position,
            gap: self.gap,
            details: self.details.as_ref().map(|details| (details.pages.offset(), details.position)),
        }
    }

    /// Goes on from there. Tells whether that can be: files and gaps may be others now.
    pub(super) fn go_to(&mut self, place: &Place, page: usize) -> Result<bool> {
        let begin = self.position;
        (self.sequence, self.position, self.gap) = (place.sequence, place.position, place.gap);
        let is_same = self.file == place.file && begin == place.first && self.place().first == place.first;
        if !is_same || self.events() < place.sequence.into() || self.gaps.len() < place.gap {
            return Ok(false);
        }
        let from = FIRST.saturating_add(EVENT.saturating_mul(place.sequence.into()));
        self.index = Pages::new(self.index.path().to_owned(), from, self.index.end(), page);
        if let (Some(details), Some((at, position))) = (&mut self.details, place.details) {
            details.pages = Pages::new(details.pages.path().to_owned(), at, details.pages.end(), page);
            details.position = position;
        }
        self.peek(IndexEvent::BYTES)?;
        Ok(true)
    }

    /// How the stream that it is of is called.
    pub(super) fn stream(&self) -> u32 {
        self.stream
    }

    /// What its files lack of what the manifest says of it.
    fn compare(&self, thread: &ThreadEntry, is_index_whole: bool) -> Option<String> {
        let events = self.events();
        let said = thread.written.filter(|written| *written != events);
        match (&self.details, said) {
            (_, Some(said)) => Some(format!("index.atf has {events} events, by manifest.json it has {said}")),
            _ if !is_index_whole => Some("index.atf lacks its end".into()),
            (None, _) if thread.has_detail => Some("detail.atf is not there, or empty".into()),
            (Some(details), _) if details.is_cut => Some("detail.atf lacks its end".into()),
            _ => None,
        }
    }

    /// What its files lack of what the manifest says.
    pub(super) fn wrong(&self) -> Option<String> {
        self.wrong.as_ref().map(|wrong| format!("thread_{}: {wrong}", self.stream))
    }

    /// How many events it has.
    pub(super) fn events(&self) -> u64 {
        self.index.end().saturating_sub(FIRST) / IndexEvent::BYTES as u64
    }

    /// When the next event was. The last time there is where none comes any more, or none that can be read.
    #[inline]
    pub(super) fn time(&self) -> u64 {
        match &self.next {
            Next::Event(event) => event.timestamp.0,
            Next::Wrong(_) | Next::End => u64::MAX,
        }
    }

    /// Hands over the events that come next up to a time, as far as no gap and no details are among them and they are
    /// in memory. Returns how many there are.
    pub(super) fn run(&mut self, until: u64, consumer: &mut impl Consumer) -> Result<u32> {
        let gap = self.gaps.get(self.gap).and_then(|gap| gap.at_index).unwrap_or(u64::MAX);
        let most = usize::try_from(gap.saturating_sub(self.sequence.into())).unwrap_or(usize::MAX).min(MOST_RUN);
        if !matches!(self.next, Next::Event(_)) {
            return Ok(0);
        }
        let records = self.index.rest().as_chunks().0;
        let is_next =
            |record: &&[u8; IndexEvent::BYTES]| IndexEvent::plain_time(record).is_some_and(|time| time.0 <= until);
        let count = records.iter().take(most).take_while(is_next).count();
        let Some(records) = records.get(..count).filter(|records| !records.is_empty()) else { return Ok(0) };
        consumer.run(Run { stream: self.stream, first: self.position, records })?;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.sequence = self.sequence.saturating_add(count);
        self.position = self.position.saturating_add(count.into());
        self.index.skip(records.as_flattened().len());
        self.peek(usize::MAX)?;
        Ok(count)
    }

    /// Hands over what comes next, and tells whether something did.
    #[inline]
    pub(super) fn next(&mut self, consumer: &mut impl Consumer) -> Result<bool> {
        // What is missing behind the last event may be more than is known.
        if self.goes_on && matches!(self.next, Next::End) {
            return Ok(false);
        }
        if let Some(gap) = self.gaps.get(self.gap)
            && (matches!(self.next, Next::End) || gap.at_index.is_some_and(|at| at <= self.sequence.into()))
        {
            self.gap += 1;
            self.position = self.position.saturating_add(gap.count);
            consumer.gap(gap, self.time())?;
            return Ok(true);
        }
        let event = match self.next {
            Next::Event(event) => event,
            Next::Wrong(corrupt) => {
                return Err(corrupt)
                    .with_context(|| format!("thread {}: {}", self.stream, self.index.path().display()));
            }
            Next::End => {
                let details = self.details.take().map(|details| details.pages);
                for mut pages in [Some(self.index.close()), details].into_iter().flatten() {
                    let checked = pages.check();
                    checked.with_context(|| format!("thread {}: {}", self.stream, pages.path().display()))?;
                }
                if let Some(wrong) = self.wrong() {
                    bail!("{wrong}: the trace is damaged (see `collector verify`)");
                }
                return Ok(false);
            }
        };
        let details = match event.detail {
            None => DetailEvents::at(&[], FIRST),
            Some(position) => Details::of(self.details.as_mut(), self.sequence, position)
                .with_context(|| format!("thread {}: event {}", self.stream, self.sequence))?,
        };
        consumer.event(Raw { stream: self.stream, position: self.position, event, details })?;
        self.sequence = self.sequence.saturating_add(1);
        self.position = self.position.saturating_add(1);
        self.index.skip(IndexEvent::BYTES);
        self.peek(usize::MAX)?;
        Ok(true)
    }

    /// Looks at the event that comes next. At most `page` bytes are read for it, if any.
    #[inline]
    fn peek(&mut self, page: usize) -> Result<()> {
        let bytes = match page {
            // The page itself waits until the thread has its turn.
            IndexEvent::BYTES => self.index.have_only(IndexEvent::BYTES),
            _ => self.index.have(IndexEvent::BYTES),
        };
        let bytes = bytes.map(|bytes| bytes.first_chunk().map(|bytes| IndexEvent::decode(bytes, self.sequence)));
        self.next = match bytes {
            Ok(None) => Next::End,
            Ok(Some(Ok(event))) => Next::Event(event),
            Ok(Some(Err(corrupt))) => Next::Wrong(corrupt),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", self.index.path().display()));
            }
        };
        Ok(())
    }
}

/// The details of a thread.
#[derive(Debug)]
pub(super) struct Details {
    pages: Pages,
    /// The position of the detail event that comes next.
    position: u32,
    /// Whether the file lacks its end, so that zeros may lie there.
    is_cut: bool,
}

impl Details {
    pub(super) fn open(path: PathBuf, page: usize) -> Result<Option<Self>> {
        let ends = Ends::look(&path).with_context(|| format!("cannot read {}", path.display()))?;
        match DetailReader::open(&ends.head) {
            Ok(_) => {}
            Err(OpenError::Short { .. }) => return Ok(None),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        }
        let footer = ends.footer(DetailReader::is_footer);
        let end = if footer.is_none() { ends.length } else { ends.length.saturating_sub(FIRST) };
        let pages = Pages::new(path, FIRST, end, page).checked_by(footer);
        Ok(Some(Self { pages, position: 0, is_cut: footer.is_none() }))
    }

    /// The details of the event with this sequence number, which the index says are at this position.
    pub(super) fn of(details: Option<&mut Self>, sequence: u32, position: u32) -> Result<DetailEvents<'_>> {
        let forward = BrokenLink::Forward { sequence, position };
        let Some(details) = details.filter(|details| details.position <= position) else { return Err(forward.into()) };
        let path = details.pages.path().to_owned();
        let found = details.find(sequence, position).with_context(|| format!("cannot read {}", path.display()))?;
        let Some(bytes) = found else { return Err(forward).with_context(|| path.display().to_string()) };
        let base = details.pages.offset();
        let start = details.pages.at();
        details.pages.skip(bytes);
        Ok(DetailEvents::at(details.pages.between(start, bytes), base))
    }

    /// How many bytes the details of an event have, which come next once those before it were passed over. None where
    /// there are none of it.
    fn find(&mut self, sequence: u32, position: u32) -> io::Result<Option<usize>> {
        while self.position < position {
            let Some((_, length)) = self.measure(0)? else { return Ok(None) };
            self.pages.skip(length);
            self.position = self.position.saturating_add(1);
        }
        let mut bytes = 0;
        while let Some((index, length)) = self.measure(bytes)?
            && index == sequence
        {
            bytes = bytes.saturating_add(length);
            self.position = self.position.saturating_add(1);
        }
        Ok((bytes > 0).then_some(bytes))
    }

    /// The index event and the length of the detail event so many bytes from here, if there is a whole one.
    fn measure(&mut self, ahead: usize) -> io::Result<Option<(u32, usize)>> {
        let start = |bytes: &[u8]| bytes.get(ahead..).and_then(DetailEvents::measure);
        let Some((index, length)) = start(self.pages.have(ahead.saturating_add(DetailEvent::LEAST_BYTES))?) else {
            return Ok(None);
        };
        let end = ahead.saturating_add(length);
        // Four more, which are the length of the one behind it.
        let bytes = self.pages.have(end.saturating_add(4))?;
        if bytes.len() < end {
            return Ok(None);
        }
        let behind = bytes.get(end..).unwrap_or_default();
        let may_be_cut = self.is_cut && !behind.is_empty() && bytes.get(end.saturating_sub(1)) == Some(&0);
        if may_be_cut && behind.iter().take(4).all(|byte| *byte == 0) && self.only_zeros_from(end)? {
            // The zeros that a machine leaves when it stops may start anywhere: they are the end of this one too.
            return Ok(None);
        }
        Ok(Some((index, length)))
    }

    /// Whether the file has only zeros from here on.
    fn only_zeros_from(&mut self, ahead: usize) -> io::Result<bool> {
        let from = self.pages.offset().saturating_add(ahead as u64);
        let end = storage::metadata(self.pages.path())?.len;
        Ok(last_that_is_not_zero(self.pages.path(), from, end)? <= from)
    }
}

/// The two ends of a file.
struct Ends {
    head: Vec<u8>,
    tail: Vec<u8>,
    length: u64,
    /// The device and the number of the file.
    file: (u64, u64),
}

impl Ends {
    /// Of a file that is not there, both are empty.
    fn look(path: &Path) -> io::Result<Self> {
        let (length, file) = match storage::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { head: Vec::new(), tail: Vec::new(), length: 0, file: (0, 0) });
            }
            data => data.map(|data| (data.len, data.identity))?,
        };
        let (mut head, mut tail) = (vec![0; EDGE_BYTES], vec![0; EDGE_BYTES]);
        let read = read_at(path, &mut head, 0)?;
        head.truncate(read);
        let read = read_at(path, &mut tail, length.saturating_sub(FIRST))?;
        tail.truncate(read);
        Ok(Self { head, tail, length, file })
    }

    /// The footer, if there is one: that is told by these bytes and how many bytes of events there are then.
    fn footer(&self, is_footer: fn(&[u8; EDGE_BYTES], u64) -> bool) -> Option<&[u8; EDGE_BYTES]> {
        let (footer, bytes) = (self.tail.first_chunk()?, self.length.checked_sub(FIRST * 2)?);
        is_footer(footer, bytes).then_some(footer)
    }
}

/// Where the events of an index end that lacks its end. A machine that stopped may have left zeros there, and a writer
/// that was killed half a footer.
fn events_end(path: &Path, length: u64) -> io::Result<u64> {
    let whole = |end: u64| FIRST + end.saturating_sub(FIRST) / EVENT * EVENT;
    let last = last_that_is_not_zero(path, FIRST, whole(length))?;
    // An event that has anything but zeros in it counts to its end.
    let end = whole(last.saturating_add(EVENT - 1)).min(whole(length));
    let (Some(start), mut bytes) = (end.checked_sub(EVENT).filter(|start| *start >= FIRST), [0; IndexEvent::BYTES])
    else {
        return Ok(end);
    };
    read_at(path, &mut bytes, start)?;
    Ok(if IndexReader::is_half_footer(&bytes, (start - FIRST) / EVENT) { start } else { end })
}

/// Where the zeros begin that this part of a file ends with.
fn last_that_is_not_zero(path: &Path, from: u64, mut end: u64) -> io::Result<u64> {
    let mut block = vec![0; 64 << 10];
    while end > from {
        let start = end.saturating_sub(block.len() as u64).max(from);
        let bytes = usize::try_from(end - start).unwrap_or(0);
        let read = read_at(path, block.get_mut(..bytes).unwrap_or_default(), start)?;
        if let Some(last) = block.iter().take(read).rposition(|byte| *byte != 0) {
            return Ok(start.saturating_add(last as u64).saturating_add(1));
        }
        end = start;
    }
    Ok(from)
}
