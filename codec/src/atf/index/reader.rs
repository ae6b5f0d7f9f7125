//! Reading an index file.

use crc32fast::Hasher;

use super::{
    EVENT_BYTES, FOOTER_MAGIC, HAS_DETAIL, HEADER_MAGIC, IndexEvent, IndexFoot, IndexHead, IndexRecord, IndexTotals,
    IndexWriter,
};
use crate::atf::{
    Corrupt, Corruption, EDGE_BYTES, Integrity, OpenError, Origin,
    integrity::{Completion, Footer, agree, agree_checksum, completion, cut_checksum, find_footer, short_file},
    origin::check_start,
    writer::{MAX_EVENTS, Totals},
};

/// How many events are looked at before the next: few enough that they are fetched from memory once.
const EVENTS_PER_BLOCK: usize = 512;

/// Reads the bytes of an index file.
///
/// Opening looks at the two ends of the file only. [`check`](Self::check) looks at everything.
#[derive(Debug, Clone, Copy)]
pub struct IndexReader<'a> {
    origin: Origin,
    head: IndexHead,
    events: &'a [[u8; IndexRecord::LEN]],
    footer: Footer<'a>,
    /// The checksum of the events, where the footer was cut behind it.
    cut_checksum: Option<u32>,
}

impl<'a> IndexReader<'a> {
    /// Opens the bytes of a whole file.
    pub fn open(file: &'a [u8]) -> Result<Self, OpenError> {
        let Some(head) = file.first_chunk() else {
            return Err(short_file(file, HEADER_MAGIC));
        };
        let head = IndexHead::from_bytes(head);
        check_start(head.magic, HEADER_MAGIC, head.endian, head.version, (32, head.events_offset))?;
        if head.event_bytes != EVENT_BYTES {
            return Err(Corrupt { offset: 24, what: Corruption::EventSize { found: head.event_bytes } }.into());
        }
        let (events, mut footer) = find_footer(file, head.footer_offset, FOOTER_MAGIC, Self::is_footer);
        let (events, rest) = events.as_chunks();
        let events = if footer.is_cut() { without_tail(events) } else { events };
        let tail = file.get(EDGE_BYTES.saturating_add(events.as_flattened().len())..).unwrap_or_default();
        let cut_checksum = cut_checksum(tail, FOOTER_MAGIC).filter(|_| footer.is_cut());
        if matches!(footer, Footer::Finished(_)) && !rest.is_empty() {
            let whole = head.footer_offset.saturating_sub(rest.len() as u64);
            footer = Footer::Broken(misplaced_footer(whole, head.footer_offset));
        }
        let origin =
            Origin { arch: head.arch.into(), os: head.os.into(), clock: head.clock.into(), thread: head.thread };
        Ok(Self { origin, head, events, footer, cut_checksum })
    }

    /// The state of the file with these bytes, whether or not it can be opened. Reads every byte.
    pub fn check_file(file: &[u8]) -> Integrity {
        IndexReader::open(file).map_or_else(Integrity::from, |index| index.check())
    }

    /// Whether the last bytes of a file are its footer, if its events have this many bytes. For readers that do not
    /// hold the file whole.
    pub fn is_footer(bytes: &[u8; EDGE_BYTES], events_bytes: u64) -> bool {
        let foot = IndexFoot::from_bytes(bytes);
        foot.magic == FOOTER_MAGIC
            && foot.events_bytes == events_bytes
            && foot.event_count.checked_mul(IndexRecord::LEN as u64) == Some(events_bytes)
    }

    /// Whether what looks like the last event of a file that lacks its end is none, but the first half of a footer
    /// behind so many events.
    pub fn is_half_footer(bytes: &[u8; IndexEvent::BYTES], events: u64) -> bool {
        is_half_footer(bytes, events)
    }

    /// Where the events come from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Whether there is a detail file, as far as the header tells: until it has been completed, it does not.
    pub fn has_detail(&self) -> Option<bool> {
        (self.head.footer_offset != 0).then_some(self.head.flags & HAS_DETAIL != 0)
    }

    /// Whether the file ends with a footer.
    pub fn is_finished(&self) -> bool {
        matches!(self.footer, Footer::Finished(_))
    }

    /// How many events can be read.
    pub fn len(&self) -> u32 {
        u32::try_from(self.events.len()).unwrap_or(MAX_EVENTS)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The event with this sequence number, if there is one.
    #[inline]
    pub fn get(&self, sequence: u32) -> Option<Result<IndexEvent, Corrupt>> {
        let at = usize::try_from(sequence).ok()?;
        self.events.get(at).map(|bytes| decode(bytes, at))
    }

    /// The events, in order.
    #[inline]
    pub fn events(&self) -> IndexEvents<'a> {
        IndexEvents { events: self.events, next: 0 }
    }

    /// Looks at everything: header, footer, checksum and every event.
    pub fn check(&self) -> Integrity {
        self.check_all().unwrap_or_else(Integrity::Corrupt)
    }

