//! The first of two passes: the spans of a session, put down by row as they end.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{self, Seek, Write},
    os::unix::fs::FileExt,
};

use ahash::RandomState;
use anyhow::Result;
use codec::{
    StreamId,
    span::{Reason, Span, SpanFlags, SpanId, SpanKind, SpanRuntime, What},
};

use super::{
    Gap, flags,
    packing::{pack, unpack},
};

/// What a row is of, before it is known how many lanes it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Source {
    Thread(StreamId),
    Logical(SpanRuntime),
}

/// A span, as far as it is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Drawn {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) what: u32,
    pub(super) depth: u16,
    pub(super) flags: u8,
    pub(super) traits: u8,
    /// The position of the event that it begins with, and that of its caller's, counted from one: 0 where there is none.
    pub(super) id: u64,
    pub(super) caller: u64,
}

/// What else matters of a span until it has its place.
pub(super) mod traits {
    /// It is told of only when others have ended that began behind its end: it ended in a jump, and what it jumped to has
    /// ended, or it has made a thread, a block or a task, and more was to be known of that.
    pub(in super::super) const LATE: u8 = 1;
    /// It has no end: what it called is all that is known of how long it took.
    pub(in super::super) const ENDLESS: u8 = 2;
    /// Its end is missing.
    pub(in super::super) const LOST: u8 = 4;
    /// Events are missing inside of it.
    pub(in super::super) const ACROSS: u8 = 8;
    /// Events are missing between the begin of its caller and its own.
    pub(in super::super) const BEHIND: u8 = 16;
    /// Its call is missing. What it called is elsewhere.
    pub(in super::super) const NO_CALL: u8 = 32;
}

/// How many spans are put down at a time, of one row and of all.
const AT_A_TIME: usize = 1024;
const MOST_HELD: usize = 1 << 21;

/// How many bytes are forgotten before what is left is written again.
const MOST_FORGOTTEN: u64 = 64 << 20;

/// How deep frames may be that are drawn.
pub(super) const MOST_DEPTH: u32 = 1 << 14;

/// How many gaps are told one by one. Beyond that, those of a thread that follow one another are one.
const MOST_GAPS: usize = 1 << 18;

/// What was gathered.
#[derive(Debug)]
pub(super) struct Gathered {
    file: File,
    length: u64,
    pub(super) rows: BTreeMap<Source, Row>,
    held: usize,
    pub(super) whats: Vec<(What, SpanKind)>,
    numbers: HashMap<(What, SpanKind), u32, RandomState>,
    gaps: Gaps,
    /// How many frames were too deep.
    pub(super) cut: u64,
    /// The first and the last time there is.
    range: (u64, u64),
}

/// What is missing.
#[derive(Debug, Clone, Default)]
struct Gaps {
    gaps: Vec<Gap>,
    /// When the last gap of each thread began.
    last: HashMap<StreamId, u64, RandomState>,
}

/// What would come behind what was gathered if nothing more did.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) rows: BTreeMap<Source, (u64, Vec<Drawn>)>,
    gaps: Gaps,
    pub(super) cut: u64,
    range: (u64, u64),
}

/// The spans of a row, in the order in which they are told of: mostly that in which they end.
#[derive(Debug, Default)]
pub(super) struct Row {
    held: Vec<Drawn>,
    /// Where those are that were put down, and how many bytes they have.
    parts: Vec<(u64, usize)>,
    /// The last time that was heard of.
    last: u64,
}

impl Gathered {
    /// Nothing yet. The file is for this alone.
    pub(super) fn new(file: File) -> Self {
        Self {
            file,
            length: 0,
            rows: BTreeMap::new(),
            held: 0,
            whats: Vec::new(),
            numbers: HashMap::default(),
            gaps: Gaps::default(),
            cut: 0,
            range: (u64::MAX, 0),
        }
    }

    /// Takes a span that has ended, or never will. Returns the number of what ran, unless that is not drawn.
    pub(super) fn add(&mut self, span: &Span, last: u64) -> io::Result<Option<u32>> {
        if span.kind == SpanKind::Gap {
            self.gaps.add(span);
            return Ok(None);
        }
        if span.depth >= MOST_DEPTH {
            self.cut = self.cut.saturating_add(1);
            return Ok(None);
        }
        let what = self.number(&span.what, span.kind);
        let row = self.rows.entry(source_of(span)).or_default();
        let drawn = draw(span, what, self.gaps.last.get(&span.stream), &mut row.last, last);
        self.range = (self.range.0.min(drawn.start), self.range.1.max(drawn.end));
        // What is told of late stays with what it is late for.
        if row.held.len() >= AT_A_TIME && drawn.traits & traits::LATE == 0 {
            self.held -= put_down(row, &mut self.file, &mut self.length)?;
        }
        row.held.push(drawn);
        self.held += 1;
        if self.held >= MOST_HELD {
            for row in self.rows.values_mut() {
                self.held -= put_down(row, &mut self.file, &mut self.length)?;
            }
        }
        Ok(Some(what))
    }

