//! The part of [`CallTree`] that leaves out calls that are not asked for.

use codec::span::{Span, SpanFlags, SpanKind};

use super::CallTree;

impl CallTree {
    /// Passes over a span that is not to be shown: its time is not its caller's own. What it called and is to be shown was
    /// called by something that is missing.
    pub fn pass(&mut self, span: &Span) {
        self.open.close(span);
        let mut waiting = self.waiting.remove(&span.id).unwrap_or_default();
        if !matches!(span.kind, SpanKind::Frame | SpanKind::Event) {
            self.promote(waiting, None);
            return;
        }
        let called_ns = waiting.called_ns.saturating_add(std::mem::take(&mut waiting.behind_ns));
        let total_ns = match span.end {
            Some(_) if span.flags.has(SpanFlags::NO_CALL) => 0,
            Some(end) => end.0.saturating_sub(span.start.0),
            None => called_ns,
        };
        let behind = std::mem::take(&mut waiting.behind);
        let mut ns = total_ns;
        for (owner, node) in waiting.nodes.into_iter().chain(behind) {
            let above = self.above(span, owner, std::mem::take(&mut ns));
            let missing = self.arena.missing(above);
            self.arena.merge(missing, node);
        }
        if ns > 0 && span.parent.is_some() {
            let owner = self.owner(span);
            self.above(span, owner, ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use codec::{
        FunctionId, Position, SessionNs, StreamId,
        span::{SpanId, What},
    };

    use super::*;
    use crate::tree::Grouping;

    fn frame(id: u64, parent: Option<u64>, start: u64, end: u64) -> Span {
        let number = |position: u64| SpanId::new(StreamId(0), Position(position));
        let (what, parent) = (What::Function(FunctionId(id)), parent.map(number));
        Span { parent, what, ..Span::new(number(id), SpanKind::Frame, SessionNs(start), Some(SessionNs(end))) }
    }

    #[test]
    fn what_is_passed_over_is_nobodys_own_time() {
        for grouping in [Grouping::Threads, Grouping::Causes] {
            let mut tree = CallTree::new(grouping);
            tree.pass(&frame(3, Some(0), 1, 5));
            tree.add(&frame(2, Some(1), 20, 60));
            tree.pass(&frame(1, Some(0), 10, 90));
            tree.add(&frame(0, None, 0, 100));
            tree.finish();
            let (_, root) = tree.roots().next().expect("a thread");
            let outer = root.children();
            assert_eq!(outer.len(), 1);
            assert_eq!((outer[0].total_ns(), outer[0].self_ns()), (100, 16));
            let below = outer[0].children();
            assert_eq!((below.len(), below[0].kind()), (1, SpanKind::Gap), "who called it is not shown");
            assert_eq!(below[0].children()[0].what(), &What::Function(FunctionId(2)));
        }
    }
}
