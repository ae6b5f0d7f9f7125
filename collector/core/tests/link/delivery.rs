//! What the agents are told: what has arrived, and what to send again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use codec::{
    heph::Packets,
    profile::{Fingerprint, Known, Message, ProfileOption},
};
use collector_core::Config;
use quickcheck::QuickCheck;

use crate::{agent::Agent, ledger::Ledger};

/// What the transmitted packets say: where each stream stands, options by fingerprint, and ranges asked for.
#[derive(Debug, Default)]
struct Told {
    settled: BTreeMap<u32, u64>,
    options: Vec<Fingerprint>,
    wanted: Vec<(u32, u64, u64)>,
    windows: Vec<u64>,
}

fn told(ledger: &mut Ledger) -> Told {
    let mut told = Told::default();
    for transmit in ledger.transmits.drain(..) {
        assert!(transmit.packet.len() <= 1400, "it fits a datagram");
        let message = Packets::new(&transmit.packet, 1 << 20).next_with(Message::decode).expect("a packet");
        match message.expect("valid") {
            Message::Option(Known { option: ProfileOption::Ack(ack), .. }) => {
                for position in ack.streams {
                    told.settled.insert(position.stream.0, position.next.0);
                }
                told.options.extend(ack.options);
                told.windows.push(ack.window_bytes);
            }
            Message::Option(Known { option: ProfileOption::Nack(nack), .. }) => {
                told.wanted.extend(nack.ranges.iter().map(|range| (range.stream.0, range.first.0, range.count)));
            }
            other => panic!("{other:?}"),
        }
    }
    told
}

#[test]
fn everything_is_acknowledged() {
    let mut agent = Agent::new(1, 5000);
    let mut ledger = Ledger::new(Config::default());
    let (session, clock) = (agent.session(), agent.clock());
    let first = [session.clone(), clock.clone(), agent.event(7, 0), agent.event(9, 0)].concat();
    ledger.collector.datagram(ledger.now, agent.peer, &first);
    ledger.take();
    let told = told(&mut ledger);
    assert_eq!(told.settled, BTreeMap::from([(7, 1), (9, 1)]), "a new session is answered at once");
    assert_eq!(BTreeSet::from_iter(told.options), BTreeSet::from([Fingerprint::of(&session), Fingerprint::of(&clock)]));
    assert!(told.windows.iter().all(|window| *window >= 64 << 10));
}

#[test]
fn a_used_window_is_acknowledged_at_once() {
    let mut agent = Agent::new(1, 5000);
    let mut ledger = Ledger::new(Config { window_bytes: 64 << 10, ..Config::default() });
    ledger.collector.datagram(ledger.now, agent.peer, &agent.session());
    ledger.take();
    told(&mut ledger);
    for position in 0..1000 {
        let event = agent.event(0, position);
        ledger.collector.datagram(ledger.now, agent.peer, &event);
        ledger.take();
    }
    let acks = ledger.transmits.len();
    assert!((3..=6).contains(&acks), "75,000 bytes in a window of 65,536: {acks} acknowledgements without any time");
}

#[test]
fn what_is_missing_is_asked_for() {
    let mut agent = Agent::new(1, 5000);
    let mut ledger = Ledger::new(Config::default());
    let first = [agent.session(), agent.event(0, 2), agent.event(0, 3), agent.event(0, 6)].concat();
    ledger.collector.datagram(ledger.now, agent.peer, &first);
    ledger.collector.datagram(ledger.now, agent.peer, &agent.progress(&[(0, 9)]));
    ledger.take();
    assert_eq!(told(&mut ledger).wanted, [], "not before there was time to arrive");
    ledger.pass(Duration::from_millis(20));
    assert_eq!(told(&mut ledger).wanted, [(0, 0, 2), (0, 4, 2), (0, 7, 2)]);
    ledger.pass(Duration::from_millis(5));
    assert_eq!(told(&mut ledger).wanted, [], "nor again at once");
    ledger.pass(Duration::from_millis(20));
    assert_eq!(told(&mut ledger).wanted.len(), 3);
    // The acknowledgement says where the stream stands all the time.
    let event = agent.event(0, 0);
    ledger.collector.datagram(ledger.now, agent.peer, &event);
    ledger.pass(Duration::from_millis(20));
    assert_eq!(told(&mut ledger).settled.get(&0), Some(&1));
}

#[test]
fn no_more_goes_to_an_address_than_three_times_what_came() {
    let agent = Agent::new(1, 5000);
    let mut ledger = Ledger::new(Config::default());
    let session = [agent.session(), agent.progress(&[(0, 1000), (1, 1000), (2, 1000)])].concat();
    ledger.collector.datagram(ledger.now, agent.peer, &session);
    for _ in 0..1000 {
        ledger.pass(Duration::from_millis(20));
    }
    let sent: usize = ledger.transmits.iter().map(|transmit| transmit.packet.len()).sum();
    assert!(sent > 0 && sent <= 3 * session.len(), "{sent} bytes for {}", session.len());
}

/// An agent that sends again what it is asked for: over a link that loses a third both ways, nothing is missing.
fn nothing_is_missing(seed: u64) -> bool {
    const EVENTS: u64 = 200;
    let mut agent = Agent::new(1, 5000);
    let mut ledger = Ledger::new(Config::default());
    let events: Vec<Vec<u8>> = (0..EVENTS).map(|position| agent.event(0, position)).collect();
    let mut state = seed | 1;
    let mut lost = || {
        // xorshift, by Marsaglia
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.is_multiple_of(3)
    };
    let mut queue: Vec<u64> = (0..EVENTS).collect();
    for _ in 0..400 {
        if !lost() {
            ledger.collector.datagram(ledger.now, agent.peer, &agent.session());
        }
        for position in queue.drain(..) {
            if !lost() {
                ledger.collector.datagram(ledger.now, agent.peer, &events[position as usize]);
            }
        }
        if !lost() {
            ledger.collector.datagram(ledger.now, agent.peer, &agent.progress(&[(0, EVENTS)]));
        }
        ledger.pass(Duration::from_millis(10));
        ledger.transmits.retain(|_| !lost());
        for (_, first, count) in told(&mut ledger).wanted {
            queue.extend(first..first + count);
        }
    }
    let story = &ledger.only().streams[&0];
    assert_eq!(story.gaps, []);
    assert!(story.positions().into_iter().eq(0..EVENTS));
    true
}

#[test]
fn what_is_sent_again_is_not_missing() {
    QuickCheck::new().tests(200).quickcheck(nothing_is_missing as fn(u64) -> bool);
}
