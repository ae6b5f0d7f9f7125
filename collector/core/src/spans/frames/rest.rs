//! Frames that are open for long, or for good.

use codec::{
    SessionNs,
    span::{Reason, Span, SpanId, SpanStatus},
};

use super::{
    super::{out::Out, stack::Frame},
    Frames,
};

impl Frames {
    /// Reports frames that were entered before `since` and are open.
    pub(in crate::spans) fn report_open(&mut self, since: SessionNs, out: &mut Out) {
        let stream = self.stream;
        for stack in &mut self.stacks {
            stack.reported = stack.reported.min(stack.frames.len());
            // Some of them may have gone since, and others come.
            while let Some(last) = stack.reported.checked_sub(1)
                && stack.frames.get(last).is_some_and(|frame| !frame.reported)
            {
                stack.reported = last;
            }
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

    /// Closes the outer half of the largest stack so that memory stays bounded.
    #[inline(never)]
    pub(super) fn evict(&mut self, out: &mut Out) {
        let largest = self.stacks.iter().enumerate().max_by_key(|(_, stack)| stack.frames.len());
        let Some((index, count)) = largest.map(|(index, stack)| (index, stack.frames.len().div_ceil(2))) else {
            return;
        };
        self.evict_from(index, count, out);
    }

    pub(super) fn evict_from(&mut self, index: usize, count: usize, out: &mut Out) {
        let stream = self.stream;
        let Some(stack) = self.stacks.get_mut(index) else { return };
        let mut outside: Vec<(u32, SpanId)> = Vec::new();
        for frame in stack.frames.drain(..count.min(stack.frames.len())) {
            while outside.pop_if(|(depth, _)| *depth >= frame.depth).is_some() {}
            out.evicted(&frame, stream, outside.last().map(|(_, id)| *id));
            outside.push((frame.depth, frame.id));
        }
        stack.reported = stack.reported.saturating_sub(count);
    }

    /// Nothing more comes. `why` is told of all that is open, with its end if it has one.
    pub(in crate::spans) fn finish(&mut self, why: impl Fn(&Frame) -> (SpanStatus, Option<Reason>), out: &mut Out) {
        self.end_probe(out);
        let (stream, gap, ends_in_gap) = (self.stream, self.gap, self.ends_in_gap);
        for stack in std::mem::take(&mut self.stacks).into_iter().rev() {
            for index in (0..stack.frames.len()).rev() {
                let Some(frame) = stack.frames.get(index) else { continue };
                let parent = stack.parent_of(index);
                let next = stack.frames.get(index.saturating_add(1)).filter(|next| next.depth == frame.depth);
                let replaced = next.map(|next| next.start).or(frame.replaced());
                if let Some(at) = replaced.filter(|_| !out.is_entry_only(frame.function)) {
                    out.replaced(frame, stream, parent, at, stack.left.filter(|_| frame.replaced().is_some()));
                    continue;
                }
                let mut span = frame.span(stream, parent, None);
                (span.status, span.reason) = match () {
                    () if out.is_entry_only(frame.function) => (SpanStatus::Unmatched, Some(Reason::EntryOnly)),
                    () if ends_in_gap || frame.id.position() < gap => (SpanStatus::Unmatched, Some(Reason::Gap)),
                    () => why(frame),
                };
                out.closed(frame, span);
            }
        }
    }
}
