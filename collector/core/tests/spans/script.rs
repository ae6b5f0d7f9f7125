//! Events as the agent tells them, written down, and what an engine makes of them.

use std::collections::HashMap;

use codec::{
    Counter, EventKind, FunctionId, ModuleId, Position, SessionNs, StreamId, SubstreamId,
    atf::{FunctionEntry, Manifest, ModuleEntry},
    heph::{Attribute, Attributes, Event, Stamp, Value},
    profile::{
        Detail, FunctionEvent, Key, Limit, Limits, Message, ProfileOption, Progress, Runtime, RuntimeEvent,
        StreamPosition, Thread,
    },
    span::{More, Span, SpanFlags, SpanId, SpanKind, SpanStatus, What},
};
use collector_core::{
    Catalog,
    spans::{Engine, Finish, SpanConfig, SpanCounts},
};

/// The module of the program's own functions, and of the library that runs tasks.
pub(crate) const PROGRAM: ModuleId = ModuleId(1);
pub(crate) const LIBRARY: ModuleId = ModuleId(2);

/// How much room each of them has.
const MODULE_BYTES: u64 = 0x1000;

/// One thing that an engine is told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    Event(Told),
    Gap { stream: u32, first: u64, count: u64 },
    EntryOnly { detail: String },
    Thread { stream: u32, start: u64, end: Option<u64>, creator: Option<u32> },
    Progress { now: u64, streams: Vec<(u32, u64)> },
    Settle(u64),
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Told {
    pub(crate) stream: u32,
    pub(crate) position: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) substream: u64,
    pub(crate) body: Body,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Body {
    Function { kind: EventKind, function: FunctionId, depth: u32, arguments: Option<[u64; 6]> },
    Runtime { function: &'static str, phase: EventKind, keys: Vec<(Key, u64)> },
    Plain(&'static str),
}

/// The functions of a made-up program.
#[derive(Debug, Clone, Default)]
pub(crate) struct Functions(Vec<(ModuleId, &'static str)>);

impl Functions {
    /// The function with this name, made if there is none. Those of the library have its names, or start with `lib:`.
    pub(crate) fn id(&mut self, name: &'static str) -> FunctionId {
        let is_library = Runtime::of(name).is_some();
        let module = if is_library { LIBRARY } else { PROGRAM };
        let (module, name) = name.strip_prefix("lib:").map_or((module, name), |name| (LIBRARY, name));
        let place = self.0.iter().position(|known| *known == (module, name)).unwrap_or_else(|| {
            self.0.push((module, name));
            self.0.len() - 1
        });
        FunctionId::new(module, place as u32)
    }

    pub(crate) fn address(&mut self, name: &'static str) -> u64 {
        let id = self.id(name);
        base(id.module()) + u64::from(id.index())
    }

    pub(crate) fn name(&self, function: FunctionId) -> Option<&'static str> {
        self.0.get(function.index() as usize).map(|(_, name)| *name)
    }

    /// What a session would know of them. Each takes one byte.
    pub(crate) fn catalog(&self) -> Catalog {
        let module = |(id, path): (ModuleId, &str)| ModuleEntry {
            id: id.0,
            path: path.into(),
            base: base(id),
            size: MODULE_BYTES,
            ..ModuleEntry::default()
        };
        let function = |(index, (module, name)): (u32, &(ModuleId, &str))| FunctionEntry {
            id: FunctionId::new(*module, index).0,
            offset: index.into(),
            name: (*name).into(),
            ..FunctionEntry::default()
        };
        Catalog::from_manifest(&Manifest {
            modules: [(PROGRAM, "/usr/bin/program"), (LIBRARY, "/usr/lib/libswift_Concurrency.so")].map(module).into(),
            functions: (0..).zip(&self.0).map(function).collect(),
            ..Manifest::default()
        })
    }
}

fn base(module: ModuleId) -> u64 {
    u64::from(module.0) * MODULE_BYTES
}

/// A frame that the made-up program has entered and not left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    pub(crate) function: FunctionId,
    pub(crate) start: u64,
    pub(crate) depth: u32,
}

/// An execution as it is written down.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script {
    pub(crate) steps: Vec<Step>,
    pub(crate) functions: Functions,
    next: HashMap<u32, u64>,
    stacks: HashMap<u32, Vec<Open>>,
    pub(crate) substreams: HashMap<u32, u64>,
}

impl Script {
    fn told(&mut self, stream: u32, (start, end): (u64, u64), body: Body) -> u64 {
        let next = self.next.entry(stream).or_default();
        let position = *next;
        *next += 1;
        let substream = self.substreams.get(&stream).copied().unwrap_or(0);
        self.steps.push(Step::Event(Told { stream, position, start, end, substream, body }));
        position
    }

    pub(crate) fn function(
        &mut self,
        stream: u32,
        kind: EventKind,
        times: (u64, u64),
        function: FunctionId,
        depth: u32,
    ) -> u64 {
        self.told(stream, times, Body::Function { kind, function, depth, arguments: None })
    }

    pub(crate) fn stack(&mut self, stream: u32) -> &mut Vec<Open> {
        self.stacks.entry(stream).or_default()
    }

    /// A function is entered.
    pub(crate) fn call(&mut self, stream: u32, at: u64, name: &'static str) -> SpanId {
        self.call_with(stream, at, name, None)
    }

    pub(crate) fn call_with(
        &mut self,
        stream: u32,
        at: u64,
        name: &'static str,
        arguments: Option<[u64; 6]>,
    ) -> SpanId {
        let function = self.functions.id(name);
        let depth = self.stack(stream).last().map_or(0, |top| top.depth + 1);
        self.stack(stream).push(Open { function, start: at, depth });
        let body = Body::Function { kind: EventKind::Call, function, depth, arguments };
        let position = self.told(stream, (at, at), body);
        SpanId::new(StreamId(stream), Position(position))
    }

    /// A function is entered of which only that is watched.
    pub(crate) fn probe(&mut self, stream: u32, at: u64, name: &'static str) -> SpanId {
        let id = self.call(stream, at, name);
        self.stack(stream).pop();
        id
    }

    /// From the start it is known that only the entry of this function is watched.
    pub(crate) fn entry_only(&mut self, name: &'static str) {
        let detail = format!("functions {}", self.functions.id(name).index());
        self.steps.insert(0, Step::EntryOnly { detail });
    }

    /// The innermost function jumps to another.
    pub(crate) fn tail_call(&mut self, stream: u32, at: u64, name: &'static str) -> SpanId {
        self.stack(stream).pop().expect("a frame");
        self.call(stream, at, name)
    }

    fn leave(&mut self, stream: u32, at: u64, kind: EventKind) {
        let Open { function, start, depth } = self.stack(stream).pop().expect("a frame");
        self.function(stream, kind, (start, at), function, depth);
    }

    /// The innermost function returns.
    pub(crate) fn ret(&mut self, stream: u32, at: u64) {
        self.leave(stream, at, EventKind::Return);
    }

    /// The innermost function is left without returning.
    pub(crate) fn unwind(&mut self, stream: u32, at: u64) {
        self.leave(stream, at, EventKind::Exception);
    }

    /// What the thread has on its stack from here on is another stack. Returns what it had.
    pub(crate) fn other_stack(&mut self, stream: u32, other: Vec<Open>) -> Vec<Open> {
        std::mem::replace(self.stack(stream), other)
    }

    /// A function of a runtime is entered.
    pub(crate) fn runtime(&mut self, stream: u32, at: u64, function: &'static str, keys: &[(Key, u64)]) -> SpanId {
        let body = Body::Runtime { function, phase: EventKind::Call, keys: keys.into() };
        SpanId::new(StreamId(stream), Position(self.told(stream, (at, at), body)))
    }

    /// A function of a runtime is left that was entered at `start`.
    pub(crate) fn runtime_left(
        &mut self,
        stream: u32,
        (start, end): (u64, u64),
        function: &'static str,
        phase: EventKind,
        keys: &[(Key, u64)],
    ) {
        self.told(stream, (start, end), Body::Runtime { function, phase, keys: keys.into() });
    }

    pub(crate) fn plain(&mut self, stream: u32, times: (u64, u64), name: &'static str) -> SpanId {
        SpanId::new(StreamId(stream), Position(self.told(stream, times, Body::Plain(name))))
    }

    /// A function of the library that only calls: its frame and what is told of it.
    pub(crate) fn tells(&mut self, stream: u32, at: u64, function: &'static str, keys: &[(Key, u64)]) -> SpanId {
        self.call(stream, at, function);
        let id = self.runtime(stream, at, function, keys);
        self.ret(stream, at + 1);
        id
    }

    /// The same, of a function of the library that is left with something to tell.
    pub(crate) fn tells_both(
        &mut self,
        stream: u32,
        (at, end): (u64, u64),
        function: &'static str,
        keys: &[(Key, u64)],
        more: &[(Key, u64)],
    ) -> SpanId {
        self.call(stream, at, function);
        let id = self.runtime(stream, at, function, keys);
        self.runtime_left(stream, (at, end), function, EventKind::Return, more);
        self.ret(stream, end);
        id
    }

    /// A function that a runtime runs is entered: the frame, then what the runtime tells.
    pub(crate) fn runs(
        &mut self,
        stream: u32,
        at: u64,
        name: &'static str,
        function: &'static str,
        keys: &[(Key, u64)],
    ) -> SpanId {
        self.call(stream, at, name);
        self.runtime(stream, at, function, keys)
    }

    /// It is left again.
    pub(crate) fn ran(&mut self, stream: u32, at: u64, function: &'static str, phase: EventKind, keys: &[(Key, u64)]) {
        let start = self.stack(stream).last().expect("a frame").start;
        self.runtime_left(stream, (start, at), function, phase, keys);
        self.leave(stream, at, phase);
    }

    /// Events are missing from here on: as many as `lost` writes down.
    pub(crate) fn lose(&mut self, stream: u32, lost: impl FnOnce(&mut Self)) {
        let (first, before) = (self.next.get(&stream).copied().unwrap_or(0), self.steps.len());
        lost(self);
        let all = self.steps.split_off(before);
        let count = all.len() as u64;
        let is_lost = |step: &Step| matches!(step, Step::Event(told) if told.stream == stream);
        assert!(all.iter().all(is_lost), "only events of that stream are lost");
        self.steps.push(Step::Gap { stream, first, count });
    }

    pub(crate) fn play(&self, finish: Finish) -> Spans {
        play(&self.steps, &self.functions, SpanConfig::default(), finish)
    }

    pub(crate) fn play_with(&self, config: SpanConfig, finish: Finish) -> Spans {
        play(&self.steps, &self.functions, config, finish)
    }
}

/// Tells an engine all of it.
pub(crate) fn play(steps: &[Step], functions: &Functions, config: SpanConfig, finish: Finish) -> Spans {
    let mut engine = Engine::new(config);
    let mut spans = Spans { functions: functions.clone(), ..Spans::default() };
    let catalog = functions.catalog();
    for step in steps {
        tell(&mut engine, step, &catalog);
        spans.most_open = spans.most_open.max(engine.counts().open);
        for span in engine.spans().drain(..) {
            let into = if is_notice(&span) { &mut spans.notices } else { &mut spans.all };
            into.push(span);
        }
    }
    engine.finish(finish, None);
    spans.all.append(engine.spans());
    spans.counts = engine.counts();
    spans
}

/// Before the end, only gaps are open for good.
fn is_notice(span: &Span) -> bool {
    span.status == SpanStatus::Open && span.kind != SpanKind::Gap
}

pub(crate) fn tell(engine: &mut Engine, step: &Step, catalog: &Catalog) {
    match step {
        Step::Event(told) => told.tell(engine, catalog),
        Step::Gap { stream, first, count } => engine.gap(StreamId(*stream), Position(*first), *count, "link:lost"),
        Step::EntryOnly { detail } => {
            let limit = Limit { module: PROGRAM, count: 1, reason: "entry-only", detail };
            engine.option(&ProfileOption::Limits(Limits { limits: (&[limit]).into() }));
        }
        Step::Thread { stream, start, end, creator } => engine.option(&ProfileOption::Thread(Thread {
            stream: StreamId(*stream),
            os_id: u64::from(*stream),
            start: SessionNs(*start),
            end: end.map(SessionNs),
            creator: creator.map(StreamId),
            name: "",
        })),
        Step::Progress { now, streams } => {
            let at = |(stream, next): &(u32, u64)| StreamPosition { stream: StreamId(*stream), next: Position(*next) };
            let streams: Vec<StreamPosition> = streams.iter().map(at).collect();
            let progress = Progress { now: SessionNs(*now), streams: streams.as_slice().into() };
            engine.option(&ProfileOption::Progress(progress));
        }
        Step::Settle(until) => engine.settle(SessionNs(*until)),
    }
}

impl Told {
    fn tell(&self, engine: &mut Engine, catalog: &Catalog) {
        let stamp = Stamp {
            stream: StreamId(self.stream),
            counter: Counter(self.position as u32),
            substream: SubstreamId(self.substream),
            start: SessionNs(self.start),
            end: SessionNs(self.end),
        };
        let mut send = |message: &Message<'_>| {
            engine.event(StreamId(self.stream), Position(self.position), message, catalog);
        };
        match &self.body {
            Body::Function { kind, function, depth, arguments } => {
                let mut words = [0; 11];
                if let Some(arguments) = arguments {
                    words[..6].copy_from_slice(arguments);
                }
                let detail = arguments.is_some().then(|| Detail::new(&words, &[]));
                let (kind, function, depth) = (*kind, Some(*function), *depth);
                let extra = Attributes::default();
                send(&Message::Function(FunctionEvent { stamp, kind, function, ip: None, depth, detail, extra }));
            }
            Body::Runtime { function, phase, keys } => {
                let attribute = |(key, value): &(Key, u64)| Attribute { name: key.name(), value: Value::U64(*value) };
                let keys: Vec<Attribute<'_>> = keys.iter().map(attribute).collect();
                let keys = Attributes::from(keys.as_slice());
                send(&Message::Runtime(RuntimeEvent { stamp, function, phase: *phase, keys }));
            }
            Body::Plain(description) => {
                send(&Message::Event(Event { stamp, description, attributes: Attributes::default() }));
            }
        }
    }
}

