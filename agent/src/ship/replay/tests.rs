//! The replay buffer against a model that keeps every event by itself.

use std::collections::BTreeMap;

use codec::{
    EventKind, FunctionId, SessionNs, SubstreamId,
    heph::{Event, Packets, Stamp},
    profile::Detail,
};
use quickcheck::{Arbitrary, Gen, quickcheck};

use super::*;

const LIMIT: usize = 1_000;

fn packet(stream: u32, position: u64) -> Event<'static> {
    let (stream, counter) = (StreamId(stream), Position(position).counter());
    // Of different sizes.
    let description = &"x".repeat(200)[..(position % 7 * 20) as usize];
    let (start, end, substream) = (SessionNs(position), SessionNs(0), SubstreamId(0));
    let description = String::leak(description.to_string());
    Event { stamp: Stamp { stream, counter, substream, start, end }, description, attributes: Default::default() }
}

/// Pushes an event in one of several forms: in a packet of its own, or in a run of one or another substream.
fn push(replay: &mut Replay, stream: u32, position: u64, form: u8) {
    let (of, at) = (StreamId(stream), Position(position));
    let pushed = match form % 4 {
        0 => replay.push(of, at, &packet(stream, position)),
        form => replay.push_function(of, SubstreamId((form / 2).into()), at, &function(position)),
    };
    pushed.expect("it can be encoded");
}

fn function(position: u64) -> RunEvent<'static> {
    let (at, function) = (SessionNs(position), Some(FunctionId(position % 3 * ((1 << 40) + 1))));
    let kind = if position.is_multiple_of(3) { EventKind::Return } else { EventKind::Call };
    RunEvent { kind, depth: (position % 5) as u32, function, ip: 0, start: at, end: at, detail: None }
}

/// The events in some bytes.
fn events(bytes: &[u8]) -> Vec<(u32, u64)> {
    packets(bytes).concat()
}

/// The events in some bytes, by packet.
fn packets(bytes: &[u8]) -> Vec<Vec<(u32, u64)>> {
    let mut packets = Packets::new(bytes, MAX_PACKET_BYTES);
    let mut events = Vec::new();
    while let Some(packet) = packets.next_with(Ok) {
        let packet = packet.expect("whole packets");
        events.push(match Message::decode(packet).expect("valid packets") {
            Message::Run(run) => run.function_events().map(|event| (event.stamp.stream.0, event.stamp.end.0)).collect(),
            _ => {
                let event = Event::decode(packet).expect("an event");
                vec![(event.stamp.stream.0, event.stamp.start.0)]
            }
        });
    }
    events
}

#[derive(Debug, Clone)]
enum Step {
    Push(u32, u8, u8),
    Skip(u32, u8),
    Seal,
    Send(u16),
    Receive(u32, u8),
    Keep(u32, u8),
    Again(u32, u8, u8),
    Rewind,
}

impl Arbitrary for Step {
    fn arbitrary(g: &mut Gen) -> Self {
        let stream = u32::arbitrary(g) % 4;
        let (a, b) = (u8::arbitrary(g), u8::arbitrary(g));
        match u8::arbitrary(g) % 16 {
            0..=4 => Self::Push(stream, a % 40, b),
            5 => Self::Skip(stream, a % 5 + 1),
            6 | 7 => Self::Seal,
            8..=10 => Self::Send(u16::arbitrary(g)),
            11 => Self::Receive(stream, a),
            12 => Self::Keep(stream, a),
            13 | 14 => Self::Again(stream, a, b),
            _ => Self::Rewind,
        }
    }
}

/// What should be.
#[derive(Debug, Default)]
struct Model {
    next: BTreeMap<u32, u64>,
    /// Events that are kept, and whether they are underway.
    kept: BTreeMap<(u32, u64), bool>,
    told: BTreeMap<u32, u64>,
    received: BTreeMap<u32, u64>,
    settled: BTreeMap<u32, u64>,
}

impl Model {
    /// How far a stream was sent or dropped. What was told once stays told, also where it is to be sent again.
    fn told(&mut self, stream: u32) -> u64 {
        // What was received is not sent again by itself.
        let received = self.received.get(&stream).copied().unwrap_or(0);
        let is_unsent = |((of, at), underway): &(&(u32, u64), &bool)| *of == stream && *at >= received && !**underway;
        let mut unsent = self.kept.iter().filter(is_unsent);
        let next = self.next.get(&stream).copied().unwrap_or(0);
        let told = unsent.next().map_or(next, |((_, position), _)| *position);
        let before = self.told.entry(stream).or_default();
        *before = told.max(*before);
        *before
    }

