//! Events that wait for one that is missing.

use std::{collections::BTreeMap, time::Duration};

use codec::{Position, SessionNs};

use super::Events;

/// Events that have arrived before one that they follow, packet by packet. No two overlap.
#[derive(Debug, Default)]
pub(super) struct ReorderBuffer(BTreeMap<Position, HeldEvents>);

/// Events of one packet that wait. They own its bytes: a slice would keep the whole buffer that it came in.
#[derive(Debug)]
pub(super) struct HeldEvents {
    packet: Box<[u8]>,
    skip: u32,
    count: u32,
    total: u32,
    pub(super) end: SessionNs,
    arrived: Duration,
}

impl HeldEvents {
    pub(super) fn new(events: &Events<'_>, end: SessionNs, arrived: Duration) -> Self {
        let Events { packet, skip, count, total } = *events;
        Self { packet: packet.into(), skip, count, total, end, arrived }
    }

    pub(super) fn events(&self) -> Events<'_> {
        Events { packet: &self.packet, skip: self.skip, count: self.count, total: self.total }
    }
}

/// The memory that a waiting packet takes, roughly.
pub(super) fn charge(packet: &[u8]) -> usize {
    packet.len() + 112
}

impl ReorderBuffer {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many packets wait.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Keeps events, of which none waits already.
    pub(super) fn insert(&mut self, position: Position, events: HeldEvents) {
        self.0.insert(position, events);
    }

    /// Takes out the first packet, if its events start here or before.
    pub(super) fn take(&mut self, position: Position) -> Option<(Position, HeldEvents)> {
        let first = self.0.first_entry()?;
        (*first.key() <= position).then(|| first.remove_entry())
    }

    /// Drops everything, and tells how much memory that was charged with.
    pub(super) fn clear(&mut self) -> usize {
        std::mem::take(&mut self.0).into_values().map(|events| charge(&events.packet)).sum()
    }

    /// Where the first event lies.
    pub(super) fn first(&self) -> Option<Position> {
        self.0.first_key_value().map(|(position, _)| *position)
    }

    /// Where the first event lies and when it arrived.
    pub(super) fn oldest(&self) -> Option<(Position, Duration)> {
        self.0.first_key_value().map(|(position, event)| (*position, event.arrived))
    }

    /// The ranges that wait, from the first on.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (Position, Position)> {
        self.0.iter().map(|(first, events)| (*first, end_of(*first, events)))
    }

    /// The first part of a range that does not wait here.
    pub(super) fn first_hole(&self, mut first: Position, end: Position) -> Option<(Position, Position)> {
        let before = self.0.range(..=first).next_back().map(|(first, events)| end_of(*first, events));
        first = first.max(before.unwrap_or(first));
        for (next, events) in self.0.range(first..) {
            if first < *next {
                return Some((first, end.min(*next))).filter(|(first, end)| first < end);
            }
            first = end_of(*next, events);
        }
        Some((first, end)).filter(|(first, end)| first < end)
    }
}

fn end_of(first: Position, events: &HeldEvents) -> Position {
    Position(first.0.saturating_add(events.count.into()))
}
