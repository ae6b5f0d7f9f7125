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
#[derive(Debug, Clone, Copy)]
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
#[derive(Debug, Clone, Copy)]
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
    /// One of a few words, each known by its place among all of them.
    Word(fn(usize) -> Option<&'static str>),
    /// The names of flags, with commas between them.
    Flags,
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
    every("id", Id),
    every("kind", Word(|place| SpanKind::ALL.get(place).map(|kind| kind.name()))),
    every("runtime", Word(|place| SpanRuntime::ALL.get(place).map(|runtime| runtime.name()))),
    every("status", Word(|place| SpanStatus::ALL.get(place).map(|status| status.name()))),
    some("reason", Word(|place| Reason::ALL.get(place).map(|reason| reason.name()))),
    every("function", Text),
    some("symbol", Text),
    some("module", Text),
    some("key", Long),
    some("parent", Id),
    some("twin", Id),
    every("thread", Int),
    some("tid", Long),
    some("thread_name", Text),
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
    some("ending", Word(|place| Ending::ALL.get(place).map(|ending| ending.name()))),
    some("argument", Long),
    some("result", Long),
    some("executor", Long),
    some("resumer", Int),
    some("resumed_by", Id),
    some("level", Int),
    some("resumed_ns", Time),
    some("cause", Text),
];

/// The columns of the registers that arguments are passed in, where they are asked for.
pub(super) const ARGUMENT_COLUMNS: &[SpanColumn] = &[
    some("arg0", Long),
    some("arg1", Long),
    some("arg2", Long),
    some("arg3", Long),
    some("arg4", Long),
    some("arg5", Long),
    some("arg6", Long),
    some("arg7", Long),
];

/// The columns as Parquet describes them.
pub(super) fn schema<'a>(columns: impl Iterator<Item = &'a SpanColumn>) -> Result<Arc<Type>> {
    let fields: String = columns.map(field).collect();
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
