//! A session of many events, in a real browser. Without Chromium the test says so and is over; with
//! `SPOOR_REQUIRE_PROGRAMS=1` it fails. `cargo bench -p benches --bench view` does the same with 100 million events.

use std::{fs, path::Path, process::Command};

use codec::EventKind;
use serde_json::Value;
use tests::{Folder, collector};

use crate::spans::{view::described, viewer::has_browser};

/// How many events there are.
const EVENTS: u64 = 600_000;

/// What the page may take for that: it keeps no more of a longer one.
const MOST_HEAP_BYTES: u64 = 256 << 20;

/// Writes a session of two threads, each of which calls one in another down to some depth, and back.
fn write(file: &Path) {
    let mut packets = described("0123456789abcdef0123456789abcdef");
    let mut now = 1_000;
    for round in 0..EVENTS / 20 {
        let (stream, depths) = ((round % 2) as u32, 10);
        let mut starts = Vec::new();
        for depth in 0..depths {
            now += 10 + round % 7;
            starts.push(now);
            packets.event(stream, EventKind::Call, (round as u32 + depth) % 5, now, now, depth);
        }
        for depth in (0..depths).rev() {
            now += 20;
            let start = starts[depth as usize];
            packets.event(stream, EventKind::Return, (round as u32 + depth) % 5, start, now, depth);
        }
    }
    packets.end(now);
    fs::write(file, packets.bytes).expect("there is room");
}

#[test]
fn the_page_zooms_into_a_session_of_many_events() {
    if !has_browser() {
        return;
    }
    let folder = Folder::new("view-large");
    let (file, traces) = (folder.join("packets.heph"), folder.join("traces"));
    write(&file);
    collector::run_on("ingest", &file, &["--sink", &collector::disk(&traces)]).success();
    let session = tests::trace::folders(&traces).remove(0);
    let (viewer, address) = collector::view::<&str>(&traces, &[]);
    let mut script = Command::new("python3");
    script.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/zoom.py")).arg(address).arg(session.file_name().expect("a name"));
    let output = script.output().expect("Python starts");
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stderr), viewer.said());
    let told: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    assert!(told["steps_ms"].as_array().expect("steps").len() > 30, "{told}");
    assert!(told["heap_bytes"].as_u64().expect("bytes") < MOST_HEAP_BYTES, "{told}");
}
