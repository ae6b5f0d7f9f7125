//! What the network and the agent lose: exactly that is told to be missing, and why.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use codec::{
    Position, SessionId, SessionNs, StreamId,
    heph::{Encode, MAX_PACKET_BYTES, Packets},
    profile::{End, EndReason, Known, Message, ProfileOption, Progress, StreamPosition},
};
use tests::{Agent, Collector, Faults, Relay, Settings, Trace, account, agent::Program};

use crate::service::{
    LONG, finish,
    hostile::packets::{encoded, session},
    is_complete, verified,
};

/// Gives up soon, so that a test of losses does not take long, but not before a delayed datagram has arrived.
const HASTY: [&str; 4] = ["--reorder-time", "500ms", "--replay-time", "1500ms"];

/// A network that loses nothing until it is told to, and then for good.
const LOST_FOR_GOOD: Faults = Faults { spare_options: true, lose_for_good: true, ..Faults::NONE };

/// Makes calls on a stream that the network loses for good.
#[track_caller]
fn lose(agent: &mut Agent, relay: &Relay, stream: u32, count: usize) {
    agent.settle(LONG).expect("it is acknowledged");
    let before = relay.lost().len();
    relay.set(Faults { lose: 1.0, ..LOST_FOR_GOOD });
    (0..count).for_each(|_| agent.call(stream).expect("there is room"));
    agent.listen_until(LONG, |_| relay.lost().len() == before + count).expect("it is all lost");
    relay.set(LOST_FOR_GOOD);
}

/// What a relay lost, by stream and position, for streams that start at 0.
fn lost(relay: &Relay) -> BTreeSet<(u32, u64)> {
    relay.lost().into_iter().map(|(stream, counter)| (stream, counter.into())).collect()
}

#[test]
fn the_gaps_are_exactly_what_the_network_lost_for_good() {
    let (folder, collector) = Collector::in_folder("gaps", &[&HASTY[..], &["--metrics", "127.0.0.1:0"]].concat());
    let relay = Relay::start(collector.udp(), 1, Faults { lose_for_good: true, ..Faults::BAD }).expect("a socket");
    let settings = Settings { streams: 3, ..Settings::udp(relay.address(), 1) };
    let mut agent = Agent::start(settings).expect("it is heard");
    for _ in 0..20 {
        agent.work(1_000).expect("it is taken");
        // Not more at a time than the buffers of the sockets hold.
        agent.listen(Duration::from_millis(5));
    }
    finish(&mut agent);
    let lost = lost(&relay);
    let metrics = collector.metrics();
    collector.stop().success();
    assert!(lost.len() > 300, "only {} events lost", lost.len());
    let trace = Trace::of(folder.path(), agent.session());
    account::all_but(&trace, agent.program(), &lost);
    verified(&trace.folder);
    let missing = metrics.labelled("spoor_events_missing_total", "cause", "network");
    assert_eq!(missing, Some(lost.len() as f64));
    assert_eq!(metrics.sum("spoor_events_written_total"), Some((20_000 - lost.len()) as f64));
    assert!(metrics.sum("spoor_events_duplicate_total").is_some_and(|count| count > 0.0));
    assert_eq!(metrics.sum("spoor_events_late_total").unwrap_or(0.0), 0.0);
}

#[test]
fn what_the_agent_drops_is_told_with_its_reason() {
    let (folder, collector) = Collector::in_folder("drops", &HASTY);
    let relay = Relay::start(collector.udp(), 3, LOST_FOR_GOOD).expect("a socket");
    let mut agent = Agent::start(Settings::udp(relay.address(), 3)).expect("it is heard");
    agent.work(200).expect("it is taken");
    agent.drop_events(0, 50, "ring-full");
    agent.work(200).expect("it is taken");
    agent.drop_events(1, 3, "replay-full");
    lose(&mut agent, &relay, 1, 20);
    agent.drop_events(1, 4, "ring-full");
    agent.work(200).expect("it is taken");
    // The last that is heard of a stream may be that there was more.
    agent.drop_events(0, 10, "ring-full");
    // And the end of a stream may be lost.
    lose(&mut agent, &relay, 1, 10);
    finish(&mut agent);
    collector.stop().success();
    let trace = Trace::of(folder.path(), agent.session());
    account::all_but(&trace, agent.program(), &lost(&relay));
    verified(&trace.folder);
    let drops: Vec<_> = trace.manifest.drops.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
    assert_eq!(drops, [("replay-full", 3), ("ring-full", 64)]);
    assert_eq!(trace.missing("network").len(), 30);
}

