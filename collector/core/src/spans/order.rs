//! What concerns several threads, put in the order of time.
//!
//! Streams arrive one beside the other, none in step with the rest. What is told waits here until nothing from before
//! it can come any more. The agent says how far its streams have come, and when: that decides. Offline, the reader
//! knows.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use codec::{Position, SessionNs, StreamId, profile::Progress};

use super::told::Told;

/// For how long an event may lie in the target before the agent takes it: what it tells of a stream's progress is true
/// of the time before that.
const DRAIN_NS: u64 = 250_000_000;

/// After how long nobody waits any more for streams to come as far as they were said to be: some may never, because
/// they were refused.
const PATIENCE_NS: u64 = 10_000_000_000;

/// How many events wait at most: they are large.
const MOST_WAITING: usize = 1 << 20;

/// Of how many streams it is remembered how far they were said to be.
const MOST_STREAMS: usize = 1 << 16;

/// What waits for its turn.
#[derive(Debug)]
pub(super) struct Order {
    waiting: BinaryHeap<Reverse<Told>>,
    most: usize,
    /// Everything before this has been told.
    settled: SessionNs,
    /// What the agent has said of its streams, and since when.
    promised: Option<Promise>,
}

/// When the streams will all have come as far as they were said to be.
#[derive(Debug)]
struct Promise {
    now: SessionNs,
    streams: HashMap<StreamId, Position>,
}

impl Promise {
    fn add(&mut self, progress: &Progress<'_>) {
        for at in progress.streams {
            if self.streams.len() < MOST_STREAMS || self.streams.contains_key(&at.stream) {
                let next = self.streams.entry(at.stream).or_insert(at.next);
                *next = at.next.max(*next);
            }
        }
    }
}

impl Order {
    pub(super) fn new(most: usize) -> Self {
        Self { waiting: BinaryHeap::new(), most: most.min(MOST_WAITING), settled: SessionNs(0), promised: None }
    }

    pub(super) fn set_most(&mut self, most: usize) {
        self.most = most.min(MOST_WAITING);
    }

    pub(super) fn push(&mut self, told: Told) {
        self.waiting.push(Reverse(told));
    }

    pub(super) fn settle(&mut self, until: SessionNs) {
        self.settled = self.settled.max(until);
    }

    pub(super) fn settled(&self) -> SessionNs {
        self.settled
    }

    /// The agent says how far its streams have come. `reached` tells whether a stream has been passed on up to a
    /// position.
    pub(super) fn progress(&mut self, progress: &Progress<'_>, reached: impl Fn(StreamId, Position) -> bool) {
        if let Some(promise) = &mut self.promised {
            // A long list comes in several packets of the same time.
            if promise.now == progress.now {
                return promise.add(progress);
            }
            let is_old = progress.now.0.saturating_sub(promise.now.0) > PATIENCE_NS;
            let kept = promise.streams.iter().all(|(stream, next)| reached(*stream, *next));
            // It is not kept yet: something is still on its way.
            if !kept && !is_old {
                return;
            }
            self.settled = self.settled.max(SessionNs(promise.now.0.saturating_sub(DRAIN_NS)));
        }
        let mut promise = Promise { now: progress.now, streams: HashMap::new() };
        promise.add(progress);
        self.promised = Some(promise);
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether more wait than may.
    pub(super) fn is_crowded(&self) -> bool {
        self.waiting.len() > self.most
    }

    /// The next one whose turn it is. Also one whose turn it is not, if too many wait.
    pub(super) fn next(&mut self) -> Option<Told> {
        let first = self.waiting.peek()?;
        if first.0.at < self.settled || self.waiting.len() > self.most {
            return self.waiting.pop().map(|told| told.0);
        }
        None
    }

    /// All that is left, in order.
    pub(super) fn next_at_end(&mut self) -> Option<Told> {
        self.waiting.pop().map(|told| told.0)
    }
}
