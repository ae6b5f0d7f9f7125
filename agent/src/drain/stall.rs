//! Threads that wait for room while the collector takes nothing, and how long they may.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use super::Drain;
use crate::shared::FLAG_BLOCK;

/// What the threads of the program do about a collector that takes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// Nobody waits.
    No,
    /// Threads have waited since then.
    Since(Instant),
    /// They waited from then on for as long as they may, and have gone on: their events are dropped.
    Over(Instant),
}

/// How long threads may wait.
#[derive(Debug)]
pub(super) struct Stall {
    /// None: for ever.
    limit: Option<Duration>,
    waiting: Waiting,
}

impl Stall {
    pub(super) fn new() -> Self {
        Self { limit: None, waiting: Waiting::No }
    }

    /// Looks at the threads after a turn in which so many records were taken. What they do then.
    fn look(&mut self, records: usize, is_anybody_waiting: impl FnOnce() -> bool, now: Instant) -> Waiting {
        self.waiting = match self.waiting {
            // The collector takes something, or the threads have found what they need.
            _ if records > 0 => Waiting::No,
            Waiting::Over(since) => Waiting::Over(since),
            _ if !is_anybody_waiting() => Waiting::No,
            Waiting::No => Waiting::Since(now),
            waiting => waiting,
        };
        if let (Waiting::Since(since), Some(limit)) = (self.waiting, self.limit)
            && now.saturating_duration_since(since) >= limit
        {
            self.waiting = Waiting::Over(since);
        }
        self.waiting
    }
}

impl Drain {
    /// Has threads wait for room no longer than this while the collector takes nothing; without it they wait for ever.
    pub fn with_stall(mut self, limit: Option<Duration>) -> Self {
        self.stall.limit = limit;
        let limit_ms = limit.map_or(u64::MAX, |limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        // ORDERING: a hint for threads that wait for an agent that is stopped.
        self.arena.control().stall_ms.store(limit_ms, Ordering::Relaxed);
        self
    }

    /// What the threads of the program do about a collector that takes nothing.
    pub fn waiting(&self) -> Waiting {
        self.stall.waiting
    }

    /// Why events do not fit a ring: nobody has read it, or threads that would have waited for that do not any more.
    pub(super) fn reason(&self) -> &'static str {
        // ORDERING: set before anything was hooked.
        let blocks = self.arena.control().flags.load(Ordering::Relaxed) & FLAG_BLOCK != 0;
        if blocks { "stalled" } else { "ring-full" }
    }

    /// Looks whether threads wait, after a turn in which so many records were taken.
    pub(super) fn find_stall(&mut self, records: usize, now: Instant) {
        let Self { stall, rings, arena, .. } = self;
        let before = stall.waiting;
        let waits = |ring: usize| {
            let head = arena.head(ring);
            // ORDERING: hints.
            let unread = head.written.load(Ordering::Relaxed) != head.read.load(Ordering::Relaxed);
            rings[ring].is_some() && unread && head.waiting.load(Ordering::Relaxed) != 0
        };
        let waiting = stall.look(records, || (0..rings.len()).any(waits), now);
        if waiting != before {
            // ORDERING: a hint; what matters is how far the rings are read.
            self.arena.control().stalled.store(matches!(waiting, Waiting::Over(_)).into(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_go_on_after_a_while_and_wait_again_once_something_is_taken() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut stall = Stall { limit: Some(Duration::from_millis(100)), ..Stall::new() };
        assert_eq!(stall.look(0, || false, after(0)), Waiting::No);
        assert_eq!(stall.look(0, || true, after(10)), Waiting::Since(after(10)));
        assert_eq!(stall.look(0, || true, after(100)), Waiting::Since(after(10)));
        // Something is taken: that is not waiting in vain.
        assert_eq!(stall.look(7, || true, after(105)), Waiting::No);
        assert_eq!(stall.look(0, || true, after(120)), Waiting::Since(after(120)));
        assert_eq!(stall.look(0, || true, after(220)), Waiting::Over(after(120)));
        // They do not wait now, and are not to until something is taken.
        assert_eq!(stall.look(0, || false, after(500)), Waiting::Over(after(120)));
        assert_eq!(stall.look(1, || false, after(600)), Waiting::No);
        stall.limit = None;
        assert_eq!(stall.look(0, || true, after(600)), Waiting::Since(after(600)));
        assert_eq!(stall.look(0, || true, after(1_000_000)), Waiting::Since(after(600)));
        stall.limit = Some(Duration::ZERO);
        assert_eq!(stall.look(0, || true, after(1_000_000)), Waiting::Over(after(600)));
    }
}
