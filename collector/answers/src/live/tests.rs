use codec::{
    Arch, ClockKind, ClockNs, EventKind, FunctionId, ModuleId, Os,
    atf::{IndexEvent, Origin, ThreadWriter},
};

use sinks::Sink;

use super::{tally::Bucket, *};
use crate::{
    overview::tests::event,
    scene::{Random, Scene},
};

const SECOND: u64 = 1_000_000_000;

fn function(index: u32) -> FunctionId {
    FunctionId::new(ModuleId(1), index)
}

/// A thread that calls function 1 in function 0 ten times a second, for half the time each, and never returns from that.
fn events(seconds: u64) -> Vec<IndexEvent> {
    let event = |at, index, kind, depth| IndexEvent {
        timestamp: ClockNs(at),
        function: function(index),
        thread: 0,
        kind,
        depth,
        detail: None,
    };
    let mut events = vec![event(0, 0, EventKind::Call, 0)];
    for turn in 0..seconds * 10 {
        let at = turn * SECOND / 10;
        events.push(event(at, 1, EventKind::Call, 1));
        events.push(event(at + SECOND / 20, 1, EventKind::Return, 1));
    }
    events
}

fn index_of(name: &str, events: &[IndexEvent]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("spoor-live-{name}-{}", std::process::id()));
    let origin = Origin { arch: Arch::X86_64, os: Os::Linux, clock: ClockKind::Boottime, thread: 0 };
    let mut writer = ThreadWriter::new(origin);
    events.iter().for_each(|event| _ = writer.append(event, &[]).expect("there is room"));
    let (mut index, _) = writer.seal();
    index.write_to(&mut fs::File::create(&path).expect("made")).expect("written");
    path
}

#[test]
fn only_the_last_seconds_count_and_what_was_open_is_known() {
    let all = events(100);
    let path = index_of("tail", &all);
    let count = all.len() as u64;
    let mut tally = Tally::default();
    let mut tail = Tail::open(&path, count, 98 * SECOND).expect("it can be read");
    let bucket = tally.begin(98 * SECOND);
    assert!(!tail.read(&path, count, u64::MAX, None, bucket).expect("it can be read"));
    tail.settle(100 * SECOND, bucket);
    assert_eq!(bucket.events, 40, "two seconds of a hundred");
    assert_eq!(*bucket.of(function(1)), Numbers { calls: 20, total_ns: SECOND, self_ns: SECOND });
    assert_eq!(*bucket.of(function(0)), Numbers { calls: 0, total_ns: 2 * SECOND, self_ns: SECOND });
    tally.end(100 * SECOND, 2 * SECOND);
    let (sum, span) = tally.sum();
    assert_eq!((sum.events, span), (40, 2 * SECOND));
    // Nothing comes any more: what is open goes on, and what is old goes.
    let bucket = tally.begin(0);
    tail.read(&path, count, u64::MAX, None, bucket).expect("it can be read");
    tail.settle(103 * SECOND, bucket);
    tally.end(103 * SECOND, 2 * SECOND);
    let (mut sum, span) = tally.sum();
    assert_eq!((sum.events, span), (0, 3 * SECOND));
    assert_eq!(*sum.of(function(0)), Numbers { calls: 0, total_ns: 3 * SECOND, self_ns: 3 * SECOND });
    fs::remove_file(path).expect("it is there");
}

#[test]
fn where_events_are_missing_depths_tell_what_is_open() {
    // Of the calls of function 1, every third event is lost.
    let all: Vec<_> = (0..).zip(events(10)).filter(|(number, _)| number % 3 != 1).map(|(_, event)| event).collect();
    let path = index_of("lossy", &all);
    let mut tail = Tail::open(&path, all.len() as u64, 0).expect("it can be read");
    let mut bucket = Bucket::default();
    tail.read(&path, all.len() as u64, u64::MAX, None, &mut bucket).expect("it can be read");
    let (inner, outer) = (*bucket.of(function(1)), *bucket.of(function(0)));
    assert!(inner.calls <= 100 && inner.total_ns <= 5 * SECOND && inner.self_ns <= 5 * SECOND, "{inner:?}");
    assert!(inner.total_ns > SECOND && outer.self_ns <= 5 * SECOND && outer.total_ns <= 10 * SECOND, "{outer:?}");
    fs::remove_file(path).expect("it is there");
}

#[test]
fn what_is_told_of_the_last_seconds_is_of_no_more_than_those() {
    let mut random = Random(3);
    let mut scene = Scene::new();
    let mut write = |seconds: std::ops::Range<u64>| {
        for second in seconds {
            for turn in 0..100 {
                let start = second * SECOND + turn * SECOND / 100 + random.below(1_000);
                scene.send(0, event(EventKind::Call, 1, 0, (start, start)));
                scene.send(0, event(EventKind::Return, 1, 0, (start, start + SECOND / 200)));
            }
        }
        scene.sink.flush().expect("written");
        scene.folder()
    };
    let dir = write(0..20);
    let (mut live, now) = (Live::open(&dir, &Wanted::default(), 5 * SECOND).expect("it is there"), Instant::now());
    for second in 20..30 {
        let seen = live.look(now).expect("it can be read");
        let least = 5 * SECOND - SECOND / 10;
        assert!((least..=6 * SECOND + SECOND / 2).contains(&seen.span_ns), "{} ns at {second} s", seen.span_ns);
        assert!((980..=1_300).contains(&seen.events), "{} events at {second} s", seen.events);
        write(second..second + 1);
    }
}
