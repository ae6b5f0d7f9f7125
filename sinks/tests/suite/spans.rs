//! What only the sink of spans does.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use codec::{
    FunctionId, ModuleId, Position, SessionNs, StreamId, SubstreamId,
    span::{Ending, More, Reason, Span, SpanFlags, SpanId, SpanKind, SpanStatus, What},
};
use serde_json::{Value, json};
use sinks::{Ended, Gap, LineSink, Sink};

use crate::{
    scene::{announce, batch, introduction, packet, session, stamp},
    subject::Shared,
};

pub(crate) fn span(position: u64) -> Span {
    let id = SpanId::new(StreamId(0), Position(position));
    let what = What::Function(FunctionId::new(ModuleId(1), 1));
    Span { what, depth: 2, ..Span::new(id, SpanKind::Frame, SessionNs(10), Some(SessionNs(25))) }
}

/// The lines that were written, each of them JSON.
pub(crate) fn lines(bytes: &[u8]) -> Vec<Value> {
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).expect("JSON")).collect()
}

#[test]
fn a_line_says_all_that_a_span_has_and_nothing_else() {
    let shared = Shared::default();
    let mut sink = LineSink::spans(shared.clone());
    let session = session("a");
    sink.start(&session).expect("it starts");
    let packets = introduction(&session, &[]);
    sink.options(&session, &packets).expect("it takes options");
    announce(&session, &[codec::profile::Queue { id: 9, label: "main\"\n" }.into()]);
    let id = |position| SpanId::new(StreamId(0), Position(position));
    let more = More {
        key: Some(u64::MAX),
        created: Some(SessionNs(4)),
        creator: Some(StreamId(1)),
        origin: Some(id(5)),
        latency: Some(6),
        suspended: 7,
        suspensions: 2,
        threads: vec![StreamId(3), StreamId(4)],
        end_stream: Some(StreamId(4)),
        queue: Some(9),
        group: Some(10),
        joiner: Some(StreamId(5)),
        join_latency: Some(11),
        ending: Some(Ending::Returned),
        argument: Some(12),
        result: Some(13),
        executor: Some(16),
        resumer: Some(StreamId(6)),
        resumed_by: Some(id(17)),
        level: 14,
        resumed: Some(SessionNs(15)),
        cause: Some("network".into()),
    };
    let full = Span {
        parent: Some(id(2)),
        twin: Some(id(3)),
        what: What::Named("a \"block\"".into()),
        kind: SpanKind::Block,
        status: SpanStatus::Unmatched,
        reason: Some(Reason::Gap),
        flags: SpanFlags::SYNC.with(SpanFlags::BARRIER, true),
        substream: SubstreamId(8),
        more: Some(Box::new(more)),
        ..span(1)
    };
    let open = Span { status: SpanStatus::Open, end: None, more: Some(Box::default()), ..span(0) };
    // Events and gaps are in spans.
    sink.events(&batch(&session, &[(0, 0, vec![packet(stamp(0, 0, 1), 0)])])).expect("it takes events");
    let gap = Gap { stream: StreamId(0), first: Position(1), count: 2, cause: "network".into() };
    sink.gap(&session, &gap).expect("it takes gaps");
    sink.spans(&session, &[open, full, span(0)]).expect("it takes spans");
    sink.end(&session, &Ended::default()).expect("it ends");
    sink.close().expect("it closes");
    let found = lines(&shared.bytes());
    let types: Vec<_> = found.iter().map(|line| line["type"].as_str().expect("a type")).collect();
    assert_eq!(types, ["session", "session", "span", "span", "span", "end"]);
    let frame = json!({
        "type": "span", "session": "a", "id": "0:0", "kind": "frame", "runtime": "native", "status": "matched",
        "function": "work", "module": "/bin/true", "thread": 0, "depth": 2, "start_ns": 10, "end_ns": 25,
        "duration_ns": 15,
    });
    assert_eq!(found[4], frame);
    let mut open = frame;
    open["status"] = json!("open");
    for ended in ["end_ns", "duration_ns"] {
        open.as_object_mut().expect("an object").remove(ended);
    }
    assert_eq!(found[2], open);
    let block = json!({
        "type": "span", "session": "a", "id": "0:1", "kind": "block", "runtime": "gcd",
        "status": "unmatched", "reason": "gap", "function": "a \"block\"", "key": u64::MAX,
        "parent": "0:2", "twin": "0:3", "thread": 0, "threads": [3, 4], "end_thread": 4,
        "task": 8, "start_ns": 10, "end_ns": 25, "duration_ns": 15, "created_ns": 4, "latency_ns": 6,
        "suspended_ns": 7, "suspensions": 2, "creator": 1, "origin": "0:5", "queue": 9,
        "queue_label": "main\"\n", "group": 10, "joiner": 5, "join_latency_ns": 11, "ending": "returned",
        "argument": 12, "result": 13, "executor": 16, "resumer": 6, "resumed_by": "0:17", "level": 14, "resumed_ns": 15,
        "cause": "network", "flags": ["sync", "barrier"],
    });
    assert_eq!(found[3], block);
}

#[test]
fn a_symbol_is_there_where_it_is_not_the_name() {
    let shared = Shared::default();
    let mut sink = LineSink::spans(shared.clone());
    let session = session("a");
    let names = [codec::profile::FunctionName { offset: 0, name: "_ZN3foo3barEi" }];
    let functions = codec::profile::Functions { module: ModuleId(1), first_index: 1, functions: (&names).into() };
    sink.spans(&session, &[span(0)]).expect("it takes spans");
    announce(&session, &[functions.into()]);
    sink.spans(&session, &[span(0)]).expect("it takes spans");
    sink.close().expect("it closes");
    let found = lines(&shared.bytes());
    assert_eq!((&found[0]["function"], found[0].get("symbol")), (&json!("1:1"), None));
    assert_eq!((&found[1]["function"], &found[1]["symbol"]), (&json!("foo::bar(int)"), &json!("_ZN3foo3barEi")));
}

/// Takes all, or nothing while it is stuck.
#[derive(Clone, Default)]
struct Stuck(Shared, Arc<AtomicBool>);

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.1.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => self.0.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn spans_that_cannot_be_written_are_counted() {
    let out = Stuck::default();
    let mut sink = LineSink::spans(out.clone());
    let session = session("a");
    out.1.store(true, Ordering::Relaxed);
    let spans: Vec<_> = (0..10_000).map(span).collect();
    let mut told = 0_u64;
    while sink.spans(&session, &spans).is_ok() {
        told += 10_000;
        assert!(told < 1_000_000, "nothing is refused");
    }
    told += 10_000;
    out.1.store(false, Ordering::Relaxed);
    sink.spans(&session, &spans[..1]).expect("it goes on");
    sink.close().expect("it closes");
    let found = lines(&out.0.bytes());
    let written = found.iter().filter(|line| line["type"] == "span").count() as u64;
    let lost: u64 = found.iter().filter(|line| line["type"] == "lost").filter_map(|line| line["spans"].as_u64()).sum();
    assert_eq!(written + lost, told + 1);
    assert!(lost > 0 && found.iter().filter(|line| line["type"] == "lost").count() == 1);
}
