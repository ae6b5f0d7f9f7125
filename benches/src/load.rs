//! Events to send: made once, and given new numbers and times for every use.

use codec::{
    Arch, ClockKind, EventKind, FunctionId, ModuleId, Os, Position, SessionId, SessionNs, StreamId, SubstreamId,
    heph::{Attributes, Encode, Stamp},
    profile::{
        Clock, Detail, End, EndReason, FunctionEvent, PROFILE_VERSION, ProfileOption, Progress, Registers, RunEncoder,
        RunEvent, Session, StreamPosition,
    },
};

/// What every event carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carries {
    /// Function, time and depth.
    Index,
    /// Registers too, and 128 bytes of stack.
    Detail,
}

impl Carries {
    /// What it is called in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Index => "index-only",
            Self::Detail => "full detail",
        }
    }
}

/// Calls and their returns by turns, of one stream.
#[derive(Debug, Clone)]
pub struct Load {
    /// A call and its return, as packets.
    call_bytes: usize,
    pair_bytes: usize,
    bytes: Vec<u8>,
}

const STREAM_AT: usize = 8;
const COUNTER_AT: usize = 12;
const START_AT: usize = 24;
const END_AT: usize = 32;

impl Load {
    /// So many pairs of events.
    pub fn new(carries: Carries, pairs: usize) -> Self {
        let call = packet(carries, EventKind::Call);
        let pair = [call.clone(), packet(carries, EventKind::Return)].concat();
        Self { call_bytes: call.len(), pair_bytes: pair.len(), bytes: pair.repeat(pairs) }
    }

    /// How many events it has.
    pub fn events(&self) -> u64 {
        2 * (self.bytes.len() / self.pair_bytes) as u64
    }

    /// How many bytes a call and its return have.
    pub fn pair_bytes(&self) -> usize {
        self.pair_bytes
    }

    /// The events of a stream from an even position on.
    pub fn at(&mut self, stream: u32, first: u64) -> &[u8] {
        for (pair, number) in self.bytes.chunks_exact_mut(self.pair_bytes).zip(0_u64..) {
            let (call, ret) = pair.split_at_mut(self.call_bytes);
            let position = first + 2 * number;
            let time = position * 100;
            restamp(call, stream, position, time, time);
            restamp(ret, stream, position + 1, time, time + 50);
        }
        &self.bytes
    }
}

fn restamp(packet: &mut [u8], stream: u32, position: u64, start: u64, end: u64) {
    packet[STREAM_AT..COUNTER_AT].copy_from_slice(&stream.to_be_bytes());
    packet[COUNTER_AT..COUNTER_AT + 4].copy_from_slice(&Position(position).counter().0.to_be_bytes());
    packet[START_AT..END_AT].copy_from_slice(&start.to_be_bytes());
    packet[END_AT..END_AT + 8].copy_from_slice(&end.to_be_bytes());
}

fn packet(carries: Carries, kind: EventKind) -> Vec<u8> {
    let registers = [0x7f00_0000_1234; Registers::WORDS];
    let stack = [0x7ffd_0000_5678; 16];
    let detail = (carries == Carries::Detail).then(|| Detail::new(&registers, &stack));
    encode(&function_event(stamp(0, 0, 0, 0), kind, FunctionId::new(ModuleId(1), 77), 3, detail))
}

/// Appends a run of a stream's events from a position on, calls and returns by turns, of no more than so many bytes. How
/// many those are.
pub fn run(carries: Carries, stream: u32, first: u64, bytes: usize, out: &mut Vec<u8>) -> u64 {
    let (registers, stack) = ([0x7f00_0000_1234; Registers::WORDS], [0x7ffd_0000_5678; 16]);
    let detail = (carries == Carries::Detail).then(|| Detail::new(&registers, &stack));
    let (limit, function) = (out.len() + bytes, Some(FunctionId::new(ModuleId(1), 77)));
    let mut encoder: Option<RunEncoder> = None;
    let mut position = first;
    loop {
        let (kind, time) = if position.is_multiple_of(2) { (EventKind::Call, 0) } else { (EventKind::Return, 50) };
        let (start, end) = (SessionNs(position / 2 * 200), SessionNs(position / 2 * 200 + time));
        let event = RunEvent { kind, depth: 3, function, ip: 0, start, end, detail };
        let stamp = stamp(stream, position, start.0, end.0);
        let run = encoder.get_or_insert_with(|| RunEncoder::begin(&stamp, &event, limit, out));
        if !run.push(&event, out) {
            run.finish(out);
            return position - first;
        }
        position += 1;
    }
}

/// The stamp of the event at a position of a stream.
pub fn stamp(stream: u32, position: u64, start: u64, end: u64) -> Stamp {
    let (stream, counter, substream) = (StreamId(stream), Position(position).counter(), SubstreamId(0));
    Stamp { stream, counter, substream, start: SessionNs(start), end: SessionNs(end) }
}

/// The event of a function that is known.
pub fn function_event<'a>(
    stamp: Stamp,
    kind: EventKind,
    function: FunctionId,
    depth: u32,
    detail: Option<Detail<'a>>,
) -> FunctionEvent<'a> {
    let (function, extra) = (Some(function), Attributes::default());
    FunctionEvent { stamp, kind, function, ip: None, depth, detail, extra }
}

/// What a session starts with.
pub fn opening(id: SessionId) -> Vec<u8> {
    let session = Session {
        id,
        profile: PROFILE_VERSION,
        arch: Arch::X86_64,
        os: Os::Linux,
        pid: std::process::id(),
        agent_version: "bench",
        host: "bench",
        executable: "bench",
        argument_count: 0,
        arguments: [].as_slice().into(),
    };
    let clock = Clock { clock: ClockKind::Boottime, zero_ns: 1_000_000_000 };
    [encode(&ProfileOption::from(session)), encode(&ProfileOption::from(clock))].concat()
}

/// How far the streams, each with so many events, have come.
pub fn progress(streams: &[u64]) -> Vec<u8> {
    encode(&ProfileOption::from(Progress { now: SessionNs(1), streams: positions(streams).as_slice().into() }))
}

/// What a session ends with.
pub fn ending(streams: &[u64]) -> Vec<u8> {
    let positions = positions(streams);
    encode(&ProfileOption::from(End {
        reason: EndReason::Exited(0),
        at: SessionNs(1),
        stream_count: u32::try_from(positions.len()).expect("few streams"),
        streams: positions.as_slice().into(),
    }))
}

fn positions(streams: &[u64]) -> Vec<StreamPosition> {
    (0..)
        .zip(streams)
        .map(|(stream, next)| StreamPosition { stream: StreamId(stream), next: Position(*next) })
        .collect()
}

/// The packet of a value.
pub fn encode(value: &impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut bytes).expect("a small packet");
    bytes
}
