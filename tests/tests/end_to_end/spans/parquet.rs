//! `spans.parquet`, read by Arrow and DuckDB.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use codec::{
    FunctionId, ModuleId, Position, SessionId, SessionNs, StreamId, SubstreamId,
    atf::{EndEntry, FunctionEntry, Manifest, ModuleEntry, QueueEntry, ThreadEntry},
    span::{Ending, More, Reason, Span, SpanFlags, SpanId, SpanKind, SpanStatus, What},
};
use serde_json::{Map, Value, json};
use sinks::{Catalog, DiskOptions, DiskSink, Ended, SPAN_COLUMNS, Session, Sink};
use tests::{Folder, collector::run_on, python::python_with};

use crate::spans::offline::{Packets, ingested};

const NAME: &str = "20260101-000000-1";

fn session() -> Arc<Session> {
    let module = ModuleEntry { id: 1, path: "/bin/example".into(), base: 4096, size: 4096, ..ModuleEntry::default() };
    let id = FunctionId::new(ModuleId(1), 3).0;
    let function = FunctionEntry { id, offset: 16, name: "_ZN3foo3barEi".into(), ..FunctionEntry::default() };
    let manifest = Manifest {
        clock: Some("boottime".into()),
        clock_zero_ns: Some(5_000_000),
        epoch_unix_ns: Some(1_700_000_000_000_000_000),
        threads: vec![ThreadEntry { id: 2, os_id: Some(1002), name: Some("pool".into()), ..ThreadEntry::default() }],
        modules: vec![module],
        functions: vec![function],
        queues: vec![QueueEntry { id: 9, label: "com.example.ä".into(), ..QueueEntry::default() }],
        ..Manifest::default()
    };
    let catalog = Catalog::from_manifest(&manifest);
    Arc::new(Session::new(NAME.into(), Some(SessionId([7; 16])), String::new(), 0, catalog))
}

fn id(position: u64) -> SpanId {
    SpanId::new(StreamId(2), Position(position))
}

/// Spans of every kind with every status, every reason, every ending and every flag, with much and with little.
fn spans() -> Vec<Span> {
    let statuses = SpanStatus::ALL.iter().flat_map(|status| SpanKind::ALL.iter().map(move |kind| (*status, *kind)));
    let mut spans: Vec<Span> = (0_u64..).zip(statuses).map(|(at, (status, kind))| plain(at, status, kind)).collect();
    let count = spans.len();
    for (at, reason) in Reason::ALL.iter().enumerate() {
        spans[at % count].reason = Some(*reason);
    }
    for (at, (flag, _)) in SpanFlags::NAMES.iter().enumerate() {
        spans[at % count].flags.set(*flag);
        spans[count - 1].flags.set(*flag);
    }
    for (at, span) in spans.iter_mut().enumerate() {
        span.more = (at % 3 > 0).then(|| Box::new(more(at, if at % 3 == 1 { 1 } else { 0 })));
    }
    spans[5].what = What::Address(4096 + 20);
    spans[6].what = What::Address(u64::MAX);
    spans[7].what = What::Unknown;
    spans[8].start = SessionNs(0);
    spans[9].substream = SubstreamId(u64::MAX);
    spans[10].stream = StreamId(u32::MAX);
    spans
}

fn plain(at: u64, status: SpanStatus, kind: SpanKind) -> Span {
    let function = What::Function(FunctionId::new(ModuleId(1), if at.is_multiple_of(2) { 3 } else { 4 }));
    Span {
        id: id(at),
        parent: Some(id(at + 1000)).filter(|_| !at.is_multiple_of(4)),
        twin: Some(id(at + 2000)).filter(|_| at.is_multiple_of(5)),
        what: if kind == SpanKind::Frame { function } else { What::Named(format!("{kind} {at}").into()) },
        kind,
        status,
        reason: None,
        flags: SpanFlags::default(),
        stream: StreamId(2),
        substream: SubstreamId(0),
        depth: 3,
        start: SessionNs(1_000 * at + 7),
        end: Some(SessionNs(2_000 * at + 8)).filter(|_| status != SpanStatus::Open),
        is_named: false,
        more: None,
    }
}

/// All there is, or almost nothing.
fn more(at: usize, all: u64) -> More {
    let some = |value: u64| (all > 0).then_some(value);
    let stream = |value: u32| (all > 0).then_some(StreamId(value));
    More {
        key: some(u64::MAX - at as u64),
        created: some(3).map(SessionNs),
        creator: stream(1),
        origin: some(4).map(id),
        latency: some(4),
        suspended: 11 * all,
        suspensions: 2,
        threads: if all > 0 { vec![StreamId(2), StreamId(5), StreamId(u32::MAX)] } else { Vec::new() },
        end_stream: stream(5),
        queue: some(if at.is_multiple_of(2) { 9 } else { 10 }),
        group: some(12),
        joiner: stream(6),
        join_latency: some(13),
        ending: (all > 0).then(|| Ending::ALL[at % Ending::ALL.len()]),
        argument: some(14),
        result: some(u64::MAX),
        executor: some(16),
        resumer: stream(7),
        resumed_by: some(8).map(id),
        level: 1,
        resumed: some(15).map(SessionNs),
        cause: (all > 0).then(|| "agent:ring-full".into()),
    }
}

