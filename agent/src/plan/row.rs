//! What one row of an unwind entry says: where the return address and the saved registers are, for some instructions.

use gimli::{CfaRule, RegisterRule, UnwindTableRow, X86_64};
use iced_x86::{Instruction, Mnemonic, Register};

/// How the code of an unwind entry is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// With the return address on top of the stack, as calls do it.
    Call,
    /// By the kernel.
    Signal,
    /// By a jump from the middle of another function, with that function's frame on the stack.
    Part,
    /// In any other way.
    Odd,
    /// Unknown: the unwind entry cannot be evaluated.
    Broken,
}

/// How code is entered whose first row this is.
pub(super) fn entered(row: &UnwindTableRow<usize>) -> Entry {
    let on_top = matches!(row.cfa(), CfaRule::RegisterAndOffset { register: X86_64::RSP, offset: 8 });
    let is_return = matches!(row.register(X86_64::RA), Some(RegisterRule::Offset(-8)));
    if on_top && is_return { Entry::Call } else { Entry::Odd }
}

/// Which registers a function saves that no ordinary function needs to save.
#[derive(Debug, Default)]
pub(super) struct Saves {
    /// Those that carry the exception to its handler.
    pub(super) returned: bool,
    /// One that only a function which must preserve everything saves.
    pub(super) argument: bool,
}

impl Saves {
    pub(super) fn note(&mut self, row: &UnwindTableRow<usize>) {
        let saved = |register| matches!(row.register(register), Some(RegisterRule::Offset(_)));
        self.returned |= saved(X86_64::RAX) || saved(X86_64::RDX);
        self.argument |= saved(X86_64::RCX);
    }
}

/// Where the return address is, as long as one row holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    base: Register,
    displacement: i64,
}

impl Slot {
    pub(super) fn of(row: &UnwindTableRow<usize>) -> Option<Self> {
        let &CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { return None };
        let base = match register {
            X86_64::RSP => Register::RSP,
            X86_64::RBP => Register::RBP,
            _ => return None,
        };
        Some(Self { base, displacement: offset.wrapping_sub(8) })
    }

    #[inline]
    pub(super) fn is_touched(self, instruction: &Instruction) -> bool {
        let is_operand = instruction.memory_base() == self.base
            && instruction.memory_displacement64() as i64 == self.displacement
            && instruction.memory_index() == Register::None
            && instruction.mnemonic() != Mnemonic::Nop;
        is_operand || self.is_on_top() && instruction.mnemonic() == Mnemonic::Pop
    }

    fn is_on_top(self) -> bool {
        self.base == Register::RSP && self.displacement == 0
    }
}
