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
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step<'s, T> {
    pub(crate) edge: Edge,
    pub(crate) track: T,
    pub(crate) lane: usize,
    /// When it is in the picture.
    pub(crate) at: SessionNs,
    pub(crate) span: &'s Span,
}

/// Spans on tracks, where they nest.
#[derive(Debug)]
pub(crate) struct Nest<T> {
    /// The steps that wait for a span to close.
    waiting: HashMap<SpanId, Waiting<T>>,
    tracks: Tracks<T>,
    /// How many steps wait, and how many hulls and lanes the tracks have.
    held: usize,
    taken: usize,
}

/// The first that a span called, in the order in which they began.
#[derive(Debug)]
struct Waiting<T> {
    start: u64,
    steps: Vec<Held<T>>,
}

/// A step that waits. It is on the track itself.
#[derive(Debug)]
struct Held<T> {
    edge: Edge,
    track: T,
    at: SessionNs,
    span: Span,
}

impl<T: Copy> Held<T> {
    fn step(&self) -> Step<'_, T> {
        Step { edge: self.edge, track: self.track, lane: 0, at: self.at, span: &self.span }
    }
}

impl<T> Waiting<T> {
    fn new(start: u64) -> Self {
        Self { start, steps: Vec::new() }
    }
}

#[derive(Debug, Default)]
struct Track {
    hulls: Hulls,
    lanes: Lanes,
}

/// Tracks by their names. The one that was asked for last lies apart: mostly it is asked for again.
#[derive(Debug)]
struct Tracks<T> {
    last: Option<(T, Track)>,
    others: HashMap<T, Track>,
}

impl<T> Default for Tracks<T> {
    fn default() -> Self {
        Self { last: None, others: HashMap::default() }
    }
}

impl<T: Copy + Eq + Hash> Tracks<T> {
    fn len(&self) -> usize {
        self.others.len() + usize::from(self.last.is_some())
    }

    fn get(&self, name: T) -> Option<&Track> {
        match &self.last {
            Some((last, track)) if *last == name => Some(track),
            _ => self.others.get(&name),
        }
    }

    fn remove(&mut self, name: T) -> Option<Track> {
        match self.last.take_if(|(last, _)| *last == name) {
            Some((_, track)) => Some(track),
            None => self.others.remove(&name),
        }
    }

    #[inline]
    fn entry(&mut self, name: T) -> &mut Track {
        if let Some((last, track)) = self.last.take_if(|(last, _)| *last != name) {
            self.others.insert(last, track);
        }
        let others = &mut self.others;
        &mut self.last.get_or_insert_with(|| (name, others.remove(&name).unwrap_or_default())).1
    }
}

impl Track {
    fn len(&self) -> usize {
        self.hulls.len() + self.lanes.len()
    }
}

impl<T> Default for Nest<T> {
    fn default() -> Self {
        Self { waiting: HashMap::default(), tracks: Tracks::default(), held: 0, taken: 0 }
    }
}

