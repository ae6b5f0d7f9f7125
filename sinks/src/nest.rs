//! The order in which spans that close one by one begin and end on a picture's tracks.
//!
//! Viewers take begins and ends sorted by time, and those of one time in the order in which they were written. Spans
//! close from the inside out, so where a function begins at the same time as what it calls, it would be drawn inside
//! of it. Only the first calls of a function can begin when it does: these wait for it to close, and only their begins;
//! everything else is passed on at once.
//!
//! Spans that overlap and do not nest, those of other stacks of a thread for instance, get lanes of their own.

mod hulls;

use std::{cmp::Reverse, collections::BinaryHeap, hash::Hash};

use ahash::HashMap;
use codec::{
    SessionNs,
    span::{Span, SpanFlags, SpanId},
};

use hulls::{HULL_BYTES, Hulls};

/// How many callers may be waited for. Beyond that, nobody is waited for any longer.
const MOST_WAITING: usize = 1 << 20;
/// How many begins may wait for one caller.
const MOST_HELD: usize = 4096;

/// One side of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edge {
    /// It begins.
    Begin,
    /// It ends.
    End,
}

/// A begin or an end, to be written on a lane of its track. Lane 0 is the track itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Step<T> {
    pub(crate) edge: Edge,
    pub(crate) track: T,
    pub(crate) lane: usize,
    pub(crate) span: Span,
}

/// Spans on tracks, where they nest.
#[derive(Debug)]
pub(crate) struct Nest<T> {
    /// The steps that wait for a span to close.
    waiting: HashMap<SpanId, Waiting<T>>,
    tracks: HashMap<T, Track>,
    /// How many steps wait, and how many hulls and lanes the tracks have.
    held: usize,
    taken: usize,
}

/// The first that a span called, in the order in which they began.
#[derive(Debug)]
struct Waiting<T> {
    start: u64,
    steps: Vec<Step<T>>,
}

#[derive(Debug, Default)]
struct Track {
    hulls: Hulls,
    lanes: Lanes,
}

impl Track {
    fn len(&self) -> usize {
        self.hulls.len() + self.lanes.len()
    }
}

impl<T> Default for Nest<T> {
    fn default() -> Self {
        Self { waiting: HashMap::default(), tracks: HashMap::default(), held: 0, taken: 0 }
    }
}

impl<T: Copy + Eq + Hash> Nest<T> {
    /// A span has closed that lies on `track`, there inside of `parent`. It must have an end. Passes on what is to be
    /// written now.
    pub(crate) fn close(&mut self, track: T, parent: Option<SpanId>, span: Span, mut pass: impl FnMut(Step<T>)) {
        let (start, end) = (span.start.0, span.end.unwrap_or(span.start).0);
        let place = self.tracks.entry(track).or_default();
        let before = place.len();
        // A caller whose end is missing may have returned before what is behind a gap: that does not make it longer.
        let known = parent.filter(|_| !span.flags.has(SpanFlags::BEHIND_GAP));
        let (lane, end) = match place.hulls.admit(known, start, end) {
            Some(end) => (0, end),
            None => (1 + place.lanes.admit(start, end), end),
        };
        self.taken = (self.taken + place.len()).saturating_sub(before);
        let mut inner = self.waiting.remove(&span.id).unwrap_or(Waiting { start, steps: Vec::new() });
        self.held = self.held.saturating_sub(inner.steps.len());
        if inner.start != start || lane > 0 {
            inner.steps.drain(..).for_each(&mut pass);
        }
        let begin = Step { edge: Edge::Begin, track, lane, span: span.clone() };
        let finish = Step { edge: Edge::End, track, lane, span: Span { end: Some(SessionNs(end)), ..span } };
        let parent = parent.filter(|parent| lane == 0 && self.may_wait(*parent, start, &mut pass));
        let Some(parent) = parent else {
            pass(begin);
            inner.steps.into_iter().for_each(&mut pass);
            pass(finish);
            return;
        };
        let waiting = self.waiting.entry(parent).or_insert(Waiting { start, steps: Vec::new() });
        self.held += 1 + inner.steps.len() + usize::from(start == end);
        waiting.steps.push(begin);
        waiting.steps.append(&mut inner.steps);
        // Only what ends as it begins has an end that waits: all other ends come later than what waits.
        if start == end {
            waiting.steps.push(finish);
        } else {
            pass(finish);
        }
    }

