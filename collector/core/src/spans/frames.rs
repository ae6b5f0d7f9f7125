//! Frames: what one thread has entered and left.
//!
//! A call goes on top of the thread's stack; a return takes off the frame of the same function, depth and start. What
//! lies in between has no event of its own and is told from the depths:
//!
//! - a call at the depth of the innermost frame: that one was replaced by a tail call, or only its entry is watched, or
//!   the thread runs on another stack: which of these, what comes behind it tells;
//! - a call that is less deep than frames that should still be open, or deeper than can be: the thread runs on another of
//!   its stacks, unless events are missing, which then were the returns of those frames;
//! - a return of something that is not open: its call is missing.

mod context;
mod rest;

pub(super) use context::FrameContext;

use codec::{
    EventKind, Position, SessionNs, StreamId,
    profile::FunctionEvent,
    span::{Reason, SpanFlags, SpanId, SpanStatus},
};

use super::{
    leaving,
    out::Out,
    stack::{Frame, NOT_REPLACED, Ran, Stack},
};
use crate::Catalog;

/// How many frames may wait below the one that replaced them: a loop of tail calls must not grow without end.
const MOST_REPLACED: usize = 64;

/// How many stacks a thread may be on. The agent follows fewer.
const MOST_STACKS: usize = 32;

/// The stacks of one thread.
#[derive(Debug, Clone)]
pub(super) struct Frames {
    stream: StreamId,
    stacks: Vec<Stack>,
    current: usize,
    /// What was entered before this lies before the latest gap.
    gap: Position,
    /// Whether nothing has come behind that gap.
    ends_in_gap: bool,
    /// Why frames are being left just now.
    leaving: Option<Reason>,
    /// A function of which only the entry is watched, and what it is in, if nothing else has come behind it.
    probe: Option<(Frame, Option<SpanId>)>,
}

impl Frames {
    pub(super) fn new(stream: StreamId) -> Self {
        let stacks = vec![Stack::default()];
        Self { stream, stacks, current: 0, gap: Position(0), ends_in_gap: false, leaving: None, probe: None }
    }

    #[inline]
    fn stack(&mut self) -> &mut Stack {
        // There is always one, and the current one is one of them.
        if self.current >= self.stacks.len() {
            self.current = self.stacks.len();
            self.stacks.push(Stack::default());
        }
        let current = self.current;
        #[allow(clippy::indexing_slicing)] // made above
        &mut self.stacks[current]
    }

    /// What is to be said of what a frame at this depth is in. It is called by what is one less deep, and by nothing else.
    fn caller(&self, parent: Option<&Frame>, depth: u32) -> SpanFlags {
        let is_behind = parent.is_some_and(|parent| parent.id.position() < self.gap);
        let is_called = parent.map_or(0, |parent| parent.depth.saturating_add(1)) == depth;
        SpanFlags::default().with(SpanFlags::BEHIND_GAP, is_behind).with(SpanFlags::NO_CALLER, !is_called)
    }

    #[inline]
    pub(super) fn call(&mut self, position: Position, event: &FunctionEvent<'_>, out: &mut Out) -> SpanId {
        self.ends_in_gap = false;
        self.leaving = None;
        let mut frame = Frame {
            id: SpanId::new(self.stream, position),
            function: ran(event),
            start: event.stamp.start,
            substream: event.stamp.substream,
            depth: event.depth,
            linked: false,
            reported: false,
            caller: SpanFlags::default(),
            replaced: NOT_REPLACED,
        };
        if self.probe.is_some() {
            self.end_probe(out);
        }
        if out.is_entry_only(frame.function) {
            self.begin_probe(frame, out);
            return frame.id;
        }
        let mut is_plain = self.stack().goes_on_at(event.depth);
        if !is_plain {
            self.make_way(&frame, out);
        }
        if out.is_full() {
            self.evict(out);
            is_plain = false;
        }
        out.opened(1);
        if !is_plain || self.gap > Position(0) {
            let caller = self.stacks.get(self.current).and_then(|stack| stack.caller_for(event.depth));
            frame.caller = self.caller(caller, event.depth);
        }
        self.stack().frames.push(frame);
        frame.id
    }