    /// So many 255ths of a stream, and somewhat more than there is; and how far that counts.
    fn reach(&mut self, stream: u32, share: u8) -> (u64, u64) {
        let (told, next) = (self.told(stream), self.next.get(&stream).copied().unwrap_or(0));
        let to = (next + 3) * u64::from(share) / 255;
        (to, to.min(told))
    }
}

fn check(steps: &[Step]) {
    let mut replay = Replay::new(LIMIT);
    let mut model = Model::default();
    let mut now_ms = 1;
    for step in steps {
        now_ms += 100;
        match *step {
            Step::Push(stream, count, form) => {
                for _ in 0..count {
                    let next = model.next.entry(stream).or_default();
                    push(&mut replay, stream, *next, form);
                    model.kept.insert((stream, *next), false);
                    *next += 1;
                }
            }
            Step::Skip(stream, count) => {
                let next = model.next.entry(stream).or_default();
                *next += u64::from(count);
                replay.skip(StreamId(stream), Position(*next));
            }
            Step::Seal => replay.seal(),
            Step::Send(window) => {
                while let Some(parcel) = replay.next_parcel(window.into()) {
                    assert!(parcel.len() <= LIMIT);
                    for event in events(parcel) {
                        // Whole parcels are sent, also where some of it is settled.
                        model.kept.entry(event).and_modify(|underway| *underway = true);
                    }
                    replay.parcel_sent(now_ms);
                }
            }
            Step::Receive(stream, share) => {
                let (to, reached) = model.reach(stream, share);
                replay.receive(StreamId(stream), Position(to));
                let received = model.received.entry(stream).or_default();
                *received = reached.max(*received);
            }
            Step::Keep(stream, share) => {
                let (to, reached) = model.reach(stream, share);
                replay.keep(StreamId(stream), Position(to));
                let settled = model.settled.entry(stream).or_default();
                *settled = reached.max(*settled);
                model.kept.retain(|(of, position), _| *of != stream || *position >= *settled);
            }
            Step::Again(stream, first, count) => {
                let range = Range { stream: StreamId(stream), first: Position(first.into()), count: count.into() };
                let mut found = Vec::new();
                let count = replay.again(&range, now_ms, 10, |bytes| found.extend(packets(bytes)));
                let wanted = range.first.0..range.first.0 + range.count;
                let is_wanted = |(of, at): &(u32, u64)| *of == stream && wanted.contains(at);
                // What is settled may come too, where the rest of its segment is not, and all of a run that is wanted in part.
                // What was received comes, but for that of which some is to be sent again.
                let of = |positions: &BTreeMap<u32, u64>| positions.get(&stream).copied().unwrap_or(0);
                let settled = of(&model.settled).max(of(&model.received));
                let underway = model.kept.iter().filter(|(event, underway)| is_wanted(event) && **underway);
                let underway: Vec<_> = underway.map(|(event, _)| *event).filter(|event| event.1 >= settled).collect();
                assert!(found.iter().all(|packet| packet.iter().any(is_wanted)));
                let mut found = found.concat();
                assert_eq!(count, found.len() as u64);
                assert!(found.is_sorted());
                found.retain(|event| event.1 >= settled && is_wanted(event));
                assert_eq!(found, underway);
                let at_once = replay.again(&range, now_ms, 10, |_| {});
                assert_eq!(at_once, 0, "it was passed on already");
                let again = replay.again(&range, now_ms + 5, 10, |_| {});
                assert_eq!(again, 0, "it is underway");
            }
            Step::Rewind => {
                replay.rewind();
                (0..4).for_each(|stream| _ = model.told(stream));
                model.received.clear();
                model.kept.values_mut().for_each(|underway| *underway = false);
            }
        }
        assert_eq!(replay.unsettled_events(), model.kept.len() as u64);
        assert!(replay.pushed() >= model.kept.len() as u64);
        let unsettled: BTreeMap<_, _> = replay.positions().iter().map(|at| (at.stream.0, at.next.0)).collect();
        for (stream, next) in model.next.clone() {
            let settled = model.settled.get(&stream).copied().unwrap_or(0);
            assert_eq!(replay.kept(StreamId(stream)).0, settled);
            assert_eq!(unsettled.contains_key(&stream), settled < next, "{stream}: {settled} of {next}");
            let told = model.told(stream);
            assert_eq!(unsettled.get(&stream).copied().unwrap_or(told), told, "{stream}");
        }
    }
    // Everything is delivered in the end, and nothing is left.
    replay.seal();
    while replay.next_parcel(u64::MAX).is_some() {
        replay.parcel_sent(now_ms);
    }
    assert!(!replay.has_unsent());
    for (stream, next) in &model.next {
        replay.keep(StreamId(*stream), Position(*next));
    }
    assert!(replay.is_settled());
    assert_eq!((replay.in_flight_bytes(), replay.kept_bytes(), replay.parcels.len()), (0, 0, 0));
}

