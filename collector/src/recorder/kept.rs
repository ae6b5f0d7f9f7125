//! What the sinks have written: what the agents need not keep any longer.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use codec::{Position, SessionId, StreamId};
use collector_core::{Cause, How, Output};
use sinks::Session;

/// How far streams of a session have come.
type Positions = HashMap<StreamId, Position>;

/// What is kept of a session, and what was lost of that, by cause.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) session: Arc<Session>,
    pub(crate) positions: Positions,
    pub(crate) lost: BTreeMap<Cause, u64>,
    /// What it is found by and how it ended, if that is all.
    pub(crate) ended: Option<(Option<SessionId>, How)>,
}

/// What the sinks of one recorder were given of a session.
#[derive(Debug)]
struct Given {
    session: Arc<Session>,
    positions: Positions,
    ended: Option<(Option<SessionId>, How)>,
}

/// What all recorders have written, until the receiver takes it.
#[derive(Debug, Default)]
pub(crate) struct KeptPositions(Mutex<Vec<Kept>>);

impl KeptPositions {
    pub(crate) fn take(&self) -> Vec<Kept> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What the sinks of one recorder have been given and may still have in memory.
#[derive(Debug)]
pub(super) struct Recorded {
    /// By their addresses.
    sessions: HashMap<usize, Given>,
    kept: Arc<KeptPositions>,
}

impl Recorded {
    pub(super) fn new(kept: &Arc<KeptPositions>) -> Self {
        Self { sessions: HashMap::new(), kept: Arc::clone(kept) }
    }

    /// The sinks have been given this.
    pub(super) fn add(&mut self, output: &Output) {
        match output {
            Output::Events(batch) => {
                let positions = &mut self.given(&batch.session).positions;
                for run in &batch.runs {
                    positions.insert(run.stream, Position(run.first.0.saturating_add(run.events.into())));
                }
            }
            // What was given up for now is with the agent.
            Output::Gap(_, gap) if gap.cause.is_provisional() => {}
            Output::Gap(session, gap) => {
                let end = Position(gap.first.0.saturating_add(gap.count));
                self.given(session).positions.insert(gap.stream, end);
            }
            Output::Ended(session, summary) => self.given(session).ended = Some((summary.name, summary.how)),
            Output::Started(_) | Output::Resumed(_) | Output::Options(..) | Output::Ending(..) => {}
        }
    }

    /// What the sinks were given of this session is not kept, but left to its agent.
    pub(super) fn forget(&mut self, session: &Arc<Session>) {
        self.sessions.remove(&(Arc::as_ptr(session) as usize));
    }

    fn given(&mut self, session: &Arc<Session>) -> &mut Given {
        let entry = self.sessions.entry(Arc::as_ptr(session) as usize);
        entry.or_insert_with(|| Given { session: Arc::clone(session), positions: Positions::new(), ended: None })
    }

    /// The sinks have written all that they were given, but for what `lost` tells of a session.
    pub(super) fn is_kept(&mut self, lost: impl Fn(&Session) -> BTreeMap<Cause, u64>) {
        if !self.sessions.is_empty() {
            let mut kept = self.kept.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend(self.sessions.drain().map(|(_, Given { session, positions, ended })| {
                let lost = lost(&session);
                Kept { session, positions, lost, ended }
            }));
        }
    }
}
