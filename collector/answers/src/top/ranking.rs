//! What the calls of each function come to.

use std::{collections::HashMap, mem};

use ahash::RandomState;
use codec::{
    SessionNs,
    profile::CountedCalls,
    span::{Reason, Span, SpanFlags, SpanId, What},
};

use super::{
    bursts::Bursts,
    in_all::{Bounds, InAll},
    times::Times,
};
use crate::{histogram::Histogram, spread::Spread, turned_down::TurnedDown};

/// What the calls of all functions come to, told from spans as they end: what was called ends before its caller.
#[derive(Debug, Default)]
pub struct Ranking {
    numbers: HashMap<What, usize, RandomState>,
    functions: Vec<Function>,
    /// What was called by spans that have not ended.
    waiting: HashMap<SpanId, Called, RandomState>,
    /// Empty tables, to be used again.
    spare: Vec<Times>,
}

/// What the calls of one function come to.
#[derive(Debug, Clone, Default)]
pub struct Function {
    /// How many are there.
    pub count: u64,
    /// How many there were, if what is missing was like what is there.
    pub estimate: f64,
    /// How many more there were that were counted and not recorded.
    pub counted: u64,
    /// How many more there were that were left out because they took too little time, and how long those took.
    pub brief: u64,
    /// See [`brief`](Self::brief).
    pub brief_ns: u64,
    /// Of how many of them nobody knows how long they took, since events are missing or their returns are not recorded.
    pub untimed: u64,
    /// How long each of the others took.
    pub calls: Histogram,
    /// The same, and how long each took itself, where that is known: how far they lie apart.
    pub spread: Spread,
    /// See [`spread`](Self::spread).
    pub self_spread: Spread,
    /// How long they took together. Where it was called by itself, directly or not, only the outermost call counts.
    pub total_ns: u64,
    /// The same without what it called.
    pub self_ns: u64,
    /// What it took itself, or something that it called and that is missing.
    pub unsure_ns: u64,
    /// When the last of them began.
    pub last_start: SessionNs,
    /// When they were followed, if it was turned down.
    pub bursts: Option<Bursts>,
    /// How long all of them took, as far as that can be told.
    pub in_all: Option<InAll>,
    /// Whether calls were counted that are not in the part of the session that was asked for.
    pub has_others: bool,
    /// Whether it was called by itself, directly or not.
    pub is_recursive: bool,
    /// Whether it has called functions that were turned down. Its own time has those of their calls that were not followed.
    pub has_called_down: bool,
}

/// What a span that has not ended has called so far.
#[derive(Debug, Default)]
struct Called {
    /// How long that took.
    ns: u64,
    /// Whether one of them was turned down.
    is_any_down: bool,
    /// How long each function took below it, where it is the outermost so far.
    outermost: Times,
    /// The same behind a gap: it was called here, if the span has an end.
    behind: Option<Box<Self>>,
}

impl Called {
    /// Adds what was called elsewhere, and returns an empty table.
    fn absorb(&mut self, other: Self) -> Times {
        let Self { ns, is_any_down, mut outermost, .. } = other;
        self.ns = self.ns.saturating_add(ns);
        self.is_any_down |= is_any_down;
        self.outermost.absorb(&mut outermost);
        outermost
    }
}

/// How many callers are waited for. Beyond that, what was called counts as if it had no caller.
const MOST_WAITING: usize = 1 << 20;

impl Function {
    /// How many calls there are: those that were recorded, and those that were only counted.
    pub fn all_calls(&self) -> u64 {
        self.count.saturating_add(self.counted).saturating_add(self.brief)
    }

    /// What stands before their number, where there may be more of them (`≥`), or fewer that were asked for (`≤`), or both (`~`).
    pub fn bound(&self) -> &'static str {
        match (self.was_off(), self.has_others) {
            (true, true) => "~",
            (true, false) => "≥",
            (false, true) => "≤",
            (false, false) => "",
        }
    }

    /// Whether there were calls of it that are no events.
    pub fn is_in_part(&self) -> bool {
        self.counted.saturating_add(self.brief) > 0 || self.was_off()
    }

    /// Whether calls were made that nobody counted.
    pub fn was_off(&self) -> bool {
        self.bursts.as_ref().is_some_and(Bursts::was_off)
    }
}

