//! Frames: what one thread has entered and left.
//!
//! A call goes on top of the thread's stack; a return takes off the frame of the same function, depth and start. What
//! lies in between has no event of its own and is told from the depths:
//!
//! - a call at the depth of the innermost frame: that one was replaced by a tail call, or only its entry is watched;
//! - a call that is less deep than frames that should still be open: the thread runs on another of its stacks, unless
//!   events are missing, which then were the returns of those frames;
//! - a return of something that is not open: its call is missing.

use codec::{
    EventKind, Position, SessionNs, StreamId,
    profile::FunctionEvent,
    span::{Reason, Span, SpanFlags, SpanId, SpanStatus},
};

use super::{
    Names, leaving,
    out::Out,
    stack::{Frame, Ran, Stack},
};

/// How many frames may wait below the one that replaced them: a loop of tail calls must not grow without end.
const MOST_REPLACED: usize = 64;

/// The stacks of one thread.
#[derive(Debug)]
pub(super) struct Frames {
    stream: StreamId,
    stacks: Vec<Stack>,
    current: usize,
    /// What was entered before this lies before the latest gap.
    gap: u64,
    /// Whether nothing has come behind that gap.
    ends_in_gap: bool,
    /// Why frames are being left just now.
    leaving: Option<Reason>,
}

/// The frames around an event that is no function's.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Around {
    /// The frame that the event is about, which was entered at its very time.
    pub(super) own: Option<(SpanId, Ran)>,
    /// The frame outside that, or the innermost.
    pub(super) caller: Option<SpanId>,
}

impl Frames {
    pub(super) fn new(stream: StreamId) -> Self {
        let stacks = vec![Stack::default()];
        Self { stream, stacks, current: 0, gap: 0, ends_in_gap: false, leaving: None }
    }

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

    #[inline]
    pub(super) fn call(&mut self, position: Position, event: &FunctionEvent<'_>, out: &mut Out) -> SpanId {
        self.ends_in_gap = false;
        self.leaving = None;
        let frame = Frame {
            id: SpanId::new(self.stream, position),
            function: ran(event),
            start: event.stamp.start,
            substream: event.stamp.substream,
            depth: event.depth,
            linked: false,
            reported: false,
        };
        if self.stack().top_depth().is_some_and(|top| top >= event.depth) {
            self.make_way(&frame, out);
        }
        if out.is_full() {
            self.evict(out);
        }
        out.opened();
        self.stack().frames.push(frame);
        frame.id
    }

    /// A call comes where frames are open: decides what became of them.
    #[inline(never)]
    fn make_way(&mut self, frame: &Frame, out: &mut Out) {
        let depth = frame.depth;
        self.close_lost(depth, out);
        // What has no returns is gone when something else is at its depth.
        while let Some(top) = self.stack().frames.last().copied()
            && top.depth >= depth
            && out.is_entry_only(top.function)
        {
            self.close_top(None, Reason::EntryOnly, out);
        }
        match self.stack().top_depth() {
            Some(top) if top > depth => self.switch(depth),
            Some(top) if top == depth => {
                let stack = self.stack();
                let from = stack.frames.partition_point(|frame| frame.depth < depth);
                if stack.frames.len() - from >= MOST_REPLACED {
                    let replaced: Vec<Frame> = stack.frames.drain(from..).collect();
                    let parent = stack.frames.last().map(|frame| frame.id);
                    self.replaced(&replaced, Some(frame.start), parent, out);
                }
            }
            _ => {}
        }
    }

    /// Closes frames that ended in tail calls: each when the next one at its depth was entered.
    fn replaced(&self, frames: &[Frame], last: Option<SessionNs>, parent: Option<SpanId>, out: &mut Out) {
        for (index, frame) in frames.iter().enumerate() {
            let end = frames.get(index + 1).map(|next| next.start).or(last);
            out.unmatched(frame, self.stream, parent, end, Reason::TailCall);
        }
    }

