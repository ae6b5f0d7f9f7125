//! Calls that are nested too deep below certain functions. A hook knows how deep a call is on its stack, and not below which
//! function; that is found out here, so that such calls are recorded and not told.
//!
//! Which return belongs to a call that was left out is exact, since both tell when the function was entered. Below which
//! function a call is goes by the thread: what a coroutine does that was resumed by a function is below it.

use std::collections::{BTreeMap, HashSet};

use super::Functions;
use crate::shared::{Kind, Record};

/// How many functions that have returned elsewhere are remembered.
const MOST_GONE: usize = 4_096;

/// A call by which the return from it is known: when the function was entered, and which it is.
type Call = (u64, u32);

/// The functions below which not everything is told, and what is left out.
#[derive(Debug, Default)]
pub(super) struct Depths {
    /// How many levels are told below each, by its number.
    limits: BTreeMap<u32, u32>,
    copied: usize,
    /// Calls that were left out, and are not over.
    hidden: HashSet<Call>,
    /// Calls of limited functions that were entered on another thread than they returned on.
    gone: HashSet<Call>,
}

/// What a thread is in.
#[derive(Debug, Default)]
pub(super) struct Nesting {
    /// How many functions are open on the stack that it was on last.
    open: u32,
    /// The limited functions that it is in, the innermost last.
    limited: Vec<Limited>,
    /// Calls that were left out, with their depths, the innermost last.
    hidden: Vec<(u32, Call)>,
    /// Whether events are missing: then depths alone say what is over.
    is_unsure: bool,
}

/// A limited function that was called.
#[derive(Debug, Clone, Copy)]
struct Limited {
    depth: u32,
    call: Call,
    /// The deepest call below it that is told.
    deepest: u32,
}

impl Depths {
    /// Takes up what is limited by now.
    pub(super) fn update(&mut self, functions: &Functions) {
        functions.limits_from(&mut self.copied, &mut self.limits);
    }

    /// Whether anything is limited.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        !self.limits.is_empty()
    }

    /// Whether a call, a return or an exception is left out.
    pub(super) fn leaves_out(&mut self, nesting: &mut Nesting, record: &Record<'_>) -> bool {
        match record.kind {
            Kind::Call => self.call(nesting, record.depth, (record.time, record.function)),
            _ => {
                let entered = record.rest.first().copied().unwrap_or(record.time);
                self.end(nesting, record.depth, (entered, record.function))
            }
        }
    }

    fn call(&mut self, nesting: &mut Nesting, depth: u32, call: Call) -> bool {
        // What is at the same depth as the innermost one has taken its place: that has ended in a jump.
        let is_tail = nesting.open == depth.saturating_add(1);
        let Nesting { limited, hidden, is_unsure, .. } = nesting;
        let is_over = |this: u32| is_tail && this == depth || *is_unsure && this >= depth;
        while limited.pop_if(|last| is_over(last.depth) || self.gone.remove(&last.call)).is_some() {}
        while let Some((this, call)) = hidden.last()
            && (is_over(*this) || !self.hidden.contains(call))
        {
            self.hidden.remove(call);
            hidden.pop();
        }
        nesting.open = depth.saturating_add(1);
        let deepest = limited.last().map_or(u32::MAX, |last| last.deepest);
        if depth > deepest {
            self.hidden.insert(call);
            hidden.push((depth, call));
            return true;
        }
        if let Some(levels) = self.limits.get(&call.1) {
            limited.push(Limited { depth, call, deepest: depth.saturating_add(*levels).min(deepest) });
        }
        false
    }

    fn end(&mut self, nesting: &mut Nesting, depth: u32, call: Call) -> bool {
        nesting.open = depth;
        if self.hidden.remove(&call) {
            nesting.hidden.pop_if(|(_, last)| *last == call);
            return true;
        }
        if self.limits.contains_key(&call.1) {
            match nesting.limited.iter().rposition(|limited| limited.call == call) {
                Some(at) => nesting.limited.truncate(at),
                // A coroutine that has changed threads, or a call that is not in the trace.
                None => {
                    if self.gone.len() >= MOST_GONE {
                        self.gone.clear();
                    }
                    self.gone.insert(call);
                }
            }
        }
        if nesting.is_unsure {
            while nesting.limited.pop_if(|last| last.depth >= depth).is_some() {}
        }
        false
    }

    /// A thread has ended.
    pub(super) fn forget(&mut self, nesting: &Nesting) {
        for (_, call) in &nesting.hidden {
            self.hidden.remove(call);
        }
    }
}

