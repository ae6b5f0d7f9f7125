//! What the agents are told: what has arrived, and what to send again.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use codec::{
    access,
    heph::Packets,
    profile::{Fingerprint, Known, Message, ProfileOption},
};
use collector_core::{Cause, Config, How};
use quickcheck::QuickCheck;

use crate::{
    agent::{Agent, claim},
    ledger::{Ledger, link},
};

/// What the transmitted packets say: where each stream stands, options by fingerprint, and ranges asked for.
#[derive(Debug, Default)]
struct Replies {
    settled: BTreeMap<u32, u64>,
    options: Vec<Fingerprint>,
    wanted: Vec<(u32, u64, u64)>,
    windows: Vec<u64>,
    kept: BTreeMap<u32, u64>,
    lost: BTreeMap<String, u64>,
}

fn replies(ledger: &mut Ledger) -> Replies {
    let mut replies = Replies::default();
    for transmit in ledger.transmits.drain(..) {
        assert!(transmit.packet.len() <= 1400, "it fits a datagram");
        let message = Packets::new(&transmit.packet, 1 << 20).next_with(Message::decode).expect("a packet");
        match message.expect("valid") {
            Message::Option(Known { option: ProfileOption::Ack(ack), .. }) => {
                for position in ack.streams {
                    replies.settled.insert(position.stream.0, position.next.0);
                }
                replies.options.extend(ack.options);
                replies.windows.push(ack.window_bytes);
            }
            Message::Option(Known { option: ProfileOption::Kept(kept), .. }) => {
                replies.kept.extend(kept.streams.iter().map(|position| (position.stream.0, position.next.0)));
                replies.lost = kept.lost.iter().map(|lost| (lost.cause.into(), lost.count)).collect();
            }
            Message::Option(Known { option: ProfileOption::Nack(nack), .. }) => {
                replies.wanted.extend(nack.ranges.iter().map(|range| (range.stream.0, range.first.0, range.count)));
            }
            other => panic!("{other:?}"),
        }
    }
    replies
}

#[test]
fn everything_is_acknowledged() {
    let (agent, mut ledger) = link(Config::default());
    let (session, clock) = (agent.session(), agent.clock());
    ledger.send(&agent, &[session.clone(), clock.clone(), agent.event(7, 0), agent.event(9, 0)].concat());
    let replies = replies(&mut ledger);
    assert_eq!(replies.settled, BTreeMap::from([(7, 1), (9, 1)]), "a new session is answered at once");
    assert_eq!(
        BTreeSet::from_iter(replies.options),
        BTreeSet::from([Fingerprint::of(&session), Fingerprint::of(&clock)])
    );
    assert!(replies.windows.iter().all(|window| *window >= 64 << 10));
}

#[test]
fn a_used_window_is_acknowledged_at_once() {
    let (agent, mut ledger) = link(Config { window_bytes: 64 << 10, ..Config::default() });
    ledger.send(&agent, &agent.session());
    replies(&mut ledger);
    for position in 0..1000 {
        ledger.send(&agent, &agent.event(0, position));
    }
    let acks = ledger.transmits.len();
    assert!((3..=6).contains(&acks), "75,000 bytes in a window of 65,536: {acks} acknowledgements without any time");
}

#[test]
fn all_that_may_be_underway_can_wait_for_what_was_lost() {
    let (agent, mut ledger) =
        link(Config { window_bytes: 16 << 20, held_bytes: 1 << 20, reorder_packets: 1 << 20, ..Config::default() });
    ledger.send(&agent, &agent.session());
    let window = replies(&mut ledger).windows.pop().expect("an acknowledgement");
    let count = window / agent.event(0, 0).len() as u64;
    (1..count).for_each(|position| ledger.send(&agent, &agent.event(0, position)));
    ledger.send(&agent, &agent.event(0, 0));
    assert_eq!(ledger.only().streams[&0].positions(), (0..count).collect::<Vec<_>>());
    ledger.balance();
}

