//! SQL over many sessions, beside DuckDB on the same files:
//! `cargo bench -p benches --bench sql -- [WORDS] [rounds=N] [sessions=N] [spans=MILLIONS]`. With the commands of a release
//! build, which is there in a fraction of the time: `cargo build --release --features collector/sql`, and then
//! `SPOOR_BENCH_COMMANDS=target/release cargo bench --workspace --profile release --bench sql`.
//!
//! Each query is a process of its own, from its start to the last byte of its answer as a CSV file, with as many threads as there are
//! processors. DuckDB comes from PyPI, into an environment of its own. Both must give the same answer.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use benches::{
    Arguments, built, fresh,
    load::Carries,
    ran::Ran,
    recorded::record,
    samples::{Samples, figure},
    walk::Walk,
};
use codec::SessionId;

/// How many threads each program has.
const THREADS: u32 = 4;

struct Query {
    name: &'static str,
    text: &'static str,
    /// Whether there is one right answer.
    is_exact: bool,
}

const fn exact(name: &'static str, text: &'static str) -> Query {
    Query { name, text, is_exact: true }
}

const QUERIES: [Query; 8] = [
    exact("count", "select count(*) as n from spans"),
    exact(
        "functions by total time",
        "select function, count(*) as calls, sum(duration_ns) as total_ns, max(duration_ns) as longest_ns
         from spans where kind = 'frame' group by function order by total_ns desc, function limit 20",
    ),
    exact(
        "slowest calls of one function",
        "select session, thread, start_ns, duration_ns from spans
         where kind = 'frame' and function = 'function_number_7'
         order by duration_ns desc, session, thread, start_ns limit 10",
    ),
    Query {
        name: "percentiles of one function, by session",
        text: "select session, count(*) as calls, approx_percentile_cont(duration_ns, 0.99) as p99_ns from spans
               where kind = 'frame' and function = 'function_number_7' and duration_ns is not null
               group by session order by session",
        is_exact: false,
    },
    exact(
        "a millisecond of all sessions",
        "select function, count(*) as calls from spans where start_ns >= 1000000 and start_ns < 2000000
         group by function order by calls desc, function limit 20",
    ),
    exact(
        "one session",
        "select function, count(*) as calls from spans where session = (select max(session) from spans)
         group by function order by calls desc, function limit 20",
    ),
    exact("by depth", "select depth, count(*) as calls from spans where kind = 'frame' group by depth order by depth"),
    exact(
        "callers",
        "select caller.function as caller, called.function as called, count(*) as calls
         from spans called join spans caller on caller.session = called.session and caller.id = called.parent
         where called.kind = 'frame' and caller.kind = 'frame' and called.function = 'function_number_7'
         group by caller.function, called.function order by calls desc, caller limit 20",
    ),
];

fn main() {
    let arguments = Arguments::read();
    let rounds = arguments.value("rounds=").unwrap_or(3_u32);
    let (sessions, millions) =
        (arguments.value("sessions=").unwrap_or(100_u8), arguments.value("spans=").unwrap_or(1_u64));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sql-bench");
    let traces = fresh(&folder).join("traces");
    for session in 0..sessions {
        let walks = (0..THREADS).map(|stream| Walk::new(stream, Carries::Index)).collect();
        record(&traces, SessionId([session; 16]), walks, 2_000_000 * millions);
    }
    let duck = duck();
    println!("\n### SQL, beside DuckDB\n");
    println!("{sessions} sessions of {millions} M spans; medians of {rounds} rounds in turn.\n");
    println!("| query | `collector sql`, s | MiB | DuckDB, s | MiB | time / DuckDB |");
    println!("|---|---:|---:|---:|---:|---:|");
    for query in QUERIES.iter().filter(|query| arguments.wants(query.name)) {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push(Ran::well(&mut ask(&traces, query, &folder.join("ours.csv"))));
            let Some(python) = &duck else { continue };
            theirs.push(Ran::well(&mut ask_duck(python, &traces, query, &folder.join("theirs.csv"))));
            compare(query, &folder);
        }
        print(query.name, &ours, &theirs);
    }
    _ = fs::remove_dir_all(&folder);
}

fn print(name: &str, ours: &[Ran], theirs: &[Ran]) {
    let seconds = |all: &[Ran]| all.iter().map(|ran| ran.seconds).collect::<Samples>();
    let mib =
        |all: &[Ran]| all.iter().map(|ran| ran.peak_bytes as f64 / f64::from(1 << 20)).collect::<Samples>().median();
    println!(
        "| {name} | {} | {} | {} | {} | {} |",
        figure(seconds(ours).median(), 2),
        figure(mib(ours), 0),
        figure(seconds(theirs).median(), 2),
        figure(mib(theirs), 0),
        figure(seconds(ours).by(&seconds(theirs)).median(), 2),
    );
}

fn ask(traces: &Path, query: &Query, output: &Path) -> Command {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    let mut command = Command::new(BINARY.get_or_init(|| built::command_with("collector", "collector", &["sql"])));
    command.args(["sql", query.text]).arg(traces).args(["--format", "csv", "--output"]).arg(output);
    command
}

fn ask_duck(python: &Path, traces: &Path, query: &Query, output: &Path) -> Command {
    let mut command = Command::new(python);
    command.arg(built::own_file("programs/duck.py")).arg(traces).arg(query.text).arg(output);
    command
}

/// Whether both have the same answer, or as many rows where it is not exact.
fn compare(query: &Query, folder: &Path) {
    let [ours, theirs] =
        ["ours.csv", "theirs.csv"].map(|file| fs::read_to_string(folder.join(file)).expect("an answer"));
    // Lines end in different ways.
    let [ours, theirs] = [&ours, &theirs].map(|csv| csv.lines().collect::<Vec<_>>());
    if query.is_exact {
        assert_eq!(ours, theirs, "{}", query.name);
    } else {
        assert_eq!(ours.len(), theirs.len(), "{}", query.name);
    }
}

/// Python with DuckDB, if it can be had.
fn duck() -> Option<PathBuf> {
    let folder = built::target_folder().join("duckdb");
    let python = folder.join("bin/python");
    let is_there = |python: &Path| {
        Command::new(python).args(["-c", "import duckdb"]).status().is_ok_and(|status| status.success())
    };
    if !is_there(&python) {
        _ = Command::new("python3").args(["-m", "venv"]).arg(&folder).status();
        _ = Command::new(&python).args(["-m", "pip", "install", "--quiet", "duckdb"]).status();
    }
    is_there(&python).then_some(python)
}
