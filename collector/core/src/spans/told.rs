//! What is told of several threads, on its way to be put in order.

use std::cmp::Ordering;

use codec::{
    EventKind, Position, SessionNs, StreamId,
    profile::{Key, RuntimeEvent},
    span::{Reason, Span, SpanId},
};

use super::stack::Ran;

/// Something that concerns more than one thread, or a span that does.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) at: SessionNs,
    pub(super) stream: StreamId,
    pub(super) position: Position,
    /// The how-many-th it is of what one event tells.
    pub(super) rank: u32,
    pub(super) body: Body,
}

/// What is told.
#[derive(Debug)]
pub(super) enum Body {
    /// A function of a runtime was entered or left.
    Runtime(Box<Runtime>),
    /// A frame that other spans point at was left.
    Frame(Box<Span>),
    /// The first function of the program that a job calls: the one it is named by.
    JobRuns { ran: Ran, is_thunk: bool },
    /// A function was given a callback.
    Registered { callback: Ran, address: u64, context: Option<u64>, own: Option<SpanId>, caller: Option<SpanId> },
    /// A function was entered that was given to another as a callback.
    CallbackEntered { callback: Ran, frame: SpanId, arguments: Option<[u64; 6]> },
}

/// A runtime event, with the frames around it.
#[derive(Debug)]
pub(super) struct Runtime {
    pub(super) function: Box<str>,
    pub(super) phase: EventKind,
    keys: [Option<u64>; Key::ALL.len()],
    /// When the function was entered.
    pub(super) entered: SessionNs,
    /// Why it was left, if that was without returning.
    pub(super) why: Option<Reason>,
    /// The frame of the function itself, where that is hooked.
    pub(super) own: Option<SpanId>,
    pub(super) own_function: Option<Ran>,
    /// The frame that called it.
    pub(super) caller: Option<SpanId>,
}

impl Runtime {
    pub(super) fn new(event: &RuntimeEvent<'_>) -> Self {
        let mut keys = [None; Key::ALL.len()];
        for (slot, key) in keys.iter_mut().zip(Key::ALL) {
            *slot = event.key(*key);
        }
        let (function, phase) = (event.function.into(), event.phase);
        let entered = event.stamp.start;
        Self { function, phase, keys, entered, why: None, own: None, own_function: None, caller: None }
    }

    pub(super) fn key(&self, key: Key) -> Option<u64> {
        self.keys.get(key as usize).copied().flatten()
    }
}

impl Told {
    /// The id of a span that begins with this.
    pub(super) fn id(&self) -> SpanId {
        SpanId::new(self.stream, self.position)
    }

    /// The id of a span that begins with this too, where another does already.
    pub(super) fn second_id(&self) -> SpanId {
        self.id().second()
    }

    fn order(&self) -> (SessionNs, StreamId, Position, u32) {
        (self.at, self.stream, self.position, self.rank)
    }
}

impl PartialEq for Told {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Told {}

impl PartialOrd for Told {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Told {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}
