//! Spans, made again from the events of a session.

use anyhow::Result;
use codec::{
    Position, SessionNs, StreamId,
    atf::GapEntry,
    profile::Message,
    span::{Span, SpanStatus},
};
use collector_core::spans::{Engine, Finish, SpanConfig};
use sinks::Catalog;

use super::{
    options,
    scan::{MessageConsumer, Messages, Scan},
    trace::Trace,
};

/// How many spans are handed over at a time.
const SPANS_AT_A_TIME: usize = 4096;

/// What makes the spans of a session, having been told what is known of it.
pub(super) fn engine(trace: &Trace, catalog: &Catalog, config: SpanConfig) -> Engine {
    let mut engine = Engine::new(config);
    options::each(trace, catalog, &mut |option| engine.option(option));
    engine
}

/// Hands over all spans of a session, each once: those that have ended as they end, and those that have not at last.
///
/// The spans of a thread depend on what others did, so all threads are read, whichever are wanted.
pub(super) fn spans(trace: &Trace, engine: Engine, take: impl FnMut(&[Span]) -> Result<()>) -> Result<()> {
    if trace.is_unfinished() {
        eprintln!("{}: it is not finished: names, gaps and the end are missing until it is", trace.dir.display());
    }
    let mut scan = Scan::open(trace, &trace.threads())?;
    let mut messages = Messages::new(trace, Spanning { engine, trace, take });
    let read = scan.run(&mut messages);
    if read.is_err() {
        // What has ended before the damage is told all the same.
        messages.consumer.hand_over()?;
    }
    read?;
    messages.consumer.finish()
}

/// Makes spans of events.
struct Spanning<'a, F> {
    engine: Engine,
    trace: &'a Trace,
    take: F,
}

impl<F: FnMut(&[Span]) -> Result<()>> Spanning<'_, F> {
    fn finish(mut self) -> Result<()> {
        // So that nothing is told to be open below that is not so for good.
        self.engine.settle(SessionNs(0));
        self.hand_over()?;
        let manifest = &self.trace.manifest;
        let end = manifest.end.as_ref().filter(|_| !self.trace.is_unfinished());
        let finish = end.map_or(Finish::Cut, |end| Finish::of(&end.how, end.code));
        let at = end.and_then(|end| end.at_ns).or(Some(manifest.time_end_ns)).filter(|at| *at > 0);
        let at = at.map(|at| SessionNs(at.saturating_sub(self.trace.zero_ns())));
        self.engine.finish(finish, at);
        // Those that are open now stay so.
        let last = std::mem::take(self.engine.spans());
        last.chunks(SPANS_AT_A_TIME).try_for_each(self.take)
    }

    /// What is told to be open comes again, ended or at the end of all.
    #[cold]
    fn hand_over(&mut self) -> Result<()> {
        let spans = self.engine.spans();
        spans.retain(|span| span.status != SpanStatus::Open);
        if !spans.is_empty() {
            (self.take)(spans)?;
        }
        spans.clear();
        Ok(())
    }
}

impl<F: FnMut(&[Span]) -> Result<()>> MessageConsumer for Spanning<'_, F> {
    #[inline]
    fn message(&mut self, stream: StreamId, position: Position, message: &Message<'_>) -> Result<()> {
        self.engine.event(stream, position, message, self.trace);
        if self.engine.spans().len() >= SPANS_AT_A_TIME {
            self.hand_over()?;
        }
        Ok(())
    }

    fn gap(&mut self, gap: &GapEntry) -> Result<()> {
        self.engine.gap(StreamId(gap.thread), Position(gap.first), gap.count, &gap.cause);
        Ok(())
    }

    fn settle(&mut self, until: SessionNs) -> Result<()> {
        self.engine.settle(until);
        if self.engine.spans().len() >= SPANS_AT_A_TIME {
            self.hand_over()?;
        }
        Ok(())
    }
}
