//! Events that wait for one that is missing.

use std::{collections::BTreeMap, time::Duration};

use codec::{Position, SessionNs};

use super::Arrival;

/// Events that have arrived before one that they follow.
#[derive(Debug, Default)]
pub(super) struct Held(BTreeMap<Position, HeldEvent>);

/// An event that waits. It owns its bytes: a slice would keep the whole buffer that it came in.
#[derive(Debug)]
pub(super) struct HeldEvent {
    pub(super) packet: Box<[u8]>,
    pub(super) end: SessionNs,
    arrived: Duration,
}

/// The memory that a waiting event takes, roughly.
pub(super) fn charge(packet: &[u8]) -> usize {
    packet.len() + 96
}

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains(&self, position: Position) -> bool {
        self.0.contains_key(&position)
    }

    /// Keeps an event.
    pub(super) fn insert(&mut self, position: Position, arrival: &Arrival<'_>) {
        let event = HeldEvent { packet: arrival.packet.into(), end: arrival.end, arrived: arrival.now };
        self.0.insert(position, event);
    }

    /// Takes out the event at `position`, if it is there.
    pub(super) fn take(&mut self, position: Position) -> Option<HeldEvent> {
        let first = self.0.first_entry()?;
        (*first.key() == position).then(|| first.remove())
    }

    /// Where the first event lies.
    pub(super) fn first(&self) -> Option<Position> {
        self.0.first_key_value().map(|(position, _)| *position)
    }

    /// Where the first event lies and when it arrived.
    pub(super) fn oldest(&self) -> Option<(Position, Duration)> {
        self.0.first_key_value().map(|(position, event)| (*position, event.arrived))
    }

    /// Where all events lie.
    pub(super) fn positions(&self) -> impl Iterator<Item = Position> {
        self.0.keys().copied()
    }
}