    /// A function is entered of which nothing else is seen: what it calls is as deep as itself.
    #[inline(never)]
    fn begin_probe(&mut self, mut frame: Frame, out: &mut Out) {
        let depth = frame.depth;
        let is_here = |stack: &Stack| stack.goes_on_at(depth) || stack.top_depth() == Some(depth);
        if !is_here(self.stack())
            && let Some(place) = self.stacks.iter().rposition(|stack| stack.goes_on_at(depth))
        {
            self.current = place;
        }
        let is_other = self.stack().top_depth().is_some_and(|top| top > depth);
        let parent = self.stack().parent_for(depth).filter(|_| !is_other || self.gap > Position(0));
        if !is_other {
            self.replaced_by(&frame);
        }
        out.opened(1);
        let caller = self.stacks.get(self.current).and_then(|stack| stack.caller_for(depth));
        frame.caller = self.caller(caller.filter(|caller| Some(caller.id) == parent), depth);
        self.probe = Some((frame, parent));
    }

    #[inline(never)]
    fn end_probe(&mut self, out: &mut Out) {
        if let Some((frame, parent)) = self.probe.take() {
            out.unmatched(&frame, self.stream, parent, None, Reason::EntryOnly);
        }
    }

    /// A call comes where frames are open that it cannot be in, or from a frame that is not there: decides what became
    /// of them.
    #[inline(never)]
    fn make_way(&mut self, frame: &Frame, out: &mut Out) {
        let depth = frame.depth;
        self.close_lost(depth, out);
        self.close_finished(depth, out);
        let stack = self.stack();
        match stack.top_depth() {
            Some(top) if top == depth => {
                let from = stack.frames.partition_point(|frame| frame.depth < depth);
                if stack.frames.len().saturating_sub(from) >= MOST_REPLACED {
                    let replaced: Vec<Frame> = stack.frames.drain(from..).collect();
                    let parent = stack.frames.last().map(|frame| frame.id);
                    self.replaced(&replaced, frame.start, parent, out);
                }
            }
            _ if stack.goes_on_at(depth) => {}
            top => {
                let fits = |(index, stack): &(usize, &Stack)| *index != self.current && stack.goes_on_at(depth);
                match self.stacks.iter().enumerate().rev().find(fits) {
                    Some((index, _)) => self.current = index,
                    None if top.is_some_and(|top| top > depth) => self.new_stack(out),
                    // Nothing is left here: it goes on on another stack, in the place of what is on top there.
                    None if top.is_none()
                        && let Some(other) = self.stacks.iter().rposition(|other| other.top_depth() == Some(depth)) =>
                    {
                        self.current = other;
                        self.make_way(frame, out);
                    }
                    // Whatever lies between is not in the trace.
                    None => {}
                }
            }
        }
    }

    /// Closes frames of the current stack, at this depth and deeper, that have ended without saying so: what has no
    /// returns, and what another took the place of.
    fn close_finished(&mut self, depth: u32, out: &mut Out) {
        while let Some(top) = self.stack().frames.last().copied()
            && top.depth >= depth
        {
            if out.is_entry_only(top.function) {
                self.close_top(None, Reason::EntryOnly, out);
                self.replaced_by(&top);
            } else if let Some(at) = top.replaced() {
                let stream = self.stream;
                let stack = self.stack();
                stack.frames.pop();
                out.replaced(&top, stream, stack.parent_for(top.depth), at, stack.left);
            } else {
                return;
            }
        }
    }

    /// A frame is gone: those that lie below it at the same depth were replaced by it, or so it seems.
    fn replaced_by(&mut self, frame: &Frame) {
        let mut next = frame.start;
        for before in self.stack().frames.iter_mut().rev().take_while(|before| before.depth == frame.depth) {
            if before.replaced == NOT_REPLACED {
                before.replaced = next;
            }
            next = before.start;
        }
    }

