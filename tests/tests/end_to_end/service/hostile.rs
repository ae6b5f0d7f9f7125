//! Senders that mean harm, or are broken. Whatever they do, an agent that behaves loses nothing, memory stays bounded,
//! and the log stays readable.

pub(crate) mod packets;

use std::{
    io::{ErrorKind, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    path::PathBuf,
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use codec::heph::{EVENT_MAGIC, METADATA_MAGIC};
use tests::{Agent, Collector, Folder, Metrics, Random, Settings, Transport};

use crate::service::{eventually, finish, is_complete, machine};

/// The most memory a collector may take.
const MAX_BYTES: u64 = 512 << 20;

/// The most lines it may log.
const MAX_LINES: usize = 100;

/// How long an attack may last.
const ATTACK: Duration = Duration::from_secs(8);

/// How many of something is a lot.
const MANY: u64 = 1_000_000;

/// Runs an attack while agents that behave trace over these transports. Returns the numbers after the attack.
#[track_caller]
fn besieged(
    name: &str,
    transports: &[Transport],
    arguments: &[&str],
    attack: impl FnOnce(&Collector),
) -> (Folder, Metrics) {
    let _machine = machine();
    let folder = Folder::new(name);
    let out = folder.join("out");
    let mut collector = Collector::to_disk(&out, &[&["--metrics", "127.0.0.1:0"], arguments].concat());
    let agents: Vec<_> = transports
        .iter()
        .zip(1..)
        .map(|(transport, seed)| {
            let (end, ended) = channel();
            let agent = Agent::start(Settings::new(&collector, *transport, seed)).expect("it is heard");
            (end, thread::spawn(move || behave(agent, &ended)))
        })
        .collect();
    attack(&collector);
    let agents: Vec<_> = agents
        .into_iter()
        .map(|(end, agent)| {
            drop(end);
            agent.join().expect("an agent that behaves ends well")
        })
        .collect();
    let metrics = collector.metrics();
    let peak = collector.process().peak_bytes();
    let exit = collector.stop().success();
    for agent in &agents {
        is_complete(&out, agent);
    }
    assert!(peak < MAX_BYTES, "the collector took {} MiB", peak >> 20);
    let lines = exit.stderr.lines().count();
    assert!(lines < MAX_LINES, "{lines} lines in the log:\n{}", exit.stderr);
    (folder, metrics)
}

/// Traces a little, again and again, until told to end.
fn behave(mut agent: Agent, ended: &Receiver<()>) -> Agent {
    while ended.recv_timeout(Duration::from_millis(5)) == Err(RecvTimeoutError::Timeout) {
        agent.work(40).expect("the collector takes the events");
        agent.flush();
        agent.listen(Duration::from_millis(1));
    }
    agent.work(500).expect("the collector takes the events");
    finish(&mut agent);
    agent
}

/// A stream to the collector that gives up when it is closed or not read.
fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).expect("the collector accepts");
    stream.set_write_timeout(Some(Duration::from_secs(2))).expect("a timeout");
    stream
}

/// Writes, unless the collector has closed the connection or does not read. Whether it did.
fn write(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    match stream.write_all(bytes) {
        Ok(()) => true,
        Err(error) => {
            let expected =
                [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset, ErrorKind::WouldBlock, ErrorKind::TimedOut];
            assert!(expected.contains(&error.kind()), "{error}");
            false
        }
    }
}

fn datagrams(to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(to).expect("a way to the collector");
    socket
}

/// Sends over a new connection what `chunk` makes of each number, up to a million of them, as long as there is time.
/// Returns how many were sent.
fn pour(to: SocketAddr, opening: &[u8], step: u64, mut chunk: impl FnMut(u64) -> Vec<u8>) -> u64 {
    let deadline = Instant::now() + ATTACK;
    let mut stream = connect(to);
    assert!(write(&mut stream, opening), "the opening is taken");
    let mut sent = 0;
    while sent < MANY && Instant::now() < deadline && write(&mut stream, &chunk(sent)) {
        sent += step;
    }
    sent
}

