//! How long all calls of a function took that was turned down.

use super::{bursts::Bursts, ranking::Function};

/// An estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InAll {
    /// How many nanoseconds.
    pub ns: u64,
    /// By how much it may be wrong. None where that cannot be told.
    pub error_ns: Option<u64>,
}

/// What all functions of a session tell of each of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// How long the fastest function seems to take. It hardly takes any time, so this is what recording adds to each call.
    recording_ns: f64,
    /// How long all calls can have taken that were not followed: they are in the own time of their callers.
    most_ns: f64,
}

/// How many calls say something of a function.
const ENOUGH_CALLS: u64 = 16;

/// How many times what it adds to the fastest function recording may add to others, whose records are not at hand.
const MOST_TIMES: f64 = 3.0;

impl Bounds {
    pub(super) fn of(functions: &[Function]) -> Self {
        let known = functions.iter().filter(|function| function.calls.count() >= ENOUGH_CALLS);
        let fastest = known.map(|function| function.calls.percentile(500)).min().unwrap_or(0);
        let callers = functions.iter().filter(|function| function.has_called_down);
        let most: u64 = callers.map(|caller| caller.self_ns.saturating_add(caller.unsure_ns)).sum();
        Self { recording_ns: fastest as f64, most_ns: most as f64 }
    }

    /// How long all calls took, if those that were only counted were like those that were followed, but for what recording adds.
    /// None where nothing can be told: calls within calls are no time of their own.
    pub(super) fn estimate(self, function: &Function) -> Option<InAll> {
        let known_ns = function.total_ns.saturating_add(function.brief_ns);
        if function.counted == 0 {
            return Some(InAll { ns: known_ns, error_ns: Some(0) });
        }
        let known = function.count.saturating_sub(function.untimed).saturating_add(function.brief);
        if known == 0 || function.is_recursive {
            return None;
        }
        let (mean, calls) = (known_ns as f64 / known as f64, function.counted as f64);
        let at_most = |ns: f64| if self.most_ns > 0.0 { ns.min(self.most_ns) } else { ns };
        // How long calls took that were left out for being brief is not known by burst.
        let spread = function.bursts.as_ref().filter(|_| function.brief == 0).and_then(Bursts::error);
        let Some(spread) = spread else {
            let others = at_most((mean - self.recording_ns).max(0.0) * calls);
            return Some(InAll { ns: known_ns.saturating_add(others as u64), error_ns: None });
        };
        let low = (mean * (1.0 - spread) - self.recording_ns * MOST_TIMES).max(0.0) * calls;
        let high = at_most(mean * (1.0 + spread) * calls);
        // Where that cannot be, the others were not like those that were followed.
        let low = if low > high { 0.0 } else { low };
        let (middle, error) = ((low + high) / 2.0, (high - low) / 2.0);
        Some(InAll { ns: known_ns.saturating_add(middle as u64), error_ns: Some(error as u64) })
    }
}