    fn check_all(&self) -> Result<Integrity, Corrupt> {
        let unfinished = Integrity::Unfinished { events: self.len().into() };
        let foot = match self.footer {
            Footer::Broken(corrupt) => return Err(corrupt),
            Footer::Unfinished => return self.totals().map(|_| unfinished),
            Footer::Finished(bytes) => IndexFoot::from_bytes(bytes),
        };
        let footer_offset = (EDGE_BYTES as u64).saturating_add(self.section_bytes());
        let at = |offset: u64| footer_offset.saturating_add(offset);
        if foot.magic != FOOTER_MAGIC {
            let what = Corruption::Magic { expected: FOOTER_MAGIC, found: foot.magic };
            return Err(Corrupt { offset: at(0), what });
        }
        agree(at(8), "event count in the footer", self.events.len() as u64, foot.event_count)?;
        agree(at(32), "events bytes in the footer", self.section_bytes(), foot.events_bytes)?;
        let (totals, checksum) = self.totals()?;
        agree_checksum(at(4), foot.checksum, checksum)?;
        agree(at(16), "first timestamp in the footer", totals.first_timestamp, foot.first_timestamp)?;
        agree(at(24), "last timestamp in the footer", totals.last_timestamp, foot.last_timestamp)?;
        let head = &self.head;
        match completion(&head.to_bytes(), &self.origin, &totals) {
            Some(Completion::Whole) => return Ok(Integrity::Intact),
            Some(Completion::Torn) => return Ok(unfinished),
            None => {}
        }
        agree(28, "event count in the header", totals.count.into(), head.event_count.into())?;
        if head.footer_offset != footer_offset {
            return Err(misplaced_footer(footer_offset, head.footer_offset));
        }
        agree(48, "first timestamp in the header", totals.first_timestamp, head.first_timestamp)?;
        agree(56, "last timestamp in the header", totals.last_timestamp, head.last_timestamp)?;
        if totals.has_detail {
            agree(8, "detail file in the flags", HAS_DETAIL.into(), (head.flags & HAS_DETAIL).into())?;
        }
        Ok(Integrity::Intact)
    }

    /// The same file, if it had no more than its first `events`, and no end.
    pub fn cut(self, events: u32) -> Self {
        let kept = usize::try_from(events).ok().and_then(|kept| self.events.get(..kept));
        Self { events: kept.unwrap_or(self.events), footer: Footer::Unfinished, cut_checksum: None, ..self }
    }

    /// Goes on behind the last readable event, once the file has been cut to [`written_bytes`] and starts with [`start`].
    ///
    /// Not where it is damaged: a new checksum over damaged events would hide the damage.
    ///
    /// [`written_bytes`]: IndexWriter::written_bytes
    /// [`start`]: IndexWriter::start
    pub fn resume(&self) -> Result<IndexWriter, Corrupt> {
        if !self.footer.is_cut() {
            self.check_all()?;
        }
        let (totals, checksum) = self.totals()?;
        Ok(IndexWriter::resume(self.origin, totals, checksum))
    }

    /// What the events come to, and their checksum, in one pass. Where a footer that was cut says another, they are
    /// damaged.
    fn totals(&self) -> Result<(IndexTotals, u32), Corrupt> {
        let (mut totals, mut hasher) = (IndexTotals::default(), Hasher::new());
        let mut at = 0_usize;
        for block in self.events.chunks(EVENTS_PER_BLOCK) {
            hasher.update(block.as_flattened());
            for bytes in block {
                totals.add(&decode(bytes, at)?);
                at = at.saturating_add(1);
            }
        }
        let checksum = hasher.finalize();
        let footer_offset = (EDGE_BYTES as u64).saturating_add(totals.events_bytes());
        agree_checksum(footer_offset.saturating_add(4), self.cut_checksum.unwrap_or(checksum), checksum)?;
        Ok((totals, checksum))
    }

    fn section_bytes(&self) -> u64 {
        self.events.as_flattened().len() as u64
    }
}

/// The events of an [`IndexReader`].
#[derive(Debug, Clone)]
pub struct IndexEvents<'a> {
    events: &'a [[u8; IndexRecord::LEN]],
    next: usize,
}

impl Iterator for IndexEvents<'_> {
    type Item = Result<IndexEvent, Corrupt>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.events.get(self.next)?;
        let event = decode(bytes, self.next);
        self.next = self.next.saturating_add(1);
        Some(event)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.events.len().saturating_sub(self.next);
        (left, Some(left))
    }
}

impl ExactSizeIterator for IndexEvents<'_> {}

impl IndexEvent {
    /// The event with this sequence number from its bytes in a file.
    #[inline]
    pub fn decode(bytes: &[u8; Self::BYTES], sequence: u32) -> Result<Self, Corrupt> {
        decode(bytes, usize::try_from(sequence).unwrap_or(usize::MAX))
    }
}

#[inline]
fn decode(bytes: &[u8; IndexRecord::LEN], at: usize) -> Result<IndexEvent, Corrupt> {
    IndexEvent::from_record(IndexRecord::from_bytes(bytes)).map_err(|found| {
        let offset = (at as u64).saturating_mul(IndexRecord::LEN as u64).saturating_add(EDGE_BYTES as u64);
        Corrupt { offset: offset.saturating_add(20), what: Corruption::Kind { found } }
    })
}

/// A header that tells the wrong place for the footer.
fn misplaced_footer(expected: u64, found: u64) -> Corrupt {
    let field = "place of the footer by the header";
    Corrupt { offset: 40, what: Corruption::Disagreement { field, expected, found } }
}

/// The events of a file that lacks its end, without what is no event. A machine that stopped may have left zeros
/// at the end, and a writer that was killed may have left half a footer, which looks like an event.
fn without_tail(events: &[[u8; IndexRecord::LEN]]) -> &[[u8; IndexRecord::LEN]] {
    let zeros = events.iter().rev().take_while(|event| **event == [0; IndexRecord::LEN]).count();
    let events = events.get(..events.len().saturating_sub(zeros)).unwrap_or_default();
    match events.split_last() {
        Some((last, before)) if is_half_footer(last, before.len() as u64) => before,
        _ => events,
    }
}

/// Whether these bytes are the first half of the footer of a file with that many events.
fn is_half_footer(bytes: &[u8; IndexRecord::LEN], count: u64) -> bool {
    let mut footer = [0; EDGE_BYTES];
    footer.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    let foot = IndexFoot::from_bytes(&footer);
    foot.magic == FOOTER_MAGIC && foot.event_count == count
}
