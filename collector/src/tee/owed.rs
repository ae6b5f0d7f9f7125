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
    sessions: HashMap<String, BTreeMap<StreamId, Gap>>,
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
                self.add(session, gap.stream, gap.first, gap.count, cause);
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
        let gap = gaps.entry(stream).or_insert_with(|| Gap { stream, first, count: 0, cause: cause.clone() });
        gap.count += count;
    }

    /// Takes out what is owed to a session.
    pub(super) fn take(&mut self, session: &Session) -> impl Iterator<Item = Gap> + use<> {
        let gaps = if self.sessions.is_empty() { None } else { self.sessions.remove(&session.name) };
        gaps.unwrap_or_default().into_values()
    }
}
