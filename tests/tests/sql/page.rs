//! The queries of `docs/sql.md`.

use std::{collections::BTreeMap, env};

use serde_json::Value;
use tests::collector::run_on;

use crate::recorded::{ask, json, rows, shared};

const PAGE: &str = include_str!("../../../docs/sql.md");

/// The queries, each with the sentence above it.
fn queries() -> Vec<(&'static str, &'static str)> {
    let parts: Vec<_> = PAGE.split("```sql\n").collect();
    let pairs = parts.windows(2).map(|pair| {
        let sentence = pair[0].trim_end().rsplit("\n\n").next().expect("a sentence");
        (sentence, pair[1].split("```").next().expect("a query"))
    });
    pairs.collect()
}

/// The one below a sentence that begins so.
fn query(sentence: &str) -> &'static str {
    let mut found = queries().into_iter().filter(|(above, _)| above.starts_with(sentence));
    found.next().unwrap_or_else(|| panic!("the page has no {sentence:?}")).1
}

#[test]
fn each_query_of_the_page_has_an_answer() {
    // These find nothing in sessions such as ours, or nothing without the runtimes that they are about.
    let mut empty = vec!["What ran in a part"];
    if env::var_os("SPOOR_RUNTIMES").is_none() {
        empty.extend(["Queues of Grand", "Tasks of Swift"]);
    }
    let queries = queries();
    assert!(queries.len() >= 15, "only {} queries", queries.len());
    for (sentence, query) in queries {
        let exit = ask(shared(), query, &["--format", "json"]);
        assert_eq!(exit.code, Some(0), "{sentence}\n{}", exit.stderr);
        let is_expected = !json(&exit).is_empty() || empty.iter().any(|may_be| sentence.starts_with(may_be));
        assert!(is_expected, "{sentence}\n{query}\nfinds nothing");
    }
}

#[test]
fn answers_are_those_of_other_commands() {
    let sessions = json(&run_on("sessions", shared(), &["--json"]).success());
    let sum = |rows: &[Value], column: &str| rows.iter().map(|row| row[column].as_u64().unwrap_or(0)).sum::<u64>();
    let hosts = rows(shared(), query("Each machine with"));
    for column in ["events", "missing"] {
        assert_eq!(sum(&hosts, column), sum(&sessions, column), "{column}");
    }
    assert_eq!(sum(&hosts, "sessions"), sessions.len() as u64);
    assert_eq!(sum(&rows(shared(), query("Sessions of which")), "missing"), sum(&sessions, "missing"));
    // What a function took itself, by another way.
    let session =
        sessions.iter().find(|session| session["program"].as_str().is_some_and(|name| name.contains("pthreads")));
    let session = session.expect("it was recorded")["session"].as_str().expect("a name");
    let dir = shared().join(session);
    let mut told: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for row in json(&run_on("top", &dir, &["--json", "--limit", "100000"]).success()) {
        // Functions of several modules may have one name.
        let (count, self_ns) = told.entry(row["function"].as_str().expect("a name").into()).or_default();
        *count += number(&row, "count");
        *self_ns += number(&row, "self_ns");
    }
    let all = query("The time that functions took").replace("limit 20", "");
    let asked = rows(&dir, &all);
    assert!(asked.len() > 20);
    for row in &asked {
        let name = row["function"].as_str().expect("a name");
        assert_eq!(told.get(name), Some(&(number(row, "calls"), number(row, "self_ns"))), "{name}");
    }
}

fn number(row: &Value, column: &str) -> u64 {
    row[column].as_u64().unwrap_or_else(|| panic!("no {column} in {row}"))
}

#[test]
fn the_page_lists_the_columns_that_there_are() {
    for table in ["sessions", "threads", "modules", "functions", "gaps", "spans"] {
        let line = PAGE.lines().find(|line| line.starts_with(&format!("| `{table}` |"))).expect("a row of the page");
        for row in rows(shared(), &format!("describe {table}")) {
            let column = row["column_name"].as_str().expect("a name");
            let is_told = line.contains(&format!("`{column}`"))
                || (table == "spans" && sinks::SPAN_COLUMNS.iter().any(|one| one.name == column));
            assert!(is_told, "{table} has {column}");
        }
    }
}
