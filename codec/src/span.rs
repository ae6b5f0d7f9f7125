//! Spans: what ran, from when to when, and what caused it.
//!
//! The record that the span engine makes and that the sinks write. `docs/spans.md` says what every field means for every
//! kind of span.

use std::{
    fmt,
    hash::{Hash, Hasher},
    num::NonZeroU64,
    sync::Arc,
};

use crate::{FunctionId, Position, SessionNs, StreamId, SubstreamId, platform::named};

/// A span's id in its session: the stream and the position of the event it begins with.
///
/// So it is the same however the events were mixed on their way, live and offline, and no two spans of a session have
/// the same. It is written as `STREAM:POSITION`; where two spans begin with one event, the second has a `b` behind that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpanId {
    /// Twice the stream, counted from 1, and one more for the second span of an event.
    stream: NonZeroU64,
    position: u64,
}

impl SpanId {
    /// The least of all.
    pub const FIRST: Self = Self { stream: NonZeroU64::MIN, position: 0 };

    /// How long its text may be.
    pub const MOST_TEXT: usize = 32;

    /// The id of the span that begins with this event.
    #[inline]
    pub fn new(stream: StreamId, position: Position) -> Self {
        let stream = NonZeroU64::MIN.saturating_add((u64::from(stream.0) << 1) | 1);
        Self { stream, position: position.0 }
    }

    /// The id of another span that begins with the same event.
    #[must_use]
    pub fn second(self) -> Self {
        Self { stream: self.stream | 1, ..self }
    }

    /// The stream of the event.
    pub fn stream(self) -> StreamId {
        StreamId(u32::try_from((self.stream.get() >> 1).saturating_sub(1)).unwrap_or(u32::MAX))
    }

    /// The position of the event in its stream.
    #[inline]
    pub fn position(self) -> Position {
        Position(self.position)
    }

    /// Its bytes, which are in the same order as ids.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.stream.get()) << 64 | u128::from(self.position)).to_be_bytes()
    }

    /// A number of 62 bits, for formats that have room for no more. Different ids have different ones up to 2³⁶ events
    /// of a stream and 2²⁴ streams, and beyond that almost surely.
    pub fn short(self) -> u64 {
        const POSITION_BITS: u32 = 36;
        let (stream, position) = (self.stream.get(), self.position);
        if stream >> 25 == 0 && position >> POSITION_BITS == 0 {
            return stream << POSITION_BITS | position;
        }
        let mixed = (position ^ stream.rotate_right(24)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ stream.wrapping_mul(0xbf58_476d_1ce4_e5b9)) >> 3 | 1 << 61
    }

    /// Its text, written to the end of a buffer.
    pub fn text(self, buffer: &mut [u8; Self::MOST_TEXT]) -> &str {
        str::from_utf8(self.ascii(buffer)).unwrap_or_default()
    }

    /// The same as bytes, all of them ASCII.
    #[inline]
    pub fn ascii(self, buffer: &mut [u8; Self::MOST_TEXT]) -> &[u8] {
        let mut at = buffer.len();
        let mut put = |byte: u8| {
            at = at.saturating_sub(1);
            if let Some(place) = buffer.get_mut(at) {
                *place = byte;
            }
        };
        if self.stream.get() & 1 == 1 {
            put(b'b');
        }
        digits(self.position, &mut put);
        put(b':');
        digits(self.stream().0.into(), &mut put);
        buffer.get(at..).unwrap_or_default()
    }
}

#[inline]
fn digits(mut number: u64, put: &mut impl FnMut(u8)) {
    loop {
        put(b'0' | (number % 10) as u8);
        number /= 10;
        if number == 0 {
            return;
        }
    }
}

/// Maps ask for it for every span, so it is one number.
impl Hash for SpanId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.position ^ self.stream.get().rotate_right(24));
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text(&mut [0; Self::MOST_TEXT]))
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Something that ran from one time to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its number.
    pub id: SpanId,
    /// The span it ran in, or that caused it.
    pub parent: Option<SpanId>,
    /// The same thing seen the other way: of a frame the logical span that it is the code of, of a logical span that
    /// frame.
    pub twin: Option<SpanId>,
    /// What ran.
    pub what: What,
    /// What kind of span it is.
    pub kind: SpanKind,
    /// How it stands.
    pub status: SpanStatus,
    /// Why it is not simply matched, where that is known.
    pub reason: Option<Reason>,
    /// What else is true of it.
    pub flags: SpanFlags,
    /// The thread it started on.
    pub stream: StreamId,
    /// The task that the thread was running; zero is the thread itself.
    pub substream: SubstreamId,
    /// How deep on the stack; 0 where it is no frame.
    pub depth: u32,
    /// When it started to run. Of one that never ran, when it was made.
    pub start: SessionNs,
    /// When it ended, if it has.
    pub end: Option<SessionNs>,
    /// Whether it is a frame that another span may name, as its parent or as what caused it, or that such a frame is in. It
    /// is told before what it is in, and nobody writes it down.
    pub is_named: bool,
    /// What only some spans have.
    pub more: Option<Box<More>>,
}

