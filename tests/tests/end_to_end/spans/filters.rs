//! What part of a session is asked for means the same in every command.

use std::{fs, path::Path};

use codec::{
    FunctionId, LevelKind, ModuleId, SessionNs, StreamId,
    heph::Encode,
    profile::{Counted, CountedCalls, LevelChange, Levels, ProfileOption},
};
use serde_json::Value as Json;
use tests::collector::{run, run_on};

use crate::spans::offline::{Packets, ingested};

#[track_caller]
fn json(command: &str, session: &Path, arguments: &[&str]) -> Vec<Json> {
    let exit = run_on(command, session, &[&["--json"], arguments].concat()).success();
    exit.text().lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
}

/// Each line as its function and these numbers.
fn numbers<'a>(lines: &'a [Json], keys: [&str; 3]) -> Vec<(&'a str, [u64; 3])> {
    let line = |line: &'a Json| {
        let name = line["function"].as_str().expect("a name");
        (name, keys.map(|key| line[key].as_u64().unwrap_or(u64::MAX)))
    };
    lines.iter().map(line).collect()
}

const TIMES: [&str; 3] = ["count", "total_ns", "self_ns"];

#[test]
fn times_are_those_inside_and_counts_of_what_ran_there() {
    let (folder, session) = ingested("filter-times", &Packets::program(50_000));
    // `work` runs from 1 to 3 µs and from 4 to 5, `fib` from 5 to 9, and again inside from 6 to 8.
    let window = ["--from", "2us", "--to", "7us", "--thread", "main"];
    let top = json("top", &session, &window);
    let expected = [("main", [1, 5_000, 0]), ("fib", [2, 2_000, 2_000]), ("work", [2, 2_000, 2_000])];
    assert_eq!(numbers(&top, TIMES), expected);
    let tree = json("tree", &session, &[&window[..], &["--min-percent", "0"]].concat());
    let expected = [
        ("main", [1, 5_000, 0]),
        ("work", [2, 2_000, 2_000]),
        ("fib", [1, 2_000, 1_000]),
        ("fib", [1, 1_000, 1_000]),
        ("(missing)", [0, 1_000, 1_000]),
    ];
    assert_eq!(numbers(&tree, TIMES), expected);
    let spans = json("spans", &session, &[&window[..], &["--kind", "frame", "--sort", "start"]].concat());
    let wholes: Vec<_> = spans.iter().map(|span| span["duration_ns"].as_u64()).collect();
    assert_eq!(wholes, [50_000, 2_000, 1_000, 4_000, 2_000].map(Some), "spans are whole");
    let stats = json("stats", &session, &window);
    assert_eq!(stats[0]["runtimes"]["native"]["spans"], 5);
    assert_eq!(json("events", &session, &window).len(), 5, "the events at these times");
    let file = folder.join("folded");
    let output = file.display().to_string();
    run_on("export", &session, &[&window[..], &["--format", "folded", "-o", &output]].concat()).success();
    let folded = fs::read_to_string(&file).expect("it is there");
    let sum: u64 = folded.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum();
    assert_eq!(sum, 5_000, "{folded}");
}

#[test]
fn names_modules_depths_and_durations_choose_calls() {
    let (folder, session) = ingested("filter-names", &Packets::program(50_000));
    let names = |lines: &[Json]| -> Vec<String> {
        lines.iter().map(|line| line["function"].as_str().expect("a name").to_owned()).collect()
    };
    // What leads to it and what it called stay.
    let tree = json("tree", &session, &["--thread", "0", "--function", "f?b", "--min-percent", "0"]);
    assert_eq!(names(&tree), ["main", "fib", "fib"]);
    let main = json("tree", &session, &["--thread", "0", "--min-percent", "0"]);
    assert_eq!(tree[0]["total_ns"], main[0]["total_ns"], "numbers are those of all calls");
    for command in ["top", "spans", "events"] {
        let all = json(command, &session, &["--module", "prog, *", "--limit", "1000"]);
        assert!(!all.is_empty() && all.iter().all(|line| line["function"] != "reading"), "{command}: {all:?}");
        let path = json(command, &session, &["--module", "/usr/bin/*", "--limit", "1000"]);
        assert_eq!(names(&path), names(&all), "{command}");
        let exit = run_on(command, &session, &["--module", "libc*"]).success();
        assert!(exit.stderr.contains("nothing in it is what is asked for"), "{command}: {}", exit.stderr);
    }
    let shallow = json("top", &session, &["--depth", "1"]);
    assert_eq!(names(&shallow), ["main", "worker"]);
    let deeper = json("top", &session, &["--depth", "2", "--function", "fib"]);
    assert_eq!(numbers(&deeper, TIMES), [("fib", [1, 4_000, 2_000])], "what is deeper is not its own time");
    let long = json("top", &session, &["--min-duration", "2us", "--function", "work"]);
    assert_eq!(numbers(&long, TIMES), [("work", [2, 4_000, 4_000])]);
    let long = json("tree", &session, &["--thread", "0", "--min-duration", "2us", "--min-percent", "0"]);
    assert_eq!(numbers(&long, TIMES)[0], ("main", [1, 50_000, 0]));
    assert!(long.iter().any(|node| node["function"] == "work" && node["count"] == 1), "{long:?}");
    assert_eq!(json("spans", &session, &["--min-duration", "2us", "--function", "work"]).len(), 2);
    assert_eq!(json("events", &session, &["--min-duration", "2us", "--function", "work"]).len(), 2, "their returns");
    assert_eq!(json("events", &session, &["--depth", "1", "--thread", "1", "--function", "work*"]).len(), 2);
    assert_eq!(json("events", &session, &["--limit", "3"]).len(), 3);
    assert_eq!(json("tree", &session, &["--limit", "2"]).len(), 2);
    let output = folder.join("table").display().to_string();
    let export = run_on("export", &session, &["--format", "parquet", "-o", &output, "--function", "work"]).success();
    assert!(export.stderr.contains("3 spans"), "{}", export.stderr);
}

