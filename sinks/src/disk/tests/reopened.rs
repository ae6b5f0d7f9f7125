//! A part that goes on where its collector was killed.

use codec::{
    SessionId,
    atf::{DetailReader, IndexReader, ThreadReader},
};

use super::{
    reopen::{Found, Purpose, Unfinished},
    *,
};

impl Scene {
    /// The collector is killed: what it has not written is gone. Another goes on with what there is.
    fn kill(&mut self) {
        let files = Box::new(Small(Arc::clone(&self.room), Arc::clone(&self.refused), Arc::clone(&self.keeps_room)));
        self.sink = DiskSink::with_files(DiskOptions::new(&self.dir), Limits::default(), files).expect("it opens");
        self.session = session(NAME);
    }

    /// Goes on with a part, and tells the position that comes next on stream 3.
    fn reopen(&mut self, name: &str) -> u64 {
        let found = Unfinished::open(&self.dir.join(name)).expect("it is there");
        let Found::Unfinished(unfinished) = found else { panic!("it is finished, or live") };
        let reopened = unfinished
            .reopen(&mut self.sink.volume, &self.session, Purpose::Repair { force: false })
            .expect("it goes on");
        let next = reopened.open.part.threads.get(&3).map_or(0, |thread| thread.next);
        self.sink.sessions.insert(self.session.name.clone(), reopened.open);
        next
    }

    fn lose(&mut self, count: u64) {
        let gap = Gap { stream: StreamId(3), first: Position(self.next), count, cause: "network".into() };
        self.sink.gap(&Arc::clone(&self.session), &gap).expect("it takes gaps");
        self.next += count;
    }
}

#[test]
fn a_part_goes_on_where_its_collector_was_killed() {
    let mut scene = Scene::new(FOREVER, Limits::default());
    scene.events(100).expect("taken");
    scene.lose(7);
    scene.events(20).expect("taken");
    scene.sink.flush().expect("it flushes");
    let flushed = scene.next;
    scene.events(50).expect("taken");
    for (round, torn) in [("index.atf", 5), ("detail.atf", 9), ("index.atf", 31)].into_iter().enumerate() {
        scene.kill();
        let path = scene.dir.join(NAME).join("thread_3").join(torn.0);
        let mut file = fs::OpenOptions::new().append(true).open(path).expect("it is there");
        file.write_all(&vec![b'x'; torn.1][..]).expect("room");
        scene.next = scene.reopen(NAME);
        assert_eq!(scene.next, flushed + 33 * round as u64, "what was not flushed comes again");
        scene.lose(2);
        scene.events(30).expect("taken");
        scene.sink.flush().expect("it flushes");
    }
    assert!(matches!(repair(&scene.dir, true).expect("it is there")[0].outcome, RepairOutcome::Live), "it is locked");
    let end = EndEntry { how: "exited".into(), ..EndEntry::default() };
    scene.sink.end(&Arc::clone(&scene.session), &Ended { end, ..Ended::default() }).expect("it ends");
    let found = verify(&scene.dir).expect("it is there").remove(0);
    assert_eq!((found.problems, found.events, found.missing), (vec![], flushed - 7 + 3 * 31, 7 + 3 * 2));
    let manifest = scene.manifest(NAME);
    assert_eq!(manifest.end.expect("it ended").how, "exited");
    assert_eq!(manifest.threads[0].produced, Some(scene.next));
    let names: Vec<_> = manifest.functions.iter().map(|function| function.name.as_str()).collect();
    assert_eq!(names, ["plain"], "the function that stands for it is the same all the time");
    let gaps: Vec<_> = manifest.gaps.iter().map(|gap| (gap.first, gap.count, gap.at_index)).collect();
    let again = [0, 1, 2].map(|round| flushed + 33 * round);
    assert_eq!(gaps[0], (101, 7, Some(101)));
    assert_eq!(gaps[1..], again.map(|first| (first, 2, Some(first - 7 - (first - flushed) / 33 * 2))));
    assert_eq!(fs::read_dir(scene.dir.join(NAME).join(removed::REMOVED)).expect("torn ends").count(), 3);
}

#[test]
fn a_gap_behind_events_that_were_lost_counts_once() {
    let mut scene = Scene::new(FOREVER, Limits::default());
    scene.events(10).expect("taken");
    scene.sink.flush().expect("it flushes");
    let index = scene.dir.join(NAME).join("thread_3/index.atf");
    let before = fs::read(&index).expect("it is there");
    scene.events(10).expect("taken");
    scene.lose(5);
    scene.sink.flush().expect("it flushes");
    // As if it had been killed when the journal was written, and the index was not.
    fs::write(&index, before).expect("written");
    for _ in 0..3 {
        scene.kill();
        scene.next = scene.reopen(NAME);
        scene.events(10).expect("taken");
        scene.sink.flush().expect("it flushes");
    }
    scene.lose(5);
    scene.sink.close().expect("it closes");
    let found = verify(&scene.dir).expect("it is there").remove(0);
    assert_eq!((found.problems, found.events, found.missing), (vec![], 4 * 11, 5));
    assert_eq!(scene.manifest(NAME).threads[0].produced, Some(scene.next));
}

