//! A session as a picture: which spans lie on which tracks, and which arrows lead from one to another.

use std::{borrow::Cow, io::Write};

use ahash::HashMap;
use codec::{
    SessionNs, StreamId,
    span::{Span, SpanId, SpanKind, SpanStatus},
};

use crate::{
    Budget, Catalog, Session, SinkError,
    family::{BirthPoint, ProcessLabel},
    nest::{Edge, Lanes, Nest, Step},
    open_spans::OpenSpans,
    output::Output,
    view::Encoder,
};

/// Where spans lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Track {
    /// The process: nothing but what stands for the whole trace.
    Process,
    /// What a thread called.
    Thread(StreamId),
    /// What is missing of a thread.
    Gaps(StreamId),
    /// The threads, each from its start to its end.
    Threads,
    /// All dispatch queues.
    Queues,
    /// What ran on a dispatch queue.
    Queue(u64),
    /// Blocks whose queue nobody knows.
    Blocks,
    /// Dispatch groups.
    Groups,
    /// All tasks.
    Tasks,
    /// A task with its turns and suspensions.
    Task(SpanId),
    /// Turns and suspensions whose task nobody knows.
    Jobs,
    /// Callbacks.
    Callbacks,
}

impl Track {
    /// Where a span lies.
    fn of(span: &Span) -> Self {
        match span.kind {
            SpanKind::Frame | SpanKind::Event => Self::Thread(span.stream),
            SpanKind::Gap => Self::Gaps(span.stream),
            SpanKind::Thread => Self::Threads,
            SpanKind::Block => span.more.as_ref().and_then(|more| more.queue).map_or(Self::Blocks, Self::Queue),
            SpanKind::Group => Self::Groups,
            SpanKind::Task => Self::Task(span.id),
            SpanKind::Job | SpanKind::Suspension => span.parent.map_or(Self::Jobs, Self::Task),
            SpanKind::Callback => Self::Callbacks,
        }
    }

    /// Whether spans lie inside of one another there.
    fn nests(self) -> bool {
        matches!(self, Self::Thread(_) | Self::Task(_))
    }
}

/// The spans of a session, on their tracks.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    open: OpenSpans,
    nest: Nest<Track>,
    lanes: HashMap<Track, Lanes>,
    /// How many lanes there are.
    taken: usize,
    budget: Budget,
    charged: u64,
}

/// After how many spans it is looked at how much memory the picture takes.
const CHUNK: usize = 1024;

/// What a lane takes.
const LANE_BYTES: usize = 32;

impl Picture {
    /// One that remembers no more than a budget that others share has room for.
    fn within(budget: &Budget) -> Self {
        Self { open: OpenSpans::within(budget.share()), budget: budget.share(), ..Self::default() }
    }