/// What an engine made.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    /// Those that are final.
    pub(crate) all: Vec<Span>,
    /// Those that were reported open.
    pub(crate) notices: Vec<Span>,
    pub(crate) counts: SpanCounts,
    pub(crate) most_open: u64,
    functions: Functions,
}

impl Spans {
    pub(crate) fn of(&self, kind: SpanKind) -> Vec<&Span> {
        let mut all: Vec<&Span> = self.all.iter().filter(|span| span.kind == kind).collect();
        all.sort_by_key(|span| (span.start, span.id));
        all
    }

    /// The only one of its kind.
    pub(crate) fn one(&self, kind: SpanKind) -> &Span {
        let all = self.of(kind);
        assert_eq!(all.len(), 1, "{all:#?}");
        all[0]
    }

    /// The only frame of this function.
    pub(crate) fn frame(&self, name: &str) -> &Span {
        let of = |span: &&Span| match &span.what {
            What::Function(function) => self.functions.name(*function) == Some(name),
            _ => false,
        };
        let all: Vec<&Span> = self.of(SpanKind::Frame).into_iter().filter(of).collect();
        assert_eq!(all.len(), 1, "{name}: {all:#?}");
        all[0]
    }

    pub(crate) fn get(&self, id: SpanId) -> &Span {
        let all: Vec<&Span> = self.all.iter().filter(|span| span.id == id).collect();
        assert_eq!(all.len(), 1, "{id}: {all:#?}");
        all[0]
    }

    /// The name of what ran.
    pub(crate) fn name<'a>(&'a self, span: &'a Span) -> &'a str {
        match &span.what {
            What::Function(function) => self.functions.name(*function).expect("a name"),
            What::Named(name) => name,
            What::Address(_) => "an address",
            What::Unknown => "unknown",
        }
    }
}

/// Start and end.
pub(crate) fn times(span: &Span) -> (u64, Option<u64>) {
    (span.start.0, span.end.map(|end| end.0))
}

/// What is known of it beside what is known of every span.
#[track_caller]
pub(crate) fn more(span: &Span) -> &More {
    span.more.as_ref().expect("more")
}

pub(crate) fn has(span: &Span, flags: SpanFlags) -> bool {
    span.flags.has(flags)
}
