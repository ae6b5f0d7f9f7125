//! What is missing from a session, for those who add up what is there.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use ahash::RandomState;
use codec::StreamId;

use super::{printable, trace::Trace};
use codec::quantity::{count, counted};

/// How many events are missing, where, and why.
#[derive(Debug, Default)]
pub struct Loss {
    written: u64,
    missing: u64,
    causes: BTreeMap<String, u64>,
    /// How many more there were that were not asked for.
    left_out: u64,
    /// Of each thread, how many of its events are there and how many are missing.
    threads: HashMap<StreamId, (u64, u64), RandomState>,
}

impl Loss {
    /// What is missing from a session.
    pub fn of(trace: &Trace) -> Self {
        let mut loss = Self::default();
        for thread in &trace.manifest.threads {
            let written = thread.written.unwrap_or(0);
            loss.written = loss.written.saturating_add(written);
            loss.threads.insert(StreamId(thread.id), (written, 0));
        }
        for gap in &trace.manifest.gaps {
            loss.missing = loss.missing.saturating_add(gap.count);
            let of_cause = loss.causes.entry(gap.cause.clone()).or_default();
            *of_cause = of_cause.saturating_add(gap.count);
            let (_, missing) = loss.threads.entry(StreamId(gap.thread)).or_default();
            *missing = missing.saturating_add(gap.count);
        }
        let left_out = trace.manifest.limits.iter().filter(|limit| limit.reason == "left-out");
        loss.left_out = left_out.fold(0, |sum, limit| sum.saturating_add(limit.count));
        loss
    }

    /// One line about events that were not asked for, to stand above numbers.
    pub fn left_out(&self) -> Option<String> {
        let line = || {
            let left_out = counted(self.left_out, "event");
            format!(
                "{left_out} were left out that were not asked for: counts and times are of what was sent, but calls of functions \
                 that were turned down, or that took too little time, are counted from the beginning to the end (`≤`)"
            )
        };
        (self.left_out > 0).then(line)
    }

    /// Whether events are missing at all.
    pub fn is_any(&self) -> bool {
        self.missing > 0
    }

    /// How many events are missing.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// For how many events of a thread each of them stands that is there, if those that are missing were like them.
    pub fn weight(&self, stream: StreamId) -> f64 {
        // It is asked for every span.
        if !self.is_any() {
            return 1.0;
        }
        match self.threads.get(&stream) {
            Some((written @ 1.., missing)) => (*written as f64 + *missing as f64) / *written as f64,
            _ => 1.0,
        }
    }

    /// What can be done to lose less.
    fn remedy(&self) -> &'static str {
        let most = self.causes.iter().max_by_key(|(_, count)| **count).map_or("", |(cause, _)| cause.as_str());
        match most.split_once(':') {
            Some(("agent", _)) => {
                "to lose less, trace with --complete, a larger --ring-bytes, --no-detail, or --exclude what is called most"
            }
            Some(("collector", _)) => "to lose less, give the collector more memory or a faster disk",
            _ => "to lose less, send over TCP, or with a larger --replay-bytes",
        }
    }
}

/// One line, to stand above numbers.
impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.written.saturating_add(self.missing);
        let percent = self.missing as f64 * 100.0 / all.max(1) as f64;
        let causes: Vec<_> =
            self.causes.iter().map(|(cause, missing)| format!("{} {}", printable(cause), count(*missing))).collect();
        let hit = self.threads.values().filter(|(_, missing)| *missing > 0).count() as u64;
        let threads = counted(self.threads.len() as u64, "thread");
        write!(
            f,
            "{percent:.1} % of {} are missing ({}), on {} of {threads}",
            counted(all, "event"),
            causes.join(", "),
            count(hit)
        )?;
        write!(f, ": numbers are of what is there; {}", self.remedy())
    }
}
