//! What a session's manifest will be made of, kept on disk while the session is open.
//!
//! A manifest is written whole at the end. Should the collector be killed before, `journal.heph` beside it tells the
//! rest: option packets as they came, and notes of our own, which are Heph events.

use std::{
    collections::{BTreeMap, HashSet},
    io,
    io::Write,
    path::Path,
};

use codec::{
    ClockKind, StreamId,
    heph::{Attribute, Encode, Event, MAX_PACKET_BYTES, Metadata, Packets, Stamp, Step, StreamDecoder, Value},
    profile::{Fingerprint, Message, ProfileOption},
};

use super::{
    files::{Files, Out, is_full},
    ledger::Missing,
    standin::StandIn,
};
use crate::{Budget, Cause, cut};

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
    unsaid: BTreeMap<u32, Missing>,
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
const PASSING: [&str; 4] = ["progress", "ack", "nack", "drops"];

const GAP: &str = "gap";
const ZERO: &str = "zero";
const FUNCTION: &str = "function";
const FIRST: &str = "first";
const RANGES: &str = "ranges";
const NEXT: &str = "next";
const STREAMS: &str = "streams";
const THREADS: &str = "threads";

/// A note of our own.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Note {
    /// Events are missing.
    Gap(Missing),
    /// The session's zero, by which clock.
    Zero(u64, ClockKind),
    /// A function of module 0, and its index.
    Function(u64, StandIn),
    /// The position of a stream's first event in this part.
    First(u32, u64),
    /// How far streams had come when the part was given up.
    Next(Ends),
}

/// Streams of a part that was given up.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ends {
    pub(super) ends: Vec<StreamEnd>,
    /// Why it was given up.
    pub(super) cause: Cause,
    /// How many streams all such notes of the part tell of.
    pub(super) threads: u64,
}

