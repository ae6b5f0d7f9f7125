//! Where the slices of a row are, found from its end to its beginning.

use super::{
    contexts::NONE,
    gather::{Drawn, traits},
    layout::{Chunk, Record},
};

/// A lane: slices of which no two overlap at one depth.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) depths: Vec<Depth>,
}

/// The slices of one depth.
#[derive(Debug)]
pub(super) struct Depth {
    /// Those that wait to be written, those that come last in time first, and so are the chunks of this pass.
    pub(super) waiting: Vec<Record>,
    pub(super) chunks: Vec<Chunk>,
    /// What was settled in passes before, in the order of time, and when the last of it ended.
    pub(super) settled: Vec<Chunk>,
    floor: u64,
    /// What comes behind all that is settled, and is arranged again in the next pass.
    pub(super) later: Vec<Chunk>,
    /// Whether what is read now is settled.
    pub(super) is_settled: bool,
    /// When the latest that was read began.
    pub(super) start: u64,
    /// Where the same was called from the last time, what it was, and the context that is.
    pub(super) known: (u32, u32, u32),
}

/// What may have called what comes next, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Callers(Vec<Open>);

/// A slice that may have called others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    pub(super) id: u64,
    pub(super) caller: u64,
    pub(super) start: u64,
    pub(super) lane: usize,
    pub(super) is_lost: bool,
    /// Whether it has not ended yet.
    pub(super) is_open: bool,
    pub(super) is_settled: bool,
    /// Whether others would have called it, or its callers, had those not ended in a gap, which is not known yet.
    pub(super) is_doubtful: bool,
    pub(super) context: u32,
    /// Its place among the special ones, if it is one, and that of its caller.
    pub(super) special: Option<usize>,
    pub(super) callers: Option<usize>,
}

impl Default for Depth {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            chunks: Vec::new(),
            settled: Vec::new(),
            floor: 0,
            later: Vec::new(),
            is_settled: false,
            start: u64::MAX,
            known: (NONE, NONE, NONE),
        }
    }
}

impl Depth {
    /// Whether nothing overlaps it. What is not settled comes behind all that is.
    pub(super) fn is_free(&self, drawn: &Drawn, is_settled: bool) -> bool {
        drawn.end <= self.start && drawn.start >= self.floor && (is_settled || !self.is_settled)
    }

    /// Begins a pass.
    fn begin(&mut self) {
        self.later.clear();
        (self.start, self.is_settled) = (u64::MAX, false);
    }

    /// Ends it.
    fn end(&mut self) {
        self.settled.extend(self.chunks.drain(..).rev());
        self.floor = self.settled.last().map_or(0, |chunk| chunk.fold.end);
        self.later.reverse();
    }
}

impl Lane {
    /// Whether nothing at this depth overlaps it.
    pub(super) fn is_free(&self, drawn: &Drawn, is_settled: bool) -> bool {
        self.depths.get(usize::from(drawn.depth)).is_none_or(|depth| depth.is_free(drawn, is_settled))
    }

    /// Begins a pass over the slices that are not settled.
    pub(super) fn begin(&mut self) {
        self.depths.iter_mut().for_each(Depth::begin);
    }

    /// Ends it.
    pub(super) fn end(&mut self) {
        self.depths.iter_mut().for_each(Depth::end);
    }

    pub(super) fn depth(&mut self, level: usize) -> &mut Depth {
        if self.depths.len() <= level {
            self.depths.resize_with(level + 1, Depth::default);
        }
        &mut self.depths[level]
    }
}

impl Callers {
    /// One that has called nothing of what is still to come: all of that ended before it began.
    pub(super) fn pop_over(&mut self, drawn: &Drawn) -> Option<Open> {
        // Of those that are told of late, nobody knows what ended before them.
        let is_in_order = drawn.traits & (traits::LATE | traits::LOST) == 0;
        self.0.pop_if(|open| is_in_order && drawn.end <= open.start)
    }

    pub(super) fn pop(&mut self) -> Option<Open> {
        self.0.pop()
    }

    pub(super) fn push(&mut self, open: Open) {
        let place = self.0.iter().rposition(|other| other.start <= open.start).map_or(0, |place| place + 1);
        self.0.insert(place, open);
    }

    /// Who has called it. One that may have ended before, behind a gap, has not: then it was one further out. Those that are
    /// passed over are told.
    pub(super) fn of(&self, drawn: &Drawn, mut pass_over: impl FnMut(&Open)) -> Option<Open> {
        let mut wanted = drawn.caller;
        let mut rest = self.0.as_slice();
        loop {
            let place = rest.iter().rposition(|open| open.id == wanted)?;
            let (open, before) = (rest.get(place)?, rest.get(..place)?);
            if drawn.traits & traits::BEHIND == 0 || !open.is_lost {
                return Some(*open);
            }
            pass_over(open);
            (wanted, rest) = (open.caller, before);
        }
    }
}