    /// The thread goes on on a stack that it was not on before.
    fn new_stack(&mut self, out: &mut Out) {
        if let Some(empty) = self.stacks.iter().position(|stack| stack.frames.is_empty()) {
            self.current = empty;
            return;
        }
        if self.stacks.len() >= MOST_STACKS {
            let age = |stack: &Stack| stack.frames.last().map(|top| top.start);
            let oldest = self.stacks.iter().enumerate().min_by_key(|(_, stack)| age(stack)).map(|(index, _)| index);
            self.current = oldest.unwrap_or(0);
            let count = self.stack().frames.len();
            self.evict_from(self.current, count, out);
            return;
        }
        self.current = self.stacks.len();
    }

    /// Closes frames that ended in tail calls: each when the next one at its depth was entered.
    fn replaced(&self, frames: &[Frame], last: SessionNs, parent: Option<SpanId>, out: &mut Out) {
        for (index, frame) in frames.iter().enumerate() {
            let end = frames.get(index + 1).map_or(last, |next| next.start);
            out.replaced(frame, self.stream, parent, end, None);
        }
    }

    /// Closes the frames of the current stack, at this depth and deeper, whose returns are missing.
    fn close_lost(&mut self, depth: u32, out: &mut Out) {
        let gap = self.gap;
        while let Some(top) = self.stack().frames.last().copied()
            && top.depth >= depth
            && top.id.position() < gap
        {
            self.close_top(None, Reason::Gap, out);
        }
    }

    fn close_top(&mut self, end: Option<SessionNs>, reason: Reason, out: &mut Out) {
        let stream = self.stream;
        let stack = self.stack();
        let Some(frame) = stack.frames.pop() else { return };
        let parent = stack.parent_for(frame.depth);
        out.unmatched(&frame, stream, parent, end, reason);
    }

    #[inline]
    pub(super) fn left(&mut self, position: Position, event: &FunctionEvent<'_>, names: &Catalog, out: &mut Out) {
        let (function, depth, start) = (ran(event), event.depth, event.stamp.start);
        self.ends_in_gap = false;
        if self.probe.is_some() {
            if event.kind == EventKind::Exception {
                self.why_left(names);
            }
            self.end_probe(out);
        }
        let gap = self.gap;
        let stream = self.stream;
        let returned = event.kind == EventKind::Return;
        let stack = self.stack();
        if returned
            && let [.., below, top] = stack.frames.as_slice()
            && top.depth == depth
            && top.start == start
            && top.function == function
            && below.depth < depth
        {
            let (mut frame, parent) = (*top, below.id);
            stack.frames.pop();
            stack.trim();
            self.leaving = None;
            frame.caller = frame.caller.with(SpanFlags::ACROSS_GAP, frame.id.position() < gap);
            return out.closed(&frame, frame.span(stream, Some(parent), Some(event.stamp.end)));
        }
        self.left_slowly(position, event, names, out);
    }

    #[inline(never)]
    fn left_slowly(&mut self, position: Position, event: &FunctionEvent<'_>, names: &Catalog, out: &mut Out) {
        let function = ran(event);
        // Whoever leaves it may do so from another stack: that is the one that the thread is on until now.
        let reason = match event.kind {
            EventKind::Exception => Some(self.why_left(names)),
            _ => {
                self.leaving = None;
                None
            }
        };
        let Some(index) = self.find(function, event) else { return self.lone(position, event, out) };
        // Or it was left before, and is told only now that the thread is back on its stack.
        let reason = reason.map(|reason| match reason {
            Reason::Unwind => {
                self.leaving = None;
                self.why_left(names)
            }
            known => known,
        });
        let (stream, gap) = (self.stream, self.gap);
        let stack = self.stack();
        let left = std::mem::replace(&mut stack.left, Some(event.stamp.end).filter(|_| reason.is_none()));
        // Above it lie those that have no return of their own.
        let above: Vec<Frame> = stack.frames.drain(index + 1..).collect();
        let parent = stack.parent_of(index);
        let Some(frame) = stack.frames.pop() else { return };
        stack.trim();
        for (place, inner) in above.iter().enumerate().rev() {
            let next = above.get(place.saturating_add(1)).filter(|next| next.depth == inner.depth);
            let replaced = next.map(|next| next.start).or(inner.replaced());
            let outside = above.get(..place).unwrap_or_default();
            let around = outside.iter().rev().find(|outer| outer.depth < inner.depth).unwrap_or(&frame);
            let why = match replaced {
                _ if out.is_entry_only(inner.function) => Reason::EntryOnly,
                Some(at) => {
                    let left = left.filter(|_| inner.replaced().is_some());
                    out.replaced(inner, stream, Some(around.id), at, left);
                    continue;
                }
                None if inner.id.position() < gap || frame.id.position() < gap => Reason::Gap,
                None => reason.unwrap_or(Reason::Unwind),
            };
            out.unmatched(inner, stream, Some(around.id), None, why);
        }
        let mut span = frame.span(stream, parent, Some(event.stamp.end));
        span.flags = span.flags.with(SpanFlags::ACROSS_GAP, frame.id.position() < gap);
        if let Some(reason) = reason {
            (span.status, span.reason) = (SpanStatus::Unmatched, Some(reason));
        }
        out.closed(&frame, span);
        self.replaced_by(&frame);
    }

