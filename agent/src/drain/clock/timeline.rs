//! A line of straight pieces that follows samples of two clocks and never goes back.

use std::collections::VecDeque;

/// What both clocks showed at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) counter: u64,
    pub(super) ns: u64,
}

/// How many bits of a slope are behind the point.
const SHIFT: u32 = 40;

/// How many pieces are remembered. What happened before the first of them is told by going on backwards from there.
const MOST_PIECES: usize = 4_096;

/// The rate is what the counter did between now and this many samples ago.
const BASELINE: usize = 16;

/// A step that is larger than this is not smoothed: the machine slept, and the counter with it.
const STEP_NS: u64 = 10_000_000;

/// In what time a smaller difference is made up for.
const SMOOTH_NS: u64 = 1_000_000_000;

/// Where the pieces are. Times are nanoseconds since the first sample.
#[derive(Debug, Clone)]
pub(super) struct Timeline {
    zero: Sample,
    /// The last piece, which nearly everything that is asked for lies on.
    last: Piece,
    before: VecDeque<Piece>,
    samples: VecDeque<Sample>,
    /// Nanoseconds per count, as far as is known.
    rate: f64,
}

/// From a count on, time goes on like this.
#[derive(Debug, Clone, Copy)]
struct Piece {
    counter: u64,
    ns: u64,
    /// Nanoseconds per count, with [`SHIFT`] bits behind the point. Never zero.
    slope: u64,
}

impl Piece {
    #[inline]
    fn at(&self, counter: u64) -> u64 {
        match counter.checked_sub(self.counter) {
            Some(ahead) => self.ns.saturating_add(self.ns_in(ahead)),
            None => self.ns.saturating_sub(self.ns_in(self.counter - counter)),
        }
    }

    #[inline]
    fn ns_in(&self, counts: u64) -> u64 {
        ((u128::from(counts) * u128::from(self.slope)) >> SHIFT) as u64
    }
}

impl Timeline {
    /// A line through two samples.
    pub(super) fn new(zero: Sample, other: Sample) -> Self {
        let rate = rate(zero, other).unwrap_or(1.0);
        let last = Piece { counter: zero.counter, ns: 0, slope: slope(rate) };
        Self { zero, last, before: VecDeque::new(), samples: VecDeque::from([zero, other]), rate }
    }

    pub(super) fn zero(&self) -> Sample {
        self.zero
    }

    /// The last sample.
    pub(super) fn last(&self) -> Sample {
        self.samples.back().copied().unwrap_or(self.zero)
    }

    /// What the counter shows so long after the last sample, or about then.
    pub(super) fn counter_after(&self, ns: u64) -> u64 {
        self.last().counter.saturating_add((ns as f64 / self.rate) as u64)
    }

    /// The time when the counter showed this.
    #[inline]
    pub(super) fn at(&self, counter: u64) -> u64 {
        if counter >= self.last.counter { self.last.at(counter) } else { self.at_before(counter) }
    }

    #[cold]
    fn at_before(&self, counter: u64) -> u64 {
        let behind = self.before.partition_point(|piece| piece.counter <= counter);
        match behind.checked_sub(1).and_then(|at| self.before.get(at)) {
            // No piece goes past where the next begins, whatever its slope was rounded to.
            Some(piece) => {
                let next = self.before.get(behind).unwrap_or(&self.last);
                piece.at(counter).min(next.ns)
            }
            None => self.before.front().unwrap_or(&self.last).at(counter),
        }
    }

    /// Both clocks were read again: from here on the line heads for where they will meet.
    pub(super) fn add(&mut self, sample: Sample) {
        let expected = sample.ns.saturating_sub(self.zero.ns);
        if sample.counter <= self.last.counter {
            // The counter was reset. What it showed before means nothing any more.
            let ns = self.at(self.last().counter).max(expected);
            self.before.clear();
            self.samples = VecDeque::from([sample]);
            self.last = Piece { counter: sample.counter, ns, slope: slope(self.rate) };
            return;
        }
        let reached = self.last.at(sample.counter);
        if expected > reached.saturating_add(STEP_NS) {
            self.samples.clear();
            self.begin(sample.counter, expected, self.rate);
        } else {
            let from = self.samples.front().copied();
            self.rate = from.and_then(|from| rate(from, sample)).unwrap_or(self.rate);
            let counts = SMOOTH_NS as f64 / self.rate;
            let way = (expected as f64 + SMOOTH_NS as f64 - reached as f64).max(0.0);
            // However far ahead it is, it goes on, only slower.
            self.begin(sample.counter, reached, (way / counts).clamp(self.rate / 2.0, self.rate * 2.0));
        }
        self.samples.push_back(sample);
        if self.samples.len() > BASELINE {
            self.samples.pop_front();
        }
    }

    fn begin(&mut self, counter: u64, ns: u64, rate: f64) {
        self.before.push_back(self.last);
        if self.before.len() >= MOST_PIECES {
            self.before.pop_front();
        }
        self.last = Piece { counter, ns, slope: slope(rate) };
    }
}

fn slope(rate: f64) -> u64 {
    // Counters run at between a megahertz and a few gigahertz; what is outside of that is no rate.
    ((rate.clamp(1e-3, 1e6) * (1_u64 << SHIFT) as f64) as u64).max(1)
}

/// Nanoseconds per count between two samples.
fn rate(from: Sample, to: Sample) -> Option<f64> {
    let (counts, ns) = (to.counter.checked_sub(from.counter)?, to.ns.checked_sub(from.ns)?);
    (counts > 0 && ns > 0).then(|| ns as f64 / counts as f64)
}

#[cfg(test)]
mod tests;
