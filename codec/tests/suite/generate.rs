//! Arbitrary values of every kind.
//!
//! Values borrow, so what they borrow is leaked: a test makes a few thousand of them.

use codec::{
    Arch, ClockKind, ClockNs, Counter, EventKind, FunctionId, ModuleId, Os, Position, SessionId, SessionNs, StreamId,
    SubstreamId,
    atf::{
        Context, DetailBody, EndEntry, FunctionDetail, FunctionEntry, GapEntry, IndexEvent, Keys, LimitEntry, Manifest,
        ModuleEntry, ProcessEntry, QueueEntry, ThreadEntry,
    },
    heph::{Attribute, Attributes, Event, List, Metadata, Stamp, Value},
    profile::{
        Ack, Clock, Detail, Dropped, Drops, End, EndReason, Epoch, Fingerprint, FunctionEvent, FunctionName, Functions,
        Known, Limit, Limits, MAX_STACK_WORDS, Message, Module, Nack, ProfileOption, Progress, Queue, Range, Registers,
        RuntimeEvent, Session, StreamPosition, Thread,
    },
};
use quickcheck::{Arbitrary, Gen};

/// Any message.
#[derive(Debug, Clone)]
pub(crate) struct AnyMessage(pub(crate) Message<'static>);

impl Arbitrary for AnyMessage {
    fn arbitrary(g: &mut Gen) -> Self {
        Self(match pick(g, 5) {
            0 => Message::Function(function_event(g)),
            1 => Message::Runtime(runtime_event(g)),
            2 => Message::Event(event(g)),
            3 => Message::Option(Known { option: option(g), extra: &[] }),
            _ => Message::Metadata(Metadata { name: format!("x{}", string(g)).leak(), value: bytes(g) }),
        })
    }
}

/// Any option of the profile, and what a newer sender may have put behind it.
#[derive(Debug, Clone)]
pub(crate) struct AnyExtended(pub(crate) Known<'static>);

impl Arbitrary for AnyExtended {
    fn arbitrary(g: &mut Gen) -> Self {
        Self(loop {
            let known = Known { option: option(g), extra: bytes(g) };
            if !matches!(known.option, ProfileOption::Epoch(_)) {
                break known;
            }
        })
    }
}

/// Any events of a thread with their details.
#[derive(Debug, Clone)]
pub(crate) struct AnyThread(pub(crate) Vec<(IndexEvent, Vec<DetailBody<'static>>)>);

impl Arbitrary for AnyThread {
    fn arbitrary(g: &mut Gen) -> Self {
        let count = pick(g, 60);
        Self((0..count).map(|_| (index_event(g), details(g))).collect())
    }
}

/// Any manifest whose events are accounted for.
#[derive(Debug, Clone)]
pub(crate) struct AnyManifest(pub(crate) Manifest);

impl Arbitrary for AnyManifest {
    fn arbitrary(g: &mut Gen) -> Self {
        let (time_start_ns, length) = (any::<u64>(g) >> 1, any::<u64>(g) >> 1);
        let mut manifest = Manifest {
            time_start_ns,
            time_end_ns: time_start_ns + length,
            session: any(g),
            process: any::<bool>(g).then(|| process_entry(g)),
            clock: any(g),
            clock_zero_ns: any(g),
            epoch_unix_ns: any(g),
            functions: some(g, |g| FunctionEntry { id: any(g), offset: any(g), name: any(g), extra: extra(g) }),
            queues: some(g, |g| QueueEntry { id: any(g), label: any(g), extra: extra(g) }),
            modules: some(g, module_entry),
            drops: any(g),
            limits: some(g, |g| LimitEntry {
                module: any(g),
                reason: any(g),
                detail: any(g),
                count: any(g),
                extra: extra(g),
            }),
            end: any::<bool>(g).then(|| EndEntry { how: any(g), code: any(g), at_ns: any(g), extra: extra(g) }),
            part: any(g),
            spans: any(g),
            extra: extra(g),
            ..Manifest::default()
        };
        for id in 0..pick(g, 4) as u32 {
            let (written, missing) = (any::<u32>(g), any::<u32>(g));
            manifest.threads.push(thread_entry(g, id, written, missing));
            let (cause, at_index) = (any(g), any(g));
            let gap = GapEntry {
                thread: id,
                first: any(g),
                count: missing.into(),
                cause,
                at_index,
                ranges: any(g),
                extra: extra(g),
            };
            manifest.gaps.push(gap);
        }
        Self(manifest)
    }
}

fn some<T>(g: &mut Gen, item: impl Fn(&mut Gen) -> T) -> Vec<T> {
    let count = pick(g, 4);
    (0..count).map(|_| item(g)).collect()
}

/// Fields that no version knows.
fn extra(g: &mut Gen) -> serde_json::Map<String, serde_json::Value> {
    let field = |g: &mut Gen| {
        let value = match pick(g, 4) {
            0 => any::<u64>(g).into(),
            1 => any::<f64>(g).into(),
            2 => any::<String>(g).into(),
            _ => any::<Vec<i64>>(g).into(),
        };
        (format!("x-{}", any::<String>(g)), value)
    };
    some(g, field).into_iter().collect()
}

fn process_entry(g: &mut Gen) -> ProcessEntry {
    ProcessEntry {
        pid: any(g),
        host: any(g),
        arch: any(g),
        os: any(g),
        executable: any(g),
        arguments: any(g),
        argument_count: any(g),
        agent_version: any(g),
        extra: extra(g),
    }
}

fn module_entry(g: &mut Gen) -> ModuleEntry {
    ModuleEntry {
        id: any(g),
        path: any(g),
        build_id: any(g),
        base: any(g),
        size: any(g),
        loaded_ns: any(g),
        unloaded_ns: any(g),
        function_count: any(g),
        function_table_hash: any(g),
        extra: extra(g),
    }
}

fn thread_entry(g: &mut Gen, id: u32, written: u32, missing: u32) -> ThreadEntry {
    ThreadEntry {
        id,
        has_detail: any(g),
        os_id: any(g),
        name: any(g),
        creator: any(g),
        start_ns: any(g),
        end_ns: any(g),
        produced: Some(u64::from(written) + u64::from(missing)),
        written: Some(written.into()),
        first: any(g),
        extra: extra(g),
    }
}

pub(crate) fn pick(g: &mut Gen, below: usize) -> usize {
    usize::arbitrary(g) % below
}

fn any<T: Arbitrary>(g: &mut Gen) -> T {
    T::arbitrary(g)
}

fn string(g: &mut Gen) -> &'static str {
    any::<String>(g).leak()
}

fn bytes(g: &mut Gen) -> &'static [u8] {
    any::<Vec<u8>>(g).leak()
}

fn list<T>(g: &mut Gen, item: impl Fn(&mut Gen) -> T) -> List<'static, T> {
    let count = pick(g, 6);
    List::from(&*Vec::leak((0..count).map(|_| item(g)).collect()))
}

fn ns(g: &mut Gen) -> SessionNs {
    SessionNs(any(g))
}

fn stream(g: &mut Gen) -> StreamId {
    StreamId(any(g))
}

fn stream_position(g: &mut Gen) -> StreamPosition {
    StreamPosition { stream: stream(g), next: Position(any(g)) }
}

fn session_id(g: &mut Gen) -> SessionId {
    SessionId(std::array::from_fn(|_| any(g)))
}

fn kind(g: &mut Gen) -> EventKind {
    EventKind::ALL[pick(g, 3)]
}

fn registers(g: &mut Gen) -> Registers {
    Registers::from_words(std::array::from_fn(|_| any(g)))
}

fn stamp(g: &mut Gen) -> Stamp {
    Stamp { stream: stream(g), counter: Counter(any(g)), substream: SubstreamId(any(g)), start: ns(g), end: ns(g) }
}

fn value(g: &mut Gen) -> Value<'static> {
    match pick(g, 8) {
        0 => Value::U64(any(g)),
        1 => Value::I64(any(g)),
        2 => Value::F64(any(g)),
        3 => Value::Str(string(g)),
        4 => Value::U64s(list(g, any)),
        5 => Value::I64s(list(g, any)),
        6 => Value::F64s(list(g, any)),
        _ => Value::Strs(list(g, string)),
    }
}

