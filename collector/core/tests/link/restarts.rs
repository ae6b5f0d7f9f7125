//! A model of the two acknowledgements and of sessions that go on, over random schedules: collectors that are killed or
//! stopped with some of what they have told not yet written, agents that fall silent and move, a link that loses.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use codec::{
    Position, SessionId, StreamId,
    heph::{MAX_PACKET_BYTES, Packets},
    profile::{Known, Message, ProfileOption},
};
use collector_core::{
    Catalog, CatalogLimits, Collector, Config, EarlierSession, How, Output, Peer, Session, SessionName, SessionNames,
};
use quickcheck::{Arbitrary, Gen, QuickCheck};

use crate::agent::{Agent, peer};

const STREAMS: u32 = 2;

/// What happens next.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A stream produces some events.
    Produce(u32, u64),
    /// The agent sends what it has, and hears the answers. Each datagram is lost or not, by these bits.
    Send(u16),
    /// What the collector has told is written.
    Flush,
    Kill,
    Stop,
    /// Nothing is heard for longer than the collector waits.
    Silence,
    Move,
}

impl Arbitrary for Step {
    fn arbitrary(g: &mut Gen) -> Self {
        match u8::arbitrary(g) % 20 {
            0..6 => Self::Produce(u32::arbitrary(g) % STREAMS, 1 + u64::arbitrary(g) % 20),
            6..13 => Self::Send(u16::arbitrary(g) & u16::arbitrary(g)),
            13..16 => Self::Flush,
            16 => Self::Kill,
            17 => Self::Stop,
            18 => Self::Silence,
            _ => Self::Move,
        }
    }
}

/// What is in files: how many events of each stream, all from the first on.
#[derive(Debug, Default)]
struct Files {
    is_there: bool,
    streams: BTreeMap<u32, u64>,
}

#[derive(Debug, Clone, Default)]
struct Store(Arc<Mutex<Files>>);

impl Store {
    fn with<T>(&self, act: impl FnOnce(&mut Files) -> T) -> T {
        act(&mut self.0.lock().expect("nobody panicked"))
    }
}

impl SessionNames for Store {
    fn name(&mut self, _: &Peer) -> SessionName {
        assert!(!self.with(|files| files.is_there), "it goes on");
        SessionName { name: "the one".into(), ..SessionName::default() }
    }

    fn earlier(&mut self, id: SessionId, _: &Peer, catalog: Catalog) -> Option<EarlierSession> {
        self.with(|files| {
            let session = Arc::new(Session::new("the one".into(), Some(id), String::new(), 0, catalog));
            let positions: HashMap<_, _> =
                files.streams.iter().map(|(stream, next)| (StreamId(*stream), Position(*next))).collect();
            let written = files.streams.values().sum();
            let earlier =
                EarlierSession { session, kept: positions.clone(), positions, written, missing: BTreeMap::new() };
            files.is_there.then_some(earlier)
        })
    }
}

struct World {
    agent: Agent,
    port: u16,
    produced: [u64; STREAMS as usize],
    /// What the agent need not keep any longer.
    kept: [u64; STREAMS as usize],
    collector: Collector,
    store: Store,
    /// What the collector has told and nobody has written.
    told: Vec<Output>,
    now: Duration,
    ended: bool,
}

impl World {
    fn new() -> Self {
        let store = Store::default();
        let collector = Collector::new(Config::default(), CatalogLimits::default(), store.clone());
        let (produced, kept) = ([0; STREAMS as usize], [0; STREAMS as usize]);
        let (now, agent) = (Duration::from_secs(1), Agent::new(1, 5000));
        Self { agent, port: 5000, produced, kept, collector, store, told: Vec::new(), now, ended: false }
    }

