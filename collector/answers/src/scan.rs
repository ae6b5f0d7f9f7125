//! The events of a session, read from its files a page at a time, in the order of time.

mod message;
mod one;
mod pages;
mod thread;

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use anyhow::{Result, bail};
use codec::atf::{DetailEvents, GapEntry, IndexEvent, ThreadEntry};

pub(crate) use self::message::Depths;
pub use self::message::{MessageConsumer, Messages};
pub use self::one::One;
use self::thread::{Place, ThreadScan};
use super::trace::Trace;

/// What takes the events of a session.
pub trait Consumer {
    /// By how much an event may come before earlier ones of other threads. The fewer turns, the faster.
    const SLACK_NS: u64 = 0;

    /// An event. Those of one thread come in order.
    fn event(&mut self, raw: Raw<'_>) -> Result<()>;

    /// Events of a thread that come one after another and have no details.
    fn run(&mut self, run: Run<'_>) -> Result<()> {
        run.events().try_for_each(|(position, event)| {
            self.event(Raw { stream: run.stream, position, event, details: DetailEvents::at(&[], 0) })
        })
    }

    /// Events of a thread are missing; `time` is that of its next event, or the last there is.
    fn gap(&mut self, gap: &GapEntry, time: u64) -> Result<()>;

    /// Nothing from before this time comes any more. It is told now and then.
    fn settle(&mut self, until: u64) -> Result<()> {
        let _ = until;
        Ok(())
    }
}

/// An event as it is on disk.
#[derive(Debug)]
pub struct Raw<'a> {
    /// The thread.
    pub stream: u32,
    /// Its place in what the thread produced.
    pub position: u64,
    /// The event.
    pub event: IndexEvent,
    /// What was captured with it.
    pub details: DetailEvents<'a>,
}

/// Events of a thread that come one after another and have no details, as they are on disk.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The thread.
    pub stream: u32,
    /// The place of the first in what the thread produced.
    first: u64,
    records: &'a [[u8; IndexEvent::BYTES]],
}

impl Run<'_> {
    /// The events, each with its place.
    #[inline]
    pub fn events(&self) -> impl Iterator<Item = (u64, IndexEvent)> {
        // All of them can be decoded, or they would not be here.
        let events = self.records.iter().filter_map(|record| IndexEvent::decode(record, 0).ok());
        (self.first..=u64::MAX).zip(events)
    }
}

/// Threads that are read together.
#[derive(Debug)]
pub struct Scan<'a> {
    threads: Vec<ThreadScan<'a>>,
    trace: &'a Trace,
}

/// How far the threads of a session were read.
pub type Places = HashMap<u32, Place>;

/// What all pages of all threads together may take. A thread has pages only from its first event to its last.
const PAGES_BYTES: usize = 64 << 20;
const LARGEST_PAGE: usize = 256 << 10;
const SMALLEST_PAGE: usize = 4 << 10;

/// After how many events it is told how far all threads have come: of one thread, and where another has its turn.
const EVENTS_PER_SETTLE: u32 = 1 << 16;
const SWITCHED_PER_SETTLE: u32 = 1 << 10;

impl<'a> Scan<'a> {
    /// Looks at the two ends of each thread's files.
    pub fn open(trace: &'a Trace, threads: &[ThreadEntry]) -> Result<Self> {
        let page = page_for(threads);
        let mut gaps = trace.gaps_by_thread();
        let mut open = Vec::with_capacity(threads.len());
        for thread in threads {
            let gaps = gaps.remove(&thread.id).unwrap_or_default();
            // What came since the session was looked at may lie behind gaps that nobody knows yet.
            let most = trace.is_looked_at.then(|| thread.written.unwrap_or(0));
            open.extend(ThreadScan::open(trace, thread, gaps, page, most)?);
        }
        Ok(Self { threads: open, trace })
    }

    /// Goes on where threads of a session that grows were left. None where they are not what they were.
    pub(crate) fn go_on(trace: &'a Trace, places: &Places) -> Result<Option<Self>> {
        let threads = trace.threads();
        let page = page_for(&threads);
        let mut scan = Self::open(trace, &threads)?;
        let mut known = 0;
        for thread in &mut scan.threads {
            thread.goes_on = true;
            if let Some(place) = places.get(&thread.stream()) {
                known += 1;
                if !thread.go_to(place, page)? {
                    return Ok(None);
                }
            }
        }
        Ok(Some(scan).filter(|_| known == places.len()))
    }

    /// How far each thread was read.
    pub(crate) fn places(&self) -> Places {
        self.threads.iter().map(|thread| (thread.stream(), thread.place())).collect()
    }

    /// Nothing comes later.
    pub(crate) fn ends(&mut self) {
        self.threads.iter_mut().for_each(|thread| thread.goes_on = false);
    }

    /// How many events the index of a thread has, if it can be read.
    pub fn events_of(trace: &Trace, thread: &ThreadEntry) -> Option<u64> {
        let thread = ThreadScan::open(trace, thread, Vec::new(), SMALLEST_PAGE, None).ok()??;
        Some(thread.events())
    }

    /// What is wrong with the manifest, or what files lack of what it says, so far as their ends tell.
    pub fn wrong(&self) -> Option<String> {
        let manifest = self.trace.wrong.as_ref().map(ToString::to_string);
        manifest.or_else(|| self.threads.iter().find_map(ThreadScan::wrong))
    }

    /// Hands over all events. Stops at the first error, be it the consumer's.
    pub fn run<C: Consumer>(&mut self, consumer: &mut C) -> Result<()> {
        self.run_until(u64::MAX, consumer)
    }

    /// Hands over all events up to a time.
    pub(crate) fn run_until<C: Consumer>(&mut self, last: u64, consumer: &mut C) -> Result<()> {
        let mut order: BinaryHeap<_> =
            self.threads.iter().enumerate().map(|(index, thread)| Reverse((thread.time(), index))).collect();
        let mut since_settle = 0;
        while let Some(Reverse((time, index))) = order.pop() {
            let Some(thread) = self.threads.get_mut(index).filter(|_| time <= last || time == u64::MAX) else {
                continue;
            };
            if since_settle >= SWITCHED_PER_SETTLE && time != u64::MAX {
                consumer.settle(time)?;
                since_settle = 0;
            }
            let (limit, other) = order.peek().map_or((u64::MAX, usize::MAX), |Reverse(next)| *next);
            // Of two events of one time, that of the first thread comes first.
            let until = limit.saturating_sub((index > other).into()).saturating_add(C::SLACK_NS).min(last);
            // Stays with one thread for as long as no other is earlier.
            loop {
                let handed_over = thread.run(until, consumer)?;
                if handed_over == 0 && !thread.next(consumer)? {
                    break;
                }
                since_settle += handed_over.max(1);
                let next = thread.time();
                if next > until {
                    order.push(Reverse((next, index)));
                    break;
                }
                if since_settle >= EVENTS_PER_SETTLE && next != u64::MAX {
                    consumer.settle(next.min(limit))?;
                    since_settle = 0;
                }
            }
        }
        match &self.trace.wrong {
            Some(wrong) => bail!("{wrong}: names, times and gaps may be wrong (see `collector verify`)"),
            None => Ok(()),
        }
    }
}

fn page_for(threads: &[ThreadEntry]) -> usize {
    // Two files each.
    (PAGES_BYTES / threads.len().saturating_mul(2).max(1)).clamp(SMALLEST_PAGE, LARGEST_PAGE)
}

#[cfg(test)]
mod tests;
