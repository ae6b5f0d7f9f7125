//! What concerns several threads, put in the order of time.
//!
//! Streams arrive one beside the other, none in step with the rest. What is told waits here until nothing from before
//! it can come any more. The agent says how far its streams have come, and when: that decides. Offline, the reader
//! knows.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BinaryHeap, HashMap},
};

use codec::{
    EventKind, Position, SessionNs, StreamId,
    profile::{Key, Progress, RuntimeEvent},
    span::{Reason, Span, SpanId},
};

use super::stack::Ran;

/// For how long an event may lie in the target before the agent takes it: what it tells of a stream's progress is true
/// of the time before that.
const DRAIN_NS: u64 = 250_000_000;

/// After how long nobody waits any more for streams to come as far as they were said to be: some may never, because
/// they were refused.
const PATIENCE_NS: u64 = 10_000_000_000;

/// How many events wait at most: they are large.
const MOST_WAITING: usize = 1 << 20;

/// Of how many streams it is remembered how far they were said to be.
const MOST_STREAMS: usize = 1 << 16;

/// What waits for its turn.
#[derive(Debug, Clone)]
pub(super) struct Order {
    waiting: BinaryHeap<Reverse<OrderedEvent>>,
    most: usize,
    /// Everything before this has been told.
    settled: SessionNs,
    /// What the agent has said of its streams, and since when.
    promised: Option<Promise>,
    /// How many came when others from behind them had been told.
    late: u64,
}

/// When the streams will all have come as far as they were said to be.
#[derive(Debug, Clone)]
struct Promise {
    now: SessionNs,
    streams: HashMap<StreamId, Position>,
}

impl Promise {
    fn add(&mut self, progress: &Progress<'_>) {
        for at in progress.streams {
            if self.streams.len() < MOST_STREAMS || self.streams.contains_key(&at.stream) {
                let next = self.streams.entry(at.stream).or_insert(at.next);
                *next = at.next.max(*next);
            }
        }
    }
}

impl Order {
    pub(super) fn new(most: usize) -> Self {
        Self {
            waiting: BinaryHeap::new(),
            most: most.min(MOST_WAITING),
            settled: SessionNs(0),
            promised: None,
            late: 0,
        }
    }

    pub(super) fn set_most(&mut self, most: usize) {
        self.most = most.min(MOST_WAITING);
    }

    pub(super) fn push(&mut self, told: OrderedEvent) {
        self.late += u64::from(told.at < self.settled);
        self.waiting.push(Reverse(told));
    }

    pub(super) fn settle(&mut self, until: SessionNs) {
        self.settled = self.settled.max(until);
    }

    pub(super) fn settled(&self) -> SessionNs {
        self.settled
    }

    /// The agent says how far its streams have come. `reached` tells whether a stream has been passed on up to a
    /// position.
    pub(super) fn progress(&mut self, progress: &Progress<'_>, reached: impl Fn(StreamId, Position) -> bool) {
        if let Some(promise) = &mut self.promised {
            // A long list comes in several packets of the same time.
            if promise.now == progress.now {
                return promise.add(progress);
            }
            let is_old = progress.now.0.saturating_sub(promise.now.0) > PATIENCE_NS;
            let kept = promise.streams.iter().all(|(stream, next)| reached(*stream, *next));
            // It is not kept yet: something is still on its way.
            if !kept && !is_old {
                return;
            }
            self.settled = self.settled.max(SessionNs(promise.now.0.saturating_sub(DRAIN_NS)));
        }
        let mut promise = Promise { now: progress.now, streams: HashMap::new() };
        promise.add(progress);
        self.promised = Some(promise);
    }

    /// How many came when others from behind them had been told.
    pub(super) fn late(&self) -> u64 {
        self.late
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether more wait than may.
    pub(super) fn is_crowded(&self) -> bool {
        self.waiting.len() > self.most
    }

    /// The next one whose turn it is. Also one whose turn it is not, if too many wait.
    pub(super) fn next(&mut self) -> Option<OrderedEvent> {
        let first = self.waiting.peek()?;
        if first.0.at < self.settled || self.waiting.len() > self.most {
            return self.waiting.pop().map(|told| told.0);
        }
        None
    }

    /// All that is left, in order.
    pub(super) fn next_at_end(&mut self) -> Option<OrderedEvent> {
        self.waiting.pop().map(|told| told.0)
    }
}

/// Something that concerns more than one thread, or a span that does.
#[derive(Debug, Clone)]
pub(super) struct OrderedEvent {
    pub(super) at: SessionNs,
    pub(super) stream: StreamId,
    pub(super) position: Position,
    /// The how-many-th it is of what one event tells.
    pub(super) rank: u32,
    pub(super) body: Body,
}

/// What is told.
#[derive(Debug, Clone)]
pub(super) enum Body {
    /// A function of a runtime was entered or left.
    Runtime(Box<Runtime>),
    /// A frame that other spans point at was left. If it ended in a tail call, what took its place returned then.
    Frame(Box<Span>, Option<SessionNs>),
    /// The first function of the program that a job calls: the one it is named by.
    JobRuns { ran: Ran, is_thunk: bool },
    /// A function was given a callback.
    Registered { callback: Ran, address: u64, context: Option<u64>, own: Option<SpanId>, caller: Option<SpanId> },
    /// A function was entered that was given to another as a callback.
    CallbackEntered { callback: Ran, frame: SpanId, arguments: Option<[u64; 6]> },
}

/// A runtime event, with the frames around it.
#[derive(Debug, Clone)]
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

impl OrderedEvent {
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

impl PartialEq for OrderedEvent {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for OrderedEvent {}

impl PartialOrd for OrderedEvent {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedEvent {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}
