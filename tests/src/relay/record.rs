//! What a relay has seen, and what it let through.

use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
};

use codec::{
    heph::{MAX_PACKET_BYTES, Packets},
    profile::{Fingerprint, Known, Message, ProfileOption},
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

/// What a packet holds.
enum Contents {
    /// Events of one stream, from a counter on.
    Events { stream: u32, first: u32, count: u32 },
    /// A `progress`, which is never repeated: one that is lost is followed by another.
    Progress,
    /// Another option.
    Option(u64),
}

impl Contents {
    fn of(packet: &[u8]) -> Option<Self> {
        let (stamp, count) = match Message::decode(packet).ok()? {
            Message::Function(event) => (event.stamp, 1),
            Message::Runtime(event) => (event.stamp, 1),
            Message::Event(event) => (event.stamp, 1),
            Message::Run(run) => (run.stamp, run.count),
            Message::Option(Known { option: ProfileOption::Progress(_), .. }) => return Some(Self::Progress),
            _ => return Some(Self::Option(Fingerprint::of(packet).0)),
        };
        Some(Self::Events { stream: stamp.stream.0, first: stamp.counter.0, count })
    }
}

/// The packets of a datagram, up to the first that is none.
fn packets(datagram: &[u8]) -> Vec<(&[u8], Contents)> {
    let mut packets = Packets::new(datagram, MAX_PACKET_BYTES);
    let all = std::iter::from_fn(|| packets.next_with(Ok)?.ok());
    all.map_while(|packet| Some((packet, Contents::of(packet)?))).collect()
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

    /// A datagram without the packets that came before and did not go through.
    pub(super) fn without_lost(&self, datagram: &[u8]) -> Vec<u8> {
        let is_lost = |contents: &Contents| match *contents {
            Contents::Events { stream, first, count } => {
                (0..count).any(|at| self.events.0.get(&(stream, first.wrapping_add(at))) == Some(&false))
            }
            _ => false,
        };
        let kept = packets(datagram).into_iter().filter(|(_, contents)| !is_lost(contents));
        kept.flat_map(|(packet, _)| packet).copied().collect()
    }

    fn note(&mut self, datagram: &[u8], passed: bool) -> bool {
        let mut has_options = false;
        for (_, contents) in packets(datagram) {
            match contents {
                Contents::Events { stream, first, count } => {
                    (0..count).for_each(|at| self.events.note((stream, first.wrapping_add(at)), passed));
                }
                Contents::Progress => has_options = true,
                Contents::Option(fingerprint) => {
                    has_options = true;
                    self.options.note(fingerprint, passed);
                }
            }
        }
        has_options
    }
}
