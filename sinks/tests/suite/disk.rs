//! What only the disk sink does: parts, room, files, and what lies in them.

use std::{fs, os::unix, path::Path, sync::Arc};

use codec::{
    ClockKind, EventKind, Position, SessionNs, StreamId, SubstreamId,
    atf::{DetailBody, DetailReader, EndEntry, IndexReader, LimitEntry, ThreadReader},
    heph::{Encode, Stamp},
    profile::{Clock, FunctionEvent},
};
use sinks::{DiskOptions, DiskSink, Ended, Gap, Session, Sink, disk};

use crate::{
    scene::{announce, batch, fresh_dir, function, introduction, packet, session, stamp},
    subject::{read_dir, read_manifest},
};

const NAME: &str = "20260101-000000-1";

fn started(options: DiskOptions, name: &str) -> (DiskSink, Arc<Session>) {
    let mut sink = DiskSink::open(options).expect("it opens");
    let session = session(name);
    sink.start(&session).expect("it starts");
    let packets = introduction(&session, &[0]);
    sink.options(&session, &packets).expect("it takes options");
    (sink, session)
}

fn calls(stream: u32, first: u64, count: u64) -> (u32, u64, Vec<Vec<u8>>) {
    (stream, first, (first..first + count).map(|at| packet(stamp(stream, 0, at + 1), 0)).collect())
}

fn assert_whole(dir: &Path) {
    for found in disk::verify(dir).expect("there are sessions") {
        assert_eq!(found.problems, [""; 0], "{}", found.dir.display());
    }
}

#[test]
fn a_session_goes_on_in_parts_that_are_whole_by_themselves() {
    let dir = fresh_dir("parts");
    let options = DiskOptions { rotate_bytes: Some(20_000), ..DiskOptions::new(&dir) };
    let (mut sink, session) = started(options, NAME);
    for round in 0..30 {
        sink.events(&batch(&session, &[calls(0, round * 100, 100), (7, round, vec![packet(stamp(7, 0, 1), 5)])]))
            .expect("it takes events");
        sink.flush().expect("it flushes");
    }
    let limits = vec![LimitEntry { reason: "streams".into(), count: 4, ..LimitEntry::default() }];
    let end = EndEntry { how: "exited".into(), ..EndEntry::default() };
    sink.end(&session, &Ended { end, limits: limits.clone() }).expect("it ends");
    assert_whole(&dir);
    let parts: Vec<_> = (1..)
        .map(|part| if part == 1 { dir.join(NAME) } else { dir.join(format!("{NAME}.{part}")) })
        .take_while(|path| path.exists())
        .collect();
    assert!(parts.len() > 3, "{} parts", parts.len());
    let mut written = 0;
    for (at, path) in parts.iter().enumerate() {
        let manifest = read_manifest(path);
        assert_eq!(manifest.part, Some(u32::try_from(at).expect("few") + 1));
        let last = at + 1 == parts.len();
        assert_eq!(manifest.end.map(|end| end.how).as_deref(), Some(if last { "exited" } else { "rotated" }));
        assert_eq!(manifest.limits, if last { limits.clone() } else { vec![] });
        assert!(manifest.functions.iter().any(|function| function.id == 0 && function.name == "swift_task_create"));
        assert_eq!(manifest.threads[0].first.unwrap_or(0), written);
        assert_eq!(manifest.threads[0].name.as_deref(), Some("thread 0"));
        written += manifest.threads[0].written.expect("it says");
    }
    assert_eq!(written, 3000);
    assert_eq!(sink.counters().place(NAME).as_deref(), parts.last().map(|path| &**path));
}

