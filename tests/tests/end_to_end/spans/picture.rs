//! A session with spans of every kind, as the sinks that make pictures are told of it.

use std::sync::Arc;

use codec::{
    FunctionId, ModuleId, Position, SessionNs, StreamId, SubstreamId,
    atf::{FunctionEntry, Manifest, ModuleEntry, ProcessEntry, QueueEntry, ThreadEntry},
    span::{More, Reason, Span, SpanFlags, SpanId, SpanKind, SpanStatus, What},
};
use sinks::{Catalog, Ended, Session, Sink};

/// The session's zero by its clock.
pub(crate) const ZERO_NS: u64 = 1_000_000_000_000;

/// The main thread, one that it creates, and one of a pool.
const MAIN: u32 = 0;
const WORKER: u32 = 1;
const POOL: u32 = 2;

/// The functions, by their index in the table.
const FUNCTIONS: &[&str] = &["main", "_ZN4demo4workEi", "leaf", "coroutine", "routine", "run \"quoted\""];

fn session() -> Arc<Session> {
    let process = ProcessEntry {
        pid: 4242,
        executable: "/usr/bin/demo".into(),
        arguments: vec!["--fast".into()],
        argument_count: 1,
        ..ProcessEntry::default()
    };
    let threads = [(MAIN, "main"), (WORKER, "worker"), (POOL, "pool")].map(|(id, name)| ThreadEntry {
        id,
        os_id: Some(4242 + u64::from(id)),
        name: Some(name.into()),
        ..ThreadEntry::default()
    });
    let functions = (0..).zip(FUNCTIONS).map(|(index, name)| FunctionEntry {
        id: FunctionId::new(ModuleId(1), index).0,
        offset: 8,
        name: (*name).into(),
        ..FunctionEntry::default()
    });
    let manifest = Manifest {
        process: Some(process),
        clock: Some("boottime".into()),
        clock_zero_ns: Some(ZERO_NS),
        epoch_unix_ns: Some(1_700_000_000_000_000_000),
        threads: threads.into(),
        modules: vec![ModuleEntry { id: 1, base: 0x1000, size: 0x1000, ..ModuleEntry::default() }],
        functions: functions.collect(),
        queues: vec![QueueEntry { id: 0x77, label: "com.demo.queue".into(), ..QueueEntry::default() }],
        ..Manifest::default()
    };
    let catalog = Catalog::from_manifest(&manifest);
    Arc::new(Session::new("demo".into(), None, String::new(), 0, catalog))
}

fn id(stream: u32, position: u64) -> SpanId {
    SpanId::new(StreamId(stream), Position(position))
}

/// A span that nothing called, of a stream, beginning with the event at this position.
fn span(kind: SpanKind, stream: u32, position: u64, start: u64, end: u64) -> Span {
    Span::new(id(stream, position), kind, SessionNs(start), Some(SessionNs(end)))
}

/// A function of a stream that another called.
fn frame(function: u32, stream: u32, position: u64, parent: Option<u64>, start: u64, end: u64) -> Span {
    let what = What::Function(FunctionId::new(ModuleId(1), function));
    let parent = parent.map(|parent| id(stream, parent));
    Span { parent, what, ..span(SpanKind::Frame, stream, position, start, end) }
}

/// Something that another thread caused, with a key.
fn caused(of: Span, name: &str, key: u64, creator: u32, created: u64) -> Span {
    let latency = of.start.0 - created;
    let more = More {
        key: Some(key),
        created: Some(SessionNs(created)),
        creator: Some(StreamId(creator)),
        latency: Some(latency),
        ..More::default()
    };
    let flags = of.flags.with(SpanFlags::CROSS_THREAD, true);
    Span { what: What::Named(name.into()), flags, more: Some(Box::new(more)), ..of }
}

fn with(mut span: Span, change: impl FnOnce(&mut Span, &mut More)) -> Span {
    let mut more = span.more.take().unwrap_or_default();
    change(&mut span, &mut more);
    Span { more: Some(more), ..span }
}