impl Span {
    /// A matched span of which nothing else is known yet, on the stream that its id names.
    #[inline]
    pub fn new(id: SpanId, kind: SpanKind, start: SessionNs, end: Option<SessionNs>) -> Self {
        Self {
            id,
            parent: None,
            twin: None,
            what: What::Unknown,
            kind,
            status: SpanStatus::Matched,
            reason: None,
            flags: SpanFlags::default(),
            stream: id.stream(),
            substream: SubstreamId(0),
            depth: 0,
            start,
            end,
            is_named: false,
            more: None,
        }
    }

    /// How long it took, if it has ended.
    pub fn duration(&self) -> Option<u64> {
        Some(self.end?.0.saturating_sub(self.start.0))
    }

    /// Whether its end is missing from the trace: it may have ended at any time.
    pub fn has_lost_its_end(&self) -> bool {
        self.end.is_none() && self.reason == Some(Reason::Gap)
    }

    /// The correlation key: the thread handle, block, task, continuation, group, context. Of a gap, how many events are
    /// missing.
    pub fn key(&self) -> Option<u64> {
        self.more.as_ref()?.key
    }
}

/// What ran.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum What {
    /// A function.
    Function(FunctionId),
    /// Whatever is at this address of the program.
    Address(u64),
    /// Something that has only a name.
    Named(Arc<str>),
    /// Nobody knows.
    Unknown,
}

/// What logical spans, gaps and spans with a history have beside the rest.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct More {
    /// The correlation key, see [`Span::key`].
    pub key: Option<u64>,
    /// When it was created, submitted, registered.
    pub created: Option<SessionNs>,
    /// The thread that did so.
    pub creator: Option<StreamId>,
    /// The frame that did so: the innermost that was open there.
    pub origin: Option<SpanId>,
    /// From creation to start, in nanoseconds.
    pub latency: Option<u64>,
    /// For how long it was suspended, all times together, in nanoseconds.
    pub suspended: u64,
    /// How often it was suspended.
    pub suspensions: u32,
    /// The threads that it ran on, in order, each once.
    pub threads: Vec<StreamId>,
    /// The thread that it ended on.
    pub end_stream: Option<StreamId>,
    /// The dispatch queue.
    pub queue: Option<u64>,
    /// The group.
    pub group: Option<u64>,
    /// The thread that joined it.
    pub joiner: Option<StreamId>,
    /// For how long that one waited, in nanoseconds.
    pub join_latency: Option<u64>,
    /// How it ended.
    pub ending: Option<Ending>,
    /// What it was given: the argument of a thread, the context of a callback.
    pub argument: Option<u64>,
    /// What it ended with: the value of a thread, the error of a task.
    pub result: Option<u64>,
    /// The executor that a turn of a task was given to.
    pub executor: Option<u64>,
    /// The thread that resumed what was suspended.
    pub resumer: Option<StreamId>,
    /// The frame that did so: the innermost that was open there.
    pub resumed_by: Option<SpanId>,
    /// How many creators there are above it.
    pub level: u32,
    /// When something was heard of it again, after it was reported open.
    pub resumed: Option<SessionNs>,
    /// Why events are missing; of gaps alone.
    pub cause: Option<Arc<str>>,
}

named! {
    /// What kind of span it is.
    SpanKind:
    /// A function, from entry to return.
    Frame = "frame",
    /// A thread, from the entry of its start routine to its end.
    Thread = "thread",
    /// A block or function that was submitted to a dispatch queue, from its start to its end.
    Block = "block",
    /// A dispatch group, from the first that entered it to the last that left it.
    Group = "group",
    /// A Swift task, from its first job to its end.
    Task = "task",
    /// One turn of a task on a thread.
    Job = "job",
    /// The time a task was suspended for.
    Suspension = "suspension",
    /// A callback, from its entry to its return.
    Callback = "callback",
    /// An event that has a start and an end of its own.
    Event = "event",
    /// Events that are missing, from the last before to the first behind.
    Gap = "gap",
}

impl SpanKind {
    /// The runtime that it belongs to.
    pub fn runtime(self) -> SpanRuntime {
        match self {
            Self::Frame => SpanRuntime::Native,
            Self::Thread => SpanRuntime::Pthread,
            Self::Block | Self::Group => SpanRuntime::Dispatch,
            Self::Task | Self::Job | Self::Suspension => SpanRuntime::Swift,
            Self::Callback => SpanRuntime::Callback,
            Self::Event => SpanRuntime::Heph,
            Self::Gap => SpanRuntime::Trace,
        }
    }