#[test]
fn the_oldest_finished_sessions_go_and_nothing_else() {
    let dir = fresh_dir("room");
    let elsewhere = fresh_dir("elsewhere");
    fs::create_dir_all(dir.join("20200101-000000-9")).expect("made");
    fs::write(dir.join("20200101-000000-9/notes"), vec![0; 50_000]).expect("written");
    fs::create_dir_all(dir.join("mine")).expect("made");
    fs::create_dir_all(&elsewhere).expect("made");
    let (mut sink, session) = started(DiskOptions::new(&elsewhere), "20200101-000000-8");
    sink.end(&session, &Ended::default()).expect("it ends");
    unix::fs::symlink(elsewhere.join("20200101-000000-8"), dir.join("20200101-000000-8")).expect("linked");
    let (mut sink, old) = started(DiskOptions::new(&dir), "20250101-000000-1");
    sink.end(&old, &Ended::default()).expect("it ends");

    let max_bytes = 100_000;
    let options = DiskOptions { max_bytes: Some(max_bytes), ..DiskOptions::new(&dir) };
    let (mut sink, session) = started(options, NAME);
    for round in 0..100 {
        sink.events(&batch(&session, &[calls(0, round * 100, 100)])).expect("it takes events");
        sink.flush().expect("it flushes");
        let held: u64 = disk::verify(&dir)
            .expect("there are some")
            .iter()
            .filter(|found| !found.dir.ends_with("20200101-000000-9"))
            .map(|found| size(&found.dir))
            .sum();
        assert!(held <= max_bytes + 2 * 3300, "{held} bytes after round {round}");
    }
    assert!(!dir.join("20250101-000000-1").exists(), "the oldest went first");
    assert!(!dir.join(NAME).exists());
    assert!(dir.join("20200101-000000-9/notes").exists() && dir.join("mine").exists());
    assert!(elsewhere.join("20200101-000000-8/manifest.json").exists());
    let counters = sink.counters();
    assert!(counters.removed_sessions.get() >= 9 && counters.removed_bytes.get() > 200_000);
    sink.end(&session, &Ended::default()).expect("it ends");
    let last = counters.place(NAME).expect("it was written");
    let removed = read_manifest(&last).extra["removed_parts"].as_array().expect("a list").clone();
    assert!(
        removed.contains(&NAME.into()) && removed.len() as u64 == counters.removed_sessions.get() - 1,
        "{removed:?}"
    );
}

fn size(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).expect("it is there").flatten();
    entries
        .map(|entry| if entry.path().is_dir() { size(&entry.path()) } else { entry.metadata().expect("data").len() })
        .sum()
}

#[test]
fn a_directory_that_is_there_is_left_alone() {
    let dir = fresh_dir("taken");
    fs::create_dir_all(dir.join(NAME)).expect("made");
    let (mut sink, session) = started(DiskOptions::new(&dir), NAME);
    sink.events(&batch(&session, &[calls(0, 0, 3)])).expect("it takes events");
    sink.end(&session, &Ended::default()).expect("it ends");
    assert_eq!(fs::read_dir(dir.join(NAME)).expect("it is there").count(), 0);
    assert_whole(&dir.join(format!("{NAME}-2")));
}

#[test]
fn a_thousand_threads_need_few_files_at_a_time() {
    let dir = fresh_dir("threads");
    let (mut sink, session) = started(DiskOptions { open_threads: 3, ..DiskOptions::new(&dir) }, NAME);
    for round in 0..4 {
        let runs: Vec<_> = (0..1000).map(|stream| calls(stream, round * 5, 5)).collect();
        sink.events(&batch(&session, &runs)).expect("it takes events");
        sink.flush().expect("it flushes");
        let open = fs::read_dir("/proc/self/fd").map_or(0, |entries| {
            let targets = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
            targets.filter(|target| target.starts_with(&dir) && target.ends_with("index.atf")).count()
        });
        assert!(open <= 3, "{open} files are open");
    }
    sink.end(&session, &Ended::default()).expect("it ends");
    assert_whole(&dir);
    let story = read_dir(&dir, &[NAME]);
    assert_eq!(story.0.len(), 1000);
    assert!(story.0.values().all(|items| items.len() == 20));
}

