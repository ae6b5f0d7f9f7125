//! Functions that are called too often to be hooked at all.

use std::time::{Duration, Instant};

use super::Trace;

/// How often hooks are taken out: all threads stand still meanwhile.
const EVERY: Duration = Duration::from_millis(100);

/// How long threads may take to stop, and after how long that is tried again: one may wait for a child that it has made.
const STOPPING: Duration = Duration::from_millis(50);
const AGAIN: Duration = Duration::from_secs(5);

impl Trace {
    /// Takes hooks out of functions that are off for good. Where that cannot be done they are only slower.
    pub(super) fn leave_hottest_alone(&mut self) {
        let now = Instant::now();
        if now < self.next_left_alone || self.replacement.is_some() || self.arena.request().is_some() {
            return;
        }
        let left = self.installer.leave_alone(now + STOPPING);
        self.next_left_alone = now + if left.is_ok() { EVERY } else { AGAIN };
        if let Err(error) = left
            && self.family.settings.verbose
        {
            say!("what is called most stays hooked for now: {error:#}");
        }
    }
}
