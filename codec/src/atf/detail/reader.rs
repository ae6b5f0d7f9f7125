//! Reading a detail file.

use crc32fast::Hasher;

use super::{
    CALL, CONTEXT, Context, ContextRecord, DetailBody, DetailEvent, DetailFoot, DetailHead, DetailRecord, DetailTotals,
    DetailWriter, FOOTER_MAGIC, FunctionDetail, FunctionRecord, HEADER_MAGIC, KEYS, Keys, KeysRecord, MAX_STACK_BYTES,
    RETURN, max_length,
};
use crate::{
    ClockKind, ClockNs, FunctionId, SubstreamId,
    atf::{
        Corrupt, Corruption, EDGE_BYTES, Integrity, OpenError, Origin,
        integrity::{Completion, Footer, agree, agree_checksum, completion, cut_checksum, find_footer, short_file},
        origin::check_start,
    },
    heph::{Attributes, wire::Reader},
    profile::Registers,
};

/// Reads the bytes of a detail file.
///
/// Events have different lengths, so opening goes over them once and notes where every sixteenth starts.
#[derive(Debug, Clone)]
pub struct DetailReader<'a> {
    head: DetailHead,
    /// The events section, up to the last whole event.
    events: &'a [u8],
    count: u64,
    /// The offsets in `events` of the events 0, 16, 32, ….
    marks: Vec<usize>,
    footer: Footer<'a>,
    /// The checksum of the events, where the footer was cut behind it.
    cut_checksum: Option<u32>,
}

/// How many events there are from one mark to the next.
const STRIDE: u64 = 16;

/// How many bytes are looked at before the next: few enough that they are fetched from memory once.
const BLOCK_BYTES: usize = 1 << 14;

impl<'a> DetailReader<'a> {
    /// Opens the bytes of a whole file.
    pub fn open(file: &'a [u8]) -> Result<Self, OpenError> {
        let Some(head) = file.first_chunk() else {
            return Err(short_file(file, HEADER_MAGIC));
        };
        let head = DetailHead::from_bytes(head);
        check_start(head.magic, HEADER_MAGIC, head.endian, head.version, (20, head.events_offset))?;
        let totals = [head.event_count, head.events_bytes, head.first_index, head.last_index];
        let promised = if totals == [0; 4] { 0 } else { head.events_bytes.saturating_add(EDGE_BYTES as u64) };
        let (section, mut footer) = find_footer(file, promised, FOOTER_MAGIC, Self::is_footer);
        let mut walk = DetailEvents::new(section);
        let (mut count, mut marks, mut last) = (0_u64, Vec::new(), 0);
        let broken = loop {
            let offset = walk.offset;
            match walk.next_record() {
                None => break None,
                Some(Err(corrupt)) => break Some(corrupt),
                Some(Ok(_)) if count.is_multiple_of(STRIDE) => marks.push(offset),
                Some(Ok(_)) => {}
            }
            count = count.saturating_add(1);
            last = offset;
        };
        let (mut events, tail) = section.split_at_checked(walk.offset).unwrap_or((section, &[]));
        if footer.is_cut() && is_zero(tail) && events.last() == Some(&0) && !tail.is_empty() {
            // The zeros that a machine leaves when it stops may start anywhere: they are the end of the last event too.
            events = section.get(..last).unwrap_or_default();
            count = count.saturating_sub(1);
            marks.truncate(usize::try_from(count.div_ceil(STRIDE)).unwrap_or(usize::MAX));
        }
        let behind = file.get(EDGE_BYTES.saturating_add(events.len())..).unwrap_or_default();
        let cut_checksum = cut_checksum(behind, FOOTER_MAGIC).filter(|_| footer.is_cut());
        // The last event of a file that lacks its end may well be cut, and zeros may follow it.
        if let Some(corrupt) = broken.filter(|_| !(footer.is_cut() && is_cut(tail))) {
            footer = Footer::Broken(corrupt);
        }
        Ok(Self { head, events, count, marks, footer, cut_checksum })
    }

    /// The state of the file with these bytes, whether or not it can be opened. Reads every byte.
    pub fn check_file(file: &[u8]) -> Integrity {
        DetailReader::open(file).map_or_else(Integrity::from, |detail| detail.check())
    }

    /// Whether the last bytes of a file are its footer, if its events have this many bytes. For readers that do not
    /// hold the file whole.
    pub fn is_footer(bytes: &[u8; EDGE_BYTES], events_bytes: u64) -> bool {
        let foot = DetailFoot::from_bytes(bytes);
        foot.magic == FOOTER_MAGIC && foot.events_bytes == events_bytes
    }

