//! What differs between two sessions.

mod change;
mod stacks;

use std::collections::HashMap;

use anyhow::Result;
use codec::{quantity::counted, span::SpanRuntime};
use collector_core::spans::SpanConfig;
use sinks::file_name;

pub use self::{
    change::{Change, Measure, Side, Value},
    stacks::Stacks,
};
use super::{
    filter::Filter,
    loss::Loss,
    top::{self, Row},
    trace::Trace,
    turned_down::TurnedDown,
};

/// What is compared of a session.
#[derive(Debug)]
pub struct Compared {
    /// Its functions, in no order.
    pub rows: Vec<Row>,
    /// What their numbers lack, if they lack something.
    pub warning: Option<String>,
    /// Whether more of it may come.
    pub is_unfinished: bool,
}

impl Compared {
    /// Reads what is asked for of a session, telling how many events were read; an error stops that.
    pub fn read(
        trace: &Trace,
        config: SpanConfig,
        filter: &Filter,
        progress: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Self> {
        let loss = Loss::of(trace);
        let rows = top::rows_telling(trace, config, SpanRuntime::Native, filter, &loss, progress)?;
        Ok(Self { rows, warning: warning(trace, &loss), is_unfinished: trace.is_unfinished })
    }
}

/// How the functions of two sessions differ. Functions are the same that have the same name and are in files of the same
/// name: ids and addresses differ from run to run.
pub fn changes(a: &[Row], b: &[Row]) -> Vec<Change> {
    let mut found: HashMap<(String, Option<String>), Change> = HashMap::new();
    let sides = a.iter().map(|row| (row, false)).chain(b.iter().map(|row| (row, true)));
    for (row, is_b) in sides {
        let module = row.module.as_deref().map(|path| file_name(path).to_owned());
        let key = (row.name.clone(), module.clone());
        let new = || Change { name: row.name.clone(), module, a: None, b: None };
        let change = found.entry(key).or_insert_with(new);
        let side = if is_b { &mut change.b } else { &mut change.a };
        side.get_or_insert_default().add(&row.function);
    }
    found.into_values().collect()
}

/// Puts changes in order, those that are largest first, and behind them those of which nobody knows by how much they may be
/// off; without those that may be noise, unless all are asked for.
pub fn rank(changes: &mut Vec<Change>, by: Measure, all: bool, limit: usize) {
    changes.retain(|change| all || !change.value(by).is_noise());
    changes.sort_by_cached_key(|change| {
        let value = change.value(by);
        let size = std::cmp::Reverse(value.change().unsigned_abs());
        (value.error.is_none(), size, change.name.clone(), change.module.clone())
    });
    changes.truncate(limit);
}

/// A line about what numbers of a session lack, if they lack something.
fn warning(trace: &Trace, loss: &Loss) -> Option<String> {
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
