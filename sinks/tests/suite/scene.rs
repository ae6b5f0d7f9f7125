//! Sessions, packets and batches to tell sinks of.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use codec::{
    Arch, ClockKind, Counter, EventKind, FunctionId, ModuleId, Os, Position, SessionId, SessionNs, StreamId,
    SubstreamId,
    heph::{Attribute, Encode, Event, Stamp, Value},
    profile::{
        Clock, Detail, FunctionEvent, FunctionName, Functions, Message, Module, ProfileOption, RunEvent, Thread,
    },
};
use sinks::{Batch, Catalog, CatalogLimits, Packer, Run, Session};

/// The clock at every session's zero.
pub(crate) const ZERO_NS: u64 = 1_000_000;

/// A session of which nothing was told yet. Its id follows from its name.
pub(crate) fn session(name: &str) -> Arc<Session> {
    let catalog = Catalog::new(CatalogLimits::default(), Arc::new(AtomicU64::new(0)));
    Arc::new(Session::new(name.into(), Some(id_of(name)), "127.0.0.1:1".into(), 7, catalog))
}

/// A session that never says who it is.
pub(crate) fn unnamed(name: &str) -> Arc<Session> {
    let catalog = Catalog::new(CatalogLimits::default(), Arc::new(AtomicU64::new(0)));
    Arc::new(Session::new(name.into(), None, "127.0.0.1:1".into(), 7, catalog))
}

/// The id that a session of this name announces.
pub(crate) fn id_of(name: &str) -> SessionId {
    let mut id = [0; 16];
    id.iter_mut().zip(name.bytes().rev()).for_each(|(to, from)| *to = from);
    SessionId(id)
}

/// Enters options in the session's catalog, as a collector does, and returns their packets.
pub(crate) fn announce(session: &Session, options: &[ProfileOption<'_>]) -> Vec<u8> {
    let mut packets = Vec::new();
    for option in options {
        session.catalog_mut().apply(option);
        option.encode(&mut packets).expect("it can be written");
    }
    packets
}

/// Everything that a session has to say of itself.
pub(crate) fn introduction(session: &Session, threads: &[u32]) -> Vec<u8> {
    let mut packets = announce(
        session,
        &[
            codec::profile::Session {
                id: id_of(&session.name),
                profile: 1,
                arch: Arch::X86_64,
                os: Os::Linux,
                pid: 42,
                agent_version: "0.1",
                host: "here",
                executable: "/bin/true",
                argument_count: 1,
                arguments: (&["true"]).into(),
            }
            .into(),
            Clock { clock: ClockKind::Boottime, zero_ns: ZERO_NS }.into(),
            Module {
                id: ModuleId(1),
                base: 4096,
                size: 4096,
                loaded: SessionNs(1),
                unloaded: None,
                function_count: 2,
                table_hash: 3,
                build_id: &[1, 2],
                path: "/bin/true",
            }
            .into(),
        ],
    );
    let names = [FunctionName { offset: 0, name: "main" }, FunctionName { offset: 8, name: "work" }];
    let functions = Functions { module: ModuleId(1), first_index: 0, functions: (&names).into() };
    packets.extend(announce(session, &[functions.into()]));
    for &stream in threads {
        let name = format!("thread {stream}");
        let thread = Thread {
            stream: StreamId(stream),
            os_id: 100 + u64::from(stream),
            start: SessionNs(2),
            end: None,
            creator: None,
            name: &name,
        };
        packets.extend(announce(session, &[thread.into()]));
    }
    packets
}

/// Where and when: an event's `end` is what tests know it by.
pub(crate) fn stamp(stream: u32, counter: u32, end: u64) -> Stamp {
    Stamp {
        stream: StreamId(stream),
        counter: Counter(counter),
        substream: SubstreamId(0),
        start: SessionNs(end),
        end: SessionNs(end),
    }
}

/// A function event of function 1:1 with nothing beside it.
pub(crate) fn function(stamp: Stamp, kind: EventKind, depth: u32) -> FunctionEvent<'static> {
    FunctionEvent {
        stamp,
        kind,
        function: Some(FunctionId::new(ModuleId(1), 1)),
        ip: None,
        depth,
        detail: None,
        extra: codec::heph::Attributes::default(),
    }
}