    /// The thread's id with the operating system.
    pub fn thread(&self) -> u32 {
        self.head.thread
    }

    /// Whether the file ends with a footer.
    pub fn is_finished(&self) -> bool {
        matches!(self.footer, Footer::Finished(_))
    }

    /// How many events can be read.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The event at this position, if there is one.
    pub fn get(&self, position: u32) -> Option<Result<DetailEvent<'a>, Corrupt>> {
        self.from(position.into()).next()
    }

    /// The events, in order.
    pub fn events(&self) -> DetailEvents<'a> {
        DetailEvents::new(self.events)
    }

    /// The events from this position on.
    pub fn from(&self, position: u64) -> DetailEvents<'a> {
        let mark = usize::try_from(position / STRIDE).ok().and_then(|at| self.marks.get(at));
        let mut events = self.events();
        events.offset = mark.copied().unwrap_or(self.events.len());
        for _ in 0..position % STRIDE {
            events.next_record();
        }
        events
    }

    /// Looks at everything: header, footer, checksum and every event.
    pub fn check(&self) -> Integrity {
        self.check_all().unwrap_or_else(Integrity::Corrupt)
    }

    fn check_all(&self) -> Result<Integrity, Corrupt> {
        let unfinished = Integrity::Unfinished { events: self.count };
        if let Footer::Broken(corrupt) = self.footer {
            return Err(corrupt);
        }
        let (totals, checksum) = self.survey(self.count)?;
        let Footer::Finished(foot) = self.footer else { return Ok(unfinished) };
        let foot = DetailFoot::from_bytes(foot);
        let at = |offset: u64| ((EDGE_BYTES as u64).saturating_add(self.events.len() as u64)).saturating_add(offset);
        if foot.magic != FOOTER_MAGIC {
            let what = Corruption::Magic { expected: FOOTER_MAGIC, found: foot.magic };
            return Err(Corrupt { offset: at(0), what });
        }
        agree(at(8), "event count in the footer", totals.count, foot.event_count)?;
        agree(at(16), "events bytes in the footer", totals.bytes, foot.events_bytes)?;
        agree_checksum(at(4), foot.checksum, checksum)?;
        agree(at(24), "first timestamp in the footer", totals.first_timestamp, foot.first_timestamp)?;
        agree(at(32), "last timestamp in the footer", totals.last_timestamp, foot.last_timestamp)?;
        let head = &self.head;
        match completion(&head.to_bytes(), &self.origin(), &totals) {
            Some(Completion::Whole) => return Ok(Integrity::Intact),
            Some(Completion::Torn) => return Ok(unfinished),
            None => {}
        }
        agree(28, "event count in the header", totals.count, head.event_count)?;
        agree(36, "events bytes in the header", totals.bytes, head.events_bytes)?;
        agree(44, "first index in the header", totals.first_index, head.first_index)?;
        agree(52, "last index in the header", totals.last_index, head.last_index)?;
        Ok(Integrity::Intact)
    }

    /// Goes on behind the first `keep` events, or behind all of them where it has no more; as [`IndexReader::resume`].
    ///
    /// [`IndexReader::resume`]: crate::atf::IndexReader::resume
    pub fn resume(&self, keep: u64) -> Result<DetailWriter, Corrupt> {
        if !self.footer.is_cut() {
            self.check_all()?;
        }
        let (totals, checksum) = self.survey(keep)?;
        Ok(DetailWriter::resume(self.origin(), totals, checksum))
    }

    /// What the header says of where the events come from. It does not tell the clock.
    fn origin(&self) -> Origin {
        let DetailHead { arch, os, thread, .. } = self.head;
        Origin { arch: arch.into(), os: os.into(), clock: ClockKind::Other(0), thread }
    }

    /// What the first `keep` events come to, and their checksum, having looked at each of them, in one pass.
    fn survey(&self, keep: u64) -> Result<(DetailTotals, u32), Corrupt> {
        let (mut totals, mut hasher) = (DetailTotals::default(), Hasher::new());
        let (mut walk, mut hashed) = (self.events(), 0_usize);
        while totals.count < keep
            && let Some(next) = walk.next_decoded()
        {
            totals.add(&next?.0);
            if walk.offset.saturating_sub(hashed) >= BLOCK_BYTES {
                hasher.update(self.events.get(hashed..walk.offset).unwrap_or_default());
                hashed = walk.offset;
            }
        }
        hasher.update(self.events.get(hashed..walk.offset).unwrap_or_default());
        let checksum = hasher.finalize();
        if let Some(cut) = self.cut_checksum.filter(|_| totals.count == self.count) {
            agree_checksum((EDGE_BYTES as u64).saturating_add(totals.bytes).saturating_add(4), cut, checksum)?;
        }
        Ok((totals, checksum))
    }
}