    /// Where the frame is that an event is the end of. Turns to the stack it is on.
    fn find(&mut self, function: Ran, event: &FunctionEvent<'_>) -> Option<usize> {
        let (depth, start, gap) = (event.depth, event.stamp.start, self.gap);
        if let Some(index) = self.stack().find(depth, function, start) {
            return Some(index);
        }
        let place = |(stack, other): (usize, &Stack)| other.find(depth, function, start).map(|index| (stack, index));
        let Some((stack, index)) = self.stacks.iter().enumerate().rev().find_map(place) else {
            // A sender that does not know when the call was says something else; then function and depth decide, unless
            // events are missing since.
            let like = |frame: &Frame| frame.depth == depth && frame.function == function && frame.id.position() >= gap;
            let frames = &self.stack().frames;
            return frames.len().checked_sub(1).filter(|_| frames.last().is_some_and(like));
        };
        // The stack that it comes from is gone if nothing is open there.
        self.current = stack;
        self.forget_empty();
        Some(index)
    }

    /// Forgets stacks that nothing is open on, but for the current one.
    fn forget_empty(&mut self) {
        let mut current = self.current;
        let mut index = 0;
        let keep = self.current;
        self.stacks.retain(|stack| {
            let kept = index == keep || !stack.frames.is_empty();
            if !kept && index < keep {
                current = current.saturating_sub(1);
            }
            index += 1;
            kept
        });
        self.current = current;
    }

    /// Why frames are left. All that follow at once are left for the same reason as the first.
    pub(super) fn why_left(&mut self, names: &Catalog) -> Reason {
        if let Some(reason) = self.leaving {
            return reason;
        }
        let probe = self.probe.map(|(frame, _)| frame.function);
        let reason = leaving::reason(&self.stack().frames, probe, names);
        self.leaving = Some(reason);
        reason
    }

    /// An end whose start was not seen.
    fn lone(&mut self, position: Position, event: &FunctionEvent<'_>, out: &mut Out) {
        let start = event.stamp.start;
        self.close_lost(event.depth, out);
        let frame = Frame {
            id: SpanId::new(self.stream, position),
            function: ran(event),
            start,
            substream: event.stamp.substream,
            depth: event.depth,
            linked: false,
            reported: false,
            caller: SpanFlags::default(),
            replaced: NOT_REPLACED,
        };
        let enclosing = self.stack().enclosing(event.depth, start).copied();
        let mut span = frame.span(self.stream, enclosing.map(|frame| frame.id), Some(event.stamp.end));
        span.status = SpanStatus::Unmatched;
        span.flags = self.caller(enclosing.as_ref(), event.depth).with(SpanFlags::NO_CALL, true);
        span.reason = match event.kind {
            EventKind::Exception => self.leaving,
            _ if self.gap > Position(0) => Some(Reason::Gap),
            _ => None,
        };
        out.made(span);
    }

    /// Events are missing: those of the frames that are open may be among them.
    pub(super) fn gap(&mut self, behind: Position) {
        self.gap = behind;
        self.ends_in_gap = true;
        self.leaving = None;
    }
}

#[inline]
fn ran(event: &FunctionEvent<'_>) -> Ran {
    match event.function {
        Some(function) => Ran::Function(function),
        None => Ran::Address(event.ip.unwrap_or(0)),
    }
}
