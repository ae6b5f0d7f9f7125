//! From the processor's counter to nanoseconds since the session's zero.

mod timeline;

use std::{thread, time::Duration};

use codec::SessionNs;
use rustix::time::{ClockId, clock_gettime};

use self::timeline::{Sample, Timeline};
use crate::shared::tsc;

/// How long the first look at both clocks takes. Enough to know the counter's rate to a few parts in a million; it gets
/// better with every look after that.
const FIRST_LOOK: Duration = Duration::from_millis(4);

/// How many times both are read at once, of which the quickest counts: an interruption in between makes a bad pair.
const READINGS: usize = 16;

/// When to look again, in nanoseconds after the look before: soon at first, while little is known.
const LOOKS_NS: [u64; 4] = [20_000_000, 100_000_000, 300_000_000, 1_000_000_000];

/// Tells when something happened by what the counter showed.
///
/// What it says follows `CLOCK_BOOTTIME`, and never goes back: not between two looks, and not at one.
#[derive(Debug, Clone)]
pub struct Clock {
    timeline: Timeline,
    epoch_unix_ns: u64,
    looks: usize,
    /// What the counter shows when it is time for the next look.
    next_look: u64,
}

impl Clock {
    /// Starts at zero, now. Takes a few milliseconds.
    pub fn start() -> Self {
        let zero = sample();
        let wall = nanoseconds(ClockId::Realtime).saturating_sub(nanoseconds(ClockId::Boottime) - zero.ns);
        thread::sleep(FIRST_LOOK);
        let timeline = Timeline::new(zero, sample());
        let next_look = timeline.counter_after(LOOKS_NS[0]);
        Self { timeline, epoch_unix_ns: wall, looks: 0, next_look }
    }

    /// The session's zero by `CLOCK_BOOTTIME`.
    pub fn zero_ns(&self) -> u64 {
        self.timeline.zero().ns
    }

    /// The session's zero by the wall clock.
    pub fn epoch_unix_ns(&self) -> u64 {
        self.epoch_unix_ns
    }

    /// When the counter showed this.
    #[inline]
    pub fn at(&self, counter: u64) -> SessionNs {
        SessionNs(self.timeline.at(counter))
    }

    /// Now.
    pub fn now(&self) -> SessionNs {
        self.at(tsc::now())
    }

    /// Looks at both clocks again if it is time to. To be called often.
    pub fn tick(&mut self) {
        let now = tsc::now();
        // A counter that went back has been reset, by a suspension or by moving to another machine.
        if now < self.next_look && now >= self.timeline.last().counter {
            return;
        }
        self.timeline.add(sample());
        self.looks = (self.looks + 1).min(LOOKS_NS.len() - 1);
        self.next_look = self.timeline.counter_after(LOOKS_NS[self.looks]);
    }
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

/// Both clocks at the same time, as nearly as can be.
fn sample() -> Sample {
    let reading = || {
        let before = tsc::now();
        let ns = nanoseconds(ClockId::Boottime);
        let took = tsc::now().saturating_sub(before);
        (took, Sample { counter: before + took / 2, ns })
    };
    let readings = (0..READINGS).map(|_| reading());
    readings.min_by_key(|(took, _)| *took).map_or(Sample { counter: 0, ns: 0 }, |(_, sample)| sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_the_system() {
        let mut clock = Clock::start();
        let mut last = SessionNs(0);
        for _ in 0..10_000 {
            clock.tick();
            let before = nanoseconds(ClockId::Boottime) - clock.zero_ns();
            let now = clock.now();
            assert!(now >= last, "it went back from {last:?} to {now:?}");
            // A machine that is busy may take the processor away between two lines, but not before it is given.
            assert!(now.0 + 100_000 > before, "{now:?} is long before {before}");
            last = now;
        }
        let wall = nanoseconds(ClockId::Realtime);
        let told = clock.epoch_unix_ns() + last.0;
        assert!(wall.abs_diff(told) < 2_000_000_000, "the wall clock shows {wall}, not {told}");
    }
}
