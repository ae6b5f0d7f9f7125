//! A directory of small sessions.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use codec::{
    ClockKind, EventKind, FunctionId, ModuleId, Position, SessionNs, StreamId, SubstreamId,
    atf::EndEntry,
    heph::{Attributes, Encode, Stamp},
    profile::{Clock, FunctionEvent, FunctionName, Functions, Message, Module, ProfileOption},
};
use sinks::{Batch, Catalog, CatalogLimits, DiskOptions, DiskSink, Ended, Gap, Run, Session, Sink};

/// A name that would be markup.
pub(super) const HOSTILE: &str = "<img src=x onerror=alert(1)>";

const MODULE: ModuleId = ModuleId(1);

/// A directory that is removed in the end.
pub(super) struct Scene {
    pub(super) dir: PathBuf,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Scene {
    /// Sessions with these names: `main` calls `leaf` three times, and the hostile one, and then three events are missing.
    pub(super) fn new(sessions: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("spoor-view-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("made");
        let scene = Self { dir };
        sessions.iter().for_each(|name| scene.record(name));
        scene
    }

    fn record(&self, name: &str) {
        let mut sink = DiskSink::open(DiskOptions::new(&self.dir)).expect("made");
        let mut catalog = Catalog::new(CatalogLimits::default(), Arc::new(AtomicU64::new(0)));
        catalog.apply(&ProfileOption::Clock(Clock { clock: ClockKind::Boottime, zero_ns: 1_000_000 }));
        catalog.apply(&ProfileOption::Module(Module {
            id: MODULE,
            base: 0x1000,
            size: 0x1000,
            loaded: SessionNs(0),
            unloaded: None,
            function_count: 3,
            table_hash: 0,
            build_id: &[],
            path: "/bin/<b>demo</b>",
        }));
        let functions = [("main", 0), ("leaf", 16), (HOSTILE, 32)].map(|(name, offset)| FunctionName { offset, name });
        catalog.apply(&ProfileOption::Functions(Functions {
            module: MODULE,
            first_index: 0,
            functions: (&functions).into(),
        }));
        let session = Arc::new(Session::new(name.into(), None, String::new(), 0, catalog));
        sink.start(&session).expect("started");
        let calls = [(1, 200, 210), (1, 300, 310), (1, 400, 450), (2, 500, 600)];
        let mut events = vec![(EventKind::Call, 0, 100, 100, 0)];
        for (function, start, end) in calls {
            events.push((EventKind::Call, function, start, start, 1));
            events.push((EventKind::Return, function, start, end, 1));
        }
        events.extend([(EventKind::Call, 1, 700, 700, 1), (EventKind::Return, 0, 100, 1100, 0)]);
        let mut position = 0;
        for (kind, function, start, end, depth) in events {
            if end == 1100 {
                let (stream, first) = (StreamId(0), Position(position));
                sink.gap(&session, &Gap { stream, first, count: 3, cause: "network".into() }).expect("written");
                position += 3;
            }
            let (start, end, substream) = (SessionNs(start), SessionNs(end), SubstreamId(0));
            let stamp = Stamp { stream: StreamId(0), counter: Position(position).counter(), substream, start, end };
            let function = Some(FunctionId::new(MODULE, function));
            let (detail, extra) = (None, Attributes::default());
            let event = FunctionEvent { stamp, kind, function, ip: None, depth, detail, extra };
            let mut packet = Vec::new();
            Message::Function(event).encode(&mut packet).expect("it fits");
            let bytes = u32::try_from(packet.len()).expect("small");
            let run = Run { stream: StreamId(0), first: Position(position), events: 1, bytes, skip: 0 };
            position += 1;
            let batch = Batch { session: Arc::clone(&session), bytes: packet.into(), runs: vec![run] };
            sink.events(&Arc::new(batch)).expect("written");
        }
        let end = EndEntry { how: "exited".into(), code: Some(0), ..EndEntry::default() };
        sink.end(&session, &Ended { end, limits: Vec::new() }).expect("written");
        sink.close().expect("written");
    }
}
