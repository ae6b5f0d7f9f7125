//! The tables in `docs/` say what the code does.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use codec::{
    atf::{BirthEntry, LAYOUTS, Manifest, TableEntry, TraceContextEntry},
    layout::{Layout, RUN_KINDS, RUN_PREFIXES, RUN_WORD, WIRE},
    profile::{Key, ProfileOption},
};
use serde_json::Value;

use crate::fixtures::golden;

fn document(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of every table under a marker `<!-- kind: name -->`, by name.
fn tables(document: &str, kind: &str) -> BTreeMap<String, Vec<Vec<String>>> {
    let mut tables = BTreeMap::new();
    let mut lines = document.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix(&format!("<!-- {kind}")).and_then(|rest| rest.strip_suffix(" -->")) else {
            continue;
        };
        let name = name.trim_start_matches(": ").to_string();
        let rows = lines.by_ref().skip_while(|line| line.is_empty()).take_while(|line| line.starts_with('|'));
        let cells = |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect();
        let rows = rows.skip(2).map(cells).collect();
        assert!(tables.insert(name.clone(), rows).is_none(), "{name} is there twice");
    }
    tables
}

/// The first three cells of a layout's rows: offset, size and name.
fn expected_rows(layout: &Layout) -> Vec<Vec<String>> {
    let text = |number: Option<usize>| number.map_or("…".to_string(), |number| number.to_string());
    let mut offset = Some(0);
    let mut row = |field: &codec::layout::Field| {
        let cells = vec![text(offset), text(field.bytes), format!("`{}`", field.name)];
        offset = offset.zip(field.bytes).map(|(offset, bytes)| offset + bytes);
        cells
    };
    layout.fields.iter().map(&mut row).collect()
}

#[track_caller]
fn check_layouts(document_name: &str, layouts: &[Layout]) {
    let tables = tables(&document(document_name), "layout");
    for layout in layouts {
        let Some(rows) = tables.get(layout.name) else { panic!("{document_name} has no table of {}", layout.name) };
        let rows: Vec<_> = rows.iter().map(|row| row[..3].to_vec()).collect();
        assert_eq!(rows, expected_rows(layout), "{document_name}: the table of {}", layout.name);
    }
    let names: BTreeSet<_> = layouts.iter().map(|layout| layout.name.to_string()).collect();
    assert_eq!(tables.into_keys().collect::<BTreeSet<_>>(), names, "{document_name}: every table is of a layout");
}

#[test]
fn the_tables_of_the_wire_format_are_the_codes() {
    check_layouts("wire-format.md", WIRE);
}

#[test]
fn the_tables_of_the_trace_format_are_the_codes() {
    check_layouts("trace-format.md", &LAYOUTS.concat());
}

#[test]
fn every_option_and_key_is_documented() {
    let document = document("wire-format.md");
    let headings: BTreeSet<_> = document.lines().filter_map(|line| line.strip_prefix("#### ")).collect();
    let options: Vec<_> = ProfileOption::NAMES.iter().map(|name| format!("`{name}`")).collect();
    assert_eq!(headings, options.iter().map(String::as_str).collect());

    let rows = &tables(&document, "keys")[""];
    let keys: Vec<_> = Key::ALL.iter().map(|key| format!("`{}`", key.name())).collect();
    assert_eq!(rows.iter().map(|row| row[0].clone()).collect::<Vec<_>>(), keys);
}

#[test]
fn the_words_of_runs_are_documented() {
    fn rows<N: ToString>(table: &[(N, &str)]) -> Vec<Vec<String>> {
        table.iter().map(|(number, name)| vec![number.to_string(), format!("`{name}`")]).collect()
    }
    let document = document("wire-format.md");
    let (bits, codes) = (tables(&document, "bits"), tables(&document, "codes"));
    let starts = |table: &Vec<Vec<String>>| table.iter().map(|row| row[..2].to_vec()).collect::<Vec<_>>();
    assert_eq!(starts(&bits["run word"]), rows(RUN_WORD));
    assert_eq!(RUN_WORD.iter().map(|(bits, _)| bits).sum::<u32>(), u64::BITS);
    assert_eq!(starts(&codes["run kinds"]), rows(RUN_KINDS));
    assert_eq!(starts(&codes["run prefixes"]), rows(RUN_PREFIXES));
    assert_eq!((bits.len(), codes.len()), (1, 2), "no other tables of words");
}

/// A manifest with every field it can have: the golden one, and what that lacks.
fn full_manifest() -> Manifest {
    let mut manifest = Manifest::parse(&golden("atf/manifest.json")).expect("a manifest");
    manifest.birth = Some(BirthEntry { tid: Some(1), ..BirthEntry::default() });
    let (traceparent, tracestate) = (Some(String::new()), Some(String::new()));
    manifest.context = Some(TraceContextEntry { traceparent, tracestate, ..TraceContextEntry::default() });
    manifest.threads[0].first = Some(1);
    manifest.modules[0].unloaded_ns = Some(1);
    manifest.functions[0].source = Some(String::new());
    manifest.gaps[0].ranges = Some(2);
    (manifest.part, manifest.spans) = (Some(1), Some("after".into()));
    manifest.threads[0].index_checksum = Some(String::new());
    manifest.threads[0].detail_checksum = Some(String::new());
    manifest.table = Some(TableEntry::default());
    manifest.extra.clear();
    manifest
}

#[test]
fn the_tables_of_the_manifest_are_the_codes() {
    let json: Value = serde_json::from_slice(&full_manifest().to_json().expect("valid")).expect("JSON");
    let tables = tables(&document("trace-format.md"), "manifest");
    let objects = [
        ("manifest", &json),
        ("birth", &json["birth"]),
        ("context", &json["context"]),
        ("offset", &json["offset"]),
        ("thread", &json["threads"][0]),
        ("process", &json["process"]),
        ("module", &json["modules"][0]),
        ("symbol", &json["symbols"][0]),
        ("queue", &json["queues"][0]),
        ("gap", &json["gaps"][0]),
        ("limit", &json["limits"][0]),
        ("level", &json["levels"][0]),
        ("counted", &json["counted"][0]),
        ("end", &json["end"]),
        ("table", &json["table"]),
    ];
    for (name, object) in objects {
        let fields: BTreeSet<_> = object.as_object().expect("an object").keys().map(|key| format!("`{key}`")).collect();
        let rows: BTreeSet<_> = tables[name].iter().map(|row| row[0].clone()).collect();
        assert_eq!(rows, fields, "the table of {name}");
    }
    assert_eq!(tables.len(), objects.len());
}
