//! Single cases of the profile: each a thing that links and agents do.

use std::time::Duration;

use collector_core::{Config, How};

use crate::{
    agent::Agent,
    ledger::{Ledger, link},
};

/// The same with a session that has begun.
fn begun(config: Config) -> (Agent, Ledger) {
    let (agent, mut ledger) = link(config);
    ledger.send(&agent, &[agent.session(), agent.clock()].concat());
    (agent, ledger)
}

const WAIT: Duration = Duration::from_millis(600);

#[test]
fn a_lost_tail_is_found_by_progress() {
    let (agent, mut ledger) = begun(Config::default());
    ledger.send(&agent, &agent.event(0, 0));
    ledger.send(&agent, &agent.progress(&[(0, 4), (1, 2)]));
    for _ in 0..50 {
        assert_eq!(ledger.only().streams[&0].gaps, [], "it may still come");
        ledger.pass(Duration::from_millis(200));
        ledger.send(&agent, &agent.progress(&[(0, 4), (1, 2)]));
    }
    ledger.pass(Duration::from_millis(200));
    assert_eq!(ledger.only().streams[&0].gaps, [(1, 3, "network".into())]);
    assert_eq!(ledger.only().streams[&1].gaps, [(0, 2, "network".into())], "a stream of which nothing arrived");
    ledger.send(&agent, &agent.event(0, 2));
    assert_eq!(ledger.collector.counts().late, 1);
    ledger.balance();
}

#[test]
fn a_tail_that_keeps_coming_is_waited_for() {
    let (agent, mut ledger) = begun(Config::default());
    ledger.send(&agent, &agent.progress(&[(0, 10)]));
    for position in 0..10 {
        ledger.pass(Duration::from_millis(300));
        ledger.send(&agent, &agent.event(0, position));
    }
    assert_eq!(ledger.only().streams[&0].positions(), (0..10).collect::<Vec<_>>());
    assert_eq!(ledger.only().streams[&0].gaps, []);
}

#[test]
fn what_the_agent_dropped_is_told_by_its_reason() {
    let (agent, mut ledger) = begun(Config::default());
    ledger.send(&agent, &[agent.event(0, 0), agent.event(0, 5)].concat());
    assert_eq!(ledger.only().streams[&0].positions(), [0]);
    // Overlapping, repeated and partly settled ranges mean what they mean once.
    for (first, count) in [(0, 3), (1, 2), (2, 3), (1, 4)] {
        ledger.send(&agent, &agent.drops(0, first, count));
    }
    let story = &ledger.only().streams[&0];
    assert_eq!(story.positions(), [0, 5]);
    assert!(story.gaps.iter().all(|gap| gap.2 == "agent:ring-full"), "{:?}", story.gaps);
    assert_eq!(story.missing(), 4);
    ledger.balance();
}

#[test]
fn drops_told_ahead_of_the_stream_wait_for_it() {
    let (agent, mut ledger) = begun(Config::default());
    ledger.send(&agent, &agent.drops(0, 2, 3));
    for position in [0, 1, 5] {
        ledger.send(&agent, &agent.event(0, position));
    }
    let story = &ledger.only().streams[&0];
    assert_eq!((story.positions(), story.gaps.clone()), (vec![0, 1, 5], vec![(2, 3, "agent:ring-full".into())]));
    // An event that was called dropped and came all the same is an event.
    ledger.send(&agent, &agent.drops(0, 6, 2));
    ledger.send(&agent, &agent.event(0, 7));
    assert_eq!(ledger.collector.counts().duplicates + ledger.collector.counts().late, 1, "too late for that one");
    ledger.balance();
}

#[test]
fn events_before_the_name_belong_to_the_session() {
    let (agent, mut ledger) = link(Config::default());
    for position in 0..3 {
        ledger.send(&agent, &agent.event(0, position));
    }
    assert!(ledger.sessions.is_empty(), "it may say who it is");
    ledger.send(&agent, &agent.session());
    assert_eq!(ledger.only().streams[&0].positions(), [0, 1, 2]);
    assert_eq!(ledger.only().options, ["session"]);
}

