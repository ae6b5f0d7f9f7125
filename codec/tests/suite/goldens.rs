//! The golden files decode to the values they were made from, and the values encode to the files.

use std::{collections::BTreeSet, io::Cursor};

use crate::fixtures::{golden, golden_packets};
use codec::{
    AnswerKind, Arch, BirthKind, ClockKind, ClockNs, Counter, EventKind, FunctionId, ModuleId, Os, Position, SessionId,
    SessionNs, StreamId, SubstreamId,
    atf::{
        Context, DetailBody, DetailReader, FunctionDetail, IndexEvent, IndexReader, Integrity, Keys, Manifest, Origin,
        ThreadReader, ThreadWriter,
    },
    heph::{Attribute, Attributes, Encode, Event, List, Metadata, Packet, Stamp, Value},
    profile::{
        Ack, Answer, Ask, Birth, Claim, Clock, Counted, CountedCalls, Detail, Dropped, Drops, End, EndReason, Epoch,
        Fingerprint, FunctionEvent, FunctionName, FunctionTableHasher, Functions, Kept, Key, Known, LevelChange,
        LevelKind, Levels, Limit, Limits, Lost, Message, Module, Nack, Offset, ProfileOption, Progress, Queue, Range,
        Refused, Registers, RunEncoder, RunEvent, Runtime, RuntimeEvent, Session, SourceLine, Sources, StreamPosition,
        Thread, Times, Token, TraceContext,
    },
};

const SESSION: SessionId = SessionId([16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31]);
const FUNCTIONS: [FunctionName<'_>; 2] =
    [FunctionName { offset: 0x1136, name: "main" }, FunctionName { offset: 0x1200, name: "_ZN3fooEv" }];
const REGISTERS: Registers = Registers {
    general: [0x1001, 0x1002, 0x1003, 0x1004, 0x1005, 0x1006, 0x1007, 0x1008],
    return_address: 0x40_1234,
    frame_pointer: 0x7ffd_0000_1000,
    stack_pointer: 0x7ffd_0000_0fc8,
};

fn stamp(stream: u32, counter: u32, substream: u64, start: u64, end: u64) -> Stamp {
    Stamp {
        stream: StreamId(stream),
        counter: Counter(counter),
        substream: SubstreamId(substream),
        start: SessionNs(start),
        end: SessionNs(end),
    }
}

fn attribute<'a>(name: &'a str, value: Value<'a>) -> Attribute<'a> {
    Attribute { name, value }
}

/// Checks one golden packet against the value it stands for, both ways.
fn check(seen: &mut BTreeSet<String>, name: &str, expected: Message<'_>) {
    let bytes = golden(&format!("packets/{name}.hex"));
    let decoded = Message::decode(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(decoded, expected, "{name} decodes");
    for message in [expected, decoded] {
        let mut encoded = Vec::new();
        assert_eq!(message.encode(&mut encoded), Ok(bytes.len()), "{name} encodes");
        assert_eq!(message.encoded_len(), Ok(bytes.len()), "{name} is measured");
        assert_eq!(encoded, bytes, "{name} encodes to the golden bytes");
    }
    seen.insert(format!("{name}.hex"));
}

fn option<'a>(option: impl Into<ProfileOption<'a>>) -> Message<'a> {
    Message::Option(Known { option: option.into(), extra: &[] })
}

#[test]
fn every_golden_packet_is_its_value() {
    let seen = &mut BTreeSet::new();
    check_heph(seen);
    check_events(seen);
    check_runs(seen);
    check_options(seen);
    let files: BTreeSet<_> = golden_packets().into_iter().map(|(name, _)| name).collect();
    assert_eq!(*seen, files, "every golden packet is checked");
    for name in ProfileOption::NAMES.iter().filter(|&&name| name != "epoch") {
        assert!(files.contains(&format!("option-{name}.hex")), "the option {name} has a golden packet");
    }
}

