//! The stacks of two sessions, side by side.

use std::collections::BTreeMap;

use anyhow::Result;
use collector_core::spans::SpanConfig;
use sinks::Folds;

use crate::{
    calls::{Calls, Form},
    filter::Filter,
    trace::Trace,
};

/// For how many nanoseconds each stack ran itself, in the first session and in the second.
#[derive(Debug, Default)]
pub struct Stacks(BTreeMap<String, [u64; 2]>);

impl Stacks {
    /// Adds those of the first session, or of the second.
    pub fn add(&mut self, trace: &Trace, config: SpanConfig, filter: &Filter, is_second: bool) -> Result<()> {
        let mut calls = Calls::new(filter, Form::Stacks);
        calls.read(trace, config, filter, Form::Stacks, |_| Ok(()))?;
        let folds = Folds::new(&trace.catalog, &calls.tree);
        let take = |stack: &str, ns: u64| {
            let [a, b] = self.0.entry(without_id(stack)).or_default();
            let side = if is_second { b } else { a };
            *side = side.saturating_add(ns);
            Ok(())
        };
        folds.each(|node| calls.shows(node), take)
    }

    /// Each stack, with its time in both.
    pub fn iter(&self) -> impl Iterator<Item = (&str, [u64; 2])> {
        self.0.iter().map(|(stack, times)| (stack.as_str(), *times))
    }
}

/// A stack without the id of its thread, which is another in each run: `main [4711];f` is `main;f`.
fn without_id(stack: &str) -> String {
    let (thread, rest) = stack.split_once(';').unwrap_or((stack, ""));
    let name = thread.strip_suffix(']').and_then(|thread| thread.rsplit_once(" ["));
    let name = name.filter(|(_, id)| id.bytes().all(|byte| byte.is_ascii_digit())).map_or(thread, |(name, _)| name);
    format!("{name};{rest}")
}

#[cfg(test)]
mod tests {
    use super::without_id;

    #[test]
    fn only_ids_of_threads_go() {
        assert_eq!(without_id("worker 1 [4711];f;g [x]"), "worker 1;f;g [x]");
        assert_eq!(without_id("a [b];f"), "a [b];f");
        assert_eq!(without_id("task 0x7;f"), "task 0x7;f");
    }
}
