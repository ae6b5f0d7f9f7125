//! Runtime events, as the collector prints them.

use std::collections::BTreeMap;

use serde_json::Value;
use tests::{Traced, collector::run_on};

/// A runtime event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RuntimeEvent {
    pub(crate) stream: u64,
    /// What the thread was busy with.
    pub(crate) substream: u64,
    /// `call`, `return` or `exception`.
    pub(crate) phase: String,
    pub(crate) function: String,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) keys: BTreeMap<String, u64>,
}

impl RuntimeEvent {
    /// The value of a key. Fails the test where it is missing.
    #[track_caller]
    pub(crate) fn key(&self, name: &str) -> u64 {
        *self.keys.get(name).unwrap_or_else(|| panic!("{name} is told with {self:?}"))
    }

    pub(crate) fn is_call(&self) -> bool {
        self.phase == "call"
    }
}

/// The runtime events of functions whose names match, in the order in which they happened. Of the rest of a trace there
/// may be hundreds of megabytes, as text.
#[track_caller]
pub(crate) fn runtime_events(traced: &Traced, functions: &str) -> Vec<RuntimeEvent> {
    let printed = run_on("events", &traced.trace.folder, &["--json", "--function", functions]).success();
    let lines = std::str::from_utf8(&printed.stdout).expect("text").lines();
    let mut told: Vec<_> = lines.filter(|line| line.contains("\"attributes\"")).map(event).collect();
    told.sort_by_key(|event| event.end);
    told
}

#[track_caller]
fn event(line: &str) -> RuntimeEvent {
    let event: Value = serde_json::from_str(line).expect("JSON");
    let number = |name: &str| event[name].as_u64().unwrap_or_else(|| panic!("{name} in {line}"));
    let text = |name: &str| event[name].as_str().unwrap_or_else(|| panic!("{name} in {line}")).to_owned();
    let keys = event["attributes"].as_object().expect("keys").iter();
    RuntimeEvent {
        stream: number("stream"),
        // It is left out where there is none.
        substream: event["substream"].as_u64().unwrap_or(0),
        phase: text("phase"),
        function: text("function"),
        start: number("start_ns"),
        end: number("end_ns"),
        keys: keys.filter_map(|(name, value)| Some((name.clone(), value.as_u64()?))).collect(),
    }
}

/// How often each function was called.
pub(crate) fn calls(told: &[RuntimeEvent]) -> BTreeMap<&str, u64> {
    let mut calls = BTreeMap::new();
    for event in told.iter().filter(|event| event.is_call()) {
        *calls.entry(event.function.as_str()).or_default() += 1;
    }
    calls
}
