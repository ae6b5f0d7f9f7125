//! Sessions that have ended, for a while.

use std::collections::{HashMap, VecDeque};

use codec::SessionId;

use crate::session_state::SessionState;

/// How many are remembered.
const MAX: usize = 256;

/// How many are remembered at most that still have to tell their agents that they are over.
const MAX_UNTOLD: usize = 4096;

/// How many streams they may have together.
const MAX_STREAMS: usize = 65_536;

/// What is remembered of sessions that have ended: an agent may not have heard that its end has arrived, and one
/// with which contact was lost may come back.
#[derive(Debug, Default)]
pub(crate) struct Past {
    sessions: HashMap<SessionId, Ended>,
    order: VecDeque<SessionId>,
    streams: usize,
}

#[derive(Debug)]
struct Ended {
    session: SessionState,
    /// Whether it ended by its own account, and so will not come back.
    over: bool,
}

impl Past {
    pub(crate) fn remember(&mut self, id: SessionId, session: SessionState, over: bool) {
        self.streams += session.stream_count();
        if let Some(old) = self.sessions.insert(id, Ended { session, over }) {
            self.streams -= old.session.stream_count();
        } else {
            self.order.push_back(id);
        }
        // The last one is remembered whatever it has: it was open a moment ago, and its agent waits for an answer.
        while self.streams > MAX_STREAMS && self.order.len() > 1 {
            self.forget_at(0);
        }
        while self.order.len() > MAX {
            let told = self.order.iter().position(|id| !self.has_to_tell(*id));
            if told.is_none() && self.order.len() <= MAX_UNTOLD {
                return;
            }
            self.forget_at(told.unwrap_or(0));
        }
    }

    /// Whether the agent of a session waits to be told that it is over.
    fn has_to_tell(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|ended| ended.session.has_to_tell_end())
    }

    fn forget_at(&mut self, at: usize) {
        if let Some(id) = self.order.remove(at) {
            self.forget(id);
        }
    }

    /// Whether this session has ended by its own account.
    pub(crate) fn is_over(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|ended| ended.over)
    }

    /// Whether contact with this session was lost.
    pub(crate) fn may_return(&self, id: SessionId) -> bool {
        self.sessions.get(&id).is_some_and(|ended| !ended.over)
    }

    /// All that are remembered, and whether each has ended by its own account.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&SessionState, bool)> {
        self.sessions.values().map(|ended| (&ended.session, ended.over))
    }

    pub(crate) fn session(&self, id: SessionId) -> Option<&SessionState> {
        self.sessions.get(&id).map(|ended| &ended.session)
    }

    pub(crate) fn session_mut(&mut self, id: SessionId) -> Option<&mut SessionState> {
        self.sessions.get_mut(&id).map(|ended| &mut ended.session)
    }

    /// A session that goes on.
    pub(crate) fn resume(&mut self, id: SessionId) -> Option<SessionState> {
        self.order.retain(|known| *known != id);
        self.forget(id)
    }

    fn forget(&mut self, id: SessionId) -> Option<SessionState> {
        let ended = self.sessions.remove(&id)?;
        self.streams -= ended.session.stream_count();
        Some(ended.session)
    }
}