#[test]
fn a_part_that_was_given_up_or_just_begun_goes_on() {
    let mut scene = Scene::new(FOREVER, Limits::default());
    scene.keeps_room.store(true, Ordering::Relaxed);
    scene.events(100).expect("taken");
    scene.sink.flush().expect("it flushes");
    scene.set_room(0);
    scene.events(1000).expect("they wait");
    assert!(scene.sink.close().is_err());
    scene.set_room(FOREVER);
    scene.kill();
    assert_eq!(scene.reopen(NAME), scene.next, "what was given up is a gap");
    // The next part knows where its streams go on before they do.
    scene.sink.volume.limits.rotate_every = Some(Duration::ZERO);
    scene.sink.flush().expect("it flushes");
    scene.sink.flush().expect("it flushes");
    scene.sink.volume.limits.rotate_every = None;
    scene.kill();
    let name = format!("{NAME}.2");
    scene.reopen(&name);
    scene.events(10).expect("taken");
    scene.sink.end(&Arc::clone(&scene.session), &Ended::default()).expect("it ends");
    let parts = [scene.manifest(NAME), scene.manifest(&name)];
    let threads = parts.each_ref().map(|part| (part.part, part.threads[0].first, part.threads[0].produced));
    assert_eq!(threads, [(Some(1), None, Some(scene.next - 11)), (Some(2), Some(scene.next - 11), Some(11))]);
    assert!(verify(&scene.dir).expect("they are there").iter().all(|part| part.problems.is_empty()));
}

#[test]
fn a_call_before_and_its_return_behind_are_read_as_they_were() {
    let mut scene = Scene::new(FOREVER, Limits::default());
    let call = |scene: &mut Scene, kind, start, end| {
        let (mut event, mut bytes) = (function(kind, 4, start, end), Vec::new());
        event.stamp.substream = SubstreamId(9);
        event.encode(&mut bytes).expect("it can be written");
        scene.tell(3, scene.next, 1, bytes).expect("taken");
        scene.next += 1;
        scene.sink.flush().expect("it flushes");
    };
    call(&mut scene, EventKind::Call, 5, 5);
    scene.kill();
    scene.reopen(NAME);
    call(&mut scene, EventKind::Return, 5, 8);
    scene.sink.end(&Arc::clone(&scene.session), &Ended::default()).expect("it ends");
    let [index, detail] = ["index.atf", "detail.atf"]
        .map(|name| fs::read(scene.dir.join(NAME).join("thread_3").join(name)).expect("one"));
    let (index, detail) = (IndexReader::open(&index).expect("one"), DetailReader::open(&detail).expect("one"));
    let thread = ThreadReader { index, detail: Some(detail) };
    assert_eq!([0, 1].map(|sequence| thread.details_of(sequence).count()), [1, 1], "each says its substream");
}

#[test]
fn details_whose_index_is_gone_are_put_aside_and_counted() {
    for left in [0, 63, 64, 64 + 32 * 50] {
        let mut scene = Scene::new(FOREVER, Limits::default());
        (0..100).for_each(|_| scene.events(0).expect("taken"));
        scene.lose(3);
        scene.events(0).expect("taken");
        scene.sink.flush().expect("it flushes");
        scene.kill();
        let thread = scene.dir.join(NAME).join("thread_3");
        let details = fs::read(thread.join("detail.atf")).expect("it is there");
        fs::OpenOptions::new()
            .write(true)
            .open(thread.join("index.atf"))
            .and_then(|file| file.set_len(left))
            .expect("cut");
        let outcome = repair(&scene.dir, false).expect("it is there").remove(0).outcome;
        let events = left.saturating_sub(64) / 32;
        let RepairOutcome::Repaired { events: found, missing, cut: 0, removed_bytes, .. } = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!((found, missing), (events, 104 - events), "they are known to have been");
        let kept = fs::read(thread.join("detail.atf")).map_or(0, |file| file.len() - 64);
        let aside =
            fs::read(scene.dir.join(NAME).join(format!("removed/thread_3-detail.atf-from-{kept}"))).expect("there");
        assert_eq!(aside, details[kept..]);
        let torn = if left == 63 { 63 } else { 0 };
        assert_eq!(removed_bytes, aside.len() as u64 + torn);
        let manifest = scene.manifest(NAME);
        assert_eq!((&*manifest.gaps[0].cause, manifest.limits[0].count), ("collector:killed", removed_bytes));
        assert!(verify(&scene.dir).expect("it is there")[0].problems.is_empty());
        assert!(room::part_bytes(&scene.dir.join(NAME)) > removed_bytes, "it counts, and goes with the rest");
        assert_eq!(repair(&scene.dir, false).expect("it is there")[0].outcome, RepairOutcome::Finished);
    }
}