impl Nesting {
    /// Events are missing here.
    pub(super) fn has_gap(&mut self) {
        self.is_unsure = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIN: u32 = 1;
    const F: u32 = 2;

    /// A thread with a limit of one level below `MAIN`, and of three below `F`.
    fn limited() -> (Depths, Nesting) {
        let mut depths = Depths::default();
        depths.limits.extend([(MAIN, 1), (F, 3)]);
        (depths, Nesting::default())
    }

    /// Which of these are told: calls and returns by depth and function, and when each was entered.
    fn told(depths: &mut Depths, nesting: &mut Nesting, events: &[(Kind, u32, u32, u64)]) -> Vec<bool> {
        let tell = |&(kind, depth, function, entered): &(Kind, u32, u32, u64)| {
            let rest = [entered];
            let rest = if kind == Kind::Call { &[][..] } else { &rest };
            !depths.leaves_out(nesting, &Record { time: entered, kind, depth, function, rest })
        };
        events.iter().map(tell).collect()
    }

    #[test]
    fn what_is_too_deep_below_a_function_is_left_out_whole() {
        use Kind::{Call, Return};
        let (mut depths, mut nesting) = limited();
        let events = [
            (Call, 0, 9, 1),
            (Call, 1, MAIN, 2),
            (Call, 2, 7, 3),
            (Call, 3, 7, 4),
            // It has a limit of its own, which does not matter here.
            (Call, 4, F, 5),
            (Return, 4, F, 5),
            (Return, 3, 7, 4),
            (Return, 2, 7, 3),
            (Return, 1, MAIN, 2),
            (Call, 1, 7, 6),
            (Call, 2, 7, 7),
            (Call, 3, 7, 8),
            (Return, 3, 7, 8),
        ];
        let expected = [true, true, true, false, false, false, false, true, true, true, true, true, true];
        assert_eq!(told(&mut depths, &mut nesting, &events), expected);
        assert!(depths.hidden.is_empty() && nesting.hidden.is_empty() && nesting.limited.is_empty());
    }

    #[test]
    fn a_function_that_ends_in_a_jump_or_an_exception_limits_nothing_any_more() {
        use Kind::{Call, Exception, Return};
        let (mut depths, mut nesting) = limited();
        let events = [
            (Call, 0, MAIN, 1),
            (Call, 0, 7, 2),
            (Call, 1, 7, 3),
            (Call, 2, 7, 4),
            (Return, 2, 7, 4),
            (Return, 1, 7, 3),
        ];
        assert!(told(&mut depths, &mut nesting, &events).into_iter().all(|told| told));
        let events = [
            (Call, 1, MAIN, 5),
            (Call, 2, 7, 6),
            (Call, 3, 7, 7),
            // One that is left out ends in a jump, too.
            (Call, 3, 8, 8),
            (Exception, 3, 8, 8),
            (Exception, 2, 7, 6),
            (Exception, 1, MAIN, 5),
            (Call, 1, 7, 9),
            (Call, 2, 7, 10),
            (Call, 3, 7, 11),
        ];
        let expected = [true, true, false, false, false, true, true, true, true, true];
        assert_eq!(told(&mut depths, &mut nesting, &events), expected);
        assert!(depths.hidden.is_empty());
    }

    #[test]
    fn returns_are_left_out_as_their_calls_were_on_whichever_thread() {
        use Kind::{Call, Return};
        let (mut depths, mut nesting) = limited();
        let mut other = Nesting::default();
        let calls = [(Call, 0, MAIN, 1), (Call, 1, 7, 2), (Call, 2, 7, 3)];
        assert_eq!(told(&mut depths, &mut nesting, &calls), [true, true, false]);
        let returns = [(Return, 2, 7, 3), (Return, 1, 7, 2), (Return, 0, MAIN, 1)];
        assert_eq!(told(&mut depths, &mut other, &returns), [false, true, true]);
        // Nothing is limited where it began, either.
        let calls = [(Call, 3, 7, 4), (Call, 4, 7, 5)];
        assert_eq!(told(&mut depths, &mut nesting, &calls), [true, true]);
        assert!(depths.hidden.is_empty() && depths.gone.is_empty());
    }

    #[test]
    fn behind_a_gap_depths_say_what_is_over() {
        use Kind::Call;
        let (mut depths, mut nesting) = limited();
        assert_eq!(told(&mut depths, &mut nesting, &[(Call, 1, MAIN, 1), (Call, 4, 7, 2)]), [true, false]);
        nesting.has_gap();
        assert_eq!(told(&mut depths, &mut nesting, &[(Call, 1, 7, 3), (Call, 4, 7, 4)]), [true, true]);
        depths.forget(&nesting);
        assert!(depths.hidden.is_empty());
    }
}
