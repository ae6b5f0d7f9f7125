//! One sink of a recorder: what it is given, and what it is not.

#[cfg(test)]
mod tests;

use std::{
    collections::HashSet,
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use codec::{
    access,
    span::{Span, SpanStatus},
};
use collector_core::{Cause, Ended, Output, Session};
use sinks::{Sink, SinkError};
use tracing::info_span;

use super::{SinkRef, background::BackgroundWriter, session_of, unreported::UnreportedGaps};
use crate::{
    notices::Notices,
    settings::SinkSetting,
    sink_spec::{OnFull, Target},
};

/// What is counted of a sink. Each number is read alone, so their order does not matter.
#[derive(Debug, Default)]
pub(crate) struct SinkCounters {
    /// Bytes that wait to be written behind it.
    pub(crate) backlog_bytes: AtomicU64,
    /// Calls that have returned.
    pub(crate) taken: AtomicU64,
    /// Events that it took.
    pub(crate) events: AtomicU64,
    /// Events that it was not given.
    pub(crate) not_given: AtomicU64,
    /// Events that it was given and answered that it could not keep.
    pub(crate) not_kept: AtomicU64,
    /// Packets of options that it was not given.
    pub(crate) lost_option_bytes: AtomicU64,
    /// Spans that it was given, notices included.
    pub(crate) spans: AtomicU64,
    /// Spans that it was not given, or answered that it could not keep.
    pub(crate) lost_spans: AtomicU64,
    /// Calls that failed.
    pub(crate) errors: AtomicU64,
    /// Sessions that were left as they are on a disk that takes nothing.
    pub(crate) left: AtomicU64,
    /// Whether nobody reads it any more.
    pub(crate) closed: AtomicBool,
}

/// A sink as one recorder sees it.
pub(super) struct Slot {
    name: String,
    sink: SinkRef,
    /// Where it writes in the background, if it does: that may be full.
    backlog: Option<BackgroundWriter>,
    on_full: OnFull,
    pub(super) wants_spans: bool,
    /// Whether what it has written survives the end of this process, and agents keep events until then.
    pub(super) is_durable: bool,
    unreported: UnreportedGaps,
    /// Sessions whose start it was not given.
    unstarted: HashSet<String>,
    /// Sessions that were left as they are on a disk that takes nothing while the collector ends.
    left: HashSet<String>,
    /// Whether it is full, and that has been said.
    is_full: bool,
    /// Whether something was given to it since the last flush.
    dirty: bool,
    failing: bool,
    /// Since when it works, where it has failed and that it works again has not been said.
    works_since: Option<Instant>,
    /// Whether it can lose what it was given: all but one that leaves it to the agents.
    can_lose: bool,
    full: Cause,
    /// Whether the collector ends: then nothing is waited for any longer.
    closing: Arc<Closing>,
    counters: Arc<SinkCounters>,
    notices: Arc<Notices>,
}

/// How the collector ends. Each is read alone.
#[derive(Debug, Default)]
pub(super) struct Closing {
    /// Nothing is waited for any longer.
    pub(super) now: AtomicBool,
    /// Agents keep what is not kept here.
    pub(super) agents_keep: AtomicBool,
}

/// How long is waited before a disk that takes nothing is tried again.
const RETRY_TIME: Duration = Duration::from_millis(20);

/// How long a sink that has failed must work before that is said: one that is nearly full fails every moment.
const STEADY_TIME: Duration = Duration::from_secs(3);

impl Slot {
    pub(super) fn new(
        name: &str,
        setting: &SinkSetting,
        sink: SinkRef,
        backlog: Option<BackgroundWriter>,
        closing: &Arc<Closing>,
        counters: &Arc<SinkCounters>,
        notices: &Arc<Notices>,
    ) -> Self {
        Self {
            name: name.into(),
            sink,
            backlog,
            on_full: setting.on_full,
            wants_spans: setting.target.wants_spans(),
            is_durable: false,
            unreported: UnreportedGaps::default(),
            unstarted: HashSet::new(),
            left: HashSet::new(),
            is_full: false,
            dirty: false,
            failing: false,
            works_since: None,
            can_lose: !matches!(setting.target, Target::Nats(_)),
            full: Cause::collector("sink-full"),
            closing: Arc::clone(closing),
            counters: Arc::clone(counters),
            notices: Arc::clone(notices),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether nobody reads it any more.
    pub(super) fn is_closed(&self) -> bool {
        self.counters.closed.load(Relaxed)
    }

    /// Gives it an output and the spans that this completes, or counts what it does not get.
    pub(super) fn offer(&mut self, output: &Output, ended: Option<&Ended>, spans: &[Span]) {
        if self.is_closed() {
            self.counters.not_given.fetch_add(events(output), Relaxed);
            return;
        }
        let session = session_of(output);
        if self.has_left(session) {
            return self.offer_left(output);
        }
        if matches!(output, Output::Events(_) | Output::Gap(..) | Output::Ended(..)) && !self.wait_for_disk(session) {
            return self.offer_left(output);
        }
        let has_room = self.on_full == OnFull::Block || self.backlog.as_ref().is_none_or(BackgroundWriter::has_room);
        // A sink that knows of a session must know of its end.
        let must_know = matches!(output, Output::Ended(..)) && !self.unstarted.contains(&session.name);
        if !has_room && !must_know {
            return self.leave_out(output, spans);
        }
        // Not for every bit of room: one that lags would be reported all the time.
        if self.is_full && self.backlog.as_ref().is_none_or(BackgroundWriter::is_half_empty) {
            self.is_full = false;
            self.notices.say(format!("sink {}: has room again", self.name));
        }
        if self.unstarted.remove(&session.name) {
            self.give(0, |sink| sink.start(session));
        }
        for gap in self.unreported.take(session) {
            self.give(0, |sink| sink.gap(session, &gap));
        }
        // What a session's end completes belongs before it, and what events complete behind them.
        if let (Output::Ended(..), Some(ended)) = (output, ended) {
            self.give_spans(output, spans);
            self.give(0, |sink| sink.end(session, ended));
            // What is told of it next is so only once it is written.
            if !self.wait_for_disk(session) {
                self.offer_left(output);
            }
        } else if let Output::Resumed(session) = output {
            self.resume(session);
        } else {
            self.give(events(output), |sink| match output {
                Output::Started(session) => sink.start(session),
                Output::Options(session, packets) => sink.options(session, packets),
                Output::Ending(session, packets) => sink.ending(session, packets),
                Output::Events(batch) => sink.events(batch),
                Output::Gap(session, gap) => sink.gap(session, gap),
                Output::Resumed(_) | Output::Ended(..) => Ok(()),
            });
            self.give_spans(output, spans);
        }
        self.counters.taken.fetch_add(1, Relaxed);
        self.dirty = true;
    }

    /// Whether it has left this session to the next collector.
    pub(super) fn has_left(&self, session: &Session) -> bool {
        self.left.contains(&session.name)
    }

    /// Waits while it can take nothing without a loss: agents keep what is not kept here. Returns whether it takes more of
    /// this session: a collector that ends meanwhile leaves the session as it is on disk.
    fn wait_for_disk(&mut self, session: &Arc<Session>) -> bool {
        if self.on_full != OnFull::Block {
            return true;
        }
        while !self.takes_more() {
            if !self.wait_a_moment() {
                return !self.leave(session);
            }
            self.dirty = true;
            self.flush();
        }
        true
    }

    /// Whether it can take more without a loss.
    pub(super) fn takes_more(&mut self) -> bool {
        self.is_closed() || self.sink.with(|sink| sink.takes_more())
    }

    /// Goes on with a session, once there is room for it.
    fn resume(&mut self, session: &Arc<Session>) {
        loop {
            let result = self.sink.with(|sink| sink.resume(session));
            let is_full = result.as_ref().is_err_and(SinkError::is_full);
            self.judge(result);
            if !is_full || self.on_full != OnFull::Block {
                return;
            }
            if !self.wait_a_moment() {
                self.leave(session);
                return;
            }
        }
    }

    /// Waits a moment for a disk that takes nothing, unless the collector ends.
    fn wait_a_moment(&self) -> bool {
        let goes_on = !self.closing.now.load(Relaxed);
        if goes_on {
            thread::sleep(RETRY_TIME);
        }
        goes_on
    }

    /// Leaves a session as it is on disk, if its agent has the rest.
    fn leave(&mut self, session: &Arc<Session>) -> bool {
        let has_agent = self.closing.agents_keep.load(Relaxed) && session.id.is_some_and(access::is_claimed);
        if has_agent && self.left.insert(session.name.clone()) {
            self.counters.left.fetch_add(1, Relaxed);
        }
        has_agent
    }

    /// What a session that is left gets: all that its agent said, and at its end the order to leave it.
    fn offer_left(&mut self, output: &Output) {
        match output {
            Output::Options(session, packets) => _ = self.sink.with(|sink| sink.options(session, packets)),
            Output::Ending(session, packets) => _ = self.sink.with(|sink| sink.ending(session, packets)),
            Output::Ended(session, _) => self.sink.with(|sink| sink.leave(session)),
            Output::Started(_) | Output::Resumed(_) | Output::Events(_) | Output::Gap(..) => {}
        }
    }

    /// Whether it gives up what it cannot take.
    pub(super) fn drops(&self) -> bool {
        self.on_full == OnFull::Drop
    }

    fn give(&mut self, events: u64, call: impl FnOnce(&mut dyn Sink) -> Result<(), SinkError>) {
        let result = self.sink.with(call);
        let counter = if self.judge(result) { &self.counters.events } else { &self.counters.not_kept };
        counter.fetch_add(events, Relaxed);
    }

    fn give_spans(&mut self, output: &Output, spans: &[Span]) {
        if self.wants_spans && !spans.is_empty() && !self.is_closed() {
            let result = self.sink.with(|sink| sink.spans(session_of(output), spans));
            match self.judge(result) {
                true => _ = self.counters.spans.fetch_add(spans.len() as u64, Relaxed),
                false => self.lose(spans),
            }
        }
    }

    /// Counts spans that it does not get. One that is told to be open comes again.
    fn lose(&self, spans: &[Span]) {
        let lost = spans.iter().filter(|span| span.status != SpanStatus::Open).count();
        self.counters.lost_spans.fetch_add(lost as u64, Relaxed);
    }

    /// Counts what the sink has no room for, to be reported to it when it has.
    fn leave_out(&mut self, output: &Output, spans: &[Span]) {
        if self.wants_spans {
            self.lose(spans);
        }
        if !self.is_full {
            self.is_full = true;
            self.warn(format_args!("is full; what it does not get is counted"));
        }
        match output {
            Output::Started(session) | Output::Resumed(session) => _ = self.unstarted.insert(session.name.clone()),
            // It came and went, and the sink has never heard of it.
            Output::Ended(session, _) => {
                self.unstarted.remove(&session.name);
                self.unreported.take(session).for_each(drop);
            }
            Output::Ending(..) => {}
            Output::Options(_, packets) => {
                self.counters.lost_option_bytes.fetch_add(packets.len() as u64, Relaxed);
            }
            Output::Events(batch) => {
                for run in &batch.runs {
                    self.unreported.add(&batch.session, run.stream, run.first, run.events.into(), &self.full);
                }
                self.counters.not_given.fetch_add(batch.events(), Relaxed);
            }
            Output::Gap(session, gap) => {
                self.unreported.add(session, gap.stream, gap.first, gap.count, &gap.cause);
            }
        }
    }

    /// Hands what it took to the operating system. One that fails has something to try again. Returns whether all that it
    /// took is there.
    pub(super) fn flush(&mut self) -> bool {
        let mut flushed = true;
        if (self.dirty || self.failing) && !self.is_closed() {
            let result = self.sink.with(|sink| sink.flush());
            flushed = self.judge(result) || self.is_closed();
            if flushed && self.failing && self.works_since.get_or_insert_with(Instant::now).elapsed() >= STEADY_TIME {
                self.say_that_it_works();
            }
        }
        self.dirty = !self.sink.with(|sink| sink.is_kept());
        flushed && !self.dirty
    }

    fn say_that_it_works(&mut self) {
        (self.failing, self.works_since) = (false, None);
        self.notices.say(format!("sink {}: works again", self.name));
    }

    /// Closes a sink of this recorder's own; one that is shared is flushed, and closed when all are done with it.
    /// Returns whether it could be.
    pub(super) fn close(mut self) -> bool {
        let result = match &mut self.sink {
            SinkRef::Own(sink) => sink.close(),
            SinkRef::Shared(_) => self.sink.with(|sink| sink.flush()),
        };
        let is_well = self.judge(result);
        if is_well && self.works_since.is_some() && self.left.is_empty() {
            self.say_that_it_works();
        }
        (is_well || self.is_closed()) && self.left.is_empty()
    }

    fn warn(&self, what: impl Display) {
        let _about = info_span!("sink", sink = %self.name).entered();
        self.notices.warn(format_args!("sink {}: {what}", self.name));
    }

    /// Counts what went wrong, and says it once until it goes right again. Returns whether it went right.
    fn judge(&mut self, result: Result<(), SinkError>) -> bool {
        match result {
            Ok(()) => return true,
            Err(SinkError::Closed) if self.counters.closed.swap(true, Relaxed) => {}
            Err(SinkError::Closed) => {
                self.warn(format_args!("nobody reads it any more; the others go on"));
            }
            Err(error) => {
                self.counters.errors.fetch_add(1, Relaxed);
                if !self.failing {
                    let counted = if self.can_lose { "; what it cannot keep is counted" } else { "" };
                    self.warn(format_args!("{error}{counted}"));
                }
                (self.failing, self.works_since) = (true, None);
            }
        }
        false
    }
}

fn events(output: &Output) -> u64 {
    match output {
        Output::Events(batch) => batch.events(),
        _ => 0,
    }
}
