//! What differs between two sessions.

mod change;
mod stacks;

use std::collections::HashMap;

use codec::quantity::counted;
use sinks::file_name;

pub use self::{
    change::{Change, Measure, Side, Value},
    stacks::Stacks,
};
use super::{loss::Loss, top::Row, trace::Trace, turned_down::TurnedDown};

/// How the functions of two sessions differ. Functions are the same that have the same name and are in files of the same
/// name: ids and addresses differ from run to run.
pub fn changes(a: Vec<Row>, b: Vec<Row>) -> Vec<Change> {
    let mut found: HashMap<(String, Option<String>), Change> = HashMap::new();
    let sides = a.into_iter().map(|row| (row, false)).chain(b.into_iter().map(|row| (row, true)));
    for (row, is_b) in sides {
        let module = row.module.as_deref().map(|path| file_name(path).to_owned());
        let key = (row.name.clone(), module.clone());
        let change = found.entry(key).or_insert_with(|| Change { name: row.name, module, a: None, b: None });
        let side = if is_b { &mut change.b } else { &mut change.a };
        side.get_or_insert_default().add(&row.function);
    }
    found.into_values().collect()
}

/// Puts changes in order, those that are largest first; without those that may be noise, unless all are asked for.
pub fn rank(changes: &mut Vec<Change>, by: Measure, all: bool, limit: usize) {
    changes.retain(|change| all || !change.value(by).is_noise());
    changes.sort_by_cached_key(|change| {
        let size = change.value(by).change().unsigned_abs();
        (std::cmp::Reverse(size), change.name.clone(), change.module.clone())
    });
    changes.truncate(limit);
}

/// A line about what numbers of a session lack, if they lack something.
pub fn warning(trace: &Trace, loss: &Loss) -> Option<String> {
    let down = TurnedDown::of(&trace.catalog).count() as u64;
    let down = (down > 0).then(|| {
        let down = counted(down, "function");
        format!("{down} turned down, whose totals are estimates, and whose callers' own times have calls that were not followed")
    });
    let loss = loss.is_any().then(|| loss.to_string());
    let parts: Vec<_> = [loss, down].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

#[cfg(test)]
mod tests;