/// All spans, in the order in which they close.
fn spans() -> Vec<Span> {
    let (main, work, leaf, coroutine, routine) = (0, 1, 2, 3, 4);
    let task = id(MAIN, 20);
    let in_task = |span: Span| Span { parent: Some(task), substream: SubstreamId(0xabc), ..span };
    vec![
        // Equal times and no time at all: `work` begins with `main`, and the first `leaf` with both.
        frame(leaf, MAIN, 2, Some(1), 1000, 1000),
        frame(leaf, MAIN, 3, Some(1), 1000, 1000),
        frame(leaf, MAIN, 4, Some(1), 2000, 3000),
        frame(leaf, MAIN, 5, Some(1), 3000, 3000),
        frame(leaf, MAIN, 6, Some(1), 3000, 4000),
        Span { status: SpanStatus::Open, end: None, ..frame(work, MAIN, 1, Some(0), 1000, 0) },
        frame(work, MAIN, 1, Some(0), 1000, 50_000),
        // A block each on two threads, at the same time on the same queue.
        with(caused(span(SpanKind::Block, WORKER, 30, 12_000, 18_000), "one block", 0xb1, MAIN, 11_000), |_, more| {
            more.queue = Some(0x77);
        }),
        with(
            caused(span(SpanKind::Block, POOL, 30, 13_000, 19_000), "another block", 0xb2, MAIN, 11_500),
            |_, more| {
                more.queue = Some(0x77);
                more.group = Some(0x99);
            },
        ),
        with(span(SpanKind::Group, MAIN, 12, 11_500, 19_000), |_, more| more.key = Some(0x99)),
        with(Span { what: What::Named("gap".into()), ..span(SpanKind::Gap, WORKER, 40, 20_000, 30_000) }, |_, more| {
            more.key = Some(12);
            more.cause = Some("network".into());
        }),
        // A task in two turns, on two threads, suspended between them.
        in_task(with(span(SpanKind::Job, WORKER, 50, 31_000, 35_000), |span, more| {
            (span.what, more.key) = (What::Named("first turn".into()), Some(0x1abc));
        })),
        // It began when the turn had not ended.
        in_task(with(span(SpanKind::Suspension, WORKER, 52, 34_500, 40_000), |_, more| {
            more.key = Some(0xc0);
            more.end_stream = Some(StreamId(POOL));
        })),
        in_task(Span { what: What::Named("second turn".into()), ..span(SpanKind::Job, POOL, 50, 40_000, 45_000) }),
        with(caused(span(SpanKind::Task, MAIN, 20, 31_000, 45_000), "a task", 0xabc, MAIN, 30_500), |span, more| {
            span.stream = StreamId(WORKER);
            (more.suspended, more.suspensions) = (5000, 1);
        }),
        caused(span(SpanKind::Callback, POOL, 60, 46_000, 47_000), "a callback", 0xcb, MAIN, 3500),
        Span { what: What::Named("an event".into()), ..span(SpanKind::Event, POOL, 70, 48_000, 49_000) },
        frame(routine, WORKER, 0, None, 6000, 90_000),
        with(caused(span(SpanKind::Thread, MAIN, 8, 6000, 90_000), "routine", 0xf00, MAIN, 5000), |span, more| {
            (span.stream, span.twin) = (StreamId(WORKER), Some(id(WORKER, 0)));
            (more.joiner, more.join_latency) = (Some(StreamId(MAIN)), Some(400));
        }),
        // Ends with its caller.
        frame(work, MAIN, 9, Some(0), 50_000, 100_000),
        frame(main, MAIN, 0, None, 1000, 100_000),
        // On another stack of the main thread: lies across what was called there.
        frame(coroutine, MAIN, 10, None, 60_500, 120_000),
        Span {
            status: SpanStatus::Unmatched,
            reason: Some(Reason::TailCall),
            ..frame(5, POOL, 80, Some(79), 110_000, 115_000)
        },
        // Never ends.
        Span { status: SpanStatus::Open, end: None, ..frame(work, POOL, 79, None, 105_000, 0) },
    ]
}

/// Tells a sink of the whole session.
pub(crate) fn tell(sink: &mut dyn Sink) {
    let session = session();
    sink.start(&session).expect("it starts");
    for part in spans().chunks(5) {
        sink.spans(&session, part).expect("it takes spans");
        sink.flush().expect("it is written");
    }
    sink.end(&session, &Ended::default()).expect("it ends");
    sink.close().expect("it closes");
}

/// The frames and events of the threads, by the time they start: thread, name, start, duration and depth. The coroutine
/// lies on a track of its own.
pub(crate) const FRAMES: [(&str, &str, u64, u64, u32); 13] = [
    ("main", "main", 1000, 99_000, 0),
    ("main", "demo::work(int)", 1000, 49_000, 1),
    ("main", "leaf", 1000, 0, 2),
    ("main", "leaf", 1000, 0, 2),
    ("main", "leaf", 2000, 1000, 2),
    ("main", "leaf", 3000, 0, 2),
    ("main", "leaf", 3000, 1000, 2),
    ("worker", "routine", 6000, 84_000, 0),
    ("pool", "an event", 48_000, 1000, 0),
    ("main", "demo::work(int)", 50_000, 50_000, 1),
    ("main", "coroutine", 60_500, 59_500, 0),
    ("pool", "demo::work(int)", 105_000, 15_000, 0),
    ("pool", "run \"quoted\"", 110_000, 5000, 1),
];