    fn take(&mut self) {
        self.collector.flush(self.now);
        self.told.extend(std::iter::from_fn(|| self.collector.poll_output()));
        while let Some(transmit) = self.collector.poll_transmit() {
            let mut packets = Packets::new(&transmit.packet, MAX_PACKET_BYTES);
            while let Some(Ok(message)) = packets.next_with(Message::decode) {
                let Message::Option(Known { option: ProfileOption::Kept(kept), .. }) = message else { continue };
                assert!(kept.lost.is_empty(), "nothing is lost for good");
                for position in kept.streams {
                    let written = self.store.with(|files| files.streams.get(&position.stream.0).copied());
                    assert!(position.next.0 <= written.unwrap_or(0), "what is kept is in files");
                    let kept = &mut self.kept[position.stream.0 as usize];
                    *kept = (*kept).max(position.next.0);
                }
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.collector.tick(self.now);
        self.take();
    }

    fn send(&mut self, lost: u16, end: bool) {
        let positions: Vec<_> = (0..).zip(self.produced).collect();
        let mut datagrams = vec![[self.agent.session(), self.agent.progress(&positions)].concat()];
        for (stream, next) in &positions {
            let kept = self.kept[*stream as usize];
            let firsts = (kept..*next).step_by(7);
            datagrams.extend(firsts.map(|first| self.agent.run(*stream, first, (next - first).min(7))));
        }
        datagrams.extend(end.then(|| self.agent.end(&positions)));
        for (number, datagram) in datagrams.iter().enumerate() {
            if lost >> (number % 16) & 1 == 0 {
                self.collector.datagram(self.now, self.agent.peer, datagram);
            }
        }
        (0..4).for_each(|_| self.pass(Duration::from_millis(15)));
    }

    /// Writes what was told, and says so.
    fn flush(&mut self) {
        let mut kept = HashMap::new();
        let mut session = None;
        for output in std::mem::take(&mut self.told) {
            match output {
                Output::Started(_) => self.store.with(|files| files.is_there = true),
                Output::Events(batch) => {
                    for run in &batch.runs {
                        self.store.with(|files| {
                            let next = files.streams.entry(run.stream.0).or_default();
                            assert_eq!(run.first.0, *next, "stream {}: no hole, and nothing twice", run.stream.0);
                            *next += u64::from(run.events);
                            kept.insert(run.stream, Position(*next));
                        });
                    }
                    session = Some(Arc::clone(&batch.session));
                }
                Output::Gap(_, gap) => assert!(gap.cause.is_provisional(), "{gap:?}"),
                Output::Ended(_, summary) => self.ended = matches!(summary.how, How::Told(_)),
                Output::Resumed(_) | Output::Options(..) | Output::Ending(..) => {}
            }
        }
        if let Some(session) = session {
            self.collector.kept(self.now, &session, kept);
            self.take();
        }
    }

    /// Another collector takes its place.
    fn restart(&mut self) {
        self.told.clear();
        self.collector = Collector::new(Config::default(), CatalogLimits::default(), self.store.clone());
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Produce(stream, count) => self.produced[stream as usize] += count,
            Step::Send(lost) => self.send(lost, false),
            Step::Flush => self.flush(),
            Step::Kill => self.restart(),
            Step::Stop => {
                self.collector.finish(self.now, How::Stopped);
                self.take();
                self.flush();
                self.restart();
            }
            Step::Silence => self.pass(Duration::from_secs(31)),
            Step::Move => {
                self.port += 1;
                self.agent.peer = peer(self.port);
            }
        }
    }
}

/// Whatever happens, in the end everything is in one place, once and in order.
fn everything_is_there_once(steps: Vec<Step>) -> bool {
    let mut world = World::new();
    steps.into_iter().for_each(|step| world.step(step));
    for _ in 0..100 {
        world.send(0, true);
        world.flush();
        if world.ended {
            break;
        }
    }
    let written = world.store.with(|files| files.streams.clone());
    let all = (0..).zip(world.produced).filter(|(_, count)| *count > 0);
    world.ended && written.into_iter().eq(all)
}

#[test]
fn sessions_go_on_whatever_happens() {
    QuickCheck::new().tests(2_000).quickcheck(everything_is_there_once as fn(Vec<Step>) -> bool);
}
