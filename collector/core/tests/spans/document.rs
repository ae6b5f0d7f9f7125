//! `docs/spans.md` names what there is.

use std::{collections::BTreeSet, fs, path::PathBuf};

use codec::span::{Ending, Reason, SpanFlags, SpanKind, SpanRuntime, SpanStatus};

fn document() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/spans.md");
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The cells of the table behind a marker.
fn table(document: &str, name: &str) -> Vec<Vec<String>> {
    let marker = format!("<!-- {name} -->");
    let lines = document.lines().skip_while(|line| *line != marker).skip(1).skip_while(|line| line.is_empty());
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    let cells = |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect();
    rows.map(cells).collect()
}

fn first_cells(document: &str, name: &str) -> Vec<String> {
    table(document, name).into_iter().map(|row| row[0].trim_matches('`').to_string()).collect()
}

#[test]
fn the_tables_of_names_are_the_codes() {
    let document = document();
    let names = |name: &str| first_cells(&document, name);
    assert_eq!(names("kinds"), SpanKind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>());
    assert_eq!(names("runtimes"), SpanRuntime::ALL.iter().map(|runtime| runtime.name()).collect::<Vec<_>>());
    assert_eq!(names("statuses"), SpanStatus::ALL.iter().map(|status| status.name()).collect::<Vec<_>>());
    assert_eq!(names("reasons"), Reason::ALL.iter().map(|reason| reason.name()).collect::<Vec<_>>());
    assert_eq!(names("endings"), Ending::ALL.iter().map(|ending| ending.name()).collect::<Vec<_>>());
    assert_eq!(names("flags"), SpanFlags::NAMES.iter().map(|(_, name)| *name).collect::<Vec<_>>());
}

#[test]
fn every_kind_is_of_the_runtime_that_the_table_says() {
    for row in table(&document(), "kinds") {
        let kind = SpanKind::from_name(row[0].trim_matches('`')).expect("a kind");
        assert_eq!(row[1].trim_matches('`'), kind.runtime().name());
    }
}

/// What the tests in each folder run on.
const RUN_ON: [(&str, &str); 6] = [
    ("collector/core/tests/", "events written down"),
    ("agent/src/plan/tests/", "assembled and installed libraries"),
    ("agent/tests/engine/", "functions hooked by the test"),
    ("agent/launcher/tests/", "the agent command"),
    ("tests/tests/end_to_end/tracing/", "traced programs"),
    ("tests/tests/end_to_end/runtimes/", "the real runtimes"),
];

#[test]
fn every_clause_of_the_specifications_has_tests_that_exist() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let rows = table(&document(), "clauses");
    let specifications: BTreeSet<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(specifications.len(), 5);
    for row in &rows {
        let [_, clause, tests, run_on] = row.as_slice() else { panic!("{row:?}") };
        assert!(tests.contains("::"), "{clause} has a test");
        let mut on: Vec<&str> = Vec::new();
        for test in tests.split("<br>").map(|test| test.trim().trim_matches('`')) {
            let (path, name) = test.split_once("::").unwrap_or_else(|| panic!("{clause}: {test}"));
            let file = root.join(path);
            let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            assert!(text.contains(&format!("#[test]\nfn {name}(")), "{path} has no test {name}");
            let what = RUN_ON.iter().find(|(folder, _)| path.starts_with(folder)).expect("a known folder").1;
            if !on.contains(&what) {
                on.push(what);
            }
        }
        assert_eq!(*run_on, on.join(", "), "what the tests of {clause} run on");
    }
}
