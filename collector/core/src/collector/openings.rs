//! How fast sessions may be opened.

use std::time::Duration;

/// How many sessions may be opened in a second, in the long run.
const PER_SECOND: u64 = 100;

/// Allows sessions to be opened: as many at once as may be open, and then at a pace. Each costs the sinks a directory
/// or a line, and a sender of a few bytes could ask for any number.
#[derive(Debug)]
pub(super) struct Openings {
    most: u64,
    left: u64,
    raised: Duration,
}

impl Openings {
    pub(super) fn new(most: usize) -> Self {
        let most = most as u64;
        Self { most, left: most, raised: Duration::ZERO }
    }

    /// Whether one may be opened now.
    pub(super) fn take(&mut self, now: Duration) -> bool {
        let step = Duration::from_nanos(1_000_000_000 / PER_SECOND);
        let earned = u64::try_from(now.saturating_sub(self.raised).as_nanos() / step.as_nanos()).unwrap_or(u64::MAX);
        if earned > 0 {
            self.left = self.most.min(self.left.saturating_add(earned));
            self.raised = now;
        }
        let some = self.left > 0;
        self.left = self.left.saturating_sub(1);
        some
    }
}
