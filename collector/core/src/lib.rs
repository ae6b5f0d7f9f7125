//! What the collector knows and decides: sessions, the order of events, what is missing, and what to tell the agents.
//!
//! It opens nothing, reads no clock and starts no thread. A driver hands it datagrams and the bytes of connections
//! with the time, takes its [`Output`]s to the sinks, and sends its [`Transmit`]s to the agents.
//!
//! ```text
//! datagram, bytes ─▶ Collector ─▶ SessionState (by id, else by peer) ─▶ Stream (by counter) ─▶ Outbox ─▶ Output
//!                                                                        └──▶ acks, nacks ─▶ Transmit
//! ```
//!
//! Of every stream each position is settled exactly once, in order: as an event that is passed on, or as part of a
//! gap. So produced = written + missing holds at every moment.

#![forbid(unsafe_code)]

mod asks;
mod batch;
mod bindings;
mod budget;
mod buffers;
mod catalog;
mod cause;
mod collector;
mod config;
mod counts;

mod outbox;
mod output;
mod refused;
mod reply;
mod session;
mod session_state;
pub mod spans;
mod stream;

pub use asks::{Answered, Listed, NotAsked, Told};
pub use batch::{Batch, Run, RunEvents};
pub use budget::Budget;
pub use catalog::{Catalog, CatalogContext, CatalogLimits, CatalogModule, CatalogProcess, CatalogThread, Refused};
pub use cause::Cause;
pub use collector::Collector;
pub use config::Config;
pub use counts::Counts;
pub use output::{Gap, How, Output, Peer, Summary, Transmit};
pub use session::{EarlierSession, Ended, Session, SessionName, SessionNames};