/// The events of a [`DetailReader`].
#[derive(Debug, Clone)]
pub struct DetailEvents<'a> {
    events: &'a [u8],
    offset: usize,
    /// Where in the file `events` start.
    base: u64,
}

impl<'a> DetailEvents<'a> {
    fn new(events: &'a [u8]) -> Self {
        Self::at(events, EDGE_BYTES as u64)
    }

    /// The events in these bytes, which are whole ones and lie at `base` in their file: for readers that do not hold the
    /// file whole.
    pub fn at(events: &'a [u8], base: u64) -> Self {
        Self { events, offset: 0, base }
    }

    /// The index event that the event belongs to that starts with these bytes, and its length. None where they are too
    /// few or no event can start like that.
    #[inline]
    pub fn measure(start: &[u8]) -> Option<(u32, usize)> {
        let record = DetailRecord::from_bytes(start.first_chunk()?);
        let length = usize::try_from(record.length).ok()?;
        (DetailRecord::LEN..=max_length(record.kind)).contains(&length).then_some((record.index, length))
    }

    /// The index event that the next event belongs to, if there is one.
    pub(crate) fn next_index(&self) -> Option<u32> {
        let (record, _) = self.clone().next_record()?.ok()?;
        Some(record.index)
    }

    /// The next event's header and payload. Stays where it is on an error.
    #[inline]
    fn next_record(&mut self) -> Option<Result<(DetailRecord, &'a [u8]), Corrupt>> {
        let rest = self.events.get(self.offset..)?;
        if rest.is_empty() {
            return None;
        }
        let record = rest.first_chunk().map(DetailRecord::from_bytes);
        let limit = record.map_or(rest.len(), |record| max_length(record.kind).min(rest.len()));
        let length = record.and_then(|record| usize::try_from(record.length).ok());
        let payload = length.filter(|&length| length <= limit).and_then(|length| rest.get(DetailRecord::LEN..length));
        let (Some(record), Some(length), Some(payload)) = (record, length, payload) else {
            let found = rest.first_chunk().map_or(0, |length| u32::from_le_bytes(*length));
            let what = Corruption::Length { limit: limit as u64, found };
            return Some(Err(self.corrupt(self.offset, 0, what)));
        };
        self.offset = self.offset.saturating_add(length);
        Some(Ok((record, payload)))
    }

    /// The next event's header and what it holds. Ends where an event's length does not fit.
    #[inline]
    fn next_decoded(&mut self) -> Option<Result<(DetailRecord, DetailBody<'a>), Corrupt>> {
        let start = self.offset;
        Some(match self.next_record()? {
            Ok((record, payload)) => match decode_body(record.kind, payload) {
                Ok(body) => Ok((record, body)),
                Err((within, what)) => Err(self.corrupt(start, DetailRecord::LEN.saturating_add(within), what)),
            },
            Err(corrupt) => {
                // There is no telling where the next event starts.
                self.offset = self.events.len();
                Err(corrupt)
            }
        })
    }

    /// What is wrong `within` bytes into the event at `offset` of the section.
    #[cold]
    fn corrupt(&self, offset: usize, within: usize, what: Corruption) -> Corrupt {
        Corrupt { offset: self.base.saturating_add(offset.saturating_add(within) as u64), what }
    }
}

impl DetailEvent<'_> {
    /// How many bytes every event has at least.
    pub const LEAST_BYTES: usize = DetailRecord::LEN;
}

impl<'a> Iterator for DetailEvents<'a> {
    type Item = Result<DetailEvent<'a>, Corrupt>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        Some(self.next_decoded()?.map(|(record, body)| DetailEvent {
            index: record.index,
            thread: record.thread,
            timestamp: ClockNs(record.timestamp),
            flags: record.flags,
            body,
        }))
    }
}

/// What is wrong with a payload, and how far into it.
type Misfit = (usize, Corruption);

