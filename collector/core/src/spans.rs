//! Spans: what ran, for how long, caused by what.
//!
//! An [`Engine`] takes the events of a session, live or from disk, and makes [`Span`](codec::span::Span)s of them:
//!
//! ```text
//! event ─▶ Frames (each thread's stacks) ─────────────────────────────────────────────▶ span
//!    └───▶ OrderedEvent (of several threads) ─▶ Order (by time) ─▶ Logical ───────────▶ span
//!                                                      Threads, Blocks, Tasks, Callbacks
//! ```

mod callback;
mod config;
mod dispatch;
mod engine;
mod frames;
mod leaving;
mod logical;
mod naming;
mod order;
mod out;
mod plain;
mod pthread;
mod stack;
mod store;
mod swift;

pub use config::{CallbackRule, SpanConfig};
pub use engine::{Engine, Finish, SpanCounts};