#[track_caller]
fn refused(metrics: &Metrics, what: &str) -> f64 {
    metrics.labelled("spoor_refused_total", "what", what).unwrap_or(0.0)
}

#[test]
fn random_bytes() {
    let (_folder, metrics) = besieged("random", &[Transport::Udp, Transport::Tcp], &[], |collector| {
        let mut random = Random::new(1);
        let socket = datagrams(collector.udp());
        for _ in 0..5_000 {
            let count = random.below(1_400) as usize + 1;
            let _ = socket.send(&random.bytes(count));
        }
        for _ in 0..4 {
            let mut stream = connect(collector.tcp());
            while random.chance(0.98) && write(&mut stream, &random.bytes(32 << 10)) {}
        }
        eventually("bad datagrams are counted", || {
            collector.metrics().sum("spoor_bad_datagrams_total").is_some_and(|count| count > 0.0)
        });
    });
    assert!(metrics.sum("spoor_skipped_bytes_total").is_some_and(|count| count > 0.0));
}

#[test]
fn truncated_and_altered_packets() {
    besieged("truncated", &[Transport::Udp, Transport::Tcp], &[], |collector| {
        let mut random = Random::new(2);
        let whole = packets::all_kinds(&mut random);
        let socket = datagrams(collector.udp());
        let mut stream = connect(collector.tcp());
        for _ in 0..200 {
            for packet in &whole {
                let mut packet = packet.clone();
                match random.chance(0.5) {
                    true => packet.truncate(random.below(packet.len() as u64) as usize),
                    false => {
                        let at = random.below(packet.len() as u64) as usize;
                        packet[at] ^= 1 << random.below(8);
                    }
                }
                let _ = socket.send(&packet);
                if !write(&mut stream, &packet) {
                    stream = connect(collector.tcp());
                }
            }
        }
    });
}

#[test]
fn packets_that_claim_to_be_huge() {
    besieged("huge", &[Transport::Udp, Transport::Tcp], &[], |collector| {
        let socket = datagrams(collector.udp());
        let mut open = Vec::new();
        for (magic, size) in [(EVENT_MAGIC, u32::MAX), (METADATA_MAGIC, u32::MAX), (EVENT_MAGIC, 1 << 20)] {
            let mut packet = magic.to_be_bytes().to_vec();
            packet.extend_from_slice(&size.to_be_bytes());
            packet.resize(1_000, 0);
            for _ in 0..30 {
                let _ = socket.send(&packet);
                let mut stream = connect(collector.tcp());
                // All but the last byte, and then silence.
                write(&mut stream, &packet);
                write(&mut stream, &vec![0; (1 << 20) - 1_001]);
                open.push(stream);
            }
        }
    });
}

#[test]
fn a_million_sessions() {
    let (_folder, metrics) = besieged("sessions", &[Transport::Tcp], &[], |collector| {
        let mut random = Random::new(3);
        let socket = datagrams(collector.udp());
        let deadline = Instant::now() + ATTACK;
        let mut sent = 0;
        while sent < MANY && (sent % 1_000 != 0 || Instant::now() < deadline) {
            let _ = socket.send(&packets::session(random.id(), "host", "program"));
            sent += 1;
        }
        let mut open = Vec::new();
        for _ in 0..100 {
            let mut stream = connect(collector.tcp());
            write(&mut stream, &packets::session(random.id(), "host", "program"));
            open.push(stream);
        }
        eventually("sessions are refused", || refused(&collector.metrics(), "sessions") > 0.0);
    });
    assert!(metrics.sum("spoor_sessions_open").is_some_and(|open| open < 10_000.0));
}

