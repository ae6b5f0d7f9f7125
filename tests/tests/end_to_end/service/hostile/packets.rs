//! Packets for those who mean harm.

use codec::{
    Arch, Counter, EventKind, FunctionId, ModuleId, Os, Position, SessionId, SessionNs, StreamId, SubstreamId,
    heph::{Attributes, Encode, Metadata, Stamp},
    profile::{
        Detail, Dropped, Drops, End, EndReason, Epoch, FunctionEvent, FunctionName, Functions, Module, ProfileOption,
        Progress, Queue, Session, StreamPosition, Thread,
    },
};
use tests::Random;

pub(crate) fn encoded<'a>(option: impl Into<ProfileOption<'a>>) -> Vec<u8> {
    let mut packet = Vec::new();
    option.into().encode(&mut packet).expect("it fits a packet");
    packet
}

/// A session.
pub(crate) fn session(id: [u8; 16], host: &str, executable: &str) -> Vec<u8> {
    let arguments = [executable];
    encoded(Session {
        id: SessionId(id),
        profile: 1,
        arch: Arch::X86_64,
        os: Os::Linux,
        pid: 1,
        agent_version: "hostile",
        host,
        executable,
        argument_count: 1,
        arguments: (&arguments).into(),
    })
}

/// A call.
pub(super) fn event(stream: u32, counter: u32) -> Vec<u8> {
    let registers = [7; 11];
    let event = FunctionEvent {
        stamp: Stamp {
            stream: StreamId(stream),
            counter: Counter(counter),
            substream: SubstreamId(0),
            start: SessionNs(1_000),
            end: SessionNs(1_000),
        },
        kind: EventKind::Call,
        function: Some(FunctionId::new(ModuleId(1), 1)),
        ip: None,
        depth: 0,
        detail: stream.is_multiple_of(10).then(|| Detail::new(&registers, &[])),
        extra: Attributes::default(),
    };
    let mut packet = Vec::new();
    event.encode(&mut packet).expect("it fits a packet");
    packet
}

/// A part of a function table.
pub(super) fn functions(module: u32, first_index: u32, count: u32) -> Vec<u8> {
    let names: Vec<_> = (first_index..first_index + count).map(|index| format!("function number {index}")).collect();
    let functions: Vec<_> = names.iter().map(|name| FunctionName { offset: 1, name }).collect();
    encoded(Functions { module: ModuleId(module), first_index, functions: functions.as_slice().into() })
}

/// Everything that has a name, with this one.
pub(super) fn named(number: u32, name: &str) -> Vec<u8> {
    let functions = [FunctionName { offset: 1, name }];
    let stream = StreamId(number);
    let mut packets = encoded(Thread { stream, os_id: 1, start: SessionNs(0), end: None, creator: None, name });
    packets.extend(encoded(Module {
        id: ModuleId(number),
        base: 0,
        size: 1,
        loaded: SessionNs(0),
        unloaded: None,
        function_count: 1,
        table_hash: 0,
        build_id: &[],
        path: name,
    }));
    packets.extend(encoded(Functions {
        module: ModuleId(number),
        first_index: number,
        functions: (&functions).into(),
    }));
    packets.extend(encoded(Queue { id: number.into(), label: name }));
    packets
}

/// How far this many streams are.
pub(super) fn progress(streams: u32) -> Vec<u8> {
    let position = |stream| StreamPosition { stream: StreamId(stream), next: Position(0) };
    let streams: Vec<_> = (0..streams).map(position).collect();
    encoded(Progress { now: SessionNs(1), streams: streams.as_slice().into() })
}

/// A packet of every kind, with numbers as wild as they come.
pub(super) fn all_kinds(random: &mut Random) -> Vec<Vec<u8>> {
    let drops = [Dropped { stream: StreamId(0), first: Position(u64::MAX - 5), count: u64::MAX, reason: "all" }];
    let far = [StreamPosition { stream: StreamId(1), next: Position(u64::MAX) }];
    let mut unknown = Vec::new();
    let value = random.bytes(100);
    Metadata { name: "unknown", value: &value }.encode(&mut unknown).expect("it fits a packet");
    vec![
        session(random.id(), "host", "program"),
        encoded(Epoch { unix_ns: u64::MAX }),
        event(u32::MAX, u32::MAX),
        event(0, 1 << 31),
        functions(u32::MAX, u32::MAX - 100, 10),
        named(u32::MAX, "\u{202e}name\0"),
        encoded(Drops { drops: (&drops).into() }),
        encoded(Progress { now: SessionNs(u64::MAX), streams: (&far).into() }),
        encoded(End {
            reason: EndReason::Other(9, -1),
            at: SessionNs(u64::MAX),
            stream_count: u32::MAX,
            streams: (&far).into(),
        }),
        unknown,
    ]
}
