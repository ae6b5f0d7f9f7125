//! Thousands of random links.

use std::{collections::BTreeSet, time::Duration};

use collector_core::Config;
use quickcheck::{Arbitrary, Gen, QuickCheck};

use crate::{
    agent::Agent,
    ledger::{Ledger, link},
};

/// What a link does to one datagram: how many copies come through, each after how many others.
#[derive(Debug, Clone)]
struct Fate(Vec<u8>);

impl Arbitrary for Fate {
    fn arbitrary(gen_: &mut Gen) -> Self {
        let delay = |gen_: &mut Gen| *gen_.choose(&[0, 0, 0, 0, 1, 2, 3, 9, 40]).expect("some");
        Self(match u8::arbitrary(gen_) % 10 {
            0 | 1 => vec![],
            2 => vec![delay(gen_), delay(gen_)],
            _ => vec![delay(gen_)],
        })
    }
}

/// One run: a few streams that start anywhere, their events in datagrams, and what happens to those.
#[derive(Debug, Clone)]
struct Schedule {
    starts: Vec<u64>,
    /// Per datagram: the stream, how many events, and its fate.
    datagrams: Vec<(u8, u8, Fate)>,
    /// Whether the packets that tell the ends come through.
    end_arrives: bool,
    /// A burst of losses: from which datagram on, and how many.
    burst: (u8, u8),
}

impl Arbitrary for Schedule {
    fn arbitrary(gen_: &mut Gen) -> Self {
        let streams = 1 + usize::from(u8::arbitrary(gen_) % 3);
        // Zero, and just before the counter wraps around.
        let starts =
            (0..streams).map(|_| *gen_.choose(&[0, 0, (1 << 32) - 20, (3 << 32) - 5]).expect("some")).collect();
        Self {
            starts,
            datagrams: Arbitrary::arbitrary(gen_),
            end_arrives: bool::arbitrary(gen_),
            burst: Arbitrary::arbitrary(gen_),
        }
    }

    fn shrink(&self) -> Box<dyn Iterator<Item = Self>> {
        let this = self.clone();
        Box::new(self.datagrams.shrink().map(move |datagrams| Self { datagrams, ..this.clone() }))
    }
}

/// The stream of an event and its position, or the stream and where it ended.
type Place = (u32, u64);

/// A datagram, and the events in it.
struct Datagram {
    bytes: Vec<u8>,
    events: Vec<Place>,
}

/// The datagrams of a schedule in the order they arrive, and where the streams ended.
fn play(schedule: &Schedule, agent: &Agent) -> (Vec<Datagram>, Vec<Place>) {
    let mut next = schedule.starts.clone();
    let mut arrivals: Vec<(usize, Datagram)> = Vec::new();
    let (burst, length) = (usize::from(schedule.burst.0), usize::from(schedule.burst.1 % 16));
    for (number, (stream, count, fate)) in schedule.datagrams.iter().enumerate() {
        let stream = usize::from(*stream) % next.len();
        let id = u32::try_from(stream).expect("few");
        let (first, count) = (next[stream], 1 + u64::from(count % 5));
        next[stream] += count;
        if (burst..burst + length).contains(&number) {
            continue;
        }
        for (copy, delay) in fate.0.iter().enumerate() {
            // Each copy in another form: single packets, a run, a run that has some of the events before in it.
            let (bytes, first) = match (number + copy) % 3 {
                0 => ((first..first + count).flat_map(|position| agent.event(id, position)).collect(), first),
                1 => (agent.run(id, first, count), first),
                _ => {
                    let earlier = first.saturating_sub(2).max(schedule.starts[stream]);
                    (agent.run(id, earlier, first - earlier + count), earlier)
                }
            };
            let events = (first..next[stream]).map(|position| (id, position)).collect();
            arrivals.push((number + usize::from(*delay), Datagram { bytes, events }));
        }
    }
    arrivals.sort_by_key(|(at, _)| *at);
    let ends = (0..).zip(next).collect();
    (arrivals.into_iter().map(|(_, datagram)| datagram).collect(), ends)
}

