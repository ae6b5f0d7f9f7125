//! How far each stream has come.

use crate::{
    Position, SessionNs, StreamId,
    heph::{List, wire::wire_struct},
};

wire_struct! {
    /// How far the streams have come. Sent at least every 250 ms, so that a lost tail does not stay unseen.
    pub struct Progress<'a> as "progress" {
        /// When it was sent, by the agent's clock.
        pub now: SessionNs,
        /// The streams; those that do not fit are in further packets.
        pub streams: List<'a, StreamPosition>,
    }
}

wire_struct! {
    /// How far a stream has come.
    pub struct StreamPosition as "stream position" {
        /// The stream.
        pub stream: StreamId,
        /// The position of its next event: everything before has been sent, or dropped.
        pub next: Position,
    }
}
