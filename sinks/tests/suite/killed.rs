//! A collector that is killed, and the repair of what it left.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    path::Path,
    sync::Arc,
};

use codec::{
    Position, StreamId,
    atf::{Manifest, ThreadEntry},
};
use quickcheck::{QuickCheck, TestResult};
use sinks::{
    DiskOptions, DiskSink, Gap, Session, Sink,
    disk::{self, RepairOutcome},
};

use crate::{
    scene::{batch, fresh_dir, introduction, packet, session, stamp},
    subject::{Item, read_dir, read_manifest},
};

const NAME: &str = "20260101-000000-1";

/// A session on disk with a few events of every kind, flushed, and then the collector is gone.
fn killed(dir: &Path) -> Arc<Session> {
    let mut sink = DiskSink::open(DiskOptions::new(dir)).expect("it opens");
    let session = session(NAME);
    sink.start(&session).expect("it starts");
    let packets = introduction(&session, &[0]);
    sink.options(&session, &packets).expect("it takes options");
    for round in 0..10 {
        let packets = (0..9).map(|variety| packet(stamp(0, 0, round * 9 + u64::from(variety) + 1), variety)).collect();
        sink.events(&batch(&session, &[(0, round * 10, packets)])).expect("it takes events");
        let gap = Gap { stream: StreamId(0), first: Position(round * 10 + 9), count: 1, cause: "network".into() };
        sink.gap(&session, &gap).expect("it takes gaps");
    }
    sink.flush().expect("it flushes");
    session
}

fn only(outcomes: Vec<disk::Repaired>) -> RepairOutcome {
    assert_eq!(outcomes.len(), 1);
    outcomes.into_iter().next().expect("one").outcome
}

fn problems(dir: &Path) -> Vec<String> {
    disk::verify(dir).expect("it is there").into_iter().flat_map(|found| found.problems).collect()
}

#[test]
fn what_was_flushed_is_there_after_a_repair() {
    let dir = fresh_dir("killed");
    killed(&dir);
    assert!(!problems(&dir).is_empty());
    let outcome = only(disk::repair(&dir, false).expect("it is there"));
    assert_eq!(outcome, RepairOutcome::Repaired { threads: 1, events: 90, missing: 10, cut: 0, removed_bytes: 0 });
    assert_eq!(problems(&dir), [""; 0]);
    let manifest = read_manifest(&dir.join(NAME));
    assert_eq!(manifest.end.expect("it ended").how, "killed");
    assert_eq!(manifest.process.expect("it was told").pid, 42);
    assert_eq!(manifest.threads[0].name.as_deref(), Some("thread 0"));
    let names: Vec<_> = manifest.functions.iter().map(|function| function.name.as_str()).collect();
    assert!(["0x4d", "swift_task_create", "0:3", "main", "work"].iter().all(|name| names.contains(name)), "{names:?}");
    assert_eq!(manifest.gaps.len(), 10);
    assert_eq!(read_dir(&dir, &[NAME]).0.values().next().expect("a stream").len(), 100);
    assert_eq!(only(disk::repair(&dir, false).expect("it is there")), RepairOutcome::Finished, "once is enough");
}

fn cut(path: &Path, bytes: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("it is there");
    let length = file.metadata().expect("data").len();
    file.set_len(length.saturating_sub(bytes)).expect("it can be cut");
}

#[test]
fn events_whose_details_are_gone_are_cut_only_by_force() {
    let dir = fresh_dir("cut-detail");
    killed(&dir);
    cut(&dir.join(NAME).join("thread_0/detail.atf"), 5000);
    let before = fs::read(dir.join(NAME).join("thread_0/index.atf")).expect("it is there");
    let outcome = only(disk::repair(&dir, false).expect("it is there"));
    assert!(matches!(&outcome, RepairOutcome::Failed(problem) if problem.contains("force")), "{outcome:?}");
    assert_eq!(
        fs::read(dir.join(NAME).join("thread_0/index.atf")).expect("it is there"),
        before,
        "it is left as it was"
    );
    let outcome = only(disk::repair(&dir, true).expect("it is there"));
    let RepairOutcome::Repaired { events, cut, missing, .. } = outcome else { panic!("{outcome:?}") };
    assert!(events > 0 && cut > 0 && events + cut == 90, "{events} and {cut}");
    assert_eq!(events + missing, 100, "what was cut is missing, and so are the ten that were before");
    assert_eq!(problems(&dir), [""; 0]);
}

