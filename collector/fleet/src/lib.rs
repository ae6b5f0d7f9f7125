//! Sessions on their way through NATS JetStream.
//!
//! A collector at the edge receives from agents and hands each session's packets on ([`NatsSink`]): as messages of a stream,
//! each with whole packets of one session, under a subject of that session. Any number of recorders read them ([`Recorder`]),
//! each session by the one that holds it. A [`Record`] in a key-value bucket beside the stream says who that is.

mod address;
mod beats;
mod link;
mod reader;
mod record;
mod recorder;
mod sink;
mod turns;

use codec::SessionId;
use thiserror::Error;

pub use self::{
    address::Address,
    link::{Access, Keeping, Link},
    record::{Record, State},
    recorder::{Intake, Limits, Ready, Recorder},
    sink::NatsSink,
};

/// What went wrong with NATS, for people.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct FleetError(String);

impl FleetError {
    /// An error in these words.
    fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }

    /// Another recorder holds a session that this one held.
    fn lost(id: SessionId) -> Self {
        Self(format!("another recorder has taken session {id}: this one was not heard of for too long"))
    }

    /// The error of what was tried, with all its causes.
    fn of(what: &str, error: &dyn std::error::Error) -> Self {
        let mut words = format!("{what}: {error}");
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            // Some repeat their causes themselves.
            if !words.contains(&text) {
                words += &format!(": {text}");
            }
            source = cause.source();
        }
        Self(words)
    }
}
