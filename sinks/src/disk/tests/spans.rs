//! Spans, and what becomes of them when the disk is full.

use codec::span::{Reason, SpanId, SpanKind, SpanStatus, What};

use super::{
    super::spans::{LIMIT, PARTIAL, SPANS},
    *,
};
use crate::parquet::table_rows;

fn span(number: u64, status: SpanStatus) -> Span {
    let end = Some(SessionNs(u64::MAX)).filter(|_| status != SpanStatus::Open);
    Span {
        what: What::Named("work".into()),
        status,
        reason: Some(Reason::Evicted).filter(|_| status == SpanStatus::Unmatched),
        ..Span::new(SpanId::new(StreamId(0), Position(number)), SpanKind::Frame, SessionNs(mixed(number) >> 2), end)
    }
}

/// A number that looks as if nobody had chosen it: what can be foreseen takes no room in a file.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

impl Scene {
    fn spans(&mut self, numbers: std::ops::Range<u64>, status: SpanStatus) -> Result<(), SinkError> {
        let spans: Vec<_> = numbers.map(|number| span(number, status)).collect();
        self.sink.spans(&Arc::clone(&self.session), &spans)
    }
}

/// The rows of all files of spans, and what the limits say is in none.
fn found(scene: &Scene) -> (u64, u64) {
    let (mut rows, mut lost) = (0, 0);
    for found in verify(&scene.dir).expect("it is there") {
        assert_eq!(found.problems, [""; 0], "{}", found.dir.display());
        assert!(!found.dir.join(PARTIAL).exists());
        rows += found.spans;
        let manifest = scene.manifest(&found.dir.file_name().expect("a name").to_string_lossy());
        let limits = manifest.limits.iter().filter(|limit| limit.reason == LIMIT);
        lost += limits.map(|limit| limit.count).sum::<u64>();
    }
    (rows, lost)
}

#[test]
fn each_part_has_the_spans_that_were_told_while_it_went_on() {
    let mut scene = Scene::new(FOREVER, Limits::default());
    scene.sink.volume.limits.rotate_bytes = Some(10_000);
    scene.spans(0..7, SpanStatus::Matched).expect("taken");
    scene.spans(100..103, SpanStatus::Open).expect("taken");
    scene.events(1000).expect("taken");
    scene.sink.flush().expect("it flushes");
    scene.sink.flush().expect("it flushes");
    scene.events(1).expect("taken");
    // One of those that were open ends, in another part.
    scene.spans(101..102, SpanStatus::Unmatched).expect("taken");
    scene.spans(102..103, SpanStatus::Open).expect("told again");
    let session = Arc::clone(&scene.session);
    scene.sink.end(&session, &Ended::default()).expect("it ends");
    let rows = |name: &str| storage::open(&scene.dir.join(name).join(SPANS)).map(|file| table_rows(file).expect("one"));
    assert_eq!((rows(NAME).expect("a file"), rows(&format!("{NAME}.2")).expect("a file")), (7, 3));
    assert_eq!(found(&scene), (10, 0));
}

#[test]
fn a_session_without_spans_has_no_file_of_them() {
    let mut scene = Scene::new(FOREVER, Limits::default());
    scene.events(10).expect("taken");
    scene.sink.close().expect("it closes");
    assert!(!scene.dir.join(NAME).join(SPANS).exists());
    assert_eq!(found(&scene), (0, 0));
}

#[test]
fn spans_that_do_not_fit_at_the_end_are_counted_and_the_events_are_whole() {
    let mut scene = Scene::new(FOREVER, Limits::default());
    scene.keeps_room.store(true, Ordering::Relaxed);
    scene.events(1000).expect("taken");
    scene.spans(0..20_000, SpanStatus::Matched).expect("taken");
    scene.sink.flush().expect("it flushes");
    scene.set_room(100_000);
    let session = Arc::clone(&scene.session);
    scene.sink.end(&session, &Ended::default()).expect("events are finished");
    assert_eq!(found(&scene), (0, 20_000));
    assert_eq!((scene.sink.counters().lost_spans.get(), scene.sink.counters().lost_events.get()), (20_000, 0));
    assert!(!scene.dir.join(NAME).join(SPANS).exists());
}