impl<T: Copy + Eq + Hash> Nest<T> {
    /// A span has closed that lies on `track`, there inside of `parent`. It must have an end. Passes on what is to be
    /// written now.
    pub(crate) fn close(&mut self, track: T, parent: Option<SpanId>, span: &Span, mut pass: impl FnMut(&Step<'_, T>)) {
        let (start, end) = (span.start.0, span.end.unwrap_or(span.start).0);
        let place = self.tracks.entry(track);
        let before = place.len();
        // A caller whose end is missing may have returned before what is behind a gap: that does not make it longer.
        let known = parent.filter(|_| !span.flags.has(SpanFlags::BEHIND_GAP));
        let (lane, end) = match place.hulls.admit(known, start, end) {
            Some(end) => (0, end),
            None => (1 + place.lanes.admit(start, end), end),
        };
        self.taken = (self.taken + place.len()).saturating_sub(before);
        let mut inner = self.waiting.remove(&span.id).unwrap_or(Waiting::new(start));
        self.held = self.held.saturating_sub(inner.steps.len());
        if inner.start != start || lane > 0 {
            inner.steps.drain(..).for_each(|held| pass(&held.step()));
        }
        let begin = Step { edge: Edge::Begin, track, lane, at: span.start, span };
        let finish = Step { edge: Edge::End, at: SessionNs(end), ..begin };
        let parent = parent.filter(|_| lane == 0);
        let Some(waiting) = parent.and_then(|parent| self.waiting_for(parent, start, &mut pass)) else {
            pass(&begin);
            inner.steps.iter().for_each(|held| pass(&held.step()));
            pass(&finish);
            return;
        };
        let held = |step: &Step<'_, T>| Held { edge: step.edge, track, at: step.at, span: span.clone() };
        let before = waiting.steps.len();
        waiting.steps.push(held(&begin));
        waiting.steps.append(&mut inner.steps);
        // Only what ends as it begins has an end that waits: all other ends come later than what waits.
        if start == end {
            waiting.steps.push(held(&finish));
        } else {
            pass(&finish);
        }
        self.held += waiting.steps.len() - before;
    }

    /// When the last ended that is inside of a span for sure, as far as that is known.
    pub(crate) fn end_within(&self, track: T, span: &Span) -> Option<SessionNs> {
        self.tracks.get(track)?.hulls.end_within(span.id, span.start.0).map(SessionNs)
    }

    /// When those end on a track that go on at this time, as far as that is known.
    pub(crate) fn end_around(&self, track: T, at: SessionNs) -> Option<SessionNs> {
        self.tracks.get(track)?.hulls.end_around(at.0).map(SessionNs)
    }

    /// Nothing more is inside of a span that lies on no track, or on another.
    pub(crate) fn release(&mut self, span: SpanId, mut pass: impl FnMut(&Step<'_, T>)) {
        if let Some(waiting) = self.waiting.remove(&span) {
            self.held = self.held.saturating_sub(waiting.steps.len());
            waiting.steps.iter().for_each(|held| pass(&held.step()));
        }
    }

    /// Nothing more comes on a track.
    pub(crate) fn forget(&mut self, track: T) {
        let place = self.tracks.remove(track);
        self.taken = self.taken.saturating_sub(place.map_or(0, |place| place.len()));
    }

    /// How much memory it takes, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        // A list of steps that grows has room for as many again, and for four at first.
        let steps = (self.held + 2 * self.waiting.len()) * 2 * size_of::<Held<T>>();
        let tables = self.waiting.len() * 2 * size_of::<(SpanId, Waiting<T>)>();
        let tracks = self.tracks.len() * 2 * size_of::<(T, Track)>() + self.taken * 2 * HULL_BYTES;
        steps + tables + tracks
    }

    /// Forgets what came before: nobody is waited for any longer, and what comes is taken to nest.
    pub(crate) fn start_anew(&mut self, pass: impl FnMut(&Step<'_, T>)) {
        self.finish(pass);
        (self.tracks, self.taken) = Default::default();
    }

    /// Nothing more comes.
    pub(crate) fn finish(&mut self, mut pass: impl FnMut(&Step<'_, T>)) {
        self.held = 0;
        // In the same order each time.
        let mut left: Vec<_> = std::mem::take(&mut self.waiting).into_iter().collect();
        left.sort_unstable_by_key(|(parent, waiting)| (waiting.start, *parent));
        for (_, waiting) in left {
            waiting.steps.iter().for_each(|held| pass(&held.step()));
        }
    }

    /// What waits for a span that has not closed yet, if one with this start may begin when that does.
    fn waiting_for(&mut self, span: SpanId, start: u64, mut pass: impl FnMut(&Step<'_, T>)) -> Option<&mut Waiting<T>> {
        if self.waiting.len() >= MOST_WAITING && !self.waiting.contains_key(&span) {
            self.finish(&mut pass);
        }
        let waiting = self.waiting.entry(span).or_insert_with(|| Waiting::new(start));
        // What began before those that wait is told behind them where one of them took its place by a tail call.
        if waiting.steps.len() >= MOST_HELD || waiting.start > start {
            self.held = self.held.saturating_sub(waiting.steps.len());
            waiting.steps.drain(..).for_each(|held| pass(&held.step()));
        }
        waiting.start = waiting.start.min(start);
        (waiting.start == start).then_some(waiting)
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
