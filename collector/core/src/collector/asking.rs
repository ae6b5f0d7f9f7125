//! Asking agents for something while they trace.

use std::time::Duration;

use codec::{SessionId, profile::MAX_REQUEST_BYTES};

use super::Collector;
use crate::{
    NotAsked,
    asks::{Answered, Listed},
};

impl Collector {
    /// Asks the agent of a session for something, again and again until it has [answered](Self::poll_answer), the session has
    /// ended, or it [need not any more](Self::withdraw). No agent may have been asked anything by this number before.
    pub fn ask(&mut self, now: Duration, id: SessionId, number: u64, request: &str) -> Result<(), NotAsked> {
        if request.len() > MAX_REQUEST_BYTES {
            return Err(NotAsked::TooLong);
        }
        let key = self.by_id.get(&id).copied();
        let Some(session) = key.and_then(|key| self.sessions.get_mut(&key)) else {
            return Err(match (self.past.is_over(id), self.past.may_return(id)) {
                (true, _) => NotAsked::Ended,
                (false, true) => NotAsked::Lost,
                (false, false) => NotAsked::Unknown,
            });
        };
        session.ask(number, request, now)?;
        self.touched.extend(key);
        Ok(())
    }

    /// Nobody waits for an answer any more.
    pub fn withdraw(&mut self, id: SessionId, number: u64) {
        if let Some(session) = self.by_id.get(&id).and_then(|key| self.sessions.get_mut(key)) {
            session.asks.remove(number);
        }
    }

    /// What came of a request.
    pub fn poll_answer(&mut self) -> Option<Answered> {
        self.shared.answers.pop_front()
    }

    /// The sessions whose agents can be asked, and those that could be.
    pub fn sessions(&self, now: Duration) -> impl Iterator<Item = Listed> {
        let open = self.sessions.values().filter_map(move |state| {
            let heard_ago = if state.has_ended() { Err(NotAsked::Ended) } else { Ok(now.saturating_sub(state.heard)) };
            Some(Listed { id: state.id?, session: state.session(), heard_ago })
        });
        let past = self.past.iter().filter_map(|(state, over)| {
            let why = if over { NotAsked::Ended } else { NotAsked::Lost };
            Some(Listed { id: state.id?, session: state.session(), heard_ago: Err(why) })
        });
        open.chain(past)
    }
}
