//! Runs: consecutive function events of one stream and substream in one packet, mostly one word each.
//!
//! A run stands for the single packets that its events could have been sent in, and decodes to exactly those, whatever
//! became of the packets before it. `docs/wire-format.md` describes the words.

mod encoder;
mod events;

pub use encoder::RunEncoder;
pub use events::{RunEvent, RunEvents};

use bytes::BufMut;

use super::{
    Registers,
    function::{DEPTH, DEPTH_HEAD},
};
use crate::{
    EventKind,
    heph::{Encode, EncodeError, Event, EventHead, Stamp, Value, check_room},
    layout::record,
};

/// The description of a run.
pub(crate) const RUN: &str = "run";
const EVENTS: &str = "events";

/// The most words that a run can have: what an array can count.
const MAX_WORDS: usize = u16::MAX as usize;

// A word, from its highest bit: kind, module, index in the module's table, time since the event before.
const KIND_SHIFT: u32 = 61;
const MODULE_BITS: u32 = 10;
const INDEX_BITS: u32 = 18;
const DELTA_BITS: u32 = 33;
const DELTA_MASK: u64 = (1 << DELTA_BITS) - 1;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

const PREFIX: u64 = 0;
const CALL: u64 = 1;
const RETURN: u64 = 2;
const EXCEPTION: u64 = 3;
/// A call at the depth of the innermost function that is open, which it takes the place of.
const TAIL_CALL: u64 = 4;

// A prefix, behind the kind: what it says of the next event, and a value.
const CODE_SHIFT: u32 = 56;
const PAYLOAD_MASK: u64 = (1 << CODE_SHIFT) - 1;
/// The event's depth.
const AT_DEPTH: u64 = 1;
/// How long before the event its function was entered.
const ENTERED: u64 = 2;
/// The time since the event before.
const PAUSE: u64 = 3;
/// The next word is the function.
const FUNCTION: u64 = 4;
/// The next word is the function's address; which function it is, is not known.
const ADDRESS: u64 = 5;
/// Which registers are not zero (the lowest bits), how many words of stack there are (above those); the next words are
/// these registers and then the stack.
const DETAIL: u64 = 6;

const REGISTER_MASK: u64 = (1 << Registers::WORDS) - 1;

/// The fields of a word from its highest bit, with their bits.
pub(crate) const WORD: &[(u32, &str)] =
    &[(u64::BITS - KIND_SHIFT, "kind"), (MODULE_BITS, "module"), (INDEX_BITS, "index"), (DELTA_BITS, "delta")];

/// The kinds of words.
pub(crate) const KINDS: &[(u64, &str)] =
    &[(PREFIX, "prefix"), (CALL, "call"), (RETURN, "return"), (EXCEPTION, "exception"), (TAIL_CALL, "tail call")];

/// The codes of prefixes.
pub(crate) const PREFIXES: &[(u64, &str)] = &[
    (AT_DEPTH, "depth"),
    (ENTERED, "entered"),
    (PAUSE, "pause"),
    (FUNCTION, "function"),
    (ADDRESS, "address"),
    (DETAIL, "detail"),
];

/// A run of function events.
///
/// Its words have been looked through: there is at least one event, and no prefix lacks its operands or its event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run<'a> {
    /// The stream, the substream, and the number of the first event; the times of the first and the last.
    pub stamp: Stamp,
    /// How many events there are.
    pub count: u32,
    /// How many traced functions were open before the first event.
    open: u32,
    words: &'a [[u8; 8]],
}

record! { be;
    /// A run up to its words, as it is written: its two attributes up to the array's values.
    struct RunStart[72] {
        head: [u8; 42],
        description: [u8; 3],
        depth_head: [u8; 8],
        depth: u64,
        events_head: [u8; 9],
        words: u16,
    }
}

const EVENTS_HEAD: [u8; 9] = *b"\0\x06events\x81";

impl<'a> Run<'a> {
    /// How many bytes a run has beside its words.
    pub const HEAD_BYTES: usize = RunStart::LEN;

    /// Decodes an event packet whose magic and size have been checked, if it is a run as [`RunEncoder`] lays it out.
    #[inline]
    pub(crate) fn read_canonical(packet: &'a [u8]) -> Option<Self> {
        let (start, rest) = packet.split_first_chunk()?;
        let start = RunStart::from_bytes(start);
        let head = EventHead::from_bytes(&start.head);
        // Packets with single events are told by this alone.
        if head.description_length != 3 {
            return None;
        }
        let is_run = start.description == *b"run" && start.depth_head == DEPTH_HEAD && start.events_head == EVENTS_HEAD;
        let (words, behind) = rest.as_chunks();
        if !is_run || !behind.is_empty() || words.len() != usize::from(start.words) {
            return None;
        }
        Self::new(head.stamp(), start.depth, words)
    }

    /// The run with these attributes, if that is what they are.
    pub(crate) fn of(event: &Event<'a>) -> Option<Self> {
        let (mut depth, mut words) = (None, None);
        for attribute in event.attributes {
            let fits = match (attribute.name, attribute.value) {
                (DEPTH, Value::U64(value)) => depth.replace(value).is_none(),
                (EVENTS, Value::U64s(list)) => words.replace(list.wire_words()?).is_none(),
                (DEPTH | EVENTS, _) => false,
                // A later version may add attributes.
                _ => true,
            };
            if !fits {
                return None;
            }
        }
        Self::new(event.stamp, depth?, words?)
    }

