//! How far the streams have come: what the agent sent and dropped, what the collector received and misses.

use super::Fingerprint;
use crate::{
    Position, SessionId, SessionNs, StreamId,
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

    /// How far a stream has come.
    pub struct StreamPosition as "stream position" {
        /// The stream.
        pub stream: StreamId,
        /// The position of its next event: everything before has been sent, or dropped.
        pub next: Position,
    }

    /// Events that were produced but not kept.
    pub struct Drops<'a> as "drops" {
        /// The ranges that are missing.
        pub drops: List<'a, Dropped<'a>>,
    }

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

    /// What the collector has, and how much more it can take.
    pub struct Ack<'a> as "ack" {
        /// The session.
        pub session: SessionId,
        /// The time of the latest `progress` that arrived, for measuring the way there and back.
        pub echo: SessionNs,
        /// How many bytes the agent may have sent and not seen acknowledged.
        pub window_bytes: u64,
        /// For each stream that moved: everything before this position arrived, or was given up.
        pub streams: List<'a, StreamPosition>,
        /// The options that arrived since the last acknowledgement.
        pub options: List<'a, Fingerprint>,
    }

    /// When a `progress` came and was answered, by the collector's clock.
    pub struct Times as "times" {
        /// The session.
        pub session: SessionId,
        /// The time of the `progress`, by the agent's clock.
        pub echo: SessionNs,
        /// When it arrived, in nanoseconds since the Unix epoch.
        pub received_unix_ns: u64,
        /// When this was sent.
        pub answered_unix_ns: u64,
    }

    /// What would survive the end of the collector, and what it lost.
    pub struct Kept<'a> as "kept" {
        /// The session.
        pub session: SessionId,
        /// For each stream that moved: everything before this position is in the collector's files, as an event or as a
        /// gap. The agent need not keep it any longer.
        pub streams: List<'a, StreamPosition>,
        /// What the collector has lost of the session so far, all streams together. What the agent dropped does not
        /// count.
        pub lost: List<'a, Lost<'a>>,
        /// When it began to count them, in nanoseconds since the Unix epoch: those of another time come on top.
        pub since: u64,
    }

    /// Events that the collector lost for one cause.
    pub struct Lost<'a> as "lost" {
        /// How many.
        pub count: u64,
        /// Why, as in a gap.
        pub cause: &'a str,
    }

    /// What the collector misses and would like to have again.
    pub struct Nack<'a> as "nack" {
        /// The session.
        pub session: SessionId,
        /// The missing events.
        pub ranges: List<'a, Range>,
    }

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
