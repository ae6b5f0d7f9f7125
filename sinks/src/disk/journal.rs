//! What a session's manifest will be made of, kept on disk while the session is open.
//!
//! A manifest is written whole at the end. Should the collector be killed before, `journal.heph` beside it tells the
//! rest: option packets as they came, and notes of our own, which are Heph events.

use std::{
    collections::{BTreeMap, HashSet},
    fs::File,
    io::{self, Seek, SeekFrom},
    path::Path,
};

use codec::{
    atf::{FunctionEntry, GapEntry},
    heph::{
        Attribute, DecodeError, Encode, Event, MAX_PACKET_BYTES, Metadata, Packets, Stamp, Step, StreamDecoder, Value,
    },
    profile::{Fingerprint, Message, ProfileOption},
};
use serde::{Deserialize, Serialize};

use super::{
    files::{Files, Out, is_full},
    ledger::absorb,
};
use crate::{Budget, output::write_some};

/// The name of the file.
pub(super) const JOURNAL: &str = "journal.heph";

/// A journal that is being written.
///
/// What waits while the disk takes nothing is charged to a budget that all sessions share. Where it is spent, options
/// are left out first, and gaps are merged; it is only missed where the collector is killed too.
#[derive(Default)]
pub(super) struct Journal {
    pending: Vec<u8>,
    room: Budget,
    out: Option<Box<dyn Out>>,
    bytes: u64,
    /// Options that it has: agents repeat theirs.
    known: HashSet<Fingerprint>,
    option_bytes: u64,
    most_option_bytes: u64,
    /// Gaps that there was no room for, by stream.
    unsaid: BTreeMap<u32, GapEntry>,
    /// Up to which byte the disk has room for the file.
    reserved: u64,
    /// What is missing of a packet that was written in part.
    torn: usize,
}

/// How much room is kept on the disk behind what is in the file, for what has to be said when the disk is full.
pub(super) const ROOM_BYTES: u64 = 32 << 10;

/// How many threads one note tells of.
const ENDS_PER_NOTE: usize = 128;

/// How many options are recognised when they come again.
const MOST_KNOWN: usize = 16_384;

/// What is kept of the memory for what waits.
const IDLE_BYTES: usize = 16 << 10;

/// Options that say nothing about a trace that is over, or nothing that is not in a note.
const PASSING: [&str; 5] = ["progress", "ack", "kept", "nack", "drops"];

/// What notes are called, and the attribute that has them as JSON.
const NOTE: &str = "note";
const JSON: &str = "json";

/// A note of our own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Note {
    /// Events are missing.
    Gap(GapEntry),
    /// The session's zero, and the number of its clock, 0 where it is not known.
    Zero { zero_ns: u64, clock: u8 },
    /// A function of module 0.
    Function(FunctionEntry),
    /// The position of a stream's first event in this part.
    First { stream: u32, first: u64 },
    /// The part was opened again with so many events of a stream. Gaps that were noted behind these are void.
    Cut { stream: u32, at_index: u64 },
    /// The session goes on: what was given up for now at the ends of its streams is void.
    Resumed,
    /// How far streams had come when the part was given up, and why it was. All such notes of the part tell of so many
    /// `threads`.
    Next { ends: Vec<StreamEnd>, cause: String, threads: u64 },
}

/// A stream, the position of its first event or gap in this part, and the one that would have come next. It is short
/// in a note: there may be little room for it.
pub(super) type StreamEnd = (u32, u64, u64);

impl Journal {
    /// A journal whose options may come to this many bytes.
    pub(super) fn new(room: Budget, most_option_bytes: u64) -> Self {
        Self { room, most_option_bytes, ..Self::default() }
    }

    /// Makes the file, and locks it as long as the journal lasts.
    pub(super) fn create(&mut self, files: &dyn Files, dir: &Path) -> io::Result<()> {
        self.out = Some(files.create_locked(&dir.join(JOURNAL))?);
        // Where there is no room, writing tells.
        let _ = self.reserve(ROOM_BYTES);
        Ok(())
    }

