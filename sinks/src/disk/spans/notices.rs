//! Spans that were told to be open.

use std::collections::HashMap;

use codec::span::{Span, SpanId};

use crate::Budget;

/// The latest that was told of each span that is open. It is kept until the span ends, and is in the file only if it
/// does not.
pub(in crate::disk) struct Notices {
    spans: HashMap<SpanId, Span>,
    budget: Budget,
}

/// What a span is taken to need.
const SPAN_BYTES: u64 = 512;

impl Notices {
    pub(in crate::disk) fn new(budget: Budget) -> Self {
        Self { spans: HashMap::new(), budget }
    }

    /// Keeps a span that is open, and tells whether it could.
    pub(in crate::disk) fn keep(&mut self, span: &Span) -> bool {
        let kept = self.spans.contains_key(&span.id) || self.budget.take(SPAN_BYTES);
        if kept {
            self.spans.insert(span.id, span.clone());
        }
        kept
    }

    /// The span has ended.
    pub(in crate::disk) fn forget(&mut self, span: SpanId) {
        if !self.spans.is_empty() && self.spans.remove(&span).is_some() {
            self.budget.release(SPAN_BYTES);
        }
    }

    /// Those that have not ended, by their starts.
    pub(in crate::disk) fn take(&mut self) -> Vec<Span> {
        let mut spans: Vec<_> = std::mem::take(&mut self.spans).into_values().collect();
        self.budget.release(SPAN_BYTES.saturating_mul(spans.len() as u64));
        spans.sort_by_key(|span| (span.start, span.id));
        spans
    }
}
