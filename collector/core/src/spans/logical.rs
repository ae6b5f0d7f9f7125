//! What concerns several threads, event by event in the order of time.

use codec::{
    SessionNs, StreamId,
    profile::Runtime as Library,
    span::{Reason, Span, SpanFlags, SpanKind, SpanStatus},
};

use super::{
    callback::Callbacks,
    dispatch::Blocks,
    order::{Body, OrderedEvent},
    out::Out,
    pthread::{Latest, Threads},
    store::{Store, more},
    swift::Tasks,
};

/// The logical spans of a session.
#[derive(Debug, Clone, Default)]
pub(super) struct Logical {
    store: Store,
    pub(super) threads: Threads,
    blocks: Blocks,
    tasks: Tasks,
    callbacks: Callbacks,
}

impl Logical {
    /// `latest` tells when the latest event of a stream was.
    pub(super) fn take(&mut self, told: OrderedEvent, latest: Latest<'_>, out: &mut Out) {
        let store = &mut self.store;
        match &told.body {
            Body::Runtime(event) => match Library::of(&event.function) {
                Some(Library::Pthread) => self.threads.event(&told, event, latest, store, out),
                Some(Library::Dispatch) => self.blocks.event(&told, event, store, out),
                Some(Library::Swift) => self.tasks.event(&told, event, store, out),
                None => {}
            },
            Body::JobRuns { ran, is_thunk } => self.tasks.named(&told, *ran, *is_thunk, store, out),
            Body::Registered { .. } => self.callbacks.registered(&told, store, out),
            Body::CallbackEntered { .. } => self.callbacks.entered(&told, store, out),
            Body::Frame(..) => {
                let Body::Frame(frame, left) = told.body else { return };
                self.callbacks.frame_left(&frame, left, store, out);
                self.blocks.frame_left(frame.id, frame.end, store, out);
                self.code_left(&frame, told.at, out);
                self.store.frame(*frame, out);
            }
        }
        for span in std::mem::take(&mut self.store.evicted) {
            match span.kind {
                SpanKind::Thread => self.threads.forget(&span),
                SpanKind::Block | SpanKind::Group => self.blocks.forget(&span),
                SpanKind::Callback => self.callbacks.forget(&span),
                _ => self.tasks.forget(&span),
            }
        }
    }

    /// The code of a logical span was left. If the runtime has not said so before, that is missing, and the frame tells
    /// when and why.
    fn code_left(&mut self, frame: &Span, at: SessionNs, out: &mut Out) {
        let Some(kind) = self.store.twin(frame.id).and_then(|id| self.store.peek(id)).map(|span| span.kind) else {
            return;
        };
        let (status, reason) = match (frame.status, frame.reason) {
            (SpanStatus::Matched, _) => (SpanStatus::Matched, None),
            (_, Some(Reason::Gap | Reason::Exception | Reason::Unwind | Reason::Longjmp | Reason::Canceled)) => {
                (SpanStatus::Unmatched, frame.reason)
            }
            (_, Some(Reason::ThreadExit)) if kind != SpanKind::Thread => (SpanStatus::Unmatched, frame.reason),
            // It may go on: it was only forgotten, or something else runs in its place.
            _ => return,
        };
        let Some(id) = self.store.twin(frame.id) else { return };
        if let Some(span) = self.store.get(id, at, out) {
            (span.status, span.reason) = (status, reason);
            span.flags.set(SpanFlags::ACROSS_GAP);
            more(span).end_stream = frame.end.map(|_| frame.stream);
        }
        match kind {
            SpanKind::Thread => self.threads.lost(frame.stream),
            SpanKind::Block => self.blocks.lost(frame.stream, id),
            _ => self.tasks.lost(frame.stream, id),
        }
        self.store.stop(frame.stream, id);
        if let Some(mut span) = self.store.take(id, out) {
            span.end = frame.end;
            self.store.emit(span, out);
        }
    }

    /// Everything before this time has been told.
    pub(super) fn settled(&mut self, until: SessionNs, out: &mut Out) {
        self.threads.report(until, out);
        self.store.report_open(SessionNs(until.0.saturating_sub(out.timeout_ns())), out);
    }

    /// Nothing more comes: tells what is open, and why.
    pub(super) fn finish(&mut self, ending: &TraceEnd<'_>, out: &mut Out) {
        let at = ending.at;
        self.threads.finish(at, ending.latest, &mut self.store, out);
        self.blocks.finish(&mut self.store, at, out);
        self.callbacks.finish(&mut self.store, at, out);
        self.tasks.finish(&mut self.store, ending, out);
        for mut span in self.store.take_all(out) {
            if span.status == SpanStatus::Matched {
                (span.status, span.reason) = ending.why_open(&span);
            }
            self.store.emit(span, out);
        }
    }
}

/// How the trace ends.
pub(super) struct TraceEnd<'a> {
    pub(super) at: SessionNs,
    /// Why what started then is still open.
    pub(super) why: &'a dyn Fn(SessionNs) -> (SpanStatus, Option<Reason>),
    /// When the latest gap ended, of one stream or of any.
    pub(super) gap_end: &'a dyn Fn(Option<StreamId>) -> Option<SessionNs>,
    pub(super) latest: Latest<'a>,
}

impl TraceEnd<'_> {
    /// How a span stands that is open at the end. What has never run says so, however the trace ends.
    pub(super) fn why_open(&self, span: &Span) -> (SpanStatus, Option<Reason>) {
        if self.is_in_gap(span) {
            return (SpanStatus::Unmatched, Some(Reason::Gap));
        }
        let (status, reason) = (self.why)(span.start);
        (status, span.reason.or(reason))
    }

    /// Whether the end of a span may be among the events that are missing. What runs on a thread ends there, all else
    /// anywhere.
    fn is_in_gap(&self, span: &Span) -> bool {
        let more = span.more.as_ref();
        let runs = span.kind != SpanKind::Task
            && span.kind != SpanKind::Group
            && span.kind != SpanKind::Suspension
            && more.is_some_and(|more| !more.threads.is_empty());
        let since = more.and_then(|more| more.created).filter(|_| !runs).unwrap_or(span.start);
        (self.gap_end)(runs.then_some(span.stream)).is_some_and(|end| end >= since)
    }
}