#[test]
fn a_disk_that_is_full_for_events_takes_the_room_of_spans() {
    let mut scene = Scene::new(FOREVER, Limits::default());
    scene.keeps_room.store(true, Ordering::Relaxed);
    scene.spans(0..300_000, SpanStatus::Matched).expect("taken");
    let partial = scene.dir.join(NAME).join(PARTIAL);
    assert!(partial.exists(), "row groups are written as they come");
    scene.events(10_000).expect("taken");
    scene.set_room(0);
    assert!(scene.sink.flush().is_err());
    assert!(!partial.exists());
    assert!(scene.spans(300_000..300_010, SpanStatus::Matched).is_err(), "there is no file for them");
    scene.set_room(FOREVER);
    scene.sink.close().expect("there is room");
    assert_eq!(found(&scene), (0, 300_010));
    assert_eq!(scene.sink.counters().lost_spans.get(), 300_010);
}

#[test]
fn however_little_memory_there_is_every_span_is_in_a_file_or_counted() {
    let mut scene = Scene::new(FOREVER, Limits { span_bytes: 100_000, open_span_bytes: 5_000, ..Limits::default() });
    scene.sink.start(&Arc::clone(&scene.session)).expect("it starts");
    scene.spans(0..10_000, SpanStatus::Matched).expect("row groups end early");
    scene.set_room(0);
    let mut told = 10_000;
    while scene.spans(told..told + 1000, SpanStatus::Matched).is_ok() {
        told += 1000;
        assert!(told < 1_000_000, "nothing is refused");
    }
    told += 1000;
    assert!(scene.spans(told..told + 100, SpanStatus::Open).is_err(), "so many cannot be open");
    told += 100;
    scene.set_room(FOREVER);
    scene.sink.flush().expect("there is room");
    scene.spans(told..told + 10, SpanStatus::Matched).expect("it goes on");
    told += 10;
    scene.sink.close().expect("it closes");
    let (rows, lost) = found(&scene);
    assert_eq!((rows + lost, lost), (told, scene.sink.counters().lost_spans.get()));
    assert!(rows > 10_000 && lost > 90, "{rows} {lost}");
}

#[test]
fn what_a_killed_collector_leaves_of_spans_is_removed_by_a_repair() {
    let mut scene = Scene::new(FOREVER, Limits::default());
    scene.events(100).expect("taken");
    scene.spans(0..300_000, SpanStatus::Matched).expect("taken");
    scene.sink.flush().expect("it flushes");
    let partial = scene.dir.join(NAME).join(PARTIAL);
    assert!(partial.exists());
    assert!(room::part_bytes(&scene.dir.join(NAME)) > fs::metadata(&partial).expect("there").len());
    scene.sink = DiskSink::open(DiskOptions::new(&scene.dir)).expect("it opens");
    let outcome = repair(&scene.dir, false).expect("it is there");
    assert!(matches!(outcome[0].outcome, RepairOutcome::Repaired { events: 100.., .. }), "{outcome:?}");
    assert_eq!(found(&scene), (0, 0));
}

#[test]
fn half_a_file_of_spans_is_a_problem() {
    let mut scene = Scene::new(FOREVER, Limits::default());
    scene.spans(0..10, SpanStatus::Matched).expect("taken");
    scene.sink.close().expect("it closes");
    let path = scene.dir.join(NAME).join(SPANS);
    let whole = fs::read(&path).expect("it is there");
    fs::write(&path, &whole[..whole.len() / 2]).expect("written");
    let verified = verify(&scene.dir).expect("it is there");
    assert!(verified[0].problems.iter().any(|problem| problem.starts_with("spans.parquet: ")), "{verified:?}");
}
