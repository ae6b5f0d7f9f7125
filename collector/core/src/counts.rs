//! What has been counted since the start, over all sessions.

use std::collections::BTreeMap;

use crate::{Cause, Refused};

/// Everything a [`Collector`](crate::Collector) counts. Only `sessions_open` and the `_now` counts ever go down.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Sessions that have started.
    pub sessions: u64,
    /// Sessions that have not ended.
    pub sessions_open: u64,
    /// Events passed on.
    pub written: u64,
    /// Events missing, by cause.
    pub missing: BTreeMap<Cause, u64>,
    /// Events that arrived after their gap was declared, or after their session ended.
    pub late: u64,
    /// Options that arrived after their session ended.
    pub late_options: u64,
    /// Events that arrived again.
    pub duplicates: u64,
    /// Streams whose counters started anew.
    pub restarts: u64,
    /// Option packets that arrived, repetitions included.
    pub options: u64,
    /// Options with a name of the profile that cannot be read.
    pub bad_options: u64,
    /// Datagrams that arrived.
    pub datagrams: u64,
    /// Datagrams of which some bytes could not be read.
    pub bad_datagrams: u64,
    /// Bytes of datagrams and connections that could not be read.
    pub skipped_bytes: u64,
    /// Datagrams refused because there were too many sessions or senders.
    pub refused_datagrams: u64,
    /// Events of connections refused because there were too many sessions.
    pub refused_session_events: u64,
    /// Times that a sender named a session without having shown that it is its own.
    pub refused_claims: u64,
    /// Times that a session was refused because there were too many.
    pub refused_sessions: u64,
    /// Events refused because their session, or all together, had too many streams.
    pub refused_stream_events: u64,
    /// Streams that were refused, of sessions that are open.
    pub refused_streams_now: usize,
    /// What catalogs had no room for.
    pub refused_by_catalogs: Refused,
    /// Events in datagrams that were not taken, since the driver had no room. Agents send them again.
    pub untaken: u64,
    /// Acknowledgements and requests sent.
    pub replies: u64,
    /// Bytes of events that wait for missing ones.
    pub held_bytes_now: usize,
    /// Bytes that are left for what sessions say at their end.
    pub ending_room_now: usize,
    /// Streams of all open sessions.
    pub streams_now: usize,
}

/// How many causes are told apart over all sessions: reasons come from the wire.
const MAX_CAUSES: usize = 128;

impl Counts {
    /// Enters events that are missing.
    pub(crate) fn miss(&mut self, cause: &Cause, count: u64) {
        let known = self.missing.contains_key(cause) || self.missing.len() < MAX_CAUSES;
        let cause = if known { cause.clone() } else { Cause::agent("other") };
        let missing = self.missing.entry(cause).or_default();
        *missing = missing.saturating_add(count);
    }

    /// Events are not missing after all: their session goes on.
    pub(crate) fn found(&mut self, cause: &Cause, count: u64) {
        if let Some(missing) = self.missing.get_mut(cause) {
            *missing = missing.saturating_sub(count);
        }
    }

    /// Events that are settled: written and missing.
    pub fn produced(&self) -> u64 {
        self.written.saturating_add(self.missing())
    }

    /// Events missing, for whatever cause.
    pub fn missing(&self) -> u64 {
        self.missing.values().fold(0, |sum, count| sum.saturating_add(*count))
    }
}
