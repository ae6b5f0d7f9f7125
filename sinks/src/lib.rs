//! Where a trace goes: the contract of a sink, and the sinks.
//!
//! A collector tells every sink the same story in the same order: a session started, options arrived, events
//! arrived, some are missing, the session ended. What each call and each answer means is said at [`Sink`].

#![forbid(unsafe_code)]

mod batch;
mod budget;
mod catalog;
mod cut;
pub mod disk;
mod events;
mod gap;
mod heph;
mod output;
mod probe;
mod session;
mod sink;

pub use batch::{Batch, Run, RunEvents};
pub use catalog::{Applied, Catalog, CatalogLimits, CatalogModule, CatalogProcess, CatalogThread};
pub use disk::{DiskCounters, DiskOptions, DiskSink};
pub use events::EventsSink;
pub use gap::Gap;
pub use heph::{HephCompatSink, HephSink};
pub use session::{Ended, Session};
pub use sink::{Sink, SinkError};
