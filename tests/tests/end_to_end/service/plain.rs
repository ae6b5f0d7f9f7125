//! Plain Heph: senders that know nothing of sessions, counters or acknowledgements.

use std::{
    fs,
    io::Write,
    net::{SocketAddr, TcpStream, UdpSocket},
    path::PathBuf,
    process::Command,
};

use codec::{
    Counter, SessionNs, StreamId, SubstreamId,
    heph::{Attribute, Encode, Event, Metadata, Stamp, Value},
    profile::{Epoch, ProfileOption},
};
use tests::{
    Collector, Folder, Process, Trace,
    collector::{binary, disk, run, run_on},
    process::Stdout,
};

use crate::service::{LONG, eventually, verified};

/// How many events a plain trace has on each of its two streams.
const EVENTS: u32 = 300;

/// The packets of a trace as any Heph sender may write it.
pub(crate) fn packets(counted: bool) -> Vec<Vec<u8>> {
    let mut packets = vec![
        encoded(&ProfileOption::from(Epoch { unix_ns: 1_000_000 })),
        encoded(&Metadata { name: "colour", value: b"unknown to everybody" }),
    ];
    for number in 0..EVENTS {
        for stream in 0..2 {
            let stamp = Stamp {
                stream: StreamId(stream),
                counter: Counter(if counted { number } else { 0 }),
                substream: SubstreamId(u64::from(number % 3)),
                start: SessionNs(u64::from(number) * 100),
                end: SessionNs(u64::from(number) * 100 + 50),
            };
            let attributes = [
                Attribute { name: "number", value: Value::U64(number.into()) },
                Attribute { name: "path", value: Value::Str("/a/b") },
            ];
            let description = if number % 2 == 0 { "reading" } else { "writing" };
            packets.push(encoded(&Event { stamp, description, attributes: (&attributes).into() }));
        }
    }
    packets
}

fn encoded(packet: &impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.encode(&mut bytes).expect("it fits a packet");
    bytes
}

/// A file of the same packets.
fn file(folder: &Folder) -> PathBuf {
    let file = folder.join("trace.heph");
    fs::write(&file, packets(true).concat()).expect("room on disk");
    file
}

fn send_tcp(to: SocketAddr, packets: &[Vec<u8>]) {
    let mut stream = TcpStream::connect(to).expect("a connection");
    stream.write_all(&packets.concat()).expect("the collector reads");
}

/// Sends packets as datagrams, a few each.
fn send_udp(to: SocketAddr, packets: &[Vec<u8>]) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    for datagram in packets.chunks(10) {
        socket.send_to(&datagram.concat(), to).expect("it is sent");
    }
}

/// The attributes that event `number` is recorded with.
fn attributes(number: u64) -> String {
    format!("{{\"number\": U64({number}), \"path\": Str(\"/a/b\")}}")
}

#[track_caller]
fn is_whole(trace: &Trace) {
    assert_eq!(trace.threads.keys().copied().collect::<Vec<_>>(), [0, 1]);
    for events in trace.threads.values() {
        assert_eq!(events.len(), EVENTS as usize);
        for (number, event) in (0..).zip(events) {
            let name = if number % 2 == 0 { "reading" } else { "writing" };
            assert_eq!((event.name.as_deref(), event.time_ns), (Some(name), number * 100 + 50));
            assert_eq!(event.attributes, Some(attributes(number)));
        }
    }
    assert!(trace.manifest.gaps.is_empty());
    assert_eq!(trace.manifest.session, None);
    verified(&trace.folder);
}

#[test]
fn a_plain_trace_is_kept_as_it_comes() {
    type Send = fn(&Collector, &[Vec<u8>]);
    let tcp: Send = |collector, packets| send_tcp(collector.tcp(), packets);
    let udp: Send = |collector, packets| send_udp(collector.udp(), packets);
    for (send, counted) in [(tcp, true), (udp, true), (tcp, false)] {
        let (folder, collector) = Collector::in_folder("plain", &["--once", "--session-timeout", "500ms"]);
        send(&collector, &packets(counted));
        collector.exit(LONG).success();
        is_whole(&Trace::only(folder.path()));
    }
}