fn check_heph(seen: &mut BTreeSet<String>) {
    check(seen, "heph-metadata", option(Epoch { unix_ns: 1_610_113_734_118_010_000 }));
    let floats = [123.456, 789.0];
    let attributes = [attribute("Test", Value::U64(123)), attribute("Test2", Value::F64s((&floats).into()))];
    let description = "My event";
    let example = Event { stamp: stamp(0, 0, 1, 100, 200), description, attributes: (&attributes).into() };
    check(seen, "heph-event", Message::Event(example));

    let minimal = Event { stamp: stamp(0, u32::MAX, 0, 0, 0), description: "", attributes: Attributes::default() };
    check(seen, "event-minimal", Message::Event(minimal));
    let attributes = [
        attribute("unsigned", Value::U64(u64::MAX)),
        attribute("signed", Value::I64(-2)),
        attribute("float", Value::F64(-0.5)),
        attribute("string", Value::Str("größer")),
        attribute("unsigneds", Value::U64s((&[1, 2]).into())),
        attribute("signeds", Value::I64s((&[-1]).into())),
        attribute("floats", Value::F64s(List::default())),
        attribute("strings", Value::Strs((&["", "b"]).into())),
    ];
    let types = Event { stamp: stamp(1, 2, 3, 4, 5), description: "types", attributes: (&attributes).into() };
    check(seen, "event-all-types", Message::Event(types));
    check(seen, "option-unknown", Message::Metadata(Metadata { name: "colour", value: b"\0red" }));
}

