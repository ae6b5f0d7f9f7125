//! Reading the events of a run.

use super::{
    ADDRESS, AT_DEPTH, CALL, CODE_SHIFT, DELTA_BITS, DELTA_MASK, DETAIL, ENTERED, EXCEPTION, Entries, FUNCTION,
    INDEX_BITS, INDEX_MASK, KIND_SHIFT, MODULE_BITS, PAUSE, PAYLOAD_MASK, PREFIX, REGISTER_MASK, RETURN, TAIL_CALL,
};
use crate::{
    EventKind, FunctionId, SessionNs,
    heph::{Attributes, Stamp},
    profile::{Detail, FunctionEvent, MAX_STACK_WORDS, Registers},
};

/// An event of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunEvent<'a> {
    /// Whether the function was entered or left.
    pub kind: EventKind,
    /// How many traced functions were below it on the stack.
    pub depth: u32,
    /// The function, where it is known.
    pub function: Option<FunctionId>,
    /// Its address, where the function is not known.
    pub ip: u64,
    /// When the function was entered.
    pub start: SessionNs,
    /// When this happened.
    pub end: SessionNs,
    /// Registers and stack, where they were captured.
    pub detail: Option<Detail<'a>>,
}

impl<'a> RunEvent<'a> {
    /// The event of a run that says the same as this one, if there can be one.
    pub fn of(event: &FunctionEvent<'a>) -> Option<Self> {
        let FunctionEvent { stamp, kind, function, ip, depth, detail, ref extra } = *event;
        if function.is_some() == ip.is_some() || !extra.is_empty() {
            return None;
        }
        let event = Self { kind, depth, function, ip: ip.unwrap_or(0), start: stamp.start, end: stamp.end, detail };
        event.is_fit().then_some(event)
    }

    /// Whether a run can carry its times and its stack.
    #[inline]
    pub(super) fn is_fit(&self) -> bool {
        if self.detail.is_some_and(|detail| detail.stack().len() > MAX_STACK_WORDS) {
            return false;
        }
        match self.kind {
            EventKind::Call => self.start == self.end,
            _ => self.end.0.checked_sub(self.start.0).is_some_and(|duration| duration <= PAYLOAD_MASK),
        }
    }

    /// The same in a packet of its own: the event with this number in the run that has this stamp.
    pub fn function_event(&self, run: &Stamp, number: u32) -> FunctionEvent<'a> {
        let mut counter = run.counter;
        counter.0 = counter.0.wrapping_add(number);
        FunctionEvent {
            stamp: Stamp { counter, start: self.start, end: self.end, ..*run },
            kind: self.kind,
            function: self.function,
            ip: self.function.is_none().then_some(self.ip),
            depth: self.depth,
            detail: self.detail,
            extra: Attributes::default(),
        }
    }
}

/// The events of a [`Run`](super::Run).
///
/// What the words leave open has a meaning too, so that every run can be read to its end: a depth does not go below
/// zero, and a return whose call is not in the run and that has no prefix for it took no time.
#[derive(Debug, Clone)]
pub struct RunEvents<'a> {
    words: &'a [[u8; 8]],
    time: u64,
    /// How many traced functions are open.
    open: u32,
    entries: Entries,
}

/// What prefixes say of an event.
#[derive(Debug, Default)]
struct Prefixes<'a> {
    depth: Option<u32>,
    duration: Option<u64>,
    pause: Option<u64>,
    callee: Option<(Option<FunctionId>, u64)>,
    detail: Option<Detail<'a>>,
}

impl<'a> RunEvents<'a> {
    #[inline]
    pub(super) fn new(start: SessionNs, open: u32, words: &'a [[u8; 8]]) -> Self {
        Self { words, time: start.0, open, entries: Entries::new() }
    }

    #[inline(always)]
    fn event(&mut self, word: u64, prefixes: Prefixes<'a>) -> RunEvent<'a> {
        self.time = self.time.saturating_add(prefixes.pause.unwrap_or(word & DELTA_MASK));
        let end = SessionNs(self.time);
        let (function, ip) = prefixes.callee.unwrap_or_else(|| (Some(unpack_function(word)), 0));
        let inner = self.open.saturating_sub(1);
        let (kind, depth, start) = match word >> KIND_SHIFT {
            kind @ (RETURN | EXCEPTION) => {
                let depth = prefixes.depth.unwrap_or(inner);
                self.open = depth;
                let start = match prefixes.duration {
                    Some(duration) => SessionNs(end.0.saturating_sub(duration)),
                    None => self.entries.get(depth).map_or(end, SessionNs),
                };
                (if kind == RETURN { EventKind::Return } else { EventKind::Exception }, depth, start)
            }
            kind => {
                let depth = prefixes.depth.unwrap_or(if kind == TAIL_CALL { inner } else { self.open });
                self.open = depth.saturating_add(1);
                self.entries.note(depth, end.0);
                (EventKind::Call, depth, end)
            }
        };
        RunEvent { kind, depth, function, ip, start, end, detail: prefixes.detail }
    }

    /// The event behind the prefixes that come next.
    #[inline(never)]
    fn prefixed(&mut self) -> Option<RunEvent<'a>> {
        let mut prefixes = Prefixes::default();
        loop {
            let (word, rest) = self.words.split_first()?;
            self.words = rest;
            let word = u64::from_be_bytes(*word);
            if word >> KIND_SHIFT != PREFIX {
                return Some(self.event(word, prefixes));
            }
            let payload = word & PAYLOAD_MASK;
            match word >> CODE_SHIFT {
                AT_DEPTH => prefixes.depth = u32::try_from(payload).ok(),
                ENTERED => prefixes.duration = Some(payload),
                PAUSE => prefixes.pause = Some(payload),
                FUNCTION => prefixes.callee = Some((Some(FunctionId(self.word()?)), 0)),
                ADDRESS => prefixes.callee = Some((None, self.word()?)),
                DETAIL => {
                    let stack = usize::try_from(payload >> Registers::WORDS).ok()?;
                    let registers = usize::try_from((payload & REGISTER_MASK).count_ones()).ok()?;
                    let (registers, rest) = self.words.split_at_checked(registers)?;
                    let (stack, rest) = rest.split_at_checked(stack)?;
                    self.words = rest;
                    prefixes.detail = Some(Detail::packed(payload & REGISTER_MASK, registers, stack));
                }
                _ => return None,
            }
        }
    }

    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.words.split_first()?;
        self.words = rest;
        Some(u64::from_be_bytes(*word))
    }
}

impl<'a> Iterator for RunEvents<'a> {
    type Item = RunEvent<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<RunEvent<'a>> {
        let (word, rest) = self.words.split_first()?;
        let word = u64::from_be_bytes(*word);
        if word >> KIND_SHIFT < CALL {
            return self.prefixed();
        }
        self.words = rest;
        Some(self.event(word, Prefixes::default()))
    }
}

#[inline(always)]
fn unpack_function(word: u64) -> FunctionId {
    let module = (word >> (DELTA_BITS + INDEX_BITS)) & ((1 << MODULE_BITS) - 1);
    FunctionId(module << 32 | ((word >> DELTA_BITS) & INDEX_MASK))
}
