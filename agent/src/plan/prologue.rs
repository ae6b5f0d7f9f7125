//! The first instructions of a function: those that a hook overwrites.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use super::{
    Reason,
    code::{Marks, Section},
    trampoline::{Trampoline, can_move},
};

/// The size of the jump that a hook writes.
pub const PATCH_SIZE: usize = 5;

/// The most bytes that can be covered: four, and then the longest instruction.
const MAX_COVERED: usize = PATCH_SIZE - 1 + 15;

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// The first instructions of a function, up to where at least five bytes are covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prologue {
    /// The link-time address where the jump goes: the start of the function, or behind its `endbr64`.
    pub patch: u64,
    /// How many bytes the instructions have that the jump overwrites, whole or in part. A thread that has stopped
    /// behind `patch` but before `patch + covered` must be moved.
    pub covered: usize,
    /// The bytes that the jump overwrites.
    pub original: [u8; PATCH_SIZE],
    code: [u8; MAX_COVERED],
    /// How many of the covered bytes are instructions that can be reached; padding follows.
    reached: u8,
}

impl Prologue {
    /// Reads the first instructions of the function at `address`, which ends at `end`, from the bytes of its section.
    pub(super) fn read(
        section: &Section,
        bytes: &[u8],
        address: u64,
        end: u64,
        starts: &Marks<'_>,
    ) -> Result<Self, Reason> {
        let bytes = bytes.get((address - section.address) as usize..).unwrap_or_default();
        let skipped = if bytes.starts_with(&ENDBR64) { ENDBR64.len() } else { 0 };
        let (bytes, patch) = (&bytes[skipped..], address + skipped as u64);
        let mut decoder = Decoder::with_ip(64, bytes, patch, DecoderOptions::NONE);
        let mut reached = None;
        while decoder.position() < PATCH_SIZE {
            let from = decoder.ip();
            if !decoder.can_decode() {
                return Err(Reason::TooShort);
            }
            let instruction = decoder.decode();
            if starts.any(section, from.max(address + 1)..decoder.ip()) {
                return Err(Reason::TooShort);
            }
            if reached.is_some() {
                // Nothing comes here any more, so what is here may go, if it is nothing.
                if !is_padding(&instruction) {
                    return Err(Reason::TooShort);
                }
                continue;
            }
            if instruction.is_invalid() {
                return Err(Reason::NotCode);
            }
            if decoder.ip() > end {
                return Err(Reason::TooShort);
            }
            if !can_move(&instruction) {
                return Err(Reason::CannotRelocate);
            }
            if is_call(&instruction) && decoder.position() < PATCH_SIZE {
                return Err(Reason::CallInStart);
            }
            if ends(&instruction) {
                reached = Some(decoder.position());
            }
        }
        let covered = decoder.position();
        let mut code = [0; MAX_COVERED];
        let whole = bytes.get(..covered).ok_or(Reason::TooShort)?;
        code.get_mut(..covered).ok_or(Reason::CannotRelocate)?.copy_from_slice(whole);
        let mut original = [0; PATCH_SIZE];
        original.copy_from_slice(&code[..PATCH_SIZE]);
        Ok(Self { patch, covered, original, code, reached: reached.unwrap_or(covered) as u8 })
    }

    /// The covered bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.code[..self.covered]
    }

    /// Whether it begins with what compilers put between functions.
    pub(super) fn begins_with_padding(&self) -> bool {
        is_padding(&Decoder::new(64, self.bytes(), DecoderOptions::NONE).decode())
    }

    /// Makes a copy of the covered instructions that does at the run-time address `at` what they do where they are,
    /// and then goes on behind them. `bias` is what the loader added to link-time addresses.
    ///
    /// Fails where something that an instruction refers to is more than 2 GiB away from `at`.
    pub fn relocate(&self, bias: u64, at: u64) -> Result<Trampoline, Reason> {
        let reached = usize::from(self.reached);
        let mut decoder =
            Decoder::with_ip(64, &self.code[..reached], self.patch.wrapping_add(bias), DecoderOptions::NONE);
        let mut trampoline = Trampoline::new(at);
        let (mut flows_on, mut restarts) = (true, false);
        while decoder.can_decode() {
            let from = decoder.position();
            let instruction = decoder.decode();
            let constants = decoder.get_constant_offsets(&instruction);
            trampoline.push(&instruction, &self.code[from..decoder.position()], constants, from)?;
            // A call returns to the original.
            flows_on = !ends(&instruction) && !is_call(&instruction);
            restarts = instruction.mnemonic() == Mnemonic::Syscall;
        }
        if restarts {
            // The system restarts a call that it has interrupted by going back to it from behind it.
            trampoline.steps.push((self.reached, trampoline.bytes.len() as u8));
        }
        if flows_on {
            trampoline.jump(decoder.ip())?;
        }
        if trampoline.bytes.len() > Trampoline::MAX_LEN {
            return Err(Reason::CannotRelocate);
        }
        Ok(trampoline)
    }
}

/// Whether control never goes on behind an instruction.
fn ends(instruction: &Instruction) -> bool {
    match instruction.flow_control() {
        FlowControl::Return
        | FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::Exception => true,
        _ => instruction.mnemonic() == Mnemonic::Hlt,
    }
}

fn is_call(instruction: &Instruction) -> bool {
    instruction.is_call_near() || instruction.is_call_near_indirect()
}

/// Whether an instruction does nothing, as those between functions.
fn is_padding(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
}