    #[inline]
    fn new(stamp: Stamp, open: u64, words: &'a [[u8; 8]]) -> Option<Self> {
        let (open, count) = (u32::try_from(open).ok()?, count_events(words)?);
        Some(Self { stamp, count, open, words })
    }

    /// The events, in order.
    #[inline]
    pub fn events(&self) -> RunEvents<'a> {
        RunEvents::new(self.stamp.start, self.open, self.words)
    }

    /// The events as they would have come in packets of their own, in order.
    pub fn function_events(&self) -> impl Iterator<Item = super::FunctionEvent<'a>> + use<'a> {
        let stamp = self.stamp;
        (0_u32..).zip(self.events()).map(move |(number, event)| event.function_event(&stamp, number))
    }
}

impl Encode for Run<'_> {
    fn encoded_len(&self) -> Result<usize, EncodeError> {
        Ok(Self::HEAD_BYTES.saturating_add(self.words.as_flattened().len()))
    }

    fn encode(&self, out: &mut impl BufMut) -> Result<usize, EncodeError> {
        let size = self.encoded_len()?;
        let size_field = check_room(size, out)?;
        out.put_slice(&start_bytes(&self.stamp, size_field, self.open, self.words.len()));
        out.put_slice(self.words.as_flattened());
        Ok(size)
    }
}

fn start_bytes(stamp: &Stamp, size: u32, open: u32, words: usize) -> [u8; RunStart::LEN] {
    let start = RunStart {
        head: EventHead::new(stamp, size, 3).to_bytes(),
        description: *b"run",
        depth_head: DEPTH_HEAD,
        depth: open.into(),
        events_head: EVENTS_HEAD,
        words: u16::try_from(words).unwrap_or(u16::MAX),
    };
    start.to_bytes()
}

/// How many events these words are, if they are those of a run.
#[inline]
fn count_events(words: &[[u8; 8]]) -> Option<u32> {
    // Most runs have no prefix: then each word is an event. The highest bits tell, without a branch for each.
    let is_plain = |word: &[u8; 8]| {
        let [first, ..] = *word;
        matches!(first >> 5, 1..=4)
    };
    let count = match words.iter().all(is_plain) {
        true => words.len(),
        false => count_prefixed(words)?,
    };
    u32::try_from(count).ok().filter(|count| *count > 0)
}

#[inline(never)]
fn count_prefixed(words: &[[u8; 8]]) -> Option<usize> {
    let mut rest = words;
    let mut count = 0_usize;
    let mut is_whole = true;
    while let Some((word, behind)) = rest.split_first() {
        let word = u64::from_be_bytes(*word);
        rest = match word >> KIND_SHIFT {
            PREFIX => behind.get(operands(word)?..)?,
            CALL..=TAIL_CALL => {
                count = count.saturating_add(1);
                behind
            }
            _ => return None,
        };
        is_whole = word >> KIND_SHIFT != PREFIX;
    }
    is_whole.then_some(count)
}

/// How many words follow a prefix and belong to it, if there is such a prefix.
fn operands(prefix: u64) -> Option<usize> {
    match prefix >> CODE_SHIFT {
        AT_DEPTH => u32::try_from(prefix & PAYLOAD_MASK).ok().map(|_| 0),
        ENTERED | PAUSE => Some(0),
        FUNCTION | ADDRESS => Some(1),
        DETAIL => {
            let stack = (prefix & PAYLOAD_MASK) >> Registers::WORDS;
            let registers = (prefix & REGISTER_MASK).count_ones();
            let stack = usize::try_from(stack).ok().filter(|stack| *stack <= super::MAX_STACK_WORDS)?;
            Some(stack.saturating_add(usize::try_from(registers).ok()?))
        }
        _ => None,
    }
}

/// When functions were entered, as far as the events of one run tell: the latest call at each depth, of those whose
/// depths are the same modulo [`SLOTS`](Self::SLOTS) the last. Reader and writer remember the same.
#[derive(Debug, Clone)]
struct Entries {
    depths: [u32; Self::SLOTS],
    times: [u64; Self::SLOTS],
}

impl Entries {
    const SLOTS: usize = 64;

    fn new() -> Self {
        // No depth has the slot of its neighbour.
        let mut depths = [0; Self::SLOTS];
        (1..).zip(&mut depths).for_each(|(depth, slot)| *slot = depth);
        Self { depths, times: [0; Self::SLOTS] }
    }

    #[inline(always)]
    #[allow(clippy::indexing_slicing)] // taken modulo the number of slots
    fn note(&mut self, depth: u32, time: u64) {
        let slot = depth as usize % Self::SLOTS;
        (self.depths[slot], self.times[slot]) = (depth, time);
    }

    #[inline(always)]
    #[allow(clippy::indexing_slicing)] // taken modulo the number of slots
    fn get(&self, depth: u32) -> Option<u64> {
        let slot = depth as usize % Self::SLOTS;
        (self.depths[slot] == depth).then_some(self.times[slot])
    }
}

#[inline(always)]
fn kind_bits(kind: EventKind) -> u64 {
    match kind {
        EventKind::Call => CALL,
        EventKind::Return => RETURN,
        EventKind::Exception => EXCEPTION,
    }
}
