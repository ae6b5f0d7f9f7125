//! Senders that mean harm: what they can take is bounded, and others are served.

use std::time::{Duration, Instant};

use codec::access;
use collector_core::{Config, Peer};

use crate::{
    agent::{Agent, claim, epoch, peer},
    ledger::{Ledger, link},
};

fn address(number: u32) -> Peer {
    let [a, b, c, d] = number.to_be_bytes();
    Peer::Datagram { socket: 0, address: ([10 | a, b, c, d], 7).into() }
}

/// What is sent in reply to so many options of a session that has ended.
fn replies_for(options: usize) -> usize {
    let streams: Vec<(u32, u64)> = (0..2000).map(|stream| (stream, 1)).collect();
    let mut agent = Agent::new(1, 5000);
    agent.peer = Peer::Stream(1);
    let mut ledger = Ledger::new(Config::default());
    let mut opening = agent.session();
    for (stream, _) in &streams {
        opening.extend(agent.event(*stream, 0));
    }
    opening.extend(agent.end(&streams));
    ledger.collector.stream(ledger.now, 1, &opening, false);
    ledger.take();
    assert!(ledger.only().ended.is_some());
    ledger.transmits.clear();
    let option = agent.clock();
    ledger.collector.stream(ledger.now, 1, &option.repeat(options), false);
    ledger.pass(Duration::from_millis(20));
    ledger.transmits.len()
}

#[test]
fn the_past_does_not_answer_more_than_it_is_asked() {
    assert_eq!(replies_for(1), 1);
    assert_eq!(replies_for(10_000), 1);
}

#[test]
fn forged_addresses_are_not_remembered_without_bound() {
    let (agent, mut ledger) = link(Config { max_sessions: 64, ..Config::default() });
    ledger.send(&agent, &agent.session());
    let started = Instant::now();
    for number in 0..200_000 {
        ledger.collector.datagram(ledger.now, address(number), &agent.session());
    }
    ledger.take();
    assert_eq!(ledger.sessions.len(), 1);
    // Each would have to look through all others otherwise.
    assert!(started.elapsed() < Duration::from_secs(20));
    let other = Agent::new(2, 6000);
    ledger.pass(Duration::from_millis(200));
    ledger.send(&other, &[other.session(), other.event(0, 0)].concat());
    assert_eq!(ledger.sessions.len(), 2, "others are served");
}

#[test]
fn what_waits_does_not_wait_for_ever_because_something_trickles_in() {
    let (agent, mut ledger) = link(Config::default());
    ledger.send(&agent, &[agent.session(), agent.event(0, 1000)].concat());
    for position in 0..10 {
        ledger.pass(Duration::from_millis(200));
        ledger.send(&agent, &agent.event(0, position));
    }
    assert!(ledger.only().streams[&0].positions().contains(&1000), "after two seconds it has been passed on");
}

#[test]
fn one_session_cannot_take_all_the_room_to_wait() {
    let config = Config { held_bytes: 100_000, ..Config::default() };
    let (greedy, modest) = (Agent::new(1, 5000), Agent::new(2, 5001));
    let mut ledger = Ledger::new(config);
    for agent in [&greedy, &modest] {
        ledger.send(agent, &agent.session());
    }
    for position in 1..5000 {
        ledger.send(&greedy, &greedy.event(0, position));
    }
    for position in [1, 0] {
        ledger.send(&modest, &modest.event(0, position));
    }
    let story = &ledger.sessions.values().last().expect("the modest one").streams[&0];
    assert_eq!((story.positions(), story.gaps.len()), (vec![0, 1], 0));
}

#[test]
fn streams_that_one_takes_are_not_missing_to_others() {
    let config = Config { max_streams: 1000, max_streams_in_all: 1000, ..Config::default() };
    let (greedy, modest) = (Agent::new(1, 5000), Agent::new(2, 5001));
    let mut ledger = Ledger::new(config);
    let all: Vec<(u32, u64)> = (0..5000).map(|stream| (stream, 1)).collect();
    ledger.send(&greedy, &[greedy.session(), greedy.progress(&all)].concat());
    ledger.send(&modest, &[modest.session(), modest.event(0, 0), modest.event(1, 0)].concat());
    assert_eq!(ledger.collector.counts().refused_stream_events, 0);
    // A stream that nothing is known of need not be remembered.
    let idle: Vec<(u32, u64)> = (0..5000).map(|stream| (stream, 0)).collect();
    let before = ledger.collector.counts().streams_now;
    ledger.send(&modest, &modest.progress(&idle));
    assert_eq!(ledger.collector.counts().streams_now, before);
}

#[test]
fn causes_from_the_wire_are_not_counted_apart_without_bound() {
    let mut ledger = Ledger::new(Config::default());
    for number in 1..=40 {
        let agent = Agent::new(number, 5000 + u16::from(number));
        ledger.send(&agent, &agent.session());
        for reason in 0..50 {
            ledger.send(&agent, &agent.drops_because(0, reason, 1, &format!("{number}-{reason}")));
        }
    }
    let counts = ledger.collector.counts();
    assert!(counts.missing.len() <= 129, "{} causes", counts.missing.len());
    assert_eq!(counts.missing(), 40 * 50);
    ledger.balance();
}

