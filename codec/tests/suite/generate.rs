//! Arbitrary values of every kind.
//!
//! Values borrow, so what they borrow is leaked: a test makes a few thousand of them.

use std::collections::BTreeMap;

use codec::{
    AnswerKind, Arch, BirthKind, ClockKind, ClockNs, Counter, EventKind, FunctionId, LevelKind, ModuleId, Os, Position,
    SessionId, SessionNs, StreamId, SubstreamId,
    atf::{
        BirthEntry, Context, CountedEntry, DetailBody, EndEntry, FunctionDetail, FunctionEntry, GapEntry, IndexEvent,
        Keys, LevelEntry, LimitEntry, Manifest, ModuleEntry, OffsetEntry, ProcessEntry, QueueEntry, TableEntry,
        ThreadEntry, TraceContextEntry,
    },
    heph::{Attribute, Attributes, Event, List, Metadata, Stamp, Value},
    profile::{
        Ack, Answer, Ask, Birth, Claim, Clock, Counted, CountedCalls, Detail, Dropped, Drops, End, EndReason, Epoch,
        Fingerprint, FunctionEvent, FunctionName, Functions, Kept, Known, LevelChange, Levels, Limit, Limits, Lost,
        MAX_STACK_WORDS, Message, Module, Nack, Offset, ProfileOption, Progress, Queue, Range, Refused, Registers,
        RuntimeEvent, Session, SourceLine, Sources, StreamPosition, Thread, Times, Token, TraceContext,
    },
};
use quickcheck::{Arbitrary, Gen};
use serde_json::Map;

