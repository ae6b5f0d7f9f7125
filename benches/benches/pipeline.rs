//! The whole pipeline, from the call to the file, over the network and with nothing lost, beside the peer's:
//! `cargo bench -p benches --bench pipeline -- [rounds=N] [fib=N]`.
//!
//! The program computes Fibonacci numbers by recursion on two threads, and waits while its rings are full. The time is
//! from the start of the agent until all events that it sent are in the collector's files; for `uftrace`, from the start of
//! `uftrace record --host` until the files of `uftrace recv` no longer grow. Both include starting up. `collector verify`
//! and `uftrace report` count what is there: nothing may be missing.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use benches::{
    Arguments, agent,
    built::compiled,
    fresh,
    load::Carries,
    ran::Ran,
    running::{Account, Running, events_on_disk, verify},
    samples::{Samples, at_most, figure},
    uftrace::{self, Receiver},
};

const THREADS: u64 = 2;

/// How long the files of `uftrace recv` must stay as they are to be complete.
const QUIET: Duration = Duration::from_millis(300);

/// How long the collector may take to write what it has when the agent has ended.
const PATIENCE: Duration = Duration::from_secs(180);

/// A case: transport, what events carry, how much smaller the number is, the most that it may take of uftrace's time.
const CASES: [(&str, Carries, u32, f64); 6] = [
    ("tcp", Carries::Index, 0, 1.2),
    ("udp", Carries::Index, 0, 1.5),
    ("tcp", Carries::Index, 3, 2.0),
    ("udp", Carries::Index, 3, 2.0),
    ("tcp", Carries::Detail, 6, f64::NAN),
    ("udp", Carries::Detail, 6, f64::NAN),
];

fn main() {
    let arguments = Arguments::read();
    let (rounds, number) = (arguments.value("rounds=").unwrap_or(5), arguments.value("fib=").unwrap_or(33_u32));
    let bench = Bench {
        program: compiled("benches/programs/fib.c", &["-O1"]),
        folder: PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pipeline-bench"),
    };
    agent::prepare(Running::start_with(&["--sink", "heph:/dev/null"]).address);
    println!("\n### From the call to the file, nothing lost\n");
    println!("Medians of {rounds} rounds in turn, two threads, start-up included.\n");
    println!(
        "| case | M events | s | of that start s | M events/s | agent ns/event | collector ns/event | wire bytes/event | disk bytes/event | uftrace s | s / uftrace s |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (transport, carries, smaller, most) in CASES {
        bench.measure(&Case { transport, carries, number: number.saturating_sub(smaller), most }, rounds);
    }
    _ = fs::remove_dir_all(&bench.folder);
}

struct Bench {
    program: PathBuf,
    folder: PathBuf,
}

struct Case {
    transport: &'static str,
    carries: Carries,
    number: u32,
    most: f64,
}

/// What came of one capture.
struct Captured {
    seconds: f64,
    events: u64,
    agent_ns: f64,
    collector_ns: f64,
    wire_bytes: f64,
    disk_bytes: f64,
}

impl Bench {
    fn measure(&self, case: &Case, rounds: u32) {
        let mut captures = Vec::new();
        let (mut start, mut peer) = (Samples::default(), Samples::default());
        for _ in 0..rounds {
            start.push(self.ours(&Case { number: 1, ..*case }).seconds);
            captures.push(self.ours(case));
            if uftrace::available().is_ok() {
                peer.push(self.peer(case));
            }
        }
        let samples = |of: fn(&Captured) -> f64| captures.iter().map(of).collect::<Samples>();
        let per_event = |of: fn(&Captured) -> f64| {
            captures.iter().map(|captured| of(captured) / captured.events as f64).collect::<Samples>().median()
        };
        let seconds = samples(|captured| captured.seconds);
        let events = samples(|captured| captured.events as f64).median();
        let ratio = seconds.by(&peer).median();
        println!(
            "| fib({}), {}, {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            case.number,
            case.transport.to_uppercase(),
            case.carries.name(),
            figure(events / 1e6, 1),
            figure(seconds.median(), 2),
            figure(start.median(), 2),
            figure(events / seconds.less(&start).median() / 1e6, 1),
            figure(per_event(|captured| captured.agent_ns), 1),
            figure(per_event(|captured| captured.collector_ns), 1),
            figure(per_event(|captured| captured.wire_bytes), 1),
            figure(per_event(|captured| captured.disk_bytes), 1),
            figure(peer.median(), 2),
            if case.most.is_nan() { figure(ratio, 2) } else { at_most(ratio, case.most) },
        );
    }

