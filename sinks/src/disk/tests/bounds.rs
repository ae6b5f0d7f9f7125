//! What all sessions share, when there are many and the disk takes nothing.

use super::*;

const TELLING: u32 = 100;

fn name(number: u64) -> String {
    format!("20260101-000000-{number}")
}

/// How many events there are in the repaired traces.
fn repaired(dir: &Path) -> u64 {
    repair(dir, false).expect("they are there");
    let found = verify(dir).expect("they are there");
    found.iter().for_each(|found| assert_eq!(found.problems, [""; 0], "{}", found.dir.display()));
    found.iter().map(|found| found.events).sum()
}

#[test]
fn sessions_that_end_on_a_full_disk_are_bounded_and_what_is_lost_is_counted() {
    let mut scene = Scene::new(FOREVER, Limits { most_finishing: 3, ..Limits::default() });
    let open: Vec<_> = (1..=10).map(|number| session(&name(number))).collect();
    for first in [0, u64::from(TELLING) + 1] {
        scene.sink.flush().expect("it flushes");
        for session in &open {
            (scene.session, scene.next) = (Arc::clone(session), first);
            scene.events(TELLING).expect("it takes events");
        }
    }
    scene.set_room(0);
    let mut most = 0;
    for session in &open {
        let before = scene.refused.load(Ordering::Relaxed);
        assert!(scene.sink.end(session, &Ended::default()).is_err());
        most = most.max(scene.refused.load(Ordering::Relaxed) - before);
    }
    assert!(most < 5, "each end tries its own session only, not {most} times");
    assert_eq!(scene.sink.volume.finishing.len(), 3);
    let told = u64::from(2 * (TELLING + 1)) * 10;
    let lost = scene.sink.counters().lost_events.get();
    assert_eq!(lost, 7 * u64::from(TELLING + 1));
    scene.set_room(FOREVER);
    scene.sink.close().expect("there is room again");
    assert_eq!((scene.sink.volume.pending, scene.sink.volume.handles.len()), (0, 0));
    assert_eq!(scene.sink.counters().lost_events.get(), lost, "what waited is not lost");
    assert_eq!(repaired(&scene.dir), told - lost);
}

#[test]
fn what_a_full_disk_does_not_take_at_the_end_is_counted_to_the_event() {
    for room in (0..6000).step_by(300) {
        let mut scene = Scene::new(FOREVER, Limits::default());
        scene.events(TELLING).expect("it takes events");
        scene.sink.flush().expect("it flushes");
        scene.events(TELLING).expect("it takes events");
        scene.set_room(room);
        let closed = scene.sink.close();
        let lost = scene.sink.counters().lost_events.get();
        assert_eq!(repaired(&scene.dir), scene.next - lost, "with room for {room}");
        assert!(closed.is_err() || lost == 0);
    }
}

#[test]
fn manifests_that_wait_are_bounded_too() {
    let limits = Limits { finishing_bytes: 2000, ..Limits::default() };
    let mut scene = Scene::new(FOREVER, limits);
    for number in 1..100 {
        scene.set_room(FOREVER);
        scene.turn_to(&name(number));
        scene.sink.start(&Arc::clone(&scene.session)).expect("it starts");
        scene.set_room(0);
        assert!(scene.sink.end(&Arc::clone(&scene.session), &Ended::default()).is_err());
    }
    let held: usize = scene.sink.volume.finishing.iter().map(Finishing::memory_bytes).sum();
    assert!(held <= 2000 && (5..99).contains(&scene.sink.volume.finishing.len()), "{held}");
}

#[test]
fn what_is_lost_is_counted_however_many_events_an_agent_claims_to_have_dropped() {
    let mut scene = Scene::new(FOREVER, Limits::default());
    let session = Arc::clone(&scene.session);
    let gap = Gap { stream: StreamId(3), first: Position(0), count: u64::MAX, cause: "agent:full".into() };
    scene.sink.gap(&session, &gap).expect("it takes gaps");
    scene.tell(3, u64::MAX, 7, Vec::new()).expect("it takes what there is");
    assert_eq!(scene.sink.counters().lost_events.get(), 7);
    scene.sink.close().expect("it closes");
    assert_eq!(repaired(&scene.dir), 0);
}

