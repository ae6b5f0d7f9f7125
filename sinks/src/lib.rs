//! Where a trace goes: the contract of a sink, and the sinks.
//!
//! A collector tells every sink the same story in the same order: a session started, options arrived, events
//! arrived, some are missing, the session ended. What each call and each answer means is said at [`Sink`].

#![forbid(unsafe_code)]

mod chrome;
pub mod disk;
mod events;
mod folded;
mod held;
mod heph;
mod line;
mod names;
mod nest;
mod output;
mod parquet;
mod perfetto;
mod picture;
mod probe;
mod said;
mod sink;
mod spans;
#[cfg(test)]
mod spans_for_tests;
pub mod tree;

use collector_core::{Budget, cut, shorten};

/// What the contract speaks of.
pub use collector_core::{
    Batch, Catalog, CatalogLimits, CatalogModule, CatalogProcess, CatalogThread, Cause, Ended, Gap, Run, RunEvents,
    Session,
};

pub use self::parquet::{SPAN_COLUMNS, SpanColumn, SpanTable};
pub use chrome::ChromeSink;
pub use disk::{DiskCounters, DiskOptions, DiskSink, EarlierTables, PendingTable, SpansWhen, TableFile};
pub use events::EventsSink;
pub use folded::FoldedSink;
pub use heph::{HephCompatSink, HephSink, Packer};
pub use names::{KnownName, NameCache, Named, demangle, name, name_of};
pub use perfetto::PerfettoSink;
pub use sink::{Sink, SinkError};
pub use spans::{SpansSink, span_line};