#[inline]
fn decode_body(kind: u16, payload: &[u8]) -> Result<DetailBody<'_>, Misfit> {
    Ok(match kind {
        CALL => DetailBody::Call(decode_function(payload)?),
        RETURN => DetailBody::Return(decode_function(payload)?),
        KEYS => DetailBody::Keys(decode_keys(payload)?),
        CONTEXT => {
            let (record, _) = split(payload)?;
            let record = ContextRecord::from_bytes(record);
            DetailBody::Context(Context { substream: SubstreamId(record.substream), start: ClockNs(record.start) })
        }
        _ => DetailBody::Other { kind, payload },
    })
}

#[inline]
fn decode_function(payload: &[u8]) -> Result<FunctionDetail<'_>, Misfit> {
    let (record, rest) = split(payload)?;
    let record = FunctionRecord::from_bytes(record);
    if usize::from(record.stack_bytes) > MAX_STACK_BYTES {
        let what = Corruption::Stack { limit: MAX_STACK_BYTES as u64, found: record.stack_bytes.into() };
        return Err((96, what));
    }
    Ok(FunctionDetail {
        function: FunctionId(record.function),
        registers: Registers {
            general: record.registers,
            return_address: record.return_address,
            frame_pointer: record.frame_pointer,
            stack_pointer: record.stack_pointer,
        },
        stack: exactly(rest, record.stack_bytes.into(), FunctionRecord::LEN)?,
    })
}

fn decode_keys(payload: &[u8]) -> Result<Keys<'_>, Misfit> {
    let (record, rest) = split(payload)?;
    let record = KeysRecord::from_bytes(record);
    let attributes = exactly(rest, record.attributes_bytes.into(), KeysRecord::LEN)?;
    let attributes = Attributes::read(&mut Reader::new(attributes, KeysRecord::LEN))
        .map_err(|error| (error.offset(), Corruption::Attributes(error)))?;
    Ok(Keys {
        function: FunctionId(record.function),
        start: ClockNs(record.start),
        end: ClockNs(record.end),
        substream: SubstreamId(record.substream),
        attributes,
    })
}

/// The fixed part of a payload and what follows it.
#[inline]
fn split<const N: usize>(payload: &[u8]) -> Result<(&[u8; N], &[u8]), Misfit> {
    let what = Corruption::Payload { needed: N as u64, found: payload.len() as u64 };
    payload.split_first_chunk().ok_or((0, what))
}

/// What follows the fixed part, which must be just as long as that part says.
#[inline]
fn exactly(rest: &[u8], bytes: u64, fixed: usize) -> Result<&[u8], Misfit> {
    if rest.len() as u64 == bytes {
        return Ok(rest);
    }
    let fixed = fixed as u64;
    let (needed, found) = (fixed.saturating_add(bytes), fixed.saturating_add(rest.len() as u64));
    Err((0, Corruption::Payload { needed, found }))
}

/// Whether these bytes, which are no whole event, are what is left of one that was cut, of a footer, or zeros. Zeros
/// may also stand for what was lost of it.
fn is_cut(tail: &[u8]) -> bool {
    let footer = tail.starts_with(&FOOTER_MAGIC) && is_zero(tail.get(EDGE_BYTES..).unwrap_or_default());
    let Some(record) = tail.first_chunk().map(DetailRecord::from_bytes) else { return true };
    let zeros = tail.iter().rev().take_while(|&&byte| byte == 0).count();
    let there = tail.get(..tail.len().saturating_sub(zeros)).unwrap_or_default();
    let payload = there.get(DetailRecord::LEN..).unwrap_or_default();
    let fixed = match record.kind {
        CALL | RETURN => payload.first_chunk().map(|bytes| {
            let more = FunctionRecord::from_bytes(bytes).stack_bytes;
            FunctionRecord::LEN.saturating_add(more.into())
        }),
        KEYS => payload.first_chunk().map(|bytes| {
            let more = KeysRecord::from_bytes(bytes).attributes_bytes;
            KeysRecord::LEN.saturating_add(usize::try_from(more).unwrap_or(usize::MAX))
        }),
        CONTEXT => Some(ContextRecord::LEN),
        _ => None,
    };
    let length = usize::try_from(record.length).unwrap_or(usize::MAX);
    let agrees = fixed.is_none_or(|payload| DetailRecord::LEN.saturating_add(payload) == length);
    let cut = agrees && (tail.len()..=max_length(record.kind)).contains(&length);
    cut || footer || is_zero(tail)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}
