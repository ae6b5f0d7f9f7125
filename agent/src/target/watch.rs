//! Functions of which more is told than that they were called: those of runtimes, with the keys that join one event to
//! another.
//!
//! | file | holds |
//! |---|---|
//! | [`notes`] | what a thread remembers of the watched calls that it is in |
//! | [`mark`] | watching a function of the program, once a runtime was given it |
//! | [`landmark`] | places in the runtimes' libraries |
//! | [`pthread`], [`dispatch`], [`swift`] | what is told of each runtime |

mod dispatch;
pub(super) mod landmark;
mod mark;
mod notes;
mod pthread;
mod swift;

use super::{
    shadow::{Entry, Header},
    thread::Thread,
};
use crate::shared::{Family, Kind, MAX_KEYS, Watched, header, tsc};
use codec::{EventKind, Key};
use notes::Note;
pub(super) use notes::Notes;
pub(super) use pthread::executing;

/// For how many calls a new thread looks for the routine that it was started with. Before it come only the few
/// functions of the thread library that call it.
pub(super) const LOOK_FOR_ROUTINE: u32 = 64;

/// Forgets what the outside was told, and what was found in hooks that are gone: it is another outside from here on.
pub(super) fn prepare() {
    dispatch::prepare();
    swift::prepare();
}

/// A thread has a ring. What it is busy with it may have been busy with before.
pub(super) fn started(thread: &mut Thread) {
    thread.notes.told_substream = 0;
    let substream = thread.notes.substream;
    busy_with(thread, substream, tsc::now());
}

/// A call was entered: a watched one, or any one on a thread that looks for a certain function. `before` is the function
/// that has jumped to it, if it was not called.
pub(super) fn entered(thread: &mut Thread, arguments: [u64; 6], entry: &Entry, before: Option<Entry>) {
    // Who has called it: what it returns to may be somebody further up.
    let caller = before.map_or(entry.real, |before| before.header().function);
    if thread.notes.is_seeking() {
        swift::seek(thread, arguments[0], entry, caller);
    }
    if let Some(watched) = watched(entry) {
        match watched.family() {
            Family::Pthread => {
                note(thread, watched, arguments, entry);
                pthread::entered(thread, watched, arguments, entry);
            }
            Family::Dispatch => dispatch::entered(thread, watched, arguments, entry, caller),
            Family::Swift => {
                let before = before.as_ref().and_then(self::watched);
                swift::entered(thread, watched, arguments, entry, before);
            }
        }
    }
    if thread.awaiting_routine > 0 {
        if thread.awaiting_routine == LOOK_FOR_ROUTINE {
            pthread::begun(thread, entry);
        }
        thread.awaiting_routine -= 1;
        if pthread::is_routine(entry.header().function, arguments[0]) {
            pthread::routine_entered(thread, arguments[0], entry);
        } else if thread.awaiting_routine > 0 {
            look_on(thread);
        }
    }
}

/// Has the next call take the slow way, too: it will seem to be on another stack.
fn look_on(thread: &mut Thread) {
    thread.size = 0;
}

/// A function whose entry is marked slow returns.
pub(super) fn left(thread: &mut Thread, entry: &Entry, result: u64, time: u64) {
    if thread.notes.routine_slot == entry.slot() {
        pthread::routine_left(thread, Some(result), entry, time);
    }
    if let Some(note) = thread.notes.take(entry.slot()) {
        match note.watched.family() {
            Family::Pthread => pthread::left(thread, note.watched, note.arguments, result, entry, time),
            Family::Dispatch => dispatch::left(thread, &note, result, time),
            Family::Swift => swift::left(thread, &note, result, time),
        }
    }
}

/// A function whose entry is marked slow was unwound.
pub(super) fn unwound(thread: &mut Thread, entry: &Entry, time: u64) {
    if thread.notes.routine_slot == entry.slot() {
        pthread::routine_left(thread, None, entry, time);
    }
    if let Some(note) = thread.notes.take(entry.slot()) {
        match note.watched.family() {
            Family::Pthread => {}
            Family::Dispatch => dispatch::unwound(thread, &note, time),
            Family::Swift => swift::unwound(thread, &note, time),
        }
    }
}

/// A function whose entry is marked slow has jumped to another, which will return in its place. Whether the other's
/// return is to be told here. If it is not hooked, nobody will see it.
pub(super) fn tail_called(thread: &mut Thread, entry: &Entry, hooked: bool, time: u64) -> bool {
    let is_routine = thread.notes.routine_slot == entry.slot();
    if !hooked {
        if is_routine {
            pthread::routine_left(thread, None, entry, time);
        }
        // The jump is the last that is seen of it.
        if let Some(note) = thread.notes.take(entry.slot()) {
            match note.watched.family() {
                Family::Pthread => {}
                Family::Dispatch => dispatch::left(thread, &note, 0, time),
                Family::Swift => swift::unwound(thread, &note, time),
            }
        }
        return false;
    }
    // What a function of the thread library jumps to returns what its caller gets, too.
    is_routine || thread.notes.is_noted(entry.slot())
}

/// What a function is watched for.
fn watched(entry: &Entry) -> Option<Watched> {
    Watched::ALL.get((entry.header().watch() as usize).checked_sub(1)?).copied()
}

/// Whether a stub is that of the loader's notification that modules have come or gone.
pub(super) fn is_loaders(stub: usize) -> bool {
    Header::of(stub).is(Watched::DebugState)
}

/// Remembers a call until it is left, if it is seen being left.
fn note(thread: &mut Thread, watched: Watched, arguments: [u64; 6], entry: &Entry) {
    if thread.youngest().is_some_and(|youngest| youngest.slot() == entry.slot()) {
        thread.notes.add(Note { slot: entry.slot(), entered: entry.entered, watched, arguments });
    }
}

/// Records a runtime event, with the keys that are there.
fn tell<K: Copy + Into<Option<(Key, u64)>>>(
    thread: &mut Thread,
    watched: Watched,
    phase: EventKind,
    (start, end): (u64, u64),
    keys: &[K],
) {
    let mut record = [0_u64; 4 + MAX_KEYS];
    let mut numbers = [0xFF_u8; MAX_KEYS];
    let mut count = 0;
    for (key, value) in keys.iter().filter_map(|key| (*key).into()).take(MAX_KEYS) {
        numbers[count] = key as u8;
        record[4 + count] = value;
        count += 1;
    }
    let word = header(Kind::Runtime, 4 + count, phase.number(), watched as u32);
    record[..4].copy_from_slice(&[end, word, start, u64::from_le_bytes(numbers)]);
    thread.writer().event(&record[..4 + count]);
}

/// Says what the thread is busy with from here on, and tells what it was busy with before.
fn busy_with(thread: &mut Thread, substream: u64, time: u64) -> u64 {
    let before = thread.notes.substream;
    thread.notes.substream = substream;
    if thread.notes.told_substream != substream
        && thread.writer().put(&[time, header(Kind::Substream, 3, 0, 0), substream])
    {
        // Where there was no room, it is told with the next change; events without room are lost all the same.
        thread.notes.told_substream = substream;
    }
    before
}
