//! What a sink was not given, and has yet to be told that it was not.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use codec::{Position, StreamId};
use sinks::{Gap, Session};

use super::Item;

/// Gaps that a sink has not been told of, by session and stream.
///
/// While nothing of a stream comes through, what it misses is one range, so this grows with the streams and not with
/// the events.
#[derive(Debug, Default)]
pub(super) struct Owed {
    sessions: HashMap<String, BTreeMap<StreamId, Range>>,
}

/// What is missing of a stream without an event between.
#[derive(Debug)]
struct Range {
    first: Position,
    /// How many by each cause. Which event is missing for which is not remembered.
    counts: BTreeMap<Arc<str>, u64>,
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

impl Owed {
    /// Enters what an item would have told. Returns how many events that are.
    pub(super) fn enter(&mut self, item: &Item, cause: &Arc<str>) -> u64 {
        match item {
            Item::Events(batch) => {
                for run in &batch.runs {
                    self.add(&batch.session, run.stream, run.first, run.events.into(), cause);
                }
                batch.events()
            }
            Item::Gap(session, gap) => {
                self.add(session, gap.stream, gap.first, gap.count, &gap.cause);
                0
            }
            Item::Started(_) | Item::Options(..) | Item::Ended(..) => 0,
        }
    }

    fn add(&mut self, session: &Session, stream: StreamId, first: Position, count: u64, cause: &Arc<str>) {
        if !self.sessions.contains_key(&session.name) {
            self.sessions.insert(session.name.clone(), BTreeMap::new());
        }
        let Some(gaps) = self.sessions.get_mut(&session.name) else { return };
        let range = gaps.entry(stream).or_insert_with(|| Range { first, counts: BTreeMap::new() });
        let missing = range.counts.entry(cause.clone()).or_default();
        *missing = missing.saturating_add(count);
    }

    /// How many gaps are owed to a session.
    pub(super) fn count(&self, session: &Session) -> usize {
        self.sessions.get(&session.name).map_or(0, |gaps| gaps.values().map(|range| range.counts.len()).sum())
    }

    /// Takes out what is owed to a session.
    pub(super) fn take(&mut self, session: &Session) -> impl Iterator<Item = Gap> + use<> {
        let gaps = if self.sessions.is_empty() { None } else { self.sessions.remove(&session.name) };
        gaps.unwrap_or_default().into_iter().flat_map(|(stream, range)| range.gaps(stream))
    }
}
