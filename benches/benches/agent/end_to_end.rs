//! From the call to the file, through the network and with nothing lost: the whole pipeline beside the peer's.
//!
//! The time is from the start of the agent until all events that it sent are in the collector's files; for `uftrace`, from
//! the start of `uftrace record --host` until the files of `uftrace recv` no longer grow.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use benches::{
    agent,
    built::compiled,
    load::Carries,
    ran::Ran,
    running::{Account, Running, verify},
    samples::{Samples, at_most, figure},
    uftrace::{self, Receiver},
};

use super::Settings;

/// How long the files of `uftrace recv` must stay as they are to be complete.
const QUIET: Duration = Duration::from_millis(300);

/// How long the collector may take to put away what it has when the agent has ended.
const PATIENCE: Duration = Duration::from_secs(180);

const CASES: [(&str, Carries); 4] =
    [("udp", Carries::Index), ("tcp", Carries::Index), ("udp", Carries::Detail), ("tcp", Carries::Detail)];

pub(super) fn measure(settings: &Settings) {
    let rounds = settings.rounds.unwrap_or(3);
    let program = compiled("fixtures/targets/hot_loop.c", &["-O1"]);
    println!("\n### From the call to the file, nothing lost\n");
    println!("Medians of {rounds} rounds. One thread, which waits while its ring is full. Beside full detail, uftrace");
    println!("records six arguments and the result.\n");
    println!(
        "| case | M calls | untraced s | program traced s | in all s | of that start s | M events/s | uftrace: program s | in all s | of that start s | M events/s | in all / uftrace |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (transport, carries) in CASES {
        // Beside the collector's, a quarter of the events, which are four times as large.
        let share = if carries == Carries::Index { 1.0 } else { 0.25 };
        let case = Case { program: &program, transport, carries, calls: (settings.millions * share * 1e6) as u64 };
        case.measure(settings, rounds);
    }
}

#[derive(Debug)]
struct Case<'a> {
    program: &'a Path,
    transport: &'a str,
    carries: Carries,
    calls: u64,
}

/// How long it took, in seconds.
#[derive(Debug, Default)]
struct Times {
    /// What the program says of its calls.
    program: Samples,
    in_all: Samples,
    /// The same with hardly a call.
    start: Samples,
}

impl Times {
    fn events_per_second(&self, calls: u64) -> f64 {
        2.0 * calls as f64 / self.in_all.less(&self.start).median()
    }
}

impl Case<'_> {
    fn measure(&self, settings: &Settings, rounds: usize) {
        let (mut untraced, mut ours, mut peer) = (Samples::default(), Times::default(), Times::default());
        for _ in 0..rounds {
            let mut command = Command::new(self.program);
            untraced.push(seconds(&Ran::well(command.args(arguments(self.calls).iter())), self.calls));
            ours.start.push(self.ours(settings, 1).2);
            let (ran, account, in_all) = self.ours(settings, self.calls);
            ours.program.push(seconds(&ran, self.calls));
            ours.in_all.push(in_all);
            // Panics where anything is missing.
            verify(&settings.folder.join("traces"), account.written);
            assert!(account.written >= 2 * self.calls, "{} calls, but {account:?}", self.calls);
            if uftrace::available().is_ok() {
                peer.start.push(self.peer(settings, 1).1);
                let (program, in_all) = self.peer(settings, self.calls);
                peer.program.push(program);
                peer.in_all.push(in_all);
            }
        }
        println!(
            "| {}, {} | {:.2} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            self.transport.to_uppercase(),
            self.carries.name(),
            self.calls as f64 / 1e6,
            figure(untraced.median(), 3),
            figure(ours.program.median(), 2),
            figure(ours.in_all.median(), 2),
            figure(ours.start.median(), 2),
            figure(ours.events_per_second(self.calls) / 1e6, 2),
            figure(peer.program.median(), 2),
            figure(peer.in_all.median(), 2),
            figure(peer.start.median(), 2),
            figure(peer.events_per_second(self.calls) / 1e6, 2),
            at_most(ours.in_all.by(&peer.in_all).median(), 1.0),
        );
    }

    /// The agent and a collector that writes files. Returns how the agent ran, what came of it, and how long it took.
    fn ours(&self, settings: &Settings, calls: u64) -> (Ran, Account, f64) {
        let traces = settings.fresh().join("traces");
        let collector = Running::start_with(&["--sink", &format!("disk:{}", traces.display())]);
        let options = [&["--on-full", "block", "--transport", self.transport], agent::options(self.carries)].concat();
        let mut command = agent::run(collector.address, &options);
        let started = Instant::now();
        let ran = Ran::well(command.arg(self.program).args(arguments(calls)));
        let sent =
            ran.number("agent: ").unwrap_or_else(|| panic!("the agent did not say what it sent: {}", ran.stderr));
        while events_on_disk(&traces) < sent as u64 {
            assert!(started.elapsed() < PATIENCE, "{sent} events were sent, but are not on disk");
            thread::sleep(Duration::from_millis(1));
        }
        let in_all = started.elapsed().as_secs_f64();
        (ran, Account::parse(&collector.stop()).expect("the collector says what came of it"), in_all)
    }

    /// `uftrace record --host` and `uftrace recv`. Returns how long the program took, and all.
    fn peer(&self, settings: &Settings, calls: u64) -> (f64, f64) {
        let folder = settings.fresh();
        let received = folder.join("received");
        fs::create_dir(&received).expect("a folder");
        let receiver = Receiver::start(&received);
        let mut options = vec!["--host".into(), "127.0.0.1".into(), "--port".into(), receiver.port.to_string()];
        if self.carries == Carries::Detail {
            options.extend(uftrace::with_values("tiny"));
        }
        let started = Instant::now();
        let mut record = uftrace::record(Path::new("sent"), "tiny", &options);
        let ran = Ran::well(record.arg(self.program).args(arguments(calls)).current_dir(folder));
        let in_all = grown(&received, started);
        drop(receiver);
        assert_eq!(uftrace::calls(&received.join("sent"), "tiny"), calls, "uftrace lost calls");
        (seconds(&ran, calls), in_all)
    }
}

/// What the program says that all its calls took.
fn seconds(ran: &Ran, calls: u64) -> f64 {
    ran.number("ns-per-call ").unwrap_or(f64::NAN) * calls as f64 / 1e9
}

/// One thread, and it is to say how long its calls took.
fn arguments(calls: u64) -> [String; 3] {
    [calls.to_string(), "1".into(), "time".into()]
}

/// The events in the index files of the only session.
fn events_on_disk(traces: &Path) -> u64 {
    let below = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let threads = below(traces.into()).flat_map(below).map(|thread| thread.join("index.atf"));
    threads.map(|index| index.metadata().map_or(0, |data| data.len().saturating_sub(64) / 32)).sum()
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
