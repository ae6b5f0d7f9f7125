//! Parts for end-to-end tests: an agent with made-up events, a network that loses things, the collector as a process,
//! and a reader for what it leaves behind; and the real agent, with programs to be traced.
//!
//! The tests themselves are in `tests/`: `end_to_end` has a folder for each subject, `sql` asks `collector sql`, and
//! `repository` checks the repository.

#![forbid(unsafe_code)]

pub mod account;
pub mod agent;
pub mod agent_command;
pub mod bucket;
pub mod cable;
pub mod collector;
pub mod counts;
pub mod depths;
mod failure;
pub mod folder;
pub mod foreign;
pub mod identity;
pub mod metrics;
pub mod process;
pub mod python;
pub mod random;
pub mod relay;
pub mod runtimes;
pub mod shaker;
pub mod small_disk;
pub mod spans;
pub mod target;
pub mod trace;
pub mod traced;
pub mod wait;

pub use agent::{Agent, Settings, Transport};
pub use bucket::Bucket;
pub use cable::Cable;
pub use collector::Collector;
pub use folder::Folder;
pub use identity::Identity;
pub use metrics::Metrics;
pub use process::{Exit, Process};
pub use random::Random;
pub use relay::{Faults, Relay};
pub use shaker::Shaker;
pub use small_disk::SmallDisk;
pub use target::Target;
pub use trace::Trace;
pub use traced::{Run, Traced};