/// Any message.
#[derive(Debug, Clone)]
pub(crate) struct AnyMessage(pub(crate) Message<'static>);

impl Arbitrary for AnyMessage {
    fn arbitrary(g: &mut Gen) -> Self {
        Self(match pick(g, 5) {
            0 => Message::Function(function_event(g)),
            1 => Message::Runtime(runtime_event(g)),
            2 => Message::Event(event(g)),
            3 => Message::Option(Known { option: any(g), extra: &[] }),
            _ => Message::Metadata(Metadata { name: format!("x{}", any::<String>(g)).leak(), value: any(g) }),
        })
    }
}

/// Any option of the profile, and what a newer sender may have put behind it.
#[derive(Debug, Clone)]
pub(crate) struct AnyExtended(pub(crate) Known<'static>);

impl Arbitrary for AnyExtended {
    fn arbitrary(g: &mut Gen) -> Self {
        Self(loop {
            let known = Known { option: any(g), extra: any(g) };
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
        Self((0..count).map(|_| (IndexEvent { detail: None, ..any(g) }, some(g, 3))).collect())
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
            threads: Vec::new(),
            gaps: Vec::new(),
            ..any(g)
        };
        for id in 0..pick(g, 4) as u32 {
            let (written, missing) = (any::<u32>(g).into(), any::<u32>(g).into());
            let (produced, written) = (Some(written + missing), Some(written));
            manifest.threads.push(ThreadEntry { id, produced, written, ..any(g) });
            manifest.gaps.push(GapEntry { thread: id, count: missing, ..any(g) });
        }
        Self(manifest)
    }
}

/// A type of which any value can be made: `Arbitrary` cannot be implemented for the codec's types from here.
trait Any {
    fn any(g: &mut Gen) -> Self;
}

fn any<T: Any>(g: &mut Gen) -> T {
    T::any(g)
}

pub(crate) fn pick(g: &mut Gen, below: usize) -> usize {
    usize::arbitrary(g) % below
}

fn some<T: Any>(g: &mut Gen, below: usize) -> Vec<T> {
    let count = pick(g, below);
    (0..count).map(|_| any(g)).collect()
}

macro_rules! any_by {
    ($($($type:ty),+ => $make:expr;)*) => {
        $($(impl Any for $type {
            fn any(g: &mut Gen) -> Self {
                let make: fn(&mut Gen) -> Self = $make;
                make(g)
            }
        })+)*
    };
}

any_by! {
    bool, u8, u16, u32, u64, i32, i64, f64, String, BTreeMap<String, u64> => Self::arbitrary;
    &'static str => |g| String::arbitrary(g).leak();
    &'static [u8] => |g| Vec::arbitrary(g).leak();
    SessionNs, ClockNs, StreamId, SubstreamId, Counter, Position, ModuleId, FunctionId, Fingerprint => |g| Self(any(g));
    SessionId => |g| Self(std::array::from_fn(|_| any(g)));
    Arch, Os, ClockKind, BirthKind, LevelKind, AnswerKind => |g| any::<u8>(g).into();
    EventKind => |g| Self::ALL[pick(g, 3)];
    Registers => |g| Self::from_words(std::array::from_fn(|_| any(g)));
    // Names that are none of the profile's.
    Attribute<'static> => |g| Self { name: format!("{}?", any::<String>(g)).leak(), value: any(g) };
    Attributes<'static> => |g| Self::from(&*some(g, 5).leak());
    // Fields that no version knows.
    Map<String, serde_json::Value> => |g| {
        some::<serde_json::Value>(g, 4).into_iter().map(|value| (format!("x-{}", any::<String>(g)), value)).collect()
    };
    serde_json::Value => |g| match pick(g, 4) {
        0 => any::<u64>(g).into(),
        1 => any::<f64>(g).into(),
        2 => any::<String>(g).into(),
        _ => any::<Vec<i64>>(g).into(),
    };
    Value<'static> => |g| match pick(g, 8) {
        0 => Self::U64(any(g)),
        1 => Self::I64(any(g)),
        2 => Self::F64(any(g)),
        3 => Self::Str(any(g)),
        4 => Self::U64s(any(g)),
        5 => Self::I64s(any(g)),
        6 => Self::F64s(any(g)),
        _ => Self::Strs(any(g)),
    };
    EndReason => |g| match pick(g, 5) {
        0 => Self::Exited(any(g)),
        1 => Self::Signaled(any(g)),
        2 => Self::Detached,
        3 => Self::Replaced,
        _ => Self::Other(5, any(g)),
    };
    FunctionDetail<'static> => |g| {
        let stack_bytes = pick(g, 8 * MAX_STACK_WORDS + 1);
        let stack = Vec::leak((0..stack_bytes).map(|_| any(g)).collect());
        Self { function: any(g), registers: any(g), stack }
    };
    DetailBody<'static> => |g| match pick(g, 5) {
        0 => Self::Call(any(g)),
        1 => Self::Return(any(g)),
        2 => Self::Keys(any(g)),
        3 => Self::Context(any(g)),
        _ => Self::Other { kind: 999, payload: any(g) },
    };
    ProfileOption<'static> => |g| match pick(g, 26) {
        0 => any::<Epoch>(g).into(),
        1 => any::<Clock>(g).into(),
        2 => any::<Session<'_>>(g).into(),
        3 => any::<Thread<'_>>(g).into(),
        4 => any::<Module<'_>>(g).into(),
        5 => any::<Functions<'_>>(g).into(),
        6 => any::<Queue<'_>>(g).into(),
        7 => any::<Limits<'_>>(g).into(),
        8 => any::<Drops<'_>>(g).into(),
        9 => any::<Progress<'_>>(g).into(),
        10 => any::<End<'_>>(g).into(),
        11 => any::<Ack<'_>>(g).into(),
        12 => any::<Kept<'_>>(g).into(),
        13 => any::<Token<'_>>(g).into(),
        14 => any::<Refused<'_>>(g).into(),
        15 => any::<Offset>(g).into(),
        16 => any::<Times>(g).into(),
        17 => any::<Claim<'_>>(g).into(),
        18 => any::<Sources<'_>>(g).into(),
        19 => any::<Birth>(g).into(),
        20 => any::<Levels<'_>>(g).into(),
        21 => any::<Counted<'_>>(g).into(),
        22 => any::<Ask<'_>>(g).into(),
        23 => any::<Answer<'_>>(g).into(),
        24 => any::<TraceContext<'_>>(g).into(),
        _ => any::<Nack<'_>>(g).into(),
    };
}

impl<T: Any> Any for Option<T> {
    fn any(g: &mut Gen) -> Self {
        any::<bool>(g).then(|| any(g))
    }
}

impl<T: Any> Any for Vec<T> {
    fn any(g: &mut Gen) -> Self {
        some(g, 4)
    }
}

impl<T: Any> Any for List<'static, T> {
    fn any(g: &mut Gen) -> Self {
        Self::from(&*some(g, 6).leak())
    }
}

macro_rules! any_of_fields {
    ($($type:ty { $($field:ident),* })*) => {
        $(impl Any for $type {
            fn any(g: &mut Gen) -> Self {
                Self { $($field: any(g)),* }
            }
        })*
    };
}

