//! Spans of a session that grows: each is handed over once, and only what is new is read for them.

use anyhow::Result;
use codec::{
    SessionNs,
    atf::LimitEntry,
    span::{Span, SpanStatus},
};
use collector_core::spans::{Engine, SpanConfig};

use super::{Batch, Spanning, engine, pass_on, rest};
use crate::{
    options,
    scan::{Depths, Messages, Places, Scan},
    trace::Trace,
};

/// By how much threads may be behind others where they have to be put in the order of time: as little as will do.
const FIRST_LAG_NS: u64 = 500_000_000;
const MOST_LAG_NS: u64 = 8_000_000_000;

/// How far a session was read.
#[derive(Debug)]
pub(crate) struct Following {
    engine: Engine,
    depths: Depths,
    places: Places,
    notices: u64,
    events: u64,
    zero_ns: u64,
    limits: Vec<LimitEntry>,
    /// What came in the last so many nanoseconds is left for the next time.
    lag_ns: u64,
}

/// What comes of reading what is new.
pub(crate) enum Read {
    /// It was read. The spans are those that would come if the session ended now.
    On(Box<Following>, Vec<Span>),
    /// What was read before is not what would be read now: it has to be read from its beginning, with this lag.
    Anew(u64),
}

impl Following {
    /// Nothing of a session was read.
    pub(crate) fn new(trace: &Trace, config: SpanConfig, lag_ns: u64) -> Self {
        Self {
            engine: engine(trace, config),
            depths: Depths::default(),
            places: Places::default(),
            notices: 0,
            events: 0,
            zero_ns: trace.zero_ns(),
            limits: trace.manifest.limits.clone(),
            lag_ns,
        }
    }

    /// What came in the last so many nanoseconds is left for the next time.
    pub(crate) fn lag_ns(&self) -> u64 {
        self.lag_ns
    }

    /// Reads what is new, and hands over the spans that have ended.
    pub(crate) fn read(mut self, trace: &Trace, take: impl FnMut(&Batch) -> Result<()>) -> Result<Read> {
        if (self.zero_ns, &self.limits) != (trace.zero_ns(), &trace.manifest.limits) {
            return Ok(Read::Anew(self.lag_ns));
        }
        let Some(mut scan) = Scan::go_on(trace, &self.places)? else { return Ok(Read::Anew(self.lag_ns)) };
        let is_first = self.places.is_empty();
        options::threads(trace, &mut |option| self.engine.option(option));
        let late = self.engine.counts().late;
        let last = match self.lag_ns {
            0 => u64::MAX,
            lag => trace.manifest.time_end_ns.saturating_sub(lag),
        };
        let Self { engine, depths, notices, events, zero_ns, limits, lag_ns, .. } = self;
        let work = move |to, reused| {
            let spanning = Spanning { engine, trace, events, notices, called: None, to, reused };
            let mut messages = Messages::go_on(trace, depths, spanning);
            scan.run_until(last, &mut messages)?;
            messages.consumer.hand_over()?;
            let places = scan.places();
            let (depths, spanning) = messages.into_parts();
            let Spanning { engine, events, notices, to, reused, .. } = spanning;
            // As if nothing came any more. What is missing behind the last events is told then.
            let ending = Spanning { engine: engine.clone(), trace, events, notices, called: None, to, reused };
            let mut messages = Messages::go_on(trace, depths.clone(), ending);
            scan.ends();
            scan.run_until(last, &mut messages)?;
            let mut ending = messages.consumer.engine;
            ending.settle(SessionNs(0));
            let mut spans = std::mem::take(ending.spans());
            spans.retain(|span| span.status != SpanStatus::Open);
            spans.extend(rest(&mut ending, trace));
            let read = Self { engine, depths, places, notices, events, zero_ns, limits, lag_ns };
            Ok((read, spans))
        };
        let (read, spans) = pass_on(work, take)?;
        if !is_first && read.engine.counts().late > late {
            return Ok(Read::Anew((lag_ns * 2).clamp(FIRST_LAG_NS, MOST_LAG_NS)));
        }
        Ok(Read::On(Box::new(read), spans))
    }
}
