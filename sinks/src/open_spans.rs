//! Spans that are open, until they close or the trace ends.

use ahash::HashMap;
use codec::{
    SessionNs,
    span::{Span, SpanId},
};

/// How many are kept. A span beyond that is missing if it never closes.
const MOST: usize = 1 << 18;

/// The open spans of one session.
#[derive(Debug, Default)]
pub(crate) struct OpenSpans {
    spans: HashMap<SpanId, Span>,
    last: SessionNs,
}

impl OpenSpans {
    /// Keeps a span that is open.
    pub(crate) fn open(&mut self, span: &Span) {
        self.last = self.last.max(span.start);
        if self.spans.len() < MOST || self.spans.contains_key(&span.id) {
            self.spans.insert(span.id, span.clone());
        }
    }

    /// Forgets a span that has closed.
    pub(crate) fn close(&mut self, span: &Span) {
        self.last = self.last.max(span.start).max(span.end.unwrap_or_default());
        if !self.spans.is_empty() {
            self.spans.remove(&span.id);
        }
    }

    /// Those that never closed, each with the end of the trace as its own: the innermost first.
    pub(crate) fn finish(&mut self) -> Vec<Span> {
        let mut spans: Vec<Span> = std::mem::take(&mut self.spans).into_values().collect();
        // Of one thread, what began later is inside, and has the larger id.
        spans.sort_by_key(|span| std::cmp::Reverse(span.id));
        for span in &mut spans {
            span.end = Some(span.end.unwrap_or(self.last).max(span.start));
        }
        spans
    }
}
