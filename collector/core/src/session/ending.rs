//! An end that has been announced.

use std::{collections::BTreeSet, time::Duration};

use codec::{
    SessionNs, StreamId,
    profile::{End, EndReason},
};

/// What the packets of `end` have told so far.
#[derive(Debug)]
pub(super) struct Ending {
    reason: EndReason,
    at: SessionNs,
    stream_count: usize,
    told: BTreeSet<StreamId>,
    since: Duration,
}

impl Ending {
    pub(super) fn new(end: &End<'_>, now: Duration) -> Self {
        let stream_count = end.stream_count as usize;
        Self { reason: end.reason, at: end.at, stream_count, told: BTreeSet::new(), since: now }
    }

    /// Another packet, or the same again.
    pub(super) fn add(&mut self, end: &End<'_>, max_streams: usize) {
        for position in end.streams {
            if self.told.len() < max_streams {
                self.told.insert(position.stream);
            }
        }
    }

    /// Whether the ends of all streams are known.
    pub(super) fn is_complete(&self) -> bool {
        self.told.len() >= self.stream_count
    }

    /// Whether the rest of it should have come.
    pub(super) fn is_overdue(&self, now: Duration, patience: Duration) -> bool {
        now.saturating_sub(self.since) >= patience
    }

    pub(super) fn reason(&self) -> EndReason {
        self.reason
    }

    pub(super) fn at(&self) -> SessionNs {
        self.at
    }
}
