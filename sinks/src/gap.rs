//! What is missing.

use std::sync::Arc;

use codec::{Position, StreamId};

/// Events of one stream that will not come. It stands where they would have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The stream.
    pub stream: StreamId,
    /// The position of the first missing event.
    pub first: Position,
    /// How many are missing.
    pub count: u64,
    /// Why: `network`, `agent:<reason>`, `collector:<reason>`.
    pub cause: Arc<str>,
}
