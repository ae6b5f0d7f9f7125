//! How packets get in: both transports, both families of addresses, one port or several, one agent or many.

use std::{net::TcpStream, thread};

use tests::{Agent, Cable, Collector, Faults, Folder, Relay, Settings, Trace, Transport, account};

use crate::service::{LONG, eventually, finish, is_complete, trace};

#[test]
fn udp_and_tcp_work_side_by_side_on_one_port() {
    let (folder, collector) = Collector::in_folder("side-by-side", &[]);
    assert_eq!(collector.udp(), collector.tcp(), "one port for both");
    let agents = [Settings::udp(collector.udp(), 1), Settings::tcp(collector.tcp(), 2)]
        .map(|settings| thread::spawn(move || trace(settings, 4_000)));
    let agents = agents.map(|agent| agent.join().expect("the agent ends well"));
    collector.stop().success();
    for agent in &agents {
        let trace = is_complete(folder.path(), agent);
        let process = trace.manifest.process.expect("the process is known");
        assert_eq!((process.pid, process.host.as_str()), (4_711, "machine"));
        assert_eq!((process.executable.as_str(), process.arguments.len()), ("/usr/bin/synthetic", 2));
        assert_eq!((process.arch.as_str(), process.os.as_str()), ("x86_64", "linux"));
        assert_eq!(trace.manifest.clock.as_deref(), Some("boottime"));
        assert_eq!(trace.manifest.epoch_unix_ns, Some(tests::agent::EPOCH_UNIX_NS));
        let names: Vec<_> = trace.manifest.threads.iter().map(|thread| thread.name.as_deref()).collect();
        assert_eq!(names, [Some("worker 0"), Some("worker 1")]);
        assert_eq!(trace.threads[&0][0].name.as_deref(), Some("function_0"));
        let end = trace.manifest.end.expect("it has ended");
        assert_eq!((end.how.as_str(), end.code), ("exited", Some(0)));
    }
}

#[test]
fn one_transport_can_be_had_without_the_other() {
    let folder = Folder::new("one-transport");
    let collector = Collector::to_disk(&folder.join("udp"), &["--udp"]);
    assert!(collector.all_tcp().is_empty());
    assert!(TcpStream::connect(collector.udp()).is_err(), "nobody listens on TCP");
    let agent = trace(Settings::udp(collector.udp(), 3), 500);
    collector.stop().success();
    is_complete(&folder.join("udp"), &agent);

    let collector = Collector::to_disk(&folder.join("tcp"), &["--tcp"]);
    assert!(collector.all_udp().is_empty());
    let agent = trace(Settings::tcp(collector.tcp(), 4), 500);
    collector.stop().success();
    is_complete(&folder.join("tcp"), &agent);
}

#[test]
fn several_addresses_of_both_families() {
    let (folder, collector) = Collector::in_folder("addresses", &["--listen", "[::1]:0"]);
    assert_eq!((collector.all_udp().len(), collector.all_tcp().len()), (2, 2));
    assert_eq!(collector.all_udp().iter().filter(|address| address.is_ipv6()).count(), 1);
    let udp = collector.all_udp().iter().zip(10..).map(|(address, seed)| Settings::udp(*address, seed));
    let tcp = collector.all_tcp().iter().zip(20..).map(|(address, seed)| Settings::tcp(*address, seed));
    let agents: Vec<_> = udp.chain(tcp).map(|settings| trace(settings, 500)).collect();
    collector.stop().success();
    agents.iter().for_each(|agent| drop(is_complete(folder.path(), agent)));
    assert_eq!(Trace::all(folder.path()).len(), 4);
}