    /// Closes the frames of the current stack, at this depth and deeper, whose returns are missing.
    fn close_lost(&mut self, depth: u32, out: &mut Out) {
        let gap = self.gap;
        while let Some(top) = self.stack().frames.last().copied()
            && top.depth >= depth
            && top.id.number() < gap
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

    /// The thread goes on on another stack, where something at this depth can be called.
    fn switch(&mut self, depth: u32) {
        let fits = |stack: &Stack| match stack.top_depth() {
            Some(top) => top.checked_add(1) == Some(depth),
            None => depth == 0,
        };
        let found = self.stacks.iter().enumerate().rev().find(|(index, stack)| *index != self.current && fits(stack));
        self.current = found.map_or(self.stacks.len(), |(index, _)| index);
    }

    #[inline]
    pub(super) fn left(&mut self, position: Position, event: &FunctionEvent<'_>, names: &dyn Names, out: &mut Out) {
        let (function, depth, start) = (ran(event), event.depth, event.stamp.start);
        self.ends_in_gap = false;
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
            let (frame, parent) = (*top, below.id);
            stack.frames.pop();
            self.leaving = None;
            let mut span = frame.span(stream, Some(parent), Some(event.stamp.end));
            span.flags = SpanFlags::default().with(SpanFlags::ACROSS_GAP, frame.id.number() < gap);
            return out.closed(&frame, span);
        }
        self.left_slowly(position, event, names, out);
    }

    #[inline(never)]
    fn left_slowly(&mut self, position: Position, event: &FunctionEvent<'_>, names: &dyn Names, out: &mut Out) {
        let function = ran(event);
        let Some(index) = self.find(function, event) else { return self.lone(position, event, names, out) };
        let reason = match event.kind {
            EventKind::Exception => Some(self.why_left(names)),
            _ => {
                self.leaving = None;
                None
            }
        };
        let (stream, gap) = (self.stream, self.gap);
        let stack = self.stack();
        // Above it lie those that have no return of their own.
        let above: Vec<Frame> = stack.frames.drain(index + 1..).collect();
        let parent = stack.parent_of(index);
        let Some(frame) = stack.frames.pop() else { return };
        let depth = frame.depth;
        let from = stack.frames.partition_point(|frame| frame.depth < depth);
        let replaced: Vec<Frame> = stack.frames.drain(from..).collect();
        for (place, inner) in above.iter().enumerate().rev() {
            let why = match () {
                () if out.is_entry_only(inner.function) => Reason::EntryOnly,
                () if inner.id.number() < gap || frame.id.number() < gap => Reason::Gap,
                () => reason.unwrap_or(Reason::Unwind),
            };
            let outside = above.get(..place).unwrap_or_default();
            let around = outside.iter().rev().find(|outer| outer.depth < inner.depth).unwrap_or(&frame);
            out.unmatched(inner, stream, Some(around.id), None, why);
        }
        let mut span = frame.span(stream, parent, Some(event.stamp.end));
        span.flags = SpanFlags::default().with(SpanFlags::ACROSS_GAP, frame.id.number() < gap);
        if let Some(reason) = reason {
            (span.status, span.reason) = (SpanStatus::Unmatched, Some(reason));
        }
        out.closed(&frame, span);
        self.replaced(&replaced, Some(frame.start), parent, out);
    }

    /// Where the frame is that an event is the end of. Turns to the stack it is on.
    fn find(&mut self, function: Ran, event: &FunctionEvent<'_>) -> Option<usize> {
        let (depth, start, gap) = (event.depth, event.stamp.start, self.gap);
        let exact = self.stack().find(depth, function, start);
        // A sender that does not know when the call was says something else; then function and depth decide, unless
        // events are missing since.
        let like = |frame: &Frame| frame.depth == depth && frame.function == function && frame.id.number() >= gap;
        let frames = &self.stack().frames;
        let top = frames.len().checked_sub(1).filter(|_| frames.last().is_some_and(like));
        if let Some(index) = exact.or(top) {
            return Some(index);
        }
        let place = |(stack, other): (usize, &Stack)| other.find(depth, function, start).map(|index| (stack, index));
        let (stack, index) = self.stacks.iter().enumerate().rev().find_map(place)?;
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
    fn why_left(&mut self, names: &dyn Names) -> Reason {
        if let Some(reason) = self.leaving {
            return reason;
        }
        let reason = leaving::reason(&self.stack().frames, names);
        self.leaving = Some(reason);
        reason
    }

    /// An end whose start was not seen.
    fn lone(&mut self, position: Position, event: &FunctionEvent<'_>, names: &dyn Names, out: &mut Out) {
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
        };
        let parent = self.stack().enclosing(event.depth, start);
        let mut span = frame.span(self.stream, parent, Some(event.stamp.end));
        span.status = SpanStatus::Unmatched;
        span.flags = SpanFlags::NO_CALL;
        span.reason = match event.kind {
            EventKind::Exception => Some(self.why_left(names)),
            _ if self.gap > 0 => Some(Reason::Gap),
            _ => None,
        };
        out.made(span);
    }

