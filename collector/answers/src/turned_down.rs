//! Functions that the agent turned down while it recorded a session, for those who add up what is there.

use std::collections::HashMap;

use ahash::RandomState;
use codec::{FunctionId, LevelKind, SessionNs, span::What};
use sinks::Catalog;

use crate::trace::Trace;

/// The functions that were turned down.
#[derive(Debug, Default)]
pub struct TurnedDown(HashMap<FunctionId, Changes, RandomState>);

/// What became of one of them.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// When it became full again. With the time before the first, these are its bursts.
    pub bursts: Vec<SessionNs>,
    /// Whether there may have been calls that nobody has told of: it was off at times, or the session has no end of its agent's,
    /// which tells the last counts with that.
    pub was_off: bool,
}

impl TurnedDown {
    /// The functions that a session says were turned down.
    pub fn of(catalog: &Catalog) -> Self {
        let mut functions: HashMap<_, Changes, _> = HashMap::default();
        for change in catalog.levels() {
            match change.level {
                LevelKind::Full => {
                    if let Some(changes) = functions.get_mut(&change.function) {
                        changes.bursts.push(change.at);
                    }
                }
                LevelKind::Off => functions.entry(change.function).or_default().was_off = true,
                _ => drop(functions.entry(change.function).or_default()),
            }
        }
        Self(functions)
    }

    /// The functions that a trace says were turned down.
    pub fn in_trace(trace: &Trace) -> Self {
        let mut down = Self::of(&trace.catalog);
        if !trace.is_told_to_its_end() {
            down.0.values_mut().for_each(|changes| changes.was_off = true);
        }
        down
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is one of them.
    pub fn has(&self, what: &What) -> bool {
        matches!(what, What::Function(function) if self.0.contains_key(function))
    }

    /// All of them, with what became of each.
    pub fn into_functions(self) -> impl Iterator<Item = (FunctionId, Changes)> {
        self.0.into_iter()
    }
}
