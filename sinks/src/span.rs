//! Spans on their way to the sinks.

use codec::{FunctionId, SessionNs, StreamId};

/// Something that ran from one time to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its number in the session.
    pub id: u64,
    /// The span it ran in.
    pub parent: Option<u64>,
    /// The thread it started on.
    pub stream: StreamId,
    /// What ran.
    pub function: FunctionId,
    /// When it started.
    pub start: SessionNs,
    /// When it ended, if it has.
    pub end: Option<SessionNs>,
    /// How it stands.
    pub status: SpanStatus,
}

/// How a span stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanStatus {
    /// Start and end were seen.
    Matched,
    /// It has not ended yet.
    Open,
    /// One side was not seen, and why.
    Unmatched(String),
}
