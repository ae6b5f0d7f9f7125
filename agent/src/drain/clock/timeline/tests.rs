//! A line that follows a clock which drifts, jitters and sleeps.

use quickcheck::quickcheck;

use super::*;

/// A counter of three gigahertz, and a clock beside it.
const COUNTS_PER_MS: u64 = 3_000_000;

/// What both show after so many milliseconds, with the clock fast by so many parts in a million.
fn at(ms: u64, ppm: i64) -> Sample {
    let ns = (ms * 1_000_000) as i128;
    Sample { counter: 5_000 + ms * COUNTS_PER_MS, ns: 77_000 + (ns + ns * i128::from(ppm) / 1_000_000) as u64 }
}

fn line(ppm: i64) -> Timeline {
    Timeline::new(at(0, ppm), at(4, ppm))
}

/// Fails unless the line never goes back between two counts, looked at closely.
fn is_monotonic(line: &Timeline, from: u64, to: u64) {
    let mut last = 0;
    let mut counters: Vec<_> = (0..4_000).map(|step| from + (to - from) / 4_000 * step).collect();
    for piece in line.before.iter().chain([&line.last]) {
        counters.extend((0..40).map(|near| (piece.counter + near).saturating_sub(20)));
    }
    counters.sort_unstable();
    for counter in counters {
        let ns = line.at(counter);
        assert!(ns >= last, "{counter}: from {last} back to {ns}");
        last = ns;
    }
}

#[test]
fn a_steady_clock_is_followed_to_the_nanosecond() {
    let mut line = line(0);
    for ms in [20, 100, 400, 1_400, 2_400] {
        line.add(at(ms, 0));
    }
    for ms in 0..5_000 {
        assert!(line.at(at(ms, 0).counter).abs_diff(ms * 1_000_000) <= 2, "{ms} ms");
    }
    assert_eq!(line.at(0), 0, "nothing is before the zero");
    is_monotonic(&line, 0, at(5_000, 0).counter);
}

#[test]
fn drift_is_caught_up_with() {
    // The rate was measured badly at first: by a hundred parts in a million.
    for ppm in [-100, 100] {
        let mut line = Timeline::new(at(0, 0), at(4, 0));
        let mut worst = 0;
        for second in 1..60 {
            let now = at(second * 1_000, ppm);
            worst = line.at(now.counter).abs_diff(now.ns - 77_000);
            line.add(now);
        }
        assert!(worst < 2_000, "{worst} ns off after a minute");
        is_monotonic(&line, 0, at(61_000, ppm).counter);
    }
}

#[test]
fn a_machine_that_slept_steps_forward() {
    let mut line = line(0);
    line.add(at(1_000, 0));
    // The counter stood still for an hour.
    let awake = Sample { ns: at(1_001, 0).ns + 3_600_000_000_000, ..at(1_001, 0) };
    line.add(awake);
    assert_eq!(line.at(awake.counter), awake.ns - 77_000);
    assert!(line.at(at(1_000, 0).counter) <= 1_000_000_002, "what was before was before");
    is_monotonic(&line, 0, at(2_000, 0).counter);
    // The rate is what it was.
    let later = line.at(at(1_101, 0).counter) - line.at(awake.counter);
    assert!(later.abs_diff(100_000_000) < 1_000, "{later}");
}

#[test]
fn a_counter_that_starts_anew_does_not_take_time_back() {
    let mut line = line(0);
    line.add(at(1_000, 0));
    let before = line.at(at(1_000, 0).counter);
    let anew = Sample { counter: 10, ns: at(9_000, 0).ns };
    line.add(anew);
    assert!(line.at(10) >= before);
    assert_eq!(line.at(10), 9_000_000_000);
    line.add(Sample { counter: 10 + 100 * COUNTS_PER_MS, ns: at(9_100, 0).ns });
    assert!(line.at(10 + 50 * COUNTS_PER_MS).abs_diff(9_050_000_000) < 1_000);
}

#[test]
fn only_so_many_pieces_are_kept() {
    let mut line = line(0);
    (1..10_000).for_each(|ms| line.add(at(10 * ms, 0)));
    assert!(line.before.len() < MOST_PIECES && line.samples.len() <= BASELINE);
    assert!(line.at(at(10, 0).counter).abs_diff(10_000_000) < 10_000, "what is older is not far off");
    is_monotonic(&line, 0, at(100_000, 0).counter);
}

quickcheck! {
    fn it_never_goes_back(ppm: i16, jitters: Vec<i16>) -> bool {
        let mut line = line(ppm.into());
        for (ms, jitter) in (1..).zip(&jitters) {
            let sample = at(300 * ms, ppm.into());
            line.add(Sample { ns: sample.ns.saturating_add_signed(i64::from(*jitter) * 100), ..sample });
        }
        is_monotonic(&line, 0, at(300 * (jitters.len() as u64 + 2), 0).counter);
        // A clock that is read a few milliseconds wrong is followed no further off than that.
        let end = at(300 * (jitters.len() as u64 + 1), ppm.into());
        line.at(end.counter).abs_diff(end.ns - 77_000) < 20_000_000
    }
}
