//! The engine.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use codec::{
    EventKind, FunctionId, Position, SessionNs, StreamId,
    profile::{FunctionEvent, Limits, Message, ProfileOption, RuntimeEvent},
    span::{Reason, Span, SpanFlags, SpanId, SpanKind, SpanStatus, What},
};

use super::{
    SpanConfig,
    callback::Watch,
    frames::Frames,
    logical::{Logical, TraceEnd},
    naming::{is_of_program, is_thunk, whole},
    order::Order,
    order::{Body, OrderedEvent, Runtime},
    out::{MOST_ENTRY_ONLY, Out},
    plain::Plain,
    stack::{Frame, Ran},
    store::{begin, more},
};
use crate::Catalog;

/// Makes spans of the events of one session.
///
/// Frames are made of the events of their own thread, as those come. Whatever concerns several threads waits until the
/// events before it are there, and is then taken in the order of time; so spans are the same however the threads'
/// events are mixed.
#[derive(Debug, Clone)]
pub struct Engine {
    threads: Vec<Thread>,
    by_stream: HashMap<StreamId, usize>,
    /// The thread of the event before: mostly the next is of the same.
    last: usize,
    order: Order,
    logical: Logical,
    watch: Watch,
    /// Frames from before this were reported open.
    reported: SessionNs,
    out: Out,
}

/// What is known of one stream.
#[derive(Debug, Clone)]
struct Thread {
    stream: StreamId,
    frames: Frames,
    plain: Plain,
    /// When the last event was.
    at: SessionNs,
    /// The position of the event that comes next.
    next: Position,
    /// Gaps behind the last event.
    gaps: Vec<Span>,
    /// When the latest gap ended.
    gap_end: Option<SessionNs>,
    /// When the latest thing was that was told of it in the order of time.
    told: SessionNs,
    /// How many calls are still looked at for one that a job can be named by.
    naming: u8,
}

/// How many gaps one behind the other are told each for itself.
const MOST_GAPS: usize = 64;

/// In how many calls of a job a function of the program is looked for. Before it come those by which the runtime runs a job,
/// and a few thunks that allocate memory.
const NAMING: u8 = 128;

/// How the trace ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The process ended: it exited, was replaced, or was told to end.
    Exited,
    /// The process ended by a signal that tells of a defect.
    Crashed,
    /// The trace ends, and the process may go on.
    Cut,
}

/// What an engine counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpanCounts {
    /// Spans made.
    pub made: u64,
    /// Spans that are open, and events that wait for one that they lie within. One with a long name counts as several.
    pub open: u64,
    /// Events that wait for those before them, of other threads.
    pub waiting: u64,
    /// How often a span was reported to be open.
    pub notices: u64,
    /// Spans that were given up so that memory stays bounded.
    pub evicted: u64,
    /// Resumptions of something that nobody saw suspended.
    pub orphans: u64,
    /// What concerns several threads and came when others from behind it had been told.
    pub late: u64,
}

impl Finish {
    /// From the words of a manifest: how it ended, and the exit code or signal.
    pub fn of(how: &str, code: Option<i32>) -> Self {
        /// SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS, as Linux numbers them.
        const DEFECTS: [i32; 7] = [4, 5, 6, 7, 8, 11, 31];
        match (how, code) {
            ("signaled", Some(signal)) if DEFECTS.contains(&signal) => Self::Crashed,
            ("exited" | "signaled" | "replaced", _) => Self::Exited,
            _ => Self::Cut,
        }
    }
}

impl Engine {
    /// An engine for one session.
    pub fn new(config: SpanConfig) -> Self {
        Self {
            threads: Vec::new(),
            by_stream: HashMap::new(),
            last: 0,
            order: Order::new(config.max_open),
            logical: Logical::default(),
            out: Out::new(config.timeout_ns, config.max_open),
            watch: Watch::new(config.callbacks),
            reported: SessionNs(0),
        }
    }

    #[inline]
    fn thread(&mut self, stream: StreamId) -> usize {
        if self.threads.get(self.last).is_some_and(|thread| thread.stream == stream) {
            return self.last;
        }
        let next = self.threads.len();
        let threads = &mut self.threads;
        self.last = *self.by_stream.entry(stream).or_insert_with(|| {
            threads.push(Thread {
                stream,
                frames: Frames::new(stream),
                plain: Plain::default(),
                at: SessionNs(0),
                next: Position(0),
                gaps: Vec::new(),
                gap_end: None,
                told: SessionNs(0),
                naming: 0,
            });
            next
        });
        self.last
    }

