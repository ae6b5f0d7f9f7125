//! Delivering over TLS and QUIC: the same sessions, with the same accounts, whatever happens to the network.

use std::time::{Duration, Instant};

use tests::{
    Agent, Cable, Collector, Faults, Folder, Identity, Relay, Settings, Trace, Transport, account,
    collector::{disk, run_on},
    process::Stdout,
};

use crate::{LONG, finish, is_complete, trace};

const BOTH: [Transport; 2] = [Transport::Tls, Transport::Quic];

/// A collector that wants to see a token, with these arguments besides.
fn guarded(identity: &Identity, name: &str, arguments: &[&str]) -> (Folder, Collector) {
    let guard = identity.guarded();
    let all: Vec<_> = guard.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
    Collector::in_folder(name, &all)
}

#[test]
fn tls_and_quic_work_side_by_side_on_one_port() {
    let identity = Identity::new();
    let (folder, collector) = guarded(&identity, "encrypted", &["--metrics", "127.0.0.1:0"]);
    assert_eq!(collector.address(Transport::Quic), collector.address(Transport::Tls), "one port for both");
    let agents = [(Transport::Tls, 70), (Transport::Quic, 71)].map(|(transport, seed)| {
        trace(Settings::encrypted(collector.address(transport), &identity.setup(transport), seed), 20_000)
    });
    let metrics = collector.metrics();
    for transport in ["tls", "quic"] {
        let bytes = metrics.labelled("spoor_received_bytes_total", "transport", transport);
        assert!(bytes.is_some_and(|bytes| bytes > 100_000.0), "{transport}: {bytes:?}");
    }
    assert_eq!(metrics.labelled("spoor_refused_total", "what", "tokens"), Some(0.0));
    collector.stop().success();
    agents.iter().for_each(|agent| drop(is_complete(folder.path(), agent)));
}

#[test]
fn a_tls_connection_that_is_cut_all_the_time_loses_nothing() {
    let identity = Identity::new();
    let (folder, collector) = guarded(&identity, "encrypted-cut", &[]);
    let cable = Cable::start(collector.tcp()).expect("a socket");
    let settings = Settings::encrypted(cable.address(), &identity.setup(Transport::Tls), 72);
    let mut agent = Agent::start(settings).expect("it is heard");
    let mut cuts = 0;
    while cuts < 8 {
        let cut = Instant::now() + Duration::from_millis(200);
        while Instant::now() < cut {
            agent.work(100).expect("it is taken");
        }
        cuts += cable.cut();
    }
    finish(&mut agent);
    assert!(agent.report().reconnects >= 4, "{:?}", agent.report());
    collector.stop().success();
    is_complete(folder.path(), &agent);
}

#[test]
fn quic_makes_good_for_a_bad_network_and_outlasts_a_move() {
    let identity = Identity::new();
    let (folder, collector) = guarded(&identity, "encrypted-lossy", &[]);
    let faults = Faults {
        lose: 0.05,
        double: 0.05,
        delay: 0.1,
        delay_at_most: Duration::from_millis(5),
        lose_answers: 0.05,
        ..Faults::NONE
    };
    let relay = Relay::start(collector.udp(), 73, faults).expect("a socket");
    let settings = Settings::encrypted(relay.address(), &identity.setup(Transport::Quic), 73);
    let mut agent = Agent::start(settings).expect("it is heard");
    for _ in 0..4 {
        agent.work(2_500).expect("it is taken");
        relay.move_agents();
    }
    finish(&mut agent);
    assert_eq!(agent.report().reconnects, 0, "it is the same connection from four ports");
    assert!(relay.datagrams().1 > 20, "the network lost {:?}", relay.datagrams());
    collector.stop().success();
    is_complete(folder.path(), &agent);
}

#[test]
fn a_collector_that_is_killed_and_started_again_has_the_rest() {
    let identity = Identity::new();
    for (transport, seed) in BOTH.into_iter().zip(74..) {
        let (before, collector) = guarded(&identity, "encrypted-killed", &[]);
        let to = collector.address(transport);
        let settings = Settings::encrypted(to, &identity.setup(transport), seed);
        let mut agent = Agent::start(settings).expect("it is heard");
        agent.work(2_000).expect("it is taken");
        agent.settle(LONG).expect("it is kept");
        collector.kill();
        let after = Folder::new("encrypted-again");
        let (to, sink, guard) = (to.to_string(), disk(after.path()), identity.guarded());
        let mut arguments = vec!["--listen", &to, "--sink", &sink];
        arguments.extend(guard.iter().map(String::as_str));
        let collector = Collector::start(&arguments, Stdout::Collect);
        agent.work(2_000).expect("it is kept");
        finish(&mut agent);
        assert_eq!(agent.report().reconnects, 1, "{transport}");
        collector.stop().success();
        run_on("repair", before.path(), &[]).success();
        let parts = [Trace::only(before.path()), Trace::only(after.path())];
        account::parts_hold(&parts, agent.program(), &Default::default());
    }
}