#[test]
fn a_session_in_parts_has_no_more_streams_than_another() {
    let mut scene = Scene::new(FOREVER, Limits { most_threads: 2, ..Limits::default() });
    let mut refused = 0;
    for stream in 0..10 {
        let gap = Gap { stream: StreamId(stream), first: Position(0), count: 1, cause: "network".into() };
        refused += u32::from(scene.sink.gap(&Arc::clone(&scene.session), &gap).is_err());
        scene.sink.volume.limits.rotate_every = Some(Duration::ZERO);
        scene.sink.flush().expect("it flushes");
    }
    assert_eq!(refused, 8);
}

/// A call and its return at this depth.
fn deep(scene: &mut Scene, stream: u32, depth: u32) {
    let mut bytes = Vec::new();
    for (kind, end) in [(EventKind::Call, 5), (EventKind::Return, 9)] {
        function(kind, depth, 5, end).encode(&mut bytes).expect("it can be written");
    }
    scene.tell(stream, 0, 2, bytes).expect("it takes events");
}

#[test]
fn depths_of_all_sessions_share_one_budget() {
    let mut scene = Scene::new(FOREVER, Limits { depth_bytes: 200_000, ..Limits::default() });
    for number in 1..=4 {
        scene.turn_to(&name(number));
        (0..50).for_each(|stream| deep(&mut scene, stream, 4095));
    }
    let used = scene.sink.volume.shared.depths.in_use();
    assert!(used > 0 && used <= 200_000, "{used}");
    scene.sink.close().expect("it closes");
    assert_eq!(scene.sink.volume.shared.depths.in_use(), 0, "all is given back");
    // What was not remembered is said in a detail of its own.
    let found = verify(&scene.dir).expect("they are there");
    assert!(found.iter().all(|found| found.problems.is_empty()));
    let contexts: u64 = found.iter().map(|found| found.contexts).sum();
    assert_eq!(contexts, 200 - used / (4096 * 8));
    assert!(found.iter().all(|found| found.details == 0), "it has no registers and no keys");
}

#[test]
fn everything_that_is_shared_is_given_back() {
    let mut scene = Scene::new(FOREVER, Limits::default());
    for number in 1..=4 {
        scene.turn_to(&name(number));
        scene.events(3).expect("it takes events");
        let gap = Gap { stream: StreamId(3), first: Position(4), count: 1, cause: "network".into() };
        scene.sink.gap(&Arc::clone(&scene.session), &gap).expect("it takes gaps");
    }
    let in_use = |scene: &Scene| {
        let shared = &scene.sink.volume.shared;
        [&shared.depths, &shared.names, &shared.gaps, &shared.journals].map(crate::Budget::in_use)
    };
    assert!(in_use(&scene).iter().all(|bytes| *bytes > 0), "{:?}", in_use(&scene));
    scene.sink.close().expect("it closes");
    assert_eq!(in_use(&scene), [0; 4]);
}

/// A disk on which somebody removes an empty directory before anything is in it, once.
struct Raced(AtomicBool);

impl Files for Raced {
    fn create_locked(&self, path: &Path) -> io::Result<Box<dyn Out>> {
        if !self.0.swap(true, Ordering::Relaxed) {
            fs::remove_dir(path.parent().expect("it has one"))?;
        }
        OsFiles.create_locked(path)
    }
}

#[test]
fn a_directory_that_a_repair_removed_under_our_feet_is_made_again() {
    let mut scene = Scene::new(FOREVER, Limits::default());
    let files = Box::new(Raced(false.into()));
    scene.sink = DiskSink::with_files(DiskOptions::new(&scene.dir), Limits::default(), files).expect("it opens");
    assert!(scene.sink.start(&Arc::clone(&scene.session)).is_err());
    scene.events(10).expect("they wait in memory");
    scene.sink.flush().expect("it is made again");
    assert_eq!(scene.end(), (11, 0, vec![]));
}
