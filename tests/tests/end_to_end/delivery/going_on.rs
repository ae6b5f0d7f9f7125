//! Sessions that go on, whatever ends, stops, moves or is lost on the way: one directory, nothing missing, nothing twice.

use std::{
    env,
    net::{SocketAddr, TcpListener, UdpSocket},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use codec::profile::EndReason;
use real_agent::ship::Transport;
use tests::{Cable, Collector, Faults, Folder, Relay, Trace, collector::verified, wait::LONG};

use crate::delivery::{delivered, rig::Rig, way::Way};

/// A number that the environment may say, for those who want more of it.
fn wanted(name: &str, usual: u64) -> u64 {
    env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}

/// Ends the session. Fails the test unless everything is there.
#[track_caller]
pub(crate) fn has_everything(rig: &mut Rig, way: &Way, collector: Collector, folder: impl AsRef<Path>) {
    let (report, trace) = delivered(rig, EndReason::Exited(0), collector, folder);
    let gaps = &trace.manifest.gaps;
    assert!(gaps.is_empty() && report.lost.is_empty(), "{}: {report}: {gaps:?}", way.transport);
    assert_eq!(trace.len() as u64, rig.produced(), "{}: {report}", way.transport);
    assert!(trace.folder.join("spans.parquet").exists());
}

#[test]
fn a_collector_is_killed_again_and_again_udp() {
    killed_again_and_again(&Way::new(Transport::Udp), false);
}

#[test]
fn a_collector_is_killed_again_and_again_tcp() {
    killed_again_and_again(&Way::new(Transport::Tcp), false);
}

#[test]
fn a_collector_is_killed_again_and_again_tls() {
    killed_again_and_again(&Way::new(Transport::Tls), true);
}

#[test]
fn a_collector_is_killed_again_and_again_quic() {
    killed_again_and_again(&Way::new(Transport::Quic), true);
}

#[test]
fn a_collector_is_killed_and_started_elsewhere() {
    for transport in [Transport::Udp, Transport::Tcp] {
        killed_again_and_again(&Way::new(transport), true);
    }
}

/// What leads to the collector, wherever it is.
enum Road {
    Direct(SocketAddr),
    Relay(Relay),
    Cable(Cable),
}

impl Road {
    fn new(way: &Way, collector: &Collector, moves: bool) -> Self {
        let to = collector.address(way.transport);
        match way.transport {
            _ if !moves => Self::Direct(to),
            Transport::Udp | Transport::Quic => Self::Relay(Relay::start(to, 1, Faults::NONE).expect("a socket")),
            Transport::Tcp | Transport::Tls | Transport::Socket => Self::Cable(Cable::start(to).expect("a socket")),
        }
    }

    fn address(&self) -> SocketAddr {
        match self {
            Self::Direct(to) => *to,
            Self::Relay(relay) => relay.address(),
            Self::Cable(cable) => cable.address(),
        }
    }

    /// Starts a collector on the same directory, and leads there.
    fn again(&self, way: &Way, folder: &Folder) -> Collector {
        let at = if let Self::Direct(to) = self { to.to_string() } else { "127.0.0.1:0".into() };
        // What is synced is kept, and nothing else.
        let collector = way.collector(&at, folder.path(), &["--sync", "50ms"]);
        match self {
            Self::Direct(_) => {}
            Self::Relay(relay) => relay.move_to(collector.address(way.transport)),
            Self::Cable(cable) => cable.move_to(collector.address(way.transport)),
        }
        collector
    }
}

/// `SPOOR_KILLS` says how often.
fn killed_again_and_again(way: &Way, moves: bool) {
    let folder = Folder::new("ships-resumed");
    let mut collector = way.collector("127.0.0.1:0", folder.path(), &[]);
    let road = Road::new(way, &collector, moves);
    let mut rig = Rig::new(way.settings(road.address()), 3, 1 << 20);
    for round in 0..wanted("SPOOR_KILLS", 20) {
        for _ in 0..round * 3 % 7 {
            rig.work(3_000);
            rig.turn();
        }
        match round % 5 {
            4 => _ = collector.stop(),
            _ => collector.kill(),
        }
        rig.work(3_000);
        rig.turn();
        collector = road.again(way, &folder);
    }
    has_everything(&mut rig, way, collector, &folder);
}

#[test]
fn both_ends_stop_for_longer_than_the_other_waits_udp() {
    both_stop(&Way::new(Transport::Udp));
}

#[test]
fn both_ends_stop_for_longer_than_the_other_waits_tcp() {
    both_stop(&Way::new(Transport::Tcp));
}

#[test]
fn both_ends_stop_for_longer_than_the_other_waits_tls() {
    both_stop(&Way::new(Transport::Tls));
}

#[test]
fn both_ends_stop_for_longer_than_the_other_waits_quic() {
    both_stop(&Way::new(Transport::Quic));
}

/// `SPOOR_STOP_SECONDS` says for how long.
fn both_stop(way: &Way) {
    let stop = Duration::from_secs(wanted("SPOOR_STOP_SECONDS", 1));
    let folder = Folder::new("ships-silent");
    let mut collector = way.collector("127.0.0.1:0", folder.path(), &["--session-timeout", "500ms"]);
    let mut rig = Rig::new(way.settings(collector.address(way.transport)), 3, 1 << 20);
    for _ in 0..2 {
        rig.work(3_000);
        rig.turn();
        thread::sleep(stop);
        rig.work(3_000);
        rig.settle(LONG);
        collector.process().signal("STOP");
        rig.work(3_000);
        let until = Instant::now() + stop;
        while Instant::now() < until {
            rig.turn();
        }
        collector.process().signal("CONT");
    }
    has_everything(&mut rig, way, collector, &folder);
}

#[test]
fn whatever_the_network_loses_is_made_good_udp() {
    through_loss(&Way::new(Transport::Udp));
}

#[test]
fn whatever_the_network_loses_is_made_good_quic() {
    through_loss(&Way::new(Transport::Quic));
}

/// One, five and twenty percent are lost on either way, others come twice, and all in another order.
fn through_loss(way: &Way) {
    for (seed, lose) in [(1, 0.01), (2, 0.05), (3, 0.2)] {
        let folder = Folder::new("ships-lossy");
        let collector = way.collector("127.0.0.1:0", folder.path(), &["--reorder-time", "100ms"]);
        let faults = Faults {
            lose,
            lose_answers: lose,
            double: 0.05,
            delay: 0.5,
            delay_at_most: Duration::from_millis(50),
            ..Faults::NONE
        };
        let relay = Relay::start(collector.udp(), seed, faults).expect("a socket");
        let mut settings = way.settings(relay.address());
        if way.transport == Transport::Udp {
            settings.datagram_bytes = 1_400;
        }
        let mut rig = Rig::new(settings, 3, 1 << 16);
        for _ in 0..20 {
            rig.work(500);
            rig.turn();
        }
        has_everything(&mut rig, way, collector, &folder);
        assert!(relay.datagrams().1 > 0, "the network lost {:?}", relay.datagrams());
    }
}

#[test]
fn a_connection_is_cut_all_the_time() {
    for transport in [Transport::Tcp, Transport::Tls] {
        let way = Way::new(transport);
        let folder = Folder::new("ships-severed");
        let collector = way.collector("127.0.0.1:0", folder.path(), &[]);
        let cable = Cable::start(collector.tcp()).expect("a socket");
        let mut rig = Rig::new(way.settings(cable.address()), 3, 1 << 20);
        let mut cuts = 0;
        while cuts < 8 {
            let cut = Instant::now() + Duration::from_millis(200);
            while Instant::now() < cut {
                rig.work(200);
                rig.turn();
            }
            cuts += cable.cut();
        }
        has_everything(&mut rig, &way, collector, &folder);
    }
}

/// An agent that was not told that all has arrived says everything again, to the next collector: there is no other trace.
#[test]
fn what_has_ended_already_is_confirmed_by_the_next() {
    let way = Way::new(Transport::Tcp);
    let folder = Folder::new("ships-ended");
    let [first, second] = [(); 2].map(|()| {
        let collector = way.collector("127.0.0.1:0", folder.path(), &[]);
        // It is the same session each time, with the same secret.
        let mut rig = Rig::new(way.settings(collector.tcp()), 3, 1 << 20);
        rig.work(3_000);
        let report = rig.finish(EndReason::Exited(3), LONG);
        collector.stop().success();
        assert!(report.complete && report.lost.is_empty(), "{report}");
        rig
    });
    let trace = Trace::only(folder.path());
    first.is_all_in(&trace);
    verified(&trace.folder);
    assert_eq!((trace.len() as u64, trace.len() as u64), (first.produced(), second.produced()));
    assert_eq!(trace.manifest.end.as_ref().and_then(|end| end.code), Some(3));
}

/// Tables take a while, and agents that find the port open meanwhile would wait for nothing.
#[test]
fn a_collector_that_is_stopped_gives_up_its_ports_before_it_makes_tables() {
    for transport in [Transport::Tcp, Transport::Quic] {
        let (folder, way) = (Folder::new("ships-ports"), Way::new(transport));
        let mut before = way.collector("127.0.0.1:0", folder.path(), &[]);
        let to = before.address(transport);
        let mut rig = Rig::new(way.settings(to), 3, 1 << 20);
        for _ in 0..30 {
            rig.work(5_000);
            rig.turn();
        }
        rig.settle(LONG);
        before.process().signal("TERM");
        before.wait_for(" stopped, after ");
        let deadline = Instant::now() + LONG;
        while TcpListener::bind(to).is_err() || UdpSocket::bind(to).is_err() {
            assert!(Instant::now() < deadline, "{transport}: the ports are taken");
        }
        assert!(!before.said().contains("spans of "), "{transport}: {}", before.said());
        let after = way.collector(&to.to_string(), folder.path(), &[]);
        rig.work(5_000);
        rig.settle(LONG);
        let exit = before.exit(LONG).success();
        assert!(!exit.stderr.contains("cannot make"), "{transport}: {}", exit.stderr);
        has_everything(&mut rig, &way, after, &folder);
    }
}

#[test]
fn files_that_were_shortened_between_two_collectors_are_not_taken_up_without_a_word() {
    let (folder, way) = (Folder::new("ships-shortened"), Way::new(Transport::Tcp));
    let collector = way.collector("127.0.0.1:0", folder.path(), &[]);
    let to = collector.address(way.transport);
    let mut rig = Rig::new(way.settings(to), 1, 1 << 20);
    rig.work(3_000);
    rig.settle(LONG);
    collector.kill();
    let index = tests::trace::folders(folder.path()).remove(0).join("thread_0/index.atf");
    let file = std::fs::OpenOptions::new().write(true).open(index).expect("it is there");
    file.set_len(64 + 32 * 1_000).expect("it has more");
    let collector = way.collector(&to.to_string(), folder.path(), &[]);
    rig.work(3_000);
    let report = rig.finish(EndReason::Exited(0), LONG);
    let said = collector.stop().success().stderr;
    assert!(said.contains("2000 events that its agent was told are kept are not in its files"), "{report}: {said}");
    let trace = Trace::only(folder.path());
    assert_eq!((trace.len(), trace.missing("agent:kept-before").len()), (4_000, 2_000));
}
