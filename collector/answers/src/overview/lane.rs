//! A lane: slices that nest, found from the end of a row to its beginning.

use super::{
    contexts::NONE,
    gather::Drawn,
    layout::{Chunk, Record},
};

/// A lane.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) depths: Vec<Depth>,
    /// What encloses the slice that was read last, and that itself.
    open: Vec<Open>,
}

/// The slices of one depth, those that come last in time first.
#[derive(Debug)]
pub(super) struct Depth {
    pub(super) waiting: Vec<Record>,
    pub(super) chunks: Vec<Chunk>,
    /// When the latest that was read began.
    pub(super) start: u64,
    /// Where the same was called from the last time, what it was, and the context that is.
    pub(super) known: (u32, u32, u32),
}

/// A slice that may enclose others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) depth: u16,
    pub(super) context: u32,
    /// Its place among the special ones, if it is one.
    pub(super) special: Option<usize>,
}

impl Default for Depth {
    fn default() -> Self {
        Self { waiting: Vec::new(), chunks: Vec::new(), start: u64::MAX, known: (NONE, NONE, NONE) }
    }
}

impl Open {
    /// Whether it has called this: it encloses it, and was below it on the stack.
    fn has_called(&self, drawn: &Drawn) -> bool {
        self.depth < drawn.depth && self.start <= drawn.start && drawn.end <= self.end
    }
}

impl Lane {
    /// How many of those that are open are callers of this, if it can be in this lane: the others have to be over.
    pub(super) fn place(&self, drawn: &Drawn) -> Option<usize> {
        let callers = self.open.iter().rposition(|open| open.has_called(drawn)).map_or(0, |place| place + 1);
        let over = self.open.get(callers..).unwrap_or_default();
        over.iter().all(|open| drawn.end <= open.start).then_some(callers)
    }

    /// Its caller, of so many.
    pub(super) fn caller(&self, callers: usize) -> Option<Open> {
        self.open.get(callers.checked_sub(1)?).copied()
    }

    /// Closes all but the callers, the innermost first.
    pub(super) fn close(&mut self, callers: usize, mut closed: impl FnMut(Open)) {
        while self.open.len() > callers
            && let Some(open) = self.open.pop()
        {
            closed(open);
        }
    }

    pub(super) fn open(&mut self, open: Open) {
        self.open.push(open);
    }

    pub(super) fn depth(&mut self, level: usize) -> &mut Depth {
        if self.depths.len() <= level {
            self.depths.resize_with(level + 1, Depth::default);
        }
        &mut self.depths[level]
    }
}
