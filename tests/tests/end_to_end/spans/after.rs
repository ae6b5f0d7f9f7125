//! `spans.parquet`, made of sessions that are finished.

use std::{
    fs,
    path::{Path, PathBuf},
};

use codec::atf::Manifest;
use sinks::disk::verify;
use tests::{
    Collector, Folder, Trace,
    collector::{disk, run_on, verified},
    trace::{folders, indexed},
    wait::eventually,
};

use crate::spans::offline::Packets;

const TABLE: &str = "spans.parquet";
const PARTIAL: &str = "spans.parquet.partial";

/// Takes packets in, and returns the parts in the folder then.
#[track_caller]
fn ingest(folder: &Folder, traces: &Path, choice: &str) -> Vec<PathBuf> {
    ingest_packets(folder, traces, choice, &Packets::program(20_000), &[])
}

#[track_caller]
pub(crate) fn ingest_packets(
    folder: &Folder,
    traces: &Path,
    choice: &str,
    packets: &[u8],
    arguments: &[&str],
) -> Vec<PathBuf> {
    let file = folder.join("in.heph");
    fs::write(&file, packets).expect("room on disk");
    let sink = disk(traces) + choice;
    run_on("ingest", &file, &[&["--sink", &sink], arguments].concat()).success();
    folders(traces)
}

fn choice(session: &Path) -> Option<String> {
    Manifest::parse(&fs::read(session.join("manifest.json")).expect("it is there")).expect("a manifest").spans
}

#[test]
fn a_session_has_its_table_when_the_command_ends_unless_nobody_wants_it() {
    for (name, expected) in [("", "after"), (",spans=after", "after"), (",spans=live", "live"), (",spans=no", "no")] {
        let folder = Folder::new("after-choice");
        let parts = ingest(&folder, &folder.join("traces"), name);
        assert_eq!(choice(&parts[0]).as_deref(), Some(expected));
        assert_eq!(parts[0].join(TABLE).exists(), expected != "no", "{name}");
        assert!(!parts[0].join(PARTIAL).exists());
        verified(&parts[0]);
    }
}

#[test]
fn a_collector_makes_what_an_earlier_one_did_not() {
    let folder = Folder::new("after-resumed");
    let traces = folder.join("traces");
    ingest(&folder, &traces, ",spans=no");
    let parts = ingest(&folder, &traces, "");
    let (unwanted, wanted) = (&parts[0], &parts[1]);
    let made = fs::read(wanted.join(TABLE)).expect("it was made");
    // A collector was killed while it made the table; of another session nobody knows whether it was to have one.
    fs::remove_file(wanted.join(TABLE)).expect("it was made");
    fs::write(wanted.join(PARTIAL), &made[..made.len() / 2]).expect("room on disk");
    let foreign = traces.join("20200101-000000-1");
    fs::create_dir(&foreign).expect("made");
    let manifest = r#"{"threads": [], "time_start_ns": 0, "time_end_ns": 0, "end": {"how": "exited"}}"#;
    fs::write(foreign.join("manifest.json"), manifest).expect("room on disk");

    let collector = Collector::to_disk(&traces, &[]);
    let exit = collector.stop();
    assert_eq!(exit.code, Some(0), "{}", exit.stderr);
    assert!(exit.stderr.contains("spans of 1 session are not made yet"), "{}", exit.stderr);
    assert_eq!(fs::read(wanted.join(TABLE)).expect("it was made"), made);
    assert!(!wanted.join(PARTIAL).exists() && !unwanted.join(TABLE).exists() && !foreign.join(TABLE).exists());
    let again = Collector::to_disk(&traces, &[]).stop();
    assert!(!again.stderr.contains("not made"), "{}", again.stderr);
}

#[test]
fn a_session_that_cannot_be_read_is_reported_and_the_next_one_is_made() {
    let folder = Folder::new("after-damaged");
    let traces = folder.join("traces");
    ingest(&folder, &traces, "");
    let parts = ingest(&folder, &traces, "");
    parts.iter().for_each(|part| fs::remove_file(part.join(TABLE)).expect("it was made"));
    let index = parts[0].join("thread_0/index.atf");
    let mut bytes = fs::read(&index).expect("it is there");
    // The kind of the first event: there is no such kind.
    bytes[64 + 20] = 0xff;
    fs::write(&index, &bytes).expect("room on disk");
    let exit = Collector::to_disk(&traces, &[]).stop();
    let name = parts[0].file_name().expect("a name").to_string_lossy();
    assert!(exit.stderr.contains(&format!("cannot make spans of {name}: ")), "{}", exit.stderr);
    assert!(!parts[0].join(TABLE).exists() && !parts[0].join(PARTIAL).exists());
    assert_eq!(fs::read(&index).expect("it is there"), bytes);
    assert!(parts[1].join(TABLE).exists());
}

#[test]
fn each_part_of_a_session_has_the_spans_that_are_made_of_it() {
    let folder = Folder::new("after-parts");
    let mut packets = Packets::default();
    packets.describe();
    (0..60_000).for_each(|call| packets.frame((0, 3, 0), call * 100, call * 100 + 50, |_| {}));
    let arguments = ["--rotate-bytes", "1MiB"];
    let parts = ingest_packets(&folder, &folder.join("traces"), "", &packets.bytes, &arguments);
    assert!(parts.len() > 2, "{parts:?}");
    let mut rows = 0;
    for part in &parts {
        let found = verify(part).expect("it is there");
        assert_eq!(found[0].problems, [""; 0]);
        let printed = run_on("spans", part, &["--json"]).success().text().lines().count();
        assert_eq!(found[0].spans, printed as u64);
        assert!(part.join(TABLE).exists());
        rows += found[0].spans;
    }
    assert!(rows >= 60_000, "{rows}");
}

#[test]
fn a_repaired_session_gets_its_table() {
    let folder = Folder::new("after-repaired");
    let traces = folder.join("traces");
    let collector = Collector::to_disk(&traces, &[]);
    let mut connection = std::net::TcpStream::connect(collector.tcp()).expect("it listens");
    let packets = Packets::program(20_000);
    // All but the end of the session.
    std::io::Write::write_all(&mut connection, &packets[..packets.len() - 100]).expect("it reads");
    collector.wait_for("session ");
    eventually("something is written", || folders(&traces).first().is_some_and(|session| indexed(session, 1) > 0));
    collector.kill();
    run_on("repair", &traces, &[]).success();
    let session = Trace::only(&traces).folder;
    assert!(!session.join(TABLE).exists());
    Collector::to_disk(&traces, &[]).stop();
    assert!(session.join(TABLE).exists());
    verified(&session);
}
