//! What tracing has cost, as far as it can be known.

use std::ops::AddAssign;

/// Processor time of the program's threads, in nanoseconds, while there was a budget.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spent {
    /// What the program took itself.
    own_ns: f64,
    /// What its hooks took.
    hooks_ns: f64,
    /// What they might have taken.
    allowed_ns: f64,
}

impl AddAssign for Spent {
    fn add_assign(&mut self, other: Self) {
        self.own_ns += other.own_ns;
        self.hooks_ns += other.hooks_ns;
        self.allowed_ns += other.allowed_ns;
    }
}

impl Spent {
    /// Adds what was spent in a while, of `all_ns` in which hooks took `hooks_ns`. Returns what the program took itself.
    pub(super) fn add(&mut self, all_ns: f64, hooks_ns: f64, share: f64) -> f64 {
        let own_ns = (all_ns - hooks_ns).max(0.0);
        *self += Self { own_ns, hooks_ns: hooks_ns.min(all_ns), allowed_ns: own_ns * share };
        own_ns
    }

    /// In one line, where that was clearly more than it might have been.
    pub fn excess(&self) -> Option<String> {
        /// How far an estimate may be off.
        const TOLERANCE: f64 = 1.25;
        let percent = |part: f64| format!("{:.0} %", 100.0 * part / self.own_ns.max(1.0));
        let line = || {
            let (spent, allowed) = (percent(self.hooks_ns), percent(self.allowed_ns));
            format!(
                "tracing took {spent} of the program's own processor time or more, and not the {allowed} of --budget"
            )
        };
        (self.hooks_ns > self.allowed_ns * TOLERANCE).then(line)
    }
}
