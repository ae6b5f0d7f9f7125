//! Who called a function, what ran at a moment, and what differs between two sessions.

use std::{fs, path::Path};

use serde_json::Value as Json;
use tests::collector::{run, run_on};

use crate::spans::offline::{Packets, ingested};

#[track_caller]
fn lines(text: &str) -> Vec<Json> {
    text.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
}

#[track_caller]
fn json(command: &str, session: &Path, arguments: &[&str]) -> Vec<Json> {
    lines(run_on(command, session, &[&["--json"], arguments].concat()).success().text())
}

#[test]
fn callers_are_shown_below_what_they_called() {
    let (_folder, session) = ingested("callers", &Packets::program(50_000));
    let nodes = json("tree", &session, &["--callers", "fib", "--min-percent", "0"]);
    let found: Vec<_> = nodes
        .iter()
        .map(|node| {
            let numbers = ["level", "count", "total_ns", "self_ns"].map(|key| node[key].as_u64().expect(key));
            (node["function"].as_str().expect("a name"), numbers)
        })
        .collect();
    let expected = [
        ("fib", [0, 2, 4_000, 4_000]),
        ("main", [1, 1, 4_000, 2_000]),
        ("fib", [1, 1, 2_000, 2_000]),
        ("main", [2, 1, 2_000, 2_000]),
    ];
    assert_eq!(found, expected);
    assert_eq!((&nodes[1]["parent"], &nodes[3]["parent"]), (&nodes[0]["node"], &nodes[2]["node"]));
    assert_eq!(json("tree", &session, &["--callers", "fib", "--depth", "1"]).len(), 1);
    let inside = json("tree", &session, &["--callers", "work", "--from", "4us", "--to", "6us"]);
    assert_eq!((inside[0]["count"].as_u64(), inside[0]["total_ns"].as_u64()), (Some(1), Some(1_000)));
    let text = run_on("tree", &session, &["--callers", "work"]).success();
    assert!(text.text().contains("are missing (agent:ring-full 5)"), "{}", text.text());
    assert!(text.text().lines().any(|line| line.contains("3×") && line.contains("work")), "{}", text.text());
    let nobody = run_on("tree", &session, &["--callers", "nobody"]).success();
    assert!(nobody.stderr.contains("nothing in it is what is asked for"), "{}", nobody.stderr);
}

#[test]
fn what_ran_at_a_moment_is_told_by_thread() {
    let (_folder, session) = ingested("around", &Packets::program(50_000));
    let at = |time: &str, arguments: &[&str]| -> Vec<(u64, String)> {
        let spans = json("spans", &session, &[&["--around", time][..], arguments].concat());
        let span = |span: &Json| {
            (span["thread"].as_u64().expect("a number"), span["function"].as_str().expect("a name").to_owned())
        };
        spans.iter().map(span).collect()
    };
    let expected = |spans: &[(u64, &str)]| -> Vec<(u64, String)> {
        spans.iter().map(|(thread, name)| (*thread, (*name).to_owned())).collect()
    };
    assert_eq!(at("7us", &["--kind", "frame"]), expected(&[(0, "main"), (0, "fib"), (0, "fib")]));
    assert_eq!(at("11us", &["--kind", "frame"]), expected(&[(0, "main"), (1, "worker"), (1, "work")]));
    assert_eq!(at("11us", &["--kind", "frame", "--thread", "1", "--depth", "1"]), expected(&[(1, "worker")]));
    // Events are missing there, and that is told.
    assert!(at("20us", &[]).contains(&(0, "gap".into())), "{:?}", at("20us", &[]));
    let exit = run_on("spans", &session, &["--around", "1h"]).success();
    assert!(exit.stderr.contains("ran at 3600.000000000 s; it has events from 0.000000000 s to"), "{}", exit.stderr);
    assert_eq!(run_on("spans", &session, &["--around", "1us", "--from", "1us"]).code, Some(2));
}

#[test]
fn two_sessions_are_compared_by_names() {
    let (folder, a) = ingested("diff-a", &Packets::program(50_000));
    let (_folder, b) = ingested("diff-b", &Packets::program(60_000));
    let compare = |a: &Path, b: &Path, arguments: &[&str]| {
        let (a, b) = (a.display().to_string(), b.display().to_string());
        run(&[&["diff", &a, &b][..], arguments].concat()).success()
    };
    let exit = compare(&a, &b, &["--json"]);
    let changes = lines(exit.text());
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert_eq!((&changes[0]["function"], &changes[0]["total_change_ns"]), (&"main".into(), &10_000.into()));
    assert_eq!((&changes[0]["calls_change"], &changes[0]["within_noise"]), (&0.into(), &false.into()));
    for side in ["A, ", "B, "] {
        let is_warning = |line: &str| line.starts_with(side) && line.contains("events are missing");
        assert_eq!(exit.stderr.lines().filter(|line| is_warning(line)).count(), 1, "{}", exit.stderr);
    }
    let all = lines(compare(&a, &b, &["--json", "--all"]).text());
    assert_eq!(all.len(), 5, "{all:?}");
    assert!(all.iter().filter(|change| change["function"] != "main").all(|change| change["within_noise"] == true));
    let (_folder, other) = ingested("diff-other", &Packets::with_names(&["main", "new"]));
    let changes = lines(compare(&a, &other, &["--json", "--sort", "calls"]).text());
    let only = |name: &str| {
        let change = changes.iter().find(|change| change["function"] == name).expect("it is there");
        change["only_in"].as_str().map(str::to_owned)
    };
    assert_eq!((only("work"), only("new")), (Some("A".into()), Some("B".into())));
    let text = compare(&a, &other, &[]);
    assert!(text.text().contains("only in B") && text.text().starts_with("A: "), "{}", text.text());
    let csv = compare(&a, &other, &["--csv"]);
    assert!(csv.text().starts_with("function,module,only_in,within_noise,calls_a,"), "{}", csv.text());

    let file = folder.join("flame");
    compare(&a, &b, &["--flame", &file.display().to_string(), "--from", "1us", "--to", "5us", "--thread", "main"]);
    let stacks = fs::read_to_string(&file).expect("it is there");
    assert!(stacks.lines().any(|line| line == "main;main;work 3000 3000"), "{stacks}");
}