    /// Whether it is what the programmer meant to run, and not how the machine ran it.
    pub fn is_logical(self) -> bool {
        matches!(self, Self::Thread | Self::Block | Self::Group | Self::Task | Self::Callback)
    }
}

named! {
    /// Whose span it is.
    SpanRuntime:
    /// The machine's.
    Native = "native",
    /// POSIX threads.
    Pthread = "pthread",
    /// Grand Central Dispatch.
    Dispatch = "gcd",
    /// Swift concurrency.
    Swift = "swift",
    /// Callbacks, by the user's rules.
    Callback = "callback",
    /// A plain Heph trace.
    Heph = "heph",
    /// The trace itself.
    Trace = "trace",
}

named! {
    /// How a span stands.
    SpanStatus:
    /// Start and end were seen.
    Matched = "matched",
    /// It was canceled.
    Canceled = "canceled",
    /// One side was not seen, or it did not end the way it should.
    Unmatched = "unmatched",
    /// It has not ended, as far as is known.
    Open = "open",
}

named! {
    /// Why a span is not simply matched.
    Reason:
    /// It ended in a jump to another function, which returned for it.
    TailCall = "tail_call",
    /// Only its entry is watched.
    EntryOnly = "entry_only",
    /// An exception left it.
    Exception = "exception",
    /// The stack was unwound through it, nobody knows by whom.
    Unwind = "unwind",
    /// A `longjmp` left it.
    Longjmp = "longjmp",
    /// Its thread ended inside it.
    ThreadExit = "thread_exit",
    /// The process ended before it did.
    ProcessExit = "process_exit",
    /// The process crashed before it ended.
    Crash = "crash",
    /// It was canceled.
    Canceled = "canceled",
    /// The other side is missing from the trace.
    Gap = "gap",
    /// It took longer than `--span-timeout`, and the trace ends without it.
    Timeout = "timeout",
    /// It was forgotten so that memory stays bounded.
    Evicted = "evicted",
    /// It was submitted and has not run.
    Pending = "pending",
    /// Something was resumed that nobody saw suspended.
    Orphan = "orphan",
}

named! {
    /// How a logical span ended.
    Ending:
    /// By a return.
    Returned = "returned",
    /// By `pthread_exit`.
    Exited = "exited",
    /// By a cancellation.
    Canceled = "canceled",
    /// By an exception or a jump.
    Unwound = "unwound",
    /// With an error.
    Failed = "failed",
}

/// What else is true of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct SpanFlags(pub u32);

macro_rules! flags {
    ($($(#[$meta:meta])* $constant:ident = $bit:literal $text:literal,)+) => {
        impl SpanFlags {
            $($(#[$meta])* pub const $constant: Self = Self(1 << $bit);)+

            /// All flags that there are, each with its name.
            pub const NAMES: &'static [(Self, &'static str)] = &[$((Self::$constant, $text)),+];
        }
    };
}

flags! {
    /// It ran on another thread than the one that created it, or on several.
    CROSS_THREAD = 0 "cross_thread",
    /// Its creator waits for it.
    SYNC = 1 "sync",
    /// It runs alone on its queue.
    BARRIER = 2 "barrier",
    /// It runs after a time.
    AFTER = 3 "after",
    /// It runs when a group is empty.
    NOTIFY = 4 "notify",
    /// The thread was created detached, or was detached later.
    DETACHED = 5 "detached",
    /// The thread was joined.
    JOINED = 6 "joined",
    /// It may belong to another: keys were used again, and time does not tell.
    UNCERTAIN = 7 "uncertain",
    /// It does not lie within its parent.
    OUTSIDE_PARENT = 8 "outside_parent",
    /// It took longer than `--span-timeout`, and went on after that.
    TIMED_OUT = 9 "timed_out",
    /// Its start is known only from its end.
    NO_CALL = 10 "no_call",
    /// Nobody was seen to create it.
    ORPHAN = 11 "orphan",
    /// What ran was not watched: the name stands for it.
    PLACEHOLDER = 12 "placeholder",
    /// Events are missing between its start and its end.
    ACROSS_GAP = 13 "across_gap",
    /// Events are missing between the start of its parent and its own: if that has no end, it may have ended before.
    BEHIND_GAP = 14 "behind_gap",
    /// What called it is missing: its parent is further out, if it has one.
    NO_CALLER = 15 "no_caller",
}

impl SpanFlags {
    /// Whether all of these are set.
    pub fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Sets these.
    pub fn set(&mut self, flags: Self) {
        self.0 |= flags.0;
    }

    /// These too, if `when`.
    #[must_use]
    pub fn with(self, flags: Self, when: bool) -> Self {
        if when { Self(self.0 | flags.0) } else { self }
    }

    /// Without these.
    #[must_use]
    pub fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }

    /// The names of those that are set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| *name)
    }
}

impl fmt::Display for SpanFlags {
    /// The names, with commas between them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.names().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
