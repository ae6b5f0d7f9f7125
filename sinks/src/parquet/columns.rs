//! The columns of the table.

use std::sync::Arc;

use parquet::{
    errors::Result,
    file::properties::{EnabledStatistics, WriterProperties},
    schema::{parser::parse_message_type, types::Type},
};

use Shape::{Int, Ints, Long, Text, Time};

/// A column of a table of spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanColumn {
    /// Its name.
    pub name: &'static str,
    /// What is in it.
    pub(super) shape: Shape,
    /// Whether every row has something there.
    pub required: bool,
}

impl SpanColumn {
    /// The name of its type, as Parquet has it.
    pub fn type_name(&self) -> &'static str {
        match self.shape {
            Long => "UINT64",
            Time => "INT64",
            Int => "UINT32",
            Text => "STRING",
            Ints => "LIST of UINT32",
        }
    }

    /// Whether its values are written by their differences, which are small: times and ids of spans. All else has a
    /// dictionary.
    pub(super) fn by_difference(&self) -> bool {
        self.shape == Time || SPANS.contains(&self.name)
    }
}

/// What is in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Ids, keys, addresses.
    Long,
    /// Times and durations. With a sign, so that their differences have one.
    Time,
    /// Threads and counts.
    Int,
    /// Names.
    Text,
    /// A list of threads.
    Ints,
}

const fn every(name: &'static str, shape: Shape) -> SpanColumn {
    SpanColumn { name, shape, required: true }
}

const fn some(name: &'static str, shape: Shape) -> SpanColumn {
    SpanColumn { name, shape, required: false }
}

/// The columns, in the order of the file. Those from `threads` on are empty where a span has nothing of the kind.
pub const SPAN_COLUMNS: &[SpanColumn] = &[
    every("id", Long),
    every("type", Text),
    every("runtime", Text),
    every("status", Text),
    some("reason", Text),
    every("function", Text),
    some("symbol", Text),
    some("module", Text),
    some("key", Long),
    some("parent", Long),
    some("twin", Long),
    every("thread", Int),
    some("task", Long),
    some("depth", Int),
    every("start_ns", Time),
    some("end_ns", Time),
    some("duration_ns", Time),
    every("flags", Text),
    some("threads", Ints),
    some("end_thread", Int),
    some("created_ns", Time),
    some("latency_ns", Time),
    some("creator", Int),
    some("origin", Long),
    some("suspended_ns", Time),
    some("suspensions", Int),
    some("queue", Long),
    some("queue_label", Text),
    some("group", Long),
    some("joiner", Int),
    some("join_latency_ns", Time),
    some("ending", Text),
    some("argument", Long),
    some("result", Long),
    some("level", Int),
    some("resumed_ns", Time),
    some("cause", Text),
];

/// The same as Parquet describes it.
pub(super) fn schema() -> Result<Arc<Type>> {
    let fields: String = SPAN_COLUMNS.iter().map(field).collect();
    Ok(Arc::new(parse_message_type(&format!("message spans {{ {fields} }}"))?))
}

fn field(column: &SpanColumn) -> String {
    let name = column.name;
    let repetition = if column.required { "REQUIRED" } else { "OPTIONAL" };
    match column.shape {
        Long => format!("{repetition} INT64 {name} (INTEGER(64,false)); "),
        Time => format!("{repetition} INT64 {name}; "),
        Int => format!("{repetition} INT32 {name} (INTEGER(32,false)); "),
        Text => format!("{repetition} BYTE_ARRAY {name} (STRING); "),
        Ints => format!(
            "{repetition} GROUP {name} (LIST) {{ REPEATED GROUP list {{ REQUIRED INT32 element (INTEGER(32,false)); }} }} "
        ),
    }
}

/// What the file says of itself. How the columns are encoded is up to them.
pub(super) fn properties() -> Arc<WriterProperties> {
    let properties = WriterProperties::builder()
        .set_created_by(concat!("spoor ", env!("CARGO_PKG_VERSION")).into())
        // One for each page of each column would be most of what is kept in memory until the end.
        .set_offset_index_disabled(true)
        .set_statistics_enabled(EnabledStatistics::Chunk);
    Arc::new(properties.build())
}

/// The columns that have ids of spans.
const SPANS: [&str; 4] = ["id", "parent", "twin", "origin"];
