//! What the calls of each function come to.

use std::{
    collections::{HashMap, hash_map::Entry},
    mem,
};

use ahash::RandomState;
use codec::{
    SessionNs,
    span::{Span, SpanId, What},
};

use super::times::Times;
use crate::offline::histogram::Histogram;

/// What the calls of all functions come to, told from spans as they end: what was called ends before its caller.
#[derive(Debug, Default)]
pub(super) struct Ranking {
    numbers: HashMap<What, usize, RandomState>,
    functions: Vec<Function>,
    /// What was called by spans that have not ended.
    waiting: HashMap<SpanId, Called, RandomState>,
    /// Empty tables, to be used again.
    spare: Vec<Times>,
}

/// What the calls of one function come to.
#[derive(Debug, Clone, Default)]
pub(super) struct Function {
    /// How long each of them took.
    pub(super) calls: Histogram,
    /// How long they took together. Where it was called by itself, directly or not, only the outermost call counts.
    pub(super) total_ns: u64,
    /// The same without what it called.
    pub(super) self_ns: u64,
    /// When the last of them began.
    pub(super) last_start: SessionNs,
}

/// What a span that has not ended has called so far.
#[derive(Debug, Default)]
struct Called {
    /// How long that took.
    ns: u64,
    /// How long each function took below it, where it is the outermost so far.
    outermost: Times,
}

/// How many callers are waited for. Beyond that, what was called counts as if it had no caller.
const MOST_WAITING: usize = 1 << 20;

impl Ranking {
    pub(super) fn add(&mut self, span: &Span) {
        let called = self.waiting.remove(&span.id);
        let ns = called.as_ref().map_or(0, |called| called.ns);
        // What has no end took as long as what it called, and who knows how much longer.
        let called_ns = if span.kind.is_logical() { 0 } else { ns };
        let took = span.duration().unwrap_or(called_ns);
        let number = self.number(&span.what);
        if let Some(function) = self.functions.get_mut(number) {
            function.calls.add(took);
            function.self_ns = function.self_ns.saturating_add(took.saturating_sub(ns));
            function.last_start = span.start;
        }
        let mut outermost = called.map(|called| called.outermost);
        if let Some(parent) = span.parent {
            if self.waiting.len() >= MOST_WAITING && !self.waiting.contains_key(&parent) {
                mem::take(&mut self.waiting).into_values().for_each(|called| self.settle(called.outermost));
            }
            match self.waiting.entry(parent) {
                Entry::Occupied(entry) => {
                    let caller = entry.into_mut();
                    caller.ns = caller.ns.saturating_add(took);
                    match &mut outermost {
                        Some(outermost) => {
                            // Whatever it took below itself, it took here already.
                            outermost.set(number, took);
                            caller.outermost.absorb(outermost);
                        }
                        None => caller.outermost.add(number, took),
                    }
                }
                Entry::Vacant(entry) => {
                    let mut outermost = outermost.take().or_else(|| self.spare.pop()).unwrap_or_default();
                    outermost.set(number, took);
                    entry.insert(Called { ns: took, outermost });
                }
            }
            self.spare.extend(outermost);
        } else {
            let mut outermost = outermost.unwrap_or_default();
            outermost.set(number, took);
            self.settle(outermost);
        }
    }

    /// What ran, and what it comes to.
    pub(super) fn finish(mut self) -> impl Iterator<Item = (What, Function)> {
        mem::take(&mut self.waiting).into_values().for_each(|called| self.settle(called.outermost));
        let mut functions = self.functions;
        self.numbers.into_iter().filter_map(move |(what, number)| Some((what, mem::take(functions.get_mut(number)?))))
    }

    fn settle(&mut self, outermost: Times) {
        for (number, ns) in outermost.into_iter() {
            if let Some(function) = self.functions.get_mut(number) {
                function.total_ns = function.total_ns.saturating_add(ns);
            }
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
    use codec::{FunctionId, Position, StreamId, span::SpanKind};

    use super::*;

    fn frame(id: u64, parent: Option<u64>, function: u64, start: u64, end: u64) -> Span {
        let number = |position: u64| SpanId::new(StreamId(0), Position(position));
        Span {
            parent: parent.map(number),
            what: What::Function(FunctionId(function)),
            ..Span::new(number(id), SpanKind::Frame, SessionNs(start), Some(SessionNs(end)))
        }
    }

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
            ranking.add(&span);
        }
        let found: HashMap<_, _> = ranking
            .finish()
            .map(|(what, function)| (what, (function.calls.count(), function.total_ns, function.self_ns)))
            .collect();
        assert_eq!(found[&What::Function(FunctionId(1))], (3, 100, 20 + 30 + 20));
        assert_eq!(found[&What::Function(FunctionId(2))], (3, 80 + 7, 20 + 10 + 7));
    }
}