    /// What spans would come to if they were taken, and nothing more came.
    pub(super) fn rest(&mut self, spans: &[Span], last: u64) -> Rest {
        let mut rest = Rest { rows: BTreeMap::new(), gaps: self.gaps.clone(), cut: self.cut, range: self.range };
        for span in spans {
            if span.kind == SpanKind::Gap {
                rest.gaps.add(span);
                continue;
            }
            if span.depth >= MOST_DEPTH {
                rest.cut = rest.cut.saturating_add(1);
                continue;
            }
            let what = self.number(&span.what, span.kind);
            let source = source_of(span);
            let heard = self.rows.entry(source).or_default().last;
            let (heard, row) = rest.rows.entry(source).or_insert((heard, Vec::new()));
            let drawn = draw(span, what, rest.gaps.last.get(&span.stream), heard, last);
            rest.range = (rest.range.0.min(drawn.start), rest.range.1.max(drawn.end));
            row.push(drawn);
        }
        rest
    }

    /// The first and the last time there is.
    pub(super) fn range(&self) -> (u64, u64) {
        in_order(self.range)
    }

    /// What is missing.
    pub(super) fn take_gaps(&mut self) -> Vec<Gap> {
        std::mem::take(&mut self.gaps.gaps)
    }

    /// Forgets what was put down of a row but for these that are left of it and the last so many parts.
    pub(super) fn forget(&mut self, source: Source, left: &[Drawn], parts: usize) -> io::Result<()> {
        let Some(row) = self.rows.get_mut(&source) else { return Ok(()) };
        row.parts.drain(..row.parts.len().saturating_sub(parts));
        for (place, some) in left.chunks(AT_A_TIME).enumerate() {
            let part = write_part(some, &mut self.file, &mut self.length)?;
            row.parts.insert(place, part);
        }
        Ok(())
    }

    /// Writes again what is left, if that is little beside what was forgotten.
    pub(super) fn compact(&mut self) -> Result<()> {
        let parts = || self.rows.values().flat_map(|row| &row.parts);
        let bytes = parts().map(|(_, bytes)| *bytes as u64).sum::<u64>();
        if self.length < MOST_FORGOTTEN || bytes > self.length / 4 {
            return Ok(());
        }
        let mut kept = Vec::new();
        for row in self.rows.values_mut() {
            for (at, bytes) in &mut row.parts {
                let from = kept.len();
                kept.resize(from + *bytes, 0);
                self.file.read_exact_at(kept.get_mut(from..).unwrap_or_default(), *at)?;
                *at = from as u64;
            }
        }
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(&kept)?;
        self.length = kept.len() as u64;
        Ok(())
    }

    /// The number of what ran.
    pub(super) fn number(&mut self, what: &What, kind: SpanKind) -> u32 {
        // A frame and an event are told apart by their kinds only where it matters.
        let key = (what.clone(), kind);
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let number = u32::try_from(self.whats.len()).unwrap_or(u32::MAX);
        self.whats.push(key.clone());
        self.numbers.insert(key, number);
        number
    }

    /// Hands over the spans of a row, those that ended last first, and with each the part
    /// that it is in, counted from the last, if it was put down.
    pub(super) fn backwards(&self, row: &Row, mut take: impl FnMut(Drawn, Option<usize>) -> Result<()>) -> Result<()> {
        row.held.iter().rev().try_for_each(|drawn| take(*drawn, None))?;
        let (mut bytes, mut part) = (Vec::new(), Vec::new());
        for (number, (at, length)) in row.parts.iter().rev().enumerate() {
            bytes.resize(*length, 0);
            self.file.read_exact_at(&mut bytes, *at)?;
            unpack(&bytes, &mut part);
            part.iter().rev().try_for_each(|drawn| take(*drawn, Some(number)))?;
        }
        Ok(())
    }
}

impl Row {
    /// How many parts were put down.
    pub(super) fn parts(&self) -> usize {
        self.parts.len()
    }
}

impl Rest {
    /// The first and the last time there is.
    pub(super) fn range(&self) -> (u64, u64) {
        in_order(self.range)
    }

    /// What is missing.
    pub(super) fn into_gaps(self) -> Vec<Gap> {
        self.gaps.gaps
    }
}

