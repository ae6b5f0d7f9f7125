//! Functions that are called too often to be hooked at all.

use std::time::{Duration, Instant};

use super::Trace;

/// How often hooks are taken out and put back: all threads stand still meanwhile.
const EVERY: Duration = Duration::from_millis(100);

/// How long threads may take to stop, and after how long that is tried again: one may wait for a child that it has made.
const STOPPING: Duration = Duration::from_millis(50);
const AGAIN: Duration = Duration::from_secs(2);

impl Trace {
    /// Takes hooks out of functions that are called too often, and puts back those that are wanted again. Where that cannot be done
    /// the first are only slower, and the others stay off.
    pub(super) fn settle_hooks(&mut self) {
        let now = Instant::now();
        if now < self.next_settling || self.replacement.is_some() || self.arena.request().is_some() {
            return;
        }
        let settled = self.installer.settle_hooks(STOPPING);
        self.next_settling = now + if settled.is_ok() { EVERY } else { AGAIN };
        if let Err(error) = settled
            && self.family.settings.verbose
        {
            say!("hooks stay as they are for now: {error:#}");
        }
    }
}
