//! Where a trace goes: the contract of a sink, and the sinks.
//!
//! A collector calls every sink in the same order: a session started, options arrived, events arrived, some are
//! missing, the session ended. [`Sink`] says what each call and each answer means.

#![forbid(unsafe_code)]

mod batch;
mod budget;
mod catalog;
mod chrome;
pub mod disk;
mod folded;
mod gap;
mod heph;
mod line;
mod lines;
mod names;
mod nest;
mod open_spans;
mod output;
mod parquet;
mod perfetto;
mod picture;
mod probe;
mod session;
mod sink;
#[cfg(test)]
mod spans_for_tests;
pub mod tree;
mod view;

use codec::text as cut;

pub use self::parquet::{SPAN_COLUMNS, SpanColumn, SpanTable};
pub use batch::{Batch, Run, RunEvents};
pub use catalog::{Applied, Catalog, CatalogLimits, CatalogModule, CatalogProcess, CatalogThread};
pub use chrome::ChromeSink;
pub use disk::{DiskCounters, DiskOptions, DiskSink};
pub use folded::FoldedSink;
pub use gap::Gap;
pub use heph::{HephCompatSink, HephSink};
pub use line::{Line, span_line};
pub use lines::LineSink;
pub use names::{KnownName, NameCache, Named, demangle, name, name_of};
pub use perfetto::PerfettoSink;
pub use session::{Ended, Session};
pub use sink::{Sink, SinkError};