    /// An event. Those of one stream come in order, with rising positions.
    #[inline]
    pub fn event(&mut self, stream: StreamId, position: Position, message: &Message<'_>, names: &Catalog) {
        let index = match message {
            Message::Function(event) => return self.function(stream, position, event, names),
            Message::Runtime(event) => {
                let index = self.comes(stream, position, event.stamp.end);
                self.runtime(index, position, event, names);
                index
            }
            Message::Event(event) => {
                let index = self.comes(stream, position, event.stamp.end);
                let Some(thread) = self.threads.get_mut(index) else { return };
                thread.plain.event(stream, position, event, &mut self.out);
                index
            }
            Message::Run(_) | Message::Option(_) | Message::Metadata(_) | Message::BadOption { .. } => return,
        };
        if !self.out.ordered.is_empty() {
            self.put_in_order(index);
        }
    }

    /// The same, of a function.
    #[inline]
    pub fn function(&mut self, stream: StreamId, position: Position, event: &FunctionEvent<'_>, names: &Catalog) {
        let index = self.comes(stream, position, event.stamp.end);
        let Some(thread) = self.threads.get_mut(index) else { return };
        if event.kind == EventKind::Call {
            let frame = thread.frames.call(position, event, &mut self.out);
            if thread.naming > 0 || !self.watch.is_idle() {
                self.look_at(index, position, event, frame, names);
            }
        } else {
            thread.frames.left(position, event, names, &mut self.out);
        }
        if !self.out.ordered.is_empty() {
            self.put_in_order(index);
        }
    }

    /// An event of a thread comes. Returns where the thread is.
    #[inline(always)]
    fn comes(&mut self, stream: StreamId, position: Position, at: SessionNs) -> usize {
        let index = self.thread(stream);
        let Some(thread) = self.threads.get_mut(index) else { return index };
        thread.next = Position(position.0.saturating_add(1));
        if !thread.gaps.is_empty() {
            thread.end_gaps(Some(at), &mut self.out);
        }
        thread.at = at;
        (self.out.now, self.out.position) = (at, position);
        index
    }

    /// A call that may have something to do with jobs or callbacks.
    #[inline(never)]
    fn look_at(&mut self, index: usize, position: Position, event: &FunctionEvent<'_>, frame: SpanId, names: &Catalog) {
        let Some(thread) = self.threads.get_mut(index) else { return };
        let (at, stream) = (event.stamp.start, thread.stream);
        if let (Some(left), Some(function)) = (thread.naming.checked_sub(1), event.function) {
            thread.naming = left;
            if is_of_program(function, names) {
                let function = whole(function, names);
                // A thunk is better than nothing, and whatever it calls better than that.
                let is_thunk = is_thunk(function, names);
                thread.naming = if is_thunk { left } else { 0 };
                let body = Body::JobRuns { ran: Ran::Function(function), is_thunk };
                self.out.ordered.push(OrderedEvent { at, stream, position, rank: 0, body });
            }
        }
        if !self.watch.is_idle() {
            let context = || thread.frames.context(at);
            if let Some(body) = self.watch.call(event, frame, context, names) {
                self.out.ordered.push(OrderedEvent { at, stream, position, rank: 0, body });
            }
        }
    }

    #[inline(never)]
    fn runtime(&mut self, index: usize, position: Position, event: &RuntimeEvent<'_>, names: &Catalog) {
        let Some(thread) = self.threads.get_mut(index) else { return };
        let mut runtime = Runtime::new(event);
        let context = thread.frames.context(event.stamp.start);
        (runtime.own, runtime.own_function) = (context.own.map(|own| own.0), context.own.map(|own| own.1));
        runtime.caller = context.caller;
        if event.phase == EventKind::Exception {
            runtime.why = Some(thread.frames.why_left(names));
        }
        if event.function == "swift_job_run" {
            let entered = event.phase == EventKind::Call;
            runtime.own_function = runtime.own_function.and_then(|ran| match ran {
                Ran::Function(function) if is_of_program(function, names) && !is_thunk(function, names) => {
                    Some(Ran::Function(whole(function, names)))
                }
                _ => None,
            });
            thread.naming = if entered && runtime.own_function.is_none() { NAMING } else { 0 };
        }
        let (at, stream) = (event.stamp.end, thread.stream);
        let body = Body::Runtime(Box::new(runtime));
        self.out.ordered.push(OrderedEvent { at, stream, position, rank: 0, body });
    }