#[test]
fn counters_may_wrap() {
    let (folder, collector) = Collector::in_folder("wrap", &[]);
    let relay = Relay::start(collector.udp(), 5, Faults::NONE).expect("a socket");
    let first_position = (1 << 32) - 1_000;
    let settings = Settings { first_position, ..Settings::udp(relay.address(), 5) };
    let mut agent = Agent::start(settings).expect("it is heard");
    // The collector comes to a stream in the middle: what it gets first is where the stream starts for it.
    agent.work(100).expect("it is taken");
    agent.settle(LONG).expect("it is acknowledged");
    relay.set(Faults::BAD);
    agent.work(4_000).expect("it is taken");
    finish(&mut agent);
    collector.stop().success();
    // What the network lost was sent again.
    assert!(relay.datagrams().1 > 10 && agent.report().again > 0, "the network lost {:?}", relay.datagrams());
    assert!(agent.program().made(0).len() > 1_500, "it went past the wrap");
    is_complete(folder.path(), &agent);
}

/// An agent that cannot send again what it lost with a connection: the real one never does that.
#[test]
fn a_tcp_agent_that_cannot_replay_says_what_it_lost() {
    let (folder, collector) = Collector::in_folder("no-replay", &HASTY);
    let (id, mut program) = ([6; 16], Program::new(1, 0, 8));
    let reached = |position| [StreamPosition { stream: StreamId(0), next: Position(position) }];
    let mut connection = |lost: u64| {
        (0..lost).for_each(|_| _ = program.step(0));
        let mut bytes = session(id, "machine", "/usr/bin/synthetic");
        let (now, streams) = (SessionNs(0), reached(program.made(0).len() as u64));
        bytes.extend(encoded(Progress { now, streams: (&streams).into() }));
        for _ in 0..500 {
            let (position, made) = program.step(0);
            made.with_event(0, position, |event| event.encode(&mut bytes)).expect("it fits a packet");
        }
        bytes
    };
    send_and_settle(collector.tcp(), &connection(0), 500);
    // Made while there is no connection, and lost with it.
    let mut rest = connection(40);
    let (reason, at, streams) = (EndReason::Exited(0), SessionNs(0), reached(1_040));
    rest.extend(encoded(End { reason, at, stream_count: 1, streams: (&streams).into() }));
    send_and_settle(collector.tcp(), &rest, 1_040);
    collector.stop().success();
    let trace = Trace::of(folder.path(), SessionId(id));
    account::all_but(&trace, &program, &(500..540).map(|position| (0, position)).collect());
    verified(&trace.folder);
}

/// Sends bytes over a connection of their own, and waits until the events of stream 0 before a position are settled.
fn send_and_settle(to: SocketAddr, bytes: &[u8], position: u64) {
    let mut connection = TcpStream::connect(to).expect("a connection");
    connection.set_read_timeout(Some(LONG)).expect("a timeout");
    connection.write_all(bytes).expect("the collector reads");
    let (mut received, mut settled) = (Vec::new(), 0);
    while settled < position {
        let mut buffer = [0; 4096];
        let count = connection.read(&mut buffer).expect("the collector answers");
        assert!(count > 0, "the collector closed the connection");
        received.extend_from_slice(&buffer[..count]);
        let mut packets = Packets::new(&received, MAX_PACKET_BYTES);
        while let Some(Ok(message)) = packets.next_with(Message::decode) {
            if let Message::Option(Known { option: ProfileOption::Ack(ack), .. }) = message {
                settled = ack.streams.into_iter().map(|stream| stream.next.0).chain([settled]).max().unwrap_or(0);
            }
        }
    }
}