#[test]
fn a_name_that_comes_too_late_is_taken_on() {
    let (agent, mut ledger) = link(Config::default());
    ledger.send(&agent, &agent.event(0, 0));
    ledger.pass(WAIT);
    ledger.send(&agent, &[agent.session(), agent.event(0, 1)].concat());
    assert_eq!(ledger.only().streams[&0].positions(), [0, 1]);
    ledger.send(&agent, &agent.end(&[(0, 2)]));
    ledger.pass(WAIT);
    assert_eq!(ledger.only().ended.as_ref().map(|summary| summary.id), Some(Some(agent.id)));
}

#[test]
fn two_agents_behind_one_address_are_two_sessions() {
    // A relay may forward both from one socket: what follows a `session` in a datagram is of that session.
    let (one, two) = (Agent::new(1, 5000), Agent::new(2, 5000));
    let mut ledger = Ledger::new(Config::default());
    for position in 0..3 {
        for agent in [&one, &two] {
            ledger.send(agent, &[agent.session(), agent.event(0, position)].concat());
        }
    }
    assert_eq!(ledger.sessions.len(), 2);
    for entry in ledger.sessions.values() {
        assert_eq!(entry.streams[&0].positions(), [0, 1, 2]);
    }
}

#[test]
fn an_agent_that_restarts_on_the_same_port_is_another_session() {
    let (one, mut ledger) = begun(Config::default());
    ledger.send(&one, &[one.event(0, 0), one.event(0, 1)].concat());
    let two = Agent::new(2, 5000);
    ledger.send(&two, &[two.session(), two.event(0, 0)].concat());
    ledger.send(&two, &two.event(0, 1));
    let stories: Vec<_> = ledger.sessions.values().map(|entry| entry.streams[&0].positions()).collect();
    assert_eq!(stories, [[0, 1], [0, 1]]);
    for _ in 0..40 {
        ledger.pass(Duration::from_secs(1));
    }
    let ends: Vec<_> = ledger.sessions.values().map(|entry| entry.ended.as_ref().map(|end| end.how)).collect();
    assert_eq!(ends, [Some(How::LostContact); 2]);
}

#[test]
fn an_agent_that_moves_to_another_port_stays_one_session() {
    let (mut agent, mut ledger) = begun(Config::default());
    ledger.send(&agent, &agent.event(0, 0));
    agent.peer = crate::agent::peer(5001);
    // The event overtakes the name; it is kept until it is known whose it is.
    for bytes in [agent.event(0, 1), agent.session(), agent.event(0, 2)] {
        ledger.send(&agent, &bytes);
    }
    assert_eq!(ledger.only().streams[&0].positions(), [0, 1, 2]);
    ledger.pass(Duration::from_millis(50));
    assert_eq!(ledger.transmits.last().map(|transmit| transmit.to), Some(agent.peer), "it is answered there");
}

#[test]
fn a_session_that_comes_back_goes_on_where_it_was() {
    let (agent, mut ledger) = begun(Config::default());
    ledger.send(&agent, &[agent.event(0, 0), agent.event(0, 1)].concat());
    ledger.pass(Duration::from_secs(31));
    assert!(ledger.only().ended.is_some());
    ledger.send(&agent, &[agent.session(), agent.event(0, 2)].concat());
    assert!(ledger.only().ended.is_none());
    let story = &ledger.only().streams[&0];
    assert_eq!((story.positions(), story.gaps.len()), (vec![0, 1, 2], 0));
}

