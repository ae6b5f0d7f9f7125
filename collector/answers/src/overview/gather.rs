//! The first of two passes: the spans of a session, put down by row as they end.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{self, Write},
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
    pub(super) gaps: Vec<Gap>,
    /// When the last gap of each thread began.
    last_gap: HashMap<StreamId, u64, RandomState>,
    /// How many frames were too deep.
    pub(super) cut: u64,
    /// The first and the last time there is.
    pub(super) range: (u64, u64),
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
            gaps: Vec::new(),
            last_gap: HashMap::default(),
            cut: 0,
            range: (u64::MAX, 0),
        }
    }

    /// Takes a span that has ended, or never will. Returns the number of what ran, unless that is not drawn.
    pub(super) fn add(&mut self, span: &Span, last: u64) -> io::Result<Option<u32>> {
        if span.kind == SpanKind::Gap {
            self.add_gap(span);
            return Ok(None);
        }
        let source = match span.kind {
            SpanKind::Frame | SpanKind::Event => Source::Thread(span.stream),
            kind => Source::Logical(kind.runtime()),
        };
        if span.depth >= MOST_DEPTH {
            self.cut = self.cut.saturating_add(1);
            return Ok(None);
        }
        let what = self.number(&span.what, span.kind);
        let gap = self.last_gap.get(&span.stream).copied().filter(|gap| *gap >= span.start.0);
        let row = self.rows.entry(source).or_default();
        let start = span.start.0;
        let (start, end) = match span.end {
            // What it called is elsewhere already.
            Some(end) if span.flags.has(SpanFlags::NO_CALL) => (end.0, end.0),
            Some(end) => (start, end.0),
            None if span.reason == Some(Reason::EntryOnly) => (start, start),
            // It is known to have run until then.
            None if span.has_lost_its_end() => (start, row.last.min(gap.unwrap_or(u64::MAX))),
            None => (start, last),
        };
        let (end, depth) = (end.max(start), span.depth as u16);
        let is_caller = |caller: &SpanId| *caller == SpanId::new(span.stream, caller.position());
        let caller = span.parent.filter(is_caller).map_or(0, |caller| caller.position().0.saturating_add(1));
        let late = if span.end.is_some() && end < row.last { traits::LATE } else { 0 };
        let (flags, traits, id) = (flags_of(span), traits_of(span) | late, span.id.position().0.saturating_add(1));
        let drawn = Drawn { start, end, what, depth, flags, traits, id, caller };
        self.range = (self.range.0.min(drawn.start), self.range.1.max(drawn.end));
        if span.end.is_some() {
            row.last = row.last.max(drawn.end);
        }
        row.held.push(drawn);
        self.held += 1;
        if row.held.len() >= AT_A_TIME {
            self.held -= put_down(row, &mut self.file, &mut self.length)?;
        } else if self.held >= MOST_HELD {
            for row in self.rows.values_mut() {
                self.held -= put_down(row, &mut self.file, &mut self.length)?;
            }
        }
        Ok(Some(what))
    }

    fn add_gap(&mut self, span: &Span) {
        let (from, to) = (span.start.0, span.end.map_or(span.start.0, |end| end.0));
        self.last_gap.insert(span.stream, from);
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

    fn number(&mut self, what: &What, kind: SpanKind) -> u32 {
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

    /// Hands over the spans of a row, those that ended last first.
    pub(super) fn backwards(&self, row: &Row, mut take: impl FnMut(Drawn) -> Result<()>) -> Result<()> {
        row.held.iter().rev().try_for_each(|drawn| take(*drawn))?;
        let (mut bytes, mut part) = (Vec::new(), Vec::new());
        for (at, length) in row.parts.iter().rev() {
            bytes.resize(*length, 0);
            self.file.read_exact_at(&mut bytes, *at)?;
            unpack(&bytes, &mut part);
            part.iter().rev().try_for_each(|drawn| take(*drawn))?;
        }
        Ok(())
    }
}

/// Puts down what is held of a row, and returns how many that were.
fn put_down(row: &mut Row, file: &mut File, length: &mut u64) -> io::Result<usize> {
    let count = row.held.len();
    if count == 0 {
        return Ok(0);
    }
    let bytes = pack(&row.held);
    row.held.clear();
    file.write_all(&bytes)?;
    row.parts.push((*length, bytes.len()));
    *length = length.saturating_add(bytes.len() as u64);
    Ok(count)
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
