//! Writing the events of a run.

use super::{
    ADDRESS, AT_DEPTH, CODE_SHIFT, DELTA_BITS, DELTA_MASK, DETAIL, ENTERED, Entries, FUNCTION, INDEX_BITS, INDEX_MASK,
    KIND_SHIFT, MAX_WORDS, MODULE_BITS, PAUSE, Registers, Run, RunEvent, TAIL_CALL, kind_bits, start_bytes,
};
use crate::{
    EventKind, FunctionId,
    heph::{MAX_PACKET_BYTES, Stamp},
};

/// The most words that an event takes beside registers and stack: four prefixes with one value, one with two, and its own.
const MAX_PREFIX_WORDS: usize = 7;

/// Writes a run at the end of a buffer, event by event.
///
/// Between [`begin`](Self::begin) and [`finish`](Self::finish) nothing else may be written to the buffer.
#[derive(Debug)]
pub struct RunEncoder {
    /// Where in the buffer the packet starts.
    at: usize,
    stamp: Stamp,
    first_open: u32,
    /// The time of the last event.
    time: u64,
    /// How many traced functions are open.
    open: u32,
    entries: Entries,
    /// How many bytes the buffer may have.
    limit: usize,
}

impl RunEncoder {
    /// Begins a run with an event of this stamp, which is then to be pushed. The buffer may grow to `limit` bytes.
    pub fn begin(stamp: &Stamp, event: &RunEvent<'_>, limit: usize, out: &mut Vec<u8>) -> Self {
        let at = out.len();
        let open = match event.kind {
            EventKind::Call => event.depth,
            _ => event.depth.saturating_add(1),
        };
        // Written again at the end.
        out.extend_from_slice(&[0; Run::HEAD_BYTES]);
        let most = Run::HEAD_BYTES.saturating_add(MAX_WORDS.saturating_mul(8)).min(MAX_PACKET_BYTES as usize);
        Self {
            at,
            stamp: Stamp { start: event.end, ..*stamp },
            first_open: open,
            time: event.end.0,
            open,
            entries: Entries::new(),
            limit: limit.min(at.saturating_add(most)),
        }
    }

    /// Writes another event. Returns whether it fits: one that does not may be the first of the next run, if it
    /// [can be in one](RunEvent::of).
    #[inline]
    pub fn push(&mut self, event: &RunEvent<'_>, out: &mut Vec<u8>) -> bool {
        let delta = event.end.0.wrapping_sub(self.time);
        let (bits, fits) = pack_function(event.function);
        let (start, depth) = match event.kind {
            EventKind::Call => (Some(event.end.0), self.open),
            _ => (self.entries.get(event.depth), self.open.saturating_sub(1)),
        };
        let is_plain = fits && delta <= DELTA_MASK && depth == event.depth && start == Some(event.start.0);
        if is_plain && event.detail.is_none() && out.len().saturating_add(8) <= self.limit {
            out.extend_from_slice(&(kind_bits(event.kind) << KIND_SHIFT | bits | delta).to_be_bytes());
            self.note(event);
            return true;
        }
        self.push_prefixed(event, out)
    }

    #[inline(always)]
    fn note(&mut self, event: &RunEvent<'_>) {
        self.time = event.end.0;
        if event.kind == EventKind::Call {
            self.open = event.depth.saturating_add(1);
            self.entries.note(event.depth, event.end.0);
        } else {
            self.open = event.depth;
        }
    }

    #[inline(never)]
    fn push_prefixed(&mut self, event: &RunEvent<'_>, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        let Some(mut delta) = event.end.0.checked_sub(self.time) else { return false };
        if !event.is_fit() || delta >> CODE_SHIFT != 0 {
            return false;
        }
        let prefix = |code: u64, value: u64| code << CODE_SHIFT | value;
        let stack_words = event.detail.map_or(0, |detail| Registers::WORDS.saturating_add(detail.stack().len()));
        let most_bytes = stack_words.saturating_add(MAX_PREFIX_WORDS).saturating_mul(8);
        out.resize(before.saturating_add(most_bytes), 0);
        let mut slots = out.get_mut(before..).unwrap_or_default().as_chunks_mut().0.iter_mut();
        let mut put = |word: u64| {
            if let Some(slot) = slots.next() {
                *slot = word.to_be_bytes();
            }
        };
        if delta > DELTA_MASK {
            put(prefix(PAUSE, delta));
            delta = 0;
        }
        let (mut bits, fits) = pack_function(event.function);
        if !fits {
            let (code, callee) = event.function.map_or((ADDRESS, event.ip), |function| (FUNCTION, function.0));
            put(prefix(code, 0));
            put(callee);
            bits = 0;
        }
        let mut kind = kind_bits(event.kind);
        let inner = self.open.saturating_sub(1);
        match event.kind {
            EventKind::Call if event.depth == self.open => {}
            EventKind::Call if event.depth == inner => kind = TAIL_CALL,
            EventKind::Return | EventKind::Exception if event.depth == inner => {}
            _ => put(prefix(AT_DEPTH, event.depth.into())),
        }
        if event.kind != EventKind::Call && self.entries.get(event.depth) != Some(event.start.0) {
            put(prefix(ENTERED, event.end.0.wrapping_sub(event.start.0)));
        }
        if let Some(detail) = &event.detail {
            let registers = detail.registers().to_words();
            let stack = detail.stack();
            let mask =
                (0..).zip(registers).filter(|(_, word)| *word != 0).fold(0, |mask, (bit, _)| mask | 1_u64 << bit);
            put(prefix(DETAIL, (stack.len() as u64) << Registers::WORDS | mask));
            registers.into_iter().filter(|word| *word != 0).for_each(&mut put);
            stack.iter().for_each(&mut put);
        }
        put(kind << KIND_SHIFT | bits | delta);
        let unused = slots.len().saturating_mul(8);
        let end = out.len().saturating_sub(unused);
        let fits = end <= self.limit;
        out.truncate(if fits { end } else { before });
        if fits {
            self.note(event);
        }
        fits
    }

    /// Ends the run. One without events leaves nothing behind.
    pub fn finish(&self, out: &mut Vec<u8>) {
        let size = out.len().saturating_sub(self.at);
        let Some(packet) = out.get_mut(self.at..).filter(|_| size > Run::HEAD_BYTES) else {
            return out.truncate(self.at);
        };
        let words = size.saturating_sub(Run::HEAD_BYTES) / 8;
        let stamp = Stamp { end: crate::SessionNs(self.time), ..self.stamp };
        let start = start_bytes(&stamp, u32::try_from(size).unwrap_or(u32::MAX), self.first_open, words);
        if let Some(place) = packet.first_chunk_mut() {
            *place = start;
        }
    }
}

/// The bits of a word that name a function, and whether they can.
#[inline(always)]
fn pack_function(function: Option<FunctionId>) -> (u64, bool) {
    let Some(FunctionId(id)) = function else { return (0, false) };
    let (module, index) = (id >> 32, id & 0xFFFF_FFFF);
    let fits = module >> MODULE_BITS == 0 && index <= INDEX_MASK;
    (module << (DELTA_BITS + INDEX_BITS) | (index & INDEX_MASK) << DELTA_BITS, fits)
}
