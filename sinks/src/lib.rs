//! Where a trace goes: the contract of a sink, and the sinks.
//!
//! A collector calls every sink in the same order: a session started, options arrived, events arrived, some are
//! missing, the session ended. [`Sink`] says what each call and each answer means.

#![forbid(unsafe_code)]

mod chrome;
pub mod disk;
mod family;
mod folded;
mod heph;
mod line;
mod lines;
mod names;
mod nest;
mod open_spans;
mod otlp;
mod output;
mod parquet;
mod perfetto;
mod picture;
mod probe;
mod proto;
mod sink;
#[cfg(test)]
mod spans_for_tests;
pub mod tree;
mod view;

use codec::text::{cut, shorten};
/// What the contract speaks of.
pub use collector_core::{
    Batch, Budget, Catalog, CatalogContext, CatalogLimits, CatalogModule, CatalogProcess, CatalogThread, Cause,
    EarlierSession, Ended, Gap, Run, RunEvents, Session,
};

pub use self::parquet::{SPAN_COLUMNS, SpanColumn, SpanDigest, SpanTable};
pub use chrome::ChromeSink;
pub use disk::{DiskCounters, DiskOptions, DiskSink, EarlierSessions, PendingTable, SpansWhen, SyncWhen, TableFile};
pub use family::{BirthPoint, FamilySink, ProcessLabel};
pub use folded::{FoldedSink, Folds};
pub use heph::{HephCompatSink, HephSink, Packer, packets};
pub use line::{Line, span_line};
pub use lines::LineSink;
pub use names::{KnownName, NameCache, Named, demangle, file_name, name, name_of, source_at, source_of};
pub use otlp::{OtlpOptions, OtlpSink};
pub use perfetto::PerfettoSink;
pub use sink::{Sink, SinkError};