#[test]
fn what_a_silent_agent_still_has_is_not_missing() {
    let (agent, mut ledger) = begun(Config::default());
    let progress = agent.progress(&[(0, 5)]);
    ledger.send(&agent, &[progress.clone(), agent.event(0, 0), agent.event(0, 2)].concat());
    ledger.pass(Duration::from_secs(29));
    assert_eq!(ledger.only().streams[&0].gaps, [], "it may still come");
    ledger.send(&agent, &[agent.event(0, 1), agent.event(0, 3)].concat());
    ledger.pass(Duration::from_secs(31));
    let given_up = (4, 1, "collector:lost-contact".into());
    assert_eq!(ledger.only().streams[&0].gaps, [given_up]);
    ledger.balance();
    ledger.send(&agent, &[agent.session(), progress, agent.event(0, 3), agent.event(0, 4)].concat());
    let story = &ledger.only().streams[&0];
    assert_eq!((story.positions(), story.gaps.len()), ((0..5).collect(), 0), "it had it");
    ledger.balance();
}

#[test]
fn what_waits_when_the_collector_is_stopped_stays_with_its_agent() {
    let (agent, mut ledger) = begun(Config::default());
    ledger.send(&agent, &[agent.progress(&[(0, 2)]), agent.event(0, 0), agent.event(0, 2)].concat());
    ledger.send(&agent, &agent.end(&[(0, 4)]));
    ledger.collector.finish(ledger.now, How::Stopped);
    ledger.take();
    assert_eq!(ledger.only().ended.as_ref().map(|summary| summary.how), Some(How::Stopped), "it waits for the rest");
    assert_eq!(ledger.only().streams[&0].gaps, [(1, 3, "collector:stopped".into())]);
    assert_eq!((ledger.only().streams[&0].positions(), ledger.collector.counts().held_bytes_now), (vec![0], 0));
    ledger.balance();
}

#[test]
fn an_end_that_is_repeated_is_acknowledged_again_and_nothing_more() {
    let (agent, mut ledger) = begun(Config::default());
    ledger.send(&agent, &agent.event(0, 0));
    let end = agent.end(&[(0, 1)]);
    ledger.send(&agent, &end);
    // An option may have been overtaken by the end: it still applies.
    ledger.send(&agent, &agent.clock());
    ledger.pass(WAIT);
    assert!(ledger.only().ended.is_some());
    let before = ledger.transmits.len();
    ledger.send(&agent, &end);
    ledger.pass(Duration::from_millis(20));
    assert_eq!(ledger.transmits.len(), before + 1);
    ledger.send(&agent, &agent.event(0, 0));
    assert_eq!(ledger.collector.counts().late, 1);
    assert_eq!(ledger.sessions.len(), 1);
    assert_eq!(ledger.only().options, ["session", "clock", "clock", "end"], "the sinks get it once, at the end");
}

#[test]
fn what_the_collector_had_not_got_when_it_was_stopped_is_its_own_gap() {
    let (agent, mut ledger) = begun(Config::default());
    ledger.send(&agent, &[agent.event(0, 0), agent.event(0, 2)].concat());
    ledger.collector.finish(ledger.now, How::Stopped);
    ledger.take();
    assert_eq!(ledger.only().streams[&0].gaps, [(1, 1, "collector:stopped".into())]);
    assert_eq!(ledger.only().ended.as_ref().map(|summary| summary.how), Some(How::Stopped));
}

#[test]
fn too_many_streams_and_sessions_are_refused_and_counted() {
    let config = Config { max_streams: 10, max_sessions: 3, ..Config::default() };
    let (agent, mut ledger) = begun(config);
    for stream in 0..50 {
        ledger.send(&agent, &agent.event(stream, 0));
    }
    assert_eq!(ledger.only().streams.len(), 10);
    assert_eq!(ledger.collector.counts().refused_stream_events, 40);
    for number in 2..100 {
        let other = Agent::new(number, 5000 + u16::from(number));
        ledger.send(&other, &other.session());
    }
    assert_eq!(ledger.collector.counts().sessions_open, 3);
    assert_eq!(ledger.collector.counts().refused_sessions, 96);
    // Those that fall silent make room for others; the one that goes on sending stays.
    for _ in 0..30 {
        ledger.pass(Duration::from_millis(100));
        ledger.send(&agent, &agent.progress(&[]));
    }
    for number in 101..103 {
        let other = Agent::new(number, 5000 + u16::from(number));
        ledger.send(&other, &other.session());
    }
    let open: Vec<_> = ledger.sessions.values().map(|entry| entry.ended.is_none()).collect();
    assert_eq!(open, [true, false, false, true, true]);
}

