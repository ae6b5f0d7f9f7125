//! Fake threads, real rings, a drain and a shipper: and what should come of it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use codec::{
    Arch, EventKind, FunctionId, ModuleId, Os, SessionNs, access,
    profile::{EndReason, FunctionName, Module, Registers},
};
use real_agent::{
    drain::{Clock, Drain, Functions, Tasks},
    shared::{Kind, header, tsc},
    ship::{Report, Settings, Shipper, Who},
};
use tests::{Random, Trace, trace::Recorded};

use crate::delivery::fake::{FakeTarget, FakeThread};

const FUNCTIONS: u32 = 50;
const MODULE: ModuleId = ModuleId(1);

/// The threads that the system knows.
#[derive(Debug, Clone, Default)]
struct System(Arc<Mutex<Vec<u32>>>);

impl Tasks for System {
    fn is_ending(&mut self, _: &[u32]) -> bool {
        false
    }

    fn list(&mut self, ids: &mut Vec<u32>) -> bool {
        ids.clone_from(&self.0.lock().unwrap_or_else(PoisonError::into_inner));
        true
    }

    fn is_gone(&mut self, id: u32) -> bool {
        !self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
    }

    fn name(&mut self, _: u32) -> Option<Vec<u8>> {
        None
    }
}

/// An event that was produced.
#[derive(Debug, Clone, PartialEq)]
struct Made {
    kind: EventKind,
    function: u32,
    depth: u32,
    captured: Option<(Registers, Vec<u8>)>,
    /// Whether there was room for it.
    kept: bool,
}

pub(crate) struct Rig {
    target: FakeTarget,
    threads: Vec<FakeThread>,
    /// The stream of each thread.
    streams: Vec<u32>,
    next_tid: u32,
    system: System,
    drain: Drain,
    shipper: Shipper,
    made: BTreeMap<u32, Vec<Made>>,
    random: Random,
}

impl Rig {
    pub(crate) fn new(settings: Settings, threads: usize, ring_bytes: usize) -> Self {
        let clock = Clock::start();
        let mut random = Random::new(7);
        let secret: [u8; 32] = [random.id(), random.id()].concat().try_into().expect("32 bytes");
        let who = Who {
            session: access::claimed_id(&secret),
            secret: Some(secret),
            arch: Arch::X86_64,
            os: Os::Linux,
            pid: 4_711,
            agent_version: "test".into(),
            host: "machine".into(),
            executable: "/bin/program".into(),
            arguments: vec!["program".into()],
            epoch_unix_ns: clock.epoch_unix_ns(),
            clock_zero_ns: clock.zero_ns(),
            birth: None,
            root: access::claimed_id(&secret),
            trace: Default::default(),
        };
        let mut shipper = Shipper::connect(settings, &who).expect("the collector answers");
        let names: Vec<_> = (0..FUNCTIONS).map(|index| format!("function_{index}")).collect();
        let functions: Vec<_> = names.iter().map(|name| FunctionName { offset: 16, name }).collect();
        let module = Module {
            id: MODULE,
            base: 0x40_0000,
            size: 0x1000,
            loaded: SessionNs(0),
            unloaded: None,
            function_count: 0,
            table_hash: 0,
            build_id: &[7; 20],
            path: "/bin/program",
        };
        shipper.module(&module, &functions);
        let numbers = Arc::new(Functions::default());
        numbers.add((0..FUNCTIONS).map(|index| FunctionId::new(MODULE, index)));
        let target = FakeTarget::new(ring_bytes, threads);
        let system = System::default();
        let drain = Drain::new(Arc::clone(&target.arena), clock, numbers, system.clone());
        let (made, streams) = (BTreeMap::new(), Vec::new());
        let mut rig =
            Self { target, threads: Vec::new(), streams, next_tid: 100, system, drain, shipper, made, random };
        (0..threads).for_each(|ring| rig.start_thread(ring));
        rig
    }

    fn start_thread(&mut self, ring: usize) {
        let tid = self.next_tid;
        self.next_tid += 1;
        self.system.0.lock().unwrap_or_else(PoisonError::into_inner).push(tid);
        self.threads.push(self.target.thread(ring, tid, "worker"));
        // Streams are numbered as the rings are found: in order, as long as they are found before others are taken.
        self.streams.push(tid - 100);
    }

    /// All threads end, and others start once that has been noticed.
    #[track_caller]
    pub(crate) fn replace_threads(&mut self, timeout: Duration) {
        // They have been seen.
        self.turn();
        self.system.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let deadline = Instant::now() + timeout;
        while self.drain.counts().threads_now > 0 {
            assert!(Instant::now() < deadline, "nobody notices");
            self.turn();
        }
        let rings = self.threads.len();
        self.threads.clear();
        self.streams.clear();
        (0..rings).for_each(|ring| self.start_thread(ring));
    }