impl Ranking {
    /// Nothing yet, of a session in which these functions were turned down.
    pub fn new(turned_down: TurnedDown) -> Self {
        let mut ranking = Self::default();
        for (function, changes) in turned_down.into_functions() {
            let number = ranking.number(&What::Function(function));
            ranking.functions[number].bursts = Some(Bursts::new(changes));
        }
        ranking
    }

    /// Adds a span that stands for so many.
    pub fn add(&mut self, span: &Span, weight: f64) {
        let mut called = self.waiting.remove(&span.id);
        let is_lost = span.has_lost_its_end();
        // What was called behind a gap was called here if this was still open, and otherwise further out.
        let behind = called.as_mut().and_then(|called| called.behind.take());
        let further_out = match (behind, &mut called) {
            (Some(behind), Some(called)) if !is_lost => {
                self.spare.push(called.absorb(*behind));
                None
            }
            (behind, _) => behind,
        };
        let has_no_call = span.flags.has(SpanFlags::NO_CALL);
        let ns = called.as_ref().map_or(0, |called| called.ns);
        // What has no end took as long as what it called, and who knows how much longer.
        let called_ns = if span.kind.is_logical() { 0 } else { ns };
        let took = span.duration().unwrap_or(called_ns);
        let number = self.number(&span.what);
        let mut is_down = false;
        if let Some(function) = self.functions.get_mut(number) {
            function.count = function.count.saturating_add(1);
            function.last_start = span.start;
            function.has_called_down |= called.as_ref().is_some_and(|called| called.is_any_down);
            is_down = function.bursts.is_some();
            // Of those that are known only from their end, nobody knows how many others are not known at all.
            function.estimate += if has_no_call { 0.0 } else { weight };
            if is_lost || has_no_call || span.reason == Some(Reason::EntryOnly) {
                function.untimed = function.untimed.saturating_add(1);
            } else {
                function.calls.add(took);
                function.spread.add(took);
                function.self_spread.add(took.saturating_sub(ns));
                if let Some(bursts) = &mut function.bursts {
                    bursts.add(span.start, took);
                }
                let is_across = span.flags.has(SpanFlags::ACROSS_GAP);
                let own = if is_across { &mut function.unsure_ns } else { &mut function.self_ns };
                *own = own.saturating_add(took.saturating_sub(ns));
            }
        }
        if has_no_call {
            // What it called has been added elsewhere, and would count twice.
            return;
        }
        let is_behind = span.flags.has(SpanFlags::BEHIND_GAP);
        match (called, span.parent) {
            (Some(mut called), parent) => {
                // Whatever it took below itself, it took here already.
                let is_recursive = called.outermost.set(number, took) > 0;
                if let (true, Some(function)) = (is_recursive, self.functions.get_mut(number)) {
                    function.is_recursive = true;
                }
                called.ns = took;
                called.is_any_down = is_down;
                self.called_by(parent, called, is_behind);
            }
            (None, Some(parent)) => {
                let caller = self.caller(parent, is_behind);
                caller.ns = caller.ns.saturating_add(took);
                caller.is_any_down |= is_down;
                caller.outermost.add(number, took);
            }
            (None, None) => self.add_total(number, took),
        }
        if let Some(behind) = further_out {
            self.called_by(span.parent, *behind, true);
        }
    }

    /// Passes over a span that does not count: its time is not its caller's own, and what it called was called there.
    pub fn pass(&mut self, span: &Span) {
        let mut called = self.waiting.remove(&span.id).unwrap_or_default();
        if let Some(behind) = called.behind.take() {
            self.spare.push(called.absorb(*behind));
        }
        if span.flags.has(SpanFlags::NO_CALL) {
            return self.settle(called.outermost);
        }
        let called_ns = if span.kind.is_logical() { 0 } else { called.ns };
        called.ns = span.duration().unwrap_or(called_ns);
        let number = self.number(&span.what);
        called.is_any_down = self.functions.get(number).is_some_and(|function| function.bursts.is_some());
        self.called_by(span.parent, called, span.flags.has(SpanFlags::BEHIND_GAP));
    }

