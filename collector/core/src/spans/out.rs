//! The way out of the frames, and what they share.

use std::{collections::HashSet, sync::Arc};

use codec::{
    FunctionId, ModuleId, Position, SessionNs, StreamId,
    span::{Reason, Span, SpanFlags, SpanId, SpanStatus},
};

use super::{
    SpanCounts,
    engine::Interned,
    order::{Body, OrderedEvent},
    stack::{Frame, Ran},
};

/// Of how many functions, and modules, it is known that only their entries are watched.
pub(super) const MOST_ENTRY_ONLY: usize = 1 << 20;

/// Where spans go when they are made: to whoever wants them, or to be told in order where others point at them.
#[derive(Debug, Clone)]
pub(super) struct Out {
    pub(super) ready: Vec<Span>,
    /// What has to be put in order.
    pub(super) ordered: Vec<OrderedEvent>,
    pub(super) counts: SpanCounts,
    timeout_ns: u64,
    most: u64,
    entry_only: HashSet<FunctionId>,
    entry_only_modules: HashSet<ModuleId>,
    has_entry_only: bool,
    names: Interned,
    /// Whether nothing more comes: then there is nothing to be given notice of.
    at_end: bool,
    /// The event that is looked at: when it was, and where.
    pub(super) now: SessionNs,
    pub(super) position: Position,
}

impl Out {
    pub(super) fn new(timeout_ns: u64, most: usize) -> Self {
        Self {
            ready: Vec::new(),
            ordered: Vec::new(),
            counts: SpanCounts::default(),
            timeout_ns,
            most: most.max(2) as u64,
            entry_only: HashSet::new(),
            entry_only_modules: HashSet::new(),
            has_entry_only: false,
            names: Interned::default(),
            at_end: false,
            now: SessionNs(0),
            position: Position(0),
        }
    }

    /// Only the entries of this function are watched.
    pub(super) fn add_entry_only(&mut self, function: FunctionId) {
        if self.entry_only.len() < MOST_ENTRY_ONLY {
            self.entry_only.insert(function);
        }
        self.has_entry_only = true;
    }

    /// Only the entries of a module's functions are watched.
    pub(super) fn add_entry_only_module(&mut self, module: ModuleId) {
        if self.entry_only_modules.len() < MOST_ENTRY_ONLY {
            self.entry_only_modules.insert(module);
        }
        self.has_entry_only = true;
    }

    #[inline]
    pub(super) fn is_entry_only(&self, ran: Ran) -> bool {
        self.has_entry_only
            && matches!(ran, Ran::Function(function)
                if self.entry_only.contains(&function) || self.entry_only_modules.contains(&function.module()))
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.counts.open >= self.most
    }

    pub(super) fn set_most(&mut self, most: usize) {
        self.most = most.max(2) as u64;
    }

    /// So many spans are open, or events wait that take as much room.
    #[inline]
    pub(super) fn opened(&mut self, spans: u64) {
        self.counts.open = self.counts.open.saturating_add(spans);
    }

    /// They are not any more.
    #[inline]
    pub(super) fn gone(&mut self, spans: u64) {
        self.counts.open = self.counts.open.saturating_sub(spans);
    }

    /// A frame was left.
    #[inline(always)]
    pub(super) fn closed(&mut self, frame: &Frame, span: Span) {
        let took = span.end.map_or(0, |end| end.0.saturating_sub(span.start.0));
        if frame.linked || took > self.timeout_ns {
            return self.close(frame, span, None);
        }
        // Nearly all are so: nothing but this is done for each.
        self.gone(1);
        self.made(span);
    }

    #[inline(never)]
    fn close(&mut self, frame: &Frame, mut span: Span, left: Option<SessionNs>) {
        self.gone(1);
        if let Some(end) = span.end
            && end.0.saturating_sub(span.start.0) > self.timeout_ns
        {
            span.flags.set(SpanFlags::TIMED_OUT);
            span.more.get_or_insert_default().resumed = Some(end);
        }
        if frame.linked { self.tell(span, left) } else { self.made(span) }
    }

    /// A frame ended at `end` in a tail call, and what took its place has returned at `left`, if that is known.
    pub(super) fn replaced(
        &mut self,
        frame: &Frame,
        stream: StreamId,
        parent: Option<SpanId>,
        end: SessionNs,
        left: Option<SessionNs>,
    ) {
        let mut span = frame.span(stream, parent, Some(end));
        (span.status, span.reason) = (SpanStatus::Unmatched, Some(Reason::TailCall));
        self.close(frame, span, left);
    }

    /// A frame was left, or was not, in a way that tells why.
    pub(super) fn unmatched(
        &mut self,
        frame: &Frame,
        stream: StreamId,
        parent: Option<SpanId>,
        end: Option<SessionNs>,
        reason: Reason,
    ) {
        let mut span = frame.span(stream, parent, end);
        (span.status, span.reason) = (SpanStatus::Unmatched, Some(reason));
        self.closed(frame, span);
    }

    pub(super) fn evicted(&mut self, frame: &Frame, stream: StreamId, parent: Option<SpanId>) {
        self.counts.evicted += 1;
        self.unmatched(frame, stream, parent, None, Reason::Evicted);
    }

    /// The span has to be told in the order of time: others point at it. It is told when it is known, which may be later
    /// than it ended.
    fn tell(&mut self, span: Span, left: Option<SessionNs>) {
        let (at, stream, position) = (self.now, span.stream, self.position);
        let body = Body::Frame(Box::new(span), left);
        self.ordered.push(OrderedEvent { at, stream, position, rank: 0, body });
    }

    /// A span is ready.
    #[inline(always)]
    pub(super) fn made(&mut self, span: Span) {
        self.counts.made += 1;
        self.ready.push(span);
    }

    /// A span is reported to be open: it will come again.
    pub(super) fn notice(&mut self, span: Span) {
        if !self.at_end {
            self.counts.notices += 1;
            self.ready.push(span);
        }
    }

    /// From now on there are no notices. Whatever is told now is told of the end.
    pub(super) fn ends(&mut self, at: SessionNs) {
        self.at_end = true;
        (self.now, self.position) = (at, Position(u64::MAX));
    }

    /// A name that is kept once.
    pub(super) fn name(&mut self, name: &str) -> Arc<str> {
        self.names.name(name)
    }

    pub(super) fn timeout_ns(&self) -> u64 {
        self.timeout_ns
    }
}
