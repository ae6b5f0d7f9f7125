//! The engine.

use codec::{
    Position, SessionNs, StreamId,
    profile::{Message, ProfileOption},
    span::Span,
};

use super::{Names, SpanConfig};

/// Makes spans of the events of one session.
#[derive(Debug)]
pub struct Engine {
    config: SpanConfig,
    ready: Vec<Span>,
}

/// How the trace ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The process ended: it exited, was replaced, or a signal ended it.
    Exited,
    /// A signal that tells of a defect ended the process.
    Crashed,
    /// The trace ends, and the process may go on.
    Cut,
}

/// What an engine counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpanCounts {
    /// Spans made.
    pub made: u64,
    /// Spans that are open.
    pub open: u64,
    /// Spans that were evicted so that memory stays bounded.
    pub evicted: u64,
}

impl Finish {
    /// From the words of a manifest: `exited`, `signaled` and so on.
    pub fn of(how: &str, code: Option<i32>) -> Self {
        let _ = (how, code);
        Self::Cut
    }
}

impl Engine {
    /// An engine for one session.
    pub fn new(config: SpanConfig) -> Self {
        Self { config, ready: Vec::new() }
    }

    /// An event. Those of one stream come in order, with rising positions.
    pub fn event(&mut self, stream: StreamId, position: Position, message: &Message<'_>, names: &dyn Names) {
        let _ = (stream, position, message, names, &self.config);
    }

    /// Events of a stream are missing, between those before this call and those behind it.
    pub fn gap(&mut self, stream: StreamId, first: Position, count: u64, cause: &str) {
        let _ = (stream, first, count, cause);
    }

    /// An option of the session.
    pub fn option(&mut self, option: &ProfileOption<'_>) {
        let _ = option;
    }

    /// No event from before this time will come any more, of any stream. Spans of several threads are made only when
    /// that is known.
    pub fn settle(&mut self, until: SessionNs, names: &dyn Names) {
        let _ = (until, names);
    }

    /// Nothing more will come. All that is open is told.
    pub fn finish(&mut self, finish: Finish, at: Option<SessionNs>, names: &dyn Names) {
        let _ = (finish, at, names);
    }

    /// The spans that are ready. The caller takes them out.
    pub fn spans(&mut self) -> &mut Vec<Span> {
        &mut self.ready
    }

    /// What it has counted.
    pub fn counts(&self) -> SpanCounts {
        SpanCounts::default()
    }
}