fn check_events(seen: &mut BTreeSet<String>) {
    let call = FunctionEvent {
        stamp: stamp(7, 41, 0, 1000, 1000),
        kind: EventKind::Call,
        function: Some(FunctionId::new(ModuleId(2), 5)),
        ip: None,
        depth: 3,
        detail: None,
        extra: Attributes::default(),
    };
    check(seen, "function-call", Message::Function(call));
    let (registers, stack) = (REGISTERS.to_words(), [0x0102_0304_0506_0708, 0xff]);
    let back = FunctionEvent {
        stamp: stamp(7, 42, 9, 1000, 1500),
        kind: EventKind::Return,
        detail: Some(Detail::new(&registers, &stack)),
        ..call
    };
    check(seen, "function-return", Message::Function(back));
    assert_eq!(back.detail.map(|detail| detail.registers()), Some(REGISTERS));
    let memory = [8, 7, 6, 5, 4, 3, 2, 1, 0xff, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(back.detail.map(|detail| detail.stack_bytes(&mut [0; 512]).to_vec()), Some(memory.to_vec()));
    let thrown = FunctionEvent {
        stamp: stamp(7, 43, 0, 900, 1600),
        kind: EventKind::Exception,
        function: Some(FunctionId::new(ModuleId(2), 4)),
        depth: 2,
        ..call
    };
    check(seen, "function-exception", Message::Function(thrown));
    let unknown =
        FunctionEvent { stamp: stamp(7, 44, 0, 1700, 1700), function: None, ip: Some(0x40_1000), depth: 0, ..call };
    check(seen, "function-unknown", Message::Function(unknown));

    let keys = [
        attribute("pthread", Value::U64(0x7f00_0000_1000)),
        attribute("start_routine", Value::U64(0x40_1136)),
        attribute("argument", Value::U64(0)),
        attribute("detached", Value::U64(0)),
        attribute("result", Value::U64(0)),
    ];
    let pthread = RuntimeEvent {
        stamp: stamp(0, 8, 0, 2000, 2300),
        function: "pthread_create",
        phase: EventKind::Return,
        keys: (&keys).into(),
    };
    assert_eq!(pthread.runtime(), Some(Runtime::Pthread));
    assert_eq!(pthread.key(Key::StartRoutine), Some(0x40_1136));
    assert_eq!(pthread.key(Key::Task), None);
    check(seen, "runtime-pthread", Message::Runtime(pthread));
}

/// Checks a golden run against its events, both ways.
fn check_run(seen: &mut BTreeSet<String>, name: &str, counter: u32, events: &[RunEvent<'_>]) {
    let bytes = golden(&format!("packets/{name}.hex"));
    let (first, last) = (events.first().expect("one"), events.last().expect("one"));
    let stamp = stamp(7, counter, 9, first.end.0, last.end.0);
    let Ok(Message::Run(run)) = Message::decode(&bytes) else { panic!("{name} is a run") };
    assert_eq!((run.stamp, run.count as usize), (stamp, events.len()), "{name}");
    assert_eq!(run.events().collect::<Vec<_>>(), events, "{name} decodes");
    let mut encoded = Vec::new();
    let mut encoder = RunEncoder::begin(&stamp, first, usize::MAX, &mut encoded);
    assert!(events.iter().all(|event| encoder.push(event, &mut encoded)), "{name} fits a run");
    encoder.finish(&mut encoded);
    assert_eq!(encoded, bytes, "{name} encodes to the golden bytes");
    let singles = (0_u32..).zip(events).map(|(number, event)| event.function_event(&stamp, number));
    assert_eq!(run.function_events().collect::<Vec<_>>(), singles.collect::<Vec<_>>());
    check(seen, name, Message::Run(run));
}

fn check_runs(seen: &mut BTreeSet<String>) {
    let (f, g) = (FunctionId::new(ModuleId(2), 5), FunctionId::new(ModuleId(2), 6));
    let h = FunctionId::new(ModuleId(1023), (1 << 18) - 1);
    let event = |kind, start, end, function, depth| RunEvent {
        kind,
        depth,
        function: Some(function),
        ip: 0,
        start: SessionNs(start),
        end: SessionNs(end),
        detail: None,
    };
    let called = |time, function, depth| event(EventKind::Call, time, time, function, depth);
    let back = |start, end, function, depth| event(EventKind::Return, start, end, function, depth);
    let thrown = |start, end, function, depth| event(EventKind::Exception, start, end, function, depth);
    let at_address = |event, ip| RunEvent { function: None, ip, ..event };

    let events = [
        called(1000, f, 3),
        called(1010, g, 4),
        back(1010, 1030, g, 4),
        called(1040, h, 4),
        thrown(1040, 1039 + (1 << 33), h, 4),
        back(1000, (1 << 33) + 2000, f, 3),
    ];
    check_run(seen, "run-calls", u32::MAX - 1, &events);

    let (far, high) = (FunctionId::new(ModuleId(1024), 1), FunctionId::new(ModuleId(1), 1 << 18));
    let late = 1 << 34;
    let events = [
        back(400, 1000, f, 9),
        called(1000, f, 0),
        called(1001 + (1 << 33), g, 1),
        called(late, far, 2),
        called(late + 1, high, 3),
        at_address(called(late + 2, f, 4), 0x40_1000),
        thrown(late + 1, late + 3, high, 3),
        back(1000, 1 << 55, f, 0),
        called(1 << 55, f, u32::MAX),
        back((1 << 55) - 1, 1 << 55, f, u32::MAX),
    ];
    check_run(seen, "run-prefixes", 7, &events);

    let events = [
        called(10, f, 1),
        called(20, g, 2),
        back(20, 30, g, 2),
        back(5, 40, g, 2),
        called(50, f, 65),
        back(50, 60, f, 65),
        back(10, 70, f, 1),
    ];
    check_run(seen, "run-slots", 8, &events);

    let with = |event, registers, stack| RunEvent { detail: Some(Detail::new(registers, stack)), ..event };
    let all = REGISTERS.to_words();
    let mut result = Registers { general: [0; 8], ..REGISTERS }.to_words();
    result[0] = 42;
    let last = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let events = [
        with(called(1000, f, 0), &all, &[0x0102_0304_0506_0708, 0, 0xff]),
        with(called(1001, g, 1), &[0; 11], &[]),
        with(back(1001, 1002, g, 1), &result, &[]),
        with(at_address(back(1000, 1003, f, 0), 0x40_1136), &last, &[7]),
    ];
    check_run(seen, "run-detail", 9, &events);

    let events = [
        called(100, f, 4),
        called(200, g, 4),
        called(300, g, 5),
        called(301, h, 5),
        back(301, 400, h, 5),
        back(200, 500, g, 4),
    ];
    check_run(seen, "run-tail-call", 10, &events);
}

fn check_options(seen: &mut BTreeSet<String>) {
    let clock = Clock { clock: ClockKind::Boottime, zero_ns: 5_000_000_000 };
    assert_eq!(clock.at(SessionNs(1)), ClockNs(5_000_000_001));
    check(seen, "option-clock", option(clock));
    let session = Session {
        id: SESSION,
        profile: 1,
        arch: Arch::X86_64,
        os: Os::Linux,
        pid: 4711,
        agent_version: "0.1.0",
        host: "pi",
        executable: "/usr/bin/true",
        argument_count: 3,
        arguments: (&["true", "-x"]).into(),
    };
    check(seen, "option-session", option(session));
    let birth = Birth { parent: SESSION, how: BirthKind::Forked, tid: 4712, at: SessionNs(1250) };
    check(seen, "option-birth", option(birth));
    let (parent, state) = ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "vendor=1");
    check(seen, "option-context", option(TraceContext { root: SESSION, parent, state }));
    let thread = Thread {
        stream: StreamId(1),
        os_id: 4712,
        start: SessionNs(100),
        end: Some(SessionNs(900)),
        creator: Some(StreamId(0)),
        name: "worker",
    };
    check(seen, "option-thread", option(thread));
    let mut hasher = FunctionTableHasher::new();
    FUNCTIONS.iter().for_each(|function| hasher.add(function.offset, function.name));
    let module = Module {
        id: ModuleId(2),
        base: 0x40_0000,
        size: 0x5000,
        loaded: SessionNs(10),
        unloaded: None,
        function_count: 2,
        table_hash: hasher.finish(),
        build_id: &[0xc0, 0xff, 0xee, 1],
        path: "/usr/bin/true",
    };
    check(seen, "option-module", option(module));
    let functions = Functions { module: ModuleId(2), first_index: 0, functions: (&FUNCTIONS).into() };
    check(seen, "option-functions", option(functions));
    let lines = [SourceLine { index: 0, line: 12 }, SourceLine { index: 1, line: 3 }];
    let sources = Sources { module: ModuleId(2), file: "/src/true.c", lines: (&lines).into() };
    check(seen, "option-sources", option(sources));
    check(seen, "option-queue", option(Queue { id: 5, label: "com.example.io" }));
    let limits = [
        Limit { module: ModuleId(2), count: 3, reason: "no-unwind-info", detail: "" },
        Limit { module: ModuleId(0), count: 1, reason: "missing-symbol", detail: "swift_job_run" },
    ];
    check(seen, "option-limits", option(Limits { limits: (&limits).into() }));
    let changes = [
        LevelChange { function: FunctionId((2 << 32) | 1), at: SessionNs(700), level: LevelKind::Counted },
        LevelChange { function: FunctionId((2 << 32) | 1), at: SessionNs(1_900), level: LevelKind::Full },
    ];
    check(seen, "option-levels", option(Levels { changes: (&changes).into() }));
    let calls =
        [CountedCalls { function: FunctionId((2 << 32) | 1), count: (1 << 32) + 5, brief: 12, brief_ns: 3_400 }];
    check(seen, "option-counted", option(Counted { stream: StreamId(7), calls: (&calls).into() }));
    let drops = [Dropped { stream: StreamId(7), first: Position((1 << 32) + 1), count: 12, reason: "ring-full" }];
    check(seen, "option-drops", option(Drops { drops: (&drops).into() }));
    let streams = [
        StreamPosition { stream: StreamId(0), next: Position(9) },
        StreamPosition { stream: StreamId(7), next: Position((1 << 32) + 13) },
    ];
    check(seen, "option-progress", option(Progress { now: SessionNs(2500), streams: (&streams).into() }));
    let end = End { reason: EndReason::Signaled(11), at: SessionNs(3000), stream_count: 2, streams: (&streams).into() };
    check(seen, "option-end", option(end));
    let options = [Fingerprint::of(b"colour")];
    let ack = Ack {
        session: SESSION,
        echo: SessionNs(2500),
        window_bytes: 1 << 20,
        streams: streams[..1].into(),
        options: (&options).into(),
    };
    check(seen, "option-ack", option(ack));
    let (received_unix_ns, answered_unix_ns) = (1_610_113_734_118_013_000, 1_610_113_734_118_023_000);
    let times = Times { session: SESSION, echo: SessionNs(2500), received_unix_ns, answered_unix_ns };
    check(seen, "option-times", option(times));
    let offset = Offset { zero_unix_ns: 1_610_113_734_118_010_250, error_ns: 250, at: SessionNs(2500) };
    check(seen, "option-offset", option(offset));
    let lost = [Lost { count: 5, cause: "network" }];
    let since = 1_610_113_734_118_010_000;
    let kept = Kept { session: SESSION, streams: streams[..1].into(), lost: (&lost).into(), since };
    check(seen, "option-kept", option(kept));
    let ranges = [Range { stream: StreamId(7), first: Position((1 << 32) + 2), count: 3 }];
    check(seen, "option-nack", option(Nack { session: SESSION, ranges: (&ranges).into() }));
    check(seen, "option-claim", option(Claim { secret: &[7; 32] }));
    check(seen, "option-token", option(Token { token: b"open sesame" }));
    check(seen, "option-refused", option(Refused { reason: "wrong token" }));
    let number = (1 << 63) + 5;
    check(seen, "option-ask", option(Ask { session: SESSION, number, request: "level off tick" }));
    let answer = Answer { session: SESSION, number, kind: AnswerKind::Done, text: "1 function: off" };
    check(seen, "option-answer", option(answer));
}

#[test]
fn the_heph_examples_are_the_packets_that_the_document_names() {
    let bytes = golden("packets/heph-metadata.hex");
    let epoch = 1_610_113_734_118_010_000_u64.to_be_bytes();
    assert_eq!(Packet::decode(&bytes), Ok(Packet::Metadata(Metadata { name: "epoch", value: &epoch })));
    let bytes = golden("packets/heph-event.hex");
    assert_eq!(bytes.len(), 728 / 8);
    let Ok(Packet::Event(event)) = Packet::decode(&bytes) else { panic!("an event") };
    assert_eq!(event.attributes.find_u64("Test"), Some(123));
    assert_eq!(event.attributes.find("Test2"), Some(Value::F64s((&[123.456, 789.0]).into())));
    assert_eq!(event.attributes.find("Test3"), None);
}

const ORIGIN: Origin = Origin { arch: Arch::X86_64, os: Os::Linux, clock: ClockKind::Boottime, thread: 4712 };

fn index_events() -> [IndexEvent; 5] {
    let event = |timestamp, module, index, kind, depth, detail| IndexEvent {
        timestamp: ClockNs(timestamp),
        function: FunctionId::new(ModuleId(module), index),
        thread: 4712,
        kind,
        depth,
        detail,
    };
    [
        event(5_000_001_000, 2, 0, EventKind::Call, 0, None),
        event(5_000_001_100, 2, 1, EventKind::Call, 1, Some(0)),
        event(5_000_001_200, 0, 0, EventKind::Return, 2, Some(1)),
        event(5_000_001_300, 2, 1, EventKind::Return, 1, Some(2)),
        event(5_000_001_400, 2, 0, EventKind::Exception, 0, None),
    ]
}

#[test]
fn the_golden_trace_is_written_and_read_back() {
    let (index, detail) = (golden("atf/index.hex"), golden("atf/detail.hex"));
    let events = index_events();
    let stack: Vec<u8> = (0..16).collect();
    let attributes = [attribute("pthread", Value::U64(0x7f00_0000_1000)), attribute("name", Value::Str("w"))];
    let mut registers = Registers { general: [0; 8], ..REGISTERS };
    registers.general[0] = 42;
    let call = DetailBody::Call(FunctionDetail { function: events[1].function, registers: REGISTERS, stack: &stack });
    let keys = DetailBody::Keys(Keys {
        function: events[2].function,
        start: ClockNs(5_000_001_150),
        end: ClockNs(5_000_001_200),
        substream: SubstreamId(9),
        attributes: (&attributes).into(),
    });
    let back = DetailBody::Return(FunctionDetail { function: events[3].function, registers, stack: &[] });
    let context = DetailBody::Context(Context { substream: SubstreamId(9), start: ClockNs(5_000_001_100) });
    let details: [&[DetailBody<'_>]; 5] = [&[], &[call], &[keys], &[back, context], &[]];

    let mut writer = ThreadWriter::new(ORIGIN);
    for (sequence, (event, details)) in (0..).zip(events.iter().zip(details)) {
        assert_eq!(writer.append(event, details), Ok(sequence));
    }
    let mut files = [Cursor::new(Vec::new()), Cursor::new(Vec::new())];
    let (mut sealed_index, sealed_detail) = writer.seal();
    sealed_detail.expect("there are details").write_to(&mut files[1]).expect("memory");
    sealed_index.write_to(&mut files[0]).expect("memory");
    let [written_index, written_detail] = files.map(Cursor::into_inner);
    assert_eq!(written_index, index);
    assert_eq!(written_detail, detail);

    assert_eq!(IndexReader::check_file(&index), Integrity::Intact);
    assert_eq!(DetailReader::check_file(&detail), Integrity::Intact);
    let thread = ThreadReader {
        index: IndexReader::open(&index).expect("intact"),
        detail: Some(DetailReader::open(&detail).expect("intact")),
    };
    assert_eq!(thread.check_links(), Ok(()));
    assert_eq!(*thread.index.origin(), ORIGIN);
    assert_eq!(thread.index.has_detail(), Some(true));
    assert_eq!(thread.index.events().map(Result::unwrap).collect::<Vec<_>>(), events);
    for (sequence, expected) in (0..).zip(details) {
        let found: Vec<_> = thread.details_of(sequence).map(|detail| detail.unwrap().body).collect();
        assert_eq!(found, expected, "the details of event {sequence}");
    }
}

#[test]
fn the_golden_manifest_is_written_and_read_back() {
    let json = golden("atf/manifest.json");
    let manifest = Manifest::parse(&json).expect("a manifest");
    assert_eq!(manifest.threads[0].id, 1);
    assert!(manifest.threads[0].has_detail);
    assert_eq!((manifest.time_start_ns, manifest.time_end_ns), (5_000_001_000, 5_000_001_400));
    assert_eq!(manifest.session.as_deref(), Some(SESSION.to_string().as_str()));
    assert_eq!(manifest.functions[2].name, "_ZN3fooEv");
    assert_eq!(manifest.missing(), [(1, 3)].into());
    manifest.check().expect("it is accounted for");
    assert_eq!(manifest.drops["ring-full"], 1);
    assert_eq!(manifest.extra["colour"], "red", "what is not known is kept");
    assert_eq!(String::from_utf8(manifest.to_json().expect("valid")), String::from_utf8(json));
}

/// What another reader of ATF takes from a manifest, and needs.
#[derive(serde::Deserialize)]
struct Foreign {
    modules: Vec<ForeignModule>,
    symbols: Vec<ForeignSymbol>,
}

#[derive(serde::Deserialize)]
struct ForeignModule {
    module_id: u64,
    path: String,
}

#[derive(serde::Deserialize)]
struct ForeignSymbol {
    function_id: String,
    module_id: u64,
    name: String,
}

#[test]
fn other_readers_find_modules_and_symbols_in_a_manifest() {
    let manifest = Manifest::parse(&golden("atf/manifest.json")).expect("a manifest");
    let json = manifest.to_json().expect("valid");
    let Foreign { modules, symbols } = serde_json::from_slice(&json).expect("all that it needs is there");
    assert_eq!((modules[0].module_id, modules[0].path.as_str()), (2, "/usr/bin/true"));
    let symbols: Vec<_> = symbols.iter().map(|it| (it.function_id.as_str(), it.module_id, it.name.as_str())).collect();
    assert_eq!(symbols, [("0x0", 0, "pthread_create"), ("0x200000000", 2, "main"), ("0x200000001", 2, "_ZN3fooEv")]);
    let text = String::from_utf8(json).expect("text");
    assert_eq!(text.matches("_ZN3fooEv").count(), 1, "names are there once");
}

#[test]
fn manifests_of_older_and_of_other_writers_are_read() {
    let older = br#"{"threads": [], "time_start_ns": 0, "time_end_ns": 0, "modules": [{"id": 2, "path": "/bin/a",
        "build_id": "c0", "base": 4096, "size": 8, "function_count": 2, "function_table_hash": "0f"}],
        "functions": [{"id": 8589934593, "offset": 7, "name": "main"}]}"#;
    let other = br#"{"threads": [], "time_start_ns": 0, "time_end_ns": 0, "clock_type": 1,
        "modules": [{"module_id": 2, "path": "/bin/a", "base_address": "0x1000", "size": 8, "uuid": "C0"}],
        "symbols": [{"function_id": "0x200000001", "module_id": 2, "symbol_index": 1, "name": "main"}]}"#;
    for (json, offset) in [(&older[..], 7), (&other[..], 0)] {
        let manifest = Manifest::parse(json).expect("a manifest");
        assert_eq!((manifest.modules[0].id, manifest.modules[0].path.as_str()), (2, "/bin/a"));
        let function = &manifest.functions[0];
        assert_eq!((function.id, function.offset, function.name.as_str()), (2 << 32 | 1, offset, "main"));
        assert!(!function.extra.contains_key("module_id"), "it is not there twice when it is written again");
    }
    for id in ["\"1\"", "\"0xg\"", "\"0x\"", "-1", "null"] {
        let json = format!(
            r#"{{"threads": [], "time_start_ns": 0, "time_end_ns": 0, "symbols": [{{"function_id": {id}, "name": "f"}}]}}"#
        );
        assert!(Manifest::parse(json.as_bytes()).is_err(), "{id}");
    }
}

#[test]
fn the_smallest_manifest_of_any_writer_is_read() {
    let json = br#"{"threads":[{"id":0,"has_detail":false}],"time_start_ns":1,"time_end_ns":2}"#;
    let manifest = Manifest::parse(json).expect("a manifest");
    assert_eq!(manifest.threads.len(), 1);
    assert_eq!(manifest.end, None);
}
