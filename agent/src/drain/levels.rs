//! Turning functions down and up, so that tracing costs no more than it may and rings do not overflow.
//!
//! Threads turn functions down by themselves, at once. Here they are turned up again: those that are called little, as far as
//! there is room for them, and of all others one now and then for a while (a burst), the less often the more calls it makes.
//! What is called so often that even counting costs too much is turned off.

mod left_alone;
mod pins;
mod spent;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::AddAssign,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use codec::SessionNs;

use self::left_alone::Hooks;
pub(super) use self::pins::Pinned;
pub use self::{
    pins::{LevelCounts, SetLevels},
    spent::Spent,
};
use crate::shared::{Arena, Level, read_slot, set_slot};

/// How often it is looked what tracing costs, and how often all functions are looked at.
const EVERY: Duration = Duration::from_millis(10);
const ALL_EVERY: Duration = Duration::from_millis(100);

/// What counting a call costs, in nanoseconds: four times what it takes in a loop, since in programs the code and counters of many
/// functions take turns in the caches.
const COUNTING_NS: f64 = 8.0;

/// How many calls a second are taken for possible where no budget says how many.
const LEAST_CAPACITY: f64 = 200_000.0;

/// The longest time between two bursts of a function, as a power of two of the time between two looks.
const MOST_PATIENCE: u32 = 10;

/// What is called less often between two looks is not what costs.
const LEAST_CALLS: u64 = 1_000;

/// How many nanoseconds tracing may take more than it may for a while: threads begin with some of it, and find out by themselves
/// when they have used it up.
const MOST_DEBT_NS: f64 = 10_000_000.0;

/// How much tracing may cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Anything: every call is followed.
    Any,
    /// What fits the rings.
    Rings,
    /// This part of the program's own processor time, at so many nanoseconds a call.
    Share {
        /// 0.1 for ten per cent.
        share: f64,
        /// What following a call costs.
        call_ns: f64,
    },
}

/// A change of a function's level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) time: SessionNs,
    pub(super) function: u32,
    pub(super) level: Level,
}

/// What was turned down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TurnedDown {
    /// How many functions can be, as far as it was counted, and how many were at some time.
    pub gates: u64,
    /// See [`gates`](Self::gates).
    pub functions: u64,
    /// How many of their calls were followed all the same.
    pub followed: u64,
    /// How many were counted, of threads that have ended.
    pub counted: u64,
    /// How many calls were followed of all functions.
    pub calls: u64,
    /// How many of the functions were off at some time: calls that they made then are in no count.
    pub off: u64,
}

impl AddAssign for TurnedDown {
    fn add_assign(&mut self, other: Self) {
        self.gates += other.gates;
        self.functions += other.functions;
        self.followed += other.followed;
        self.counted += other.counted;
        self.calls += other.calls;
        self.off += other.off;
    }
}

impl TurnedDown {
    /// In one line: which part of the calls they made, and how many of those were followed. None where nothing was.
    pub fn line(&self) -> Option<String> {
        let theirs = self.followed + self.counted;
        let percent = |part: u64, of: u64| match 100.0 * part as f64 / of.max(1) as f64 {
            percent @ 10.0.. => format!("{percent:.0} %"),
            percent => format!("{percent:.1} %"),
        };
        let (share, seen) = (percent(theirs, self.calls + self.counted), percent(self.followed, theirs));
        let (down, gates) = (self.functions, self.gates);
        let off = match self.off {
            0 => String::new(),
            off => format!("; calls that {off} of them made while they were off are in no count"),
        };
        let line = || format!("{down} of {gates} functions made {share} of the calls: counted, {seen} followed{off}");
        (down > 0).then(line)
    }
}