#[test]
fn senders_on_different_connections_are_different_sessions() {
    let (folder, collector) = Collector::in_folder("two-plain", &["--metrics", "127.0.0.1:0"]);
    send_tcp(collector.tcp(), &packets(true));
    send_tcp(collector.tcp(), &packets(true));
    let events = f64::from(4 * EVENTS);
    eventually("all events are written", || collector.metrics().sum("spoor_events_written_total") == Some(events));
    collector.stop().success();
    let traces = Trace::all(folder.path());
    assert_eq!(traces.len(), 2);
    traces.iter().for_each(is_whole);
}

#[test]
fn bytes_between_packets_are_skipped_and_counted() {
    let (folder, collector) = Collector::in_folder("noise", &["--metrics", "127.0.0.1:0"]);
    let mut noisy = packets(true);
    noisy.insert(7, b"no packet at all".to_vec());
    noisy.insert(99, vec![0xC1; 100]);
    send_tcp(collector.tcp(), &noisy);
    let events = f64::from(2 * EVENTS);
    eventually("all events are written", || collector.metrics().sum("spoor_events_written_total") == Some(events));
    assert_eq!(collector.metrics().sum("spoor_skipped_bytes_total"), Some(116.0));
    collector.stop().success();
    is_whole(&Trace::only(folder.path()));
}

#[test]
fn a_file_of_the_same_bytes_gives_the_same_events() {
    let folder = Folder::new("ingest");
    let (from_file, from_pipe) = (folder.join("from-file"), folder.join("from-pipe"));
    run_on("ingest", &file(&folder), &["--sink", &disk(&from_file)]).success();
    is_whole(&Trace::only(&from_file));

    let mut command = Command::new(binary());
    command.args(["ingest", "-", "--sink", &disk(&from_pipe)]);
    let mut process = Process::start(command, Stdout::Collect);
    let mut stdin = process.take_stdin().expect("a pipe");
    stdin.write_all(&packets(true).concat()).expect("the collector reads");
    drop(stdin);
    process.exit(LONG).success();
    assert_eq!(Trace::only(&from_pipe).contents(), Trace::only(&from_file).contents());
}

#[test]
fn what_cannot_be_read_opens_no_session() {
    let (folder, collector) = Collector::in_folder("garbage", &["--once", "--metrics", "127.0.0.1:0"]);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.send_to(b"nonsense!", collector.udp()).expect("it is sent");
    eventually("it is counted", || collector.metrics().sum("spoor_bad_datagrams_total") == Some(1.0));
    assert_eq!(fs::read_dir(folder.path()).map_or(0, |entries| entries.count()), 0);
    send_tcp(collector.tcp(), &packets(true));
    collector.exit(LONG).success();
    is_whole(&Trace::only(folder.path()));
}

#[test]
fn the_log_is_plain_lines_json_or_nothing() {
    let folder = Folder::new("log");
    let file = file(&folder);
    let path = file.to_str().expect("a path");
    let ingest = |name: &str, log: &[&str]| {
        let sink = disk(&folder.join(name));
        let exit = run(&[&["ingest", path, "--sink", &sink], log].concat());
        assert_eq!(exit.code, Some(0), "{}", exit.stderr);
        exit.stderr
    };
    let text = ingest("text", &[]);
    let json = ingest("json", &["--log-format", "json"]);
    let lines: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let messages: Vec<&str> = lines.iter().filter_map(|line| line["message"].as_str()).collect();
    assert_eq!(messages.len(), text.lines().count(), "the same in both forms: {text}{json}");
    assert!(text.lines().any(|line| line.starts_with("session ")), "{text}");
    let started = lines.iter().find(|line| line["session"].is_string()).expect("a line about the session");
    assert_eq!(
        (started["level"].as_str(), started["peer"].as_str()),
        (Some("info"), Some(format!("file {path}").as_str()))
    );
    assert_eq!(ingest("warn", &["--log", "warn"]), "");
    assert_eq!(ingest("off", &["--log", "off"]), "");
}

#[test]
fn an_output_that_takes_nothing_is_a_failure_and_one_that_nobody_reads_is_none() {
    let folder = Folder::new("full-output");
    let file = file(&folder);
    let ingest = |stdout: std::process::Stdio| {
        let mut command = Command::new(binary());
        command.args(["ingest", file.to_str().expect("a path"), "--sink", "stdout:events"]);
        command.stdout(stdout).stderr(std::process::Stdio::null()).status().expect("it runs").code()
    };
    let full = fs::File::options().write(true).open("/dev/full").expect("Linux has one");
    assert_eq!(ingest(full.into()), Some(1));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    assert_eq!(ingest(writer.into()), Some(0));
}