    /// Produces this many events in all, on all threads by turns.
    pub(crate) fn work(&mut self, events: u64) {
        for number in 0..events {
            let thread = number as usize % self.threads.len();
            let made = self.made.entry(self.streams[thread]).or_default();
            let (function, depth) = (self.random.below(FUNCTIONS.into()) as u32, self.random.below(30) as u32);
            let detailed = self.random.chance(0.1);
            let words: Vec<_> = (0..self.random.below(60)).map(|_| self.random.next_u64()).collect();
            let now = tsc::now();
            let (kind, record) = match self.random.below(10) {
                0 => (EventKind::Exception, vec![now, header(Kind::Exception, 3, depth, function), now]),
                1..=4 => {
                    let length = if detailed { 8 } else { 3 };
                    let record = [now, header(Kind::Return, length, depth, function), now, 1, 2, 3, 4, 5];
                    (EventKind::Return, record[..length].to_vec())
                }
                _ => {
                    let length = if detailed { 2 + 9 + words.len() } else { 2 };
                    let mut record = vec![now, header(Kind::Call, length, depth, function)];
                    record.extend([1, 2, 3, 4, 5, 6, 7, 8, 9]);
                    record.extend(&words);
                    (EventKind::Call, record[..length].to_vec())
                }
            };
            let captured = match kind {
                EventKind::Call if detailed => Some((
                    Registers::from_words([1, 2, 3, 4, 5, 6, 0, 0, 7, 8, 9]),
                    words.iter().flat_map(|word| word.to_le_bytes()).collect(),
                )),
                EventKind::Return if detailed => {
                    Some((Registers::from_words([1, 2, 0, 0, 0, 0, 0, 0, 3, 4, 5]), Vec::new()))
                }
                _ => None,
            };
            let kept = self.threads[thread].event(&record);
            made.push(Made { kind, function, depth, captured, kept });
        }
    }

    /// Drains and ships, once.
    pub(crate) fn turn(&mut self) {
        self.drain.turn(&mut self.shipper);
        self.shipper.turn(Duration::from_millis(1));
    }

    /// Waits until everything that was produced is acknowledged.
    #[track_caller]
    pub(crate) fn settle(&mut self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        loop {
            self.turn();
            let report = self.shipper.report();
            if report.unsettled == 0 && report.unacknowledged == 0 && report.events == self.produced() {
                return;
            }
            assert!(Instant::now() < deadline, "it is not acknowledged: {report:?}");
        }
    }

    pub(crate) fn finish(&mut self, reason: EndReason, linger: Duration) -> Report {
        self.drain.finish(&mut self.shipper, reason, linger)
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.shipper.is_connected()
    }

    /// How many events the collector says it has lost.
    pub(crate) fn lost(&mut self) -> u64 {
        self.shipper.report().lost.values().sum()
    }

    /// How many events were produced.
    pub(crate) fn produced(&self) -> u64 {
        self.made.values().map(|made| made.len() as u64).sum()
    }

    /// How many events did not fit a ring.
    pub(crate) fn dropped(&self) -> u64 {
        self.made.values().flatten().filter(|made| !made.kept).count() as u64
    }

    /// Fails the test unless every event of the trace is the one that was produced at its position, and every one that
    /// was kept is there or among those that the network or a killed collector is said to have lost.
    #[track_caller]
    pub(crate) fn is_all_in(&self, trace: &Trace) {
        let mut network = trace.missing("network");
        network.extend(trace.missing("agent:kept-before"));
        network.extend(trace.missing("collector:killed"));
        network.extend(trace.missing("collector:disk-full"));
        for (stream, events) in &trace.threads {
            let made = &self.made[stream];
            let mut there = vec![false; made.len()];
            for event in events {
                let at = event.position as usize;
                same(*stream, &made[at], event);
                there[at] = true;
            }
            assert!(events.is_sorted_by_key(|event| event.time_ns), "stream {stream}: time goes back");
            for (position, (made, there)) in (0..).zip(made.iter().zip(there)) {
                let known = there || !made.kept || network.contains(&(*stream, position));
                let beyond = trace.manifest.threads.iter().any(|t| t.id == *stream && t.produced <= Some(position));
                assert!(known || beyond, "stream {stream}: position {position} is missing");
            }
        }
    }
}

#[track_caller]
fn same(stream: u32, made: &Made, event: &Recorded) {
    let position = event.position;
    assert!(made.kept, "stream {stream}, position {position}: it was dropped");
    let expected = (made.kind, FunctionId::new(MODULE, made.function), made.depth, &made.captured);
    let found = (event.kind, event.function, event.depth, &event.captured);
    assert_eq!(found, expected, "stream {stream}, position {position}");
    assert_eq!(event.name.as_deref(), Some(format!("function_{}", made.function).as_str()));
}
