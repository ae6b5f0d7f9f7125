//! What tracing everything does to programs that nobody wrote for it. There is no aim here.

use std::{fmt::Write, fs, path::Path, process::Command};

use benches::{
    built::installed,
    ran::Ran,
    running::{Account, only_session},
    samples::{Samples, figure},
};

use super::{Settings, traced};

/// A program, and what it is given: `@` in an argument stands for the file with many lines.
const CASES: [(&str, &[&str]); 4] = [
    ("sort", &["@"]),
    ("gzip", &["-c", "@"]),
    ("python3", &["-c", "print(sum(len(str(n)) for n in range(20000)))"]),
    (
        "sqlite3",
        &[
            ":memory:",
            "create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000) \
             insert into t select i, i * 7919 % 5000 from n; create index u on t(b); select sum(a) from t where b > 2500;",
        ],
    ),
];

const LINES: u64 = 20_000;

pub(super) fn measure(settings: &Settings) {
    let rounds = settings.rounds.unwrap_or(3);
    println!("\n### Programs as they are, every function hooked, full detail, over UDP to disk\n");
    println!("Medians of {rounds} rounds. The program itself took from the first event to the last.\n");
    println!(
        "| program | untraced s | traced: itself s | times untraced | with start and sending s | events | dropped | waiting instead: itself s | times untraced | with start and sending s | events | dropped |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (name, arguments) in CASES {
        match installed(name) {
            Some(program) => case(settings, rounds, name, &program, arguments),
            None => println!("| {name}: skipped, not installed | | | | | | | | | | | |"),
        }
    }
}

fn case(settings: &Settings, rounds: usize, name: &str, program: &Path, arguments: &[&str]) {
    let lines = settings.fresh().with_extension("lines");
    fs::write(&lines, many_lines(LINES)).expect("room for a file");
    let path = lines.to_str().expect("UTF-8");
    let arguments: Vec<_> = arguments.iter().map(|argument| if *argument == "@" { path } else { argument }).collect();
    let mut untraced = Samples::default();
    let mut ways = [(&[] as &[&str], Way::default()), (&["--complete"], Way::default())];
    for _ in 0..rounds {
        untraced.push(Ran::well(Command::new(program).args(&arguments)).seconds);
        for (options, way) in &mut ways {
            way.round(settings, options, program, &arguments);
        }
    }
    let [(_, dropping), (_, waiting)] = &ways;
    let alone = figure(untraced.median(), 3);
    println!("| {name} | {alone} | {} | {} |", dropping.cells(&untraced), waiting.cells(&untraced));
    _ = fs::remove_file(lines);
}

/// What to do when a ring is full, and what came of it.
#[derive(Debug, Default)]
struct Way {
    itself: Samples,
    in_all: Samples,
    account: Option<Account>,
}

impl Way {
    fn round(&mut self, settings: &Settings, options: &[&str], program: &Path, arguments: &[&str]) {
        let traces = settings.fresh().join("traces");
        let (ran, account) = traced(&format!("disk:{}", traces.display()), options, program, arguments);
        self.in_all.push(ran.seconds);
        self.itself.push(lasted(&only_session(&traces)));
        self.account = account;
    }

    fn cells(&self, untraced: &Samples) -> String {
        let Account { written, missing } = self.account.unwrap_or_default();
        format!(
            "{} | {} | {} | {} | {missing}",
            figure(self.itself.median(), 2),
            figure(self.itself.by(untraced).median(), 1),
            figure(self.in_all.median(), 2),
            written + missing,
        )
    }
}

/// From a session's first event to its last, in seconds.
pub(super) fn lasted(session: &Path) -> f64 {
    let manifest = fs::read(session.join("manifest.json")).expect("a manifest");
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).expect("JSON");
    let time = |name: &str| manifest[name].as_f64().unwrap_or(f64::NAN);
    (time("time_end_ns") - time("time_start_ns")) / 1e9
}

/// So many lines, in no order.
pub(super) fn many_lines(count: u64) -> String {
    let mut text = String::new();
    for number in 0..count {
        // Writing to a string cannot fail.
        _ = writeln!(text, "{:016x} {number}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    }
    text
}
