//! Sending only what is asked for.

use std::collections::BTreeMap;

use tests::{Run, Trace, Traced, collector, counts};

/// Threads, items of each, quick calls of an item, and after how many there is a slow one: as the program has them.
const THREADS: u64 = 3;
const ITEMS: u64 = 3_000;
const QUICK: u64 = 5;
const SLOWS: u64 = THREADS * ITEMS / 500;

#[track_caller]
fn phases(options: &[&str]) -> Traced {
    let traced = Run::target("phases").with(options).trace();
    traced.same_behaviour().nothing_lost().times_rise();
    traced
}

fn calls(trace: &Trace, name: &str) -> u64 {
    counts::of_functions(trace, name).calls
}

/// How many events a session has that are told to have been left out, for this reason.
fn left_out(trace: &Trace, reason: &str) -> u64 {
    trace.manifest.limits.iter().filter(|limit| limit.reason == reason).map(|limit| limit.count).sum()
}

#[test]
fn calls_that_take_too_little_time_are_counted_and_the_others_are_there_with_their_callers() {
    for options in [&["--engine", "native"][..], &["--engine", "frida"], &["--engine", "native", "--no-detail"]] {
        let traced = phases(&[options, &["--slower-than", "10ms"]].concat());
        let trace = &traced.trace;
        assert_eq!(calls(trace, "slow"), SLOWS);
        assert_eq!(calls(trace, "phase"), THREADS);
        // Each slow call has its callers; a busy machine may make some others slow.
        let items = calls(trace, "item");
        assert!((SLOWS..SLOWS + 300).contains(&items), "{items} items");
        let rows = rows(&traced);
        for (name, expected) in [("quick", THREADS * ITEMS * QUICK + SLOWS), ("item", THREADS * ITEMS)] {
            let row = &rows[name];
            let number = |field: &str| row[field].as_u64().expect("a number");
            assert_eq!(number("count") + number("brief"), expected, "{name}: {row}");
            assert!(number("brief_ns") > 0 && number("brief_ns") < 10_000_000 * number("brief"), "{name}: {row}");
        }
        assert!(left_out(trace, "brief") >= THREADS * ITEMS * QUICK - 300);
    }
}

/// What `top` says, by function.
fn rows(traced: &Traced) -> BTreeMap<String, serde_json::Value> {
    let top = collector::run_on("top", &traced.trace.folder, &["--json", "--limit", "100000"]).success();
    let text = String::from_utf8(top.stdout).expect("text");
    let row = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("an object");
    text.lines().map(row).map(|row| (row["function"].as_str().expect("a name").to_owned(), row)).collect()
}

#[test]
fn only_what_runs_inside_of_a_function_is_sent() {
    for engine in ["native", "frida"] {
        let traced = phases(&["--around", "slow", "--engine", engine]);
        let trace = &traced.trace;
        assert_eq!((calls(trace, "slow"), calls(trace, "quick"), calls(trace, "item")), (SLOWS, SLOWS, 0));
        assert!(left_out(trace, "left-out") > 2 * THREADS * ITEMS * QUICK);
        let top = collector::run_on("top", &trace.folder, &[]).success();
        assert!(top.text().contains(" events were left out that were not asked for: "), "{}", top.text());
    }
}

/// Each of the threads starts and stops it, at times of its own.
#[test]
fn sending_starts_and_stops_with_a_call() {
    let traced = phases(&["--start-on", "item:arg1=1000", "--stop-on", "item:arg1=1200", "--engine", "native"]);
    let items = calls(&traced.trace, "item");
    assert!((200..THREADS * ITEMS / 2).contains(&items), "{items} items");
    let time = Run::target("phases").with(&["--start-on", "time:1h"]).trace();
    time.same_behaviour();
    assert_eq!((time.trace.len(), time.trace.manifest.gaps.len()), (0, 0));
    assert!(time.traced.stderr.contains("nothing was seen that starts sending"), "{}", time.traced.stderr);
    let until = phases(&["--stop-on", "slow"]);
    assert_eq!(calls(&until.trace, "slow"), 1);
}

#[test]
fn what_came_before_and_after_a_slow_call_is_sent() {
    let traced = phases(&["--keep", "5ms", "--start-on", "slow>19ms"]);
    let trace = &traced.trace;
    let slow = counts::of_functions(trace, "slow");
    // The call itself was longer ago than what is kept.
    assert!((1..=SLOWS).contains(&slow.returns) && calls(trace, "item") > 0, "{slow:?}");
    assert!(left_out(trace, "left-out") > 0);
}

#[test]
fn the_last_seconds_of_a_program_that_crashes_are_complete() {
    for engine in ["native", "frida"] {
        let run = Run::target("phases").arguments(&["crash"]).with(&["--keep", "60s", "--engine", engine]);
        let traced = run.trace();
        traced.same_behaviour().nothing_lost();
        assert_eq!(calls(&traced.trace, "item"), THREADS * ITEMS);
        assert_eq!((calls(&traced.trace, "last_words"), left_out(&traced.trace, "left-out")), (1, 0));
        let short = Run::target("phases").arguments(&["crash"]).with(&["--keep", "1ms", "--engine", engine]).trace();
        short.same_behaviour().nothing_lost();
        assert_eq!(calls(&short.trace, "last_words"), 1);
        assert!(left_out(&short.trace, "left-out") > 0);
    }
}

/// The newest stay. Each call has more than 200 bytes.
#[test]
fn no_more_is_kept_than_there_is_memory_for() {
    for (keep, is_said) in [("1h,1MiB", true), ("1MiB", false)] {
        let run = Run::target("phases").arguments(&["crash"]).with(&["--keep", keep, "--engine", "native"]);
        let traced = run.trace();
        traced.same_behaviour().nothing_lost();
        let kept = traced.trace.len() as u64;
        assert_eq!(calls(&traced.trace, "last_words"), 1);
        assert!(kept < 10_000 && left_out(&traced.trace, "left-out") > THREADS * ITEMS, "{kept} events");
        // Where a time was asked for, that is less than that.
        let stderr = &traced.traced.stderr;
        assert_eq!(stderr.contains("s of what --keep was to keep are missing"), is_said, "{stderr}");
        assert_eq!(stderr.contains("nothing lost"), !is_said, "{stderr}");
        assert_eq!(left_out(&traced.trace, "not-kept") > 0, is_said);
    }
}