    /// What was called by a span that has not ended, or by none.
    fn called_by(&mut self, parent: Option<SpanId>, called: Called, is_behind: bool) {
        match parent {
            Some(parent) => {
                let spare = self.caller(parent, is_behind).absorb(called);
                self.spare.push(spare);
            }
            None => self.settle(called.outermost),
        }
    }

    fn caller(&mut self, parent: SpanId, is_behind: bool) -> &mut Called {
        if self.waiting.len() >= MOST_WAITING && !self.waiting.contains_key(&parent) {
            self.settle_waiting();
        }
        let spare = &mut self.spare;
        let new = || {
            let outermost = spare.pop().unwrap_or_default();
            Called { ns: 0, is_any_down: false, outermost, behind: None }
        };
        let caller = self.waiting.entry(parent).or_insert_with(new);
        if is_behind { caller.behind.get_or_insert_default() } else { caller }
    }

    fn settle_waiting(&mut self) {
        for called in mem::take(&mut self.waiting).into_values() {
            self.settle(called.outermost);
            called.behind.into_iter().for_each(|behind| self.settle(behind.outermost));
        }
    }

    /// Adds calls of a function that are no events.
    pub fn add_counted(&mut self, calls: &CountedCalls) {
        let number = self.number(&What::Function(calls.function));
        if let Some(function) = self.functions.get_mut(number) {
            function.counted = function.counted.saturating_add(calls.count);
            function.brief = function.brief.saturating_add(calls.brief);
            function.brief_ns = function.brief_ns.saturating_add(calls.brief_ns);
        }
    }

    /// What ran, and what it comes to. Of a part of a session, what was recorded is no sample of what was counted; and
    /// where only some of the calls were asked for, nobody knows how many of those that were counted are among them.
    pub fn finish(mut self, is_part: bool, is_filtered: bool) -> impl Iterator<Item = (What, Function)> {
        self.settle_waiting();
        let mut functions = self.functions;
        let bounds = Bounds::of(&functions);
        for function in &mut functions {
            let is_counted_elsewhere = is_filtered && function.counted.saturating_add(function.brief) > 0;
            function.has_others = is_part && function.counted > 0 || is_counted_elsewhere;
            function.in_all = bounds.estimate(function).filter(|_| !function.has_others);
        }
        // There were at least those that are there.
        functions.iter_mut().for_each(|function| function.estimate = function.estimate.max(function.count as f64));
        let all = self.numbers.into_iter();
        all.filter_map(move |(what, number)| Some((what, mem::take(functions.get_mut(number)?))))
            // One that was turned down may have been called by others only. Of one that was off nobody knows.
            .filter(move |(_, function)| function.all_calls() > 0 || function.was_off() && !is_part && !is_filtered)
    }

    fn settle(&mut self, outermost: Times) {
        outermost.into_iter().for_each(|(number, ns)| self.add_total(number, ns));
    }

    fn add_total(&mut self, number: usize, ns: u64) {
        if let Some(function) = self.functions.get_mut(number) {
            function.total_ns = function.total_ns.saturating_add(ns);
        }
    }

    fn number(&mut self, what: &What) -> usize {
        if let Some(number) = self.numbers.get(what) {
            return *number;
        }
        let number = self.functions.len();
        self.numbers.insert(what.clone(), number);
        self.functions.push(Function::default());
        number
    }
}

#[cfg(test)]
mod tests {
    use codec::{
        FunctionId, LevelKind,
        atf::Manifest,
        profile::{LevelChange, Levels, ProfileOption},
    };
    use sinks::Catalog;

    use super::*;
    use crate::scene::frame;