#[test]
fn memory_for_waiting_events_is_bounded() {
    let config = Config { held_bytes: 10_000, ..Config::default() };
    let (agent, mut ledger) = begun(config);
    for position in 1..1000 {
        ledger.send(&agent, &agent.event(0, 2 * position));
        assert!(ledger.collector.counts().held_bytes_now <= 10_000);
    }
    ledger.pass(WAIT);
    let story = &ledger.only().streams[&0];
    assert_eq!(story.positions(), (1..1000).map(|position| 2 * position).collect::<Vec<_>>());
    assert!(story.gaps.iter().any(|gap| gap.2 == "collector:memory"), "it says that it could have waited longer");
    assert_eq!(ledger.collector.counts().held_bytes_now, 0);
    ledger.balance();
}

#[test]
fn an_announced_end_is_how_a_session_ended() {
    let (agent, mut ledger) = begun(Config::default());
    ledger.send(&agent, &[agent.event(0, 0), agent.event(0, 2), agent.end(&[(0, 3)])].concat());
    ledger.collector.finish(ledger.now, How::Stopped);
    ledger.take();
    assert!(matches!(ledger.only().ended.as_ref().map(|summary| summary.how), Some(How::Told(_))));
    assert_eq!(ledger.only().streams[&0].gaps, [(1, 1, "collector:stopped".into())]);
}

#[test]
fn positions_survive_contact_that_is_lost_twice() {
    let (agent, mut ledger) = begun(Config::default());
    ledger.send(&agent, &[agent.event(0, 0), agent.event(1, 0)].concat());
    for stream in [0, 1] {
        ledger.pass(Duration::from_secs(31));
        ledger.send(&agent, &[agent.session(), agent.event(stream, 1)].concat());
    }
    ledger.pass(Duration::from_secs(31));
    let streams = &ledger.only().streams;
    assert_eq!([&streams[&0], &streams[&1]].map(|story| story.positions()), [[0, 1], [0, 1]]);
    assert_eq!(ledger.collector.counts().missing(), 0);
}

#[test]
fn positions_that_cannot_be_are_not_believed() {
    let (agent, mut ledger) = begun(Config::default());
    ledger.send(&agent, &agent.progress(&[(0, u64::MAX), (1, 1 << 60)]));
    ledger.send(&agent, &agent.drops(0, u64::MAX - 1, u64::MAX));
    ledger.send(&agent, &agent.event(0, 0));
    ledger.pass(WAIT);
    assert_eq!(ledger.only().streams[&0].positions(), [0]);
    assert_eq!(ledger.collector.counts().missing(), 0);
}

/// Whatever pieces a stream arrives in, and in which order, each event is written once and in its place.
#[test]
fn runs_that_overlap_are_written_once() {
    fn written_once(pieces: Vec<(u8, u8)>) -> bool {
        let (agent, mut ledger) = begun(Config::default());
        let mut all = std::collections::BTreeSet::new();
        let mut copies = 0;
        for (first, count) in pieces {
            let (first, count) = (u64::from(first), 1 + u64::from(count % 32));
            ledger.send(&agent, &agent.run(0, first, count));
            all.extend(first..first + count);
            copies += count;
        }
        ledger.pass(WAIT);
        ledger.pass(WAIT);
        if let Some(story) = ledger.only().streams.get(&0) {
            assert_eq!(story.positions(), all.iter().copied().collect::<Vec<_>>());
            assert!(story.events.iter().all(|(position, mark)| position == mark));
        }
        let counts = ledger.collector.counts();
        assert_eq!((counts.written, counts.duplicates), (all.len() as u64, copies - all.len() as u64));
        assert_eq!(counts.held_bytes_now, 0);
        ledger.balance();
        true
    }
    quickcheck::QuickCheck::new().tests(500).quickcheck(written_once as fn(Vec<(u8, u8)>) -> bool);
}
