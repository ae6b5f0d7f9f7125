//! What the network and the agent lose: exactly that is told to be missing, and why.

use std::{collections::BTreeSet, time::Duration};

use tests::{Agent, Collector, Faults, Folder, Relay, Settings, Trace, account};

use crate::{LONG, finish, is_complete, verified};

/// Gives up soon, so that a test of losses does not take long, but not before a delayed datagram has arrived.
const HASTY: [&str; 2] = ["--reorder-time", "400ms"];

/// A network as bad as any.
const BAD: Faults = Faults {
    lose: 0.1,
    burst: 0.01,
    burst_datagrams: 5,
    double: 0.05,
    delay: 0.1,
    delay_at_most: Duration::from_millis(20),
    spare_options: false,
    lose_answers: 0.1,
};

/// What a relay lost, by stream and position, for streams that start at 0.
fn lost(relay: &Relay) -> BTreeSet<(u32, u64)> {
    relay.lost().into_iter().map(|(stream, counter)| (stream, counter.into())).collect()
}

#[test]
fn without_replay_the_gaps_are_exactly_what_the_network_lost() {
    let folder = Folder::new("gaps");
    let collector = Collector::to_disk(folder.path(), &[&HASTY[..], &["--metrics", "127.0.0.1:0"]].concat());
    let relay = Relay::start(collector.udp(), 1, BAD).expect("a socket");
    let settings = Settings { replay: false, streams: 3, ..Settings::udp(relay.address(), 1) };
    let mut agent = Agent::start(settings).expect("it is heard");
    agent.work(6_000).expect("it is taken");
    finish(&mut agent);
    let lost = lost(&relay);
    let metrics = collector.metrics();
    collector.stop().success();
    assert!(lost.len() > 300, "only {} events lost", lost.len());
    let trace = Trace::of(folder.path(), agent.session());
    account::all_but(&trace, &agent, &lost);
    verified(&trace.folder);
    let missing = metrics.labelled("spoor_events_missing_total", "cause", "network");
    assert_eq!(missing, Some(lost.len() as f64));
    assert_eq!(metrics.sum("spoor_events_written_total"), Some((6_000 - lost.len()) as f64));
    assert!(metrics.sum("spoor_events_duplicate_total").is_some_and(|count| count > 0.0));
    assert_eq!(metrics.sum("spoor_events_late_total").unwrap_or(0.0), 0.0);
}

#[test]
fn with_replay_nothing_is_lost() {
    let folder = Folder::new("replay");
    let collector = Collector::to_disk(folder.path(), &["--reorder-time", "5s"]);
    let relay = Relay::start(collector.udp(), 2, BAD).expect("a socket");
    let mut agent = Agent::start(Settings::udp(relay.address(), 2)).expect("it is heard");
    agent.work(10_000).expect("it is taken");
    finish(&mut agent);
    collector.stop().success();
    assert!(relay.datagrams().1 > 50, "the network lost {:?}", relay.datagrams());
    assert!(agent.nacked_events() > 0);
    is_complete(folder.path(), &agent);
}

#[test]
fn what_the_agent_drops_is_told_with_its_reason() {
    let folder = Folder::new("drops");
    let collector = Collector::to_disk(folder.path(), &HASTY);
    let mut agent = Agent::start(Settings::udp(collector.udp(), 3)).expect("it is heard");
    agent.work(200).expect("it is taken");
    agent.drop_events(0, 50, "ring-full").expect("it is told");
    agent.work(200).expect("it is taken");
    agent.drop_events(1, 3, "replay-full").expect("it is told");
    agent.lose_events(1, 20);
    agent.drop_events(1, 4, "ring-full").expect("it is told");
    agent.work(200).expect("it is taken");
    // The last that is heard of a stream may be that there was more.
    agent.drop_events(0, 10, "ring-full").expect("it is told");
    agent.lose_events(1, 10);
    finish(&mut agent);
    collector.stop().success();
    let trace = Trace::of(folder.path(), agent.session());
    account::complete(&trace, &agent);
    verified(&trace.folder);
    let drops: Vec<_> = trace.manifest.drops.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
    assert_eq!(drops, [("replay-full", 3), ("ring-full", 64)]);
    assert_eq!(trace.missing("network").len(), 30);
}

#[test]
fn a_lost_tail_does_not_stay_unseen() {
    let folder = Folder::new("tail");
    let collector = Collector::to_disk(folder.path(), &HASTY);
    let relay = Relay::start(collector.udp(), 4, Faults::default()).expect("a socket");
    let settings = Settings { replay: false, ..Settings::udp(relay.address(), 4) };
    let mut agent = Agent::start(settings).expect("it is heard");
    agent.work(300).expect("it is taken");
    agent.settle(LONG).expect("it is acknowledged");
    relay.set(Faults { lose: 1.0, ..Faults::default() });
    let before = relay.datagrams().1;
    agent.work(200).expect("it is sent");
    agent.flush().expect("it is sent");
    agent.listen_until(LONG, |_| relay.lost().len() == 200).expect("it is all lost");
    assert!(relay.datagrams().1 > before);
    relay.set(Faults::default());
    finish(&mut agent);
    collector.stop().success();
    let trace = Trace::of(folder.path(), agent.session());
    account::all_but(&trace, &agent, &lost(&relay));
    assert_eq!(trace.missing("network").len(), 200);
    verified(&trace.folder);
}

#[test]
fn counters_may_wrap() {
    let folder = Folder::new("wrap");
    let collector = Collector::to_disk(folder.path(), &["--reorder-time", "5s"]);
    let relay = Relay::start(collector.udp(), 5, Faults::default()).expect("a socket");
    let first_position = (1 << 32) - 1_000;
    let settings = Settings { first_position, ..Settings::udp(relay.address(), 5) };
    let mut agent = Agent::start(settings).expect("it is heard");
    // The collector comes to a stream in the middle: what it gets first is where the stream starts for it.
    agent.work(100).expect("it is taken");
    agent.settle(LONG).expect("it is acknowledged");
    relay.set(BAD);
    agent.work(4_000).expect("it is taken");
    finish(&mut agent);
    collector.stop().success();
    assert!(agent.made(0).len() > 1_500, "it went past the wrap");
    is_complete(folder.path(), &agent);
}

#[test]
fn a_tcp_agent_that_cannot_replay_says_what_it_lost() {
    let folder = Folder::new("no-replay");
    let collector = Collector::to_disk(folder.path(), &HASTY);
    let settings = Settings { replay: false, pace: false, ..Settings::tcp(collector.tcp(), 6) };
    let mut agent = Agent::start(settings).expect("it is heard");
    agent.work(500).expect("it is taken");
    agent.settle(LONG).expect("it is acknowledged");
    // Made while there is no connection, and lost with it.
    agent.lose_events(0, 40);
    agent.reconnect().expect("it is heard again");
    agent.work(500).expect("it is taken");
    finish(&mut agent);
    collector.stop().success();
    let trace = is_complete(folder.path(), &agent);
    assert_eq!(trace.missing("network").len(), 40);
}