    /// Goes on with the file of a part that was not finished, behind its whole packets.
    pub(super) fn reopen(self, mut file: File, bytes: u64) -> io::Result<Self> {
        file.set_len(bytes)?;
        file.seek(SeekFrom::Start(bytes))?;
        Ok(Self { out: Some(Box::new(file)), bytes, ..self })
    }

    /// Takes option packets, but for those that only matter while the session lasts.
    pub(super) fn options(&mut self, packets: &[u8]) {
        let mut packets = Packets::new(packets, MAX_PACKET_BYTES);
        let named = |packet| Metadata::decode(packet).map(|metadata| (packet, metadata.name));
        while let Some(Ok((packet, name))) = packets.next_with(named) {
            if !PASSING.contains(&name) {
                self.option_packet(packet);
            }
        }
    }

    /// Takes an option that was told before this part began.
    pub(super) fn option(&mut self, option: &ProfileOption<'_>) {
        let mut packet = Vec::new();
        // What came in a packet fits one.
        if option.encode(&mut packet).is_ok() {
            self.option_packet(&packet);
        }
    }

    fn option_packet(&mut self, packet: &[u8]) {
        let (fingerprint, bytes) = (Fingerprint::of(packet), packet.len() as u64);
        let sum = self.option_bytes.saturating_add(bytes);
        if sum > self.most_option_bytes || self.known.contains(&fingerprint) || !self.room.take_of_half(bytes) {
            return;
        }
        self.pending.extend_from_slice(packet);
        self.has_option(packet);
    }

    /// An option is in the file, or will be.
    pub(super) fn has_option(&mut self, packet: &[u8]) {
        self.option_bytes = self.option_bytes.saturating_add(packet.len() as u64);
        if self.known.len() < MOST_KNOWN {
            self.known.insert(Fingerprint::of(packet));
        }
    }

    /// Takes a note, and tells whether there was room. For all but functions there always is.
    pub(super) fn note(&mut self, note: &Note) -> bool {
        let before = self.pending.len();
        if let Note::Gap(gap) = note
            && let Some(unsaid) = self.unsaid.get_mut(&gap.thread)
        {
            // The order of a stream's gaps stays as it is.
            absorb(unsaid, gap);
            return true;
        }
        self.encode(note);
        if self.room.take(self.pending.len().saturating_sub(before) as u64) {
            return true;
        }
        match note {
            Note::Gap(gap) => {
                self.pending.truncate(before);
                self.unsaid.insert(gap.thread, gap.clone());
            }
            Note::Function(..) => {
                self.pending.truncate(before);
                return false;
            }
            // They are small, and each thread has one.
            Note::Zero { .. } | Note::First { .. } | Note::Cut { .. } | Note::Resumed | Note::Next { .. } => {}
        }
        true
    }

    fn encode(&mut self, note: &Note) {
        // Maps with strings as keys, and far less than the 65,535 bytes that a string may have: neither fails.
        let Ok(json) = serde_json::to_string(note) else { return };
        let attributes = [Attribute { name: JSON, value: Value::Str(&json) }];
        let event = Event { stamp: Stamp::default(), description: NOTE, attributes: (&attributes).into() };
        let _ = event.encode(&mut self.pending);
    }

    /// How many bytes the file has.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many bytes wait.
    pub(super) fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Sees to it that this much room is behind what is written and what waits. A disk that cannot promise any is no
    /// error; one that has no room is.
    fn reserve(&mut self, keep: u64) -> io::Result<()> {
        let Some(out) = &mut self.out else { return Ok(()) };
        let need = self.bytes.saturating_add(self.pending.len() as u64).saturating_add(keep);
        if need <= self.reserved {
            return Ok(());
        }
        // Twice as much, so that it need not be asked for each time, and that some notes can be taken on a full disk.
        let all = need.saturating_add(ROOM_BYTES);
        match out.reserve(self.bytes, all.saturating_sub(self.bytes)) {
            Ok(()) => self.reserved = all,
            Err(error) if is_full(error.kind()) => return Err(error),
            Err(_) => {}
        }
        Ok(())
    }