#[test]
fn a_repair_that_was_interrupted_is_started_again() {
    let dir = fresh_dir("interrupted");
    killed(&dir);
    let journal = fs::read(dir.join(NAME).join("journal.heph")).expect("it is there");
    let manifest = fs::read(dir.join(NAME).join("manifest.json")).expect("it is there");
    disk::repair(&dir, false).expect("it is there");
    // As if it had stopped behind the threads, and then behind the manifest.
    let repaired = fs::read(dir.join(NAME).join("manifest.json")).expect("it is there");
    fs::write(dir.join(NAME).join("journal.heph"), &journal).expect("written");
    fs::write(dir.join(NAME).join("manifest.json"), &manifest).expect("written");
    assert!(matches!(only(disk::repair(&dir, false).expect("it is there")), RepairOutcome::Repaired { .. }));
    assert_eq!(fs::read(dir.join(NAME).join("manifest.json")).expect("it is there"), repaired);
    fs::write(dir.join(NAME).join("journal.heph"), &journal).expect("written");
    disk::repair(&dir, false).expect("it is there");
    assert_eq!(fs::read(dir.join(NAME).join("manifest.json")).expect("it is there"), repaired);
    assert_eq!(problems(&dir), [""; 0]);
    // A collector that was killed before it had written a manifest at all.
    fs::write(dir.join(NAME).join("journal.heph"), &journal).expect("written");
    fs::remove_file(dir.join(NAME).join("manifest.json")).expect("removed");
    assert!(matches!(
        only(disk::repair(&dir, false).expect("it is there")),
        RepairOutcome::Repaired { events: 90, .. }
    ));
    assert_eq!(problems(&dir), [""; 0]);
}

#[test]
fn a_collector_that_was_killed_at_once_keeps_nobody_from_the_others() {
    let dir = fresh_dir("nothing");
    killed(&dir);
    let (empty, foreign) = (dir.join("20250101-000000-1"), dir.join("20250101-000000-2"));
    fs::create_dir_all(&empty).expect("made");
    fs::create_dir_all(foreign.join("mine")).expect("made");
    let found = disk::verify(&dir).expect("it is there");
    assert_eq!(found.len(), 3);
    assert!(found.iter().all(|found| !found.problems.is_empty()), "none is called whole");
    let outcomes: Vec<_> = disk::repair(&dir, true).expect("it is there").into_iter().map(|one| one.outcome).collect();
    assert!(matches!(
        outcomes[..],
        [RepairOutcome::Removed, RepairOutcome::Failed(_), RepairOutcome::Repaired { events: 90, .. }]
    ));
    assert!(!empty.exists() && foreign.join("mine").exists());
    // One that is named itself.
    fs::create_dir(&empty).expect("made");
    assert!(!problems(&empty).is_empty());
    assert_eq!(only(disk::repair(&empty, false).expect("it is there")), RepairOutcome::Removed);
    assert!(disk::repair(&foreign.join("mine"), true).is_err(), "there is no session");
}

#[test]
fn details_of_events_that_never_came_are_cut() {
    let dir = fresh_dir("further");
    killed(&dir);
    let files = ["thread_0/index.atf", "journal.heph", "manifest.json"].map(|name| dir.join(NAME).join(name));
    let before = files.each_ref().map(|path| fs::read(path).expect("it is there"));
    disk::repair(&dir, false).expect("it is there");
    // As if it had been killed when the details were finished, and the index was not.
    files.iter().zip(before).for_each(|(path, bytes)| fs::write(path, bytes).expect("written"));
    cut(&files[0], 20 * 32);
    let outcome = only(disk::repair(&dir, false).expect("it is there"));
    assert!(matches!(outcome, RepairOutcome::Repaired { events: 70, cut: 0, .. }), "{outcome:?}");
    assert_eq!(problems(&dir), [""; 0]);
}

