//! Streams that a session has too many of: nothing of them is kept but how many events they have.

use std::collections::HashMap;

use codec::{Position, StreamId, profile::Dropped};

/// Streams beyond the limit, and how far each has come by its agent's account.
#[derive(Debug, Default)]
pub(crate) struct RefusedStreams {
    streams: HashMap<StreamId, Refused>,
    /// How many events they have, and how many of those the agent dropped.
    produced: u64,
    dropped: u64,
    /// Events of streams that nobody numbers, or that there are too many of even for this.
    uncounted: u64,
}

#[derive(Debug, Default)]
struct Refused {
    /// Where the stream stands: everything before it was sent or dropped.
    next: Position,
    /// Up to where the agent has told what it dropped.
    told: Position,
}

impl RefusedStreams {
    /// Whether a stream is one of them.
    pub(crate) fn contains(&self, stream: StreamId) -> bool {
        self.streams.contains_key(&stream)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Refuses a stream from now on.
    pub(crate) fn add(&mut self, stream: StreamId) {
        self.streams.entry(stream).or_default();
    }

    /// Events have arrived that nobody will account for otherwise.
    pub(crate) fn count(&mut self, events: u64) {
        self.uncounted = self.uncounted.saturating_add(events);
    }

    /// A stream has come so far.
    pub(crate) fn reached(&mut self, stream: StreamId, next: Position) {
        if let Some(refused) = self.streams.get_mut(&stream).filter(|refused| next > refused.next) {
            self.produced = self.produced.saturating_add(next.0 - refused.next.0);
            refused.next = next;
        }
    }

    /// The agent has dropped events of a stream, which it counts itself.
    pub(crate) fn dropped(&mut self, drop: &Dropped<'_>) {
        let Some(refused) = self.streams.get_mut(&drop.stream).filter(|refused| drop.first >= refused.told) else {
            return;
        };
        let end = Position(drop.first.0.saturating_add(drop.count));
        refused.told = end;
        self.dropped = self.dropped.saturating_add(drop.count);
        self.reached(drop.stream, end);
    }

    /// Where a stream stands.
    pub(crate) fn next(&self, stream: StreamId) -> Option<Position> {
        self.streams.get(&stream).map(|refused| refused.next)
    }

    /// Where all of them stand.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (StreamId, Position)> {
        self.streams.iter().map(|(stream, refused)| (*stream, refused.next))
    }

    /// How many events were refused.
    pub(crate) fn events(&self) -> u64 {
        self.produced.saturating_sub(self.dropped).saturating_add(self.uncounted)
    }
}