    /// Writes what waits, unless less than `keep` bytes of room would be left; after an error the rest still waits.
    pub(super) fn flush(&mut self, keep: u64) -> io::Result<()> {
        if !self.pending.is_empty() {
            self.reserve(keep)?;
        }
        self.flush_pending()?;
        if self.unsaid.is_empty() || self.out.is_none() {
            return Ok(());
        }
        for gap in std::mem::take(&mut self.unsaid).into_values() {
            self.encode(&Note::Gap(gap));
        }
        self.flush_pending()
    }

    /// Says how far streams have come, then what else waits, notes first, as far as the disk takes it. Nothing is said
    /// after this.
    pub(super) fn give_up(&mut self, ends: &[StreamEnd], cause: &str) {
        let waits = std::mem::take(&mut self.pending);
        let (torn, rest) = waits.split_at(self.torn.min(waits.len()));
        self.pending.extend_from_slice(torn);
        let threads = ends.len() as u64;
        for ends in ends.chunks(ENDS_PER_NOTE) {
            self.encode(&Note::Next { ends: ends.into(), cause: cause.into(), threads });
        }
        let (mut notes, mut options) = (Packets::new(rest, MAX_PACKET_BYTES), Packets::new(rest, MAX_PACKET_BYTES));
        let is_note = |packet| Ok((packet, Event::decode(packet).is_ok()));
        while let Some(Ok((packet, note))) = notes.next_with(is_note) {
            self.pending.extend_from_slice(if note { packet } else { &[] });
        }
        for gap in std::mem::take(&mut self.unsaid).into_values() {
            self.encode(&Note::Gap(gap));
        }
        while let Some(Ok((packet, note))) = options.next_with(is_note) {
            self.pending.extend_from_slice(if note { &[] } else { packet });
        }
        // What it does not take even now is lost.
        let _ = self.flush_pending();
    }

    fn flush_pending(&mut self) -> io::Result<()> {
        let Some(out) = self.out.as_mut().filter(|_| !self.pending.is_empty()) else { return Ok(()) };
        let (written, result) = write_some(&mut **out, &self.pending);
        if result.is_err() {
            self.torn = packet_end(&self.pending, self.torn, written).saturating_sub(written);
        } else {
            self.torn = 0;
        }
        self.pending.drain(..written);
        self.pending.shrink_to(IDLE_BYTES);
        self.room.release(written as u64);
        self.bytes = self.bytes.saturating_add(written as u64);
        result
    }
}

/// Where the first packet ends that does not end before `at`, if packets start at `start`.
fn packet_end(bytes: &[u8], start: usize, at: usize) -> usize {
    let mut packets = Packets::new(bytes.get(start..).unwrap_or_default(), MAX_PACKET_BYTES);
    let mut end = start;
    while end < at {
        match packets.next_with(|packet| Ok(packet.len())) {
            Some(Ok(length)) => end += length,
            _ => return bytes.len(),
        }
    }
    end
}

/// What a journal has.
pub(super) enum Entry<'a> {
    /// An option, and its packet.
    Option(ProfileOption<'a>, &'a [u8]),
    /// A note.
    Note(Note),
}