/// How far a stream had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamEnd {
    pub(super) stream: u32,
    /// The position of its first event or gap in this part.
    pub(super) first: u64,
    /// The position that would have come next.
    pub(super) next: u64,
}

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
        self.option_bytes = sum;
        self.pending.extend_from_slice(packet);
        if self.known.len() < MOST_KNOWN {
            self.known.insert(fingerprint);
        }
    }

    /// Takes a note, and tells whether there was room. For all but functions there always is.
    pub(super) fn note(&mut self, note: &Note) -> bool {
        let before = self.pending.len();
        if let Note::Gap(gap) = note
            && let Some(unsaid) = self.unsaid.get_mut(&gap.stream)
        {
            // The order of a stream's gaps stays as it is.
            unsaid.absorb(gap);
            return true;
        }
        self.encode(note);
        if self.room.take(self.pending.len().saturating_sub(before) as u64) {
            return true;
        }
        match note {
            Note::Gap(gap) => {
                self.pending.truncate(before);
                self.unsaid.insert(gap.stream, gap.clone());
            }
            Note::Function(..) => {
                self.pending.truncate(before);
                return false;
            }
            // They are small, and each thread has one.
            Note::Zero(..) | Note::First(..) | Note::Next(..) => {}
        }
        true
    }

    fn encode(&mut self, note: &Note) {
        let number = |name, value| Attribute { name, value: Value::U64(value) };
        match note {
            Note::Gap(gap) => {
                let attributes = [
                    number("first", gap.first),
                    number("count", gap.count),
                    Attribute { name: "cause", value: Value::Str(cut(gap.cause.as_str(), usize::from(u16::MAX))) },
                    number("at_index", gap.at_index),
                    number(RANGES, gap.ranges),
                ];
                let used = if gap.ranges > 1 { &attributes[..] } else { &attributes[..4] };
                self.event(gap.stream, GAP, used);
            }
            Note::Zero(zero_ns, clock) => {
                self.event(0, ZERO, &[number("zero_ns", *zero_ns), number("clock", u8::from(*clock).into())]);
            }
            Note::Function(index, made) => {
                let name = Attribute { name: "name", value: Value::Str(&made.name) };
                self.event(0, FUNCTION, &[number("index", *index), number("offset", made.offset), name]);
            }
            Note::First(stream, first) => self.event(*stream, FIRST, &[number("first", *first)]),
            Note::Next(Ends { ends, cause, threads }) => {
                let all = |value: fn(&StreamEnd) -> u64| ends.iter().map(value).collect::<Vec<u64>>();
                let streams = all(|end| end.stream.into());
                let (firsts, nexts) = (all(|end| end.first), all(|end| end.next));
                let numbers = |name, values| Attribute { name, value: Value::U64s(values) };
                let attributes = [
                    numbers(STREAMS, streams.as_slice().into()),
                    numbers(FIRST, firsts.as_slice().into()),
                    numbers(NEXT, nexts.as_slice().into()),
                    Attribute { name: "cause", value: Value::Str(cut(cause.as_str(), usize::from(u16::MAX))) },
                    number(THREADS, *threads),
                ];
                self.event(0, NEXT, &attributes);
            }
        }
    }

    fn event(&mut self, stream: u32, description: &str, attributes: &[Attribute<'_>]) {
        let stamp = Stamp { stream: StreamId(stream), ..Stamp::default() };
        // Only a string of more than 65,535 bytes would be refused, and all of these were cut.
        let _ = Event { stamp, description, attributes: attributes.into() }.encode(&mut self.pending);
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
            self.encode(&Note::Next(Ends { ends: ends.into(), cause: cause.into(), threads }));
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
        let mut written = 0;
        let result = loop {
            match self.pending.get(written..) {
                None | Some([]) => break Ok(()),
                Some(rest) => match out.write(rest) {
                    Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => written += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => break Err(error),
                },
            }
        };
        if result.is_err() {
            self.torn = packet_end(&self.pending, self.torn, written).saturating_sub(written);
        } else {
            self.torn = 0;
        }
        self.pending.drain(..written.min(self.pending.len()));
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

/// Goes through a journal, which may be cut anywhere in its last packet.
pub(super) fn replay(bytes: &[u8], mut option: impl FnMut(&ProfileOption<'_>), mut note: impl FnMut(Note)) {
    let mut decoder = StreamDecoder::new(MAX_PACKET_BYTES);
    let mut rest = bytes;
    loop {
        let taken = match decoder.step_with(rest, true, Message::decode) {
            Step::Packet { packet, bytes } => {
                match packet {
                    Message::Option(known) => option(&known.option),
                    Message::Event(event) => {
                        if let Some(found) = read_note(&event) {
                            note(found);
                        }
                    }
                    _ => {}
                }
                bytes.len()
            }
            Step::Skip { bytes, .. } => bytes,
            Step::More { .. } => return,
        };
        rest = rest.get(taken..).unwrap_or_default();
    }
}

fn read_note(event: &Event<'_>) -> Option<Note> {
    let number = |name| event.attributes.find_u64(name);
    let text = |name| match event.attributes.find(name)? {
        Value::Str(text) => Some(text),
        _ => None,
    };
    let stream = event.stamp.stream.0;
    Some(match event.description {
        GAP => Note::Gap(Missing {
            stream,
            first: number("first")?,
            count: number("count")?,
            cause: text("cause")?.into(),
            at_index: number("at_index")?,
            ranges: number(RANGES).unwrap_or(1),
        }),
        ZERO => Note::Zero(number("zero_ns")?, u8::try_from(number("clock")?).ok()?.into()),
        FUNCTION => Note::Function(number("index")?, StandIn { offset: number("offset")?, name: text("name")?.into() }),
        NEXT => {
            let numbers = |name| match event.attributes.find(name)? {
                Value::U64s(numbers) => Some(numbers.iter()),
                _ => None,
            };
            let ends = numbers(STREAMS)?.zip(numbers(FIRST)?).zip(numbers(NEXT)?);
            let end = |((stream, first), next)| Some(StreamEnd { stream: u32::try_from(stream).ok()?, first, next });
            let ends = ends.filter_map(end).collect();
            Note::Next(Ends { ends, cause: text("cause")?.into(), threads: number(THREADS)? })
        }
        FIRST => Note::First(stream, number("first")?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn read(bytes: &[u8]) -> Vec<Note> {
        let mut read = Vec::new();
        replay(bytes, |_| {}, |note| read.push(note));
        read
    }

    fn queue(id: u64) -> Vec<u8> {
        let mut packet = Vec::new();
        let option = ProfileOption::from(codec::profile::Queue { id, label: "a queue" });
        option.encode(&mut packet).expect("it fits");
        packet
    }

    #[test]
    fn what_is_noted_is_read_back_up_to_a_cut() {
        let gap = Missing { stream: 3, first: 4, count: 5, cause: "network".into(), at_index: 6, ranges: 1 };
        let merged = Missing { first: 9, ranges: 7, ..gap.clone() };
        let function = StandIn { offset: 7, name: "pthread_create".into() };
        let mut notes = vec![Note::First(3, 9), Note::Zero(8, ClockKind::Qpc), Note::Function(1, function)];
        notes.extend([gap, merged].map(Note::Gap));
        let ends = [1, 2].map(|stream| StreamEnd { stream, first: 3, next: u64::MAX }).into();
        notes.push(Note::Next(Ends { ends, cause: "collector:disk-full".into(), threads: 7 }));
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
    fn an_option_that_is_repeated_is_there_once() {
        let mut journal = Journal::new(Budget::default(), 1000);
        (0..1000).for_each(|_| journal.options(&queue(1)));
        assert_eq!(journal.pending, queue(1));
        (0..1000).for_each(|id| journal.options(&queue(id)));
        assert!(journal.pending.len() <= 1000 && journal.pending.len() > 900, "there is a limit for all of them");
        let gap = Missing { stream: 3, first: 4, count: 5, cause: "network".into(), at_index: 6, ranges: 1 };
        journal.note(&Note::Gap(gap.clone()));
        assert_eq!(read(&journal.pending), [Note::Gap(gap)], "gaps are noted all the same");
    }

    #[test]
    fn what_waits_is_bounded_over_all_journals_and_no_gap_is_left_out() {
        let budget = Budget::new(20_000, Arc::default());
        let mut journals = [(); 4].map(|()| Journal::new(budget.share(), u64::MAX));
        for journal in &mut journals {
            (0..1000).for_each(|id| journal.options(&queue(id)));
            let gap = |at| Missing { stream: 3, first: at, count: 1, cause: "x".into(), at_index: at, ranges: 1 };
            (0..1000).for_each(|at| assert!(journal.note(&Note::Gap(gap(2 * at)))));
            assert!(journal.note(&Note::First(1, 1)), "positions hang on it");
        }
        let waits: usize = journals.iter().map(Journal::pending_bytes).sum();
        assert!(waits < 20_500, "{waits}");
        let function = Note::Function(0, StandIn { offset: 0, name: "f".repeat(100).into() });
        assert!(!journals[3].note(&function), "it can be noted later");
        for journal in &mut journals {
            // With the disk there again, all is told.
            let dir = std::env::temp_dir().join(format!("spoor-journal-{}", std::process::id()));
            std::fs::create_dir_all(&dir).expect("made");
            journal.create(&super::super::files::OsFiles, &dir).expect("made");
            journal.flush(0).expect("it flushes");
            let notes = read(&std::fs::read(dir.join(JOURNAL)).expect("it is there"));
            std::fs::remove_dir_all(&dir).expect("it is there");
            let gaps = notes.iter().filter_map(|note| match note {
                Note::Gap(gap) => Some((gap.count, gap.ranges, gap.first)),
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
