//! An end that has been announced.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bytes::Bytes;
use codec::{
    SessionNs, StreamId,
    profile::{End, EndReason, Fingerprint},
};

/// What the packets of `end` have told so far.
#[derive(Debug)]
pub(super) struct EndState {
    pub(super) reason: EndReason,
    pub(super) at: SessionNs,
    stream_count: usize,
    told: BTreeSet<StreamId>,
    since: Duration,
    /// The packets, each once, for the sinks.
    packets: BTreeMap<Fingerprint, Box<[u8]>>,
    /// The memory it takes, roughly.
    charged: usize,
    /// Whether the sinks know of it.
    is_announced: bool,
    /// Whether the sinks have written it, and the agent may be told.
    is_kept: bool,
    /// The packets that wait for that.
    unanswered: BTreeSet<Fingerprint>,
}

/// What a packet takes beside its bytes, and what a stream takes.
const PACKET_BYTES: usize = 96;
const STREAM_BYTES: usize = 32;

/// How many packets wait to be acknowledged. Those beyond are sent again, and acknowledged then.
const MOST_UNANSWERED: usize = 1_024;

impl EndState {
    pub(super) fn new(end: &End<'_>, now: Duration) -> Self {
        let stream_count = end.stream_count as usize;
        Self {
            reason: end.reason,
            at: end.at,
            stream_count,
            told: BTreeSet::new(),
            since: now,
            packets: BTreeMap::new(),
            charged: 0,
            is_announced: false,
            is_kept: false,
            unanswered: BTreeSet::new(),
        }
    }

    /// Another packet, or the same again. All sessions that end share `room`, which is lessened by what this takes; one
    /// that there is none for is not complete, and ends in its time.
    pub(super) fn add(&mut self, end: &End<'_>, packet: &[u8], room: &mut usize) {
        let mut charge = |bytes: usize| {
            let left = room.checked_sub(bytes);
            *room = left.unwrap_or(*room);
            self.charged += if left.is_some() { bytes } else { 0 };
            left.is_some()
        };
        let fingerprint = Fingerprint::of(packet);
        if self.packets.contains_key(&fingerprint) || !charge(packet.len() + PACKET_BYTES) {
            return;
        }
        self.packets.insert(fingerprint, packet.into());
        for position in end.streams {
            if !self.told.contains(&position.stream) && charge(STREAM_BYTES) {
                self.told.insert(position.stream);
            }
        }
    }

    /// Whether the ends of all streams are known.
    pub(super) fn is_complete(&self) -> bool {
        self.told.len() >= self.stream_count
    }

    /// A packet of it has come, perhaps again. Whether it may be acknowledged now, and not only when the end is kept.
    pub(super) fn may_answer(&mut self, fingerprint: Fingerprint) -> bool {
        if !self.is_kept && self.unanswered.len() < MOST_UNANSWERED {
            self.unanswered.insert(fingerprint);
        }
        self.is_kept
    }

    /// Whether a packet of it waits to be acknowledged.
    pub(super) fn is_unanswered(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// The end would survive the collector. Tells which packets may be acknowledged.
    pub(super) fn keep(&mut self) -> BTreeSet<Fingerprint> {
        self.is_kept = true;
        std::mem::take(&mut self.unanswered)
    }

    /// Its packets, one behind the other, once the ends of all streams are known. Only the first time.
    pub(super) fn announce(&mut self) -> Option<Bytes> {
        if self.is_announced || !self.is_complete() {
            return None;
        }
        self.is_announced = true;
        Some(self.packets.values().flatten().copied().collect())
    }

    /// Whether the rest of it should have come.
    pub(super) fn is_overdue(&self, now: Duration, patience: Duration) -> bool {
        now.saturating_sub(self.since) >= patience
    }

    /// Takes out the packets, one behind the other, and with them all that takes memory. Tells how much that was.
    pub(super) fn take(&mut self) -> (Vec<u8>, usize) {
        self.told.clear();
        let packets = std::mem::take(&mut self.packets).into_values().flatten().collect();
        (packets, std::mem::take(&mut self.charged))
    }
}
