//! Plain Heph: no session, perhaps no counters, perhaps counters that start anew.

use std::time::Duration;

use collector_core::{Config, How};
use quickcheck::QuickCheck;

use crate::{
    agent::{Agent, epoch},
    ledger::{Ledger, link},
};

/// Sends packets in a connection, cut at every 100 bytes.
fn connection(ledger: &mut Ledger, bytes: &[u8]) {
    let (mut from, mut to) = (0, 0);
    while to < bytes.len() {
        to = bytes.len().min(to + 100);
        from += ledger.collector.stream(ledger.now, 1, &bytes[from..to], to == bytes.len());
        ledger.take();
    }
    assert_eq!(from, bytes.len());
    ledger.collector.disconnected(ledger.now, 1);
    ledger.take();
}

/// Sends events in datagrams, one each, or in a connection.
fn deliver(ledger: &mut Ledger, agent: &Agent, events: &[Vec<u8>], datagrams: bool) {
    if !datagrams {
        return connection(ledger, &events.concat());
    }
    for event in events {
        ledger.send(agent, event);
    }
    ledger.pass(Duration::from_secs(1));
}

#[test]
fn a_connection_is_a_session() {
    let (agent, mut ledger) = link(Config::default());
    connection(&mut ledger, &[epoch(1), agent.event(0, 0), agent.event(0, 1), agent.event(1, 0)].concat());
    let session = ledger.only();
    assert_eq!(session.streams[&0].positions(), [0, 1]);
    assert_eq!(session.ended.as_ref().map(|summary| summary.how), Some(How::Closed));
    assert!(ledger.transmits.is_empty(), "those who do not speak the profile are not spoken to");
}

#[test]
fn a_connection_that_skips_numbers_has_a_gap_at_once() {
    let (agent, mut ledger) = link(Config::default());
    connection(&mut ledger, &[agent.event(0, 0), agent.event(0, 4)].concat());
    assert_eq!(ledger.only().streams[&0].gaps, [(1, 3, "network".into())]);
}

#[test]
fn an_address_is_a_session_until_it_is_silent() {
    let (agent, mut ledger) = link(Config::default());
    ledger.send(&agent, &agent.event(0, 0));
    ledger.pass(Duration::from_secs(1));
    assert_eq!(ledger.only().streams[&0].positions(), [0]);
    ledger.pass(Duration::from_secs(40));
    assert_eq!(ledger.only().ended.as_ref().map(|summary| summary.how), Some(How::LostContact));
}

#[test]
fn another_epoch_is_another_session() {
    let (agent, mut ledger) = link(Config::default());
    for zero in [1, 1, 2] {
        ledger.send(&agent, &[epoch(zero), agent.event(0, 0)].concat());
    }
    ledger.pass(Duration::from_secs(1));
    assert_eq!(ledger.sessions.len(), 2);
}

#[test]
fn a_sender_that_does_not_count_misses_nothing() {
    for datagrams in [false, true] {
        let (agent, mut ledger) = link(Config::default());
        let events: Vec<_> = (0..20).map(|mark| agent.event_with_counter(0, 0, mark)).collect();
        deliver(&mut ledger, &agent, &events, datagrams);
        let story = &ledger.only().streams[&0];
        assert_eq!(story.events, (0..20).map(|mark| (mark, mark)).collect::<Vec<_>>());
        assert_eq!(story.gaps, []);
    }
}

#[test]
fn a_stream_that_is_joined_in_the_middle_has_no_billions_of_losses() {
    let (agent, mut ledger) = link(Config::default());
    let bytes: Vec<_> = (0..3).map(|number| agent.event_with_counter(0, 3_000_000_000 + number, number)).collect();
    connection(&mut ledger, &bytes.concat());
    assert_eq!(ledger.only().streams[&0].events, [(0, 0), (1, 1), (2, 2)]);
    assert_eq!(ledger.only().streams[&0].gaps, []);
}

