//! What a sink was not given, and has yet to be told that it was not.

use std::collections::{BTreeMap, HashMap};

use codec::{Position, StreamId};
use collector_core::{Cause, Gap, Session};

/// Gaps that a sink does not know of yet, by session and stream.
///
/// While nothing of a stream comes through, what it misses is one range, so this grows with the streams and not with
/// the events.
#[derive(Debug, Default)]
pub(super) struct UnreportedGaps {
    sessions: HashMap<String, BTreeMap<StreamId, Range>>,
}

/// What is missing of a stream without an event between.
#[derive(Debug)]
struct Range {
    first: Position,
    /// How many by each cause. Which event is missing for which is not remembered.
    counts: BTreeMap<Cause, u64>,
}

impl Range {
    /// As gaps, one for each cause.
    fn gaps(self, stream: StreamId) -> impl Iterator<Item = Gap> {
        let mut next = self.first;
        self.counts.into_iter().map(move |(cause, count)| {
            let first = next;
            next.0 = next.0.saturating_add(count);
            Gap { stream, first, count, cause }
        })
    }
}

impl UnreportedGaps {
    pub(super) fn add(&mut self, session: &Session, stream: StreamId, first: Position, count: u64, cause: &Cause) {
        if !self.sessions.contains_key(&session.name) {
            self.sessions.insert(session.name.clone(), BTreeMap::new());
        }
        let Some(gaps) = self.sessions.get_mut(&session.name) else { return };
        let range = gaps.entry(stream).or_insert_with(|| Range { first, counts: BTreeMap::new() });
        let missing = range.counts.entry(cause.clone()).or_default();
        *missing = missing.saturating_add(count);
    }

    /// Takes out the gaps of a session.
    pub(super) fn take(&mut self, session: &Session) -> impl Iterator<Item = Gap> + use<> {
        let gaps = if self.sessions.is_empty() { None } else { self.sessions.remove(&session.name) };
        gaps.unwrap_or_default().into_iter().flat_map(|(stream, range)| range.gaps(stream))
    }
}
