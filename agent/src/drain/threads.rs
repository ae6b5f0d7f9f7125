//! Threads: found by the rings they take, missed when the system does not know them any more.

use std::{
    collections::HashSet,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use codec::{
    ModuleId, SessionNs, StreamId,
    profile::{Limit, Thread},
};

use super::{Drain, ring::Ring};
use crate::ship::Shipper;

/// How often is looked which threads are there, and how often when rings get scarce.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOOK_OFTEN: Duration = Duration::from_millis(5);

/// How often names are looked at, and how many at a time.
const NAMES_EVERY: Duration = Duration::from_millis(250);
const NAMES_AT_ONCE: usize = 64;

/// How many threads that have ended are remembered, since who created them may become known.
const MOST_ENDED: usize = 16_384;

/// What is known of a thread.
#[derive(Debug, Clone)]
pub(super) struct TracedThread {
    pub(super) stream: StreamId,
    pub(super) tid: u32,
    /// The handle that pthread functions know it by.
    pub(super) pthread: u64,
    /// When it took its ring, by the counter.
    pub(super) taken: u64,
    pub(super) start: SessionNs,
    pub(super) end: Option<SessionNs>,
    pub(super) creator: Option<StreamId>,
    pub(super) name: String,
}

impl TracedThread {
    /// Tells the collector.
    pub(super) fn report(&self, shipper: &mut Shipper) {
        let Self { stream, start, end, creator, .. } = *self;
        shipper.option(Thread { stream, os_id: self.tid.into(), start, end, creator, name: &self.name }.into());
    }

    /// Gives it another name, as bytes that may be padded with zeros. Whether that is news.
    pub(super) fn rename(&mut self, bytes: &[u8]) -> bool {
        let name = text(bytes);
        let news = name != self.name;
        if news {
            self.name = name;
        }
        news
    }
}

/// Bytes up to the first zero, with what is not UTF-8 replaced.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

impl Drain {
    /// Finds rings that have been taken since the last time.
    pub(super) fn find_threads(&mut self, shipper: &mut Shipper) {
        let used = self.arena.rings_used();
        if self.rings.len() < used {
            self.rings.resize_with(used, || None);
        }
        let is_new = |ring: &usize| self.rings[*ring].is_none() && self.arena.head(*ring).is_live();
        let mut new: Vec<_> = (0..used).filter(is_new).collect();
        // In the order in which they began: a handle may have been another thread's before.
        // ORDERING: written before the ring became live.
        new.sort_by_key(|ring| self.arena.head(*ring).taken.load(Ordering::Relaxed));
        for ring in new {
            self.add_thread(ring, shipper);
        }
    }

    /// A thread has taken a ring.
    fn add_thread(&mut self, ring: usize, shipper: &mut Shipper) {
        let head = self.arena.head(ring);
        // ORDERING: written before the ring became live.
        let (tid, pthread, taken) = (
            head.tid.load(Ordering::Relaxed),
            head.pthread.load(Ordering::Relaxed),
            head.taken.load(Ordering::Relaxed),
        );
        let stream = StreamId(self.counts.threads as u32);
        let thread = TracedThread {
            stream,
            tid,
            pthread,
            taken,
            start: self.clock.at(taken),
            end: None,
            creator: self.creations.creator(pthread, taken),
            name: text(&head.name()),
        };
        thread.report(shipper);
        // The system has given the id to this thread, so that whoever had it before is gone.
        for other in self.rings.iter_mut().flatten().filter(|other| other.thread.tid == tid) {
            other.is_gone = true;
        }
        self.rings[ring] = Some(Ring::new(thread));
        self.counts.threads += 1;
        self.counts.threads_now += 1;
    }

    /// Looks which threads are gone, if it is time to.
    pub(super) fn find_ended_threads(&mut self, now: Instant) {
        let scarce = self.counts.threads_now as usize * 4 >= self.arena.shape().rings * 3;
        let every = if scarce { LOOK_OFTEN } else { LOOK_EVERY };
        if now.saturating_duration_since(self.looked) < every || self.counts.threads_now == 0 {
            return;
        }
        self.looked = now;
        // Whoever has a ring by now was there before this is asked, and is in the answer unless gone.
        if !self.tasks.list(&mut self.ids) {
            return;
        }
        let ids: HashSet<u32> = self.ids.iter().copied().collect();
        let missing = self.rings.iter_mut().flatten().filter(|ring| !ids.contains(&ring.thread.tid));
        let gone: Vec<_> = missing.filter(|ring| self.tasks.is_gone(ring.thread.tid)).collect();
        // What runs another program in its place loses its threads to that, and they do not end before the session does. It
        // said so before they were gone.
        // ORDERING: the system call that ends them is between.
        let is_executing = self.arena.control().executing.load(Ordering::Relaxed) != 0;
        // Nor do those of a process that ends, of which the system takes one after the other.
        if !gone.is_empty() && !is_executing && !self.tasks.is_ending(&self.ids) {
            gone.into_iter().for_each(|ring| ring.is_gone = true);
        }
    }

    /// Looks whether threads have other names now, if it is time to.
    pub(super) fn update_names(&mut self, now: Instant, shipper: &mut Shipper) {
        if now.saturating_duration_since(self.named) < NAMES_EVERY {
            return;
        }
        self.named = now;
        let count = self.rings.len();
        let mut left = NAMES_AT_ONCE;
        for _ in 0..count {
            self.next_name = (self.next_name + 1) % count;
            let Some(ring) = self.rings[self.next_name].as_mut().filter(|ring| !ring.is_gone) else { continue };
            if let Some(name) = self.tasks.name(ring.thread.tid)
                && ring.thread.rename(&name)
            {
                ring.thread.report(shipper);
            }
            left -= 1;
            if left == 0 {
                return;
            }
        }
    }

    /// Joins threads to those that created them. A thread may have been taken for one of an earlier creation with the same
    /// handle, or be gone already.
    pub(super) fn join_creators(&mut self, shipper: &mut Shipper) {
        for (handle, creation) in self.created.drain(..) {
            self.creations.add(handle, creation);
            let rings = self.rings.iter_mut().flatten().chain(&mut self.waiting);
            let threads = rings.map(|ring| &mut ring.thread).chain(&mut self.ended);
            for thread in threads.filter(|thread| thread.pthread == handle) {
                let creator = self.creations.creator(handle, thread.taken);
                if creator.is_some() && creator != thread.creator {
                    thread.creator = creator;
                    thread.report(shipper);
                }
            }
        }
    }

    /// A thread is gone and its ring is empty: it is told to have ended, and the ring may be taken by another.
    pub(super) fn end_thread(&mut self, ring: usize, end: Option<SessionNs>, shipper: &mut Shipper) {
        let Some(mut gone) = self.rings[ring].take() else { return };
        // ORDERING: nobody writes them any more.
        let dropped = self.arena.head(ring).dropped.load(Ordering::Acquire);
        self.with_context(shipper, |context| gone.pass_on_rest(dropped, context));
        let head = self.arena.head(ring);
        for (count, of_ring) in [
            (&mut self.counts.too_deep, &head.too_deep),
            (&mut self.counts.interrupted, &head.interrupted),
            (&mut self.counts.unplaced, &head.unplaced),
        ] {
            *count = count.saturating_add(of_ring.load(Ordering::Relaxed));
        }
        self.tell_counted(ring, &gone, shipper);
        self.depths.forget(&gone.nesting);
        self.counts.threads_now -= 1;
        self.arena.free(ring);
        gone.thread.end = end;
        match gone.sieve.backlog.is_empty() {
            true => self.tell_end(gone, shipper),
            false => self.waiting.push(gone),
        }
    }

    /// Everything of a thread has been sent that will be.
    pub(super) fn tell_end(&mut self, mut gone: Ring, shipper: &mut Shipper) {
        gone.thread.end = gone.thread.end.map(|end| end.max(gone.latest()));
        gone.thread.report(shipper);
        if gone.thread.pthread != 0 && self.ended.len() < MOST_ENDED {
            self.ended.push(gone.thread);
        }
    }

    /// Tells what could not be recorded.
    pub(super) fn report_limits(&self, shipper: &mut Shipper) {
        // ORDERING: counts of their own.
        let without = self.arena.control().threads_without_ring.load(Ordering::Relaxed);
        let unwatched = self.arena.control().unwatchable.load(Ordering::Relaxed);
        let unserved = self.arena.control().unserved.load(Ordering::Relaxed);
        let bytes =
            format!("{} bytes of rings were no records; events in them are not counted", self.counts.damaged_bytes);
        let down = self.levels.turned_down();
        let counted = down.line().unwrap_or_default();
        let excess = self.levels.spent.excess();
        let limit = |count, reason, detail| Limit { module: ModuleId(0), count, reason, detail };
        let limits = [
            limit(self.counts.too_deep, "max-depth", "calls"),
            limit(without.into(), "no-ring", "threads"),
            limit(self.counts.interrupted, "interrupted", "calls of signal handlers that came while one was recorded"),
            limit(
                self.counts.unplaced,
                "stack-unknown",
                "calls on memory that is not known to be a stack, or that another thread runs on",
            ),
            limit(unwatched, "not-watched", "functions given to a runtime: that they are run is not told"),
            limit(
                unserved.into(),
                "agent-stopped",
                "modules loaded while the agent did nothing: they may not be hooked",
            ),
            limit(self.counts.damages, "ring-damaged", &bytes),
            limit(down.counted, "counted", &counted),
            limit(excess.is_some().into(), "over-budget", excess.as_deref().unwrap_or_default()),
            limit(self.counts.brief, "brief", "calls that took less than --slower-than, counted by function"),
            limit(self.counts.left_out, "left-out", "events outside of what was asked for"),
            limit(
                self.counts.not_kept_ns,
                "not-kept",
                "nanoseconds of what was to be kept, for which there was no memory",
            ),
        ];
        let limits: Vec<_> = limits.into_iter().filter(|limit| limit.count > 0).collect();
        shipper.limits(&limits);
    }
}
