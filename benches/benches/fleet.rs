//! Through JetStream, beside the same sessions straight to disk:
//! `cargo bench -p benches --bench fleet -- [WORDS] [rounds=N] [events=MILLIONS] [sessions=N]`. With the commands of a release
//! build, which is there in a fraction of the time: `cargo build --release --workspace --bin collector`, and then
//! `SPOOR_BENCH_COMMANDS=target/release cargo bench --workspace --profile release --bench fleet`.
//!
//! Threads of this process send sessions over TCP, each as fast as it is taken: calls and returns by turns, in runs as agents
//! send them. The time is from the first byte until all events are in the files, on the same machine and the same disk.
//! `collector verify` counts what is there: nothing may be missing.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use benches::{
    Arguments, built, fresh,
    load::Carries,
    ran::cpu_time_ns,
    running::{Running, events_on_disk, verify_all},
    samples::{Samples, figure},
    sender::runs,
};
use rustix::process::{Pid, getpid};

/// How long the files may take to have everything.
const PATIENCE: Duration = Duration::from_secs(180);

/// How many nodes there are, each with a copy, and how many recorders. None is straight to disk.
const WAYS: [(usize, usize); 6] = [(0, 1), (1, 1), (1, 2), (1, 4), (3, 1), (3, 4)];

fn main() {
    let arguments = Arguments::read();
    let rounds = arguments.value("rounds=").unwrap_or(3_u32);
    let (millions, sessions) = (arguments.value("events=").unwrap_or(4_u64), arguments.value("sessions=").unwrap_or(8));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("fleet-bench");
    println!("\n### Through JetStream\n");
    println!("Medians of {rounds} rounds in turn, {sessions} sessions at once.\n");
    println!(
        "| case | M events | s | M events/s | of straight | MB/s in | sender | edge | servers | recorders | ns/event in all |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for carries in [Carries::Index, Carries::Detail] {
        // An event with detail is many times as large.
        let events = millions * 1_000_000 / if carries == Carries::Index { 1 } else { 8 } / sessions;
        let ways: Vec<_> = WAYS.iter().filter(|way| arguments.wants(&name(**way, carries))).collect();
        let mut measured = vec![Vec::new(); ways.len()];
        for _ in 0..rounds {
            for (way, measured) in ways.iter().zip(&mut measured) {
                measured.push(measure(&folder, **way, carries, sessions, events));
            }
        }
        let seconds = |measured: &[Measured]| measured.iter().map(|one| one.seconds).collect::<Samples>();
        let straight = ways.iter().zip(&measured).find(|(way, _)| way.0 == 0).map(|(_, measured)| seconds(measured));
        for (way, measured) in ways.iter().zip(&measured) {
            print(&name(**way, carries), measured, &straight.clone().unwrap_or_default());
        }
    }
    _ = fs::remove_dir_all(&folder);
}

fn name((nodes, recorders): (usize, usize), carries: Carries) -> String {
    let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    match nodes {
        0 => format!("{}, straight to disk", carries.name()),
        _ => format!("{}, {}, {}", carries.name(), counted(nodes, "node"), counted(recorders, "recorder")),
    }
}

/// What came of one round: how long it took, and the processor time of all who had a part in it, in nanoseconds.
#[derive(Clone, Copy)]
struct Measured {
    events: u64,
    bytes: u64,
    seconds: f64,
    sender: f64,
    edge: f64,
    servers: f64,
    recorders: f64,
}

fn print(name: &str, measured: &[Measured], straight: &Samples) {
    let median = |of: fn(&Measured) -> f64| measured.iter().map(of).collect::<Samples>().median();
    let seconds: Samples = measured.iter().map(|one| one.seconds).collect();
    println!(
        "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        figure(median(|one| one.events as f64) / 1e6, 1),
        figure(seconds.median(), 2),
        figure(median(|one| one.events as f64 / one.seconds) / 1e6, 2),
        figure(straight.by(&seconds).median(), 2),
        figure(median(|one| one.bytes as f64 / one.seconds) / 1e6, 0),
        figure(median(|one| one.sender / one.events as f64), 0),
        figure(median(|one| one.edge / one.events as f64), 0),
        figure(median(|one| one.servers / one.events as f64), 0),
        figure(median(|one| one.recorders / one.events as f64), 0),
        figure(median(|one| (one.sender + one.edge + one.servers + one.recorders) / one.events as f64), 0),
    );
}

