//! The running collector: `cargo bench -p benches --bench collector -- [WORDS] [events=MILLIONS]`.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use agent::ship::Transport;
use benches::{
    Arguments, fresh,
    load::{Carries, Load},
    ran::cpu_time_ns,
    running::{Account, Running, events_on_disk, verify, verify_all},
    sender::{encrypted, runs, tcp, udp},
};
use codec::SessionId;
use rustix::process::getpid;

fn main() {
    let arguments = Arguments::read();
    let millions = arguments.value("events=").unwrap_or(20);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("collector-bench");

    println!("\n### From socket to ATF\n");
    println!(
        "| case | M events | s | M events/s | MB/s in | MB/s baseline | share of it | sent again | memory after 1/5 … 5/5, MiB |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---|");
    for carries in [Carries::Index, Carries::Detail] {
        for transport in ["TCP", "UDP"] {
            for spans in ["with spans", "without spans"] {
                let name = format!("{transport}, {}, {spans}", carries.name());
                if arguments.wants(&name) {
                    // An event with detail is four times as large.
                    let events = millions * 1_000_000 / if carries == Carries::Index { 1 } else { 4 };
                    throughput(&folder, &name, transport, carries, events);
                }
            }
        }
    }

    println!("\n### Sessions at once, in runs over TCP\n");
    println!(
        "| case | M events | s | M events/s | MB/s in | collector, ns/event | memory after 1/5 … 5/5, MiB | most, with tables |"
    );
    println!("|---|---:|---:|---:|---:|---:|---|---:|");
    for sessions in [1, 16] {
        let name = format!("runs, sessions at once: {sessions}");
        if arguments.wants(&name) {
            at_once(&folder, &name, sessions, millions * 1_000_000 / sessions);
        }
    }

    println!("\n### Encryption and synchronisation\n");
    println!("| case | M events | M events/s | until the end s | collector, ns/event | sender, ns/event |");
    println!("|---|---:|---:|---:|---:|---:|");
    let transports = ["TCP", "TLS", "UDP", "QUIC"].map(|transport| (transport, "none"));
    for (transport, sync) in transports.into_iter().chain(["end", "1s", "100ms", "10ms"].map(|sync| ("TCP", sync))) {
        let name = format!("guarded, {transport}, --sync {sync}");
        if arguments.wants(&name) {
            guarded(&folder, &name, transport, sync, millions * 1_000_000);
        }
    }

    println!("\n### From send to bytes on disk, at 1 M events/s\n");
    println!("| case | p50 ms | p90 ms | p99 ms | max ms |");
    println!("|---|---:|---:|---:|---:|");
    for transport in ["TCP", "UDP"] {
        let name = format!("latency, {transport}");
        if arguments.wants(&name) {
            latency(&folder, &name, transport);
        }
    }
    _ = fs::remove_dir_all(&folder);
}

fn throughput(folder: &Path, name: &str, transport: &str, carries: Carries, events: u64) {
    fresh(folder);
    let choice = if name.ends_with("without spans") { ",spans=no" } else { "" };
    let running = Running::start_with(&["--once", "--sink", &format!("disk:{}{choice}", folder.display())]);
    let (address, id) = (running.address, SessionId([7; 16]));
    let mut memory = Vec::new();
    let started = Instant::now();
    let sample = |sent: u64| {
        if memory.len() < 5 && sent * 5 >= events * (memory.len() as u64 + 1) {
            memory.push(running.memory() >> 20);
        }
    };
    let again = match transport {
        "TCP" => tcp(address, id, carries, events, sample).map(|()| 0),
        _ => udp(address, id, carries, events, sample),
    };
    let again = again.expect("everything is sent");
    // Whole loads are sent, so there may be a few more events than asked for; all of them have to be in the files.
    let mut written = 0;
    while written < events || events_on_disk(folder) > written {
        written = events_on_disk(folder);
        thread::sleep(Duration::from_micros(500));
    }
    let seconds = started.elapsed().as_secs_f64();
    let written = Account::parse(&running.wait()).expect("the collector says what came of it").written;
    verify(folder, written);
    let load = Load::new(carries, 256);
    let bytes = written as f64 * load.pair_bytes() as f64 / 2.0;
    fresh(folder);
    let baseline = baseline(folder, bytes as u64);
    println!(
        "| {name} | {:.1} | {seconds:.2} | {:.2} | {:.0} | {:.0} | {:.2} | {again} | {} |",
        written as f64 / 1e6,
        written as f64 / seconds / 1e6,
        bytes / seconds / 1e6,
        baseline / 1e6,
        bytes / seconds / baseline,
        memory.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    );
}

/// Events per second of so many sessions of so many events, from the first byte sent until the last event is in the files; and the
/// memory, also when the tables of spans are made.
fn at_once(folder: &Path, name: &str, sessions: u64, events: u64) {
    fresh(folder);
    let running = Running::start_with(&["--sink", &format!("disk:{}", folder.display())]);
    let (address, all) = (running.address, events * sessions);
    let started = Instant::now();
    let senders: Vec<_> = (0..sessions)
        .map(|number| thread::spawn(move || runs(address, number, Carries::Index, events, |_| {})))
        .collect();
    let (mut memory, mut written) = (Vec::new(), 0);
    while written < all || events_on_disk(folder) > written {
        written = events_on_disk(folder);
        if written * 5 >= all * (memory.len() as u64 + 1) {
            memory.push(running.memory() >> 20);
        }
        thread::sleep(Duration::from_millis(1));
    }
    let (seconds, collected) = (started.elapsed().as_secs_f64(), running.cpu_ns());
    let sent = senders.into_iter().map(|sender| sender.join().expect("no panic").expect("everything is sent"));
    let (sent, bytes) = sent.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    while !has_tables(folder, sessions) {
        thread::sleep(Duration::from_millis(10));
    }
    let peak = running.peak_memory() >> 20;
    running.stop();
    verify_all(folder, sent);
    println!(
        "| {name} | {:.1} | {seconds:.2} | {:.2} | {:.0} | {:.0} | {} | {peak} |",
        sent as f64 / 1e6,
        sent as f64 / seconds / 1e6,
        bytes as f64 / seconds / 1e6,
        collected / sent as f64,
        memory.iter().map(u64::to_string).collect::<Vec<_>>().join(", "),
    );
}

