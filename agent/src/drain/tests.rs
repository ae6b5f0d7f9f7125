//! Rings that fake threads write to, drained to a fake collector.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use codec::{
    FunctionId, ModuleId,
    profile::{EndReason, Key},
};

use super::{
    fake::{FakeTarget, FakeThread},
    *,
};
use crate::{
    shared::{Kind, MAX_KEYS, RUNTIME_FUNCTIONS, SKIP, header},
    ship::{
        Transport, Wire,
        fake::{Fake, WIRES},
    },
};

/// The threads that the system knows, and their names.
#[derive(Debug, Clone, Default)]
pub(super) struct System(Arc<Mutex<BTreeMap<u32, String>>>);

impl System {
    pub(super) fn start(&self, tid: u32, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(tid, name.into());
    }

    fn end(&self, tid: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&tid);
    }
}

impl Tasks for System {
    fn list(&mut self, ids: &mut Vec<u32>) -> bool {
        ids.clear();
        ids.extend(self.0.lock().unwrap_or_else(PoisonError::into_inner).keys());
        true
    }

    fn is_ending(&mut self, _: &[u32]) -> bool {
        false
    }

    fn is_gone(&mut self, id: u32) -> bool {
        !self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&id)
    }

    fn name(&mut self, id: u32) -> Option<Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&id).map(|name| name.as_bytes().to_vec())
    }
}

/// Everything from the ring to the collector.
struct All {
    target: FakeTarget,
    system: System,
    functions: Arc<Functions>,
    drain: Drain,
    shipper: Shipper,
    collector: Fake,
}

impl All {
    fn new(wire: Wire) -> Self {
        let target = FakeTarget::new(8_192, 8);
        let mut collector = Fake::new(wire);
        let shipper = collector.shipper(Transport::Udp);
        let (system, functions) = (System::default(), Arc::new(Functions::default()));
        functions.add((0..10).map(|index| FunctionId::new(ModuleId(3), index)));
        let drain = Drain::new(Arc::clone(&target.arena), Clock::start(), Arc::clone(&functions), system.clone());
        Self { target, system, functions, drain, shipper, collector }
    }

    fn thread(&self, ring: usize, tid: u32) -> FakeThread {
        self.system.start(tid, "worker");
        self.target.thread(ring, tid, "worker")
    }

    /// All have their turns until something holds.
    #[track_caller]
    fn until(&mut self, mut holds: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !holds(self) {
            assert!(Instant::now() < deadline, "it does not come to hold: {:?} {:?}", self.drain, self.collector.got);
            self.drain.turn(&mut self.shipper);
            self.shipper.turn(Duration::ZERO);
            self.collector.turn();
        }
    }

    /// Everything that is in the rings has arrived.
    #[track_caller]
    fn settle(&mut self) {
        while self.drain.turn(&mut self.shipper) > 0 {}
        self.collector.settle(&mut self.shipper);
    }

    /// What arrived of a stream, in order, as text.
    fn events(&self, stream: u32) -> Vec<&str> {
        let of = self.collector.got.events.range((stream, 0)..=(stream, u64::MAX));
        of.map(|(_, (_, text))| text.as_str()).collect()
    }

    fn thread_told(&self, stream: u32) -> &str {
        self.collector.got.options.get(&format!("thread {stream}")).map_or("", String::as_str)
    }
}

/// One that packs events in runs, and one that does not.
fn both_wires() -> impl Iterator<Item = All> {
    WIRES.into_iter().map(All::new)
}

