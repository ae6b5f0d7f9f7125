//! What the collector tells the agent.

use super::{Fingerprint, StreamPosition};
use crate::{
    Position, SessionId, SessionNs, StreamId,
    heph::{List, wire::wire_struct},
};

wire_struct! {
    /// What the collector has, and how much more it can take.
    pub struct Ack<'a> as "ack" {
        /// The session.
        pub session: SessionId,
        /// The time of the latest `progress` that arrived, for measuring the way there and back.
        pub echo: SessionNs,
        /// How many bytes the agent may have sent and not seen acknowledged.
        pub window_bytes: u64,
        /// For each stream that moved: everything before this position is settled, whether it arrived or was
        /// given up.
        pub streams: List<'a, StreamPosition>,
        /// The options that arrived since the last acknowledgement.
        pub options: List<'a, Fingerprint>,
    }
}

wire_struct! {
    /// What the collector misses and would like to have again.
    pub struct Nack<'a> as "nack" {
        /// The session.
        pub session: SessionId,
        /// The missing events.
        pub ranges: List<'a, Range>,
    }
}

wire_struct! {
    /// A range of events of one stream.
    pub struct Range as "range" {
        /// The stream.
        pub stream: StreamId,
        /// The first event.
        pub first: Position,
        /// How many.
        pub count: u64,
    }
}