#[test]
fn what_an_index_event_cannot_say_is_in_its_details() {
    let dir = fresh_dir("details");
    let (mut sink, session) = started(DiskOptions::new(&dir), NAME);
    let at = |start, end| Stamp { start: SessionNs(start), end: SessionNs(end), ..stamp(0, 0, 0) };
    let on = |stamp: Stamp, task| Stamp { substream: SubstreamId(task), ..stamp };
    let (call, back) = (EventKind::Call, EventKind::Return);
    let events: [(FunctionEvent<'_>, Option<(u64, u64)>); 9] = [
        (function(at(1, 1), call, 0), None),
        (function(at(2, 2), call, 1), None),
        (function(at(2, 3), back, 1), None),
        (function(at(0, 4), back, 1), Some((0, 0))),
        (function(on(at(5, 5), 9), call, 1), Some((9, 5))),
        (function(on(at(5, 6), 9), EventKind::Exception, 1), None),
        (function(at(1, 7), back, 0), Some((0, 1))),
        (function(at(8, 8), call, u32::MAX), None),
        (function(at(8, 9), back, u32::MAX), Some((0, 8))),
    ];
    let packets = events.iter().map(|(event, _)| {
        let mut packet = Vec::new();
        event.encode(&mut packet).expect("it can be written");
        packet
    });
    sink.events(&batch(&session, &[(0, 0, packets.collect())])).expect("it takes events");
    sink.events(&batch(&session, &[(0, 9, vec![packet(stamp(0, 0, 10), 7), packet(stamp(0, 0, 11), 4)])]))
        .expect("too");
    sink.end(&session, &Ended::default()).expect("it ends");
    assert_whole(&dir);
    let index = fs::read(dir.join(NAME).join("thread_0/index.atf")).expect("it is there");
    let detail = fs::read(dir.join(NAME).join("thread_0/detail.atf")).expect("it is there");
    let index = IndexReader::open(&index).expect("it is one");
    assert_eq!((index.origin().clock, index.origin().thread), (ClockKind::Boottime, 100));
    let thread = ThreadReader { index, detail: Some(DetailReader::open(&detail).expect("it is one")) };
    for (sequence, (event, expected)) in (0..).zip(&events) {
        let contexts: Vec<_> = thread.details_of(sequence).map(|detail| detail.expect("whole").body).collect();
        let found = contexts.first().map(|body| match body {
            DetailBody::Context(context) => (context.substream.0, context.start.0 - crate::scene::ZERO_NS),
            other => panic!("{other:?}"),
        });
        assert_eq!(found, *expected, "event {sequence}: {event:?}");
    }
    let keys = thread.details_of(9).next().expect("it has details").expect("whole").body;
    let DetailBody::Keys(keys) = keys else { panic!("{keys:?}") };
    assert_eq!((keys.attributes.find_u64("ip"), keys.attributes.find_u64("u")), (Some(5), Some(u64::MAX)));
    let manifest = read_manifest(&dir.join(NAME));
    let by_address = index.get(10).expect("it is there").expect("whole").function;
    let named = manifest.functions.iter().find(|function| function.id == by_address.0).expect("it is listed");
    assert_eq!((named.name.as_str(), named.offset), ("0x4d", 77));
}

#[test]
fn a_clock_that_comes_late_moves_no_timestamp() {
    let dir = fresh_dir("clock");
    let mut sink = DiskSink::open(DiskOptions::new(&dir)).expect("it opens");
    let session = session(NAME);
    sink.start(&session).expect("it starts");
    sink.events(&batch(&session, &[calls(0, 0, 1)])).expect("it takes events");
    let late = announce(&session, &[Clock { clock: ClockKind::Boottime, zero_ns: 500 }.into()]);
    sink.options(&session, &late).expect("it takes options");
    sink.events(&batch(&session, &[calls(0, 1, 1)])).expect("it takes events");
    sink.end(&session, &Ended::default()).expect("it ends");
    assert_whole(&dir);
    let manifest = read_manifest(&dir.join(NAME));
    assert_eq!((manifest.time_start_ns, manifest.time_end_ns), (1, 2));
    assert_eq!((manifest.clock, manifest.clock_zero_ns), (None, Some(0)));
    assert_eq!(manifest.extra["late_clock_zero_ns"], 500);
}

#[test]
fn what_breaks_the_contract_is_accounted_for_all_the_same() {
    let dir = fresh_dir("breach");
    let (mut sink, session) = started(DiskOptions::new(&dir), NAME);
    let mut lying = batch(&session, &[calls(0, 0, 2), calls(1, 0, 1), calls(0, 9, 1), calls(0, 5, 1)]);
    Arc::get_mut(&mut lying).expect("only one").runs[1].events = 4;
    sink.events(&lying).expect("it takes what there is");
    let beyond =
        Gap { stream: StreamId(1), first: Position(u64::MAX - 1), count: u64::MAX, cause: "x".repeat(9999).into() };
    sink.gap(&session, &beyond).expect("it takes gaps");
    sink.gap(&session, &beyond).expect("it takes gaps");
    sink.events(&batch(&session, &[(1, u64::MAX, calls(1, 0, 3).2)])).expect("it takes events");
    sink.end(&session, &Ended::default()).expect("it ends");
    assert_whole(&dir);
    let manifest = read_manifest(&dir.join(NAME));
    let gaps: Vec<_> = manifest.gaps.iter().map(|gap| (gap.thread, gap.first, gap.cause.as_str())).collect();
    let unaccounted = "collector:unaccounted";
    assert_eq!(gaps, [(0, 2, unaccounted), (1, 1, "collector:undecodable"), (1, 4, unaccounted)]);
    assert_eq!(manifest.threads.iter().filter_map(|thread| thread.written).collect::<Vec<_>>(), [3, 4]);
}

#[test]
fn verify_sees_what_was_changed() {
    let dir = fresh_dir("verify");
    let (mut sink, session) = started(DiskOptions::new(&dir), NAME);
    sink.events(&batch(&session, &[(0, 0, (0..9).map(|n| packet(stamp(0, 0, 5), n)).collect())])).expect("taken");
    sink.flush().expect("it flushes");
    let found = disk::verify(&dir).expect("it is there");
    assert!(found[0].problems[0].contains("repair"), "{found:?}");
    sink.end(&session, &Ended::default()).expect("it ends");
    assert_whole(&dir);
    let whole = dir.join(NAME);
    let problems = || disk::verify(&whole).expect("it is there").remove(0).problems;
    let spoil = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let path = whole.join(name);
        let before = fs::read(&path).expect("it is there");
        let mut after = before.clone();
        change(&mut after);
        fs::write(&path, after).expect("written");
        let problems = problems();
        fs::write(&path, before).expect("written");
        assert!(!problems.is_empty(), "{name}");
    };
    spoil("thread_0/index.atf", &|file| file[64 + 9] ^= 1);
    spoil("thread_0/index.atf", &|file| file.truncate(file.len() - 1));
    spoil("thread_0/detail.atf", &|file| file[64 + 30] ^= 1);
    spoil("manifest.json", &|file| file.truncate(9));
    let changed = |from: &'static str, to: &'static str| {
        move |file: &mut Vec<u8>| {
            let text = String::from_utf8(file.clone()).expect("text");
            assert!(text.contains(from));
            *file = text.replacen(from, to, 1).into_bytes();
        }
    };
    spoil("manifest.json", &changed("\"written\":9", "\"written\":8"));
    spoil("manifest.json", &changed("\"has_detail\":true", "\"has_detail\":false"));
    spoil("manifest.json", &changed("\"time_end_ns\": 1000005", "\"time_end_ns\": 1000004"));
    fs::create_dir(whole.join("thread_77")).expect("made");
    assert_eq!(problems().len(), 1);
}