/// Nobody knows when calls were made that were only counted.
#[test]
fn calls_that_were_counted_are_not_taken_for_those_that_are_asked_for() {
    let mut packets = Packets::default();
    packets.describe();
    let function = FunctionId::new(ModuleId(1), 1);
    let changes = [LevelChange { function, at: SessionNs(50_000), level: LevelKind::Counted }];
    let calls = [CountedCalls { function, count: 100, brief: 0, brief_ns: 0 }];
    let stream = StreamId(0);
    let counted = Counted { stream, calls: calls[..].into() };
    for option in [ProfileOption::from(Levels { changes: changes[..].into() }), counted.into()] {
        option.encode(&mut packets.bytes).expect("it fits");
    }
    packets.frame((0, 0, 0), 0, 60_000, |packets| {
        packets.frame((0, 1, 1), 1_000, 3_000, |_| {});
        packets.frame((0, 1, 1), 40_000, 41_000, |_| {});
    });
    // Its agent may have counted more, and has not told.
    let (_folder, cut) = ingested("filter-cut", &packets.bytes);
    packets.end(60_000);
    let (_folder, session) = ingested("filter-counted", &packets.bytes);
    for (session, calls) in [(&cut, "≥ 102"), (&session, "102")] {
        let text = run_on("top", session, &["--function", "work"]).success();
        assert!(text.text().lines().any(|line| line.trim_start().starts_with(calls)), "{}", text.text());
    }
    let row = |arguments: &[&str]| json("top", &session, &[&["--function", "work"], arguments].concat()).remove(0);
    assert!(row(&[])["estimated_total_ns"].is_u64());
    for part in [&["--to", "10us"][..], &["--min-duration", "2us"], &["--depth", "2", "--from", "1us", "--to", "5us"]] {
        let row = row(part);
        assert_eq!((&row["count"], &row["counted"]), (&1.into(), &100.into()), "{part:?}");
        assert!(row["estimated_total_ns"].is_null(), "{part:?}: {row}");
    }
    let text = run_on("top", &session, &["--to", "10us"]).success();
    assert!(text.text().lines().any(|line| line.contains("≤ 101") && line.contains("work")), "{}", text.text());
    let path = session.display().to_string();
    let same = run(&["diff", &path, &path, "--all"]).success();
    assert_eq!(same.stderr.matches("1 function turned down").count(), 2, "{}", same.stderr);
}

#[test]
fn what_cannot_be_is_one_clear_line() {
    let (folder, session) = ingested("filter-wrong", &Packets::program(50_000));
    let output = folder.join("out").display().to_string();
    let commands: [&[&str]; 6] =
        [&["top"], &["tree"], &["spans"], &["events"], &["stats"], &["export", "--format", "chrome", "-o", &output]];
    let said = |command: &[&str], arguments: &[&str]| {
        let exit = run_on(command[0], &session, &[&command[1..], arguments].concat());
        assert_eq!((exit.code, exit.text()), (Some(1), ""), "{command:?} {arguments:?}");
        assert_eq!(exit.stderr.lines().count(), 1, "{command:?}: {}", exit.stderr);
        exit.stderr
    };
    for command in commands {
        assert!(said(command, &["--from", "5us", "--to", "4us"]).contains("is after --to"), "{command:?}");
        assert!(said(command, &["--thread", "nobody"]).contains("no thread is \"nobody\""), "{command:?}");
        assert!(said(command, &["--process", "nobody"]).contains("there are: prog (4711)"), "{command:?}");
        run_on(command[0], &session, &[&command[1..], &["--process", "4711"]].concat()).success();
    }
    assert!(!folder.join("out").exists() || fs::read(folder.join("out")).is_ok_and(|bytes| !bytes.is_empty()));
    let exit = run_on("export", &session, &["--format", "heph", "-o", &output, "--from", "1us"]);
    assert!(exit.code == Some(2) && exit.stderr.contains("--from does not go with it"), "{}", exit.stderr);
}