#[test]
fn a_journal_that_cannot_be_read_is_told_and_nothing_is_touched() {
    let mut scene = Scene::new(FOREVER, Limits::default());
    scene.events(10).expect("taken");
    scene.sink.flush().expect("it flushes");
    scene.kill();
    let path = scene.dir.join(NAME).join(journal::JOURNAL);
    let mut packets = Vec::new();
    let old = Event { stamp: Stamp::default(), description: "gap", attributes: Attributes::default() };
    old.encode(&mut packets).expect("it can be written");
    packets.extend(fs::read(&path).expect("it is there"));
    fs::write(&path, &packets).expect("written");
    let index = || fs::read(scene.dir.join(NAME).join("thread_3/index.atf")).expect("it is there");
    let before = index();
    let outcome = repair(&scene.dir, false).expect("it is there").remove(0).outcome;
    let RepairOutcome::Failed(problem) = outcome else { panic!("{outcome:?}") };
    assert!(problem.starts_with("journal.heph, at byte 0: expected a note") && problem.contains("force"), "{problem}");
    assert_eq!((fs::read(&path).expect("it is there"), index()), (packets, before));
    let outcome = repair(&scene.dir, true).expect("it is there").remove(0).outcome;
    assert!(matches!(outcome, RepairOutcome::Repaired { events: 11, .. }), "{outcome:?}");
}

#[test]
fn wherever_a_file_was_torn_a_part_goes_on() {
    let mut scene = Scene::new(FOREVER, Limits::default());
    scene.events(3).expect("taken");
    scene.lose(4);
    scene.events(2).expect("taken");
    scene.sink.flush().expect("it flushes");
    scene.kill();
    let part = scene.dir.join(NAME);
    let names = ["manifest.json", "journal.heph", "thread_3/index.atf", "thread_3/detail.atf"];
    let files = names.map(|name| fs::read(part.join(name)).expect("it is there"));
    for (torn, length) in [1, 2].into_iter().flat_map(|torn| (0..files[torn].len()).map(move |length| (torn, length))) {
        let _ = fs::remove_dir_all(&part);
        fs::create_dir_all(part.join("thread_3")).expect("made");
        for (at, (name, file)) in names.iter().zip(&files).enumerate() {
            let kept = if at == torn { length } else { file.len() };
            fs::write(part.join(name), &file[..kept]).expect("written");
        }
        scene.kill();
        scene.next = scene.reopen(NAME);
        scene.lose(1);
        scene.events(2).expect("taken");
        scene.sink.close().expect("it closes");
        let found = verify(&scene.dir).expect("it is there").remove(0);
        assert_eq!(found.problems, [""; 0], "{} cut to {length}", names[torn]);
        assert_eq!(found.events + found.missing, scene.next, "{} cut to {length}", names[torn]);
        let whole = if torn == 2 { length.saturating_sub(64) / 32 } else { 7 };
        assert_eq!(found.events, whole as u64 + 3, "{} cut to {length}", names[torn]);
    }
}

/// Another collector has recorded a session in a directory that is called like a session of this one, which lies in another.
#[test]
fn a_session_that_was_found_goes_on_where_it_was_found() {
    let mut scene = Scene::new(FOREVER, Limits::default());
    let with_id = |name: &str, id: u8, found: Option<PathBuf>| {
        let catalog = Catalog::new(CatalogLimits::default(), Arc::new(AtomicU64::new(0)));
        let mut session = Session::new(name.into(), Some(SessionId([id; 16])), String::new(), 0, catalog);
        session.found = found;
        Arc::new(session)
    };
    scene.session = with_id(NAME, 1, None);
    scene.events(10).expect("taken");
    scene.sink.flush().expect("it flushes");
    scene.kill();
    let (other, beside) = (with_id(NAME, 2, None), format!("{NAME}-2"));
    fs::rename(scene.dir.join(NAME), scene.dir.join("aside")).expect("moved");
    fs::create_dir(scene.dir.join(NAME)).expect("taken by another");
    scene.session = Arc::clone(&other);
    scene.sink.start(&other).expect("it starts");
    fs::remove_dir(scene.dir.join(NAME)).expect("empty");
    fs::rename(scene.dir.join("aside"), scene.dir.join(NAME)).expect("moved back");
    scene.next = 0;
    scene.events(5).expect("taken");
    for name in [format!("{NAME}+7"), NAME.into()] {
        let found = with_id(&name, 1, Some(scene.dir.join(NAME)));
        // Under its own name it would be taken for the other: nothing is asked of the sink but to find the right files.
        let dir = resume::last_part(&scene.sink.volume, &found);
        assert_eq!(dir, Some(scene.dir.join(NAME)), "{name}");
    }
    let found = with_id(&format!("{NAME}+7"), 1, Some(scene.dir.join(NAME)));
    scene.sink.resume(&found).expect("it goes on");
    (scene.session, scene.next) = (found, 11);
    scene.events(20).expect("taken");
    scene.sink.close().expect("it closes");
    let count = |name: &str| scene.manifest(name).threads[0].written;
    assert_eq!((count(NAME), count(&beside)), (Some(11 + 21), Some(6)));
}
