//! What a relay has seen, and what it let through.

use std::collections::{BTreeSet, HashMap};

use codec::{
    heph::{MAX_PACKET_BYTES, Packets},
    profile::Message,
};

/// An event, by stream and counter.
pub(super) type Event = (u32, u32);

/// What came from agents. Of bytes that are no packets it only counts the datagrams.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Whether an event went through.
    events: HashMap<Event, bool>,
    pub(super) datagrams: u64,
    pub(super) datagrams_lost: u64,
}

/// The packets of a datagram, up to the first that is none, each with its events: options have none.
fn packets(datagram: &[u8]) -> Vec<(&[u8], Vec<Event>)> {
    let mut packets = Packets::new(datagram, MAX_PACKET_BYTES);
    let all = std::iter::from_fn(|| packets.next_with(Ok)?.ok());
    all.map_while(|packet| Some((packet, events(packet)?))).collect()
}

fn events(packet: &[u8]) -> Option<Vec<Event>> {
    let (stamp, count) = match Message::decode(packet).ok()? {
        Message::Function(event) => (event.stamp, 1),
        Message::Runtime(event) => (event.stamp, 1),
        Message::Event(event) => (event.stamp, 1),
        Message::Run(run) => (run.stamp, run.count),
        _ => return Some(Vec::new()),
    };
    Some((0..count).map(|at| (stamp.stream.0, stamp.counter.0.wrapping_add(at))).collect())
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

    /// The events of which no copy went through.
    pub(super) fn lost(&self) -> BTreeSet<Event> {
        self.events.iter().filter(|(_, passed)| !**passed).map(|(event, _)| *event).collect()
    }

    /// A datagram without the packets that came before and did not go through.
    pub(super) fn without_lost(&self, datagram: &[u8]) -> Vec<u8> {
        let is_lost = |event: &Event| self.events.get(event) == Some(&false);
        let kept = packets(datagram).into_iter().filter(|(_, events)| !events.iter().any(is_lost));
        kept.flat_map(|(packet, _)| packet).copied().collect()
    }

    fn note(&mut self, datagram: &[u8], passed: bool) -> bool {
        let packets = packets(datagram);
        for (_, events) in &packets {
            events.iter().for_each(|event| *self.events.entry(*event).or_default() |= passed);
        }
        packets.iter().any(|(_, events)| events.is_empty())
    }
}
