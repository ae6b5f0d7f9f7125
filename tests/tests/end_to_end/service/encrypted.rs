//! Delivering over TLS and QUIC: the same sessions, with the same accounts, whatever happens to the network.

use std::time::Duration;

use tests::{Agent, Collector, Faults, Folder, Identity, Relay, Settings, Transport};

use crate::service::{finish, is_complete, trace};

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
