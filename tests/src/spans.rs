//! The spans of a session, as the collector prints them.

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;

use crate::collector::run_on;

/// A span, as a line of JSON has it.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanLine(pub Value);

impl SpanLine {
    /// The spans in lines of JSON, which may hold other things too.
    #[track_caller]
    pub fn read(lines: &[u8]) -> Vec<Self> {
        let lines = std::str::from_utf8(lines).expect("text").lines();
        let values = lines.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        values.filter(|value| value["type"] == "span").map(Self).collect()
    }

    /// A number that it must have.
    #[track_caller]
    pub fn number(&self, name: &str) -> u64 {
        self.find(name).unwrap_or_else(|| panic!("{name} in {}", self.0))
    }

    /// A number that it may have.
    pub fn find(&self, name: &str) -> Option<u64> {
        self.0[name].as_u64()
    }

    /// A word, empty where it has none.
    pub fn word(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_default()
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: &str) -> bool {
        self.0["flags"].as_array().is_some_and(|flags| flags.iter().any(|one| one == flag))
    }
}

/// The spans of a session directory that these options choose.
#[track_caller]
pub fn of(folder: &Path, options: &[&str]) -> Vec<SpanLine> {
    let options = [&["--json"], options].concat();
    SpanLine::read(&run_on("spans", folder, &options).success().stdout)
}

/// How many of them have which value of a field.
pub fn count_by<'a>(spans: impl IntoIterator<Item = &'a SpanLine>, field: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for span in spans {
        *counts.entry(span.word(field).to_owned()).or_default() += 1;
    }
    counts
}

/// The spans by their ids. No id is there twice.
#[track_caller]
pub fn by_id(spans: &[SpanLine]) -> BTreeMap<&str, &SpanLine> {
    let by_id: BTreeMap<&str, &SpanLine> = spans.iter().map(|span| (span.word("id"), span)).collect();
    assert_eq!(by_id.len(), spans.len(), "an id is there twice");
    by_id
}