    /// The agent, and a collector with its default sinks.
    fn ours(&self, case: &Case) -> Captured {
        let traces = fresh(&self.folder).join("traces");
        let collector = Running::start_with(&["--sink", &format!("disk:{}", traces.display())]);
        let options = [&["--complete", "--transport", case.transport], agent::options(case.carries)].concat();
        let mut command = agent::run(collector.address, &options);
        let started = Instant::now();
        let ran = Ran::well(command.arg(&self.program).args([case.number.to_string(), THREADS.to_string()]));
        let sent =
            ran.number("agent: ").unwrap_or_else(|| panic!("the agent did not say what it sent: {}", ran.stderr));
        while events_on_disk(&traces) < sent as u64 {
            assert!(started.elapsed() < PATIENCE, "{sent} events were sent, but are not on disk");
            thread::sleep(Duration::from_millis(1));
        }
        let seconds = started.elapsed().as_secs_f64();
        let collector_ns = collector.cpu_ns();
        let said = collector.stop();
        let account = Account::parse(&said).expect("the collector says what came of it");
        // Panics where anything is missing.
        verify(&traces, account.written);
        assert!(account.written >= 2 * THREADS * calls(case.number), "{account:?}");
        Captured {
            seconds,
            events: account.written,
            agent_ns: ran.cpu_ns,
            collector_ns,
            wire_bytes: received_bytes(&said).expect("the collector says what it received"),
            disk_bytes: size(&traces) as f64,
        }
    }

    /// `uftrace record --host` and `uftrace recv`. Returns how long it took.
    fn peer(&self, case: &Case) -> f64 {
        let folder = fresh(&self.folder);
        let received = folder.join("received");
        fs::create_dir(&received).expect("a folder");
        let receiver = Receiver::start(&received);
        let mut options = vec!["--host".into(), "127.0.0.1".into(), "--port".into(), receiver.port.to_string()];
        if case.carries == Carries::Detail {
            options.extend(uftrace::with_values("fib"));
        }
        let started = Instant::now();
        let mut record = uftrace::record(Path::new("sent"), "fib", &options);
        Ran::well(record.arg(&self.program).args([case.number.to_string(), THREADS.to_string()]).current_dir(folder));
        let seconds = grown(&received, started);
        drop(receiver);
        let expected = THREADS * calls(case.number);
        assert_eq!(uftrace::calls(&received.join("sent"), "fib"), expected, "uftrace lost calls");
        seconds
    }
}

/// How many calls one thread makes.
fn calls(number: u32) -> u64 {
    let (mut before, mut this) = (1_u64, 1_u64);
    for _ in 1..number {
        (before, this) = (this, before + this + 1);
    }
    this
}

/// Reads `1 session, 280.2 MiB received: …`.
fn received_bytes(said: &str) -> Option<f64> {
    let line = said.lines().find_map(|line| line.split_once(" received: "))?.0;
    let mut words = line.rsplit(' ');
    let unit = words.next()?;
    let number: f64 = words.next()?.parse().ok()?;
    let power = ["B", "KiB", "MiB", "GiB"].iter().position(|name| *name == unit)?;
    Some(number * 1024_f64.powi(power as i32))
}

/// How many seconds after `started` the files below a folder stopped to grow; at least until now.
fn grown(folder: &Path, started: Instant) -> f64 {
    let (mut bytes, mut at) = (size(folder), Instant::now());
    while at.elapsed() < QUIET {
        thread::sleep(Duration::from_millis(1));
        let now = size(folder);
        if now != bytes {
            (bytes, at) = (now, Instant::now());
        }
    }
    at.duration_since(started).as_secs_f64()
}

fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let bytes = |path: PathBuf| if path.is_dir() { size(&path) } else { path.metadata().map_or(0, |data| data.len()) };
    entries.map(bytes).sum()
}
