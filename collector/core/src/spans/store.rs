//! Logical spans that are open, and what they have in common.

use std::collections::{BTreeSet, HashMap, HashSet};

use codec::{
    SessionNs, StreamId,
    span::{More, Reason, Span, SpanFlags, SpanId, SpanKind, SpanStatus},
};

use super::out::Out;

/// All logical spans that are open.
#[derive(Debug, Clone, Default)]
pub(super) struct Store {
    spans: HashMap<SpanId, Span>,
    /// The same, by the time they were made.
    by_age: BTreeSet<(SessionNs, SpanId)>,
    /// Those that were made before this were reported open.
    reported: SessionNs,
    /// How many spans that are open have this one as their parent.
    children: HashMap<SpanId, u32>,
    /// When parents ended that have open children.
    ended: HashMap<SpanId, SessionNs>,
    /// The logical spans of frames that are open.
    twins: HashMap<SpanId, SpanId>,
    /// What each thread is running, the innermost last.
    running: HashMap<StreamId, Vec<SpanId>>,
    /// Spans that only stand for others to come: nobody is given notice of them.
    silent: HashSet<SpanId>,
    /// Spans that were forgotten: whoever knows them by a key is to forget them too.
    pub(super) evicted: Vec<Span>,
}

/// A logical span of which nothing but its beginning is known.
pub(super) fn begin(id: SpanId, kind: SpanKind, stream: StreamId, at: SessionNs, key: Option<u64>) -> Span {
    let more = Some(Box::new(More { key, ..More::default() }));
    Span { stream, more, ..Span::new(id, kind, at, None) }
}

/// What a logical span has beside the rest. Each has it.
pub(super) fn more(span: &mut Span) -> &mut More {
    span.more.get_or_insert_default()
}

impl Store {
    /// A span is open from now on.
    pub(super) fn open(&mut self, span: Span, out: &mut Out) {
        if out.is_full() {
            self.evict(out);
        }
        // Positions rise, so there is none, unless somebody tells nonsense.
        self.drop_unstarted(span.id, out);
        if let Some(parent) = span.parent {
            *self.children.entry(parent).or_default() += 1;
        }
        self.by_age.insert((since(&span), span.id));
        out.opened(1);
        self.spans.insert(span.id, span);
    }

    /// The same, of a span that stands for others to come.
    pub(super) fn open_silently(&mut self, span: Span, out: &mut Out) {
        self.silent.insert(span.id);
        self.open(span, out);
    }

    /// Takes the spans that are oldest out, a tenth of them, so that this is not done for each.
    fn evict(&mut self, out: &mut Out) {
        for _ in 0..self.spans.len().div_ceil(10) {
            let Some((_, id)) = self.by_age.pop_first() else { return };
            let Some(mut span) = self.take(id, out) else { continue };
            (span.status, span.reason) = (SpanStatus::Unmatched, Some(Reason::Evicted));
            out.counts.evicted += 1;
            self.leave_parent(&mut span);
            self.evicted.push(span.clone());
            out.made(span);
        }
    }

    pub(super) fn get(&mut self, id: SpanId, at: SessionNs, out: &Out) -> Option<&mut Span> {
        let span = self.spans.get_mut(&id)?;
        let opened = since(span);
        // It was reported open, or would have been, and goes on.
        if at.0.saturating_sub(opened.0) > out.timeout_ns() && more(span).resumed.is_none() {
            more(span).resumed = Some(at);
        }
        Some(span)
    }

    pub(super) fn peek(&self, id: SpanId) -> Option<&Span> {
        self.spans.get(&id)
    }

    /// A span that is open, though nothing is heard of it.
    pub(super) fn peek_mut(&mut self, id: SpanId) -> Option<&mut Span> {
        self.spans.get_mut(&id)
    }

    /// Takes a span out of what is open.
    pub(super) fn take(&mut self, id: SpanId, out: &mut Out) -> Option<Span> {
        let span = self.spans.remove(&id)?;
        self.by_age.remove(&(since(&span), id));
        self.silent.remove(&id);
        out.gone(1);
        Some(span)
    }

    /// What was to run does not exist.
    pub(super) fn drop_unstarted(&mut self, id: SpanId, out: &mut Out) {
        if let Some(mut span) = self.take(id, out) {
            self.leave_parent(&mut span);
        }
    }

    /// A span is whole.
    pub(super) fn close(&mut self, id: SpanId, end: SessionNs, out: &mut Out) {
        if let Some(mut span) = self.take(id, out) {
            span.end = Some(end);
            self.emit(span, out);
        }
    }

    /// Tells a span that is no longer open.
    pub(super) fn emit(&mut self, mut span: Span, out: &mut Out) {
        self.conclude(&mut span, out);
        out.made(span);
    }

