//! What is known of a session that could not be finished.

use super::*;

/// Written, missing, causes and limits of what was repaired.
fn repaired(scene: &Scene) -> (u64, u64, Vec<String>, u64) {
    repair(&scene.dir, false).expect("it is there");
    let (mut written, mut missing, mut causes, mut limits) = (0, 0, Vec::new(), 0);
    for found in verify(&scene.dir).expect("it is there") {
        assert_eq!(found.problems, [""; 0], "{}", found.dir.display());
        let manifest = scene.manifest(&found.dir.file_name().expect("a name").to_string_lossy());
        let gaps = manifest.missing();
        for thread in &manifest.threads {
            let lost = gaps.get(&thread.id).copied().unwrap_or(0);
            assert_eq!(thread.produced, thread.written.map(|written| written + lost));
        }
        written += manifest.threads.iter().filter_map(|thread| thread.written).sum::<u64>();
        missing += gaps.values().sum::<u64>();
        causes.extend(manifest.gaps.iter().map(|gap| gap.cause.clone()));
        let unknown = manifest.limits.iter().filter(|limit| limit.reason != reopen::LIMIT);
        limits += unknown.map(|limit| limit.count).sum::<u64>();
    }
    causes.sort();
    causes.dedup();
    (written, missing, causes, limits)
}

#[test]
fn a_session_that_is_closed_on_a_full_disk_says_what_is_missing() {
    let mut scene = Scene::new(FOREVER, Limits::default());
    scene.keeps_room.store(true, Ordering::Relaxed);
    scene.events(1000).expect("it takes events");
    scene.sink.flush().expect("it flushes");
    scene.set_room(5000);
    for _ in 0..100 {
        let _ = scene.events(1000);
        let _ = scene.sink.flush();
    }
    assert!(scene.sink.close().is_err());
    let lost = scene.sink.counters().lost_events.get();
    let (written, missing, causes, limits) = repaired(&scene);
    assert!(written > 1001 && missing > 90_000, "{written} written, {missing} missing");
    assert_eq!((written + missing, missing), (scene.next, lost), "every event is accounted for");
    assert_eq!((causes, limits), (vec!["collector:disk-full".into()], 0));
}

#[test]
fn whenever_a_disk_that_keeps_room_is_full_at_the_end_every_event_is_accounted_for() {
    fn check(steps: Vec<(u16, u8)>, last: u16) {
        let limits =
            Limits { flush_bytes: 1000, stuck_bytes: 4000, flush_total: 3000, stuck_total: 6000, ..Limits::default() };
        let mut scene = Scene::new(FOREVER, limits);
        scene.keeps_room.store(true, Ordering::Relaxed);
        scene.sink.start(&Arc::clone(&scene.session)).expect("it starts");
        for (room, action) in steps {
            scene.set_room(if room % 4 == 0 { FOREVER } else { i64::from(room % 5000) });
            match action % 4 {
                0 => _ = scene.sink.flush(),
                _ => _ = scene.events(u32::from(action) / 4),
            }
        }
        scene.set_room((last % 3000).into());
        let _ = scene.events(100);
        let _ = scene.sink.close();
        let lost = scene.sink.counters().lost_events.get();
        let next = scene.next;
        let (written, missing, _, limits) = repaired(&scene);
        assert_eq!((written + missing, missing, limits), (next, lost, 0));
    }
    QuickCheck::new().tests(100).quickcheck(check as fn(Vec<(u16, u8)>, u16));
}

#[test]
fn a_journal_that_was_cut_in_a_packet_still_says_how_far_it_had_come() {
    for room in 0..200 {
        let mut scene = Scene::new(FOREVER, Limits::default());
        scene.events(100).expect("it takes events");
        scene.sink.flush().expect("it flushes");
        for at in 0..3 {
            let (first, count) = (Position(scene.next), 1);
            let gap = Gap { stream: StreamId(3), first, count, cause: "network".into() };
            scene.sink.gap(&Arc::clone(&scene.session), &gap).expect("it takes gaps");
            scene.next += 1;
            scene.events(at).expect("it takes events");
        }
        scene.set_room(room);
        assert!(scene.sink.flush().is_err());
        assert!(scene.sink.end(&Arc::clone(&scene.session), &Ended::default()).is_err());
        let mut part = scene.sink.volume.finishing.pop().expect("it waits");
        scene.set_room(FOREVER);
        scene.sink.volume.leave(&mut part, "collector:disk-full");
        drop(part);
        let next = scene.next;
        let (written, missing, _, _) = repaired(&scene);
        assert_eq!(written + missing, next, "with room for {room}");
    }
}

#[test]
fn threads_that_there_is_no_room_to_tell_of_are_known_to_be_incomplete() {
    const STREAMS: u32 = 5000;
    let mut scene = Scene::new(FOREVER, Limits::default());
    scene.keeps_room.store(true, Ordering::Relaxed);
    scene.sink.start(&Arc::clone(&scene.session)).expect("it starts");
    scene.set_room(0);
    for stream in 0..STREAMS {
        let gap = Gap { stream: StreamId(stream), first: Position(1 << 30), count: 1, cause: "network".into() };
        scene.sink.gap(&Arc::clone(&scene.session), &gap).expect("it takes gaps");
    }
    scene.next = (1 << 30) + 1;
    scene.events(1000).expect("they wait");
    assert!(scene.sink.close().is_err());
    let (written, missing, _, limits) = repaired(&scene);
    assert_eq!(written, 0);
    assert!(missing > 2000 && limits > 0 && limits < 5000, "{missing} missing, {limits} not known");
}

#[test]
fn a_flush_without_anything_to_write_is_no_recovery() {
    let mut scene = Scene::new(0, Limits::default());
    assert!(scene.sink.start(&Arc::clone(&scene.session)).is_err());
    scene.events(10).expect("they wait in memory");
    assert!(scene.sink.end(&Arc::clone(&scene.session), &Ended::default()).is_err());
    assert_eq!(scene.sink.counters().lost_events.get(), 11);
    (0..3).for_each(|_| assert!(matches!(scene.sink.flush(), Err(SinkError::Failed { .. }))));
    scene.set_room(FOREVER);
    scene.turn_to("20260101-000000-2");
    scene.sink.start(&Arc::clone(&scene.session)).expect("there is room");
    scene.sink.flush().expect("something was written");
}

#[test]
fn a_directory_in_which_nothing_can_be_made_is_not_opened() {
    assert!(matches!(DiskSink::open(DiskOptions::new("/proc")), Err(SinkError::Failed { .. })));
    let scene = Scene::new(FOREVER, Limits::default());
    assert_eq!(fs::read_dir(&scene.dir).expect("it is there").count(), 0, "trying it leaves nothing");
}

#[test]
fn room_for_a_file_does_not_make_it_longer() {
    let scene = Scene::new(FOREVER, Limits::default());
    let path = scene.dir.join("file");
    let mut out = OsFiles.create_locked(&path).expect("made");
    let kept = out.reserve(0, 64 << 10);
    let data = fs::metadata(&path).expect("it is there");
    assert_eq!(data.len(), 0);
    assert!(kept.is_err() || std::os::unix::fs::MetadataExt::blocks(&data) >= 128);
}