/// What lies in the detail file for an event that is in a gap is no detail of one that is there.
#[test]
fn verify_counts_events_with_details() {
    let dir = fresh_dir("details");
    let (mut sink, session) = started(DiskOptions::new(&dir), NAME);
    // One of each kind: with registers, and with keys.
    let packets: Vec<_> = (0..9).map(|variety| packet(stamp(0, 0, 5), variety)).collect();
    sink.events(&batch(&session, &[(0, 0, packets)])).expect("it takes events");
    let gap = Gap { stream: StreamId(0), first: Position(9), count: 3, cause: "network".into() };
    sink.gap(&session, &gap).expect("it takes gaps");
    // A return whose call is in the gap, so that its start has to be told.
    let left = Stamp { start: SessionNs(7), ..stamp(0, 0, 9) };
    let mut packet = Vec::new();
    function(left, EventKind::Return, 40).encode(&mut packet).expect("it can be written");
    sink.events(&batch(&session, &[(0, 12, vec![packet])])).expect("it takes events");
    sink.end(&session, &Ended::default()).expect("it ends");
    let found = disk::verify(&dir).expect("it is there").remove(0);
    let thread = dir.join(NAME).join("thread_0");
    let [index, detail] = ["index.atf", "detail.atf"].map(|name| fs::read(thread.join(name)).expect("it is there"));
    let (index, detail) = (IndexReader::open(&index).expect("whole"), DetailReader::open(&detail).expect("whole"));
    let reader = ThreadReader { index, detail: Some(detail) };
    let has_details = |sequence: &u32| {
        let mut bodies = reader.details_of(*sequence).map(|detail| detail.expect("whole").body);
        bodies.any(|body| !matches!(body, DetailBody::Context(_)))
    };
    let with_details = (0..10).filter(has_details).count() as u64;
    assert_eq!((found.problems, found.events, found.details), (Vec::new(), 10, with_details));
    assert!(found.contexts > 0 && with_details < 10, "{} contexts, {with_details} details", found.contexts);
}

