//! The functions that are asked for, with their names.

use std::sync::Arc;

use anyhow::Result;
use codec::span::{SpanRuntime, What};
use collector_core::spans::SpanConfig;
use sinks::{Catalog, NameCache, file_name, source_at};

use super::{Function, Ranking};
use crate::{
    filter::{Filter, Share},
    loss::Loss,
    printable, spanning,
    trace::Trace,
    turned_down::TurnedDown,
};

/// A function with its names.
#[derive(Debug)]
pub struct Row {
    /// Its name for people.
    pub name: String,
    /// Its symbol.
    pub symbol: Option<String>,
    /// The path of its module.
    pub module: Option<String>,
    /// Where it begins in its sources: file, a colon, and the line.
    pub source: Option<String>,
    /// What it is in the session.
    pub what: What,
    /// What its calls come to.
    pub function: Function,
}

/// What functions are ranked by. The most comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The time from entry to return.
    Total,
    /// The time without callees.
    Own,
    /// How many calls there are.
    Count,
    /// How long so many thousandths of the calls took at most; 1000 is the longest.
    Percentile(u64),
}

impl Row {
    /// The name of its module's file.
    pub fn file_name(&self) -> String {
        self.module.as_deref().map_or_else(String::new, |path| printable(file_name(path)))
    }

    fn value(&self, order: Order) -> u64 {
        let function = &self.function;
        match order {
            Order::Total => function.total_ns.saturating_add(function.brief_ns),
            Order::Own => function.self_ns,
            Order::Count => function.all_calls(),
            Order::Percentile(1000) => function.calls.max(),
            Order::Percentile(thousandths) => function.calls.percentile(thousandths),
        }
    }
}

/// What the functions of a session come to that are asked for, in no order. Of what runs in other runtimes, its spans.
pub fn rows(trace: &Trace, config: SpanConfig, runtime: SpanRuntime, filter: &Filter, loss: &Loss) -> Result<Vec<Row>> {
    rows_telling(trace, config, runtime, filter, loss, &mut |_| Ok(()))
}

/// The same, telling how many events were read; an error stops that.
pub fn rows_telling(
    trace: &Trace,
    config: SpanConfig,
    runtime: SpanRuntime,
    filter: &Filter,
    loss: &Loss,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Vec<Row>> {
    let catalog = &trace.catalog;
    let mut ranking = Ranking::new(TurnedDown::in_trace(trace));
    spanning::batches(trace, spanning::engine(trace, config), false, |batch| {
        progress(batch.events)?;
        for span in batch.spans.iter().filter(|span| span.kind.runtime() == runtime) {
            match filter.share(span, false) {
                Share::Counts(span) => ranking.add(&span, loss.weight(span.stream)),
                Share::Hidden(span) => ranking.pass(&span),
                Share::None => {}
            }
        }
        Ok(())
    })?;
    let counted = catalog.counted().filter(|(stream, _)| runtime == SpanRuntime::Native && filter.has_thread(*stream));
    counted.for_each(|(_, calls)| ranking.add_counted(&calls));
    Ok(named(catalog, ranking, filter, loss.left_out().is_some()))
}

/// Puts functions in order, and leaves out those beyond the limit.
pub fn rank(rows: &mut Vec<Row>, order: Order, limit: usize) {
    rows.sort_by_cached_key(|row| {
        let most = |value: u64| std::cmp::Reverse(value);
        (most(row.value(order)), most(row.function.count), row.name.clone(), row.module.clone())
    });
    rows.truncate(limit);
}

pub(super) fn named(catalog: &Catalog, ranking: Ranking, filter: &Filter, is_part: bool) -> Vec<Row> {
    let mut names = NameCache::new();
    let mut rows = Vec::new();
    for (what, function) in ranking.finish(is_part, filter.leaves_out_calls()) {
        let name = names.name(catalog, &what, function.last_start);
        if filter.has_name(name) {
            let text = |text: &Arc<str>| text.to_string();
            let (symbol, module) = (name.raw.as_ref().map(text), name.module.as_ref().map(text));
            let source = source_at(catalog, &what, function.last_start).map(|(file, line)| format!("{file}:{line}"));
            rows.push(Row { name: name.pretty.to_string(), symbol, module, source, what, function });
        }
    }
    rows
}
