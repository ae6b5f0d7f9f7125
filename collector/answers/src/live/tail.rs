//! The end of a thread's index, as it grows.

use std::{collections::HashMap, fs::File, os::unix::fs::FileExt, path::Path};

use ahash::RandomState;
use anyhow::{Context, Result};
use codec::{
    EventKind, FunctionId, ModuleId,
    atf::{EDGE_BYTES, IndexEvent},
};

use super::tally::Bucket;

/// How many events before the first that counts are looked at for what was open then.
const LOOK_BACK: u64 = 1 << 18;
/// How many new events are read at a time. Of more than that, the first are passed over.
const MOST_NEW: u64 = 1 << 22;
/// How many events are read from the file at once.
const PAGE: u64 = 1 << 13;
/// Depths come from a file, which may say anything.
const MOST_DEPTH: usize = 1 << 16;

/// A thread, and what is open on it.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// The event that comes next.
    next: u64,
    stack: Vec<Open>,
    /// How often each function is on the stack.
    open: HashMap<FunctionId, u32, RandomState>,
    /// Until when its time was told.
    told: u64,
}

/// A call that has not ended.
#[derive(Debug, Clone, Copy)]
struct Open {
    /// None where nobody saw the call.
    function: Option<FunctionId>,
    /// From when on its time was not told yet.
    since: u64,
}

impl Tail {
    /// Looks for the first event at a time or behind it, and for what was open then.
    pub(super) fn open(index: &Path, events: u64, from: u64) -> Result<Self> {
        let low = first_from(index, events, from)?;
        let mut tail = Self { next: low.saturating_sub(LOOK_BACK), ..Self::default() };
        tail.read(index, low, u64::MAX, None, &mut Bucket::default())?;
        tail.stack.iter_mut().for_each(|open| open.since = from);
        tail.told = from;
        Ok(tail)
    }

    /// Reads what is new of so many events, up to this time, and tells whether that was too much.
    pub(super) fn read(
        &mut self,
        index: &Path,
        events: u64,
        until: u64,
        depth: Option<u32>,
        bucket: &mut Bucket,
    ) -> Result<bool> {
        let is_behind = events.saturating_sub(self.next) > MOST_NEW;
        if is_behind {
            *self = Self { next: events.saturating_sub(MOST_NEW), ..Self::default() };
        }
        let file = File::open(index).with_context(|| format!("cannot read {}", index.display()))?;
        let mut page = Vec::new();
        while self.next < events {
            let count = PAGE.min(events - self.next);
            page.resize(usize::try_from(count).unwrap_or(0) * IndexEvent::BYTES, 0);
            file.read_exact_at(&mut page, offset(self.next))
                .with_context(|| format!("cannot read {}", index.display()))?;
            for record in page.as_chunks().0 {
                // What cannot be read is told by those who read all of it.
                if let Ok(event) = IndexEvent::decode(record, 0) {
                    if event.timestamp.0 > until {
                        return Ok(is_behind);
                    }
                    self.event(&event, depth, bucket);
                }
                self.next += 1;
                bucket.events = bucket.events.saturating_add(1);
            }
        }
        Ok(is_behind)
    }

    /// What is open goes on until this time, as far as anybody knows.
    pub(super) fn settle(&mut self, until: u64, bucket: &mut Bucket) {
        // Whatever is open was so at its last event.
        let until = until.max(self.told);
        self.own_time(until, bucket);
        let mut seen: HashMap<FunctionId, (), RandomState> = HashMap::default();
        for open in &mut self.stack {
            let Some(function) = open.function else { continue };
            // Of those that are in themselves, the outermost has the time.
            if seen.insert(function, ()).is_none() {
                let numbers = bucket.of(function);
                numbers.total_ns = numbers.total_ns.saturating_add(until.saturating_sub(open.since));
            }
            open.since = open.since.max(until);
        }
    }

    fn event(&mut self, event: &IndexEvent, most: Option<u32>, bucket: &mut Bucket) {
        let depth = event.depth as usize;
        // What runtimes did is told beside the calls, at no depth.
        if event.function.module() == ModuleId(0) || depth >= MOST_DEPTH {
            return;
        }
        let now = event.timestamp.0;
        let expected = if event.kind == EventKind::Call { depth } else { depth + 1 };
        if self.stack.len() == expected {
            self.own_time(now, bucket);
        } else {
            // Events are missing: nobody knows whose time it was.
            self.told = self.told.max(now);
        }
        self.shrink(expected);
        if event.kind == EventKind::Call {
            while self.stack.len() < depth {
                self.stack.push(Open { function: None, since: now });
            }
            let function = Some(event.function).filter(|_| most.is_none_or(|most| event.depth < most));
            self.stack.push(Open { function, since: now });
            if let Some(function) = function {
                *self.open.entry(function).or_default() += 1;
                let numbers = bucket.of(function);
                numbers.calls = numbers.calls.saturating_add(1);
            }
            return;
        }
        if self.stack.len() == expected
            && let Some(open) = self.stack.last().copied()
            && open.function == Some(event.function)
            && self.open.get(&event.function) == Some(&1)
        {
            let numbers = bucket.of(event.function);
            numbers.total_ns = numbers.total_ns.saturating_add(now.saturating_sub(open.since));
        }
        self.shrink(depth);
    }

    /// The innermost call took the time until now.
    fn own_time(&mut self, now: u64, bucket: &mut Bucket) {
        if let Some(Open { function: Some(function), .. }) = self.stack.last() {
            let numbers = bucket.of(*function);
            numbers.self_ns = numbers.self_ns.saturating_add(now.saturating_sub(self.told));
        }
        self.told = self.told.max(now);
    }

    /// Forgets what is deeper.
    fn shrink(&mut self, depth: usize) {
        for open in self.stack.drain(depth.min(self.stack.len())..) {
            if let Some(function) = open.function
                && let Some(count) = self.open.get_mut(&function)
            {
                *count -= 1;
            }
        }
    }
}

fn offset(event: u64) -> u64 {
    (EDGE_BYTES as u64).saturating_add(event.saturating_mul(IndexEvent::BYTES as u64))
}

/// The first event at a time or behind it, of so many.
pub(super) fn first_from(index: &Path, events: u64, from: u64) -> Result<u64> {
    let (mut low, mut high) = (0, events);
    while low < high {
        let middle = low + (high - low) / 2;
        if time_of(index, middle)?.is_some_and(|time| time < from) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// When an event was.
pub(super) fn time_of(index: &Path, event: u64) -> Result<Option<u64>> {
    let mut bytes = [0; IndexEvent::BYTES];
    let read = File::open(index).and_then(|file| file.read_exact_at(&mut bytes, offset(event)));
    read.with_context(|| format!("cannot read {}", index.display()))?;
    Ok(IndexEvent::decode(&bytes, 0).ok().map(|event| event.timestamp.0))
}
