//! What came out of the rings.

use std::collections::BTreeMap;

/// How much was drained so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events that were taken out of rings and given to the shipper.
    pub events: u64,
    /// Events that were not kept, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Threads that were seen.
    pub threads: u64,
    /// Threads that were seen and have not ended.
    pub threads_now: u64,
    /// Functions that have numbers.
    pub functions: u64,
    /// Calls that were passed through because their thread was too deep already.
    pub too_deep: u64,
    /// Calls that were passed through because a signal handler made them while another was being recorded.
    pub interrupted: u64,
    /// How often a ring held something that is no record, and how many bytes were thrown away for it.
    pub damages: u64,
    /// See [`damages`](Self::damages).
    pub damaged_bytes: u64,
}

impl Counts {
    pub(super) fn drop_events(&mut self, count: u64, reason: &'static str) {
        if count > 0 {
            *self.dropped.entry(reason).or_default() += count;
        }
    }
}
