//! Function events: the calls and returns that a trace mostly consists of.

use std::fmt;

use bytes::BufMut;

use crate::{
    EventKind, FunctionId,
    heph::{
        Attribute, Attributes, Encode, EncodeError, Event, EventHead, List, Stamp, Value, event_size,
        wire::{Reader, Wire},
        write_event,
    },
    layout::record,
};

/// The most words of stack that an event may carry: 512 bytes.
pub const MAX_STACK_WORDS: usize = 64;

const FN: &str = "fn";
const IP: &str = "ip";
pub(super) const DEPTH: &str = "depth";
const REGS: &str = "regs";
const STACK: &str = "stack";
const NAMES: &[&str] = &[FN, IP, DEPTH, REGS, STACK];

/// A function was entered or left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FunctionEvent<'a> {
    /// Where and when: from when the function was entered to when this happened, which for a call is the same.
    pub stamp: Stamp,
    /// Whether it was entered or left.
    pub kind: EventKind,
    /// The function, where it is known.
    pub function: Option<FunctionId>,
    /// Its address. Always there where the function is not known.
    pub ip: Option<u64>,
    /// How many traced functions were below it on the stack.
    pub depth: u32,
    /// Registers and stack, where they were captured.
    pub detail: Option<Detail<'a>>,
    /// Attributes that are not of the profile.
    pub extra: Attributes<'a>,
}

/// What was captured with a call or return: registers and stack.
///
/// It borrows both, so that an event stays small until they are looked at.
#[derive(Clone, Copy)]
pub struct Detail<'a> {
    registers: RegisterWords<'a>,
    stack: List<'a, u64>,
}

#[derive(Clone, Copy)]
enum RegisterWords<'a> {
    /// Always as many words as there are registers.
    All(List<'a, u64>),
    /// Those that are not zero, and a bit for each register that tells whether it is among them.
    Some { mask: u64, words: &'a [[u8; 8]] },
}

impl<'a> Detail<'a> {
    /// The registers as words in order, and the words of the stack from the stack pointer upward, of which an event
    /// can carry [`MAX_STACK_WORDS`].
    pub fn new(registers: &'a [u64; Registers::WORDS], stack: &'a [u64]) -> Self {
        Self { registers: RegisterWords::All(registers.into()), stack: stack.into() }
    }

    /// The registers that the mask names, and the stack, as a run has them.
    pub(crate) fn packed(mask: u64, words: &'a [[u8; 8]], stack: &'a [[u8; 8]]) -> Self {
        Self { registers: RegisterWords::Some { mask, words }, stack: List::from_words(stack) }
    }

    /// The detail with these words in a packet, if that is what they are.
    #[inline]
    fn from_lists(registers: List<'a, u64>, stack: List<'a, u64>) -> Option<Self> {
        let fits = registers.len() == Registers::WORDS && stack.len() <= MAX_STACK_WORDS;
        fits.then_some(Self { registers: RegisterWords::All(registers), stack })
    }

    /// The registers.
    #[inline]
    pub fn registers(&self) -> Registers {
        let mut registers = [0; Registers::WORDS];
        match self.registers {
            RegisterWords::All(words) => registers.iter_mut().zip(words).for_each(|(to, word)| *to = word),
            RegisterWords::Some { mask, words } => {
                let named = (0..).zip(&mut registers).filter(|(bit, _)| mask >> bit & 1 == 1);
                named.zip(words).for_each(|((_, to), word)| *to = u64::from_be_bytes(*word));
            }
        }
        Registers::from_words(registers)
    }

    /// The words of the stack, from the stack pointer upward.
    pub fn stack(&self) -> List<'a, u64> {
        self.stack
    }

    /// The stack as bytes, just as they lay in the memory of a little-endian machine and as they lie on disk.
    pub fn stack_bytes<'b>(&self, buffer: &'b mut [u8; MAX_STACK_WORDS * 8]) -> &'b [u8] {
        for (chunk, word) in buffer.as_chunks_mut().0.iter_mut().zip(self.stack) {
            *chunk = word.to_le_bytes();
        }
        let bytes = self.stack.len().saturating_mul(8);
        buffer.get(..bytes).unwrap_or(buffer)
    }
}

impl PartialEq for Detail<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.registers() == other.registers() && self.stack == other.stack
    }
}

impl Eq for Detail<'_> {}

impl fmt::Debug for Detail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detail").field("registers", &self.registers()).field("stack", &self.stack).finish()
    }
}

