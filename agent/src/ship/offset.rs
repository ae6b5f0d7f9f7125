//! When the session's zero was by the collector's clock, reckoned from the way of packets there and back.

use codec::{
    SessionNs,
    profile::{Offset, Times},
};

/// By how much two clocks may drift apart: 20 ns in a millisecond.
const DRIFT: u64 = 50_000;

/// After how long it is told again although it is hardly better.
const TELL_EVERY_NS: u64 = 10_000_000_000;

/// What has been reckoned so far.
#[derive(Debug, Default)]
pub(super) struct OffsetEstimate {
    best: Option<Offset>,
    told: Option<Offset>,
}

impl OffsetEstimate {
    /// The collector has answered, and this has arrived now.
    pub(super) fn add(&mut self, times: &Times, now: SessionNs) {
        let latest = times.received_unix_ns.saturating_sub(times.echo.0);
        let earliest = times.answered_unix_ns.saturating_sub(now.0);
        // What came before it was sent, or is older than the clock, tells nothing.
        let Some(between) = latest.checked_sub(earliest).filter(|_| earliest > 0 && times.echo <= now) else { return };
        let new = Offset { zero_unix_ns: earliest + between / 2, error_ns: between.div_ceil(2), at: now };
        let is_better = self.best.is_none_or(|best| {
            let grown = best.error_ns.saturating_add(now.0.saturating_sub(best.at.0) / DRIFT);
            new.error_ns < grown || new.zero_unix_ns.abs_diff(best.zero_unix_ns) > grown.saturating_add(new.error_ns)
        });
        if is_better {
            self.best = Some(new);
        }
    }

    /// What to tell the collector, if it is much better than what was told, or the last word.
    pub(super) fn news(&mut self, is_last: bool) -> Option<Offset> {
        let best = self.best.filter(|best| self.told != Some(*best))?;
        let is_news = self.told.is_none_or(|told| {
            let is_old = best.at.0.saturating_sub(told.at.0) >= TELL_EVERY_NS;
            let contradicts = best.zero_unix_ns.abs_diff(told.zero_unix_ns) > told.error_ns;
            is_last || is_old || contradicts || best.error_ns < told.error_ns / 2
        });
        if is_news {
            self.told = Some(best);
        }
        is_news.then_some(best)
    }
}

#[cfg(test)]
mod tests {
    use codec::SessionId;

    use super::*;

    const ZERO: u64 = 1_700_000_000_000_000_000;

    /// A `progress` that was sent at a time, took so long there, waited, and took so long back.
    fn asked(estimate: &mut OffsetEstimate, zero: u64, sent: u64, there: u64, waited: u64, back: u64) {
        let received_unix_ns = zero + sent + there;
        let answered_unix_ns = received_unix_ns + waited;
        let times = Times { session: SessionId([1; 16]), echo: SessionNs(sent), received_unix_ns, answered_unix_ns };
        estimate.add(&times, SessionNs(sent + there + waited + back));
    }

    #[test]
    fn the_error_covers_the_truth_and_the_quickest_way_counts() {
        let mut estimate = OffsetEstimate::default();
        let ways = [(900, 100), (5_000_000, 10), (10, 700), (300, 300), (0, 90), (1_000_000, 1_000_000)];
        for (number, (there, back)) in (1..).zip(ways) {
            asked(&mut estimate, ZERO, number * 1_000_000, there, 20_000_000, back);
            let Offset { zero_unix_ns, error_ns, .. } = estimate.best.expect("measured");
            assert!(zero_unix_ns.abs_diff(ZERO) <= error_ns, "{zero_unix_ns} is off by more than {error_ns}");
        }
        assert_eq!(estimate.best.expect("measured").error_ns, 45);
        assert_eq!(estimate.news(false).map(|offset| offset.error_ns), Some(45));
        assert_eq!(estimate.news(true), None, "it has been told");
    }

    #[test]
    fn an_old_measurement_gives_way_and_a_clock_that_was_set_is_noticed() {
        let mut estimate = OffsetEstimate::default();
        asked(&mut estimate, ZERO, 1_000, 100, 0, 100);
        // An hour later the error has grown by 72 ms.
        asked(&mut estimate, ZERO + 30_000_000, 3_600_000_000_000, 40_000_000, 0, 40_000_000);
        assert_eq!(estimate.best.expect("measured").error_ns, 40_000_000);
        asked(&mut estimate, ZERO - 5_000_000_000, 3_600_100_000_000, 90_000_000, 0, 90_000_000);
        assert!(estimate.best.expect("measured").zero_unix_ns.abs_diff(ZERO - 5_000_000_000) <= 90_000_000);
    }

    #[test]
    fn what_cannot_be_is_left_out() {
        let mut estimate = OffsetEstimate::default();
        let times = |echo, received_unix_ns, answered_unix_ns| Times {
            session: SessionId([1; 16]),
            echo: SessionNs(echo),
            received_unix_ns,
            answered_unix_ns,
        };
        estimate.add(&times(10, ZERO, ZERO + 100), SessionNs(20));
        estimate.add(&times(30, ZERO, ZERO), SessionNs(20));
        estimate.add(&times(0, u64::MAX, 0), SessionNs(0));
        assert_eq!(estimate.best, None);
    }
}
