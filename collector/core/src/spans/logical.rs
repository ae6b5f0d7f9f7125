//! What concerns several threads, event by event in the order of time.

use codec::{
    SessionNs,
    profile::Runtime as Library,
    span::{Reason, SpanKind, SpanStatus},
};

use super::{
    callback::Callbacks,
    dispatch::Blocks,
    out::Out,
    pthread::Threads,
    store::Store,
    swift::Tasks,
    told::{Body, Told},
};

/// The logical spans of a session.
#[derive(Debug, Default)]
pub(super) struct Logical {
    store: Store,
    pub(super) threads: Threads,
    blocks: Blocks,
    tasks: Tasks,
    callbacks: Callbacks,
}

impl Logical {
    pub(super) fn take(&mut self, told: Told, out: &mut Out) {
        let store = &mut self.store;
        match &told.body {
            Body::Runtime(event) => match Library::of(&event.function) {
                Some(Library::Pthread) => self.threads.event(&told, event, store, out),
                Some(Library::Dispatch) => self.blocks.event(&told, event, store, out),
                Some(Library::Swift) => self.tasks.event(&told, event, store, out),
                None => {}
            },
            Body::JobRuns(ran) => self.tasks.named(&told, *ran, store, out),
            Body::Registered { .. } => self.callbacks.registered(&told, store, out),
            Body::CallbackEntered { .. } => self.callbacks.entered(&told, store, out),
            Body::Frame(_) => {
                let Body::Frame(frame) = told.body else { return };
                self.callbacks.frame_left(&frame, store, out);
                self.blocks.frame_left(frame.id, frame.end, store, out);
                store.frame(*frame, out);
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

    /// Everything before this time has been told.
    pub(super) fn settled(&mut self, until: SessionNs, out: &mut Out) {
        self.threads.expire(until, &mut self.store, out);
        self.store.report_open(SessionNs(until.0.saturating_sub(out.timeout_ns())), out);
    }

    /// Nothing more comes: tells what is open, and why.
    pub(super) fn finish(
        &mut self,
        at: SessionNs,
        why: impl Fn(SessionNs) -> (SpanStatus, Option<Reason>),
        out: &mut Out,
    ) {
        self.threads.finish(&mut self.store, out);
        self.blocks.finish(&mut self.store, at, out);
        self.callbacks.finish(&mut self.store, at, out);
        for mut span in self.store.take_all(out) {
            let (status, reason) = why(span.start);
            span.status = status;
            // What has never run says so, however the trace ends.
            span.reason = span.reason.or(reason);
            self.store.emit(span, out);
        }
    }
}
