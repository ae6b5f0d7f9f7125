//! What tracing everything does to programs that nobody wrote for it. There is no aim here.

use std::{fmt::Write, fs, path::Path, process::Command};

use benches::{
    built::installed,
    ran::Ran,
    running::Account,
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
    println!("Medians of {rounds} rounds. The start is what the agent takes for `true`.\n");
    println!(
        "| program | untraced s | start s | traced s | times untraced, without start | events | dropped | waiting instead s | events | dropped |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (name, arguments) in CASES {
        match installed(name) {
            Some(program) => case(settings, rounds, name, &program, arguments),
            None => println!("| {name}: skipped, not installed | | | | | | | | | |"),
        }
    }
}

fn case(settings: &Settings, rounds: usize, name: &str, program: &Path, arguments: &[&str]) {
    let lines = settings.fresh().with_extension("lines");
    fs::write(&lines, many_lines()).expect("room for a file");
    let path = lines.to_str().expect("UTF-8");
    let arguments: Vec<_> = arguments.iter().map(|argument| if *argument == "@" { path } else { argument }).collect();
    let (mut untraced, mut start) = (Samples::default(), Samples::default());
    let mut ways = [(&[] as &[&str], Way::default()), (&["--on-full", "block"], Way::default())];
    for _ in 0..rounds {
        untraced.push(Ran::well(Command::new(program).args(&arguments)).seconds);
        start.push(run(settings, &[], Path::new("true"), &[]).0);
        for (options, way) in &mut ways {
            let (seconds, account) = run(settings, options, program, &arguments);
            way.seconds.push(seconds);
            way.account = account;
        }
    }
    let [(_, dropping), (_, waiting)] = &ways;
    println!(
        "| {name} | {} | {} | {} | {} | {} | {} | {} |",
        figure(untraced.median(), 3),
        figure(start.median(), 2),
        figure(dropping.seconds.median(), 2),
        figure(dropping.seconds.less(&start).by(&untraced).median(), 1),
        dropping.events(),
        figure(waiting.seconds.median(), 2),
        waiting.events(),
    );
    _ = fs::remove_file(lines);
}

/// What to do when a ring is full, and what came of it.
#[derive(Debug, Default)]
struct Way {
    seconds: Samples,
    account: Option<Account>,
}

impl Way {
    /// The cells for events and those that were dropped.
    fn events(&self) -> String {
        match self.account {
            Some(Account { written, missing }) => format!("{} | {missing}", written + missing),
            None => "– | –".into(),
        }
    }
}

fn run(settings: &Settings, options: &[&str], program: &Path, arguments: &[&str]) -> (f64, Option<Account>) {
    let sink = format!("disk:{}", settings.fresh().join("traces").display());
    let (ran, account) = traced(&sink, options, program, arguments);
    (ran.seconds, account)
}

/// Lines in no order.
fn many_lines() -> String {
    let mut text = String::new();
    for number in 0..LINES {
        // Writing to a string cannot fail.
        _ = writeln!(text, "{:016x} {number}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    }
    text
}