#[test]
fn records_become_events() {
    for mut all in both_wires() {
        let mut thread = all.thread(0, 100);
        let start = tsc::now();
        thread.call(1, 0);
        let mut detailed = vec![tsc::now(), header(Kind::Call, 2 + 9 + 3, 1, 2)];
        detailed.extend([11, 12, 13, 14, 15, 16, 17, 18, 19, 1, 2, 3]);
        thread.event(&detailed);
        let entered = tsc::now();
        thread.event(&[tsc::now(), header(Kind::Return, 8, 1, 2), entered, 21, 22, 23, 24, 25]);
        thread.put(&[tsc::now(), header(Kind::Substream, 3, 0, 0), 77]);
        thread.event(&[tsc::now(), header(Kind::Exception, 3, 0, 1), start]);
        all.settle();
        let events = all.events(0);
        assert_eq!(events[0], "Call Some(FunctionId(3:1)) 0 None");
        let call = "Call Some(FunctionId(3:2)) 1 Some((\
                        [11, 12, 13, 14, 15, 16, 0, 0, 17, 18, 19], [1, 2, 3]))";
        assert_eq!(events[1], call);
        let left = "Return Some(FunctionId(3:2)) 1 Some((\
                        [21, 22, 0, 0, 0, 0, 0, 0, 23, 24, 25], []))";
        assert_eq!(events[2], left);
        assert_eq!(events[3], "Exception Some(FunctionId(3:1)) 0 None");
        let stamps: Vec<_> = all.collector.got.events.values().map(|(stamp, _)| *stamp).collect();
        assert!(stamps.iter().map(|stamp| stamp.substream.0).eq([0, 0, 0, 77]));
        assert!(stamps.is_sorted_by_key(|stamp| stamp.end) && stamps[0].start == stamps[0].end);
        // The first record was written right after the time that the last one says it was entered at.
        assert!(stamps[3].start <= stamps[0].start && stamps[3].start < stamps[3].end);
        assert_eq!((all.drain.counts().events, all.drain.counts().threads), (4, 1));
    }
}

#[test]
fn runtime_events_have_their_keys_by_name() {
    for mut all in both_wires() {
        let mut thread = all.thread(0, 100);
        let place = |name| RUNTIME_FUNCTIONS.iter().position(|known| *known == name).expect("it is known") as u32;
        let number = |key: &Key| Key::ALL.iter().position(|known| known == key).expect("it is known") as u8;
        let numbers = |keys: &[Key]| {
            let mut bytes = [0xFF; MAX_KEYS];
            keys.iter().zip(&mut bytes).for_each(|(key, byte)| *byte = number(key));
            u64::from_le_bytes(bytes)
        };
        let keys = numbers(&[Key::Pthread, Key::Queue]);
        let label = *b"main que\x75e\0\0\0\0\0\0\0";
        let words = label.as_chunks::<8>().0;
        let mut record = vec![tsc::now(), header(Kind::Label, 5, 0, 0), 0xABCD];
        record.extend(words.iter().map(|word| u64::from_le_bytes(*word)));
        thread.put(&record);
        thread.event(&[
            tsc::now(),
            header(Kind::Runtime, 6, 1, place("pthread_join")),
            tsc::now(),
            keys,
            0x7000,
            0xABCD,
        ]);
        thread.event(&[
            tsc::now(),
            header(Kind::Runtime, 6, 2, place("pthread_join")),
            tsc::now(),
            keys,
            0x7000,
            0xEEEE,
        ]);
        all.settle();
        let expected = [
            r#"pthread_join Call {"pthread": U64(28672), "queue": U64(0)}"#,
            r#"pthread_join Return {"pthread": U64(28672), "queue": U64(1)}"#,
        ];
        assert_eq!(all.events(0), expected);
        assert!(all.collector.got.options["queue 0"].contains("\"main queue\""));
    }
}

#[test]
fn what_did_not_fit_is_told_and_adds_up() {
    for mut all in both_wires() {
        let mut thread = all.thread(0, 100);
        // Nobody drains: it fills up and drops; then again, behind what was told.
        for _ in 0..3 {
            while thread.call(1, 0) {}
            (0..500).for_each(|_| assert!(!thread.call(1, 0)));
            all.settle();
        }
        // Before its end, too, with no record behind that could tell.
        while thread.call(1, 0) {}
        all.settle();
        all.system.end(100);
        all.until(|all| all.drain.counts().threads_now == 0);
        all.settle();
        let got = &all.collector.got;
        assert_eq!(got.events.len() as u64 + got.dropped.len() as u64, thread.produced);
        assert_eq!(got.dropped.len(), 3 * 501 + 1);
        assert!(got.dropped.values().all(|reason| reason == "ring-full"));
        assert_eq!(got.settled[&0], thread.produced);
        assert_eq!(all.drain.counts().dropped["ring-full"], got.dropped.len() as u64);
    }
}