any_of_fields! {
    Stamp { stream, counter, substream, start, end }
    Epoch { unix_ns }
    Clock { clock, zero_ns }
    Offset { zero_unix_ns, error_ns, at }
    Birth { parent, how, tid, at }
    TraceContext<'static> { root, parent, state }
    Session<'static> {
        id, profile, arch, os, pid, agent_version, host, executable, argument_count, arguments
    }
    Thread<'static> { stream, os_id, start, end, creator, name }
    Module<'static> { id, base, size, loaded, unloaded, function_count, table_hash, build_id, path }
    FunctionName<'static> { offset, name }
    Functions<'static> { module, first_index, functions }
    SourceLine { index, line }
    Sources<'static> { module, file, lines }
    Queue<'static> { id, label }
    Limit<'static> { module, count, reason, detail }
    Limits<'static> { limits }
    LevelChange { function, at, level }
    Levels<'static> { changes }
    CountedCalls { function, count, brief, brief_ns }
    Counted<'static> { stream, calls }
    Dropped<'static> { stream, first, count, reason }
    Drops<'static> { drops }
    StreamPosition { stream, next }
    Progress<'static> { now, streams }
    End<'static> { reason, at, stream_count, streams }
    Ack<'static> { session, echo, window_bytes, streams, options }
    Times { session, echo, received_unix_ns, answered_unix_ns }
    Lost<'static> { count, cause }
    Kept<'static> { session, streams, lost, since }
    Range { stream, first, count }
    Nack<'static> { session, ranges }
    Token<'static> { token }
    Claim<'static> { secret }
    Refused<'static> { reason }
    Ask<'static> { session, number, request }
    Answer<'static> { session, number, kind, text }
    Keys<'static> { function, start, end, substream, attributes }
    Context { substream, start }
    IndexEvent { timestamp, function, thread, kind, depth, detail }
    ThreadEntry {
        id, has_detail, os_id, name, creator, start_ns, end_ns, produced, written, first,
        index_checksum, detail_checksum, extra
    }
    ProcessEntry {
        pid, host, arch, os, executable, arguments, argument_count, agent_version, extra
    }
    ModuleEntry {
        id, path, build_id, base, size, loaded_ns, unloaded_ns, function_count, function_table_hash, extra
    }
    FunctionEntry { id, offset, name, source, extra }
    QueueEntry { id, label, extra }
    GapEntry { thread, first, count, cause, at_index, ranges, extra }
    LimitEntry { module, reason, detail, count, extra }
    LevelEntry { function, at_ns, level, extra }
    CountedEntry { thread, function, count, brief, brief_ns, extra }
    EndEntry { how, code, at_ns, extra }
    TableEntry { rows, bytes, checksum, extra }
    BirthEntry { parent, how, tid, at_ns, extra }
    TraceContextEntry { root, traceparent, tracestate, extra }
    OffsetEntry { zero_unix_ns, error_ns, at_ns }
    Manifest {
        threads, time_start_ns, time_end_ns, session, process, birth, context, clock, clock_zero_ns, epoch_unix_ns, seen_unix_ns,
        offset, modules, functions, queues, gaps, drops, limits, levels, counted, end, part, spans, table, extra
    }
}

pub(crate) fn event(g: &mut Gen) -> Event<'static> {
    Event { stamp: any(g), description: format!("{} happened", any::<String>(g)).leak(), attributes: any(g) }
}

pub(crate) fn function_event(g: &mut Gen) -> FunctionEvent<'static> {
    let words = pick(g, MAX_STACK_WORDS + 1);
    let stack = Vec::leak((0..words).map(|_| any(g)).collect());
    let (function, ip) = match pick(g, 4) {
        0 => (None, Some(any(g))),
        1 => (Some(any(g)), Some(any(g))),
        _ => (Some(any(g)), None),
    };
    FunctionEvent {
        stamp: any(g),
        kind: any(g),
        function,
        ip,
        depth: any(g),
        detail: any::<bool>(g).then(|| Detail::new(Box::leak(Box::new(any::<Registers>(g).to_words())), stack)),
        extra: if any(g) { Attributes::default() } else { any(g) },
    }
}

fn runtime_event(g: &mut Gen) -> RuntimeEvent<'static> {
    let function =
        *g.choose(&["pthread_create", "dispatch_async", "_dispatch_client_callout", "swift_job_run"]).unwrap();
    RuntimeEvent { stamp: any(g), function, phase: any(g), keys: any(g) }
}
