//! The Perfetto trace, held against Perfetto's own schema.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};
use sinks::PerfettoSink;
use tests::{Folder, python::python_with};

use crate::spans::picture::{self, ZERO_NS};

/// What a trace has by the schema, or nothing where there is no Python with it.
pub(crate) fn checked(file: &Path) -> Option<Value> {
    let python = python_with(&["perfetto", "protobuf"])?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/check_perfetto.py");
    let output = Command::new(python).arg(script).arg(file).output().expect("Python starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Some(serde_json::from_slice(&output.stdout).expect("it prints JSON"))
}

fn written(folder: &Folder) -> std::path::PathBuf {
    let file = folder.join("trace.perfetto");
    picture::tell(&mut PerfettoSink::create(&file).expect("it can be created"));
    file
}

/// The slices of a track, as `depth name start duration`.
fn lines(trace: &Value, track: &str) -> Vec<String> {
    let slices = trace["slices"].as_array().expect("slices").iter();
    let on_track = slices.filter(|slice| slice["track"].as_array().and_then(|path| path.last()) == Some(&track.into()));
    let line = |slice: &Value| {
        let start = slice["ts"].as_u64().expect("a time") - ZERO_NS;
        format!("{} {} {start} {}", slice["depth"], slice["name"].as_str().expect("a name"), slice["dur"])
    };
    on_track.map(line).collect()
}

fn arguments<'a>(trace: &'a Value, name: &str, category: &str) -> &'a Value {
    let slices = trace["slices"].as_array().expect("slices");
    let found = slices.iter().find(|slice| slice["name"] == name && slice["category"] == category && slice["dur"] != 0);
    &found.unwrap_or_else(|| panic!("there is no {name}"))["args"]
}

#[test]
fn the_trace_is_right_by_perfettos_schema() {
    let folder = Folder::new("perfetto-schema");
    let Some(trace) = checked(&written(&folder)) else { return };
    assert_eq!(trace["processes"], json!([[4242, "/usr/bin/demo --fast", ["/usr/bin/demo", "--fast"]]]));
    assert_eq!(trace["threads"].as_array().map(Vec::len), Some(3));

    let instants =
        ["submit", "pthread_create", "create", "register", "suspend", "resume", "thread end", "pthread_join"];
    let frames = |track| {
        let mut lines = lines(&trace, track);
        lines.retain(|line| !instants.iter().any(|name| line.contains(&format!(" {name} "))));
        lines
    };
    for track in ["main", "worker", "pool"] {
        let own = picture::FRAMES.iter().filter(|(thread, name, ..)| *thread == track && *name != "coroutine");
        let line = |(_, name, start, duration, depth): &_| format!("{depth} {name} {start} {duration}");
        assert_eq!(frames(track), own.map(line).collect::<Vec<String>>(), "{track}");
    }
    assert_eq!(frames("other stacks"), ["0 coroutine 60500 59500"]);
    assert_eq!(frames("gaps"), ["0 gap 20000 10000"]);
    let task =
        ["0 a task 31000 14000", "1 first turn 31000 4000", "1 suspension 35000 5000", "1 second turn 40000 5000"];
    assert_eq!(frames("task 0xabc"), task);
    // At one time on one queue: on two tracks of the same name.
    let queue = ["0 one block 12000 6000", "0 another block 13000 6000"];
    assert_eq!(frames("com.demo.queue 0x77"), queue);
    assert_eq!(frames("threads"), ["0 routine 6000 84000"]);

    assert_eq!(*arguments(&trace, "gap", "gap"), json!({"count": 12, "cause": "network"}));
    assert_eq!(arguments(&trace, "demo::work(int)", "frame")["symbol"], "_ZN4demo4workEi");
    assert_eq!(arguments(&trace, "run \"quoted\"", "frame")["reason"], "tail_call");
    let expected =
        json!({"status": "matched", "flags": "cross_thread", "key": 0xb1, "latency_ns": 1000, "queue": 0x77});
    assert_eq!(*arguments(&trace, "one block", "block"), expected);
    let open = trace["slices"].as_array().expect("slices").iter().filter(|slice| slice["args"]["status"] == "open");
    assert_eq!(open.count(), 1);
}

#[test]
fn arrows_lead_from_the_cause_to_the_start() {
    let folder = Folder::new("perfetto-arrows");
    let Some(trace) = checked(&written(&folder)) else { return };
    let expected = [
        ["main", "pthread_create", "threads", "routine"],
        ["worker", "thread end", "main", "pthread_join"],
        ["main", "submit", "com.demo.queue 0x77", "one block"],
        ["main", "submit", "com.demo.queue 0x77", "another block"],
        ["main", "create", "task 0xabc", "a task"],
        ["worker", "suspend", "task 0xabc", "suspension"],
        ["task 0xabc", "suspension", "pool", "resume"],
        ["main", "register", "callbacks", "a callback"],
    ];
    let flows = trace["flows"].as_array().expect("flows");
    for arrow in &expected {
        assert!(flows.contains(&json!(arrow)), "{arrow:?} is missing from {flows:?}");
    }
    assert_eq!(flows.len(), expected.len());
}

#[test]
fn a_trace_that_was_cut_off_loses_only_its_last_packet() {
    let folder = Folder::new("perfetto-cut");
    let file = written(&folder);
    let bytes = fs::read(&file).expect("it is there");
    // Whole packets up to somewhere: begins may lack their ends there, so only the packets are counted.
    let whole = |bytes: &[u8]| {
        let (mut at, mut count) = (0, 0);
        while let Some([0x0a, rest @ ..]) = bytes.get(at..) {
            let used = rest.iter().position(|byte| byte & 0x80 == 0).map_or(rest.len(), |last| last + 1);
            let length = rest.iter().take(used).rev().fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7f));
            at += 1 + used + length;
            count += usize::from(at <= bytes.len());
        }
        count
    };
    let all = whole(&bytes);
    assert!(all > 50);
    assert!((0..bytes.len()).all(|length| whole(&bytes[..length]) <= all));
    assert_eq!(whole(&bytes[..bytes.len() - 1]), all - 1);
}
