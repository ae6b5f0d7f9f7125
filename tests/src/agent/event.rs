//! The events that an agent makes up. What is in one follows from its stream's history, so a test can tell what a
//! trace should hold.

use codec::{
    EventKind, FunctionId, ModuleId, Position, SessionNs, StreamId, SubstreamId,
    heph::{Attributes, Encode, Stamp},
    profile::{Detail, FunctionEvent, Registers},
};

/// How far apart in time two events of a stream are.
pub const EVENT_NS: u64 = 1_000;

/// The module whose functions are called.
pub(super) const MODULE: u32 = 1;

/// What became of an event at the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was sent.
    Sent,
    /// It was not kept, and the collector was told why.
    Dropped(&'static str),
    /// It was never sent, and nobody was told.
    Lost,
}

/// An event that was produced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    /// Whether a function was entered or left.
    pub kind: EventKind,
    /// The function.
    pub function: FunctionId,
    /// How deep it was.
    pub depth: u32,
    /// When it was entered, in nanoseconds since the session's zero.
    pub start_ns: u64,
    /// When this happened.
    pub time_ns: u64,
    /// Whether registers and stack were captured.
    pub detailed: bool,
    /// What became of it.
    pub fate: Fate,
}

impl Made {
    /// The registers and stack of the event at this position, if they were captured.
    pub fn captured(&self, position: u64) -> Option<(Registers, Vec<u64>)> {
        let words = std::array::from_fn(|word| position.wrapping_mul(31) + word as u64);
        let stack = (0..position % 4).map(|word| position << 8 | word).collect();
        self.detailed.then(|| (Registers::from_words(words), stack))
    }

    /// The event as a packet.
    pub(super) fn encode(&self, stream: u32, position: u64) -> Vec<u8> {
        let captured = self.captured(position).map(|(registers, stack)| (registers.to_words(), stack));
        let stamp = Stamp {
            stream: StreamId(stream),
            counter: Position(position).counter(),
            substream: SubstreamId(0),
            start: SessionNs(self.start_ns),
            end: SessionNs(self.time_ns),
        };
        let event = FunctionEvent {
            stamp,
            kind: self.kind,
            function: Some(self.function),
            ip: None,
            depth: self.depth,
            detail: captured.as_ref().map(|(registers, stack)| Detail::new(registers, stack)),
            extra: Attributes::default(),
        };
        let mut packet = Vec::new();
        event.encode(&mut packet).expect("the event fits a packet");
        packet
    }
}

/// The id of a function by its number.
pub(super) fn function_id(number: u32) -> FunctionId {
    FunctionId::new(ModuleId(MODULE), number)
}