#[test]
fn sessions_are_opened_at_a_pace() {
    let mut ledger = Ledger::new(Config { max_sessions: 10, ..Config::default() });
    let bytes: Vec<u8> = (0..10_000).flat_map(|zero| epoch(zero % 2)).collect();
    ledger.collector.stream(ledger.now, 1, &bytes, false);
    ledger.take();
    assert_eq!(ledger.sessions.len(), 10);
    ledger.pass(Duration::from_secs(1));
    ledger.collector.stream(ledger.now, 1, &bytes, false);
    ledger.take();
    assert!((11..=20).contains(&ledger.sessions.len()), "{}", ledger.sessions.len());
}

#[test]
fn one_that_has_most_sessions_makes_room_for_another() {
    let mut ledger = Ledger::new(Config { max_sessions: 20, ..Config::default() });
    let greedy: Vec<Agent> = (1..=20).map(|number| Agent::new(number, u16::from(number))).collect();
    let mut modest = Agent::new(100, 1);
    modest.peer = address(99);
    for _ in 0..20 {
        // They never fall silent.
        for agent in &greedy {
            ledger.send(agent, &agent.session());
        }
        ledger.pass(Duration::from_millis(50));
    }
    ledger.send(&modest, &modest.session());
    let open = ledger.sessions.values().filter(|entry| entry.ended.is_none()).count();
    assert_eq!((ledger.sessions.len(), open), (21, 20));
    ledger.send(&modest, &modest.event(0, 0));
    assert_eq!(ledger.collector.counts().written, 1);
}

#[test]
fn what_cannot_be_read_is_nobodys_session() {
    let mut ledger = Ledger::new(Config::default());
    ledger.collector.datagram(ledger.now, peer(5000), b"hello there");
    ledger.pass(Duration::from_secs(1));
    assert!(ledger.sessions.is_empty());
    assert_eq!((ledger.collector.counts().bad_datagrams, ledger.collector.counts().skipped_bytes), (1, 11));
}

#[test]
fn an_end_that_is_never_reached_is_an_end() {
    let (agent, mut ledger) = link(Config::default());
    ledger.send(&agent, &[agent.session(), agent.end(&[(0, 1)])].concat());
    for next in 2..300 {
        ledger.pass(Duration::from_millis(100));
        ledger.send(&agent, &agent.progress(&[(0, next)]));
    }
    assert!(ledger.sessions.values().next().is_some_and(|entry| entry.ended.is_some()));
}

#[test]
fn what_sessions_say_at_their_end_is_bounded() {
    let mut ledger = Ledger::new(Config { held_bytes: 100_000, ..Config::default() });
    let room = ledger.collector.counts().ending_room_now;
    for number in 1..=100 {
        let agent = Agent::new(number, 5000 + u16::from(number));
        ledger.send(&agent, &agent.session());
        for stream in 0..100 {
            ledger.send(&agent, &agent.end(&[(stream, 1), (stream + 1, 1)]));
        }
    }
    assert!(ledger.collector.counts().ending_room_now < room / 10, "it is used, and not more");
    for _ in 0..40 {
        ledger.pass(Duration::from_secs(1));
    }
    assert_eq!(ledger.collector.counts().sessions_open, 0);
    assert_eq!(ledger.collector.counts().ending_room_now, room);
}

#[test]
fn who_has_only_read_the_id_of_a_session_cannot_touch_it() {
    let (mut agent, mut ledger) = link(Config::default());
    let secret = [7; 32];
    agent.id = access::claimed_id(&secret);
    ledger.send(&agent, &[claim(&secret), agent.session(), agent.event(0, 0)].concat());
    let mut thief = Agent::new(1, 5001);
    thief.id = agent.id;
    let steal = |ledger: &mut Ledger| {
        let theft = [thief.session(), thief.event(0, 1), thief.end(&[(0, 2)])].concat();
        for theft in [theft.clone(), [claim(&[8; 32]), theft].concat()] {
            ledger.send(&thief, &theft);
            ledger.collector.stream(ledger.now, 9, &theft, false);
            // What comes later in the connection is of no session either.
            ledger.collector.stream(ledger.now, 9, &thief.end(&[(0, 3)]), false);
            ledger.collector.disconnected(ledger.now, 9);
        }
        ledger.take();
    };
    steal(&mut ledger);
    ledger.pass(Duration::from_secs(1));
    assert_eq!((ledger.only().streams[&0].positions(), ledger.only().ended.is_none()), (vec![0], true));
    assert_eq!(ledger.collector.counts().refused_claims, 4);
    // From another port, and in two pieces of a connection, its own agent goes on.
    agent.peer = peer(5002);
    ledger.send(&agent, &[claim(&secret), agent.session(), agent.event(0, 1)].concat());
    ledger.collector.stream(ledger.now, 10, &claim(&secret), false);
    ledger.collector.stream(ledger.now, 10, &[agent.session(), agent.event(0, 2)].concat(), false);
    ledger.take();
    assert_eq!(ledger.only().streams[&0].positions(), [0, 1, 2]);
    ledger.pass(Duration::from_secs(31));
    steal(&mut ledger);
    assert!(ledger.only().ended.is_some(), "nobody goes on with it");
    assert!(ledger.only().options.iter().all(|option| option != "claim"), "the secret goes into no file");
    ledger.balance();
}