/// The registers of a call or return, in the order of ATF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Registers {
    /// The registers that arguments or results are passed in.
    ///
    /// On arm64 x0–x7. On x86_64, of a call: rdi, rsi, rdx, rcx, r8, r9, 0, 0; of a return: rax, rdx, 0….
    pub general: [u64; 8],
    /// Where the function returns to.
    pub return_address: u64,
    /// The frame pointer.
    pub frame_pointer: u64,
    /// The stack pointer.
    pub stack_pointer: u64,
}

impl Registers {
    /// How many words they are.
    pub const WORDS: usize = 11;

    /// The registers as words, in order.
    #[inline]
    pub fn to_words(&self) -> [u64; Self::WORDS] {
        let [a, b, c, d, e, f, g, h] = self.general;
        [a, b, c, d, e, f, g, h, self.return_address, self.frame_pointer, self.stack_pointer]
    }

    /// The registers from words, in order.
    #[inline]
    pub fn from_words(words: [u64; Self::WORDS]) -> Self {
        let [a, b, c, d, e, f, g, h, return_address, frame_pointer, stack_pointer] = words;
        Self { general: [a, b, c, d, e, f, g, h], return_address, frame_pointer, stack_pointer }
    }
}

impl<'a> FunctionEvent<'a> {
    /// Decodes an event packet whose magic and size have been checked, if it is laid out just as
    /// [`encode`](Encode::encode) lays out a known function.
    ///
    /// This is how nearly all packets look; what looks otherwise takes the long way, with the same result.
    #[inline(always)]
    pub(crate) fn read_canonical(packet: &'a [u8]) -> Option<Self> {
        let (head, rest) = packet.split_first_chunk()?;
        let (kind, rest) = match EventHead::from_bytes(head).description_length {
            4 => (EventKind::Call, rest.strip_prefix(b"call")?),
            6 => (EventKind::Return, rest.strip_prefix(b"return")?),
            _ => return None,
        };
        let (record, rest) = rest.split_first_chunk()?;
        let record = FunctionRecord::from_bytes(record);
        if record.fn_head != FN_HEAD || record.depth_head != DEPTH_HEAD {
            return None;
        }
        let detail = if rest.is_empty() {
            None
        } else {
            let mut reader = Reader::new(rest.strip_prefix(&REGS_HEAD)?, 0);
            let registers = List::read(&mut reader, REGS).ok()?;
            Some(Detail::from_lists(registers, read_canonical_stack(reader.rest())?)?)
        };
        Some(Self {
            stamp: EventHead::from_bytes(head).stamp(),
            kind,
            function: Some(FunctionId(record.function)),
            ip: None,
            depth: u32::try_from(record.depth).ok()?,
            detail,
            extra: Attributes::default(),
        })
    }
}

/// The stack that ends a canonical packet, if it has one.
#[inline]
fn read_canonical_stack(rest: &[u8]) -> Option<List<'_, u64>> {
    if rest.is_empty() {
        return Some(List::default());
    }
    let mut reader = Reader::new(rest.strip_prefix(&STACK_HEAD)?, 0);
    let stack = List::read(&mut reader, STACK).ok()?;
    reader.rest().is_empty().then_some(stack)
}

/// The attributes of an event that a function event may have, found while it is decoded.
#[derive(Debug, Default)]
pub(crate) struct Collected<'a> {
    function: Option<FunctionId>,
    ip: Option<u64>,
    depth: Option<u32>,
    registers: Option<List<'a, u64>>,
    stack: Option<List<'a, u64>>,
    extra: bool,
    /// An attribute has one of our names, but twice or with a value that is not ours.
    foreign: bool,
}

impl<'a> Collected<'a> {
    #[inline]
    pub(crate) fn add(&mut self, attribute: &Attribute<'a>) {
        let fits = match (attribute.name, attribute.value) {
            (FN, Value::U64(id)) => self.function.replace(FunctionId(id)).is_none(),
            (IP, Value::U64(ip)) => self.ip.replace(ip).is_none(),
            (DEPTH, Value::U64(depth)) => match u32::try_from(depth) {
                Ok(depth) => self.depth.replace(depth).is_none(),
                Err(_) => false,
            },
            (REGS, Value::U64s(words)) => self.registers.replace(words).is_none(),
            (STACK, Value::U64s(words)) => self.stack.replace(words).is_none(),
            (FN | IP | DEPTH | REGS | STACK, _) => false,
            _ => {
                self.extra = true;
                true
            }
        };
        self.foreign |= !fits;
    }

