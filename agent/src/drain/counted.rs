//! Calls that are no events: how many of them each thread has made.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use codec::profile::CountedCalls;

use super::{Drain, brief::Sum, ring::Ring};
use crate::ship::Shipper;

/// How often threads that go on are told of, and of how many at a time.
const EVERY: Duration = Duration::from_secs(10);
const AT_ONCE: usize = 64;

impl Drain {
    /// Tells of a thread that has ended.
    pub(super) fn tell_counted(&mut self, ring: usize, gone: &Ring, shipper: &mut Shipper) {
        let counted = self.levels.thread_ends(&self.arena, ring);
        self.counts.brief += gone.sieve.brief.sums().map(|(_, sum)| sum.count).sum::<u64>();
        self.tell_calls(gone, &counted, shipper);
    }

    /// Tells from time to time of threads that go on, so that an agent that is killed has told most.
    pub(super) fn tell_counted_so_far(&mut self, now: Instant, shipper: &mut Shipper) {
        if now.saturating_duration_since(self.counted_at) < EVERY {
            return;
        }
        self.counted_at = now;
        let (first, count) = (self.next_counted, self.rings.len());
        for place in (first..first + count.min(AT_ONCE)).map(|place| place % count) {
            let Some(ring) = self.rings[place].take() else { continue };
            let mut counted = Vec::new();
            self.arena.counted(place, |function, calls| counted.push((function, calls)));
            self.tell_calls(&ring, &counted, shipper);
            self.rings[place] = Some(ring);
        }
        self.next_counted += AT_ONCE;
    }

    fn tell_calls(&mut self, ring: &Ring, counted: &[(u32, u64)], shipper: &mut Shipper) {
        let mut calls = BTreeMap::<u32, (u64, Sum)>::new();
        for (function, count) in counted {
            calls.entry(*function).or_default().0 = *count;
        }
        for (function, sum) in ring.sieve.brief.sums() {
            calls.entry(function).or_default().1 = sum;
        }
        self.functions.copy_to(&mut self.known);
        let calls = calls.into_iter().filter_map(|(function, (count, brief))| {
            let function = *self.known.get(function as usize)?;
            Some(CountedCalls { function, count, brief: brief.count, brief_ns: brief.time_ns })
        });
        let mut calls: Vec<_> = calls.collect();
        calls.sort_unstable_by_key(|calls| calls.function);
        shipper.counted(ring.thread.stream, &calls);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::Ordering};

    use codec::{FunctionId, ModuleId, profile::EndReason};

    use super::*;
    use crate::{
        drain::{Clock, Functions, fake::FakeTarget, tests::System},
        ship::{Transport, Wire, fake::Fake},
    };

    #[test]
    fn a_thread_that_goes_on_is_told_of_and_later_numbers_take_the_place_of_earlier_ones() {
        let (target, system, functions) =
            (FakeTarget::new(8_192, 1), System::default(), Arc::new(Functions::default()));
        let mut collector = Fake::new(Wire::Runs);
        let mut shipper = collector.shipper(Transport::Udp);
        functions.add((0..40).map(|index| FunctionId::new(ModuleId(3), index)));
        let mut drain = Drain::new(Arc::clone(&target.arena), Clock::start(), functions, system.clone());
        system.start(100, "worker");
        target.thread(0, 100, "worker").call(1, 0);
        let count = |function, calls| {
            target.arena.counter(0, function).expect("a counter").fetch_add(calls, Ordering::Relaxed);
        };
        let mut turn = |drain: &mut Drain, shipper: &mut Shipper| {
            drain.turn(shipper);
            collector.settle(shipper);
            collector.got.options.clone()
        };
        count(2, 7);
        assert!(!turn(&mut drain, &mut shipper).contains_key("counted 0 0"), "it is not time yet");
        for calls in [7, 9] {
            drain.counted_at -= EVERY;
            let options = turn(&mut drain, &mut shipper);
            assert!(options["counted 0 0"].contains(&format!("count: {calls},")), "{options:?}");
            // One of another group.
            assert_eq!(options.contains_key("counted 0 2"), calls == 9);
            count(2, 2);
            count(39, 1);
        }
        drain.finish(&mut shipper, EndReason::Exited(0), Duration::ZERO);
        let options = turn(&mut drain, &mut shipper);
        assert!(options["counted 0 0"].contains("count: 11,") && options["counted 0 2"].contains("count: 2,"));
    }
}