#[test]
fn eight_agents_at_once() {
    let (folder, collector) = Collector::in_folder("eight", &["--metrics", "127.0.0.1:0"]);
    let agents: Vec<_> = (0..8)
        .map(|seed| {
            let transport = if seed % 2 == 0 { Transport::Udp } else { Transport::Tcp };
            let settings = Settings { streams: 3, ..Settings::new(&collector, transport, 30 + seed) };
            thread::spawn(move || trace(settings, 3_000))
        })
        .collect();
    let agents: Vec<_> = agents.into_iter().map(|agent| agent.join().expect("the agent ends well")).collect();
    let written = || collector.metrics().sum("spoor_events_written_total");
    eventually("all events are written", || written() == Some(24_000.0));
    let metrics = collector.metrics();
    collector.stop().success();
    agents.iter().for_each(|agent| drop(is_complete(folder.path(), agent)));
    assert_eq!(metrics.sum("spoor_sessions_total"), Some(8.0));
    assert_eq!(metrics.sum("spoor_events_missing_total").unwrap_or(0.0), 0.0);
    for transport in ["udp", "tcp"] {
        let bytes = metrics.labelled("spoor_received_bytes_total", "transport", transport);
        assert!(bytes.is_some_and(|bytes| bytes > 100_000.0), "{transport}: {bytes:?}");
    }
}

#[test]
fn a_tcp_agent_resumes_after_its_connection_broke() {
    let (folder, collector) = Collector::in_folder("reconnect", &[]);
    let cable = Cable::start(collector.tcp()).expect("a socket");
    let mut agent = Agent::start(Settings::tcp(cable.address(), 40)).expect("it is heard");
    for _ in 0..5 {
        agent.work(1_500).expect("it is taken");
        assert_eq!(cable.cut(), 1);
        let parted = agent.listen_until(LONG, |agent| !agent.is_connected());
        parted.expect("it notices that the connection broke");
        agent.listen_until(LONG, |agent| agent.is_connected()).expect("the collector knows it again");
    }
    agent.work(500).expect("it is taken");
    finish(&mut agent);
    assert_eq!(agent.report().reconnects, 5);
    collector.stop().success();
    is_complete(folder.path(), &agent);
}

#[test]
fn a_udp_agent_may_move_to_another_port() {
    // What is lost while nothing gets through is waited for.
    let (folder, collector) = Collector::in_folder("move", &[]);
    let relay = Relay::start(collector.udp(), 41, Faults::NONE).expect("a socket");
    let mut agent = Agent::start(Settings::udp(relay.address(), 41)).expect("it is heard");
    for _ in 0..2 {
        // Nothing gets through for a while, and then from another port.
        relay.set(Faults { lose: 1.0, ..Faults::NONE });
        agent.work(1_000).expect("it is kept");
        agent.listen_until(LONG, |agent| !agent.is_connected()).expect("it notices that nobody answers");
        relay.move_agents();
        relay.set(Faults::NONE);
        agent.listen_until(LONG, |agent| agent.is_connected()).expect("the collector knows it again");
        agent.flush();
        agent.listen_until(LONG, |agent| agent.report().unsettled == 0).expect("what was lost is sent again");
    }
    agent.work(1_000).expect("it is taken");
    finish(&mut agent);
    collector.stop().success();
    is_complete(folder.path(), &agent);
}

#[test]
fn more_streams_than_fit_a_datagram() {
    let (folder, collector) = Collector::in_folder("streams", &[]);
    let agent = trace(Settings { streams: 300, ..Settings::udp(collector.udp(), 60) }, 3_000);
    collector.stop().success();
    let trace = is_complete(folder.path(), &agent);
    assert_eq!(trace.threads.len(), 300);
}

#[test]
fn an_agent_that_goes_silent_is_given_up() {
    let (folder, collector) = Collector::in_folder("silent", &["--session-timeout", "500ms", "--once"]);
    let mut agent = Agent::start(Settings::udp(collector.udp(), 61)).expect("it is heard");
    agent.work(700).expect("it is taken");
    agent.settle(LONG).expect("it is acknowledged");
    collector.exit(LONG).success();
    let trace = Trace::of(folder.path(), agent.session());
    account::complete(&trace, agent.program());
    assert_eq!(trace.manifest.end.expect("it has ended").how, "lost contact");
}
