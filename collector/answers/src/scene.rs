//! What tests have: a session that is written to disk, frames, and numbers.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use codec::{
    ClockKind, FunctionId, Position, SessionNs, StreamId,
    atf::EndEntry,
    heph::{Encode, Event, Stamp},
    profile::{Clock, FunctionEvent, Message, ProfileOption, RuntimeEvent},
    span::{Span, SpanId, SpanKind, What},
};
use sinks::{Batch, Catalog, CatalogLimits, DiskOptions, DiskSink, Ended, Gap, Run, Session, Sink};

/// A directory that is removed in the end.
pub(crate) struct Scene {
    dir: PathBuf,
    pub(crate) sink: DiskSink,
    pub(crate) session: Arc<Session>,
    next: BTreeMap<u32, u64>,
    /// The packets of every stream, and its gaps between them, as texts.
    pub(crate) sent: BTreeMap<u32, Vec<Vec<u8>>>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// What the clock showed at the session's zero.
pub(crate) const ZERO_NS: u64 = 1_000_000;

impl Scene {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("spoor-scan-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let mut sink = DiskSink::open(DiskOptions::new(&dir)).expect("made");
        let mut catalog = Catalog::new(CatalogLimits::default(), Arc::new(AtomicU64::new(0)));
        catalog.apply(&ProfileOption::Clock(Clock { clock: ClockKind::Boottime, zero_ns: ZERO_NS }));
        let session = Arc::new(Session::new("s".into(), None, String::new(), 0, catalog));
        sink.start(&session).expect("started");
        Self { dir, sink, session, next: BTreeMap::new(), sent: BTreeMap::new() }
    }

    /// Sends an event; its counter is set here.
    pub(crate) fn send(&mut self, stream: u32, message: Message<'_>) {
        let next = self.next.entry(stream).or_default();
        let stamped = |stamp: Stamp| Stamp { stream: StreamId(stream), counter: Position(*next).counter(), ..stamp };
        let message = match message {
            Message::Function(event) => Message::Function(FunctionEvent { stamp: stamped(event.stamp), ..event }),
            Message::Runtime(event) => Message::Runtime(RuntimeEvent { stamp: stamped(event.stamp), ..event }),
            Message::Event(event) => Message::Event(Event { stamp: stamped(event.stamp), ..event }),
            other => other,
        };
        let mut packet = Vec::new();
        message.encode(&mut packet).expect("it fits");
        let bytes = u32::try_from(packet.len()).expect("small");
        let run = Run { stream: StreamId(stream), first: Position(*next), events: 1, bytes, skip: 0 };
        *next += 1;
        self.sent.entry(stream).or_default().push(packet.clone());
        let batch = Batch { session: Arc::clone(&self.session), bytes: packet.into(), runs: vec![run] };
        self.sink.events(&Arc::new(batch)).expect("written");
    }

    pub(crate) fn lose(&mut self, stream: u32, count: u64) {
        let next = self.next.entry(stream).or_default();
        let gap = Gap { stream: StreamId(stream), first: Position(*next), count, cause: "network".into() };
        self.sent.entry(stream).or_default().push(format!("gap {next} {count}").into_bytes());
        *next += count;
        self.sink.gap(&self.session, &gap).expect("written");
    }

    pub(crate) fn end(&mut self) {
        let end = EndEntry { how: "exited".into(), code: Some(0), ..EndEntry::default() };
        self.sink.end(&self.session, &Ended { end, limits: Vec::new() }).expect("written");
        self.sink.close().expect("written");
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.dir.join("s")
    }
}

/// Numbers that are the same each time.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A frame of thread 0, in the one with the number of its parent.
pub(crate) fn frame(id: u64, parent: Option<u64>, function: u64, start: u64, end: u64) -> Span {
    let number = |position: u64| SpanId::new(StreamId(0), Position(position));
    Span {
        parent: parent.map(number),
        what: What::Function(FunctionId(function)),
        ..Span::new(number(id), SpanKind::Frame, SessionNs(start), Some(SessionNs(end)))
    }
}