/// Attributes whose names are none of the profile's.
fn attributes(g: &mut Gen) -> Attributes<'static> {
    let count = pick(g, 5);
    let attribute = |g: &mut Gen| Attribute { name: format!("{}?", string(g)).leak(), value: value(g) };
    Attributes::from(&*Vec::leak((0..count).map(|_| attribute(g)).collect()))
}

pub(crate) fn event(g: &mut Gen) -> Event<'static> {
    Event { stamp: stamp(g), description: format!("{} happened", string(g)).leak(), attributes: attributes(g) }
}

pub(crate) fn function_event(g: &mut Gen) -> FunctionEvent<'static> {
    let words = pick(g, MAX_STACK_WORDS + 1);
    let stack = Vec::leak((0..words).map(|_| any(g)).collect());
    let (function, ip) = match pick(g, 4) {
        0 => (None, Some(any(g))),
        1 => (Some(FunctionId(any(g))), Some(any(g))),
        _ => (Some(FunctionId(any(g))), None),
    };
    FunctionEvent {
        stamp: stamp(g),
        kind: kind(g),
        function,
        ip,
        depth: any(g),
        detail: any::<bool>(g).then(|| Detail::new(Box::leak(Box::new(registers(g).to_words())), stack)),
        extra: if any(g) { Attributes::default() } else { attributes(g) },
    }
}

