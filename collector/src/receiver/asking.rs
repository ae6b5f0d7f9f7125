//! Asking agents for something, and waiting for what they answer.

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{self, Sender},
    },
    time::Duration,
};

use codec::SessionId;
use collector_core::{Answered, Listed, NotAsked, Told};
use ring::rand::{SecureRandom, SystemRandom};

use super::{Receiver, State};

/// Who waits for answers, by the numbers of what they have asked for.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<HashMap<u64, Sender<Told>>>);

impl Waiting {
    fn senders(&self) -> MutexGuard<'_, HashMap<u64, Sender<Told>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells who waits what came of it.
    pub(super) fn tell(&self, Answered { number, told }: Answered) {
        if let Some(sender) = self.senders().remove(&number) {
            // Who has waited may have given up just now.
            _ = sender.send(told);
        }
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The agent was not asked.
    NotAsked(NotAsked),
    /// It was, and has said nothing in time.
    Silence,
    /// The system has no random numbers.
    NoNumber,
}

impl Receiver {
    /// Asks the agent of a session for something, and waits for the answer for so long. Not to be called by who must not wait.
    pub(crate) fn ask(&self, id: SessionId, request: &str, patience: Duration) -> Result<Told, NoAnswer> {
        let mut bytes = [0; 8];
        // An agent that another collector has asked before must not take this for something that it has done.
        SystemRandom::new().fill(&mut bytes).map_err(|_| NoAnswer::NoNumber)?;
        let number = u64::from_be_bytes(bytes);
        let (tell, told) = mpsc::channel();
        self.waiting.senders().insert(number, tell);
        let asked = self.with_core(|state, now| state.core.ask(now, id, number, request));
        let answer = match asked {
            Ok(()) => told.recv_timeout(patience).map_err(|_| NoAnswer::Silence),
            Err(why) => Err(NoAnswer::NotAsked(why)),
        };
        self.waiting.senders().remove(&number);
        if answer == Err(NoAnswer::Silence) {
            self.with_core(|state, _| state.core.withdraw(id, number));
        }
        answer
    }

    /// The sessions whose agents can be asked, and those that could be.
    pub(crate) fn sessions(&self) -> Vec<Listed> {
        self.with_core(|state, now| state.core.sessions(now).collect())
    }

    fn with_core<T>(&self, act: impl FnOnce(&mut State, Duration) -> T) -> T {
        let mut state = self.state();
        let now = state.now();
        let result = act(&mut state, now);
        self.pump(&mut state);
        result
    }
}
