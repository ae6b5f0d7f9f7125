//! Memory that all sessions of a disk sink share.

use std::sync::Arc;

use super::volume::Limits;
use crate::Budget;

/// One budget for each thing that grows with what comes from outside. Sessions and threads take shares of them.
#[derive(Debug)]
pub(super) struct Shared {
    /// When the calls of threads were.
    pub(super) depths: Budget,
    /// Functions of module 0.
    pub(super) names: Budget,
    /// Gaps.
    pub(super) gaps: Budget,
    /// What waits in journals.
    pub(super) journals: Budget,
    /// Spans on their way to a file, and those that are open.
    pub(super) spans: Budget,
    pub(super) open_spans: Budget,
}

impl Shared {
    /// The same budgets for another recorder.
    pub(super) fn share(&self) -> Self {
        Self {
            depths: self.depths.share(),
            names: self.names.share(),
            gaps: self.gaps.share(),
            journals: self.journals.share(),
            spans: self.spans.share(),
            open_spans: self.open_spans.share(),
        }
    }

    pub(super) fn new(limits: &Limits) -> Self {
        let budget = |limit| Budget::new(limit, Arc::default());
        Self {
            depths: budget(limits.depth_bytes),
            names: budget(limits.name_bytes),
            gaps: budget(limits.gap_bytes),
            journals: budget(limits.journal_bytes),
            spans: budget(limits.span_bytes),
            open_spans: budget(limits.open_span_bytes),
        }
    }
}
