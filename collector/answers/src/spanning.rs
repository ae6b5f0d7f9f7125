//! Spans, made again from the events of a session.

mod following;

use std::{
    collections::HashMap,
    io, mem,
    sync::mpsc::{self, Receiver, SyncSender},
    thread,
};

use anyhow::Result;
use codec::{
    EventKind, Position, SessionNs, StreamId,
    atf::GapEntry,
    profile::{FunctionEvent, Message, ProfileOption},
    span::{Span, SpanId, SpanStatus},
};
use collector_core::spans::{Engine, Finish, SpanConfig};

pub(crate) use self::following::{Following, Read};
use super::{
    options,
    scan::{MessageConsumer, Messages, Scan},
    trace::Trace,
};

/// How many spans are handed over at a time, and how many times that may wait.
const SPANS_AT_A_TIME: usize = 2048;
const WAITING: usize = 4;

/// By how much one thread may be ahead of another while they are read: what concerns several is put in order later.
const SLACK_NS: u64 = 1_000_000;

/// What makes the spans of a session, having been told what is known of it.
pub fn engine(trace: &Trace, config: SpanConfig) -> Engine {
    let mut engine = Engine::new(config);
    let mut tell = |option: &ProfileOption<'_>| engine.option(option);
    options::threads(trace, &mut tell);
    options::limits(trace, &mut tell);
    engine
}

/// Hands over all spans of a session, each once: those that have ended as they end, and those that have not at last.
///
/// The spans of a thread depend on what others did, so all threads are read, whichever are wanted.
pub fn spans(trace: &Trace, engine: Engine, mut take: impl FnMut(&[Span]) -> Result<()>) -> Result<()> {
    batches(trace, engine, false, |batch| take(&batch.spans))
}

/// Some spans, and how many events were read for them and those before.
pub struct Batch {
    /// The spans.
    pub spans: Vec<Span>,
    /// How many events were read so far.
    pub events: u64,
    /// The registers that the arguments of these frames were in, where they are asked for and were captured.
    pub arguments: HashMap<SpanId, Arguments>,
}

/// The registers that arguments are passed in.
pub type Arguments = [u64; 8];

/// The same in batches, with the registers of frames if they are asked for. They are made by another thread, while the
/// last one is being taken.
pub fn batches(trace: &Trace, engine: Engine, registers: bool, take: impl FnMut(&Batch) -> Result<()>) -> Result<()> {
    let mut scan = Scan::open(trace, &trace.threads())?;
    let work = |to, reused| {
        let called = registers.then(HashMap::new);
        let mut messages = Messages::new(trace, Spanning { engine, trace, events: 0, notices: 0, called, to, reused });
        let read = scan.run(&mut messages);
        if read.is_err() {
            // What has ended before the damage is handed over all the same.
            messages.consumer.hand_over()?;
        }
        read?;
        messages.consumer.finish()
    };
    pass_on(work, take)
}

/// Has batches made by another thread, while the last one is being taken.
fn pass_on<T: Send>(
    work: impl FnOnce(SyncSender<Batch>, Receiver<Vec<Span>>) -> Result<T> + Send,
    mut take: impl FnMut(&Batch) -> Result<()>,
) -> Result<T> {
    thread::scope(|scope| {
        let (to, made) = mpsc::sync_channel(WAITING);
        let (used, reused) = mpsc::channel();
        let maker = thread::Builder::new().name("making".into()).spawn_scoped(scope, || work(to, reused))?;
        let mut taken = Ok(());
        while taken.is_ok()
            && let Ok(mut batch) = made.recv()
        {
            taken = take(&batch);
            batch.spans.clear();
            // Once all are made, nobody needs the room again.
            let _ = used.send(batch.spans);
        }
        drop(made);
        let made = maker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        taken.and(made)
    })
}

/// All that is left when nothing more comes: those that are open now stay so.
fn rest(engine: &mut Engine, trace: &Trace) -> Vec<Span> {
    let manifest = &trace.manifest;
    let end = manifest.end.as_ref();
    let finish = end.map_or(Finish::Cut, |end| Finish::of(&end.how, end.code));
    let at = end.and_then(|end| end.at_ns).or(Some(manifest.time_end_ns)).filter(|at| *at > 0);
    let at = at.map(|at| SessionNs(at.saturating_sub(trace.zero_ns())));
    engine.finish(finish, at);
    mem::take(engine.spans())
}

/// Makes spans of events.
struct Spanning<'a> {
    engine: Engine,
    trace: &'a Trace,
    events: u64,
    /// How often a span was reported to be open, among those that were handed over.
    notices: u64,
    /// The registers of calls whose frames were not handed over yet, if they are asked for.
    called: Option<HashMap<SpanId, Arguments>>,
    to: SyncSender<Batch>,
    /// Room that was used before.
    reused: Receiver<Vec<Span>>,
}

impl Spanning<'_> {
    fn finish(mut self) -> Result<()> {
        // So that nothing is told to be open below that is not so for good.
        self.engine.settle(SessionNs(0));
        self.hand_over()?;
        let mut last = rest(&mut self.engine, self.trace).into_iter();
        while !last.as_slice().is_empty() {
            self.send(last.by_ref().take(SPANS_AT_A_TIME).collect())?;
        }
        Ok(())
    }

    /// What is reported to be open comes again, ended or at the end of all.
    #[cold]
    fn hand_over(&mut self) -> Result<()> {
        let room = self.reused.try_recv().unwrap_or_default();
        let mut spans = mem::replace(self.engine.spans(), room);
        let notices = self.engine.counts().notices;
        if mem::replace(&mut self.notices, notices) != notices {
            spans.retain(|span| span.status != SpanStatus::Open);
        }
        if spans.is_empty() { Ok(()) } else { self.send(spans) }
    }

    /// Fails if nobody wants any more.
    fn send(&mut self, spans: Vec<Span>) -> Result<()> {
        let mut arguments = HashMap::new();
        if let Some(called) = &mut self.called {
            arguments.extend(spans.iter().filter_map(|span| called.remove_entry(&span.id)));
        }
        Ok(self
            .to
            .send(Batch { spans, events: self.events, arguments })
            .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?)
    }

    #[inline]
    fn hand_over_if_many(&mut self) -> Result<()> {
        if self.engine.spans().len() >= SPANS_AT_A_TIME { self.hand_over() } else { Ok(()) }
    }
}

impl MessageConsumer for Spanning<'_> {
    const SLACK_NS: u64 = SLACK_NS;

    fn message(&mut self, stream: StreamId, position: Position, message: &Message<'_>) -> Result<()> {
        self.events += 1;
        self.engine.event(stream, position, message, &self.trace.catalog);
        self.hand_over_if_many()
    }

    #[inline]
    fn function(&mut self, stream: StreamId, position: Position, event: FunctionEvent<'_>) -> Result<()> {
        self.events += 1;
        if let (Some(called), EventKind::Call, Some(detail)) = (&mut self.called, event.kind, &event.detail) {
            called.insert(SpanId::new(stream, position), detail.registers().general);
        }
        self.engine.function(stream, position, &event, &self.trace.catalog);
        self.hand_over_if_many()
    }

    fn gap(&mut self, gap: &GapEntry, _: Option<SessionNs>) -> Result<()> {
        self.engine.gap(StreamId(gap.thread), Position(gap.first), gap.count, &gap.cause);
        Ok(())
    }

    fn settle(&mut self, until: SessionNs) -> Result<()> {
        self.engine.settle(until);
        self.hand_over_if_many()
    }
}
