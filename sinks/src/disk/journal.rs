//! What a session's manifest will be made of, kept on disk while the session is open.
//!
//! A manifest is written whole at the end. Should the collector be killed before, `journal.heph` beside it tells the
//! rest: option packets as they came, and notes of our own, which are Heph events.

use std::{io, io::Write, path::Path, sync::Arc};

use codec::{
    ClockKind, StreamId,
    heph::{Attribute, Encode, Event, MAX_PACKET_BYTES, Metadata, Packets, Stamp, Step, StreamDecoder, Value},
    profile::{Message, ProfileOption},
};

use super::{
    files::{Files, Out},
    ledger::Missing,
    standin::StandIn,
};

/// The name of the file.
pub(super) const JOURNAL: &str = "journal.heph";

/// A journal that is being written.
#[derive(Default)]
pub(super) struct Journal {
    pending: Vec<u8>,
    out: Option<Box<dyn Out>>,
    bytes: u64,
}

/// How much may wait while the disk takes nothing. What comes then is only missed where the collector is killed too.
const MOST_PENDING: usize = 16 << 20;

/// Options that say nothing about a trace that is over.
const PASSING: [&str; 3] = ["progress", "ack", "nack"];

const GAP: &str = "gap";
const ZERO: &str = "zero";
const FUNCTION: &str = "function";
const FIRST: &str = "first";

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
}

impl Journal {
    /// Makes the file, and locks it as long as the journal lasts.
    pub(super) fn create(&mut self, files: &dyn Files, dir: &Path) -> io::Result<()> {
        self.out = Some(files.create_locked(&dir.join(JOURNAL))?);
        Ok(())
    }

    /// Takes option packets, but for those that only matter while the session lasts.
    pub(super) fn options(&mut self, packets: &[u8]) {
        let mut packets = Packets::new(packets, MAX_PACKET_BYTES);
        let named = |packet| Metadata::decode(packet).map(|metadata| (packet, metadata.name));
        while let Some(Ok((packet, name))) = packets.next_with(named) {
            if !PASSING.contains(&name) && self.pending.len() < MOST_PENDING {
                self.pending.extend_from_slice(packet);
            }
        }
    }

    /// Takes an option that was told before this part began.
    pub(super) fn option(&mut self, option: &ProfileOption<'_>) {
        if self.pending.len() < MOST_PENDING {
            // What came in a packet fits one.
            let _ = option.encode(&mut self.pending);
        }
    }

    /// Takes a note.
    pub(super) fn note(&mut self, note: &Note) {
        if self.pending.len() >= MOST_PENDING {
            return;
        }
        let number = |name, value| Attribute { name, value: Value::U64(value) };
        match note {
            Note::Gap(gap) => {
                let cause = gap.cause.get(..gap.cause.len().min(usize::from(u16::MAX))).unwrap_or_default();
                let attributes = [
                    number("first", gap.first),
                    number("count", gap.count),
                    Attribute { name: "cause", value: Value::Str(cause) },
                    number("at_index", gap.at_index),
                ];
                self.event(gap.stream, GAP, &attributes);
            }
            Note::Zero(zero_ns, clock) => {
                self.event(0, ZERO, &[number("zero_ns", *zero_ns), number("clock", u8::from(*clock).into())]);
            }
            Note::Function(index, made) => {
                let name = Attribute { name: "name", value: Value::Str(&made.name) };
                self.event(0, FUNCTION, &[number("index", *index), number("offset", made.offset), name]);
            }
            Note::First(stream, first) => self.event(*stream, FIRST, &[number("first", *first)]),
        }
    }

    fn event(&mut self, stream: u32, description: &str, attributes: &[Attribute<'_>]) {
        let stamp = Stamp { stream: StreamId(stream), ..Stamp::default() };
        // Only a string of more than 65,535 bytes would be refused, and all of these came in packets.
        let _ = Event { stamp, description, attributes: attributes.into() }.encode(&mut self.pending);
    }

    /// How many bytes the file has.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes what waits; after an error the rest still waits.
    pub(super) fn flush(&mut self) -> io::Result<()> {
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
        self.pending.drain(..written.min(self.pending.len()));
        self.bytes = self.bytes.saturating_add(written as u64);
        result
    }
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
            cause: Arc::from(text("cause")?),
            at_index: number("at_index")?,
            ranges: 1,
        }),
        ZERO => Note::Zero(number("zero_ns")?, u8::try_from(number("clock")?).ok()?.into()),
        FUNCTION => Note::Function(number("index")?, StandIn { offset: number("offset")?, name: text("name")?.into() }),
        FIRST => Note::First(stream, number("first")?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_read_back_up_to_a_cut() {
        let gap = Missing { stream: 3, first: 4, count: 5, cause: "network".into(), at_index: 6, ranges: 1 };
        let function = StandIn { offset: 7, name: "pthread_create".into() };
        let notes = [Note::First(3, 9), Note::Zero(8, ClockKind::Qpc), Note::Function(1, function), Note::Gap(gap)];
        let mut journal = Journal::default();
        notes.iter().for_each(|note| journal.note(note));
        let read = |bytes: &[u8]| {
            let mut read = Vec::new();
            replay(bytes, |_| {}, |note| read.push(note));
            read
        };
        assert_eq!(read(&journal.pending), notes);
        for cut in 0..journal.pending.len() {
            let read = read(&journal.pending[..cut]);
            assert_eq!(read, notes[..read.len()], "cut at {cut}");
            assert!(read.len() < notes.len());
        }
    }
}