#[test]
fn what_is_missing_is_asked_for() {
    let (agent, mut ledger) = link(Config::default());
    ledger.send(&agent, &[agent.session(), agent.event(0, 2), agent.event(0, 3), agent.event(0, 6)].concat());
    ledger.send(&agent, &agent.progress(&[(0, 9)]));
    assert_eq!(replies(&mut ledger).wanted, [], "not before there was time to arrive");
    ledger.pass(Duration::from_millis(20));
    assert_eq!(replies(&mut ledger).wanted, [(0, 0, 2), (0, 4, 2), (0, 7, 2)]);
    ledger.pass(Duration::from_millis(5));
    assert_eq!(replies(&mut ledger).wanted, [], "nor again at once");
    ledger.pass(Duration::from_millis(20));
    assert_eq!(replies(&mut ledger).wanted.len(), 3);
    // The acknowledgement says where the stream stands all the time.
    ledger.send(&agent, &agent.event(0, 0));
    ledger.pass(Duration::from_millis(20));
    assert_eq!(replies(&mut ledger).settled.get(&0), Some(&1));
}

/// The agent hears that they are settled, and how many of them it did not drop itself.
#[test]
fn events_of_too_many_streams_are_settled_and_lost() {
    let (agent, mut ledger) = link(Config { max_streams: 2, ..Config::default() });
    ledger.send(&agent, &agent.session());
    for stream in 0..4 {
        ledger.send(&agent, &agent.event(stream, 0));
    }
    // Told again, it does not count again.
    ledger.send(&agent, &agent.drops(2, 1, 3));
    ledger.send(&agent, &agent.drops(2, 1, 3));
    ledger.send(&agent, &agent.progress(&[(0, 1), (1, 1), (2, 5), (3, 7)]));
    ledger.pass(Duration::from_millis(50));
    let Replies { settled, kept, lost, .. } = replies(&mut ledger);
    assert_eq!(settled, BTreeMap::from([(0, 1), (1, 1), (2, 5), (3, 7)]));
    assert_eq!(kept, BTreeMap::from([(2, 5), (3, 7)]), "nothing of the others is on disk");
    assert_eq!(lost, BTreeMap::from([("collector:streams".into(), 2 + 7)]));
    ledger.collector.finish(ledger.now, How::Stopped);
    ledger.take();
    let summary = ledger.only().ended.as_ref().expect("it has ended");
    assert_eq!((summary.written, summary.missing.get(&Cause::streams())), (2, Some(&9)));
    assert_eq!((ledger.collector.counts().refused_streams_now, ledger.collector.counts().missing()), (0, 9));
}

/// What only an agent tells last: nothing is waited for behind it. The agent hears of it when it is kept.
#[test]
fn an_agent_that_has_told_everything_has_ended_at_once() {
    let (mut agent, mut ledger) = link(Config::default());
    let secret = [7; 32];
    agent.id = access::claimed_id(&secret);
    ledger.send(&agent, &[claim(&secret), agent.session(), agent.event(0, 0)].concat());
    let end = agent.end(&[(0, 2)]);
    ledger.send(&agent, &end);
    ledger.pass(Duration::from_millis(10));
    assert!(ledger.only().ended.is_none(), "an event is missing");
    ledger.send(&agent, &agent.event(0, 1));
    ledger.pass(Duration::from_millis(10));
    assert!(ledger.only().ended.is_some(), "nothing is waited for");
    ledger.send(&agent, &end);
    ledger.pass(Duration::from_millis(50));
    let told = |ledger: &mut Ledger| replies(ledger).options.contains(&Fingerprint::of(&end));
    assert!(!told(&mut ledger), "not while it might be lost with the collector");
    let session = ledger.ended.pop().expect("it has ended");
    ledger.collector.end_kept(ledger.now, &session);
    ledger.take();
    assert!(told(&mut ledger));
    // That may be lost.
    for _ in 0..3 {
        ledger.send(&agent, &end);
        ledger.pass(Duration::from_millis(50));
        assert!(told(&mut ledger));
    }
    assert_eq!(ledger.sessions.len(), 1);
    ledger.balance();
}