    /// The function event that `event` is, unless its attributes are not those of one.
    #[inline]
    pub(crate) fn function_event(self, kind: EventKind, event: &Event<'a>) -> Option<FunctionEvent<'a>> {
        let depth = self.depth?;
        let detail = match (self.registers, self.stack) {
            (Some(registers), stack) => Some(Detail::from_lists(registers, stack.unwrap_or_default())?),
            (None, Some(_)) => return None,
            (None, None) => None,
        };
        if self.foreign || (self.function.is_none() && self.ip.is_none()) {
            return None;
        }
        Some(FunctionEvent {
            stamp: event.stamp,
            kind,
            function: self.function,
            ip: self.ip,
            depth,
            detail,
            extra: match self.extra {
                true => event.attributes.without(NAMES),
                false => Attributes::default(),
            },
        })
    }
}

impl FunctionEvent<'_> {
    /// Checks that the event can be written, and tells how many bytes its attributes take.
    #[inline]
    fn measure(&self) -> Result<usize, EncodeError> {
        if self.function.is_none() && self.ip.is_none() {
            return Err(EncodeError::Missing { field: "function or ip" });
        }
        let mut bytes = const { DEPTH_HEAD.len() + 8 };
        let mut add = |more: usize| bytes = bytes.saturating_add(more);
        if self.function.is_some() {
            add(const { FN_HEAD.len() + 8 });
        }
        if self.ip.is_some() {
            add(const { IP_HEAD.len() + 8 });
        }
        if let Some(detail) = &self.detail {
            add(const { REGS_HEAD.len() + 2 + 8 * Registers::WORDS });
            let length = detail.stack.len();
            if length > MAX_STACK_WORDS {
                return Err(EncodeError::TooLong { field: STACK, length, limit: MAX_STACK_WORDS });
            }
            if length > 0 {
                add(const { STACK_HEAD.len() + 2 }.saturating_add(length.saturating_mul(8)));
            }
        }
        add(self.extra.measure_beside(NAMES)?);
        Ok(bytes)
    }

    /// Writes the attributes that name the function and its depth.
    #[inline]
    fn write_numbers(&self, out: &mut impl BufMut) {
        let depth = self.depth.into();
        if let (Some(FunctionId(function)), None) = (self.function, self.ip) {
            // In one piece whose length is known when this is compiled.
            let record = FunctionRecord { fn_head: FN_HEAD, function, depth_head: DEPTH_HEAD, depth };
            return out.put_slice(&record.to_bytes());
        }
        let function = self.function.map(|id| id.0);
        for (head, value) in [(&FN_HEAD[..], function), (&IP_HEAD, self.ip), (&DEPTH_HEAD, Some(depth))] {
            if let Some(value) = value {
                out.put_slice(head);
                out.put_u64(value);
            }
        }
    }

    /// Writes the attributes behind those.
    #[inline]
    fn write_rest(&self, out: &mut impl BufMut) {
        if let Some(detail) = &self.detail {
            out.put_slice(&REGS_HEAD);
            List::from(&detail.registers().to_words()).write(out);
            if !detail.stack.is_empty() {
                out.put_slice(&STACK_HEAD);
                detail.stack.write(out);
            }
        }
        self.extra.write(out);
    }
}

/// What stands before the values in the attributes of a function event: name and type.
const FN_HEAD: [u8; 5] = *b"\0\x02fn\x01";
const IP_HEAD: [u8; 5] = *b"\0\x02ip\x01";
pub(super) const DEPTH_HEAD: [u8; 8] = *b"\0\x05depth\x01";
const REGS_HEAD: [u8; 7] = *b"\0\x04regs\x81";
const STACK_HEAD: [u8; 8] = *b"\0\x05stack\x81";

record! { be;
    /// The two attributes that an event of a known function always has, as they are written.
    struct FunctionRecord[29] {
        fn_head: [u8; 5],
        function: u64,
        depth_head: [u8; 8],
        depth: u64,
    }
}

impl Encode for FunctionEvent<'_> {
    fn encoded_len(&self) -> Result<usize, EncodeError> {
        event_size(self.kind.description(), self.measure()?)
    }

    #[inline]
    fn encode(&self, out: &mut impl BufMut) -> Result<usize, EncodeError> {
        write_event(&self.stamp, self.kind.description(), self.measure()?, out, |out| {
            self.write_numbers(out);
            self.write_rest(out);
        })
    }
}
