//! A copy of the first instructions of a function, to run in their place.

use iced_x86::{Code as Op, ConstantOffsets, Encoder, FlowControl, Instruction, OpKind, Register};

use super::Reason;

/// A copy of the covered instructions of a function that ends with a jump back behind them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trampoline {
    /// The code, for the one address that it was made for. At most [`Trampoline::MAX_LEN`] bytes.
    pub bytes: Vec<u8>,
    /// For each instruction its offset in the covered bytes and its offset in the copy: a thread that was stopped
    /// before the one goes on before the other, and nothing else about it changes.
    ///
    /// The first step is (0, 0), but no thread needs it: one that was stopped exactly where the jump goes has done
    /// nothing of the function yet, and takes the jump when it goes on, like a thread that has just called. Where the
    /// last instruction is a system call, there is a step from behind it, too.
    pub steps: Vec<(u8, u8)>,
    at: u64,
}

impl Trampoline {
    /// No copy is longer. Before the instruction that completes the five bytes there are at most four bytes of others;
    /// the most costly are two `loop` of two bytes, which become nine each. The last may be an indirect call, which
    /// becomes 13 bytes and a jump of at most 15. That is 46, and a jump back takes 5 where there is no call.
    pub const MAX_LEN: usize = 48;

    pub(super) fn new(at: u64) -> Self {
        Self { bytes: Vec::with_capacity(Self::MAX_LEN), steps: Vec::with_capacity(5), at }
    }

    /// The run-time address behind what there is.
    fn here(&self) -> u64 {
        self.at.wrapping_add(self.bytes.len() as u64)
    }

    /// Adds an instruction. `code` are its bytes, decoded at its run-time address.
    pub(super) fn push(
        &mut self,
        instruction: &Instruction,
        code: &[u8],
        constants: ConstantOffsets,
        offset: usize,
    ) -> Result<(), Reason> {
        self.steps.push((offset as u8, self.bytes.len() as u8));
        match Move::of(instruction).ok_or(Reason::CannotRelocate)? {
            Move::Same => self.bytes.extend_from_slice(code),
            Move::Data => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(code);
                let distance = distance(instruction.memory_displacement64(), self.here())?;
                let field = start + constants.displacement_offset();
                let field = self.bytes.get_mut(field..field + 4).ok_or(Reason::CannotRelocate)?;
                field.copy_from_slice(&distance);
            }
            Move::Jump => self.jump(instruction.near_branch_target())?,
            Move::Condition => {
                let mut near = *instruction;
                near.as_near_branch();
                self.encode(&near)?;
            }
            Move::Count => {
                // These reach 127 bytes and no further: to the second of two jumps, or over both by the first.
                self.bytes.extend_from_slice(&code[..code.len() - 1]);
                self.bytes.extend_from_slice(&[2, 0xeb, 5]);
                self.jump(instruction.near_branch_target())?;
            }
            Move::Call => {
                self.push_address(instruction.next_ip());
                self.jump(instruction.near_branch_target())?;
            }
            Move::CallIndirect => {
                self.push_address(instruction.next_ip());
                let mut jump = *instruction;
                jump.set_code(Op::Jmp_rm64);
                if jump.memory_base() == Register::RSP {
                    // What was pushed moved it. The eight asks for a long displacement, so that any fits.
                    jump.set_memory_displacement64(jump.memory_displacement64().wrapping_add(8));
                    jump.set_memory_displ_size(8);
                }
                self.encode(&jump)?;
            }
        }
        Ok(())
    }

    /// Adds a jump to a run-time address.
    pub(super) fn jump(&mut self, target: u64) -> Result<(), Reason> {
        let distance = distance(target, self.here().wrapping_add(5))?;
        self.bytes.push(0xe9);
        self.bytes.extend_from_slice(&distance);
        Ok(())
    }

    /// Pushes an address as a call would: `push low`, `mov dword [rsp+4], high`. No register and no flag changes.
    fn push_address(&mut self, address: u64) {
        let [low @ .., h0, h1, h2, h3] = address.to_le_bytes();
        self.bytes.push(0x68);
        self.bytes.extend_from_slice(&low);
        self.bytes.extend_from_slice(&[0xc7, 0x44, 0x24, 0x04, h0, h1, h2, h3]);
    }

    fn encode(&mut self, instruction: &Instruction) -> Result<(), Reason> {
        let mut encoder = Encoder::new(64);
        encoder.encode(instruction, self.here()).map_err(|_| Reason::CannotRelocate)?;
        self.bytes.extend_from_slice(&encoder.take_buffer());
        Ok(())
    }
}

/// Whether an instruction can be moved at all; how far is another question.
pub(super) fn can_move(instruction: &Instruction) -> bool {
    Move::of(instruction).is_some()
}

/// What it takes to move an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    /// Its bytes mean the same anywhere.
    Same,
    /// It names an address of data relative to itself.
    Data,
    /// It jumps relative to itself.
    Jump,
    /// It does so on a condition.
    Condition,
    /// It does so on what is in `rcx`, which has no form with a long distance.
    Count,
    /// It calls relative to itself. The return address must be that of the original: unwinders know that one only.
    Call,
    /// It calls what a register or memory names.
    CallIndirect,
}

impl Move {
    fn of(instruction: &Instruction) -> Option<Self> {
        let flow = instruction.flow_control();
        if instruction.op0_kind() == OpKind::NearBranch64 {
            return match flow {
                FlowControl::UnconditionalBranch => Some(Self::Jump),
                FlowControl::Call => Some(Self::Call),
                FlowControl::ConditionalBranch if instruction.is_jcc_short_or_near() => Some(Self::Condition),
                FlowControl::ConditionalBranch if is_count(instruction) => Some(Self::Count),
                _ => None,
            };
        }
        match flow {
            FlowControl::IndirectCall => {
                // `call rsp` would go to what it has just pushed.
                let is_plain = instruction.code() == Op::Call_rm64 && instruction.op0_register() != Register::RSP;
                return is_plain.then_some(Self::CallIndirect);
            }
            // A system call comes back to the next instruction wherever it stands; nothing else here does.
            FlowControl::Call if instruction.code() != Op::Syscall => return None,
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => return None,
            FlowControl::XbeginXabortXend => return None,
            _ => {}
        }
        match instruction.memory_base() {
            Register::RIP => Some(Self::Data),
            Register::EIP => None,
            _ => Some(Self::Same),
        }
    }
}

fn is_count(instruction: &Instruction) -> bool {
    instruction.is_jcx_short() || instruction.is_loop() || instruction.is_loopcc()
}

/// The distance field of an instruction that ends at `next`.
fn distance(target: u64, next: u64) -> Result<[u8; 4], Reason> {
    let distance = target.wrapping_sub(next) as i64;
    i32::try_from(distance).map(i32::to_le_bytes).map_err(|_| Reason::CannotRelocate)
}
