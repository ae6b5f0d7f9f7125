//! How well the calls that were followed stand for those that were only counted.

use codec::SessionNs;

use crate::{spread::student, turned_down::Changes};

/// The calls of a function that was turned down, by the burst in which they were followed.
#[derive(Debug, Clone, Default)]
pub struct Bursts {
    changes: Changes,
    /// How many calls began in each burst, and how long they took together.
    sums: Vec<(u64, u64)>,
}

impl Bursts {
    /// No calls yet.
    pub fn new(changes: Changes) -> Self {
        let sums = vec![(0, 0); changes.bursts.len() + 1];
        Self { changes, sums }
    }

    /// Whether it was off at times.
    pub fn was_off(&self) -> bool {
        self.changes.was_off
    }

    /// Adds a call that was followed.
    pub fn add(&mut self, start: SessionNs, took: u64) {
        let burst = self.changes.bursts.partition_point(|began| *began <= start);
        if let Some((calls, ns)) = self.sums.get_mut(burst) {
            *calls = calls.saturating_add(1);
            *ns = ns.saturating_add(took);
        }
    }

    /// By which part the mean time of a call may be wrong, in nineteen cases of twenty: calls of a burst are like each other, so
    /// what counts is how bursts differ. None where there is only one.
    pub fn error(&self) -> Option<f64> {
        let seen = || self.sums.iter().filter(|(calls, _)| *calls > 0).map(|(calls, ns)| (*calls as f64, *ns as f64));
        let (bursts, calls, ns) =
            seen().fold((0_usize, 0.0, 0.0), |(bursts, calls, ns), burst| (bursts + 1, calls + burst.0, ns + burst.1));
        if bursts < 2 || ns == 0.0 {
            return None;
        }
        let mean = ns / calls;
        let spread: f64 = seen().map(|(calls, ns)| (ns - mean * calls).powi(2)).sum();
        let variance = spread * bursts as f64 / (bursts - 1) as f64;
        Some(student((bursts - 1) as f64) * variance.sqrt() / ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::Random;

    #[test]
    fn the_mean_of_all_calls_is_within_the_error_nearly_always() {
        for bursts in [2, 4, 8, 30] {
            let mut random = Random(bursts);
            let mut part = || random.below(1 << 20) as f64 / (1 << 20) as f64;
            let mut within = 0;
            for _ in 0..1000 {
                let began: Vec<_> = (1..bursts).map(|burst| SessionNs(burst * 1000)).collect();
                let mut found = Bursts::new(Changes { bursts: began, was_off: false });
                let (mut all, mut calls, mut followed, mut followed_calls) = (0.0, 0.0, 0.0, 0.0);
                // Each phase of the program has its own mean, and only a fortieth part of its calls is followed.
                for burst in 0..bursts {
                    let slow = 500.0 + 400.0 * (part() + part() + part());
                    for number in 0..400 {
                        let took = slow * (0.5 + part());
                        (all, calls) = (all + took, calls + 1.0);
                        if number < 10 {
                            found.add(SessionNs(burst * 1000 + number), took as u64);
                            (followed, followed_calls) = (followed + took, followed_calls + 1.0);
                        }
                    }
                }
                let (truth, estimate): (f64, f64) = (all / calls, followed / followed_calls);
                let error = found.error().expect("several bursts");
                within += u32::from((estimate - truth).abs() <= error * estimate);
            }
            assert!(within >= 930, "{bursts} bursts: {within} of 1000");
        }
    }

    #[test]
    fn one_burst_has_no_error_and_those_that_are_alike_have_none_to_speak_of() {
        let mut bursts = Bursts::new(Changes { bursts: vec![SessionNs(100)], was_off: true });
        bursts.add(SessionNs(5), 40);
        assert_eq!((bursts.error(), bursts.was_off()), (None, true));
        bursts.add(SessionNs(100), 40);
        assert_eq!(bursts.error(), Some(0.0));
    }
}