    /// Has as much of the budget as it needs. Where there is no more, it forgets what lies where, and passes on what waits.
    fn settle(&mut self, pass: impl FnMut(&Step<'_, Track>)) {
        let needed = self.memory_bytes();
        if self.budget.exchange(self.charged, needed) {
            self.charged = needed;
            return;
        }
        self.nest.start_anew(pass);
        (self.lanes, self.taken) = Default::default();
        self.budget.release(u64::MAX);
        self.charged = 0;
    }

    fn memory_bytes(&self) -> u64 {
        let lanes = self.lanes.len() * 2 * size_of::<(Track, Lanes)>() + self.taken * LANE_BYTES;
        (self.nest.memory_bytes() + lanes) as u64
    }

    /// Enters a span, and passes on what is to be written now. Of one that is only told to be open the end is awaited.
    pub(crate) fn add(&mut self, span: &Span, pass: impl FnMut(&Step<'_, Track>)) {
        if span.status == SpanStatus::Open {
            self.open.open(span);
        } else {
            self.open.close(span);
            self.close(span, pass);
        }
    }

    /// Passes on all that is left: what never closed ends with the trace.
    pub(crate) fn finish(&mut self, mut pass: impl FnMut(&Step<'_, Track>)) {
        for span in self.open.finish() {
            self.close(&span, &mut pass);
        }
        self.nest.finish(pass);
    }

    fn close(&mut self, span: &Span, mut pass: impl FnMut(&Step<'_, Track>)) {
        let track = Track::of(span);
        let seen = self.seen(track, span);
        let span = &*seen;
        if track.nests() {
            let is_task = span.kind == SpanKind::Task;
            // Whoever made a task is on another track.
            let parent = span.parent.filter(|_| !is_task);
            self.nest.close(track, parent, span, pass);
            if is_task {
                self.nest.forget(track);
            }
            return;
        }
        self.nest.release(span.id, &mut pass);
        let end = span.end.unwrap_or(span.start);
        let lanes = self.lanes.entry(track).or_default();
        let before = lanes.len();
        let lane = lanes.admit(span.start.0, end.0);
        self.taken += lanes.len() - before;
        pass(&Step { edge: Edge::Begin, track, lane, at: span.start, span });
        pass(&Step { edge: Edge::End, track, lane, at: end, span });
    }

    /// A span with the start and the end that it has in the picture: mostly its own.
    fn seen<'s>(&self, track: Track, span: &'s Span) -> Cow<'s, Span> {
        if span.kind != SpanKind::Suspension && span.end >= Some(span.start) {
            return Cow::Borrowed(span);
        }
        // What has no end went on for as long as what it called, and who knows for how much longer.
        let end = span.end.or_else(|| self.nest.end_within(track, span));
        let end = Some(end.unwrap_or(span.start).max(span.start));
        let mut start = span.start;
        if span.kind == SpanKind::Suspension && track.nests() {
            // It begins in a turn, and is seen from the end of that one on.
            let turn_end = self.nest.end_around(track, span.start).filter(|turn_end| Some(*turn_end) <= end);
            start = turn_end.unwrap_or(span.start);
        }
        Cow::Owned(Span { start, end, ..span.clone() })
    }
}

/// Encodes the begins and ends of one session's spans, in the order in which viewers need them.
pub trait StepEncoder: std::fmt::Debug + Send {
    /// What a file starts and ends with.
    const HEAD: &'static [u8] = b"";
    /// See [`HEAD`](Self::HEAD).
    const FOOT: &'static [u8] = b"";

    /// An encoder for the session with this number in the file, from 1. It remembers no more than a budget that others
    /// share has room for.
    fn new(number: u32, budget: &Budget) -> Self;

    /// Writes a begin or an end.
    fn step(&mut self, session: &Session, catalog: &Catalog, step: &Step<'_, Track>, out: &mut Vec<u8>);

    /// Writes an event that counts the spans that could not be written.
    fn lost(&mut self, session: &Session, catalog: &Catalog, count: u64, out: &mut Vec<u8>);

    /// Shows the process like this.
    fn label(&mut self, label: ProcessLabel);

    /// Writes one end of an arrow from process to process.
    fn birth(&mut self, session: &Session, catalog: &Catalog, point: &BirthPoint, out: &mut Vec<u8>);

    /// Writes what became known after it was needed.
    fn finish(&mut self, session: &Session, catalog: &Catalog, out: &mut Vec<u8>) {
        let _ = (session, catalog, out);
    }
}

/// A session on its way to a viewer: its picture, and the encoder of the steps.
#[derive(Debug)]
pub struct Drawing<E> {
    picture: Picture,
    encoder: E,
}

impl<E: StepEncoder> Encoder for Drawing<E> {
    type Options = Budget;
    const HEAD: &'static [u8] = E::HEAD;
    const FOOT: &'static [u8] = E::FOOT;

    fn new(number: u32, budget: &Budget) -> Self {
        Self { picture: Picture::within(budget), encoder: E::new(number, budget) }
    }

    fn spans<W: Write>(
        &mut self,
        session: &Session,
        spans: &[Span],
        lost: u64,
        out: &mut Output<W>,
    ) -> Result<(), SinkError> {
        let (buffer, catalog) = (out.buffer()?, session.catalog());
        for chunk in spans.chunks(CHUNK) {
            for span in chunk {
                self.picture.add(span, |step| self.encoder.step(session, &catalog, step, buffer));
            }
            self.picture.settle(|step| self.encoder.step(session, &catalog, step, buffer));
        }
        if lost > 0 {
            self.encoder.lost(session, &catalog, lost, buffer);
        }
        Ok(())
    }

    fn label(&mut self, label: ProcessLabel) {
        self.encoder.label(label);
    }

    fn birth<W: Write>(&mut self, session: &Session, point: &BirthPoint, out: &mut Output<W>) -> Result<(), SinkError> {
        let buffer = out.buffer()?;
        self.encoder.birth(session, &session.catalog(), point, buffer);
        Ok(())
    }

    fn end<W: Write>(mut self, session: &Session, lost: u64, out: &mut Output<W>) -> Result<(), SinkError> {
        self.spans(session, &[], lost, out)?;
        let (buffer, catalog) = (out.buffer()?, session.catalog());
        self.picture.finish(|step| self.encoder.step(session, &catalog, step, buffer));
        self.encoder.finish(session, &catalog, buffer);
        Ok(())
    }
}

/// One end of an arrow that is not at a span: a point on a thread's track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) name: &'static str,
    pub(crate) stream: StreamId,
    pub(crate) at: SessionNs,
}

/// An arrow from what caused something to where that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrow {
    /// Its number among the arrows of its session.
    pub(crate) id: u64,
    pub(crate) from: Point,
    /// Where it ends, if that is not where the span begins.
    pub(crate) to: Option<Point>,
    /// Whether it leads through the span.
    pub(crate) through: bool,
}

/// The arrows that belong to a span: to where it began, and, of a thread, to who joined it.
#[inline]
pub(crate) fn arrows(span: &Span) -> impl Iterator<Item = Arrow> {
    let is_call = matches!(span.kind, SpanKind::Frame | SpanKind::Event);
    (!is_call).then(|| known_arrows(span)).into_iter().flatten()
}

fn known_arrows(span: &Span) -> impl Iterator<Item = Arrow> {
    let more = span.more.as_deref();
    let number = span.id.short();
    let end_stream = more.and_then(|more| more.end_stream).unwrap_or(span.stream);
    let first = match span.kind {
        SpanKind::Suspension => {
            let from = Point { name: "suspend", stream: span.stream, at: span.start };
            let resumed = span.end.filter(|_| span.status == SpanStatus::Matched);
            resumed.map(|at| {
                let to = Some(Point { name: "resume", stream: end_stream, at });
                Arrow { id: number << 1, from, to, through: true }
            })
        }
        SpanKind::Thread | SpanKind::Block | SpanKind::Task | SpanKind::Callback => more.and_then(|more| {
            let name = match span.kind {
                SpanKind::Thread => "pthread_create",
                SpanKind::Block => "submit",
                SpanKind::Task => "create",
                _ => "register",
            };
            // Nothing happens before what causes it; where clocks say so, they are wrong by that much.
            let from = Point { name, stream: more.creator?, at: more.created?.min(span.start) };
            Some(Arrow { id: number << 1, from, to: None, through: true })
        }),
        _ => None,
    };
    let joiner = more.and_then(|more| more.joiner).filter(|_| span.kind == SpanKind::Thread);
    let join = joiner.zip(span.end).map(|(stream, at)| {
        let from = Point { name: "thread end", stream: end_stream, at };
        Arrow { id: number << 1 | 1, from, to: Some(Point { name: "pthread_join", stream, at }), through: false }
    });
    first.into_iter().chain(join)
}

/// Something that is known of a span beside its name and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    /// A number.
    Number(u64),
    /// An address, or what looks like one.
    Address(u64),
    /// A text.
    Text(Cow<'static, str>),
}

/// What is known of a span. Of a frame that simply returned, nothing: there are too many of them.
#[inline]
pub(crate) fn notes(span: &Span, note: impl FnMut(&'static str, Note)) {
    let ordinary = span.status == SpanStatus::Matched && matches!(span.kind, SpanKind::Frame | SpanKind::Event);
    if !ordinary || span.reason.is_some() || span.flags.0 != 0 || span.more.is_some() {
        known_notes(span, ordinary, note);
    }
}

fn known_notes(span: &Span, ordinary: bool, mut note: impl FnMut(&'static str, Note)) {
    if span.kind != SpanKind::Gap && !ordinary {
        note("status", Note::Text(span.status.name().into()));
    }
    if let Some(reason) = span.reason {
        note("reason", Note::Text(reason.name().into()));
    }
    if span.flags.0 != 0 {
        note("flags", Note::Text(span.flags.to_string().into()));
    }
    let Some(more) = span.more.as_deref() else { return };
    match more.key {
        Some(count) if span.kind == SpanKind::Gap => note("count", Note::Number(count)),
        Some(key) => note("key", Note::Address(key)),
        None => {}
    }
    if let Some(cause) = &more.cause {
        note("cause", Note::Text(cause.to_string().into()));
    }
    let numbers = [
        ("latency_ns", more.latency),
        ("suspended_ns", Some(more.suspended).filter(|_| more.suspensions > 0)),
        ("suspensions", Some(u64::from(more.suspensions)).filter(|count| *count > 0)),
        ("join_latency_ns", more.join_latency),
    ];
    for (name, number) in numbers {
        number.into_iter().for_each(|number| note(name, Note::Number(number)));
    }
    let addresses =
        [("queue", more.queue), ("group", more.group), ("argument", more.argument), ("result", more.result)];
    for (name, address) in addresses {
        address.into_iter().for_each(|address| note(name, Note::Address(address)));
    }
    if let Some(ending) = more.ending {
        note("ending", Note::Text(ending.name().into()));
    }
}
