//! Emptying the rings: records become events, rings become streams, and threads start and end.
//!
//! Every thread that takes a ring is a stream of its own, numbered as they come; a ring that is taken again is another
//! stream. Every call, return, exception and runtime event has a position in its stream, and so has every event that
//! did not fit the ring: the agent reports it as dropped.
//!
//! Nothing in the rings is trusted. Where a ring holds something that is not a record, because the program wrote over
//! it, the agent skips the ring up to where the thread writes now. It cannot know how many events that were: it reports
//! one dropped event (`ring-damaged`), so that there is a gap where they were, and a limit with the number of bytes.

mod backlog;
mod brief;
mod clock;
mod counted;
mod creations;
mod depths;
#[cfg(test)]
pub(crate) mod fake;
mod functions;
mod levels;
mod queues;
mod ring;
mod selection;
mod sieve;
mod stall;
mod tasks;
mod threads;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use codec::{
    FunctionId, SessionNs,
    profile::{EndReason, LevelChange, LevelKind},
};

pub use clock::Clock;
pub use functions::Functions;
pub use levels::{LevelCounts, Pace, SetLevels, Spent, TurnedDown};
pub use selection::{Comparison, Condition, Keep, MOST_TRIGGERS, Trigger, Wanted};
pub use stall::Waiting;
pub use tasks::{ProcTasks, Tasks};

use crate::{
    shared::{Arena, Level, tsc},
    ship::{Report, Shipper},
};
use creations::{Creation, Creations};
use depths::Depths;
use levels::{Change, Levels};
use queues::Queues;
use ring::{DrainContext, Ring, Taken};
use selection::Selection;
use stall::Stall;
use threads::TracedThread;

/// How many words are copied out of a ring at once: few enough to stay in the nearest cache, more than any record has.
const BATCH_WORDS: usize = 2_048;

/// How many words are taken from one ring before the others have their turn.
const WORDS_PER_TURN: usize = 16 * BATCH_WORDS;

/// How long one wait for the collector lasts while rings are emptied for the last time.
const GLANCE: Duration = Duration::from_millis(1);

/// Empties the rings of one target into a [`Shipper`].
pub struct Drain {
    arena: Arc<Arena>,
    clock: Clock,
    functions: Arc<Functions>,
    known: Vec<FunctionId>,
    tasks: Box<dyn Tasks>,
    /// By the number of the ring; those that nobody has are none.
    rings: Vec<Option<Ring>>,
    queues: Queues,
    creations: Creations,
    created: Vec<(u64, Creation)>,
    /// Threads that have ended, with records that wait until it is known what happens.
    waiting: Vec<Ring>,
    /// Threads that have ended: who created them may become known later.
    ended: Vec<TracedThread>,
    counts: Counts,
    stall: Stall,
    levels: Levels,
    selection: Option<Selection>,
    /// How many bytes waited at the last look until it is known what happens.
    waiting_bytes: usize,
    depths: Depths,
    words: Vec<u64>,
    ids: Vec<u32>,
    looked: Instant,
    named: Instant,
    next_name: usize,
    counted_at: Instant,
    next_counted: usize,
}

impl Drain {
    /// Drains these rings. `clock` is the one whose zero the session was told to have.
    pub fn new(arena: Arc<Arena>, clock: Clock, functions: Arc<Functions>, tasks: impl Tasks + 'static) -> Self {
        let now = Instant::now();
        Self {
            arena,
            clock,
            functions,
            known: Vec::new(),
            tasks: Box::new(tasks),
            rings: Vec::new(),
            queues: Queues::default(),
            creations: Creations::default(),
            created: Vec::new(),
            waiting: Vec::new(),
            ended: Vec::new(),
            counts: Counts::default(),
            stall: Stall::new(),
            levels: Levels::new(now),
            selection: None,
            waiting_bytes: 0,
            depths: Depths::default(),
            words: Vec::new(),
            ids: Vec::new(),
            looked: now,
            named: now,
            next_name: 0,
            counted_at: now,
            next_counted: 0,
        }
    }

    /// Turns functions down and up, so that tracing costs no more than this.
    pub fn at_pace(mut self, pace: Pace) -> Self {
        self.levels.begin(&self.arena, pace, self.clock.now());
        self.levels.inherit_left_alone(&self.functions.left_alone());
        self.levels.inherit(&self.arena, &self.functions.levels_set(), self.clock.now());
        self
    }

    /// Sends only what is asked for.
    pub fn sending(mut self, wanted: Wanted) -> Self {
        self.selection = Selection::new(wanted);
        self
    }

    /// Whether not everything is asked for, so that names of functions matter.
    pub fn is_selective(&self) -> bool {
        self.selection.is_some()
    }

    /// A function has these names, and its returns are seen or not. To be said before it is called.
    pub fn learn(&mut self, function: FunctionId, names: impl Iterator<Item: AsRef<str>>, is_entry_only: bool) {
        if let Some(selection) = &mut self.selection {
            selection.learn(function, names, is_entry_only);
        }
    }