/// Goes through a journal, which may be cut anywhere in its last packet, and tells where its whole packets end. With
/// `force` it passes over what it cannot read.
pub(super) fn replay(bytes: &[u8], force: bool, mut entry: impl FnMut(Entry<'_>)) -> Result<usize, String> {
    let (mut decoder, mut at, mut end) = (StreamDecoder::new(MAX_PACKET_BYTES), 0, 0);
    // What is no packet, since the last one.
    let mut skipped: Option<(usize, DecodeError)> = None;
    let damaged = |at: usize, what: &dyn std::fmt::Display| match force {
        true => Ok(()),
        false => Err(format!("{JOURNAL}, at byte {at}: {what}; with force, what cannot be read of it is passed over")),
    };
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let taken = match decoder.step_with(rest, true, Message::decode) {
            Step::Packet { packet, bytes } => {
                if let Some((at, cause)) = skipped.take() {
                    damaged(at, &cause)?;
                }
                match packet {
                    Message::Option(known) => entry(Entry::Option(known.option, bytes)),
                    Message::Event(event) => match read_note(&event) {
                        Ok(note) => entry(Entry::Note(note)),
                        Err(problem) => damaged(at, &problem)?,
                    },
                    _ => {}
                }
                end = at + bytes.len();
                bytes.len()
            }
            Step::Skip { bytes, cause } => {
                skipped.get_or_insert((at, cause));
                bytes
            }
            Step::More { .. } => break,
        };
        at += taken;
    }
    match skipped {
        // Zeros are what a machine may leave that stops.
        Some((at, cause))
            if !matches!(cause, DecodeError::Incomplete { .. })
                && bytes.get(at..).is_some_and(|tail| tail.iter().any(|byte| *byte != 0)) =>
        {
            damaged(at, &cause)?;
        }
        _ => {}
    }
    Ok(end)
}

