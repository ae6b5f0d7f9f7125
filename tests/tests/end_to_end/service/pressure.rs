//! Sinks that are full or stuck, floods, and more of everything than there is room for.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpStream, UdpSocket},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use tests::{
    Agent, Collector, Folder, Settings, Trace,
    collector::{disk, run},
};

use crate::service::{LONG, eventually, finish, is_complete, machine, plain, verified};

/// A collector with a small queue for each of two sinks, whose stdout nobody reads.
fn with_stuck_stdout(folder: &Folder, on_full: &str) -> Collector {
    let stuck = format!("stdout:events,on-full={on_full}");
    Collector::held(folder.path(), &["--sink", &stuck, "--memory", "64MiB", "--metrics", "127.0.0.1:0"])
}

fn pass(time: Duration) {
    let deadline = Instant::now() + time;
    while Instant::now() < deadline {
        thread::park_timeout(deadline - Instant::now());
    }
}

#[test]
fn a_full_sink_is_reported_once_and_the_others_have_everything() {
    let _machine = machine();
    let folder = Folder::new("full");
    let collector = with_stuck_stdout(&folder, "drop");
    let agent = crate::service::trace(Settings { detail_every: 1, ..Settings::tcp(collector.tcp(), 1) }, 150_000);
    assert!(collector.metrics().sum("spoor_sink_lost_events_total") > Some(0.0));
    let exit = collector.stop();
    let reports = exit.stderr.lines().filter(|line| line.contains("stdout:events: is full")).count();
    assert_eq!(reports, 1, "{}", exit.stderr);
    is_complete(folder.path(), &agent);
}

#[test]
fn a_sink_that_is_waited_for_costs_nothing() {
    let _machine = machine();
    let folder = Folder::new("waited");
    let mut collector = with_stuck_stdout(&folder, "block");
    let udp = collector.udp();
    let working = thread::spawn(move || {
        let patience = LONG;
        let mut agent =
            Agent::start(Settings { detail_every: 1, patience, ..Settings::udp(udp, 2) }).expect("it is heard");
        agent.work(120_000).expect("it is taken");
        finish(&mut agent);
        agent
    });
    eventually("the queue is full", || collector.metrics().sum("spoor_sink_queue_bytes") > Some(3e6));
    // Longer than anything that is missing is waited for.
    pass(Duration::from_secs(2));
    let mut stdout = collector.process().take_stdout().expect("it was held");
    let reading = thread::spawn(move || {
        let mut lines = Vec::new();
        stdout.read_to_end(&mut lines).map(|_| lines.iter().filter(|byte| **byte == b'\n').count())
    });
    let agent = working.join().expect("the agent comes to its end");
    collector.stop().success();
    is_complete(folder.path(), &agent);
    assert!(reading.join().expect("a reader").expect("readable") > 120_000, "stdout has everything too");
}

#[test]
fn a_signal_ends_it_although_a_sink_that_is_waited_for_is_stuck() {
    let _machine = machine();
    let folder = Folder::new("stuck-end");
    let collector = with_stuck_stdout(&folder, "block");
    let settings = Settings { detail_every: 1, patience: Duration::from_secs(2), ..Settings::tcp(collector.tcp(), 3) };
    let mut agent = Agent::start(settings).expect("it is heard");
    // It is taken as far as the queue goes.
    let deadline = Instant::now() + Duration::from_secs(2);
    while Instant::now() < deadline && agent.work(1000).is_ok() {}
    let exit = collector.end_by("TERM");
    assert_eq!(exit.code, Some(1), "{}", exit.stderr);
    verified(&Trace::of(folder.path(), agent.session()).folder);
}

#[test]
fn a_flood_does_not_keep_it_from_ending() {
    let _machine = machine();
    let (folder, collector) = Collector::in_folder("flood-end", &[]);
    let agent = crate::service::trace(Settings::tcp(collector.tcp(), 4), 2000);
    let (to, done) = (collector.udp(), Arc::new(AtomicBool::new(false)));
    let floods: Vec<_> = (0..2)
        .map(|_| {
            let done = done.clone();
            thread::spawn(move || {
                let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
                while !done.load(Relaxed) {
                    // Where nobody listens any more that is told, and does not matter.
                    _ = socket.send_to(&[0x75; 1000], to);
                }
            })
        })
        .collect();
    pass(Duration::from_millis(500));
    let asked = Instant::now();
    let exit = collector.end_by("TERM");
    done.store(true, Relaxed);
    floods.into_iter().for_each(|flood| flood.join().expect("a flood ends"));
    exit.success();
    assert!(asked.elapsed() < Duration::from_secs(8));
    is_complete(folder.path(), &agent);
}

#[test]
fn a_connection_that_has_to_make_room_loses_nothing() {
    let (folder, collector) = Collector::in_folder("room", &["--max-connections", "2"]);
    let mut agent = Agent::start(Settings::tcp(collector.tcp(), 5)).expect("it is heard");
    agent.work(5000).expect("it is taken");
    let _second = TcpStream::connect(collector.tcp()).expect("a connection");
    // After two seconds without a packet the others may take its place.
    pass(Duration::from_millis(2300));
    let _more: Vec<_> = (0..2).map(|_| TcpStream::connect(collector.tcp()).expect("a connection")).collect();
    pass(Duration::from_millis(2300));
    agent.work(1000).expect("it is taken");
    finish(&mut agent);
    collector.stop().success();
    is_complete(folder.path(), &agent);
}

#[test]
fn a_file_of_more_sessions_than_may_be_open_is_taken_whole() {
    let folder = Folder::new("sessions");
    let file = folder.path().join("many.heph");
    let whole = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/traces/session.heph")).expect("a fixture");
    let id = whole.windows(16).position(|id| id == std::array::from_fn::<u8, 16, _>(|at| 0x10 + at as u8));
    let id = id.expect("it has an id");
    let mut sessions = Vec::new();
    for number in 0..1100_u32 {
        let start = sessions.len();
        sessions.extend_from_slice(&whole);
        sessions[start + id..start + id + 4].copy_from_slice(&number.to_be_bytes());
    }
    fs::write(&file, sessions).expect("room");
    let out = folder.path().join("out");
    run(&["ingest", file.to_str().expect("UTF-8"), "--sink", &disk(&out)]).success();
    assert_eq!(fs::read_dir(&out).expect("a folder").count(), 1100);
}

#[test]
fn sessions_that_took_turns_in_a_heph_file_are_told_apart_again() {
    let folder = Folder::new("turns");
    let file = folder.path().join("both.heph");
    let sink = format!("heph:{}", file.display());
    let collector = Collector::to_disk(&folder.join("first"), &["--sink", &sink, "--on-full", "block"]);
    let mut plain: Vec<_> = (0..2).map(|_| TcpStream::connect(collector.tcp()).expect("a connection")).collect();
    let packets = plain::packets(true);
    for packet in &packets {
        for connection in &mut plain {
            connection.write_all(packet).expect("it is read");
        }
    }
    let agent = crate::service::trace(Settings::tcp(collector.tcp(), 6), 1000);
    drop(plain);
    collector.stop().success();
    let again = folder.path().join("again");
    run(&["ingest", file.to_str().expect("UTF-8"), "--sink", &disk(&again)]).success();
    is_complete(&again, &agent);
    let sizes = |below: &Path| {
        let mut sizes: Vec<_> = Trace::all(below).iter().map(Trace::len).collect();
        sizes.sort_unstable();
        sizes
    };
    assert_eq!(sizes(&again), sizes(&folder.path().join("first")));
    assert_eq!(sizes(&again).len(), 3);
}
