//! Spans that are open, until they close or the trace ends.

use ahash::HashMap;
use codec::{
    SessionNs,
    span::{Span, SpanId},
};

use crate::Budget;

/// How many are kept, and what each is taken to need. A span beyond that is missing if it never closes.
const MOST: usize = 1 << 18;
const SPAN_BYTES: u64 = 512;

/// The open spans of one session, each as it was told last.
#[derive(Debug, Default)]
pub(crate) struct OpenSpans {
    spans: HashMap<SpanId, Span>,
    last: SessionNs,
    budget: Budget,
}

impl OpenSpans {
    /// None yet, and no more than a budget that others share has room for.
    pub(crate) fn within(budget: Budget) -> Self {
        Self { budget, ..Self::default() }
    }

    /// Keeps a span that is open, and tells whether it could.
    pub(crate) fn open(&mut self, span: &Span) -> bool {
        self.last = self.last.max(span.start);
        let fits = |budget: &mut Budget, count| count < MOST && budget.take(SPAN_BYTES);
        let kept = self.spans.contains_key(&span.id) || fits(&mut self.budget, self.spans.len());
        if kept {
            self.spans.insert(span.id, span.clone());
        }
        kept
    }

    /// Forgets a span that has closed.
    #[inline]
    pub(crate) fn close(&mut self, span: &Span) {
        self.last = self.last.max(span.start).max(span.end.unwrap_or_default());
        if !self.spans.is_empty() && self.spans.remove(&span.id).is_some() {
            self.budget.release(SPAN_BYTES);
        }
    }

    /// Those that never closed, by their starts.
    pub(crate) fn take(&mut self) -> Vec<Span> {
        let mut spans: Vec<Span> = std::mem::take(&mut self.spans).into_values().collect();
        self.budget.release(SPAN_BYTES.saturating_mul(spans.len() as u64));
        spans.sort_by_key(|span| (span.start, span.id));
        spans
    }

    /// The same, each with the end of the trace as its own: the innermost first.
    pub(crate) fn finish(&mut self) -> Vec<Span> {
        let mut spans = self.take();
        // Of one thread, what began later is inside, and has the larger id.
        spans.sort_by_key(|span| std::cmp::Reverse(span.id));
        for span in &mut spans {
            span.end = Some(span.end.unwrap_or(self.last).max(span.start));
        }
        spans
    }
}