/// What came of a schedule.
struct Delivered {
    ledger: Ledger,
    /// Every event that arrived, as often as it did.
    copies: Vec<Place>,
    arrived: BTreeSet<Place>,
    ends: Vec<Place>,
}

/// Delivers all datagrams, with so much time between them, and waits two seconds.
fn deliver(schedule: &Schedule, config: Config, step: Duration, end_arrives: bool) -> Delivered {
    let (agent, mut ledger) = link(config);
    let mut first = [agent.session(), agent.clock()].concat();
    for (stream, start) in (0..).zip(&schedule.starts).filter(|(_, start)| **start > 0) {
        first.extend(agent.drops(stream, 0, *start));
    }
    ledger.send(&agent, &first);
    let (arrivals, ends) = play(schedule, &agent);
    for Datagram { bytes, .. } in &arrivals {
        ledger.send(&agent, bytes);
        ledger.pass(step);
    }
    if end_arrives {
        ledger.send(&agent, &agent.end(&ends));
    }
    for _ in 0..10 {
        ledger.pass(Duration::from_millis(200));
    }
    let copies: Vec<Place> = arrivals.into_iter().flat_map(|datagram| datagram.events).collect();
    Delivered { ledger, arrived: copies.iter().copied().collect(), copies, ends }
}

/// With room to wait, exactly what never arrived is missing.
fn exact(schedule: Schedule) -> bool {
    let delivered = deliver(&schedule, Config::default(), Duration::from_micros(100), schedule.end_arrives);
    let Delivered { mut ledger, arrived, ends, .. } = delivered;
    for _ in 0..35 {
        ledger.pass(Duration::from_secs(1));
    }
    let session = ledger.only();
    assert!(session.ended.is_some(), "it ends, told or not");
    for (stream, end) in &ends {
        let start = schedule.starts[*stream as usize];
        let expected: Vec<u64> = (start..*end).filter(|position| arrived.contains(&(*stream, *position))).collect();
        let last = expected.last().map_or(start, |last| last + 1);
        let known = if schedule.end_arrives { *end } else { last };
        let Some(story) = session.streams.get(stream) else {
            assert_eq!(known, 0, "a stream that nothing is told of");
            continue;
        };
        assert_eq!(story.positions(), expected);
        assert!(story.events.iter().all(|(position, mark)| position == mark), "each event at its place");
        let network: u64 = story.gaps.iter().filter(|gap| gap.2 == "network").map(|gap| gap.1).sum();
        assert_eq!(network, known - start - expected.len() as u64);
        assert_eq!(story.next, Some(known));
    }
    ledger.balance();
    true
}

/// With hardly any room to wait, every copy of an event is still written, late, or a duplicate.
fn accounted(schedule: Schedule, window: u8, step_ms: u8) -> bool {
    let config = Config { reorder_packets: 1 + u64::from(window % 8), ..Config::default() };
    let step = Duration::from_millis(step_ms.into());
    let Delivered { ledger, copies, arrived, ends } = deliver(&schedule, config, step, true);
    let counts = ledger.collector.counts();
    assert_eq!(copies.len() as u64, counts.written + counts.late + counts.duplicates);
    let session = ledger.only();
    assert!(session.ended.is_some());
    for (stream, end) in &ends {
        let Some(story) = session.streams.get(stream) else {
            assert_eq!(*end, 0);
            continue;
        };
        assert_eq!(story.next, Some(*end), "all that was produced is settled");
        for (position, mark) in &story.events {
            assert_eq!(position, mark);
            assert!(arrived.contains(&(*stream, *position)));
        }
    }
    ledger.balance();
    true
}

#[test]
fn exactly_what_never_arrived_is_missing() {
    QuickCheck::new().tests(2000).quickcheck(exact as fn(Schedule) -> bool);
}

#[test]
fn every_copy_is_written_late_or_a_duplicate() {
    QuickCheck::new().tests(2000).quickcheck(accounted as fn(Schedule, u8, u8) -> bool);
}
