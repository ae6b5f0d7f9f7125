//! What the notes in a journal come to: where streams begin, what is missing, what was given up.

use std::collections::{BTreeMap, HashMap};

use codec::{
    ClockKind, Position, SessionNs, StreamId,
    atf::{FunctionEntry, GapEntry, Manifest},
    profile::{EndReason, ProfileOption, StreamPosition},
};

use super::{
    journal::{Note, StreamEnd},
    session::Zero,
};
use crate::Cause;

/// What was noted of a part.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// The gaps of each stream, in order.
    pub(super) gaps: BTreeMap<u32, Vec<GapEntry>>,
    /// The positions at which streams begin in this part.
    pub(super) firsts: HashMap<u32, u64>,
    /// How far streams had come that the collector had to give up, why, and how many there were.
    pub(super) ends: BTreeMap<u32, StreamEnd>,
    pub(super) cause: String,
    pub(super) threads: u64,
    pub(super) zero: Option<Zero>,
    /// The functions of module 0.
    pub(super) functions: Vec<FunctionEntry>,
    /// How the session ended, by its agent's account, when, and where its streams ended.
    pub(super) told_end: Option<(EndReason, SessionNs)>,
    pub(super) told_ends: BTreeMap<StreamId, Position>,
}

impl Notes {
    pub(super) fn take(&mut self, note: Note) {
        match note {
            Note::Gap(gap) => self.gaps.entry(gap.thread).or_default().push(gap),
            Note::Zero { zero_ns, clock } => {
                self.zero = Some(Zero { zero_ns, clock: Some(clock).filter(|clock| *clock > 0).map(Into::into) });
            }
            Note::Function(made) => self.functions.push(made),
            Note::First { stream, first } => _ = self.firsts.insert(stream, first),
            Note::Cut { stream, at_index } => {
                self.gaps.entry(stream).or_default().retain(|gap| gap.at_index.unwrap_or(0) <= at_index);
            }
            Note::Resumed => self.resume(),
            Note::Next { ends, cause, threads } => {
                (self.cause, self.threads) = (cause, threads);
                for end in ends {
                    self.ends.insert(end.0, end);
                    self.firsts.insert(end.0, end.1);
                }
            }
        }
    }

    /// Takes an option of the agent's, which is not a note but may say how far streams have come.
    pub(super) fn take_option(&mut self, option: &ProfileOption<'_>) {
        if let ProfileOption::End(end) = option {
            self.told_end = Some((end.reason, end.at));
            self.told_ends.extend(end.streams.into_iter().map(|StreamPosition { stream, next }| (stream, next)));
        }
    }

    /// The session goes on: its agent still has what was given up for now.
    pub(super) fn resume(&mut self) {
        for gaps in self.gaps.values_mut() {
            gaps.pop_if(|gap| Cause::from(gap.cause.as_str()).is_provisional());
        }
        if Cause::from(self.cause.as_str()).is_provisional() {
            self.ends.clear();
            (self.cause, self.threads) = (String::new(), 0);
        }
    }
}

/// The notes that the journal of a finished part would have.
pub(super) fn notes_of(manifest: &Manifest) -> Vec<Note> {
    let clock = manifest.clock.as_deref().unwrap_or_default();
    let clock = (1..=u8::MAX).find(|number| ClockKind::from(*number).name() == clock).unwrap_or(0);
    let mut notes = vec![Note::Zero { zero_ns: manifest.clock_zero_ns.unwrap_or(0), clock }];
    let firsts = manifest.threads.iter().filter_map(|thread| Some((thread.id, thread.first?)));
    notes.extend(firsts.map(|(stream, first)| Note::First { stream, first }));
    let made = manifest.functions.iter().filter(|function| function.id >> 32 == 0);
    notes.extend(made.cloned().map(Note::Function));
    notes.extend(manifest.gaps.iter().cloned().map(Note::Gap));
    notes.push(Note::Resumed);
    notes
}