    /// Events of a stream are missing, between those before this call and those behind it.
    pub fn gap(&mut self, stream: StreamId, first: Position, count: u64, cause: &str) {
        let index = self.thread(stream);
        let cause = self.out.name(cause);
        let Some(thread) = self.threads.get_mut(index) else { return };
        let mut span = begin(SpanId::new(stream, first), SpanKind::Gap, stream, thread.at, Some(count));
        span.what = What::Named(self.out.name("gap"));
        more(&mut span).cause = Some(cause);
        // Without an event between them, many are told as the last of them.
        match thread.gaps.len() < MOST_GAPS {
            true => thread.gaps.push(span),
            false => thread.gaps.last_mut().map(more).into_iter().for_each(|last| {
                last.key = last.key.map(|before| before.saturating_add(count));
            }),
        }
        thread.next = Position(first.0.saturating_add(count));
        thread.frames.gap(thread.next);
        thread.naming = 0;
    }

    /// An option of the session.
    pub fn option(&mut self, option: &ProfileOption<'_>) {
        match option {
            ProfileOption::Progress(progress) => {
                let (threads, by_stream) = (&self.threads, &self.by_stream);
                let reached = |stream: StreamId, next: Position| {
                    let thread = by_stream.get(&stream).and_then(|index| threads.get(*index));
                    thread.map_or(next == Position(0), |thread| thread.next >= next)
                };
                self.order.progress(progress, reached);
                self.take_turns();
            }
            ProfileOption::Thread(thread) => self.logical.threads.lifetime(thread),
            ProfileOption::Limits(limits) => self.limits(limits),
            _ => {}
        }
    }

    /// The limits that tell of functions whose returns are not watched: `functions 3,7-9`, or `all functions`.
    fn limits(&mut self, limits: &Limits<'_>) {
        // Somebody may tell the same again and again, in few words.
        let mut most = MOST_ENTRY_ONLY;
        for limit in limits.limits.iter().filter(|limit| limit.reason == "entry-only") {
            if limit.detail == "all functions" {
                self.out.add_entry_only_module(limit.module);
            }
            let Some(list) = limit.detail.strip_prefix("functions ") else { continue };
            for (first, last) in list.split(',').filter_map(range) {
                for index in (first..=last).take(most) {
                    most = most.saturating_sub(1);
                    self.out.add_entry_only(FunctionId::new(limit.module, index));
                }
            }
        }
    }

    /// No event from before this time will come any more, of any stream. Spans of several threads are made only when
    /// that is known.
    pub fn settle(&mut self, until: SessionNs) {
        self.order.settle(until);
        self.take_turns();
    }

    /// Puts what the latest event of a thread tells among what the others tell. Each thread's own order stays, whatever
    /// its clock says.
    fn put_in_order(&mut self, index: usize) {
        let Some(thread) = self.threads.get_mut(index) else { return };
        for (rank, mut told) in (0..).zip(self.out.ordered.drain(..)) {
            thread.told = thread.told.max(told.at);
            (told.at, told.rank) = (thread.told, rank);
            self.order.push(told);
        }
        if self.order.is_crowded() {
            self.take_turns();
        }
    }

    fn take_turns(&mut self) {
        let (threads, by_stream) = (&self.threads, &self.by_stream);
        while let Some(told) = self.order.next() {
            self.logical.take(told, &|stream| latest(threads, by_stream, stream), &mut self.out);
        }
        let settled = self.order.settled();
        self.logical.settled(settled, &mut self.out);
        let since = SessionNs(settled.0.saturating_sub(self.out.timeout_ns()));
        // Not each time that a little has passed: all threads are looked at.
        if since.0 > self.reported.0.saturating_add(self.out.timeout_ns() / 128) {
            self.reported = since;
            for thread in &mut self.threads {
                thread.frames.report_open(since, &mut self.out);
            }
        }
    }

    /// Takes what waits for events that will not come.
    fn take_rest(&mut self) {
        let (threads, by_stream) = (&self.threads, &self.by_stream);
        while let Some(told) = self.order.next_at_end() {
            self.logical.take(told, &|stream| latest(threads, by_stream, stream), &mut self.out);
        }
    }

