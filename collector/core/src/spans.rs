//! Spans: what ran, for how long, caused by what.

mod config;
mod engine;
mod names;

pub use config::{CallbackRule, SpanConfig};
pub use engine::{Engine, Finish, SpanCounts};
pub use names::{NoNames, Names};
