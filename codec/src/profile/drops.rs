//! The agent's own losses.

use crate::{
    Position, StreamId,
    heph::{List, wire::wire_struct},
};

wire_struct! {
    /// Events that were produced but not kept.
    pub struct Drops<'a> as "drops" {
        /// The ranges that are missing.
        pub drops: List<'a, Dropped<'a>>,
    }
}

wire_struct! {
    /// A range of events of one stream that the agent dropped.
    pub struct Dropped<'a> as "drop" {
        /// The stream.
        pub stream: StreamId,
        /// The first event dropped.
        pub first: Position,
        /// How many.
        pub count: u64,
        /// Why, as a short constant word: `ring-full`, `replay-full`.
        pub reason: &'a str,
    }
}