#[test]
fn a_ring_is_taken_again_and_is_another_stream() {
    for mut all in both_wires() {
        let mut first = all.thread(0, 100);
        first.call(1, 0);
        all.system.end(100);
        all.until(|all| !all.target.arena.head(0).is_live());
        assert!(all.drain.counts().threads_now == 0);
        all.settle();
        assert!(all.thread_told(0).contains("end: Some"), "{}", all.thread_told(0));
        let mut second = all.thread(0, 101);
        second.call(2, 0);
        second.call(3, 1);
        all.settle();
        assert_eq!((all.events(0).len(), all.events(1).len()), (1, 2));
        assert!(all.thread_told(1).contains("os_id: 101") && all.thread_told(1).contains("end: None"));
    }
}

#[test]
fn a_thread_whose_id_another_has_is_gone() {
    for mut all in both_wires() {
        let mut first = all.thread(0, 100);
        first.call(1, 0);
        all.settle();
        // It ended, and its id was given away, between two looks.
        let mut second = all.thread(1, 100);
        second.call(2, 0);
        all.until(|all| !all.target.arena.head(0).is_live());
        assert!(all.target.arena.head(1).is_live());
        all.settle();
        assert!(all.thread_told(0).contains("end: Some") && all.thread_told(1).contains("end: None"));
        assert_eq!((all.events(0).len(), all.events(1).len()), (1, 1));
    }
}

#[test]
fn names_are_followed() {
    for mut all in both_wires() {
        let mut thread = all.thread(0, 100);
        all.settle();
        assert!(all.thread_told(0).contains("name: \"worker\""));
        let name = *b"by record\0\0\0\0\0\0\0";
        let words = name.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let record: Vec<_> = [tsc::now(), header(Kind::Name, 4, 0, 0)].into_iter().chain(words).collect();
        thread.put(&record);
        all.settle();
        assert!(all.thread_told(0).contains("name: \"by record\""), "{}", all.thread_told(0));
        all.system.start(100, "by the system");
        all.until(|all| all.thread_told(0).contains("name: \"by the system\""));
    }
}

#[test]
fn threads_know_who_created_them() {
    for mut all in both_wires() {
        let create = |thread: &mut FakeThread, entered: u64, handle: u64| {
            let keys = u64::from_le_bytes([0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]);
            thread.event(&[tsc::now(), header(Kind::Runtime, 5, 2, 0), entered, keys, handle]);
        };
        let mut main = all.thread(0, 100);
        all.settle();
        // The new thread is seen before its creator says so; and it may even be gone by then.
        let entered = tsc::now();
        all.system.start(101, "early");
        let _early = all.target.thread_with(1, 101, "early", 0x7100);
        all.settle();
        assert!(all.thread_told(1).contains("creator: None"));
        all.system.end(101);
        all.until(|all| all.drain.counts().threads_now == 1);
        create(&mut main, entered, 0x7100);
        // The next is made with the same handle, and is seen only after that.
        create(&mut main, tsc::now(), 0x7100);
        all.settle();
        all.system.start(102, "late");
        let _late = all.target.thread_with(1, 102, "late", 0x7100);
        all.settle();
        for stream in [1, 2] {
            assert!(all.thread_told(stream).contains("creator: Some(StreamId(0))"), "{}", all.thread_told(stream));
        }
        assert!(all.thread_told(0).contains("creator: None"));
    }
}

#[test]
fn functions_that_are_hooked_later_are_known() {
    for mut all in both_wires() {
        let mut thread = all.thread(0, 100);
        let number = all.functions.add([FunctionId::new(ModuleId(9), 5)]);
        thread.call(number, 0);
        thread.call(number + 1, 0);
        thread.call(0, 0);
        all.settle();
        assert_eq!(all.events(0), ["Call Some(FunctionId(9:5)) 0 None", "Call Some(FunctionId(3:0)) 0 None"]);
        // One that nobody knows is one event less, and said to be.
        assert_eq!(all.collector.got.dropped, BTreeMap::from([((0, 1), "unknown-function".to_string())]));
        assert_eq!(all.drain.counts().functions, 11);
    }
}

