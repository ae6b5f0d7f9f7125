//! A sender of datagrams, for the tests.

use std::{cell::Cell, net::SocketAddr};

use codec::{
    Arch, ClockKind, EventKind, FunctionId, Os, Position, SessionId, SessionNs, StreamId, SubstreamId,
    heph::{Attributes, Encode, Stamp},
    profile::{
        Answer, AnswerKind, Claim, Clock, Dropped, Drops, End, EndReason, Epoch, FunctionEvent, PROFILE_VERSION,
        ProfileOption, Progress, RunEncoder, RunEvent, Session, StreamPosition,
    },
};
use collector_core::Peer;

/// Makes the packets of one session.
pub(crate) struct Agent {
    pub(crate) id: SessionId,
    pub(crate) peer: Peer,
    /// Each event is a nanosecond later than the one before.
    clock: Cell<u64>,
}

impl Agent {
    pub(crate) fn new(number: u8, port: u16) -> Self {
        Self { id: SessionId([number; 16]), peer: peer(port), clock: Cell::new(0) }
    }

    pub(crate) fn session(&self) -> Vec<u8> {
        packet(Session {
            id: self.id,
            profile: PROFILE_VERSION,
            arch: Arch::X86_64,
            os: Os::Linux,
            pid: 4711,
            agent_version: "test",
            host: "here",
            executable: "/bin/true",
            argument_count: 0,
            arguments: [].as_slice().into(),
        })
    }

    pub(crate) fn clock(&self) -> Vec<u8> {
        packet(Clock { clock: ClockKind::Boottime, zero_ns: 5 })
    }

    /// The event at a position of a stream. Its function is its position, so that it can be told from others.
    pub(crate) fn event(&self, stream: u32, position: u64) -> Vec<u8> {
        self.event_with_counter(stream, position, position)
    }

    /// An event with a counter of its own.
    pub(crate) fn event_with_counter(&self, stream: u32, counter: u64, mark: u64) -> Vec<u8> {
        encode(&self.call(stream, counter, mark))
    }

    /// The events from a position of a stream on, in one packet.
    pub(crate) fn run(&self, stream: u32, first: u64, count: u64) -> Vec<u8> {
        let mut packet = Vec::new();
        let mut run: Option<RunEncoder> = None;
        for position in first..first + count {
            let event = self.call(stream, position, position);
            let packed = RunEvent::of(&event).expect("it can be in a run");
            let run = run.get_or_insert_with(|| RunEncoder::begin(&event.stamp, &packed, 60_000, &mut packet));
            assert!(run.push(&packed, &mut packet), "it fits");
        }
        run.expect("an event").finish(&mut packet);
        packet
    }

    fn call(&self, stream: u32, counter: u64, mark: u64) -> FunctionEvent<'static> {
        self.clock.set(self.clock.get() + 1);
        let time = SessionNs(self.clock.get());
        FunctionEvent {
            stamp: Stamp {
                stream: StreamId(stream),
                counter: Position(counter).counter(),
                substream: SubstreamId(0),
                start: time,
                end: time,
            },
            kind: EventKind::Call,
            function: Some(FunctionId(mark)),
            ip: None,
            depth: 0,
            detail: None,
            extra: Attributes::default(),
        }
    }

    pub(crate) fn progress(&self, positions: &[(u32, u64)]) -> Vec<u8> {
        let streams = stream_positions(positions);
        packet(Progress { now: SessionNs(self.clock.get()), streams: streams.as_slice().into() })
    }

    pub(crate) fn end(&self, positions: &[(u32, u64)]) -> Vec<u8> {
        let streams = stream_positions(positions);
        packet(End {
            reason: EndReason::Exited(0),
            at: SessionNs(self.clock.get()),
            stream_count: u32::try_from(streams.len()).expect("few streams"),
            streams: streams.as_slice().into(),
        })
    }

    pub(crate) fn answer(&self, number: u64, kind: AnswerKind, text: &str) -> Vec<u8> {
        packet(Answer { session: self.id, number, kind, text })
    }

    pub(crate) fn drops(&self, stream: u32, first: u64, count: u64) -> Vec<u8> {
        self.drops_because(stream, first, count, "ring-full")
    }

    pub(crate) fn drops_because(&self, stream: u32, first: u64, count: u64, reason: &str) -> Vec<u8> {
        let drops = [Dropped { stream: StreamId(stream), first: Position(first), count, reason }];
        packet(Drops { drops: (&drops).into() })
    }
}

pub(crate) fn peer(port: u16) -> Peer {
    Peer::Datagram { socket: 0, address: SocketAddr::from(([127, 0, 0, 1], port)) }
}

pub(crate) fn claim(secret: &[u8]) -> Vec<u8> {
    packet(Claim { secret })
}

pub(crate) fn epoch(unix_ns: u64) -> Vec<u8> {
    packet(Epoch { unix_ns })
}

fn stream_positions(positions: &[(u32, u64)]) -> Vec<StreamPosition> {
    positions.iter().map(|(stream, next)| StreamPosition { stream: StreamId(*stream), next: Position(*next) }).collect()
}

fn packet<'a>(option: impl Into<ProfileOption<'a>>) -> Vec<u8> {
    encode(&option.into())
}

fn encode(value: &impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut bytes).expect("a small packet");
    bytes
}