fn read_note(event: &Event<'_>) -> Result<Note, String> {
    match event.attributes.find(JSON) {
        Some(Value::Str(json)) if event.description == NOTE => {
            serde_json::from_str(json).map_err(|error| format!("a note that is not known here: {error}"))
        }
        _ => Err(format!("expected a note, found an event {:?}", event.description)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn read(bytes: &[u8]) -> Vec<Note> {
        let mut read = Vec::new();
        let note = |entry: Entry<'_>| match entry {
            Entry::Note(note) => read.push(note),
            Entry::Option(..) => {}
        };
        replay(bytes, false, note).expect("it can be read");
        read
    }

    fn gap(first: u64, count: u64) -> GapEntry {
        GapEntry { thread: 3, first, count, cause: "network".into(), at_index: Some(first), ..GapEntry::default() }
    }

    fn queue(id: u64) -> Vec<u8> {
        let mut packet = Vec::new();
        let option = ProfileOption::from(codec::profile::Queue { id, label: "a queue" });
        option.encode(&mut packet).expect("it fits");
        packet
    }

    #[test]
    fn what_is_noted_is_read_back_up_to_a_cut() {
        let merged = GapEntry { ranges: Some(7), ..gap(9, 5) };
        let function = FunctionEntry { id: 1, offset: 7, name: "pthread_create".into(), ..FunctionEntry::default() };
        let zero = Note::Zero { zero_ns: 8, clock: 2 };
        let mut notes = vec![Note::First { stream: 3, first: 9 }, zero, Note::Function(function)];
        notes.extend([gap(4, 5), merged].map(Note::Gap));
        notes.extend([Note::Cut { stream: 3, at_index: u64::MAX }, Note::Resumed]);
        let ends = [1, 2].map(|stream| (stream, 3, u64::MAX)).into();
        notes.push(Note::Next { ends, cause: "collector:disk-full".into(), threads: 7 });
        let mut journal = Journal::default();
        notes.iter().for_each(|note| assert!(journal.note(note)));
        assert_eq!(read(&journal.pending), notes);
        for cut in 0..journal.pending.len() {
            let read = read(&journal.pending[..cut]);
            assert_eq!(read, notes[..read.len()], "cut at {cut}");
            assert!(read.len() < notes.len());
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_place_and_passed_over_by_force() {
        let mut journal = Journal::default();
        journal.note(&Note::Gap(gap(1, 1)));
        let first = journal.pending.len();
        journal.note(&Note::Gap(gap(2, 1)));
        journal.note(&Note::Gap(gap(3, 1)));
        let told = |bytes: &[u8]| {
            let mut notes = 0;
            let outcome = replay(bytes, false, |_| {});
            assert!(replay(bytes, true, |_| notes += 1).is_ok());
            (outcome, notes)
        };
        let whole = journal.pending;
        assert_eq!(told(&whole), (Ok(whole.len()), 3));
        let mut zeros = whole.clone();
        zeros.extend([0; 4096]);
        assert_eq!(told(&zeros), (Ok(whole.len()), 3), "what a machine left that stopped");
        let mut unknown = whole.clone();
        let json = whole[first..].windows(3).position(|word| word == b"gap").expect("its kind") + first;
        unknown[json] = b'm';
        let mut broken = whole.clone();
        broken[first] ^= 1;
        let mut garbage = whole.clone();
        garbage.extend(b"what is this?");
        for (bytes, at, notes) in [(unknown, first, 2), (broken, first, 2), (garbage, whole.len(), 3)] {
            let (outcome, found) = told(&bytes);
            let problem = outcome.expect_err("it is damaged");
            assert!(problem.starts_with(&format!("journal.heph, at byte {at}: ")), "{problem}");
            assert_eq!(found, notes, "{problem}");
        }
    }

    #[test]
    fn an_option_that_is_repeated_is_there_once() {
        let mut journal = Journal::new(Budget::default(), 1000);
        (0..1000).for_each(|_| journal.options(&queue(1)));
        assert_eq!(journal.pending, queue(1));
        (0..1000).for_each(|id| journal.options(&queue(id)));
        assert!(journal.pending.len() <= 1000 && journal.pending.len() > 900, "there is a limit for all of them");
        journal.note(&Note::Gap(gap(4, 5)));
        assert_eq!(read(&journal.pending), [Note::Gap(gap(4, 5))], "gaps are noted all the same");
    }

    #[test]
    fn what_waits_is_bounded_over_all_journals_and_no_gap_is_left_out() {
        let budget = Budget::new(20_000, Arc::default());
        let mut journals = [(); 4].map(|()| Journal::new(budget.share(), u64::MAX));
        for journal in &mut journals {
            (0..1000).for_each(|id| journal.options(&queue(id)));
            (0..1000).for_each(|at| assert!(journal.note(&Note::Gap(gap(2 * at, 1)))));
            assert!(journal.note(&Note::First { stream: 1, first: 1 }), "positions hang on it");
        }
        let waits: usize = journals.iter().map(Journal::pending_bytes).sum();
        assert!(waits < 20_500, "{waits}");
        let function = FunctionEntry { name: "f".repeat(100), ..FunctionEntry::default() };
        assert!(!journals[3].note(&Note::Function(function)), "it can be noted later");
        for journal in &mut journals {
            // With the disk there again, all is told.
            let dir = std::env::temp_dir().join(format!("spoor-journal-{}", std::process::id()));
            std::fs::create_dir_all(&dir).expect("made");
            journal.create(&super::super::files::OsFiles, &dir).expect("made");
            journal.flush(0).expect("it flushes");
            let notes = read(&std::fs::read(dir.join(JOURNAL)).expect("it is there"));
            std::fs::remove_dir_all(&dir).expect("it is there");
            let gaps = notes.iter().filter_map(|note| match note {
                Note::Gap(gap) => Some((gap.count, gap.ranges.unwrap_or(1), gap.first)),
                _ => None,
            });
            let gaps: Vec<_> = gaps.collect();
            assert_eq!(gaps.iter().map(|gap| gap.0).sum::<u64>(), 1000);
            assert_eq!(gaps.iter().map(|gap| gap.1).sum::<u64>(), 1000);
            assert!(gaps.is_sorted_by_key(|gap| gap.2));
            assert_eq!((journal.pending_bytes(), journal.pending.capacity() <= IDLE_BYTES), (0, true));
        }
        assert_eq!(budget.in_use(), 0);
    }
}