#[test]
fn a_ring_that_was_written_over_goes_on_behind() {
    for mut all in both_wires() {
        let mut thread = all.thread(0, 100);
        for garbage in [&[u64::MAX; 50][..], &[1, 2, 3], &[5, header(Kind::Call, 200, 0, 0)], &[9], &[SKIP, 7, 7]] {
            let before = all.drain.counts();
            thread.call(1, 0);
            thread.put(garbage);
            all.settle();
            thread.call(2, 0);
            all.settle();
            let after = all.drain.counts();
            assert_eq!((after.events - before.events, after.damages - before.damages), (2, 1), "{garbage:?}");
            assert!(after.damaged_bytes > before.damaged_bytes || garbage[0] == SKIP, "{garbage:?}");
        }
        // There is a gap wherever something was thrown away, and the limits say so.
        assert_eq!(all.collector.got.dropped.len(), 5);
        assert!(all.collector.got.dropped.values().all(|reason| reason == "ring-damaged"));
        // How far it is written may be written over too.
        all.target.arena.head(0).written.store(u64::MAX - 5, Ordering::Relaxed);
        all.settle();
        all.target.arena.head(0).written.store(0, Ordering::Relaxed);
        all.settle();
        let report = finish(&mut all, EndReason::Exited(0));
        assert!(report.complete);
        assert!(all.collector.got.options["limits"].contains("ring-damaged"));
    }
}

/// Ends the session with a collector that answers from another thread.
fn finish(all: &mut All, reason: EndReason) -> Report {
    let (drain, shipper, collector) = (&mut all.drain, &mut all.shipper, &mut all.collector);
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // ORDERING: nothing but the flag itself is told by it.
            while !over.load(Ordering::Relaxed) {
                collector.turn();
                std::thread::yield_now();
            }
        });
        let report = drain.finish(shipper, reason, Duration::from_secs(20));
        over.store(true, Ordering::Relaxed);
        report
    })
}

#[test]
fn everything_left_in_the_rings_is_taken_at_the_end() {
    for wire in WIRES {
        for reason in [EndReason::Signaled(9), EndReason::Detached] {
            let mut all = All::new(wire);
            let mut threads: Vec<_> = (0..3).map(|ring| all.thread(ring, 100 + ring as u32)).collect();
            all.drain.turn(&mut all.shipper);
            threads.push(all.thread(3, 103));
            for thread in &mut threads {
                while thread.call(1, 0) {}
            }
            all.target.arena.head(1).too_deep.store(4, Ordering::Relaxed);
            let report = finish(&mut all, reason);
            assert!(report.complete, "{report}");
            let produced: u64 = threads.iter().map(|thread| thread.produced).sum();
            let got = &all.collector.got;
            assert_eq!((got.events.len() as u64 + 4, got.dropped.len()), (produced, 4));
            let ends: Vec<_> = threads.iter().map(|thread| thread.produced).collect();
            assert!(got.end.values().eq(&ends));
            // A process that goes on has threads that go on.
            let ended = (0..4).filter(|stream| all.thread_told(*stream).contains("end: Some")).count();
            assert_eq!(ended, if reason == EndReason::Detached { 0 } else { 4 });
            assert!(all.collector.got.options["limits"].contains("count: 4, reason: \"max-depth\""));
        }
    }
}

#[test]
fn what_is_left_when_time_is_up_is_counted() {
    for mut all in both_wires() {
        all.collector.window_bytes = 0;
        all.collector.settle(&mut all.shipper);
        let mut thread = all.thread(0, 100);
        while thread.call(1, 0) {}
        let report = all.drain.finish(&mut all.shipper, EndReason::Exited(1), Duration::ZERO);
        assert!(!report.complete);
        assert_eq!((report.events, report.dropped_in_all()), (0, thread.produced));
        assert_eq!(report.dropped["ring-full"], 1);
    }
}