    /// Something has happened now that starts sending, or stops it. Whether that matters.
    pub fn trigger(&mut self, is_start: bool) -> bool {
        let selection = self.selection.as_mut().filter(|selection| selection.has_triggers());
        selection.map(|selection| selection.trigger(is_start)).is_some()
    }

    /// Has tracing cost this from here on.
    pub fn set_pace(&mut self, pace: Pace) {
        self.levels.set_pace(pace);
    }

    /// Sets the level of functions for good, or with `None` has it be what tracing may cost.
    pub fn set_functions(&mut self, functions: &[u32], level: Option<Level>) -> SetLevels {
        let result = self.levels.set(&self.arena, functions, level, self.clock.now());
        self.functions.keep_levels_set(self.levels.pinned());
        result
    }

    /// How many functions have which level.
    pub fn level_counts(&self) -> LevelCounts {
        self.levels.counts(&self.arena)
    }

    /// Now, by the session's clock.
    pub fn now(&self) -> SessionNs {
        self.clock.now()
    }

    /// What has come out so far.
    pub fn counts(&self) -> Counts {
        let (turned_down, spent) = (self.levels.turned_down(), self.levels.spent);
        Counts { functions: self.functions.len() as u64, turned_down, spent, ..self.counts.clone() }
    }

    /// Takes what is in the rings, as far as the shipper has room, and sends it. How many records that were.
    pub fn turn(&mut self, shipper: &mut Shipper) -> usize {
        let (now, begun) = (Instant::now(), tsc::now());
        self.arena.heartbeat();
        self.clock.tick();
        self.find_threads(shipper);
        self.find_ended_threads(now);
        self.update_names(now, shipper);
        let records = (0..self.rings.len()).map(|ring| self.take(ring, WORDS_PER_TURN, shipper)).sum();
        self.settle(begun, shipper);
        self.find_stall(records, now);
        self.set_levels(now);
        self.tell_levels(shipper);
        self.tell_counted_so_far(now, shipper);
        self.join_creators(shipper);
        shipper.flush();
        records
    }

    /// Takes everything that is left, whether its threads are gone or not, and ends the session: the process is gone, or
    /// nothing is hooked any more. Gives up once the collector has taken nothing for `linger`, and reports the rest as
    /// dropped.
    pub fn finish(&mut self, shipper: &mut Shipper, reason: EndReason, linger: Duration) -> Report {
        let mut deadline = Instant::now() + linger;
        self.clock.tick();
        self.find_threads(shipper);
        let mut has_all = self.is_empty();
        while !has_all && Instant::now() < deadline && !shipper.is_forsaken() {
            self.arena.heartbeat();
            let begun = tsc::now();
            match (0..self.rings.len()).map(|ring| self.take(ring, WORDS_PER_TURN, shipper)).sum::<usize>() {
                0 => drop(shipper.turn(GLANCE)),
                // As long as the collector takes something, there is no reason to give up.
                _ => deadline = Instant::now() + linger,
            }
            self.settle(begun, shipper);
            self.join_creators(shipper);
            shipper.flush();
            shipper.turn(Duration::ZERO);
            has_all = self.is_empty();
        }
        // What came before an end of which nobody knows that it is a good one is always asked for.
        if matches!(reason, EndReason::Signaled(_)) || reason == EndReason::UNKNOWN {
            self.trigger(true);
        }
        let at = self.clock.now();
        // Threads of a process that goes on go on too.
        let end = (reason != EndReason::Detached).then_some(at);
        for ring in 0..self.rings.len() {
            // A thread that goes on may return from what it was in: that is after the end.
            if !has_all {
                self.give_up(ring, shipper);
            }
            self.end_thread(ring, end, shipper);
        }
        self.settle_all(deadline, shipper);
        self.levels.look_at_all(&self.arena, at);
        self.levels.count_gates(&self.arena);
        self.tell_levels(shipper);
        self.report_limits(shipper);
        shipper.finish(reason, at, deadline.saturating_duration_since(Instant::now()))
    }

    fn set_levels(&mut self, now: Instant) {
        let Self { levels, arena, tasks, rings, clock, .. } = self;
        let live: Vec<_> = (0..rings.len()).filter(|ring| rings[*ring].is_some()).collect();
        levels.look(arena, &live, now, clock.now(), || tasks.processor_time());
        levels.settle_hooks(&self.functions, arena, clock.now());
    }

    /// Tells which functions have other levels.
    fn tell_levels(&mut self, shipper: &mut Shipper) {
        let changes = self.levels.take_changes();
        if changes.is_empty() {
            return;
        }
        self.functions.copy_to(&mut self.known);
        let change = |&Change { time, function, level }: &Change| {
            let level = match level {
                Level::Full => LevelKind::Full,
                Level::Counted => LevelKind::Counted,
                Level::Off => LevelKind::Off,
            };
            Some(LevelChange { function: *self.known.get(function as usize)?, at: time, level })
        };
        shipper.levels(&changes.iter().filter_map(change).collect::<Vec<_>>());
    }

    fn is_empty(&self) -> bool {
        (0..self.rings.len()).all(|ring| self.rings[ring].is_none() || self.unread(ring) == 0)
    }