    /// Events are missing: those of the frames that are open may be among them.
    pub(super) fn gap(&mut self, behind: Position) {
        self.gap = SpanId::new(self.stream, behind).number();
        self.ends_in_gap = true;
        self.leaving = None;
    }

    /// The frames around an event of a runtime that happened at this time, or that is about a frame entered then.
    /// Those are linked: their ends will be told in order.
    pub(super) fn around(&mut self, entered: SessionNs) -> Around {
        let stack = self.stack();
        let is_own = stack.frames.last().is_some_and(|top| top.start == entered);
        let own = stack.frames.last_mut().filter(|_| is_own).map(|top| {
            top.linked = true;
            (top.id, top.function)
        });
        let below = stack.frames.len().saturating_sub(if is_own { 2 } else { 1 });
        let caller = stack.frames.get_mut(below).filter(|frame| own.is_none_or(|own| own.0 != frame.id));
        let caller = caller.map(|frame| {
            frame.linked = true;
            frame.id
        });
        Around { own, caller }
    }

    /// Reports frames that were entered before `since` and are open.
    pub(super) fn report_open(&mut self, since: SessionNs, out: &mut Out) {
        let stream = self.stream;
        for stack in &mut self.stacks {
            stack.reported = stack.reported.min(stack.frames.len());
            while let Some(frame) = stack.frames.get_mut(stack.reported)
                && frame.start < since
            {
                let told = frame.reported;
                frame.reported = true;
                let frame = *frame;
                if !told {
                    let parent = stack.parent_of(stack.reported);
                    let span = Span { status: SpanStatus::Open, ..frame.span(stream, parent, None) };
                    out.notice(span);
                }
                stack.reported += 1;
            }
        }
    }

    /// Closes the outer half of the current stack so that memory stays bounded.
    #[inline(never)]
    fn evict(&mut self, out: &mut Out) {
        let stream = self.stream;
        let stack = self.stack();
        let count = stack.frames.len().div_ceil(2);
        let mut parent = None;
        for frame in stack.frames.drain(..count) {
            out.evicted(&frame, stream, parent);
            parent = Some(frame.id);
        }
        stack.reported = stack.reported.saturating_sub(count);
    }

    /// Nothing more comes. `why` is told of all that is open, with its end if it has one.
    pub(super) fn finish(&mut self, why: impl Fn(&Frame) -> (SpanStatus, Option<Reason>), out: &mut Out) {
        let (stream, gap, ends_in_gap) = (self.stream, self.gap, self.ends_in_gap);
        for stack in std::mem::take(&mut self.stacks).into_iter().rev() {
            for index in (0..stack.frames.len()).rev() {
                let Some(frame) = stack.frames.get(index) else { continue };
                let parent = stack.parent_of(index);
                let replaced = stack.frames.get(index + 1).filter(|next| next.depth == frame.depth);
                if let Some(next) = replaced {
                    out.unmatched(frame, stream, parent, Some(next.start), Reason::TailCall);
                    continue;
                }
                let mut span = frame.span(stream, parent, None);
                (span.status, span.reason) = match () {
                    () if out.is_entry_only(frame.function) => (SpanStatus::Unmatched, Some(Reason::EntryOnly)),
                    () if ends_in_gap || frame.id.number() < gap => (SpanStatus::Unmatched, Some(Reason::Gap)),
                    () => why(frame),
                };
                out.closed(frame, span);
            }
        }
    }
}

#[inline]
fn ran(event: &FunctionEvent<'_>) -> Ran {
    match event.function {
        Some(function) => Ran::Function(function),
        None => Ran::Address(event.ip.unwrap_or(0)),
    }
}