quickcheck! {
    fn it_keeps_what_the_model_keeps(steps: Vec<Step>) -> bool {
        check(&steps);
        true
    }
}

/// A collector that was killed after it received something, and before it kept it, asks for it again.
#[test]
fn what_was_received_and_not_kept_can_be_had_again() {
    let mut replay = Replay::new(LIMIT);
    (0..100).for_each(|position| push(&mut replay, 1, position, 0));
    replay.seal();
    while replay.next_parcel(u64::MAX).is_some() {
        replay.parcel_sent(1);
    }
    replay.keep(StreamId(1), Position(10));
    replay.receive(StreamId(1), Position(100));
    assert_eq!((replay.in_flight_bytes(), replay.unsettled_events()), (0, 90));
    replay.rewind();
    while replay.next_parcel(u64::MAX).is_some() {
        replay.parcel_sent(1);
    }
    assert!(replay.in_flight_bytes() > 0, "it may be lost with the collector that received it");
    let mut found = Vec::new();
    let range = Range { stream: StreamId(1), first: Position(10), count: 90 };
    replay.again(&range, 1_000, 10, |bytes| found.extend(events(bytes)));
    assert!((10..100).all(|position| found.contains(&(1, position))), "{found:?}");
    replay.keep(StreamId(1), Position(100));
    assert!(replay.is_settled());
}

#[test]
fn an_event_that_does_not_fit_any_parcel_goes_alone() {
    let mut replay = Replay::new(100);
    for position in [6, 0, 13, 20] {
        replay.push(StreamId(0), Position(position), &packet(0, position)).expect("it can be encoded");
    }
    replay.seal();
    let mut parcels = Vec::new();
    while let Some(parcel) = replay.next_parcel(u64::MAX) {
        parcels.push(events(parcel));
        replay.parcel_sent(1);
    }
    assert_eq!(parcels, [[(0, 6)], [(0, 0)], [(0, 13)], [(0, 20)]]);
}

#[test]
fn an_event_that_no_run_can_hold_goes_in_a_packet_of_its_own() {
    let (registers, stack) = ([1; 11], [2; 64]);
    let detailed = |position| RunEvent { detail: Some(Detail::new(&registers, &stack)), ..function(position) };
    // Too large for a parcel, or left before it was entered.
    let backwards = RunEvent { kind: EventKind::Return, start: SessionNs(9), ..function(2) };
    let mut replay = Replay::new(512);
    for (position, event) in [(1, detailed(1)), (2, backwards), (3, function(3)), (4, function(4))] {
        let pushed = replay.push_function(StreamId(0), SubstreamId(0), Position(position), &event);
        pushed.expect("it can be encoded");
    }
    replay.seal();
    let mut parcels = Vec::new();
    while let Some(parcel) = replay.next_parcel(u64::MAX) {
        parcels.push(packets(parcel).iter().map(Vec::len).collect::<Vec<_>>());
        replay.parcel_sent(1);
    }
    assert_eq!(parcels, [vec![1], vec![1, 2]]);
}

#[test]
fn what_was_never_sent_can_be_given_up() {
    let mut replay = Replay::new(LIMIT);
    for position in 0..400 {
        push(&mut replay, 2, position, (position / 50) as u8);
    }
    let sent = events(replay.next_parcel(u64::MAX).expect("a parcel")).len() as u64;
    replay.parcel_sent(1);
    let abandoned = replay.abandon();
    assert_eq!(abandoned.iter().map(|range| range.count).sum::<u64>(), 400 - sent);
    assert_eq!(abandoned[0].first, Position(sent));
    assert!(replay.next_parcel(u64::MAX).is_none());
    assert_eq!(replay.all_positions().last().map(|at| at.next), Some(Position(400)));
    replay.keep(StreamId(2), Position(400));
    assert!(replay.is_settled());
    assert_eq!((replay.in_flight_bytes(), replay.kept_bytes()), (0, 0));
}