fn runtime_event(g: &mut Gen) -> RuntimeEvent<'static> {
    let function =
        *g.choose(&["pthread_create", "dispatch_async", "_dispatch_client_callout", "swift_job_run"]).unwrap();
    RuntimeEvent { stamp: stamp(g), function, phase: kind(g), keys: attributes(g) }
}

fn option(g: &mut Gen) -> ProfileOption<'static> {
    match pick(g, 13) {
        0 => Epoch { unix_ns: any(g) }.into(),
        1 => Clock { clock: ClockKind::from(any::<u8>(g)), zero_ns: any(g) }.into(),
        2 => Session {
            id: session_id(g),
            profile: any(g),
            arch: Arch::from(any::<u8>(g)),
            os: Os::from(any::<u8>(g)),
            pid: any(g),
            agent_version: string(g),
            host: string(g),
            executable: string(g),
            argument_count: any(g),
            arguments: list(g, string),
        }
        .into(),
        3 => Thread {
            stream: stream(g),
            os_id: any(g),
            start: ns(g),
            end: any::<Option<u64>>(g).map(SessionNs),
            creator: any::<Option<u32>>(g).map(StreamId),
            name: string(g),
        }
        .into(),
        4 => Module {
            id: ModuleId(any(g)),
            base: any(g),
            size: any(g),
            loaded: ns(g),
            unloaded: any::<Option<u64>>(g).map(SessionNs),
            function_count: any(g),
            table_hash: any(g),
            build_id: bytes(g),
            path: string(g),
        }
        .into(),
        5 => Functions {
            module: ModuleId(any(g)),
            first_index: any(g),
            functions: list(g, |g| FunctionName { offset: any(g), name: string(g) }),
        }
        .into(),
        6 => Queue { id: any(g), label: string(g) }.into(),
        7 => {
            let limit =
                |g: &mut Gen| Limit { module: ModuleId(any(g)), count: any(g), reason: string(g), detail: string(g) };
            Limits { limits: list(g, limit) }.into()
        }
        8 => {
            let drop =
                |g: &mut Gen| Dropped { stream: stream(g), first: Position(any(g)), count: any(g), reason: string(g) };
            Drops { drops: list(g, drop) }.into()
        }
        9 => Progress { now: ns(g), streams: list(g, stream_position) }.into(),
        10 => {
            let reason = match pick(g, 5) {
                0 => EndReason::Exited(any(g)),
                1 => EndReason::Signaled(any(g)),
                2 => EndReason::Detached,
                3 => EndReason::Replaced,
                _ => EndReason::Other(5, any(g)),
            };
            End { reason, at: ns(g), stream_count: any(g), streams: list(g, stream_position) }.into()
        }
        11 => Ack {
            session: session_id(g),
            echo: ns(g),
            window_bytes: any(g),
            streams: list(g, stream_position),
            options: list(g, |g| Fingerprint(any(g))),
        }
        .into(),
        _ => {
            let range = |g: &mut Gen| Range { stream: stream(g), first: Position(any(g)), count: any(g) };
            Nack { session: session_id(g), ranges: list(g, range) }.into()
        }
    }
}

fn index_event(g: &mut Gen) -> IndexEvent {
    IndexEvent {
        timestamp: ClockNs(any(g)),
        function: FunctionId(any(g)),
        thread: any(g),
        kind: kind(g),
        depth: any(g),
        detail: None,
    }
}

fn details(g: &mut Gen) -> Vec<DetailBody<'static>> {
    let count = pick(g, 3);
    (0..count).map(|_| detail(g)).collect()
}

fn detail(g: &mut Gen) -> DetailBody<'static> {
    let stack_bytes = pick(g, 8 * MAX_STACK_WORDS + 1);
    let stack = Vec::leak((0..stack_bytes).map(|_| any(g)).collect());
    let function = FunctionDetail { function: FunctionId(any(g)), registers: registers(g), stack };
    match pick(g, 5) {
        0 => DetailBody::Call(function),
        1 => DetailBody::Return(function),
        2 => DetailBody::Keys(Keys {
            function: FunctionId(any(g)),
            start: ClockNs(any(g)),
            end: ClockNs(any(g)),
            substream: SubstreamId(any(g)),
            attributes: attributes(g),
        }),
        3 => DetailBody::Context(Context { substream: SubstreamId(any(g)), start: ClockNs(any(g)) }),
        _ => DetailBody::Other { kind: 999, payload: bytes(g) },
    }
}
