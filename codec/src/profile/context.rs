//! The distributed trace that a process is part of.

use crate::{SessionId, heph::wire::wire_struct};

wire_struct! {
    /// Which trace a session belongs to: the first session of its family, and what the environment of the process says of
    /// the trace that it was started in.
    pub struct TraceContext<'a> as "context" {
        /// The first session of the family: its own id, if it came from no other.
        pub root: SessionId,
        /// `TRACEPARENT` of the environment, as W3C Trace Context has it; empty if there is none.
        pub parent: &'a str,
        /// `TRACESTATE`, possibly empty.
        pub state: &'a str,
    }
}
