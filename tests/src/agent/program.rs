//! The events of a program that does not exist. An event follows from its stream's history, so a test knows what a
//! trace should hold.

use codec::{
    EventKind, FunctionId, ModuleId, Position, SessionNs, StreamId, SubstreamId,
    heph::{Attributes, Stamp},
    profile::{Detail, FunctionEvent, Registers},
};

/// The time between two events of a stream.
pub const EVENT_NS: u64 = 1_000;

/// The module whose functions are called, and how many it has.
pub(super) const MODULE: u32 = 1;
pub(super) const FUNCTIONS: u32 = 40;

/// An event.
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
    /// Why the agent dropped it, if it did.
    pub dropped: Option<&'static str>,
}

impl Made {
    /// The registers and stack of the event at this position, if they were captured.
    pub fn captured(&self, position: u64) -> Option<(Registers, Vec<u64>)> {
        let words = std::array::from_fn(|word| position.wrapping_mul(31) + word as u64);
        let stack = (0..position % 4).map(|word| position << 8 | word).collect();
        self.detailed.then(|| (Registers::from_words(words), stack))
    }

    /// Passes the event on as the profile has it.
    pub fn with_event<T>(&self, stream: u32, position: u64, pass: impl FnOnce(&FunctionEvent<'_>) -> T) -> T {
        let captured = self.captured(position).map(|(registers, stack)| (registers.to_words(), stack));
        pass(&FunctionEvent {
            stamp: Stamp {
                stream: StreamId(stream),
                counter: Position(position).counter(),
                substream: SubstreamId(0),
                start: SessionNs(self.start_ns),
                end: SessionNs(self.time_ns),
            },
            kind: self.kind,
            function: Some(self.function),
            ip: None,
            depth: self.depth,
            detail: captured.as_ref().map(|(registers, stack)| Detail::new(registers, stack)),
            extra: Attributes::default(),
        })
    }
}

/// What all streams have made so far.
#[derive(Debug)]
pub struct Program {
    first_position: u64,
    detail_every: u64,
    /// When it began, in nanoseconds since the session's zero.
    start_ns: u64,
    streams: Vec<Stream>,
}

#[derive(Debug, Clone, Default)]
struct Stream {
    made: Vec<Made>,
    /// The functions that have been entered and not left.
    open: Vec<Made>,
}

impl Program {
    /// A program that has done nothing yet. The first event of every stream has this position, and one of so many has
    /// registers and stack.
    pub fn new(streams: u32, first_position: u64, detail_every: u64) -> Self {
        Self { first_position, detail_every, start_ns: 0, streams: vec![Stream::default(); streams as usize] }
    }

    /// The same, which begins at this time.
    pub fn starting_at(self, start_ns: u64) -> Self {
        Self { start_ns, ..self }
    }

    /// The position of the first event of every stream.
    pub fn first_position(&self) -> u64 {
        self.first_position
    }

    /// How many streams there are.
    pub fn streams(&self) -> u32 {
        self.streams.len() as u32
    }

    /// Everything that a stream has made, from its first position on.
    pub fn made(&self, stream: u32) -> &[Made] {
        &self.streams[stream as usize].made
    }

    /// Everything that all streams have made: stream, position and event.
    pub fn all_made(&self) -> impl Iterator<Item = (u32, u64, &Made)> {
        let first = self.first_position;
        (0..)
            .zip(&self.streams)
            .flat_map(move |(id, stream)| (first..).zip(&stream.made).map(move |(at, made)| (id, at, made)))
    }

    /// The next event of a stream that does a little of everything.
    pub fn step(&mut self, stream: u32) -> (u64, Made) {
        let Stream { made, open } = &self.streams[stream as usize];
        let (number, depth) = (made.len() as u64, open.len());
        let detailed = number.is_multiple_of(self.detail_every);
        // Down three, up two, and all the way up once it is deep.
        let returned = (number % 5 >= 3 || depth > 20).then(|| self.return_(stream, detailed)).flatten();
        returned.unwrap_or_else(|| self.call(stream, (number % u64::from(FUNCTIONS)) as u32, detailed))
    }

    /// Enters a function.
    pub fn call(&mut self, stream: u32, function: u32, detailed: bool) -> (u64, Made) {
        let Stream { made, open } = &mut self.streams[stream as usize];
        let time_ns = self.start_ns + (made.len() as u64 + 1) * EVENT_NS;
        let (function, depth) = (FunctionId::new(ModuleId(MODULE), function), open.len() as u32);
        let call = Made { kind: EventKind::Call, function, depth, start_ns: time_ns, time_ns, detailed, dropped: None };
        open.push(call);
        made.push(call);
        (self.last_position(stream), call)
    }

    /// Leaves the function that was entered last, if there is one.
    fn return_(&mut self, stream: u32, detailed: bool) -> Option<(u64, Made)> {
        let Stream { made, open } = &mut self.streams[stream as usize];
        let time_ns = self.start_ns + (made.len() as u64 + 1) * EVENT_NS;
        let returned = Made { kind: EventKind::Return, time_ns, detailed, ..open.pop()? };
        made.push(returned);
        Some((self.last_position(stream), returned))
    }

    /// Makes calls that are dropped. Returns the position of the first.
    pub fn drop_calls(&mut self, stream: u32, count: u64, reason: &'static str) -> u64 {
        let first = self.first_position + self.made(stream).len() as u64;
        for _ in 0..count {
            self.call(stream, 0, false);
            let Stream { made, open } = &mut self.streams[stream as usize];
            open.pop();
            if let Some(call) = made.last_mut() {
                call.dropped = Some(reason);
            }
        }
        first
    }

    fn last_position(&self, stream: u32) -> u64 {
        self.first_position + self.made(stream).len() as u64 - 1
    }
}