    /// Nothing more will come. All that is open is told, for the last time.
    pub fn finish(&mut self, finish: Finish, at: Option<SessionNs>) {
        self.take_turns();
        self.take_rest();
        let last = self.threads.iter().map(|thread| thread.at.max(thread.told)).max().unwrap_or(SessionNs(0));
        let at = at.unwrap_or(last).max(last);
        self.out.ends(at);
        let timeout = self.out.timeout_ns();
        let why = |start: SessionNs| match finish {
            Finish::Exited => (SpanStatus::Unmatched, Some(Reason::ProcessExit)),
            Finish::Crashed => (SpanStatus::Unmatched, Some(Reason::Crash)),
            Finish::Cut if at.0.saturating_sub(start.0) > timeout => (SpanStatus::Open, Some(Reason::Timeout)),
            Finish::Cut => (SpanStatus::Open, None),
        };
        let mut places: Vec<usize> = (0..self.threads.len()).collect();
        places.sort_by_key(|place| self.threads.get(*place).map(|thread| thread.stream));
        for place in places {
            let Some(thread) = self.threads.get_mut(place) else { continue };
            let ended = self.logical.threads.has_ended(thread.stream, at);
            let of_frame = |frame: &Frame| match ended {
                true => (SpanStatus::Unmatched, Some(Reason::ThreadExit)),
                false => why(frame.start),
            };
            thread.frames.finish(of_frame, &mut self.out);
            thread.plain.finish(&mut self.out);
            thread.end_gaps(None, &mut self.out);
        }
        for (rank, told) in (0..).zip(self.out.ordered.drain(..)) {
            self.order.push(OrderedEvent { rank, ..told });
        }
        self.take_rest();
        let (threads, by_stream) = (&self.threads, &self.by_stream);
        let gap_end = |stream: Option<StreamId>| match stream {
            Some(stream) => by_stream.get(&stream).and_then(|index| threads.get(*index)).and_then(|at| at.gap_end),
            None => threads.iter().filter_map(|thread| thread.gap_end).max(),
        };
        let latest = |stream| latest(threads, by_stream, stream);
        self.logical.finish(&TraceEnd { at, why: &why, gap_end: &gap_end, latest: &latest }, &mut self.out);
        self.threads.clear();
        self.by_stream.clear();
    }

    /// The spans that are ready. The caller takes them out.
    pub fn spans(&mut self) -> &mut Vec<Span> {
        &mut self.out.ready
    }

    /// How many spans may be open from now on: engines that share memory share it out.
    pub fn set_max_open(&mut self, most: usize) {
        self.out.set_most(most);
        self.order.set_most(most);
    }

    /// What it has counted.
    pub fn counts(&self) -> SpanCounts {
        SpanCounts { waiting: self.order.len() as u64, late: self.order.late(), ..self.out.counts }
    }
}

impl Thread {
    /// The gaps end with the next event, if there is one.
    #[inline(never)]
    fn end_gaps(&mut self, at: Option<SessionNs>, out: &mut Out) {
        for mut gap in self.gaps.drain(..) {
            gap.end = at;
            // Before the first event of a stream there is no time.
            if gap.start == SessionNs(0) {
                gap.start = at.unwrap_or_default();
            }
            if at.is_none() {
                gap.status = SpanStatus::Open;
            }
            gap.flags = SpanFlags::default();
            out.made(gap);
            self.gap_end = Some(at.unwrap_or(SessionNs(u64::MAX)));
        }
    }
}

/// When the latest event of a stream was.
fn latest(threads: &[Thread], by_stream: &HashMap<StreamId, usize>, stream: StreamId) -> SessionNs {
    by_stream.get(&stream).and_then(|index| threads.get(*index)).map_or(SessionNs(0), |thread| thread.at)
}

/// `7` or `7-9`.
fn range(text: &str) -> Option<(u32, u32)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
}

/// Names that come again and again, each kept once.
#[derive(Debug, Clone, Default)]
pub(super) struct Interned {
    names: HashSet<Arc<str>>,
}

impl Interned {
    /// How many names are kept, and how long they may be; others are made anew each time.
    const MOST: usize = 4096;
    const LONGEST: usize = 256;

    pub(super) fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        let made: Arc<str> = name.into();
        if self.names.len() < Self::MOST && name.len() <= Self::LONGEST {
            self.names.insert(Arc::clone(&made));
        }
        made
    }
}
