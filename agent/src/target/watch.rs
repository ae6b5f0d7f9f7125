//! Functions of which more is told than that they were called: those of runtimes, with the keys that join one event to
//! another.

mod pthread;

use super::{shadow::Entry, thread::Thread};
use crate::shared::{Kind, MAX_KEYS, Watched, header};
use codec::{EventKind, profile::Key};

/// For how many calls a new thread looks for the routine that it was started with. Before it come only the few
/// functions of the thread library that call it.
pub(super) const LOOK_FOR_ROUTINE: u32 = 64;

/// How many watched calls a thread can be in at once.
const NOTES: usize = 16;

/// What a thread remembers of the watched calls that it is in.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Notes {
    calls: [Note; NOTES],
    next: usize,
    /// Where the return address of the start routine is, once it is entered.
    routine_slot: usize,
}

/// A watched call: the arguments it was made with.
#[derive(Debug, Clone, Copy, Default)]
struct Note {
    slot: usize,
    arguments: [u64; 6],
}

impl Notes {
    fn add(&mut self, slot: usize, arguments: [u64; 6]) {
        self.calls[self.next % NOTES] = Note { slot, arguments };
        self.next = self.next.wrapping_add(1);
    }

    fn take(&mut self, slot: usize) -> Option<[u64; 6]> {
        let note = self.calls.iter_mut().find(|note| note.slot == slot)?;
        note.slot = 0;
        Some(note.arguments)
    }
}

/// A call was entered: a watched one, or any one on a thread whose start routine is still to be seen.
pub(super) fn entered(thread: &mut Thread, arguments: [u64; 6], entry: &Entry) {
    if let Some(watched) = watched(entry) {
        thread.notes.add(entry.slot(), arguments);
        pthread::entered(thread, watched, arguments, entry);
    }
    if thread.awaiting_routine > 0 {
        thread.awaiting_routine -= 1;
        if pthread::is_routine(entry.header().function, arguments[0]) {
            pthread::routine_entered(thread, arguments[0], entry);
        } else if thread.awaiting_routine > 0 {
            // So that the next call takes the slow way too: it seems to be on another stack.
            thread.size = 0;
        }
    }
}

/// A function whose entry is marked slow returns.
pub(super) fn left(thread: &mut Thread, entry: &Entry, result: u64, time: u64) {
    if thread.notes.routine_slot == entry.slot() {
        pthread::routine_left(thread, Some(result), entry, time);
    }
    if let Some(watched) = watched(entry)
        && let Some(arguments) = thread.notes.take(entry.slot())
    {
        pthread::left(thread, watched, arguments, result, entry, time);
    }
}

/// A function whose entry is marked slow was unwound.
pub(super) fn unwound(thread: &mut Thread, entry: &Entry, time: u64) {
    thread.notes.take(entry.slot());
    if thread.notes.routine_slot == entry.slot() {
        pthread::routine_left(thread, None, entry, time);
    }
}

/// A function whose entry is marked slow has jumped to another, which will return in its place.
pub(super) fn tail_called(thread: &mut Thread, entry: &Entry) {
    thread.notes.take(entry.slot());
}

fn watched(entry: &Entry) -> Option<Watched> {
    Watched::ALL.get((entry.header().watch as usize).checked_sub(1)?).copied()
}

/// Records a runtime event.
fn tell(thread: &mut Thread, watched: Watched, phase: EventKind, (start, end): (u64, u64), keys: &[(Key, u64)]) {
    let mut record = [0_u64; 4 + MAX_KEYS];
    let mut numbers = [0xFF_u8; MAX_KEYS];
    let count = keys.len().min(MAX_KEYS);
    for (place, (key, value)) in keys.iter().take(count).enumerate() {
        numbers[place] = *key as u8;
        record[4 + place] = *value;
    }
    let word = header(Kind::Runtime, 4 + count, phase.number(), watched as u32);
    record[..4].copy_from_slice(&[end, word, start, u64::from_le_bytes(numbers)]);
    thread.writer().event(&record[..4 + count]);
}
