//! What a session does that is being recorded: the functions of its last seconds.
//!
//! Each look reads only the events that came since the one before, from the indexes alone. The first one looks for the
//! place where the last seconds begin: the events of a thread are in the order of time, and all have the same length.

mod tail;
mod tally;

use std::{
    cmp::Reverse,
    collections::{HashMap, hash_map::Entry},
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use codec::{StreamId, atf::ThreadEntry, span::What};
use sinks::NameCache;

use self::{
    tail::Tail,
    tally::{Numbers, Tally},
};
use super::{
    filter::{Filter, Wanted},
    scan::Scan,
    top::Order,
    trace::Trace,
    turned_down::TurnedDown,
};

/// How long events may take to be in a file. What is open is taken to go on until so long ago.
const SLACK_NS: u64 = 300_000_000;

/// After how long without an event the program, its agent or the collector may be gone.
const SILENCE_NS: u64 = 10_000_000_000;

/// In how many parts the last seconds are told when they are looked at first: what is older goes part by part.
const FIRST_PARTS: u64 = 20;

/// A session that is looked at again and again.
#[derive(Debug)]
pub struct Live {
    dir: PathBuf,
    trace: Trace,
    wanted: Wanted,
    filter: Filter,
    /// How long its journal was when it was read.
    journal_bytes: Option<u64>,
    tails: HashMap<u32, Tail>,
    tally: Tally,
    last_ns: u64,
    /// The time of the latest event, and when that was seen.
    newest: Option<(u64, Instant)>,
    missing: u64,
    has_looked: bool,
}

/// What a session did in its last seconds.
#[derive(Debug)]
pub struct Seen {
    /// The functions, in no order.
    pub rows: Vec<LiveRow>,
    /// The time of the latest event, since the session's zero.
    pub at_ns: u64,
    /// For how long that was.
    pub span_ns: u64,
    /// How long ago the latest event was seen first.
    pub idle_ns: u64,
    /// How many events there were.
    pub events: u64,
    /// How many are missing.
    pub missing: u64,
    /// How many are missing of the whole session.
    pub missing_in_all: u64,
    /// Whether more events came than could be read, so that some were passed over.
    pub is_behind: bool,
    /// How it ended, if it has.
    pub ended: Option<String>,
    /// How many of its functions were turned down: calls of them that were only counted are not told.
    pub turned_down: usize,
}

/// What a function did in the last seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveRow {
    /// Its name for people.
    pub name: String,
    /// The path of its module.
    pub module: Option<String>,
    /// How many calls began.
    pub calls: u64,
    /// How long it ran. Calls within its own calls do not count again.
    pub total_ns: u64,
    /// The same without what it called.
    pub self_ns: u64,
}

impl Seen {
    /// The functions that come first in this order, which is of times or of calls.
    pub fn ranked(&self, order: Order, most: usize) -> Vec<&LiveRow> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by_key(|row| {
            let value = match order {
                Order::Own => row.self_ns,
                Order::Count => row.calls,
                _ => row.total_ns,
            };
            (Reverse(value), Reverse(row.calls), &row.name, &row.module)
        });
        rows.truncate(most);
        rows
    }
}

/// The session that is looked at: that of a process, or the latest of a directory that is being written, or if none is the
/// latest.
///
/// # Errors
///
/// Where there is none.
pub fn chosen(dir: &Path, process: Option<&str>) -> Result<PathBuf> {
    match process {
        Some(_) => Ok(Trace::of_process(dir, process)?.dir),
        None => latest(dir),
    }
}

