//! What an agent is asked, until it has answered.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use codec::SessionId;

use crate::Session;

/// How many requests to one agent may be open.
pub(crate) const MAX_OPEN: usize = 16;

/// How long an answer is waited for before the agent is asked again: a datagram may be lost, and a connection may end.
const AGAIN: Duration = Duration::from_millis(250);

/// What came of a request to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// The number of the request.
    pub number: u64,
    /// What the agent has told, if it has.
    pub told: Told,
}

/// What an agent has told, be it nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// It was done, and this came of it.
    Done(String),
    /// It was not done, for this reason.
    Refused(String),
    /// Nothing: the session has ended before.
    Nothing,
}

/// Why an agent cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAsked {
    /// There is no such session.
    Unknown,
    /// The session has ended.
    Ended,
    /// Contact with it was lost, so that it counts as ended. It may come back.
    Lost,
    /// Enough is asked of it already.
    TooMany,
    /// The request is too long.
    TooLong,
}

/// A session that speaks the profile, open or past.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its id.
    pub id: SessionId,
    /// What is known of it. Nothing but its name, where it has ended.
    pub session: Arc<Session>,
    /// How long ago it was heard from, where its agent can be asked; or else why not.
    pub heard_ago: Result<Duration, NotAsked>,
}

/// The requests to one agent that it has not answered.
#[derive(Debug, Default)]
pub(crate) struct Asks(BTreeMap<u64, Ask>);

#[derive(Debug)]
struct Ask {
    packet: Bytes,
    /// When it is sent next.
    next: Duration,
}

impl Asks {
    /// Asks for something. Not if too much is open.
    pub(crate) fn add(&mut self, number: u64, packet: Bytes, now: Duration) -> bool {
        let has_room = self.0.len() < MAX_OPEN;
        if has_room {
            self.0.insert(number, Ask { packet, next: now });
        }
        has_room
    }

    /// A request is over. Whether it was open.
    pub(crate) fn remove(&mut self, number: u64) -> bool {
        self.0.remove(&number).is_some()
    }

    /// The requests that are to be sent now.
    pub(crate) fn due(&mut self, now: Duration) -> Vec<Bytes> {
        let due = self.0.values_mut().filter(|ask| ask.next <= now);
        due.map(|ask| {
            ask.next = now + AGAIN;
            ask.packet.clone()
        })
        .collect()
    }

    /// Takes out the numbers of all that are open.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = u64> + use<> {
        std::mem::take(&mut self.0).into_keys()
    }
}