/// What a manifest says of threads, functions and gaps, but for what only the end of a session shows.
fn known(manifest: &Manifest) -> String {
    let written = |thread: &&ThreadEntry| thread.written.is_some_and(|written| written > 0);
    let threads: Vec<_> = manifest
        .threads
        .iter()
        .filter(written)
        .map(|thread| (thread.id, &thread.name, thread.os_id, thread.written, thread.first, thread.has_detail))
        .collect();
    let functions: Vec<_> = manifest.functions.iter().map(|function| (function.id, &function.name)).collect();
    let mut gaps: BTreeMap<_, u64> = BTreeMap::new();
    for gap in manifest.gaps.iter().filter(|gap| gap.cause != "collector:killed") {
        *gaps.entry((gap.thread, &gap.cause)).or_default() += gap.count;
    }
    let times = (manifest.time_start_ns, manifest.time_end_ns, &manifest.clock, manifest.clock_zero_ns);
    let other = (&manifest.modules, &manifest.process, &manifest.session, manifest.part);
    format!("{threads:?}\n{functions:?}\n{gaps:?}\n{times:?}\n{other:?}")
}

#[test]
fn killed_at_any_time_nothing_that_was_flushed_is_lost() {
    fn check(steps: Vec<(u8, u8, bool)>, in_parts: bool) -> TestResult {
        let dir = fresh_dir("any-time");
        let rotate_bytes = in_parts.then_some(3000);
        let options = DiskOptions { rotate_bytes, open_threads: 2, ..DiskOptions::new(&dir) };
        let mut sink = DiskSink::open(options).expect("it opens");
        let session = session(NAME);
        sink.start(&session).expect("it starts");
        let packets = introduction(&session, &[0, 1]);
        sink.options(&session, &packets).expect("it takes options");
        let (mut next, mut time) = ([0_u64; 3], 0);
        let (mut told, mut flushed) = ([const { Vec::new() }; 3], [0; 3]);
        for (stream, variety, flush) in steps {
            let stream = stream % 3;
            let at = usize::from(stream);
            if variety % 5 == 4 {
                let first = Position(next[at]);
                sink.gap(&session, &Gap { stream: StreamId(stream.into()), first, count: 2, cause: "network".into() })
                    .expect("it takes gaps");
                next[at] += 2;
            } else {
                time += 1;
                let event = packet(stamp(stream.into(), 0, time), variety);
                sink.events(&batch(&session, &[(stream.into(), next[at], vec![event])])).expect("it takes events");
                told[at].push(Item::Event(time));
                next[at] += 1;
            }
            if flush {
                sink.flush().expect("it flushes");
                flushed = [0, 1, 2].map(|at: usize| told[at].len());
            }
        }
        drop(sink);
        let looked = disk::sessions_in(&dir).expect("they are there").into_iter().filter_map(|part| {
            let before = fs::read(part.join("journal.heph")).ok();
            let looked = disk::look_at_unfinished(&part).expect("it can be read")?;
            assert_eq!(fs::read(part.join("journal.heph")).ok(), before, "it is left as it was");
            assert_eq!(looked.problem, None);
            Some((part, looked.manifest))
        });
        let looked: Vec<_> = looked.collect();
        disk::repair(&dir, false).expect("it is there");
        assert_eq!(problems(&dir), [""; 0]);
        for (part, looked) in looked.into_iter().filter(|(part, _)| part.exists()) {
            assert_eq!(known(&looked), known(&read_manifest(&part)), "a repair finds nothing else");
        }
        let story = read_dir(&dir, &[NAME]);
        for (stream, (told, flushed)) in (0..).zip(told.into_iter().zip(flushed)) {
            let found = story.0.get(&(NAME.into(), stream)).cloned().unwrap_or_default();
            let found: Vec<_> = found.into_iter().filter(|item| matches!(item, Item::Event(_))).collect();
            assert!(found.len() >= flushed, "{} of {flushed} flushed events", found.len());
            assert_eq!(found, told[..found.len()]);
        }
        fs::remove_dir_all(&dir).expect("it is there");
        TestResult::passed()
    }
    QuickCheck::new().tests(60).quickcheck(check as fn(Vec<(u8, u8, bool)>, bool) -> TestResult);
}
