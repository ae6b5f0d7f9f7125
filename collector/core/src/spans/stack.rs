//! Functions that have been entered and not left, on one real stack of a thread.

use codec::{
    FunctionId, SessionNs, StreamId, SubstreamId,
    span::{Span, SpanFlags, SpanId, SpanKind, What},
};

/// A function that has been entered and not left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) id: SpanId,
    /// The function, or the address where it has none.
    pub(super) function: Ran,
    pub(super) start: SessionNs,
    pub(super) substream: SubstreamId,
    pub(super) depth: u32,
    /// Whether other spans point at it, so that its end has to be told in the order of time.
    pub(super) linked: bool,
    /// Whether it was reported open.
    pub(super) reported: bool,
    /// What is known of what it is in: [`SpanFlags::BEHIND_GAP`], [`SpanFlags::NO_CALLER`].
    pub(super) caller: SpanFlags,
    /// When another function took its place by a tail call, if that seems so and the other has returned.
    pub(super) replaced: SessionNs,
}

/// No function has taken the place of a frame.
pub(super) const NOT_REPLACED: SessionNs = SessionNs(u64::MAX);

/// What a frame is of. Small, since there may be millions of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Ran {
    Function(FunctionId),
    Address(u64),
}

impl From<Ran> for What {
    fn from(ran: Ran) -> Self {
        match ran {
            Ran::Function(function) => Self::Function(function),
            Ran::Address(address) => Self::Address(address),
        }
    }
}

impl Frame {
    /// When another took its place, if one did.
    pub(super) fn replaced(&self) -> Option<SessionNs> {
        (self.replaced != NOT_REPLACED).then_some(self.replaced)
    }

    /// The span of this frame, as far as the frame knows it.
    #[inline(always)]
    pub(super) fn span(&self, stream: StreamId, parent: Option<SpanId>, end: Option<SessionNs>) -> Span {
        let (what, substream, depth) = (self.function.into(), self.substream, self.depth);
        Span {
            parent,
            what,
            stream,
            substream,
            depth,
            flags: self.caller,
            is_named: self.linked,
            ..Span::new(self.id, SpanKind::Frame, self.start, end)
        }
    }
}

/// The frames of one real stack, outermost first. Their depths rise, but for frames that were replaced by a tail call:
/// the one that replaces another lies above it at the same depth.
#[derive(Debug, Clone, Default)]
pub(super) struct Stack {
    pub(super) frames: Vec<Frame>,
    /// How many of the outermost were reported open.
    pub(super) reported: usize,
    /// When the latest frame returned that took the place of another by a tail call.
    pub(super) left: Option<SessionNs>,
}

/// For how many frames a stack keeps its room when they are gone: threads are many, and few are deep for long.
const ROOM: usize = 4096;

impl Stack {
    /// Gives room back that is not used any more.
    #[inline]
    pub(super) fn trim(&mut self) {
        if self.frames.capacity() > ROOM && self.frames.len() < self.frames.capacity() / 8 {
            self.frames.shrink_to(self.frames.capacity() / 4);
        }
    }

    /// The depth of the innermost frame.
    #[inline]
    pub(super) fn top_depth(&self) -> Option<u32> {
        self.frames.last().map(|frame| frame.depth)
    }

    /// The frame that encloses the one at `index`: one that it replaced by a tail call does not.
    pub(super) fn parent_of(&self, index: usize) -> Option<SpanId> {
        let depth = self.frames.get(index)?.depth;
        self.frames.get(..index)?.iter().rev().find(|frame| frame.depth < depth).map(|frame| frame.id)
    }

    /// The innermost frame that a function at this depth, entered at this time, can be in.
    pub(super) fn enclosing(&self, depth: u32, start: SessionNs) -> Option<&Frame> {
        // Depths and times rise: a search through all of a deep stack, for each of many returns, would take too long.
        let behind = self.frames.partition_point(|frame| frame.depth < depth && frame.start <= start);
        self.frames.get(behind.checked_sub(1)?)
    }

    /// Whether what is called next, from the innermost frame, is at this depth.
    #[inline]
    pub(super) fn goes_on_at(&self, depth: u32) -> bool {
        self.frames.last().map_or(0, |top| top.depth.saturating_add(1)) == depth
    }

    /// The place of the frame that this return is of.
    pub(super) fn find(&self, depth: u32, function: Ran, start: SessionNs) -> Option<usize> {
        let is = |frame: &Frame| frame.depth == depth && frame.start == start && frame.function == function;
        // Depths rise, so the search can end below the one that is looked for.
        let from = self.frames.partition_point(|frame| frame.depth < depth);
        let behind = self.frames.get(from..)?;
        behind.iter().take_while(|frame| frame.depth == depth).position(is).map(|place| from + place)
    }

    /// The parent of what goes on top of the frames, at this depth.
    #[inline]
    pub(super) fn parent_for(&self, depth: u32) -> Option<SpanId> {
        self.caller_for(depth).map(|frame| frame.id)
    }

    /// The innermost frame that what goes on top of the frames, at this depth, is in.
    #[inline]
    pub(super) fn caller_for(&self, depth: u32) -> Option<&Frame> {
        match self.frames.last() {
            Some(top) if top.depth < depth => Some(top),
            None => None,
            Some(_) => self.frames.iter().rev().find(|frame| frame.depth < depth),
        }
    }
}