#[test]
fn a_million_streams() {
    let arguments = ["--max-streams", "2000"];
    let (_folder, metrics) = besieged("streams", &[Transport::Udp, Transport::Tcp], &arguments, |collector| {
        let session = packets::session([3; 16], "host", "program");
        let sent = pour(collector.tcp(), &session, 100, |first| {
            (first..first + 100).flat_map(|stream| packets::event(stream as u32, 0)).collect()
        });
        assert!(sent > 10_000, "only {sent} streams");
        eventually("streams are refused", || refused(&collector.metrics(), "streams") > 0.0);
    });
    assert!(refused(&metrics, "streams") > 0.0);
}

#[test]
fn a_million_functions() {
    let arguments = ["--max-functions", "50000"];
    besieged("functions", &[Transport::Udp, Transport::Tcp], &arguments, |collector| {
        let session = packets::session([4; 16], "host", "program");
        let sent = pour(collector.tcp(), &session, 100, |first| packets::functions(7, first as u32, 100));
        assert!(sent > 100_000, "only {sent} functions");
        eventually("functions are refused", || refused(&collector.metrics(), "functions") > 0.0);
    });
}

#[test]
fn names_of_64_kib() {
    besieged("names", &[Transport::Udp, Transport::Tcp], &[], |collector| {
        let name = "n".repeat(65_535);
        let session = packets::session([5; 16], &name, &name);
        let sent = pour(collector.tcp(), &session, 1_000, |number| packets::named(number as u32 / 1_000, &name));
        assert!(sent > 100_000, "only {} names", sent / 1_000);
    });
}

#[test]
fn names_that_are_paths() {
    let (folder, _metrics) = besieged("paths", &[Transport::Udp, Transport::Tcp], &[], |collector| {
        let socket = datagrams(collector.udp());
        let names = ["../../escape", "/escape", "escape\0escape", "..", "escape/escape", "C:\\escape"];
        for (number, name) in (0..).zip(names) {
            let mut id = [6; 16];
            id[15] = number;
            let mut all = packets::session(id, name, name);
            all.extend(packets::named(1, name));
            all.extend(packets::event(0, 0));
            socket.send(&all).expect("it is sent");
            assert!(write(&mut connect(collector.tcp()), &all));
        }
        eventually("they are sessions like others", || {
            collector.metrics().sum("spoor_sessions_total").is_some_and(|count| count >= 8.0)
        });
    });
    let tree = Folder::tree(folder.path());
    assert!(tree.iter().all(|path| path.starts_with("out")), "only in its folder: {tree:?}");
    assert!(tree.iter().all(|path| !path.to_string_lossy().contains("escape")), "no name is a file name");
    let parent = folder.path().parent().map(PathBuf::from).expect("a parent");
    assert!(!parent.join("escape").exists());
}

#[test]
fn connections_that_dribble() {
    besieged("dribble", &[Transport::Udp, Transport::Tcp], &[], |collector| {
        let mut random = Random::new(7);
        let packet = packets::session(random.id(), "slow", "slow");
        let mut open: Vec<_> = (0..200).map(|_| connect(collector.tcp())).collect();
        // A byte each, and a pause: nobody says stop before it is over.
        let (_never, pause) = channel::<()>();
        for byte in packet.iter().take(40) {
            for stream in &mut open {
                write(stream, &[*byte]);
            }
            let _ = pause.recv_timeout(Duration::from_millis(25));
        }
    });
}

#[test]
fn a_peer_that_does_not_read_its_acknowledgements() {
    besieged("deaf", &[Transport::Udp, Transport::Tcp], &[], |collector| {
        let session = packets::session([8; 16], "deaf", "deaf");
        let mut stream = connect(collector.tcp());
        assert!(write(&mut stream, &session));
        let deadline = Instant::now() + ATTACK / 2;
        let mut counter = 0;
        while Instant::now() < deadline {
            let chunk: Vec<u8> = (0..50).flat_map(|_| packets::progress(400)).collect();
            let more = packets::event(0, counter);
            counter += 1;
            if !write(&mut stream, &chunk) || !write(&mut stream, &more) {
                break;
            }
        }
    });
}
