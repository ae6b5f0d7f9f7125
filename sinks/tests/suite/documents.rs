//! What the documents say of the table of spans.

use std::fs;

use sinks::SPAN_COLUMNS;

#[test]
fn the_table_of_columns_is_the_table_that_is_written() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/trace-format.md");
    let text = fs::read_to_string(path).expect("it is there");
    let (_, behind) = text.split_once("<!-- parquet: spans -->").expect("the table is marked");
    let rows = behind.lines().skip_while(|line| !line.starts_with("| `")).take_while(|line| line.starts_with("| `"));
    let told: Vec<(String, String)> = rows
        .map(|row| {
            let mut cells = row.split('|').skip(1).map(str::trim);
            let mut next = || cells.next().unwrap_or_default().to_owned();
            (next().replace('`', ""), next())
        })
        .collect();
    let written: Vec<_> = SPAN_COLUMNS
        .iter()
        .map(|column| {
            let optional = if column.required { "" } else { ", optional" };
            (column.name.to_owned(), format!("{}{optional}", column.type_name()))
        })
        .collect();
    assert_eq!(told, written);
}
