//! Threads that have ended and may still be joined.

use std::collections::{BTreeSet, HashMap};

use codec::{
    SessionNs, StreamId,
    span::{Span, SpanFlags, SpanStatus},
};

use super::super::{out::Out, store::more};

/// How many wait to be joined.
const MOST: usize = 1 << 16;

/// The spans of threads that have ended, by their handles. Each is told once it is joined or detached, or at the end of the
/// trace; until then it is reported open, like other spans that may change.
#[derive(Debug, Clone, Default)]
pub(super) struct Ended {
    spans: HashMap<u64, Span>,
    /// The same, by the time that they ended.
    by_end: BTreeSet<(SessionNs, u64)>,
    /// Those that ended before this were reported.
    reported: SessionNs,
}

impl Ended {
    pub(super) fn add(&mut self, handle: u64, span: Span, out: &mut Out) {
        self.release(handle, out);
        if (self.spans.len() >= MOST || out.is_full())
            && let Some((_, oldest)) = self.by_end.first().copied()
        {
            self.release(oldest, out);
        }
        self.by_end.insert((span.end.unwrap_or_default(), handle));
        self.spans.insert(handle, span);
        out.opened(1);
    }

    /// A thread waited for this one to end, for so long, and was given its result.
    pub(super) fn joined(
        &mut self,
        handle: u64,
        by: StreamId,
        waited: Option<u64>,
        result: Option<u64>,
        out: &mut Out,
    ) {
        let Some(span) = self.spans.get_mut(&handle) else { return };
        span.flags.set(SpanFlags::JOINED);
        let more = more(span);
        (more.joiner, more.join_latency) = (Some(by), waited);
        more.result = more.result.or(result);
        self.release(handle, out);
    }

    pub(super) fn detached(&mut self, handle: u64, out: &mut Out) {
        if let Some(span) = self.spans.get_mut(&handle) {
            span.flags.set(SpanFlags::DETACHED);
        }
        self.release(handle, out);
    }

    /// Tells a thread: nobody else will join it.
    pub(super) fn release(&mut self, handle: u64, out: &mut Out) {
        if let Some(span) = self.spans.remove(&handle) {
            self.by_end.remove(&(span.end.unwrap_or_default(), handle));
            out.gone(1);
            out.made(span);
        }
    }

    /// Reports those that ended so long ago that whoever looks on wants to know of them.
    pub(super) fn report(&mut self, now: SessionNs, out: &mut Out) {
        let before = SessionNs(now.0.saturating_sub(out.timeout_ns()));
        if before <= self.reported {
            return;
        }
        for (_, handle) in self.by_end.range((self.reported, 0)..(before, 0)) {
            if let Some(span) = self.spans.get(handle) {
                out.notice(Span { status: SpanStatus::Open, ..span.clone() });
            }
        }
        self.reported = before;
    }

    /// Nothing more comes.
    pub(super) fn finish(&mut self, out: &mut Out) {
        let handles: Vec<u64> = self.by_end.iter().map(|(_, handle)| *handle).collect();
        for handle in handles {
            self.release(handle, out);
        }
    }
}