#[test]
fn one_busy_thread_does_not_keep_the_others_waiting() {
    for mut all in both_wires() {
        let target = FakeTarget::new(1 << 20, 2);
        all.drain.arena = Arc::clone(&target.arena);
        all.target = target;
        let (mut busy, mut quiet) = (all.thread(0, 100), all.thread(1, 101));
        while busy.call(1, 0) {}
        quiet.call(2, 0);
        all.drain.turn(&mut all.shipper);
        assert_eq!(all.drain.unread(1), 0);
        assert!(all.drain.unread(0) > 0);
        all.settle();
        assert_eq!(all.events(0).len() as u64 + 1, busy.produced);
    }
}

#[test]
fn a_run_ends_where_something_else_is() {
    for mut all in both_wires() {
        let (mut thread, mut other) = (all.thread(0, 100), all.thread(1, 101));
        all.settle();
        let busy_with = |thread: &mut FakeThread, what: u64| {
            assert!(thread.put(&[tsc::now(), header(Kind::Substream, 3, 0, 0), what]));
        };
        (0..3).for_each(|depth| assert!(thread.call(1, depth)));
        busy_with(&mut thread, 7);
        (0..2).for_each(|depth| assert!(thread.call(2, depth)));
        // The same once more changes nothing.
        busy_with(&mut thread, 7);
        assert!(thread.call(3, 2));
        thread.event(&[tsc::now(), header(Kind::Runtime, 5, 1, 0), tsc::now(), u64::MAX, 0]);
        (0..4).for_each(|depth| assert!(thread.call(4, depth)));
        // One of a function that nobody knows is dropped.
        thread.call(99, 0);
        assert!(thread.call(5, 0));
        busy_with(&mut thread, 0);
        assert!(thread.call(6, 1));
        (0..5).for_each(|depth| assert!(other.call(1, depth)));
        all.settle();
        let got = &all.collector.got;
        let is_plain = got.runs.is_empty();
        assert!(is_plain || got.runs == [3, 3, 4, 1, 1, 5], "{:?}", got.runs);
        assert_eq!((all.events(0).len(), all.events(1).len(), got.dropped.len()), (13, 5, 1));
        let substreams = got.events.range((0, 0)..=(0, 13)).map(|(_, (stamp, _))| stamp.substream.0);
        assert!(substreams.eq([0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0]));
        assert_eq!((got.settled[&0], got.settled[&1]), (thread.produced, other.produced));
        // A thread that ends leaves nothing open.
        thread.call(1, 0);
        all.system.end(100);
        all.until(|all| all.drain.counts().threads_now == 1);
        all.settle();
        assert_eq!((all.events(0).len(), all.shipper.report().unsettled), (14, 0));
    }
}

#[test]
fn what_is_lost_of_runs_with_details_comes_again() {
    for mut all in both_wires() {
        all.collector.overlook = 3;
        let mut thread = all.thread(0, 100);
        let mut expected = Vec::new();
        for number in 0..300_u64 {
            let mut record = vec![tsc::now(), header(Kind::Call, 2 + 9 + 4, number as u32 % 5, 1)];
            record.extend((0..13).map(|word| if word % 2 == 0 { 0 } else { number * word }));
            while !thread.put(&record) {
                all.drain.turn(&mut all.shipper);
                all.shipper.turn(Duration::ZERO);
                all.collector.turn();
            }
            let [n1, n3, n5, n7, n9, n11] = [1, 3, 5, 7, 9, 11].map(|word| number * word);
            expected.push(format!(
                "Call Some(FunctionId(3:1)) {} Some(([0, {n1}, 0, {n3}, 0, {n5}, 0, 0, 0, {n7}, 0], \
                 [{n9}, 0, {n11}, 0]))",
                number % 5
            ));
        }
        all.settle();
        assert!(all.events(0) == expected, "other events");
        assert!(all.shipper.report().again > 0);
    }
}