/// However many end at a time, each agent hears of it.
#[test]
fn sessions_whose_agents_wait_are_not_forgotten() {
    let mut ledger = Ledger::new(Config { max_sessions: 4096, ..Config::default() });
    let agents: Vec<_> = (0..600_u16)
        .map(|number| {
            let mut agent = Agent::new(1, 5000 + number);
            agent.id.0[..2].copy_from_slice(&number.to_be_bytes());
            agent
        })
        .collect();
    for agent in &agents {
        ledger.send(agent, &[agent.session(), agent.event(0, 0), agent.end(&[(0, 1)])].concat());
    }
    ledger.pass(Duration::from_millis(600));
    assert_eq!(ledger.ended.len(), 600);
    for agent in &agents {
        ledger.send(agent, &[agent.session(), agent.end(&[(0, 1)])].concat());
    }
    assert_eq!(ledger.sessions.len(), 600, "none is taken for another");
    for session in std::mem::take(&mut ledger.ended) {
        ledger.collector.end_kept(ledger.now, &session);
    }
    ledger.take();
    let end = Fingerprint::of(&agents[0].end(&[(0, 1)]));
    assert_eq!(replies(&mut ledger).options.iter().filter(|option| **option == end).count(), 600);
}

/// Others have their room, however many sessions there were.
#[test]
fn names_of_sessions_that_ended_take_no_room() {
    let (agent, mut ledger) = link(Config::default());
    ledger.send(&agent, &[agent.session(), agent.event(0, 0)].concat());
    let taken = || ledger.collector.catalog_bytes().load(std::sync::atomic::Ordering::Relaxed);
    assert!(taken() > 0);
    ledger.send(&agent, &agent.end(&[(0, 1)]));
    ledger.pass(Duration::from_millis(600));
    let session = ledger.ended.pop().expect("it has ended");
    ledger.collector.end_kept(ledger.now, &session);
    drop(session);
    assert_eq!(ledger.collector.catalog_bytes().load(std::sync::atomic::Ordering::Relaxed), 0);
    // It is answered all the same.
    let end = agent.end(&[(0, 1)]);
    ledger.send(&agent, &end);
    ledger.pass(Duration::from_millis(50));
    assert!(replies(&mut ledger).options.contains(&Fingerprint::of(&end)));
}

#[test]
fn no_more_goes_to_an_address_than_three_times_what_came() {
    let (agent, mut ledger) = link(Config::default());
    let session = [agent.session(), agent.progress(&[(0, 1000), (1, 1000), (2, 1000)])].concat();
    ledger.send(&agent, &session);
    for _ in 0..1000 {
        ledger.pass(Duration::from_millis(20));
    }
    let sent: usize = ledger.transmits.iter().map(|transmit| transmit.packet.len()).sum();
    assert!(sent > 0 && sent <= 3 * session.len(), "{sent} bytes for {}", session.len());
}

/// An agent that sends again what it is asked for: over a link that loses a third both ways, nothing is missing.
fn nothing_is_missing(seed: u64) -> bool {
    const EVENTS: u64 = 200;
    let (agent, mut ledger) = link(Config::default());
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
            ledger.send(&agent, &agent.session());
        }
        for position in queue.drain(..) {
            if !lost() {
                ledger.send(&agent, &events[position as usize]);
            }
        }
        if !lost() {
            ledger.send(&agent, &agent.progress(&[(0, EVENTS)]));
        }
        ledger.pass(Duration::from_millis(10));
        ledger.transmits.retain(|_| !lost());
        for (_, first, count) in replies(&mut ledger).wanted {
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
