//! Functions that are left alone: even to jump past their hooks costs too much.
//!
//! These are the functions that are called most, where all that are off are called too often together; and those that are turned
//! off again and again, which will be called so often for a while. Whoever has put the hooks in takes those out, and puts them
//! back when the user asks for that, or when it is time to look whether a function is still called so often. Until its hook is
//! back, a function is off.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use codec::SessionNs;

use super::{Down, Levels};
use crate::{
    drain::Functions,
    shared::{Arena, Level},
};

/// What it costs to jump past a hook, in nanoseconds: more than in a loop, as counting does.
const PASSING_NS: f64 = 4.0;

/// How often a function may be turned off.
const MOST_OFF: u32 = 3;

/// How long a function is left alone at first. Each time it is twice as long, up to so many times.
const PAUSE: Duration = Duration::from_secs(30);
const MOST_DOUBLED: u32 = 5;

/// How often hooks are put back, and how many at once: all threads stand still for that.
const RETURNS_EVERY: Duration = Duration::from_secs(10);
const MOST_RETURNS: usize = 8;

/// What there is to do about hooks.
#[derive(Debug)]
pub(super) struct Hooks {
    /// Those that are to be taken out.
    out: Vec<u32>,
    /// Those that were asked for again, and are not back yet.
    returning: BTreeSet<u32>,
    /// When others may be.
    next_return: Instant,
}

impl Hooks {
    pub(super) fn new(now: Instant) -> Self {
        Self { out: Vec::new(), returning: BTreeSet::new(), next_return: now }
    }
}

impl Down {
    pub(super) fn is_left_alone(&self) -> bool {
        self.turned_off >= MOST_OFF
    }
}

impl Levels {
    /// A function was turned off that makes so many calls a second.
    pub(super) fn turned_off(&mut self, function: u32, rate: f64) {
        let Some(down) = self.down.get_mut(&function) else { return };
        down.rate = rate;
        down.turned_off += 1;
        if down.is_left_alone() {
            self.take_out(function);
        }
    }

    /// What it costs in so many seconds to jump past the hooks of functions that are off, if they are called as often as before.
    pub(super) fn passing_ns(&self, seconds: f64) -> f64 {
        self.passed(seconds).map(|(cost_ns, _)| cost_ns).sum()
    }

    /// Takes out the hooks of those functions that cost most of that, where all cost more than `most_ns`: until it is half as much.
    pub(super) fn leave_alone(&mut self, seconds: f64, most_ns: f64) {
        let mut all_ns = self.passing_ns(seconds);
        if all_ns <= most_ns {
            return;
        }
        let mut passed: Vec<(f64, u32)> = self.passed(seconds).collect();
        passed.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        while all_ns > most_ns / 2.0
            && let Some((cost_ns, function)) = passed.pop()
        {
            all_ns -= cost_ns;
            self.take_out(function);
        }
    }

    /// The functions that are off, and what it costs in so many seconds to jump past their hooks.
    fn passed(&self, seconds: f64) -> impl Iterator<Item = (f64, u32)> {
        let is_passed =
            |function: u32, down: &Down| down.level == Level::Off && !down.is_left_alone() && !self.is_pinned(function);
        let passed = self.down.iter().filter(move |(function, down)| is_passed(**function, down));
        passed.map(move |(function, down)| (down.rate * seconds * PASSING_NS, *function))
    }

    /// Has the hook of a function taken out, for a while.
    pub(super) fn take_out(&mut self, function: u32) {
        let Some(down) = self.down.get_mut(&function) else { return };
        down.turned_off = MOST_OFF;
        down.due = Instant::now() + PAUSE * (1 << down.left_alone.min(MOST_DOUBLED));
        down.left_alone += 1;
        self.hooks.out.push(function);
    }

    /// Has hooks put back that may be tried again.
    pub(super) fn try_again(&mut self, now: Instant) {
        if now < self.hooks.next_return {
            return;
        }
        self.hooks.next_return = now + RETURNS_EVERY;
        let is_due =
            |(function, down): &(&u32, &Down)| down.is_left_alone() && down.due <= now && !self.is_pinned(**function);
        let mut due: Vec<_> = self.down.iter().filter(is_due).map(|(function, down)| (down.due, *function)).collect();
        due.sort_unstable();
        self.hooks.returning.extend(due.into_iter().take(MOST_RETURNS).map(|(_, function)| function));
    }

    /// Has the hooks of all functions put back but those of which the user has said something else.
    pub(super) fn hook_all(&mut self) {
        let left_alone = self.down.iter().filter(|(_, down)| down.is_left_alone()).map(|(function, _)| *function);
        let again: Vec<u32> = left_alone.filter(|function| !self.is_pinned(*function)).collect();
        self.hooks.returning.extend(again);
    }

    /// Has the hook of a function put back.
    pub(super) fn hook_again(&mut self, function: u32) {
        self.hooks.returning.insert(function);
    }

    /// Says which hooks are to be taken out and put back, and finds out which ones are back.
    pub(in super::super) fn settle_hooks(&mut self, functions: &Functions, arena: &Arena, time: SessionNs) {
        let out = std::mem::take(&mut self.hooks.out);
        if !out.is_empty() {
            functions.unhook(&out);
        }
        if self.hooks.returning.is_empty() {
            return;
        }
        for function in functions.hook_again(&self.hooks.returning) {
            self.hooks.returning.remove(&function);
            let Some(down) = self.down.get_mut(&function) else { continue };
            // One that is still called too often goes at once. How often that is has to be counted again.
            down.turned_off = MOST_OFF - 1;
            down.rate = 0.0;
            down.due = Instant::now();
            if let Some(level) = self.pinned.get(&function).copied() {
                self.set(arena, &[function], Some(level), time);
            }
        }
    }

    /// Takes over those of the process that this one was forked from.
    pub(in super::super) fn inherit_left_alone(&mut self, functions: &[u32]) {
        for function in functions {
            if let Some(down) = self.down.get_mut(function) {
                down.turned_off = MOST_OFF;
                down.due = Instant::now() + PAUSE;
            }
        }
    }

    /// Whether a function is left alone.
    pub(super) fn is_left_alone(&self, function: u32) -> bool {
        self.down.get(&function).is_some_and(Down::is_left_alone)
    }
}
