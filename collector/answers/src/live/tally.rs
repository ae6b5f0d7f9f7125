//! What functions did in the last seconds, look by look.

use std::collections::{HashMap, VecDeque};

use ahash::RandomState;
use codec::FunctionId;

/// What a function did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) calls: u64,
    pub(super) total_ns: u64,
    pub(super) self_ns: u64,
}

/// What was found in one look.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    pub(super) functions: HashMap<FunctionId, Numbers, RandomState>,
    pub(super) events: u64,
    pub(super) missing: u64,
    /// The time at which it began and ended, by the trace's clock.
    start: u64,
    end: u64,
}

impl Bucket {
    /// What is known of a function.
    pub(super) fn of(&mut self, function: FunctionId) -> &mut Numbers {
        self.functions.entry(function).or_default()
    }
}

/// What was found in the last looks.
#[derive(Debug, Default)]
pub(super) struct Tally {
    buckets: VecDeque<Bucket>,
    now: Bucket,
}

impl Tally {
    /// Begins a look where the one before has ended, or the first one at this time.
    pub(super) fn begin(&mut self, first: u64) -> &mut Bucket {
        let start = self.buckets.back().map_or(first, |before| before.end);
        self.now = Bucket { start, ..Bucket::default() };
        &mut self.now
    }

    /// Ends it at this time. What is older than `last` nanoseconds goes.
    pub(super) fn end(&mut self, until: u64, last: u64) {
        let mut bucket = std::mem::take(&mut self.now);
        bucket.end = until;
        self.buckets.push_back(bucket);
        let from = until.saturating_sub(last);
        while self.buckets.len() > 1 && self.buckets.front().is_some_and(|bucket| bucket.end <= from) {
            self.buckets.pop_front();
        }
    }

    /// What the looks come to, and for how long that was.
    pub(super) fn sum(&self) -> (Bucket, u64) {
        let mut sum = Bucket::default();
        for bucket in &self.buckets {
            sum.events = sum.events.saturating_add(bucket.events);
            sum.missing = sum.missing.saturating_add(bucket.missing);
            for (function, numbers) in &bucket.functions {
                let known = sum.of(*function);
                known.calls = known.calls.saturating_add(numbers.calls);
                known.total_ns = known.total_ns.saturating_add(numbers.total_ns);
                known.self_ns = known.self_ns.saturating_add(numbers.self_ns);
            }
        }
        let (first, last) = (self.buckets.front(), self.buckets.back());
        let (start, end) = (first.map_or(0, |bucket| bucket.start), last.map_or(0, |bucket| bucket.end));
        (sum, end.saturating_sub(start))
    }
}
