//! What a thread remembers of the watched calls that it is in.

use crate::shared::Watched;

/// How many watched calls a thread can be in at once. Of the outermost ones beyond that, the return is not told.
const NOTES: usize = 24;

/// What a thread remembers.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::target) struct Notes {
    /// The calls, in no order. Those that are over are `None`.
    calls: [Option<Note>; NOTES],
    /// Where the return address of the start routine is, once it is entered.
    pub(super) routine_slot: usize,
    /// What the thread is busy with, and what the outside was told last.
    pub(super) substream: u64,
    pub(super) told_substream: u64,
    /// The task that was seen to complete last.
    pub(super) completed: u64,
    /// For how many calls the function is looked for that runs this job, and who calls it.
    pub(super) seeking: u32,
    pub(super) sought_job: u64,
    pub(super) sought_by: usize,
    /// What r13 held at the last entry that took the slow way: Swift passes errors in it.
    pub(in crate::target) error: u64,
    /// The path of the program that a child is being forked for, by Go.
    pub(in crate::target) program: u64,
}

/// A watched call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Note {
    /// Where its return address is.
    pub(super) slot: usize,
    /// When it was entered.
    pub(super) entered: u64,
    pub(super) watched: Watched,
    /// What it was called with, or what else will be needed when it is left.
    pub(super) arguments: [u64; 6],
}

impl Notes {
    /// Adds a call, in place of one that had the same slot, or of the oldest.
    pub(super) fn add(&mut self, note: Note) {
        let same = |known: &Option<Note>| known.is_some_and(|known| known.slot == note.slot);
        let free = self.calls.iter().position(same).or_else(|| self.calls.iter().position(Option::is_none));
        let place = free.unwrap_or_else(|| self.outermost());
        self.calls[place] = Some(note);
    }

    fn outermost(&self) -> usize {
        let entered = |place: &usize| self.calls[*place].map_or(0, |note| note.entered);
        (0..NOTES).min_by_key(entered).unwrap_or(0)
    }

    /// Removes the call that has this slot.
    pub(super) fn take(&mut self, slot: usize) -> Option<Note> {
        self.calls.iter_mut().find(|note| note.is_some_and(|note| note.slot == slot))?.take()
    }

    /// Whether any call may be one that is looked for.
    pub(in crate::target) fn is_seeking(&self) -> bool {
        self.seeking > 0
    }

    /// Whether there is a call with this slot.
    pub(super) fn is_noted(&self, slot: usize) -> bool {
        self.calls.iter().flatten().any(|note| note.slot == slot)
    }

    /// The call that was entered last, of those that are wanted.
    pub(super) fn last(&self, wanted: impl Fn(&Note) -> bool) -> Option<Note> {
        self.calls.iter().flatten().filter(|note| wanted(note)).max_by_key(|note| note.entered).copied()
    }
}
