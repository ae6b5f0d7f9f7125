//! Stubs: the code that a hooked function jumps to, made outside and put near the function's module.
//!
//! A block of them starts with the address of leave, which they share, and with how far above its link address their module
//! is. Then, for each function:
//!
//! | offset | bytes | what |
//! |---:|---:|---|
//! | 0 | 8 | the function's address |
//! | 8 | 4 | what it is watched for, plus 1; 0 for nothing |
//! | 12 | 4 | 1 where its code jumps to its own start |
//! | 16 | 8 | the routine that it enters by |
//! | 24 | 8 | the second word of its records |
//! | 32 | 6 | `call` the routine, which returns behind itself, or sixteen bytes further to leave the return alone |
//! | 38 | 5 | `lea rsp, [rsp+8]`: away with the return address, which enter has kept |
//! | 43 | 5 | `call` the copy below, with a return address of our own in the same place |
//! | 48 | 6 | `jmp [leave]`, which puts the kept return address back and returns to it |
//! | 54 | … | the copy of the function's first instructions, and a jump back behind them |
//!
//! That of a function of Go, which must use nothing of the stack and may use r12 and r13, has instead:
//!
//! | offset | bytes | what |
//! |---:|---:|---|
//! | 32 | 7 | `lea r12` the place behind the first six bytes: which stub it is |
//! | 39 | 6 | `jmp` the routine, which goes on sixteen bytes behind that place |
//!
//! A function that can be turned down has more before that, and jumps to the gate there: the module `gate` says how.

mod gate;

use std::ops::Range;

use crate::{
    plan::{Hook, Kind, Reason, Trampoline},
    shared::{BEFORE_CODE as CODE, BEFORE_HEADER, CODE_START, GATE, Kind as RecordKind, Level, OFF, Watched, header},
};

/// Bytes before the first stub: two words, and then up to where a stub is aligned well.
const BLOCK_HEAD: usize = 64;

/// Where the parts of a stub are.
const ENTER: usize = 16;
const COPY: usize = OFF;

/// The code of a stub of a function of Go, up to the copy.
const GO_CODE: [u8; COPY - CODE] = [
    0x4C, 0x8D, 0x25, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x25, 0xE3, 0xFF, 0xFF, 0xFF, 0xCC, 0xCC, 0xCC, 0xCC, 0xCC, 0xCC,
    0xCC, 0xCC, 0xCC,
];

const _: () = assert!(CODE + 6 - ENTER == 0x16 && CODE + CODE_START.len() + 4 == COPY);

/// The most bytes that a stub takes.
const MOST: usize = (BEFORE_HEADER + COPY + Trampoline::MAX_LEN).next_multiple_of(ALIGN);
const ALIGN: usize = 16;

/// The routines of the library in the target, by their addresses there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routines {
    /// Enter for a function whose return is hooked, for a probe, for an unwinder, for a watched function, for one of Go; and
    /// leave.
    addresses: [u64; 6],
    detail: bool,
    /// Where `gs` of a thread must point before it enters one of them.
    pub gs: u64,
}

impl Routines {
    /// Those to use with or without registers and stack, of the addresses that the library tells.
    pub fn new(told: &[u64], detail: bool) -> Option<Self> {
        let addresses = told.get(if detail { 6..12 } else { 0..6 })?.try_into().ok()?;
        Some(Self { addresses, detail, gs: *told.get(12)? })
    }
}

/// What a function is hooked with.
#[derive(Debug, Clone, Copy)]
pub struct Stub<'a> {
    /// Its number in the session.
    pub number: u32,
    /// Its address in the target.
    pub address: u64,
    /// What more is to be told of it.
    pub watched: Option<Watched>,
    /// How it is hooked. `None` where Gum hooks it: then it has only the part that tells which function it is.
    pub hook: Option<&'a Hook>,
}

/// The bytes that turn a function to its stub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// Where they go.
    pub address: u64,
    /// What is there before.
    pub original: [u8; 5],
    /// The jump.
    pub jump: [u8; 5],
    /// Whether it has to be the last to go: it puts return addresses back for one who unwinds.
    pub unwinds: bool,
    /// For a thread that was stopped behind the first instruction: from where it is moved, and to where.
    pub moves: Vec<(u64, u64)>,
    /// The code of its stub, before and behind the function.
    pub stub: Range<u64>,
}

/// A block of stubs, for one place in the target's memory.
#[derive(Debug)]
pub struct Block {
    address: u64,
    bias: u64,
    routines: Routines,
    /// Where the slots of functions are in the target; 0 where there are none.
    slots: u64,
    bytes: Vec<u8>,
    /// Where stubs start in it, and how much more is before each.
    starts: Vec<(usize, usize)>,
    patches: Vec<Patch>,
    gates: Vec<(u32, u64)>,
}

impl Block {
    /// How much memory this many stubs take at most.
    pub fn bytes_for(stubs: usize) -> usize {
        (BLOCK_HEAD + stubs * MOST).next_multiple_of(4096)
    }

    /// An empty block that will lie at `address`, for a module that was loaded `bias` above where it was linked to be.
    /// With the address of the slots, functions in it can be turned down.
    pub fn new(address: u64, bias: u64, routines: Routines, slots: u64) -> Self {
        let [.., leave] = routines.addresses;
        let mut bytes = [leave.to_le_bytes(), bias.to_le_bytes()].concat();
        bytes.resize(BLOCK_HEAD, 0);
        Self { address, bias, routines, slots, bytes, starts: Vec::new(), patches: Vec::new(), gates: Vec::new() }
    }

