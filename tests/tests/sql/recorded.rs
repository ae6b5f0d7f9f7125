//! Sessions to ask about.

use std::{env, fs, path::Path, path::PathBuf, sync::OnceLock};

use serde_json::Value;
use tests::{
    Exit, Folder, Process, Target, agent_command,
    agent_command::PATIENCE,
    collector::{binary, disk, run, run_on},
    process::Stdout,
};

/// Where sessions are that all tests share: of real programs, and one with gaps.
pub(crate) fn shared() -> &'static Path {
    static FOLDER: OnceLock<Folder> = OnceLock::new();
    FOLDER.get_or_init(|| folder("shared")).path()
}

/// A folder of sessions for one test.
pub(crate) fn folder(name: &str) -> Folder {
    let folder = Folder::new(name);
    for name in ["pthreads", "pthreads", "plain"] {
        record(folder.path(), &Target::named(name).program());
    }
    if let Some(runtimes) = env::var_os("SPOOR_RUNTIMES").map(PathBuf::from) {
        for name in ["dispatch-O0", "tasks-O"] {
            record(folder.path(), &runtimes.join(name));
        }
    }
    ingest(folder.path());
    folder
}

/// A session with gaps, of a few events.
pub(crate) fn ingest(folder: &Path) {
    ingest_to(&disk(folder));
}

/// The same, to this sink.
pub(crate) fn ingest_to(sink: &str) {
    let packets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/traces/session.heph");
    run(&["ingest", &packets.display().to_string(), "--sink", sink]).success();
}

fn record(folder: &Path, program: &Path) {
    // It is built, and so lies beside the agent.
    let _ = binary();
    let mut command = agent_command::command(&["record", "--engine", "native", "-o"]);
    command.arg(folder).arg("--").arg(program);
    let exit = Process::start(command, Stdout::Collect).exit(PATIENCE);
    assert!(exit.stderr.contains("events of"), "{}", exit.stderr);
}

/// The names of sessions, in order.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let sessions = json(&run_on("sessions", folder, &["--json"]).success());
    let mut names: Vec<_> =
        sessions.iter().map(|session| session["session"].as_str().expect("a name").into()).collect();
    names.sort_unstable();
    names
}

/// Asks, and returns how that ended.
#[track_caller]
pub(crate) fn ask(folder: &Path, query: &str, arguments: &[&str]) -> Exit {
    run(&[&["sql", query, &folder.display().to_string()], arguments].concat())
}

/// The rows of an answer.
#[track_caller]
pub(crate) fn rows(folder: &Path, query: &str) -> Vec<Value> {
    json(&ask(folder, query, &["--format", "json"]).success())
}

/// Lines of JSON.
#[track_caller]
pub(crate) fn json(exit: &Exit) -> Vec<Value> {
    exit.text().lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
}

/// Spoils the table of a session.
pub(crate) fn spoil(folder: &Path, session: &str) {
    let table = folder.join(session).join("spans.parquet");
    let size = fs::metadata(&table).expect("it is there").len();
    fs::write(&table, vec![0x55; usize::try_from(size).expect("it is small")]).expect("there is room");
}
