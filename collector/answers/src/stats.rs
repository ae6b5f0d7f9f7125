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
    let mut stats = SpanRuntime::ALL.iter().map(|_| Stats::default()).collect::<Vec<_>>();
    let mut pick = Pick::new(trace, filter);
    spanning::spans(trace, spanning::engine(trace, config), |spans| {
        for span in spans.iter().filter(|span| pick.has(span)) {
            if let Some(stats) = stats.get_mut(span.kind.runtime() as usize) {
                stats.add(span);
            }
        }
        Ok(())
    })?;
    let all = SpanRuntime::ALL.iter().copied().zip(stats);
    Ok(all.filter(|(_, stats)| stats.spans() > 0).collect())
}

/// What the spans of one runtime come to.
#[derive(Debug, Default)]
pub struct Stats {
    kinds: [u64; SpanKind::ALL.len()],
    statuses: [u64; SpanStatus::ALL.len()],
    reasons: [u64; Reason::ALL.len()],
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
        self.kinds.get_mut(span.kind as usize).into_iter().for_each(|count| more(count, true));
        self.statuses.get_mut(span.status as usize).into_iter().for_each(|count| more(count, true));
        if let Some(reason) = span.reason {
            self.reasons.get_mut(reason as usize).into_iter().for_each(|count| more(count, true));
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
        self.kinds.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// How many there are of each kind, of those that there are.
    pub fn kinds(&self) -> impl Iterator<Item = (SpanKind, u64)> {
        SpanKind::ALL.iter().copied().zip(self.kinds).filter(|(_, count)| *count > 0)
    }

    /// How many have each reason that some have.
    pub fn reasons(&self) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL.iter().copied().zip(self.reasons).filter(|(_, count)| *count > 0)
    }

    /// How many stand so.
    pub fn status(&self, status: SpanStatus) -> u64 {
        self.statuses.get(status as usize).copied().unwrap_or(0)
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
