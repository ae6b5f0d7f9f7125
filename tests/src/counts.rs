//! How often functions were called: as a target program counted it, and as the trace has it.

use std::collections::BTreeMap;

use codec::{EventKind, FunctionId};

use crate::Trace;

/// What became of the calls of a function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// How often it was entered.
    pub calls: u64,
    /// How often it returned.
    pub returns: u64,
    /// How often it was left in another way.
    pub unwound: u64,
}

/// Reads the lines `count NAME CALLS RETURNS UNWOUND` of a target program.
#[track_caller]
pub fn parse(text: &str) -> BTreeMap<String, Count> {
    let line = |line: &str| {
        let mut words = line.strip_prefix("count ")?.split(' ');
        let name = words.next()?.to_string();
        let mut number = || words.next()?.parse().ok();
        Some((name, Count { calls: number()?, returns: number()?, unwound: number()? }))
    };
    text.lines().map(|text| line(text).unwrap_or_else(|| panic!("a count reads otherwise than {text:?}"))).collect()
}

/// The calls of every function in a trace.
pub fn of_trace(trace: &Trace) -> BTreeMap<FunctionId, Count> {
    let mut counts = BTreeMap::<_, Count>::new();
    for event in trace.threads.values().flatten() {
        let count = counts.entry(event.function).or_default();
        match event.kind {
            EventKind::Call => count.calls += 1,
            EventKind::Return => count.returns += 1,
            EventKind::Exception => count.unwound += 1,
        }
    }
    counts
}

/// The calls in a trace that were counted and not recorded, by the names of functions.
pub fn turned_down(trace: &Trace) -> BTreeMap<String, u64> {
    let names: BTreeMap<_, _> = trace.manifest.functions.iter().map(|function| (function.id, &function.name)).collect();
    let mut counts = BTreeMap::new();
    for entry in &trace.manifest.counted {
        let name = names.get(&entry.function).expect("a counted function has a name");
        *counts.entry(name.to_string()).or_default() += entry.count;
    }
    counts
}

/// The calls of all functions of this name in a trace.
pub fn of_functions(trace: &Trace, name: &str) -> Count {
    let counts = of_trace(trace);
    let functions = trace.manifest.functions.iter().filter(|function| function.name == name);
    functions.filter_map(|function| counts.get(&FunctionId(function.id)).copied()).sum()
}

impl std::iter::Sum for Count {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, count| Self {
            calls: sum.calls + count.calls,
            returns: sum.returns + count.returns,
            unwound: sum.unwound + count.unwound,
        })
    }
}