    /// How many bytes of a ring have not been read.
    fn unread(&self, ring: usize) -> u64 {
        let head = self.arena.head(ring);
        // ORDERING: pairs with the writer's release; how far it is read only this side says.
        head.written.load(Ordering::Acquire).saturating_sub(head.read.load(Ordering::Relaxed))
    }

    /// Takes up to so many words out of a ring. How many records that were.
    fn take(&mut self, ring: usize, most_words: usize, shipper: &mut Shipper) -> usize {
        let mut records = 0;
        for _ in 0..most_words / BATCH_WORDS {
            if self.rings[ring].is_none() || !self.has_room(shipper) {
                break;
            }
            let Some(taken) = self.take_batch(ring, shipper, Ring::take) else {
                if self.rings[ring].as_ref().is_some_and(|ring| ring.is_gone) {
                    self.end_thread(ring, Some(self.clock.now()), shipper);
                }
                self.is_emptied(ring, shipper);
                return records;
            };
            records += taken.records;
        }
        if let Some(ring) = &mut self.rings[ring] {
            ring.sieve.is_behind = true;
        }
        records
    }

    /// Counts what is in a ring as not kept.
    fn give_up(&mut self, ring: usize, shipper: &mut Shipper) {
        while self.rings[ring].is_some() && self.take_batch(ring, shipper, Ring::give_up).is_some() {}
    }

    /// Copies words out of a ring and has something done with them. None if there were none.
    fn take_batch(
        &mut self,
        ring: usize,
        shipper: &mut Shipper,
        act: impl FnOnce(&mut Ring, &[u64], &mut DrainContext<'_>) -> Taken,
    ) -> Option<Taken> {
        let mut words = std::mem::take(&mut self.words);
        let read = self.arena.copy(ring, BATCH_WORDS, &mut words);
        // ORDERING: pairs with the writer's release.
        let written = self.arena.head(ring).written.load(Ordering::Acquire);
        let behind = written.saturating_sub(read);
        let size = self.arena.shape().ring_bytes as u64;
        let mut state = self.rings[ring].take()?;
        let mut taken = Taken { is_damaged: read > written || behind > size, ..Taken::default() };
        if !taken.is_damaged && !words.is_empty() {
            taken = self.with_context(shipper, |context| act(&mut state, &words, context));
            // A record that is not all there ends behind what was copied; there would have been more to copy.
            taken.is_damaged |= taken.words == 0 && words.len() < BATCH_WORDS;
        }
        let any = !words.is_empty() || taken.is_damaged;
        self.words = words;
        if taken.is_damaged {
            self.counts.damages += 1;
            self.counts.damaged_bytes += behind.min(size).saturating_sub(8 * taken.words as u64);
            self.with_context(shipper, |context| state.drop_events(1, "ring-damaged", context));
            self.arena.advance(ring, written);
        } else if taken.words > 0 {
            self.arena.advance(ring, read + 8 * taken.words as u64);
        }
        self.rings[ring] = Some(state);
        any.then_some(taken)
    }

    fn with_context<T>(&mut self, shipper: &mut Shipper, act: impl FnOnce(&mut DrainContext<'_>) -> T) -> T {
        let full = self.reason();
        self.depths.update(&self.functions);
        act(&mut DrainContext {
            full,
            clock: &self.clock,
            functions: &self.functions,
            known: &mut self.known,
            queues: &mut self.queues,
            counts: &mut self.counts,
            shipper,
            created: &mut self.created,
            levels: &mut self.levels,
            selection: self.selection.as_mut(),
            depths: &mut self.depths,
            now: tsc::now(),
        })
    }
}

impl fmt::Debug for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain").field("rings", &self.rings.len()).field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// How much was drained so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// Events that were taken out of rings and given to the shipper.
    pub events: u64,
    /// Events that were not kept, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Threads that were seen.
    pub threads: u64,
    /// Threads that were seen and have not ended.
    pub threads_now: u64,
    /// Functions that have numbers.
    pub functions: u64,
    /// Calls that were passed through because their thread was too deep already, or left out because they were too deep below a
    /// function.
    pub too_deep: u64,
    /// Calls that were passed through because a signal handler made them while another was being recorded.
    pub interrupted: u64,
    /// Calls that were passed through because another thread seemed to run on the same stack.
    pub unplaced: u64,
    /// Events that were left out because they were not asked for.
    pub left_out: u64,
    /// How much time is missing of what was to be kept, since there was no memory for it.
    pub not_kept_ns: u64,
    /// Calls that were left out because they took too little time, of threads that have ended.
    pub brief: u64,
    /// Functions that were turned down.
    pub turned_down: TurnedDown,
    /// What tracing has cost where there was a budget.
    pub spent: Spent,
    /// How often a ring held something that is no record, and how many bytes were thrown away for it.
    pub damages: u64,
    /// See [`damages`](Self::damages).
    pub damaged_bytes: u64,
}

impl Counts {
    fn drop_events(&mut self, count: u64, reason: &'static str) {
        if count > 0 {
            *self.dropped.entry(reason).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests;