/// The levels of all functions, and what there is to tell of them.
#[derive(Debug)]
pub(super) struct Levels {
    pace: Pace,
    /// How many functions can be turned down.
    gates: u64,
    /// How many calls were recorded, by function.
    calls: Vec<u64>,
    /// Functions that have been turned down at some time.
    down: BTreeMap<u32, Down>,
    hooks: Hooks,
    /// What threads that have ended had counted, by function.
    ended: BTreeMap<u32, u64>,
    /// What the user has set.
    pinned: Pinned,
    /// Whether there was another pace before, so that functions may be down that need not be.
    is_lifted: bool,
    /// Changes that are not told yet.
    changes: Vec<Change>,
    looked: Instant,
    looked_at_all: Instant,
    /// The program's processor time at the last look, and how many calls were recorded.
    cpu: Duration,
    recorded: u64,
    pub(super) spent: Spent,
    /// How many nanoseconds tracing has taken more than it may, and how many calls had been recorded by function when that was
    /// looked at.
    debt_ns: f64,
    looked_calls: Vec<u64>,
    /// How many calls a second could be taken while rings filled up.
    capacity: f64,
}

/// What is known of a function that was turned down.
#[derive(Debug)]
struct Down {
    level: Level,
    /// Whether it has been off at some time.
    was_off: bool,
    /// How many of its calls were counted when it was looked at last.
    counted: u64,
    /// How often it was turned off because even counting its calls costs too much; as often as may be while it is left alone.
    turned_off: u32,
    /// How many calls a second it made when it was turned off.
    rate: f64,
    /// How often it was left alone.
    left_alone: u32,
    /// How many bursts it has had, and when the next one is due.
    bursts: u32,
    due: Instant,
}