#[test]
fn options_remove_nobody_s_finished_session() {
    let dir = fresh_dir("options");
    let max_bytes = 400_000;
    for number in 1..=2 {
        let (mut sink, session) = started(DiskOptions::new(&dir), &format!("20250101-000000-{number}"));
        sink.events(&batch(&session, &[calls(0, 0, 4000)])).expect("it takes events");
        sink.end(&session, &Ended::default()).expect("it ends");
    }
    let options = DiskOptions { max_bytes: Some(max_bytes), ..DiskOptions::new(&dir) };
    let (mut sink, session) = started(options, NAME);
    let queue = |id| announce(&session, &[codec::profile::Queue { id, label: "a queue" }.into()]);
    let journal = || fs::metadata(dir.join(NAME).join("journal.heph")).expect("it is there").len();
    for _ in 0..20_000 {
        sink.options(&session, &queue(1)).expect("it takes options");
    }
    sink.flush().expect("it flushes");
    assert!(journal() < 2000, "what is repeated is there once");
    for id in 0..40_000 {
        sink.options(&session, &queue(id)).expect("it takes options");
        if id % 1000 == 0 {
            sink.flush().expect("it flushes");
        }
    }
    sink.flush().expect("it flushes");
    assert!(journal() > max_bytes / 5 && journal() <= max_bytes / 4 + 2000, "{} bytes", journal());
    let gap = Gap { stream: StreamId(0), first: Position(0), count: 1, cause: "network".into() };
    let before = journal();
    sink.gap(&session, &gap).expect("it takes gaps");
    sink.flush().expect("it flushes");
    assert!(journal() > before, "gaps are noted all the same");
    assert!((1..=2).all(|number| dir.join(format!("20250101-000000-{number}/manifest.json")).exists()));
}
