use codec::span::{More, SpanFlags, SpanKind, SpanStatus};
use serde_json::Value;

use super::*;
use crate::{
    Sink,
    spans_for_tests::{frame, named, session, tell},
};

fn events(bytes: &[u8]) -> Vec<Value> {
    let parsed: Value = serde_json::from_slice(bytes).expect("it is JSON");
    parsed.as_array().expect("it is an array").clone()
}

#[test]
fn times_are_microseconds_with_three_decimals() {
    let mut bytes = Vec::new();
    tell(&mut ChromeSink::new(&mut bytes), &[named(frame(0, 0, 1_234_567, 1_234_570), "a \"name\"\n")]);
    let text = String::from_utf8(bytes.clone()).expect("it is text");
    assert!(text.contains(r#""ts":1234.567,"dur":0.003"#), "{text}");
    let last = events(&bytes).pop().expect("there are events");
    assert_eq!(
        (last["ph"].as_str(), last["name"].as_str(), last["tid"].as_u64()),
        (Some("X"), Some("a \"name\"\n"), Some(7))
    );
}

#[test]
fn a_file_without_sessions_is_json_too() {
    let mut bytes = Vec::new();
    ChromeSink::new(&mut bytes).close().expect("it closes");
    assert_eq!(events(&bytes).len(), 1);
}

#[test]
fn a_file_that_was_cut_off_lacks_only_its_end() {
    let mut bytes = Vec::new();
    let mut sink = ChromeSink::new(&mut bytes);
    let session = session();
    sink.start(&session).expect("it starts");
    sink.spans(&session, &[named(frame(0, 0, 1, 2), "f")]).expect("it takes spans");
    sink.flush().expect("it is written");
    drop(sink);
    assert!(serde_json::from_slice::<Value>(&bytes).is_err());
    bytes.push(b']');
    assert_eq!(events(&bytes).len(), 4);
}

#[test]
fn what_is_no_frame_is_asynchronous_and_a_gap_has_a_row_of_its_own() {
    let more = |key| Some(Box::new(More { key: Some(key), ..More::default() }));
    let block = Span { kind: SpanKind::Block, more: more(0xabc), ..named(frame(0, 0, 10, 20), "b") };
    let gap = Span { kind: SpanKind::Gap, more: more(12), ..named(frame(0, 5, 15, 25), "gap") };
    let mut bytes = Vec::new();
    tell(&mut ChromeSink::new(&mut bytes), &[block, gap]);
    let events = events(&bytes);
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
    assert_eq!((of("b")[0]["id"].as_str(), of("e")[0]["id"].as_str()), (Some("0xabc"), Some("0xabc")));
    let gap = of("X")[0];
    assert_eq!((gap["cat"].as_str(), gap["args"]["count"].as_u64()), (Some("gap"), Some(12)));
    assert_ne!(gap["tid"], of("b")[0]["tid"]);
}

#[test]
fn what_is_behind_a_gap_makes_no_caller_longer() {
    let caller = Span { end: None, status: SpanStatus::Unmatched, ..named(frame(0, 0, 10_000, 0), "caller") };
    let callee =
        |position, start, end| Span { parent: Some(caller.id), ..named(frame(0, position, start, end), "callee") };
    let behind = Span { flags: SpanFlags::BEHIND_GAP, ..callee(2, 20_000, 30_000) };
    let mut bytes = Vec::new();
    tell(&mut ChromeSink::new(&mut bytes), &[callee(1, 12_000, 15_000), behind, caller]);
    let events = events(&bytes);
    let of = |name: &str| events.iter().filter(|event| event["name"] == name).collect::<Vec<_>>();
    assert_eq!((of("caller")[0]["ts"].as_f64(), of("caller")[0]["dur"].as_f64()), (Some(10.0), Some(5.0)));
    assert!(of("callee").iter().all(|callee| callee["tid"] == of("caller")[0]["tid"]), "it is one stack");
}