    #[test]
    fn recursion_counts_once_and_children_are_not_self() {
        let mut ranking = Ranking::default();
        // f(0..100) calls g(10..90), which calls f(20..60) and f(60..80); f(20..60) calls g(30..40).
        for span in [
            frame(3, Some(2), 2, 30, 40),
            frame(2, Some(1), 1, 20, 60),
            frame(4, Some(1), 1, 60, 80),
            frame(1, Some(0), 2, 10, 90),
            frame(0, None, 1, 0, 100),
            // A caller that never ends.
            frame(6, Some(5), 2, 200, 207),
        ] {
            ranking.add(&span, 1.0);
        }
        let found: HashMap<_, _> = ranking
            .finish(false, false)
            .map(|(what, function)| (what, (function.count, function.total_ns, function.self_ns)))
            .collect();
        assert_eq!(found[&What::Function(FunctionId(1))], (3, 100, 20 + 30 + 20));
        assert_eq!(found[&What::Function(FunctionId(2))], (3, 80 + 7, 20 + 10 + 7));
    }

    #[test]
    fn what_is_passed_over_is_nobodys_own_time() {
        let mut ranking = Ranking::default();
        // f(0..100) calls g(10..90), which does not count and calls h(20..60).
        ranking.add(&frame(2, Some(1), 3, 20, 60), 1.0);
        ranking.pass(&frame(1, Some(0), 2, 10, 90));
        ranking.add(&frame(0, None, 1, 0, 100), 1.0);
        let found: HashMap<_, _> = ranking
            .finish(false, false)
            .map(|(what, function)| (what, (function.count, function.total_ns, function.self_ns)))
            .collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[&What::Function(FunctionId(1))], (1, 100, 20));
        assert_eq!(found[&What::Function(FunctionId(3))], (1, 40, 40));
    }

    #[test]
    fn calls_that_were_only_counted_are_estimated_and_their_callers_marked() {
        let mut catalog = Catalog::from_manifest(&Manifest::default());
        let change = |function, at, level| LevelChange { function: FunctionId(function), at: SessionNs(at), level };
        let changes = [
            change(2, 100, LevelKind::Counted),
            change(2, 200, LevelKind::Full),
            change(2, 300, LevelKind::Off),
            change(3, 0, LevelKind::Counted),
        ];
        catalog.apply(&ProfileOption::Levels(Levels { changes: changes[..].into() }));
        let mut ranking = Ranking::new(TurnedDown::of(&catalog));
        // 1 calls 2 in two bursts, and 4, which calls nothing. 3 is never followed, 5 never called.
        for span in [
            frame(1, Some(0), 2, 10, 20),
            frame(2, Some(0), 2, 210, 240),
            frame(3, Some(0), 4, 310, 320),
            frame(0, None, 1, 0, 1000),
        ] {
            ranking.add(&span, 1.0);
        }
        for (function, count) in [(2, 100), (3, 5)] {
            let function = FunctionId(function);
            ranking.add_counted(&CountedCalls { function, count, brief: 0, brief_ns: 0 });
        }
        let mut part = Ranking::default();
        part.add(&frame(1, None, 2, 10, 20), 1.0);
        part.add_counted(&CountedCalls { function: FunctionId(2), count: 0, brief: 3, brief_ns: 4 });
        let (_, function) = part.finish(false, true).next().expect("it ran");
        assert!(function.has_others && function.in_all.is_none(), "who knows which of them were asked for");
        let found: HashMap<_, _> = ranking.finish(false, false).collect();
        let function = |number| &found[&What::Function(FunctionId(number))];
        assert!(function(1).has_called_down && !function(4).has_called_down);
        // Two bursts say little of others; those cannot have taken more than their caller took itself.
        let in_all = function(2).in_all.expect("an estimate");
        let most = function(1).self_ns;
        assert_eq!((in_all.ns, in_all.error_ns), (40 + most / 2, Some(most / 2)));
        assert_eq!((function(2).all_calls(), function(2).was_off()), (102, true));
        assert_eq!((function(3).in_all, function(3).all_calls(), function(3).was_off()), (None, 5, false));
        assert_eq!(function(4).in_all, Some(InAll { ns: 10, error_ns: Some(0) }));
        assert_eq!(found.len(), 4);
    }
}