#[test]
fn a_name_in_a_connection_is_another_session() {
    let (agent, mut ledger) = link(Config::default());
    connection(&mut ledger, &[agent.event(0, 0), agent.event(0, 1), agent.session(), agent.event(0, 0)].concat());
    let ended: Vec<_> = ledger.sessions.values().map(|entry| entry.ended.is_some()).collect();
    assert_eq!(ended, [true, false], "nothing leads back to the first; the second may connect again");
    let stories: Vec<_> = ledger.sessions.values().map(|entry| entry.streams[&0].positions()).collect();
    assert_eq!(stories, [vec![0, 1], vec![0]]);
    assert_eq!(ledger.collector.counts().duplicates, 0);
}

#[test]
fn a_sender_that_starts_anew_with_a_younger_clock_is_heard() {
    let config = Config { reorder_packets: 100, ..Config::default() };
    let mut ledger = Ledger::new(config);
    let old = Agent::new(1, 5000);
    for position in 0..1000 {
        ledger.send(&old, &old.event(0, position));
    }
    ledger.pass(Duration::from_secs(1));
    let new = Agent::new(1, 5000);
    for counter in 0..500 {
        ledger.send(&new, &new.event_with_counter(0, counter, 1000 + counter));
    }
    ledger.pass(Duration::from_secs(1));
    assert_eq!(ledger.only().streams[&0].positions(), (0..1500).collect::<Vec<_>>());
}

/// Generations of a stream: each counts from zero. Whatever their lengths, nothing is lost at the seams.
fn restarts(lengths: Vec<u8>, datagrams: bool) -> bool {
    let (agent, mut ledger) = link(Config::default());
    let mut mark = 0;
    let mut events = Vec::new();
    // One event alone may as well be of a sender that does not count.
    let lengths: Vec<u64> = lengths.iter().map(|length| 2 + u64::from(*length % 30)).collect();
    for length in &lengths {
        for counter in 0..*length {
            events.push(agent.event_with_counter(0, counter, mark));
            mark += 1;
        }
    }
    if events.is_empty() {
        return true;
    }
    deliver(&mut ledger, &agent, &events, datagrams);
    let story = &ledger.only().streams[&0];
    assert_eq!(story.events, (0..mark).map(|mark| (mark, mark)).collect::<Vec<_>>());
    assert_eq!(story.gaps, []);
    assert_eq!(ledger.collector.counts().restarts, lengths.len() as u64 - 1);
    ledger.balance();
    true
}

#[test]
fn a_counter_that_restarts_is_a_restart() {
    QuickCheck::new().tests(2000).quickcheck(restarts as fn(Vec<u8>, bool) -> bool);
}

/// Datagrams of two generations, some late and some twice: what is old stays out of the new generation.
fn old_datagrams(first: u8, late: Vec<u8>) -> bool {
    let first = 5 + u64::from(first % 40);
    let (agent, mut ledger) = link(Config::default());
    let old: Vec<_> = (0..first).map(|counter| agent.event_with_counter(0, counter, counter)).collect();
    for event in &old {
        ledger.send(&agent, event);
    }
    for counter in 0..5 {
        ledger.send(&agent, &agent.event_with_counter(0, counter, first + counter));
        for index in &late {
            let index = usize::from(*index) % old.len();
            ledger.send(&agent, &old[index]);
        }
    }
    ledger.pass(Duration::from_secs(1));
    let story = &ledger.only().streams[&0];
    assert_eq!(story.events, (0..first + 5).map(|mark| (mark, mark)).collect::<Vec<_>>());
    assert_eq!(story.gaps, []);
    let counts = ledger.collector.counts();
    assert_eq!(counts.late + counts.duplicates, 5 * late.len() as u64);
    true
}

#[test]
fn old_datagrams_do_not_enter_a_new_generation() {
    QuickCheck::new().tests(1000).quickcheck(old_datagrams as fn(u8, Vec<u8>) -> bool);
}