impl Live {
    /// Looks at a session, or at the latest of a directory of sessions, of which the last so many nanoseconds are told.
    ///
    /// # Errors
    ///
    /// Where there is none, or what is asked for cannot be.
    pub fn open(dir: &Path, wanted: &Wanted, last_ns: u64) -> Result<Self> {
        ensure!(!storage::is_remote(dir), "{} is in a bucket, where nothing is being written", dir.display());
        let dir = chosen(dir, wanted.process.as_deref())?;
        let journal_bytes = journal_bytes(&dir);
        let trace = Trace::open(&dir)?;
        let filter = Filter::new(&trace, wanted)?;
        let missing = missing_of(&trace);
        Ok(Self {
            dir,
            trace,
            wanted: wanted.clone(),
            filter,
            journal_bytes,
            tails: HashMap::new(),
            tally: Tally::default(),
            last_ns,
            newest: None,
            missing,
            has_looked: false,
        })
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Looks at it again.
    ///
    /// # Errors
    ///
    /// Where its files cannot be read.
    pub fn look(&mut self, now: Instant) -> Result<Seen> {
        let missing_before = self.missing;
        let journal_bytes = journal_bytes(&self.dir);
        if journal_bytes != self.journal_bytes {
            self.trace = Trace::open(&self.dir)?;
            self.filter = Filter::new(&self.trace, &self.wanted)?;
            self.journal_bytes = journal_bytes;
            self.missing = missing_of(&self.trace);
        }
        let mut threads = Vec::new();
        for thread in self.trace.threads().into_iter().filter(|thread| self.filter.has_thread(StreamId(thread.id))) {
            // How many it has now, whatever was known when the session was looked at.
            let bare = ThreadEntry { id: thread.id, ..ThreadEntry::default() };
            let Some(events) = Scan::events_of(&self.trace, &bare).filter(|events| *events > 0) else { continue };
            threads.push((thread.id, self.trace.thread_dir(thread.id).join("index.atf"), events));
        }
        let mut latest = None;
        for (_, index, events) in &threads {
            latest = latest.max(tail::time_of(index, events.saturating_sub(1))?);
        }
        match (latest, self.newest) {
            // It may have been written long before anybody looked.
            (Some(latest), None) => {
                let written =
                    threads.iter().filter_map(|(_, index, _)| fs::metadata(index).ok()?.modified().ok()).max();
                let ago = written.and_then(|written| written.elapsed().ok()).unwrap_or_default();
                self.newest = Some((latest, now.checked_sub(ago).unwrap_or(now)));
            }
            (Some(latest), Some((known, _))) if latest > known => self.newest = Some((latest, now)),
            _ => {}
        }
        let newest = self.newest.map_or(0, |(newest, _)| newest);
        let from = newest.saturating_sub(self.last_ns);
        let mut is_behind = false;
        let mut missing = self.missing.saturating_sub(missing_before);
        let parts = if std::mem::replace(&mut self.has_looked, true) { 1 } else { FIRST_PARTS };
        if parts > 1 {
            // What was missing before the last seconds is not told.
            missing = 0;
            for (thread, index, events) in &threads {
                let first = tail::first_from(index, *events, from)?;
                let gaps = self.trace.manifest.gaps.iter().filter(|gap| gap.thread == *thread);
                let late = gaps.filter(|gap| gap.at_index.is_none_or(|at| at > first));
                missing = late.fold(missing, |sum, gap| sum.saturating_add(gap.count));
            }
        }
        let first = from.max(self.trace.manifest.time_start_ns);
        // The first look is told in parts, which go one after the other as time goes on.
        for part in 1..parts {
            let until = from.saturating_add(self.last_ns / parts * part);
            let bucket = self.tally.begin(first);
            for (thread, index, events) in &threads {
                let tail = tail_of(&mut self.tails, *thread, index, *events, from)?;
                is_behind |= tail.read(index, *events, until, self.filter.depth(), bucket)?;
                tail.settle(until, bucket);
            }
            self.tally.end(until.max(first), self.last_ns);
        }
        let bucket = self.tally.begin(first);
        bucket.missing = missing;
        for (thread, index, events) in &threads {
            let tail = tail_of(&mut self.tails, *thread, index, *events, from)?;
            is_behind |= tail.read(index, *events, u64::MAX, self.filter.depth(), bucket)?;
        }
        let idle = self.newest.map_or(0, |(_, seen)| now.saturating_duration_since(seen).as_nanos());
        let idle = u64::try_from(idle).unwrap_or(u64::MAX);
        // What was entered and has not ended goes on, also where nothing else happens. After a while nobody knows.
        let goes_on = if idle < SILENCE_NS { idle } else { 0 };
        let until = newest.saturating_add(goes_on).saturating_sub(SLACK_NS);
        let is_over = !self.trace.is_unfinished;
        self.tails.values_mut().for_each(|tail| tail.settle(if is_over { newest } else { until }, bucket));
        let until = if is_over { newest } else { newest.saturating_add(idle) };
        self.tally.end(until, self.last_ns);
        let (sum, span_ns) = self.tally.sum();
        Ok(Seen {
            rows: self.rows(sum.functions),
            at_ns: until.saturating_sub(self.trace.zero_ns()),
            span_ns,
            idle_ns: if is_over { 0 } else { idle },
            events: sum.events,
            missing: sum.missing,
            missing_in_all: self.missing,
            is_behind,
            ended: is_over.then(|| self.trace.manifest.end.as_ref().map_or_else(String::new, |end| end.how.clone())),
            turned_down: TurnedDown::of(&self.trace.catalog).count(),
        })
    }

    fn rows(&self, functions: impl IntoIterator<Item = (codec::FunctionId, Numbers)>) -> Vec<LiveRow> {
        let mut names = NameCache::new();
        let mut rows = Vec::new();
        for (function, Numbers { calls, total_ns, self_ns }) in functions {
            let what = What::Function(function);
            let name = names.name(&self.trace.catalog, &what, codec::SessionNs(0));
            if self.filter.has_name(name) {
                let module = name.module.as_ref().map(ToString::to_string);
                rows.push(LiveRow { name: name.pretty.to_string(), module, calls, total_ns, self_ns });
            }
        }
        rows
    }
}

/// What is known of a thread, of which nothing matters before this time.
fn tail_of<'a>(
    tails: &'a mut HashMap<u32, Tail>,
    thread: u32,
    index: &Path,
    events: u64,
    from: u64,
) -> Result<&'a mut Tail> {
    Ok(match tails.entry(thread) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(place) => place.insert(Tail::open(index, events, from)?),
    })
}

/// The latest session of a directory that is being written, or if there is none the latest.
fn latest(dir: &Path) -> Result<PathBuf> {
    let sessions =
        sinks::disk::sessions_in(dir).with_context(|| format!("{} is no directory of sessions", dir.display()))?;
    let live = sessions.iter().rfind(|session| journal_bytes(session).is_some());
    live.or(sessions.last()).cloned().with_context(|| format!("{}: no session is in it", dir.display()))
}

/// How long the journal is, where there is one.
fn journal_bytes(dir: &Path) -> Option<u64> {
    fs::metadata(dir.join("journal.heph")).ok().map(|data| data.len())
}

fn missing_of(trace: &Trace) -> u64 {
    trace.manifest.gaps.iter().map(|gap| gap.count).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests;