/// The row that a span should be.
fn row(span: &Span) -> Map<String, Value> {
    let (function, symbol, module) = match &span.what {
        What::Function(function) if function.index() == 4 => ("1:4".into(), None, Some("/bin/example")),
        What::Function(_) | What::Address(4116) => {
            ("foo::bar(int)".into(), Some("_ZN3foo3barEi"), Some("/bin/example"))
        }
        What::Address(address) => (format!("{address:#x}"), None, None),
        What::Named(name) => (name.to_string(), None, None),
        What::Unknown => ("?".into(), None, None),
    };
    let more = span.more.as_deref();
    let flags: Vec<_> = span.flags.names().collect();
    let threads = more.map(|more| more.threads.iter().map(|stream| stream.0).collect::<Vec<_>>());
    let row = json!({
        "id": span.id.to_string(), "kind": span.kind.name(), "runtime": span.kind.runtime().name(),
        "status": span.status.name(), "reason": span.reason.map(Reason::name), "function": function,
        "symbol": symbol, "module": module, "key": span.key(), "parent": span.parent.map(|id| id.to_string()),
        "twin": span.twin.map(|id| id.to_string()), "thread": span.stream.0,
        "task": Some(span.substream.0).filter(|task| *task > 0),
        "depth": Some(span.depth).filter(|_| span.kind == SpanKind::Frame), "start_ns": span.start.0,
        "end_ns": span.end.map(|end| end.0), "duration_ns": span.end.map(|end| end.0 - span.start.0),
        "flags": flags.join(","), "threads": threads.filter(|threads| !threads.is_empty()),
        "end_thread": more.and_then(|more| more.end_stream).map(|stream| stream.0),
        "created_ns": more.and_then(|more| more.created).map(|at| at.0),
        "latency_ns": more.and_then(|more| more.latency),
        "creator": more.and_then(|more| more.creator).map(|stream| stream.0),
        "origin": more.and_then(|more| more.origin).map(|id| id.to_string()),
        "suspended_ns": more.map(|more| more.suspended), "suspensions": more.map(|more| more.suspensions),
        "queue": more.and_then(|more| more.queue),
        "queue_label": more.and_then(|more| more.queue).filter(|queue| *queue == 9).map(|_| "com.example.ä"),
        "group": more.and_then(|more| more.group),
        "joiner": more.and_then(|more| more.joiner).map(|stream| stream.0),
        "join_latency_ns": more.and_then(|more| more.join_latency),
        "ending": more.and_then(|more| more.ending).map(Ending::name),
        "argument": more.and_then(|more| more.argument), "result": more.and_then(|more| more.result),
        "level": more.map(|more| more.level), "resumed_ns": more.and_then(|more| more.resumed).map(|at| at.0),
        "cause": more.and_then(|more| more.cause.as_deref()),
    });
    let mut row = row.as_object().cloned().expect("an object");
    let thread = Some((1002, "pool")).filter(|_| span.stream == StreamId(2));
    let others = json!({
        "tid": thread.map(|(tid, _)| tid), "thread_name": thread.map(|(_, name)| name),
        "executor": more.and_then(|more| more.executor),
        "resumer": more.and_then(|more| more.resumer).map(|stream| stream.0),
        "resumed_by": more.and_then(|more| more.resumed_by).map(|id| id.to_string()),
    });
    row.extend(others.as_object().cloned().expect("an object"));
    row
}

/// A session with these spans on disk, and where its table is.
fn written(folder: &Folder, spans: &[Span]) -> PathBuf {
    let session = session();
    let mut sink = DiskSink::open(DiskOptions::new(folder.path())).expect("it opens");
    sink.start(&session).expect("it starts");
    sink.spans(&session, spans).expect("it takes spans");
    // Those that are open are told again, as those that are.
    let open: Vec<_> = spans.iter().filter(|span| span.status == SpanStatus::Open).cloned().collect();
    sink.spans(&session, &open).expect("it takes spans");
    let end = EndEntry { how: "exited".into(), ..EndEntry::default() };
    sink.end(&session, &Ended { end, ..Ended::default() }).expect("it ends");
    sink.close().expect("it closes");
    folder.join(NAME).join("spans.parquet")
}