    /// Adds a stub, and tells where it starts. On failure nothing is added.
    pub fn add(&mut self, stub: &Stub<'_>) -> Result<u64, Reason> {
        let gate = gate::of(stub, self.slots);
        let before = gate.as_ref().map_or(0, Vec::len);
        let start = self.bytes.len() + before;
        let at = self.address + start as u64;
        let mut bytes = Vec::with_capacity(MOST);
        let watch = stub.watched.map_or(0, |watched| watched as u64 + 1);
        let loops = u64::from(stub.hook.is_some_and(|hook| hook.loops));
        let words = if self.routines.detail { 0 } else { 2 };
        let record = header(RecordKind::Call, words, 0, stub.number);
        let routine = match (stub.hook.map(|hook| hook.kind), stub.watched) {
            (Some(Kind::Frame), None) => 0,
            (Some(Kind::Probe) | None, _) => 1,
            (Some(Kind::Unwinder), _) => 2,
            (Some(Kind::Frame), Some(_)) => 3,
            (Some(Kind::Go), _) => 4,
        };
        for word in [stub.address, watch | loops << 32, self.routines.addresses[routine], record] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        if let Some(hook) = stub.hook {
            match hook.kind {
                Kind::Go => bytes.extend_from_slice(&GO_CODE),
                _ => bytes.extend([CODE_START.as_slice(), &self.to_leave(at + COPY as u64)].concat()),
            }
            debug_assert_eq!(bytes.len(), COPY);
            let copy = hook.prologue.relocate(self.bias, at + COPY as u64)?;
            bytes.extend_from_slice(&copy.bytes);
            self.patches.push(self.patch(hook, &copy, at, gate.is_some())?);
        }
        self.starts.push((start, before));
        if let Some(gate) = gate {
            self.bytes.extend_from_slice(&gate);
            self.gates.push((stub.number, Level::Full.slot(at)));
        }
        self.bytes.extend_from_slice(&bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGN), 0xCC);
        Ok(at)
    }

    fn patch(&self, hook: &Hook, copy: &Trampoline, stub: u64, is_gated: bool) -> Result<Patch, Reason> {
        let address = hook.prologue.patch.wrapping_add(self.bias);
        let (start, entry) = match is_gated {
            true => (stub - BEFORE_HEADER as u64, stub - GATE as u64),
            false => (stub + CODE as u64, stub + CODE as u64),
        };
        let distance = entry.wrapping_sub(address + 5) as i64;
        let distance = i32::try_from(distance).map_err(|_| Reason::CannotRelocate)?.to_le_bytes();
        let [a, b, c, d] = distance;
        let moved = |(from, to): &(u8, u8)| (address + u64::from(*from), stub + COPY as u64 + u64::from(*to));
        Ok(Patch {
            address,
            original: hook.prologue.original,
            jump: [0xE9, a, b, c, d],
            unwinds: hook.kind == Kind::Unwinder,
            moves: copy.steps.iter().filter(|(from, _)| *from > 0).map(moved).collect(),
            stub: start..stub + COPY as u64,
        })
    }

    /// The distance from `next` to the address of leave.
    fn to_leave(&self, next: u64) -> [u8; 4] {
        // The block is far smaller than 2 GiB, so that this cannot overflow.
        (self.address.wrapping_sub(next) as i32).to_le_bytes()
    }

    /// Whether what lies there already is a block of the same stubs, so that who is in one of them can go on in this one's.
    /// Numbers and routines may differ, and so what is before a stub: nobody stays there.
    pub fn can_replace(&self, there: &[u8]) -> bool {
        let (Some(own), Some(there)) = (self.bytes.get(BLOCK_HEAD..), there.get(BLOCK_HEAD..self.bytes.len())) else {
            return false;
        };
        let is_header = |at: usize| {
            let at = at + BLOCK_HEAD;
            let before = self.starts.partition_point(|(start, before)| start - before <= at);
            let start = before.checked_sub(1).and_then(|place| self.starts.get(place));
            start.is_some_and(|(start, _)| at < *start || (start + 8..start + CODE).contains(&at))
        };
        own.iter().zip(there).enumerate().all(|(at, (own, there))| own == there || is_header(at))
    }

    /// How far above its link address the module of a block was, if these are the bytes of one.
    pub fn bias_of(bytes: &[u8]) -> Option<u64> {
        let bias = bytes.get(8..)?.first_chunk().map(|bias| u64::from_le_bytes(*bias));
        let is_stub = |start: usize| {
            let code = bytes.get(start + CODE..);
            code.is_some_and(|code| code.starts_with(&CODE_START) || code.starts_with(&GO_CODE))
        };
        bias.filter(|_| is_stub(BLOCK_HEAD) || is_stub(BLOCK_HEAD + BEFORE_HEADER))
    }

    /// Where it lies.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// What it consists of.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What the slots of functions hold that can be turned down, by their numbers. To be written before they jump.
    pub fn gates(&self) -> &[(u32, u64)] {
        &self.gates
    }

    /// What makes the functions jump to their stubs. Must not be written before the block is.
    pub fn patches(&self) -> &[Patch] {
        &self.patches
    }
}
