//! What is to be said beside an answer.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use answers::printable;
use codec::quantity::{count, counted};

/// How many sessions of a kind are told one by one.
const MOST: usize = 4;

/// What an answer lacks, by session.
#[derive(Debug, Default)]
pub struct Notes(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    /// What cannot be read.
    damaged: BTreeMap<String, String>,
    /// Sessions without a table of spans.
    without: BTreeMap<String, String>,
    /// How many events are missing.
    missing: BTreeMap<String, u64>,
}

impl Notes {
    /// Something of a session cannot be read, and is not in the answer.
    pub(crate) fn damaged(&self, session: &str, what: String) {
        self.told().damaged.insert(session.into(), what);
    }

    /// A session has no table of spans.
    pub(crate) fn without(&self, session: &str, why: String) {
        self.told().without.insert(session.into(), why);
    }

    /// Events of a session are missing.
    pub(crate) fn missing(&self, session: &str, events: u64) {
        if events > 0 {
            self.told().missing.insert(session.into(), events);
        }
    }

    /// Whether everything that was asked about could be read.
    pub fn is_whole(&self) -> bool {
        self.told().damaged.is_empty()
    }

    /// Lines for people.
    pub fn lines(&self) -> Vec<String> {
        let told = self.told();
        let mut lines = Vec::new();
        let missing = told.missing.values().fold(0, |sum: u64, events| sum.saturating_add(*events));
        if missing > 0 {
            lines.push(format!(
                "{} of {} are missing: numbers are of what is there; the table `gaps` has the causes",
                counted(missing, "event"),
                counted(told.missing.len() as u64, "session"),
            ));
        }
        add(&mut lines, &told.without, "are without a table of spans, and left out");
        add(&mut lines, &told.damaged, "cannot be read, and are left out");
        lines
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(lines: &mut Vec<String>, sessions: &BTreeMap<String, String>, what: &str) {
    let first = sessions.iter().take(MOST);
    lines.extend(first.map(|(session, why)| format!("{}: {}", printable(session), printable(why))));
    if sessions.len() > MOST {
        lines.push(format!("{} more {what}", count((sessions.len() - MOST) as u64)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_sessions_are_told_one_by_one_and_the_others_are_counted() {
        let notes = Notes::default();
        assert!(notes.is_whole() && notes.lines().is_empty());
        for session in 0..1000 {
            notes.without(&format!("s{session:04}"), "no\ntable".into());
            notes.missing(&format!("s{session:04}"), session % 2);
        }
        let lines = notes.lines();
        assert_eq!(lines.len(), MOST + 2, "{lines:?}");
        assert!(lines[0].starts_with("500 events of 500 sessions are missing"), "{}", lines[0]);
        assert_eq!((lines[1].as_str(), notes.is_whole()), ("s0000: no\\ntable", true));
        assert!(lines[MOST + 1].starts_with("996 more are without"), "{}", lines[MOST + 1]);
        notes.damaged("s1", "gone".into());
        assert!(!notes.is_whole());
    }
}
