//! An end that has been announced.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use codec::{
    SessionNs, StreamId,
    profile::{End, EndReason, Fingerprint},
};

/// What the packets of `end` have told so far.
#[derive(Debug)]
pub(super) struct Ending {
    reason: EndReason,
    at: SessionNs,
    stream_count: usize,
    told: BTreeSet<StreamId>,
    since: Duration,
    /// The packets, each once, for the sinks.
    packets: BTreeMap<Fingerprint, Box<[u8]>>,
    packets_bytes: usize,
}

/// How many bytes of packets are kept. An agent with the most streams needs half of it.
const MAX_BYTES: usize = 512 << 10;

impl Ending {
    pub(super) fn new(end: &End<'_>, now: Duration) -> Self {
        let stream_count = end.stream_count as usize;
        Self {
            reason: end.reason,
            at: end.at,
            stream_count,
            told: BTreeSet::new(),
            since: now,
            packets: BTreeMap::new(),
            packets_bytes: 0,
        }
    }

    /// Another packet, or the same again.
    pub(super) fn add(&mut self, end: &End<'_>, packet: &[u8], max_streams: usize) {
        let fingerprint = Fingerprint::of(packet);
        let fits = self.packets_bytes + packet.len() <= MAX_BYTES;
        if fits && !self.packets.contains_key(&fingerprint) {
            self.packets_bytes += packet.len();
            self.packets.insert(fingerprint, packet.into());
        }
        for position in end.streams {
            if self.told.len() < max_streams {
                self.told.insert(position.stream);
            }
        }
    }

    /// Whether the ends of all streams are known.
    pub(super) fn is_complete(&self) -> bool {
        self.told.len() >= self.stream_count
    }

    /// Whether the rest of it should have come.
    pub(super) fn is_overdue(&self, now: Duration, patience: Duration) -> bool {
        now.saturating_sub(self.since) >= patience
    }

    /// The packets, one behind the other.
    pub(super) fn take_packets(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.packets).into_values().flatten().collect()
    }

    pub(super) fn reason(&self) -> EndReason {
        self.reason
    }

    pub(super) fn at(&self) -> SessionNs {
        self.at
    }
}
