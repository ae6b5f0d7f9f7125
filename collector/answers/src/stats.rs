//! How well the spans of a session fit together.

use std::collections::BTreeMap;

use anyhow::Result;
use codec::span::{Reason, Span, SpanFlags, SpanKind, SpanRuntime, SpanStatus};
use collector_core::spans::SpanConfig;

use super::{
    filter::{Filter, Pick},
    histogram::Histogram,
    spanning,
    trace::Trace,
};

/// What the spans that are asked for come to, by runtime.
pub fn by_runtime(trace: &Trace, config: SpanConfig, filter: &Filter) -> Result<BTreeMap<SpanRuntime, Stats>> {
    let mut stats: BTreeMap<SpanRuntime, Stats> = BTreeMap::new();
    let mut pick = Pick::new(trace, filter);
    spanning::spans(trace, spanning::engine(trace, config), |spans| {
        for span in spans.iter().filter(|span| pick.has(span)) {
            stats.entry(span.kind.runtime()).or_default().add(span);
        }
        Ok(())
    })?;
    Ok(stats)
}

/// What the spans of one runtime come to.
#[derive(Debug, Default)]
pub struct Stats {
    /// How many there are of each kind.
    pub kinds: BTreeMap<SpanKind, u64>,
    statuses: BTreeMap<SpanStatus, u64>,
    /// How many have each reason.
    pub reasons: BTreeMap<Reason, u64>,
    with_parent: u64,
    outside_parent: u64,
    cross_thread: u64,
    uncertain: u64,
    orphans: u64,
    duration: Histogram,
    latency: Histogram,
    suspended: Histogram,
}

impl Stats {
    fn add(&mut self, span: &Span) {
        let more = |count: &mut u64, so: bool| *count = count.saturating_add(so.into());
        more(self.kinds.entry(span.kind).or_default(), true);
        more(self.statuses.entry(span.status).or_default(), true);
        if let Some(reason) = span.reason {
            more(self.reasons.entry(reason).or_default(), true);
        }
        more(&mut self.with_parent, span.parent.is_some());
        more(&mut self.outside_parent, span.flags.has(SpanFlags::OUTSIDE_PARENT));
        more(&mut self.cross_thread, span.flags.has(SpanFlags::CROSS_THREAD));
        more(&mut self.uncertain, span.flags.has(SpanFlags::UNCERTAIN));
        more(&mut self.orphans, span.flags.has(SpanFlags::ORPHAN) || span.reason == Some(Reason::Orphan));
        // How long nothing is known of is no duration of anything.
        if let Some(took) = span.duration().filter(|_| span.kind != SpanKind::Gap) {
            self.duration.add(took);
        }
        if let Some(more) = &span.more {
            more.latency.iter().for_each(|latency| self.latency.add(*latency));
            if more.suspensions > 0 {
                self.suspended.add(more.suspended);
            }
        }
    }

    /// How many there are.
    pub fn spans(&self) -> u64 {
        self.kinds.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// How many stand so.
    pub fn status(&self, status: SpanStatus) -> u64 {
        self.statuses.get(&status).copied().unwrap_or(0)
    }

    /// What is counted beside how spans stand, with its name.
    pub fn counts(&self) -> [(&'static str, u64); 5] {
        [
            ("with_parent", self.with_parent),
            ("outside_parent", self.outside_parent),
            ("cross_thread", self.cross_thread),
            ("uncertain", self.uncertain),
            ("orphans", self.orphans),
        ]
    }

    /// How long they took, waited and were suspended, with the names of that.
    pub fn spreads(&self) -> [(&'static str, &Histogram); 3] {
        [("duration", &self.duration), ("latency", &self.latency), ("suspended", &self.suspended)]
    }
}