/// An event packet; which kind of event it is depends on `variety`.
pub(crate) fn packet(stamp: Stamp, variety: u8) -> Vec<u8> {
    let mut out = Vec::new();
    let long = "ä".repeat(1000);
    let registers = [u64::MAX; 11];
    let stack = [0x0102_0304_0506_0708; 64];
    let word = |name, value| Attribute { name, value };
    let arrays = [
        word("", Value::U64s((&[1, u64::MAX]).into())),
        word("f", Value::F64s((&[f64::NAN, f64::INFINITY, 0.5]).into())),
        word("\"quoted\"\n", Value::Strs((&["\u{0}", "\u{2028}"]).into())),
        word("i", Value::I64(i64::MIN)),
        word("u", Value::U64(u64::MAX)),
    ];
    let keys = [word("phase", Value::U64(2)), word("task", Value::U64(9))];
    let call = function(stamp, EventKind::Call, u32::from(variety));
    let encoded = match variety % 9 {
        0 | 1 => call.encode(&mut out),
        2 => function(stamp, EventKind::Return, u32::from(variety)).encode(&mut out),
        3 => FunctionEvent { detail: Some(Detail::new(&registers, &stack)), ..call }.encode(&mut out),
        4 => FunctionEvent { depth: u32::MAX, function: None, ip: Some(77), kind: EventKind::Exception, ..call }
            .encode(&mut out),
        5 => Event { stamp, description: "swift_task_create", attributes: (&keys).into() }.encode(&mut out),
        6 => Event { stamp, description: &long, attributes: (&arrays).into() }.encode(&mut out),
        7 => FunctionEvent { ip: Some(5), extra: (&arrays).into(), ..call }.encode(&mut out),
        _ => {
            FunctionEvent { function: Some(FunctionId(3)), stamp: Stamp { substream: SubstreamId(6), ..stamp }, ..call }
                .encode(&mut out)
        }
    };
    encoded.expect("it can be written");
    out
}

/// A batch of runs: stream, position of the first, packets.
pub(crate) fn batch(session: &Arc<Session>, runs: &[(u32, u64, Vec<Vec<u8>>)]) -> Arc<Batch> {
    let mut bytes = Vec::new();
    let runs = runs.iter().map(|(stream, first, packets)| {
        let before = bytes.len();
        packets.iter().for_each(|packet| bytes.extend_from_slice(packet));
        Run {
            stream: StreamId(*stream),
            first: Position(*first),
            events: u32::try_from(packets.len()).expect("few"),
            bytes: u32::try_from(bytes.len() - before).expect("small"),
            skip: 0,
        }
    });
    let runs = runs.collect();
    Arc::new(Batch { session: Arc::clone(session), bytes: bytes.into(), runs })
}

/// In which form the packets of a batch are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Every event is a packet.
    Single,
    /// Function events are in runs.
    Runs,
    /// The same, and the first and last run also hold events that are not the batch's.
    Overlapping,
}

impl Form {
    pub(crate) const ALL: [Self; 3] = [Self::Single, Self::Runs, Self::Overlapping];
}

/// The same batch as [`batch`], in another form.
pub(crate) fn batch_in(form: Form, session: &Arc<Session>, runs: &[(u32, u64, Vec<Vec<u8>>)]) -> Arc<Batch> {
    if form == Form::Single {
        return batch(session, runs);
    }
    let mut bytes = Vec::new();
    let runs = runs.iter().map(|(stream, first, packets)| {
        let before = bytes.len();
        let messages: Vec<_> = packets.iter().map(|packet| Message::decode(packet).expect("a packet")).collect();
        // Only what is in one packet with an event of the batch may be there beside it.
        let neighbour = |message: Option<&Message<'_>>, by: u32| match message {
            Some(Message::Function(event)) if form == Form::Overlapping && RunEvent::of(event).is_some() => {
                let counter = Counter(event.stamp.counter.0.wrapping_add(by));
                let stamp = Stamp { counter, start: event.stamp.end, ..event.stamp };
                Some(Message::Function(function(stamp, EventKind::Call, 7)))
            }
            _ => None,
        };
        let ahead = neighbour(messages.first(), u32::MAX);
        let behind = neighbour(messages.last(), 1);
        let mut packer = Packer::default();
        for message in ahead.iter().chain(&messages).chain(&behind) {
            packer.push(message, &mut bytes).expect("it can be written");
        }
        packer.finish(&mut bytes);
        Run {
            stream: StreamId(*stream),
            first: Position(*first),
            events: u32::try_from(packets.len()).expect("few"),
            bytes: u32::try_from(bytes.len() - before).expect("small"),
            skip: u32::from(ahead.is_some()),
        }
    });
    let runs = runs.collect();
    Arc::new(Batch { session: Arc::clone(session), bytes: bytes.into(), runs })
}

/// A directory that no other test has, and that is not there yet.
pub(crate) fn fresh_dir(name: &str) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("sinks-{name}-{number}"));
    let _ = std::fs::remove_dir_all(&dir);
    dir
}
