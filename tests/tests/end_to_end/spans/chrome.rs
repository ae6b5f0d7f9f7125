//! Chrome's trace events, checked phase by phase.

use std::{collections::HashMap, fs};

use serde_json::{Value, json};
use sinks::ChromeSink;
use tests::Folder;

use crate::spans::picture;

fn events() -> Vec<Value> {
    let folder = Folder::new("chrome");
    let file = folder.join("trace.json");
    picture::tell(&mut ChromeSink::create(&file).expect("it can be created"));
    let bytes = fs::read(&file).expect("it is there");
    let parsed: Value = serde_json::from_slice(&bytes).expect("it is JSON");
    parsed.as_array().expect("it is an array").clone()
}

/// A time in nanoseconds; it must have been written with three decimals.
fn nanoseconds(value: &Value) -> u64 {
    let text = value.as_f64().map(|number| format!("{number:.3}")).unwrap_or_default();
    text.replace('.', "").parse().unwrap_or_else(|_| panic!("{value} is no time"))
}

#[test]
fn every_event_has_what_its_phase_needs() {
    for event in events() {
        let has = |fields: &[&str]| fields.iter().all(|field| !event[field].is_null());
        assert!(has(&["ph", "name", "pid", "tid"]), "{event}");
        let right = match event["ph"].as_str() {
            Some("M") => has(&["args"]),
            Some("X") => has(&["ts", "dur", "cat"]) && event["dur"].as_f64() >= Some(0.0),
            Some("b" | "e" | "s") => has(&["ts", "cat", "id"]),
            Some("f") => has(&["ts", "cat", "id"]) && event["bp"] == "e",
            Some("i") => has(&["ts", "cat"]) && event["s"] == "t",
            _ => false,
        };
        assert!(right, "{event}");
    }
}

#[test]
fn every_begin_has_an_end_and_every_arrow_two() {
    let (mut open, mut arrows) = (HashMap::<_, Vec<Value>>::new(), HashMap::<_, Vec<String>>::new());
    let mut events = events();
    events.retain(|event| event["ph"] != "M");
    events.sort_by_key(|event| nanoseconds(&event["ts"]));
    for event in &events {
        let key = (event["cat"].to_string(), event["id"].to_string());
        match event["ph"].as_str() {
            Some("b") => open.entry(key).or_default().push(event["name"].clone()),
            Some("e") => assert_eq!(open.get_mut(&key).and_then(Vec::pop).as_ref(), Some(&event["name"])),
            Some(phase @ ("s" | "f")) => arrows.entry(key).or_default().push(phase.into()),
            _ => {}
        }
    }
    assert!(open.values().all(Vec::is_empty), "{open:?}");
    // Thread and join, two blocks, task, suspension, callback.
    assert_eq!(arrows.len(), 7);
    assert!(arrows.values().all(|phases| phases == &["s", "f"]), "{arrows:?}");
}

#[test]
fn frames_of_a_row_nest_and_callers_come_first() {
    let mut rows = HashMap::<String, Vec<(u64, u64)>>::new();
    let mut complete: Vec<_> = events().into_iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(complete.len(), 11);
    complete.sort_by_key(|event| nanoseconds(&event["ts"]));
    for event in complete {
        let start = nanoseconds(&event["ts"]);
        let end = start + nanoseconds(&event["dur"]);
        let stack = rows.entry(event["tid"].to_string()).or_default();
        while stack.last().is_some_and(|(_, until)| *until <= start && end > *until) {
            stack.pop();
        }
        assert!(stack.last().is_none_or(|(_, until)| end <= *until), "{event} sticks out");
        stack.push((start, end));
    }
    // Three threads, the other stack of one, the gaps of another.
    assert_eq!(rows.len(), 5);
}

#[test]
fn a_symbol_is_told_once_beside_its_name() {
    let events = events();
    let symbols: Vec<_> = events.iter().filter(|event| event["ph"] == "M" && event["name"] == "symbol").collect();
    assert_eq!(symbols.len(), 1);
    assert_eq!(symbols[0]["args"], json!({"name": "demo::work(int)", "symbol": "_ZN4demo4workEi"}));
}

#[test]
fn what_takes_no_time_is_an_instant() {
    let events = events();
    let leaves = events.iter().filter(|event| event["name"] == "leaf").map(|event| event["ph"].as_str());
    let (instants, complete): (Vec<_>, Vec<_>) = leaves.partition(|phase| *phase == Some("i"));
    assert_eq!((instants.len(), complete.len()), (3, 2));
    assert!(events.iter().all(|event| event["ph"] != "X" || event["dur"].as_f64() > Some(0.0)));
}
