//! The columns of the table.

use std::sync::Arc;

use parquet::{
    errors::Result,
    file::properties::{EnabledStatistics, WriterProperties},
    schema::{parser::parse_message_type, types::Type},
};

use codec::span::{Ending, Reason, SpanKind, SpanRuntime, SpanStatus};

use Shape::{Flags, Id, Int, Ints, Long, Text, Time, Word};

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
            Id | Text | Word(_) | Flags => "STRING",
            Ints => "LIST of UINT32",
        }
    }
}

/// What is in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Ids of spans, as texts.
    Id,
    /// Keys and addresses.
    Long,
    /// Times and durations. With a sign, so that their differences have one.
    Time,
    /// Threads and counts.
    Int,
    /// Names.
    Text,
    /// One of a few words.
    Word(Words),
    /// The names of flags, with commas between them.
    Flags,
    /// A list of threads.
    Ints,
}

/// What the words of a column are, each known by its place among all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Words {
    Kind,
    Runtime,
    Status,
    Reason,
    Ending,
}

impl Words {
    pub(super) fn name(self, place: u64) -> &'static str {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        let name = match self {
            Self::Kind => SpanKind::ALL.get(place).map(|kind| kind.name()),
            Self::Runtime => SpanRuntime::ALL.get(place).map(|runtime| runtime.name()),
            Self::Status => SpanStatus::ALL.get(place).map(|status| status.name()),
            Self::Reason => Reason::ALL.get(place).map(|reason| reason.name()),
            Self::Ending => Ending::ALL.get(place).map(|ending| ending.name()),
        };
        name.unwrap_or_default()
    }
}

const fn every(name: &'static str, shape: Shape) -> SpanColumn {
    SpanColumn { name, shape, required: true }
}

const fn some(name: &'static str, shape: Shape) -> SpanColumn {
    SpanColumn { name, shape, required: false }
}

/// The columns, in the order of the file. Those from `threads` on are empty where a span has nothing of the kind.
pub const SPAN_COLUMNS: &[SpanColumn] = &[
    every("id", Id),
    every("type", Word(Words::Kind)),
    every("runtime", Word(Words::Runtime)),
    every("status", Word(Words::Status)),
    some("reason", Word(Words::Reason)),
    every("function", Text),
    some("symbol", Text),
    some("module", Text),
    some("key", Long),
    some("parent", Id),
    some("twin", Id),
    every("thread", Int),
    some("task", Long),
    some("depth", Int),
    every("start_ns", Time),
    some("end_ns", Time),
    some("duration_ns", Time),
    every("flags", Flags),
    some("threads", Ints),
    some("end_thread", Int),
    some("created_ns", Time),
    some("latency_ns", Time),
    some("creator", Int),
    some("origin", Id),
    some("suspended_ns", Time),
    some("suspensions", Int),
    some("queue", Long),
    some("queue_label", Text),
    some("group", Long),
    some("joiner", Int),
    some("join_latency_ns", Time),
    some("ending", Word(Words::Ending)),
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
        Id | Text | Word(_) | Flags => format!("{repetition} BYTE_ARRAY {name} (STRING); "),
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
