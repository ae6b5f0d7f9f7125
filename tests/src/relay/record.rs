//! What a relay has seen, and what it let through.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
};

use codec::{
    heph::{MAX_PACKET_BYTES, Packet, Packets},
    profile::Fingerprint,
};

/// What came from agents. Of bytes that are no packets it only counts the datagrams.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// By stream and counter.
    pub(super) events: Passed<(u32, u32)>,
    /// By fingerprint.
    pub(super) options: Passed<u64>,
    pub(super) datagrams: u64,
    pub(super) datagrams_lost: u64,
}

/// Things, and whether they went through.
#[derive(Debug)]
pub(super) struct Passed<T>(HashMap<T, bool>);

impl<T> Default for Passed<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Ord + Hash + Copy> Passed<T> {
    pub(super) fn lost(&self) -> BTreeSet<T> {
        self.0.iter().filter(|(_, passed)| !**passed).map(|(thing, _)| *thing).collect()
    }

    pub(super) fn forwarded(&self) -> BTreeSet<T> {
        self.0.iter().filter(|(_, passed)| **passed).map(|(thing, _)| *thing).collect()
    }

    fn note(&mut self, thing: T, passed: bool) {
        *self.0.entry(thing).or_default() |= passed;
    }
}

impl Record {
    /// Notes what is in a datagram that came. Whether there are options in it.
    pub(super) fn see(&mut self, datagram: &[u8]) -> bool {
        self.datagrams += 1;
        self.note(datagram, false)
    }

    /// Notes what is in a datagram that went through.
    pub(super) fn pass(&mut self, datagram: &[u8]) {
        self.note(datagram, true);
    }

    fn note(&mut self, datagram: &[u8], passed: bool) -> bool {
        let mut has_options = false;
        let mut packets = Packets::new(datagram, MAX_PACKET_BYTES);
        while let Some(Ok(bytes)) = packets.next_with(Ok) {
            match Packet::decode(bytes) {
                Ok(Packet::Event(event)) => self.events.note((event.stamp.stream.0, event.stamp.counter.0), passed),
                Ok(Packet::Metadata(metadata)) => {
                    has_options = true;
                    // Progress is never repeated: one that is lost is followed by another.
                    if metadata.name != "progress" {
                        self.options.note(Fingerprint::of(bytes).0, passed);
                    }
                }
                Err(_) => break,
            }
        }
        has_options
    }
}
