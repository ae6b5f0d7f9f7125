//! How fast sessions may be opened.

use std::time::Duration;

/// Allows sessions to be opened: as many at once as may be open, and then at a pace. Each costs the sinks a directory
/// or a line, and a sender of a few bytes could ask for any number.
#[derive(Debug)]
pub(super) struct Openings {
    most: u64,
    left: u64,
    per_second: u64,
    raised: Duration,
}

impl Openings {
    pub(super) fn new(most: usize, per_second: u64) -> Self {
        let most = most as u64;
        Self { most, left: most, per_second, raised: Duration::ZERO }
    }

    /// Whether one may be opened now.
    pub(super) fn take(&mut self, now: Duration) -> bool {
        if self.per_second == u64::MAX {
            return true;
        }
        let passed = now.saturating_sub(self.raised).as_nanos();
        let earned = u64::try_from(passed.saturating_mul(self.per_second.into()) / 1_000_000_000).unwrap_or(u64::MAX);
        if earned > 0 {
            self.left = self.most.min(self.left.saturating_add(earned));
            self.raised = now;
        }
        let some = self.left > 0;
        self.left = self.left.saturating_sub(1);
        some
    }
}