    /// When the last ended that is inside of a span for sure, as far as that is known.
    pub(crate) fn end_within(&self, track: T, span: &Span) -> Option<SessionNs> {
        self.tracks.get(&track)?.hulls.end_within(span.id, span.start.0).map(SessionNs)
    }

    /// When those end on a track that go on at this time, as far as that is known.
    pub(crate) fn end_around(&self, track: T, at: SessionNs) -> Option<SessionNs> {
        self.tracks.get(&track)?.hulls.end_around(at.0).map(SessionNs)
    }

    /// Nothing more is inside of a span that lies on no track, or on another.
    pub(crate) fn release(&mut self, span: SpanId, pass: impl FnMut(Step<T>)) {
        if let Some(waiting) = self.waiting.remove(&span) {
            self.held = self.held.saturating_sub(waiting.steps.len());
            waiting.steps.into_iter().for_each(pass);
        }
    }

    /// Nothing more comes on a track.
    pub(crate) fn forget(&mut self, track: T) {
        let place = self.tracks.remove(&track);
        self.taken = self.taken.saturating_sub(place.map_or(0, |place| place.len()));
    }

    /// How much memory it takes, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        // A list of steps that grows has room for as many again, and for four at first.
        let steps = (self.held + 2 * self.waiting.len()) * 2 * size_of::<Step<T>>();
        let tables = self.waiting.len() * 2 * size_of::<(SpanId, Waiting<T>)>();
        let tracks = self.tracks.len() * 2 * size_of::<(T, Track)>() + self.taken * 2 * HULL_BYTES;
        steps + tables + tracks
    }

    /// Forgets what came before: nobody is waited for any longer, and what comes is taken to nest.
    pub(crate) fn start_anew(&mut self, pass: impl FnMut(Step<T>)) {
        self.finish(pass);
        (self.tracks, self.taken) = Default::default();
    }

    /// Nothing more comes.
    pub(crate) fn finish(&mut self, mut pass: impl FnMut(Step<T>)) {
        self.held = 0;
        // In the same order each time.
        let mut left: Vec<_> = std::mem::take(&mut self.waiting).into_iter().collect();
        left.sort_unstable_by_key(|(parent, waiting)| (waiting.start, *parent));
        for (_, waiting) in left {
            waiting.steps.into_iter().for_each(&mut pass);
        }
    }

    /// Whether a span with this start may begin when its caller does, which has not closed yet.
    fn may_wait(&mut self, parent: SpanId, start: u64, mut pass: impl FnMut(Step<T>)) -> bool {
        let Some(waiting) = self.waiting.get_mut(&parent) else {
            if self.waiting.len() >= MOST_WAITING {
                self.finish(pass);
            }
            return true;
        };
        // What began before those that wait is told behind them where one of them took its place by a tail call.
        if waiting.steps.len() >= MOST_HELD || waiting.start > start {
            self.held = self.held.saturating_sub(waiting.steps.len());
            waiting.steps.drain(..).for_each(&mut pass);
        }
        waiting.start = waiting.start.min(start);
        waiting.start == start
    }
}

/// Lanes for spans that overlap: on each, one span after the other.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    /// When each is free again, the first to be so on top.
    free: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Lanes {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.free.len()
    }

    /// A lane that is free for so long.
    pub(crate) fn admit(&mut self, start: u64, end: u64) -> usize {
        let next = self.free.len();
        let lane = match self.free.peek() {
            Some(Reverse((free, lane))) if *free <= start => *lane,
            _ => next,
        };
        if lane < next {
            self.free.pop();
        }
        self.free.push(Reverse((end, lane)));
        lane
    }
}

#[cfg(test)]
mod tests;