/// Whether so many sessions have their tables of spans.
fn has_tables(folder: &Path, sessions: u64) -> bool {
    let sessions_there = fs::read_dir(folder).expect("a folder").flatten();
    sessions_there.filter(|session| session.path().join("spans.parquet").exists()).count() as u64 == sessions
}

/// Events per second and the processor time of both sides, by transport and by how often files are synchronised.
fn guarded(folder: &Path, name: &str, transport: &str, sync: &str, events: u64) {
    fresh(folder);
    let sink = format!("disk:{},spans=no", folder.display());
    let tls: &[&str] = if matches!(transport, "TLS" | "QUIC") { &["--tls", "self"] } else { &[] };
    let running = Running::start_with(&[&["--once", "--sink", &sink, "--sync", sync], tls].concat());
    let (address, id, carries) = (running.address, SessionId([9; 16]), Carries::Index);
    let own = || cpu_time_ns(getpid()).unwrap_or(f64::NAN);
    let (started, before) = (Instant::now(), own());
    match (transport, running.pin) {
        ("TLS", Some(pin)) => encrypted(address, Transport::Tls, pin, id, carries, events, |_| {}),
        ("QUIC", Some(pin)) => encrypted(address, Transport::Quic, pin, id, carries, events, |_| {}),
        ("UDP", _) => udp(address, id, carries, events, |_| {}).map(|_| ()),
        _ => tcp(address, id, carries, events, |_| {}),
    }
    .expect("everything is sent");
    let sent = own() - before;
    let mut collected = running.cpu_ns();
    let mut written = 0;
    while written < events || events_on_disk(folder) > written {
        (written, collected) = (events_on_disk(folder), collected.max(running.cpu_ns()));
        thread::sleep(Duration::from_micros(500));
    }
    let seconds = started.elapsed().as_secs_f64();
    let said = running.wait();
    let in_all = started.elapsed().as_secs_f64();
    let written = Account::parse(&said).expect("the collector says what came of it").written;
    verify(folder, written);
    let count = written as f64;
    println!(
        "| {name} | {:.1} | {:.2} | {in_all:.2} | {:.0} | {:.0} |",
        count / 1e6,
        count / seconds / 1e6,
        collected / count,
        sent / count
    );
}

/// The same bytes over TCP into a file as they are, by the simplest program there is: read, write. Bytes per second.
fn baseline(folder: &Path, bytes: u64) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let file = folder.join("copy");
    let started = Instant::now();
    let receiver = thread::spawn(move || {
        let (mut from, _) = listener.accept().expect("a connection");
        let mut to = File::create(file).expect("a file");
        let mut buffer = vec![0; 256 << 10];
        loop {
            match from.read(&mut buffer).expect("readable") {
                0 => return,
                read => to.write_all(&buffer[..read]).expect("room"),
            }
        }
    });
    let mut connection = TcpStream::connect(address).expect("a listener");
    let mut load = Load::new(Carries::Index, 256);
    let mut sent = 0;
    while sent < bytes {
        let block = load.at(0, 0);
        connection.write_all(block).expect("a reader");
        sent += block.len() as u64;
    }
    drop(connection);
    receiver.join().expect("a receiver");
    sent as f64 / started.elapsed().as_secs_f64()
}

/// Sends at a steady pace and looks how long it takes until the bytes are in the files.
fn latency(folder: &Path, name: &str, transport: &str) {
    const EVENTS: u64 = 5_000_000;
    const PER_SECOND: f64 = 1e6;
    fresh(folder);
    let running = Running::start(folder);
    let (address, id) = (running.address, SessionId([8; 16]));
    let (times, sent_times) = std::sync::mpsc::channel::<(Instant, u64)>();
    let watched = folder.to_path_buf();
    let watcher = thread::spawn(move || {
        let mut delays = Vec::new();
        while let Ok((at, sent)) = sent_times.recv() {
            while events_on_disk(&watched) < sent {
                thread::sleep(Duration::from_micros(200));
            }
            delays.push(at.elapsed().as_secs_f64() * 1e3);
        }
        delays
    });
    let started = Instant::now();
    let mut told = 0;
    // It owns the sending end: when the last event is sent, the watcher learns that there are no more.
    let pace = move |sent: u64| {
        let due = started + Duration::from_secs_f64(sent as f64 / PER_SECOND);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // The time of the block that was just sent, every few milliseconds.
        if sent >= told + 5000 {
            told = sent;
            _ = times.send((Instant::now(), sent));
        }
    };
    match transport {
        "TCP" => tcp(address, id, Carries::Index, EVENTS, pace).expect("sent"),
        _ => _ = udp(address, id, Carries::Index, EVENTS, pace).expect("sent"),
    }
    running.wait();
    let mut delays = watcher.join().expect("a watcher");
    delays.sort_by(f64::total_cmp);
    let at = |share: f64| delays[((delays.len() - 1) as f64 * share) as usize];
    println!("| {name} | {:.1} | {:.1} | {:.1} | {:.1} |", at(0.5), at(0.9), at(0.99), at(1.0));
}