impl Levels {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            pace: Pace::Any,
            gates: 0,
            calls: Vec::new(),
            down: BTreeMap::new(),
            hooks: Hooks::new(now),
            ended: BTreeMap::new(),
            pinned: Pinned::new(),
            is_lifted: false,
            changes: Vec::new(),
            looked: now,
            looked_at_all: now,
            cpu: Duration::ZERO,
            recorded: 0,
            spent: Spent::default(),
            debt_ns: 0.0,
            looked_calls: Vec::new(),
            capacity: LEAST_CAPACITY,
        }
    }

    /// Begins, with what functions have inherited: nothing is called yet.
    pub(super) fn begin(&mut self, arena: &Arena, pace: Pace, time: SessionNs) {
        self.pace = pace;
        self.look_at_all(arena, time);
    }

    /// Has tracing cost this from here on.
    pub(super) fn set_pace(&mut self, pace: Pace) {
        self.is_lifted = self.is_lifted || self.pace != Pace::Any;
        self.hook_all();
        self.spent = Spent::default();
        self.pace = pace;
    }

    /// A call was recorded.
    #[inline]
    pub(super) fn called(&mut self, function: u32) {
        match self.calls.get_mut(function as usize) {
            Some(calls) => *calls += 1,
            None => self.first_call(function),
        }
        self.recorded += 1;
    }

    #[cold]
    fn first_call(&mut self, function: u32) {
        // Nothing in a ring is trusted.
        if function <= crate::shared::MAX_FUNCTION {
            self.calls.resize(function as usize + 1, 0);
            self.calls[function as usize] = 1;
        }
    }

    /// A function has another level from then on.
    pub(super) fn changed(&mut self, time: SessionNs, function: u32, level: Level) {
        let now = Instant::now();
        let new = || Down {
            level: Level::Full,
            was_off: false,
            counted: 0,
            turned_off: 0,
            rate: 0.0,
            left_alone: 0,
            bursts: 0,
            due: now,
        };
        let down = self.down.entry(function).or_insert_with(new);
        if down.level != level {
            down.level = level;
            down.was_off |= level == Level::Off;
            down.due = now + EVERY * (1 << down.bursts.min(MOST_PATIENCE));
            self.changes.push(Change { time, function, level });
        }
    }

    /// A thread has ended, whose ring this is: how many calls it has counted, by function.
    pub(super) fn thread_ends(&mut self, arena: &Arena, ring: usize) -> Vec<(u32, u64)> {
        let mut counted = Vec::new();
        arena.counted(ring, |function, count| {
            counted.push((function, count));
            *self.ended.entry(function).or_default() += count;
        });
        counted
    }

    /// Changes that are not told yet.
    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// What was turned down.
    pub(super) fn turned_down(&self) -> TurnedDown {
        let down: BTreeSet<u32> = self.down.keys().chain(self.ended.keys()).copied().collect();
        TurnedDown {
            gates: self.gates,
            functions: down.len() as u64,
            followed: down.iter().filter_map(|function| self.calls.get(*function as usize)).sum(),
            counted: self.ended.values().sum(),
            calls: self.calls.iter().sum(),
            off: self.down.values().filter(|down| down.was_off).count() as u64,
        }
    }

    /// Looks what tracing costs, if it is time to, and changes what has to be.
    pub(super) fn look(
        &mut self,
        arena: &Arena,
        rings: &[usize],
        now: Instant,
        time: SessionNs,
        cpu: impl FnOnce() -> Option<Duration>,
    ) {
        let elapsed = now.saturating_duration_since(self.looked);
        if elapsed < EVERY {
            return;
        }
        let (calls, seconds) = (std::mem::take(&mut self.recorded) as f64, elapsed.as_secs_f64());
        self.looked = now;
        if now.saturating_duration_since(self.looked_at_all) >= ALL_EVERY {
            self.looked_at_all = now;
            self.look_at_all(arena, time);
        }
        if self.pace == Pace::Any {
            if self.is_lifted {
                self.follow_all(arena, time);
            }
            return;
        }
        let mut counted = self.count(arena, rings);
        // How many more calls may be followed in as much time.
        let spare = match self.pace {
            Pace::Any => return,
            Pace::Rings => {
                let fill = fill(arena, rings);
                if fill > 0.25 {
                    self.capacity = (calls / seconds).max(LEAST_CAPACITY);
                }
                if fill > 0.125 { 0.0 } else { self.capacity * seconds - calls }
            }
            Pace::Share { share, call_ns } => {
                let cpu = cpu().unwrap_or(self.cpu + elapsed);
                let spent = cpu.saturating_sub(std::mem::replace(&mut self.cpu, cpu)).as_nanos() as f64;
                let counting_ns = counted.iter().map(|(calls, _)| *calls as f64 * COUNTING_NS).sum::<f64>();
                let hooks_ns = calls * call_ns + counting_ns + self.passing_ns(seconds);
                let own = self.spent.add(spent, hooks_ns, share);
                if counting_ns > own * share / 2.0 {
                    self.turn_off(&mut counted, counting_ns - own * share / 4.0, seconds, arena, time);
                }
                self.leave_alone(seconds, own * share / 4.0);
                let spare_ns = own * share - hooks_ns;
                self.debt_ns = (self.debt_ns - spare_ns).max(-MOST_DEBT_NS);
                if self.debt_ns > MOST_DEBT_NS && spare_ns < 0.0 {
                    self.turn_down(-spare_ns, call_ns, arena, time);
                }
                self.looked_calls.clone_from(&self.calls);
                spare_ns / call_ns
            }
        };
        self.turn_up(&counted, spare, arena, now, time);
    }

    /// Finds functions that have turned themselves down and could not say so.
    pub(super) fn look_at_all(&mut self, arena: &Arena, time: SessionNs) {
        for function in 0..slots_used(arena) {
            if let Some(level) = level_of(arena, function)
                && self.down.get(&function).map_or(Level::Full, |down| down.level) != level
            {
                self.changed(time, function, level);
            }
        }
    }

    /// Counts the functions that can be turned down.
    pub(super) fn count_gates(&mut self, arena: &Arena) {
        self.gates = (0..slots_used(arena)).filter(|function| level_of(arena, *function).is_some()).count() as u64;
    }

    /// The functions that are counted, by how often they were called since the last time: the least often first.
    fn count(&mut self, arena: &Arena, rings: &[usize]) -> Vec<(u64, u32)> {
        let mut live = BTreeMap::<u32, u64>::new();
        for ring in rings.iter().filter(|_| !self.down.is_empty()) {
            arena.counted(*ring, |function, count| *live.entry(function).or_default() += count);
        }
        let mut counted = Vec::new();
        for (function, down) in &mut self.down {
            let all = [&live, &self.ended].iter().filter_map(|counts| counts.get(function)).sum();
            let new = u64::saturating_sub(all, std::mem::replace(&mut down.counted, all));
            if down.level == Level::Counted && !self.pinned.contains_key(function) {
                counted.push((new, *function));
            }
        }
        counted.sort_unstable();
        counted
    }

    /// Counts the functions that were called most since the last look, until following the others costs so many nanoseconds less.
    /// Threads do that by themselves, unless they end before they find out.
    fn turn_down(&mut self, mut saved_ns: f64, call_ns: f64, arena: &Arena, time: SessionNs) {
        let before = |function: usize| self.looked_calls.get(function).copied().unwrap_or(0);
        let new = self.calls.iter().enumerate().map(|(function, calls)| (calls - before(function), function as u32));
        let mut hottest: Vec<_> = new.filter(|(calls, _)| *calls >= LEAST_CALLS).collect();
        hottest.sort_unstable();
        while saved_ns > 0.0
            && let Some((calls, function)) = hottest.pop()
        {
            saved_ns -= calls as f64 * call_ns;
            if level_of(arena, function) == Some(Level::Full)
                && arena.slot(function).is_some_and(|slot| set_slot(slot, Level::Counted))
            {
                self.changed(time, function, Level::Counted);
            }
        }
    }

    /// Turns the hottest off, of those that were counted for so many seconds, until counting the others costs so many nanoseconds
    /// less.
    fn turn_off(
        &mut self,
        counted: &mut Vec<(u64, u32)>,
        mut saved_ns: f64,
        seconds: f64,
        arena: &Arena,
        time: SessionNs,
    ) {
        while saved_ns > 0.0
            && let Some((calls, function)) = counted.pop_if(|(calls, _)| *calls >= LEAST_CALLS)
        {
            saved_ns -= calls as f64 * COUNTING_NS;
            if arena.slot(function).is_some_and(|slot| set_slot(slot, Level::Off)) {
                self.changed(time, function, Level::Off);
                self.turned_off(function, calls as f64 / seconds);
            }
        }
    }

    /// Turns functions up that are called little, and one of the others for a burst. One that is off is counted for a while.
    fn turn_up(&mut self, counted: &[(u64, u32)], mut spare: f64, arena: &Arena, now: Instant, time: SessionNs) {
        self.try_again(now);
        let mut up = Vec::new();
        let mut next: Option<(Instant, u32)> = None;
        for (calls, function) in counted {
            let Some(down) = self.down.get(function) else { continue };
            if down.due > now {
                continue;
            }
            if (*calls as f64) <= spare / 4.0 {
                spare -= *calls as f64;
                up.push((*function, Level::Full));
            } else if next.is_none_or(|(due, _)| down.due < due) {
                next = Some((down.due, *function));
            }
        }
        let burst = next.filter(|_| spare > 0.0).map(|(_, function)| (function, Level::Full));
        let is_due = |down: &&Down| down.level == Level::Off && !down.is_left_alone() && down.due <= now;
        let mut downs = self.down.iter().filter(|(function, _)| !self.is_pinned(**function));
        let off = downs.find(|(_, down)| is_due(down)).map(|(function, _)| (*function, Level::Counted));
        for (function, level) in burst.into_iter().chain(off) {
            if let Some(down) = self.down.get_mut(&function) {
                down.bursts += 1;
            }
            up.push((function, level));
        }
        for (function, level) in up {
            if arena.slot(function).is_some_and(|slot| set_slot(slot, level)) {
                self.changed(time, function, level);
            }
        }
    }
}

/// How many functions may have a level.
fn slots_used(arena: &Arena) -> u32 {
    // ORDERING: a hint.
    arena.control().slots_used.load(Ordering::Relaxed) as u32
}

/// The level of a function that has one.
fn level_of(arena: &Arena, function: u32) -> Option<Level> {
    // ORDERING: a hint.
    let slot = arena.slot(function)?.load(Ordering::Relaxed);
    read_slot(slot).map(|(level, ..)| level)
}

/// How full the fullest ring is.
fn fill(arena: &Arena, rings: &[usize]) -> f64 {
    let unread = |ring: &usize| {
        let head = arena.head(*ring);
        // ORDERING: hints.
        head.written.load(Ordering::Relaxed).saturating_sub(head.read.load(Ordering::Relaxed))
    };
    let fullest = rings.iter().map(unread).max().unwrap_or(0);
    fullest as f64 / arena.shape().ring_bytes as f64
}

#[cfg(test)]
mod tests;