    /// Finds out what can be said of a span now that it has ended.
    pub(super) fn conclude(&mut self, span: &mut Span, out: &Out) {
        let opened = since(span);
        let stream = span.stream;
        let end = span.end;
        let more = more(span);
        let crosses = more.creator.is_some_and(|creator| creator != stream) || more.threads.len() > 1;
        if let Some(end) = end
            && end.0.saturating_sub(opened.0) > out.timeout_ns()
        {
            more.resumed.get_or_insert(end);
            span.flags.set(SpanFlags::TIMED_OUT);
        } else {
            more.resumed = None;
        }
        span.flags = span.flags.with(SpanFlags::CROSS_THREAD, crosses);
        self.leave_parent(span);
        if let Some(end) = end {
            self.ended(span.id, end);
        }
    }

    /// Marks a span that does not lie within its parent.
    fn leave_parent(&mut self, span: &mut Span) {
        let Some(parent) = span.parent else { return };
        if let Some(ended) = self.ended.get(&parent)
            && (span.start > *ended || span.end.is_none_or(|end| end > *ended))
        {
            span.flags.set(SpanFlags::OUTSIDE_PARENT);
        }
        let Some(count) = self.children.get_mut(&parent) else { return };
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.children.remove(&parent);
            self.ended.remove(&parent);
        }
    }

    /// A span has ended that others may have as their parent.
    fn ended(&mut self, id: SpanId, end: SessionNs) {
        if self.children.contains_key(&id) {
            self.ended.insert(id, end);
        }
    }

    /// A frame is the code of a logical span.
    pub(super) fn twins(&mut self, frame: SpanId, logical: SpanId) {
        self.twins.insert(frame, logical);
        if let Some(span) = self.spans.get_mut(&logical) {
            span.twin = Some(frame);
        }
    }

    /// The logical span that a frame is the code of.
    pub(super) fn twin(&self, frame: SpanId) -> Option<SpanId> {
        self.twins.get(&frame).copied()
    }

    /// A frame was left that other spans point at.
    pub(super) fn frame(&mut self, mut span: Span, out: &mut Out) {
        span.twin = self.twins.remove(&span.id);
        if let Some(end) = span.end {
            self.ended(span.id, end);
        }
        out.made(span);
    }

    /// What a thread is running.
    pub(super) fn running(&self, stream: StreamId) -> Option<SpanId> {
        self.running.get(&stream)?.last().copied()
    }

    /// A thread starts to run something, within what it runs.
    pub(super) fn run(&mut self, stream: StreamId, id: SpanId) {
        push_bounded(self.running.entry(stream).or_default(), id);
    }

    /// A thread has stopped running something, and whatever it ran within that.
    pub(super) fn stop(&mut self, stream: StreamId, id: SpanId) {
        let Some(running) = self.running.get_mut(&stream) else { return };
        if let Some(place) = running.iter().rposition(|running| *running == id) {
            running.truncate(place);
        }
        if running.is_empty() {
            self.running.remove(&stream);
        }
    }

    /// How many creators are above a span whose parent is this one.
    pub(super) fn level_below(&self, parent: Option<SpanId>) -> u32 {
        let parent = parent.and_then(|parent| self.spans.get(&parent));
        parent.and_then(|parent| parent.more.as_ref()).map_or(0, |more| more.level.saturating_add(1))
    }

    /// Reports spans that were made before `before` and are open.
    pub(super) fn report_open(&mut self, before: SessionNs, out: &mut Out) {
        if before <= self.reported {
            return;
        }
        let (first, last) = (SpanId::FIRST, SpanId::FIRST);
        for (_, id) in self.by_age.range((self.reported, first)..(before, last)) {
            if let Some(span) = self.spans.get(id).filter(|_| !self.silent.contains(id)) {
                out.notice(Span { status: SpanStatus::Open, ..span.clone() });
            }
        }
        self.reported = before;
    }

    /// All that are open, the oldest first.
    pub(super) fn take_all(&mut self, out: &mut Out) -> Vec<Span> {
        let ids: Vec<SpanId> = self.by_age.iter().map(|(_, id)| *id).collect();
        ids.into_iter().filter_map(|id| self.take(id, out)).collect()
    }
}

/// How deep runs of one thread are nested at most, for all that is remembered.
const MOST_NESTED: usize = 1024;

/// Adds one to what a thread is in. Of those that are in too many, the outer half is forgotten.
pub(super) fn push_bounded<T>(nested: &mut Vec<T>, one: T) {
    if nested.len() >= MOST_NESTED {
        nested.drain(..MOST_NESTED / 2);
    }
    nested.push(one);
}

/// Since when a span is open.
fn since(span: &Span) -> SessionNs {
    span.more.as_ref().and_then(|more| more.created).unwrap_or(span.start)
}