/// What a script prints, given a file.
fn run(python: PathBuf, script: &str, file: &PathBuf) -> Value {
    let output = Command::new(python).args(["-c", script]).arg(file).output().expect("python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

const READ: &str = "
import json, sys
import pyarrow.parquet as pq
table = pq.read_table(sys.argv[1])
print(json.dumps({
    'rows': table.to_pylist(),
    'types': {field.name: str(field.type) for field in table.schema},
    'metadata': {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()},
}))
";

#[test]
fn arrow_reads_every_column_of_every_kind_of_span() {
    let Some(python) = python_with(&["pyarrow"]) else { return };
    let (folder, spans) = (Folder::new("parquet"), spans());
    let read = run(python, READ, &written(&folder, &spans));
    let mut rows: Vec<_> = read["rows"].as_array().expect("rows").clone();
    let mut expected: Vec<_> = spans.iter().map(|span| Value::Object(row(span))).collect();
    let by_id = |row: &Value| row["id"].as_str().map(String::from);
    rows.sort_by_key(by_id);
    expected.sort_by_key(by_id);
    assert_eq!(rows.len(), expected.len());
    for (row, expected) in rows.iter().zip(&expected) {
        assert_eq!(row, expected);
    }
    for column in SPAN_COLUMNS {
        let arrow = match column.type_name() {
            "LIST of UINT32" => "list<element: uint32 not null>".into(),
            other => other.to_lowercase(),
        };
        assert_eq!(read["types"][column.name], arrow, "{}", column.name);
    }
    let metadata = &read["metadata"];
    assert_eq!((&metadata["clock_zero_ns"], &metadata["session"]), (&json!("5000000"), &json!("07".repeat(16))));
    assert_eq!(metadata["epoch_unix_ns"], json!("1700000000000000000"));
    assert!(!fs::exists(folder.join(NAME).join("spans.parquet.partial")).expect("it can be looked at"));
}

const QUERY: &str = "
import json, sys
import duckdb
rows = duckdb.sql(f'''
    SELECT kind, count(*), sum(end_ns - start_ns - duration_ns), max(queue_label)
    FROM '{sys.argv[1]}'
    WHERE list_contains(threads, 5) AND flags NOT LIKE '%sync%' AND status != 'open'
    GROUP BY kind ORDER BY kind
''').fetchall()
print(json.dumps([[kind, count, int(rest), label] for kind, count, rest, label in rows]))
";

#[test]
fn a_query_finds_spans_by_thread_and_flag() {
    let Some(python) = python_with(&["duckdb"]) else { return };
    let (folder, spans) = (Folder::new("parquet-sql"), spans());
    let read = run(python, QUERY, &written(&folder, &spans));
    let matches = |span: &&Span| {
        let threads = span.more.as_ref().is_some_and(|more| more.threads.contains(&StreamId(5)));
        threads && !span.flags.has(SpanFlags::SYNC) && span.status != SpanStatus::Open
    };
    let mut expected: Vec<(&str, u64)> = Vec::new();
    let mut kinds: Vec<_> = spans.iter().filter(matches).map(|span| span.kind.name()).collect();
    kinds.sort_unstable();
    for kind in kinds {
        match expected.last_mut() {
            Some((last, count)) if *last == kind => *count += 1,
            _ => expected.push((kind, 1)),
        }
    }
    let rows = read.as_array().expect("rows");
    let found: Vec<_> =
        rows.iter().map(|row| (row[0].as_str().expect("a kind"), row[1].as_u64().expect("a count"))).collect();
    assert_eq!(found, expected);
    assert!(rows.iter().all(|row| row[2] == 0), "{read}");
    assert!(rows.iter().any(|row| row[3] == "com.example.ä"), "{read}");
}

const LOCKS: &str = "
import json, sys
import duckdb
rows = duckdb.sql(f'''
    SELECT arg0, arg5, arg6, tid, thread_name FROM '{sys.argv[1]}' WHERE function = 'work' ORDER BY start_ns
''').fetchall()
print(json.dumps(rows))
";

/// Which lock, and on which thread: the registers of frames, and who they are of.
#[test]
fn the_arguments_of_frames_are_exported_on_demand() {
    let (folder, session) = ingested("parquet-registers", &Packets::program(50_000));
    let (plain, with) = (folder.join("plain.parquet"), folder.join("with.parquet"));
    let export = |format: &str, file: &Path, more: &[&str]| {
        let file = file.display().to_string();
        run_on("export", &session, &[&["--format", format, "-o", &file], more].concat())
    };
    export("parquet", &plain, &[]).success();
    export("parquet", &with, &["--registers"]).success();
    let has = |file: &Path| fs::read(file).expect("it was written").windows(4).any(|window| window == b"arg5");
    assert_eq!((has(&plain), has(&with)), (false, true));
    let wrong = export("chrome", &with.with_extension("json"), &["--registers"]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
    let Some(python) = python_with(&["duckdb"]) else { return };
    let work = |tid: u64, name: &str| json!([0, 5, null, tid, name]);
    assert_eq!(run(python, LOCKS, &with), json!([work(100, "main"), work(100, "main"), work(101, "worker")]));
}