fn measure(
    folder: &Path,
    (nodes, recorders): (usize, usize),
    carries: Carries,
    sessions: u64,
    events: u64,
) -> Measured {
    fresh(folder);
    let traces = folder.join("traces");
    let disk = format!("disk:{},spans=no", traces.display());
    let servers = Servers::start(folder, nodes);
    let (copies, stream) = (nodes.to_string(), servers.stream());
    let settings = ["--nats-replicas", &copies, "--nats-max-bytes", "2GiB"];
    let edge = match nodes {
        0 => Running::start_with(&["--sink", &disk]),
        _ => Running::start_with(&[&["--sink", &stream], &settings[..]].concat()),
    };
    let recorder = |_| Running::recorder(&[&["--source", &stream, "--sink", &disk], &settings[..]].concat());
    let recorders: Vec<_> = (0..if nodes == 0 { 0 } else { recorders }).map(recorder).collect();
    let own = || cpu_time_ns(getpid()).unwrap_or(f64::NAN);
    let before = (own(), edge.cpu_ns(), servers.cpu_ns(), recorders.iter().map(Running::cpu_ns).sum::<f64>());
    let started = Instant::now();
    let address = edge.address;
    let senders: Vec<_> = (0..sessions)
        .map(|number| {
            thread::spawn(move || runs(address, number, carries, events, |_| {}).expect("everything is sent"))
        })
        .collect();
    let sent: Vec<_> = senders.into_iter().map(|sender| sender.join().expect("it does not panic")).collect();
    let (events, bytes) = sent.iter().fold((0, 0), |(events, bytes), sent| (events + sent.0, bytes + sent.1));
    while events_on_disk(&traces) < events {
        assert!(started.elapsed() < PATIENCE, "{events} events were sent, but are not on disk");
        thread::sleep(Duration::from_millis(1));
    }
    let seconds = started.elapsed().as_secs_f64();
    let measured = Measured {
        events,
        bytes,
        seconds,
        sender: own() - before.0,
        edge: edge.cpu_ns() - before.1,
        servers: servers.cpu_ns() - before.2,
        recorders: recorders.iter().map(Running::cpu_ns).sum::<f64>() - before.3,
    };
    edge.stop();
    recorders.into_iter().for_each(|recorder| drop(recorder.stop()));
    verify_all(&traces, events);
    measured
}

/// The nodes of a cluster, or one alone, with storage in files.
struct Servers {
    servers: Vec<Child>,
    addresses: Vec<SocketAddr>,
}

impl Servers {
    fn start(folder: &Path, count: usize) -> Self {
        let free: Vec<_> = (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
        let addresses: Vec<_> = free.iter().map(|free| free.local_addr().expect("bound")).collect();
        drop(free);
        let (clients, routes) = addresses.split_at(count);
        let all = routes.iter().map(|route| format!("nats://{route}")).collect::<Vec<_>>().join(",");
        let server = |(number, address): (usize, &SocketAddr)| {
            let program = built::installed("nats-server").expect("nats-server is installed");
            let mut command = Command::new(program);
            command.args(["-js", "-a", "127.0.0.1", "-p", &address.port().to_string(), "-sd"]);
            command.arg(folder.join(format!("node-{number}")));
            if count > 1 {
                let (name, route) = (format!("n{number}"), format!("nats://{}", routes[number]));
                command.args(["-n", &name, "--cluster_name", "bench", "--cluster", &route, "--routes", &all]);
            }
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
        };
        let servers = clients.iter().enumerate().map(server).collect();
        for address in clients {
            while TcpStream::connect(address).is_err() {
                thread::sleep(Duration::from_millis(10));
            }
        }
        Self { servers, addresses: clients.to_vec() }
    }

    fn stream(&self) -> String {
        let addresses: Vec<_> = self.addresses.iter().map(SocketAddr::to_string).collect();
        format!("nats://{}/BENCH", addresses.join(","))
    }

    fn cpu_ns(&self) -> f64 {
        self.servers.iter().map(|server| cpu_time_ns(Pid::from_child(server)).unwrap_or(f64::NAN)).sum()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.servers {
            _ = server.kill();
            _ = server.wait();
        }
    }
}