impl Gaps {
    fn add(&mut self, span: &Span) {
        let (from, to) = (span.start.0, span.end.map_or(span.start.0, |end| end.0));
        self.last.insert(span.stream, from);
        let missing = span.key().unwrap_or(0);
        let cause = span.more.as_ref().and_then(|more| more.cause.as_deref()).unwrap_or_default();
        if self.gaps.len() >= MOST_GAPS
            && let Some(last) = self.gaps.iter_mut().rev().take(64).find(|gap| gap.stream == span.stream)
        {
            last.to = last.to.max(to);
            last.missing = last.missing.saturating_add(missing);
            last.gaps = last.gaps.saturating_add(1);
            return;
        }
        self.gaps.push(Gap { stream: span.stream, from, to, missing, gaps: 1, cause: cause.into() });
    }
}

fn in_order(range: (u64, u64)) -> (u64, u64) {
    if range.0 > range.1 { (0, 0) } else { range }
}

/// Puts down what is held of a row, and returns how many that were.
fn put_down(row: &mut Row, file: &mut File, length: &mut u64) -> io::Result<usize> {
    let count = row.held.len();
    if count > 0 {
        row.parts.push(write_part(&row.held, file, length)?);
        row.held.clear();
    }
    Ok(count)
}

fn write_part(spans: &[Drawn], file: &mut File, length: &mut u64) -> io::Result<(u64, usize)> {
    let bytes = pack(spans);
    file.write_all(&bytes)?;
    let part = (*length, bytes.len());
    *length = length.saturating_add(bytes.len() as u64);
    Ok(part)
}

fn source_of(span: &Span) -> Source {
    match span.kind {
        SpanKind::Frame | SpanKind::Event => Source::Thread(span.stream),
        kind => Source::Logical(kind.runtime()),
    }
}

/// A span as it is drawn, behind what was heard of its row until then. `gap` is when the latest gap began, and `last` when
/// the trace ends.
fn draw(span: &Span, what: u32, gap: Option<&u64>, heard: &mut u64, last: u64) -> Drawn {
    let gap = gap.copied().filter(|gap| *gap >= span.start.0);
    let start = span.start.0;
    let (start, end) = match span.end {
        // What it called is elsewhere already.
        Some(end) if span.flags.has(SpanFlags::NO_CALL) => (end.0, end.0),
        Some(end) => (start, end.0),
        None if span.reason == Some(Reason::EntryOnly) => (start, start),
        // It is known to have run until then.
        None if span.has_lost_its_end() => (start, (*heard).min(gap.unwrap_or(u64::MAX))),
        None => (start, last),
    };
    let (end, depth) = (end.max(start), span.depth as u16);
    let is_caller = |caller: &SpanId| *caller == SpanId::new(span.stream, caller.position());
    let caller = span.parent.filter(is_caller).map_or(0, |caller| caller.position().0.saturating_add(1));
    let late = if span.end.is_some() && end < *heard { traits::LATE } else { 0 };
    let (flags, traits, id) = (flags_of(span), traits_of(span) | late, span.id.position().0.saturating_add(1));
    if span.end.is_some() {
        *heard = (*heard).max(end);
    }
    Drawn { start, end, what, depth, flags, traits, id, caller }
}

fn flags_of(span: &Span) -> u8 {
    let is_entry_only = span.reason == Some(Reason::EntryOnly);
    let is_untimed = span.has_lost_its_end() || span.flags.has(SpanFlags::NO_CALL) || is_entry_only;
    let mut found = if is_untimed { flags::CUT } else { 0 };
    if span.end.is_none() && !is_untimed {
        found |= flags::OPEN;
    }
    if matches!(span.reason, Some(Reason::Exception | Reason::Unwind | Reason::Longjmp)) {
        found |= flags::UNWOUND;
    }
    if span.kind == SpanKind::Suspension || span.reason == Some(Reason::Pending) {
        found |= flags::WAITING;
    }
    found
}

fn traits_of(span: &Span) -> u8 {
    let tail = if span.reason == Some(Reason::TailCall) { traits::LATE } else { 0 };
    let endless = if span.end.is_none() { traits::ENDLESS } else { 0 };
    let across = if span.flags.has(SpanFlags::ACROSS_GAP) { traits::ACROSS } else { 0 };
    let lost = if span.has_lost_its_end() { traits::LOST } else { 0 };
    let behind = if span.flags.has(SpanFlags::BEHIND_GAP) { traits::BEHIND } else { 0 };
    let callless = if span.flags.has(SpanFlags::NO_CALL) { traits::NO_CALL } else { 0 };
    tail | endless | across | lost | behind | callless
}
