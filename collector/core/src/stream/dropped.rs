//! What the agent says it dropped, before the stream has come there.

use std::collections::BTreeMap;

use codec::Position;

use crate::Cause;

/// Ranges that will not come, by their first position. No two overlap.
#[derive(Debug, Default)]
pub(super) struct DroppedRanges(BTreeMap<Position, (Position, Cause)>);

impl DroppedRanges {
    /// How many ranges are remembered. Those beyond are found missing like any other.
    const MAX: usize = 4096;

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The events from `first` to `end` were dropped. What is known already stays as it is.
    pub(super) fn insert(&mut self, first: Position, end: Position, cause: Cause) {
        let mut from = first;
        while from < end && self.0.len() < Self::MAX {
            from = match self.at(from) {
                Some((known, _)) => known,
                None => {
                    let until = self.after(from).map_or(end, |next| next.min(end));
                    self.0.insert(from, (until, cause.clone()));
                    until
                }
            };
        }
    }

    /// Where the range ends that holds `position`, if one does.
    pub(super) fn at(&self, position: Position) -> Option<(Position, Cause)> {
        let (_, (end, cause)) = self.0.range(..=position).next_back()?;
        (*end > position).then(|| (*end, cause.clone()))
    }

    /// Where the next range begins behind `position`.
    pub(super) fn after(&self, position: Position) -> Option<Position> {
        self.0.range(position..).map(|(first, _)| *first).find(|first| *first > position)
    }

    /// Drops the ranges that end before `position`.
    pub(super) fn forget_before(&mut self, position: Position) {
        while let Some(first) = self.0.first_entry() {
            if first.get().0 > position {
                return;
            }
            first.remove();
        }
    }
}
