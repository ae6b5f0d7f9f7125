//! What a thread does that waits for its keeper: it looks at the clock, and where nobody has it wait on, it goes back by itself. For
//! that, its stack has what the system needs to end a signal handler: all registers, and the signals that the thread blocks.

use agent::{
    registers::{ExtendedRegisters, SignalMask},
    shared::tsc,
};
use nix::libc::user_regs_struct;

use crate::install::{TargetMemory, begun_anew};

/// `pause`; `rdtsc`; `shrd eax, edx, 24`; `sub eax, [rip + 6]`, which is the word behind this code; `js` back to the `pause`; then
/// `mov eax, ebx`; `syscall`.
const CODE: [u8; 20] =
    [0xF3, 0x90, 0x0F, 0x31, 0x0F, 0xAC, 0xD0, 0x18, 0x2B, 0x05, 6, 0, 0, 0, 0x78, 0xF0, 0x89, 0xD8, 0x0F, 0x05];
/// Where its instructions begin.
const STARTS: [u64; 7] = [0, 2, 4, 8, 14, 16, 18];

/// How much of the counter of the clock it leaves out.
const LEFT_OUT: u32 = 24;
/// For how long it waits, in what is left: three seconds where the counter counts three times in a nanosecond.
const PATIENCE: u32 = 512;

/// What a function may use below its stack pointer.
const RED_ZONE: u64 = 128;
/// Where the extended registers are in the frame of a signal handler, which begins at a multiple of 64.
const EXTENDED_AT: u64 = 320;

/// The code, and until when the thread waits.
pub(super) const BYTES: usize = CODE.len() + 4;
/// Where that is.
pub(super) const UNTIL_AT: u64 = CODE.len() as u64;

/// The code for a thread that waits until then.
pub(super) fn code(until: Moment) -> [u8; BYTES] {
    let mut code = [0; BYTES];
    code[..CODE.len()].copy_from_slice(&CODE);
    code[CODE.len()..].copy_from_slice(&until.bytes());
    code
}

/// Whether this is such code.
pub(super) fn is_code(bytes: &[u8]) -> bool {
    bytes.starts_with(&CODE)
}

/// Whether a thread that is there waits for a keeper.
pub(crate) fn is_kept(memory: &TargetMemory, rip: u64) -> bool {
    let mut there = [0; CODE.len()];
    STARTS.iter().any(|start| memory.read(rip.wrapping_sub(*start), &mut there).is_ok() && there == CODE)
}

/// What the clock shows, and the thread can tell from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment(u32);

impl Moment {
    /// Until when a thread waits that begins now.
    pub(super) fn in_time() -> Self {
        Self(Self::now().0.wrapping_add(PATIENCE))
    }

    /// Whether it is over, as the thread sees it.
    pub(super) fn is_over(self) -> bool {
        Self::now().0.wrapping_sub(self.0) as i32 >= 0
    }

    pub(super) fn bytes(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }

    fn now() -> Self {
        Self((tsc::now() >> LEFT_OUT) as u32)
    }
}

/// What a thread has to find on its stack to go back, and what it is while it waits with the code at this place.
pub(super) fn waiting(
    was: user_regs_struct,
    extended: &ExtendedRegisters,
    mask: SignalMask,
    at: u64,
) -> (Vec<u8>, user_regs_struct) {
    const RT_SIGRETURN: u64 = 15;
    /// That there are extended registers, and that the segment of the stack is right.
    const FLAGS: u64 = 7;
    /// No stack for signal handlers is like that, so that the thread keeps what it has.
    const NO_STACK: u64 = 0x100;
    let extended = extended.in_signal_frame();
    let start = (was.rsp - RED_ZONE - EXTENDED_AT - extended.len() as u64) & !63;
    let back = begun_anew(was);
    let general = [
        [FLAGS, 0, 0, NO_STACK, 0, back.r8],
        [back.r9, back.r10, back.r11, back.r12, back.r13, back.r14],
        [back.r15, back.rdi, back.rsi, back.rbp, back.rbx, back.rdx],
        [back.rax, back.rcx, back.rsp, back.rip, back.eflags, back.cs & 0xFFFF | back.ss << 48],
        // How it was interrupted, which does not matter.
        [0, 0, 0, 0, start + EXTENDED_AT, 0],
        [0, 0, 0, 0, 0, 0],
        [0, mask.0, 0, 0, 0, 0],
    ];
    let mut frame: Vec<u8> = general.as_flattened().iter().flat_map(|word| word.to_le_bytes()).collect();
    frame.resize(EXTENDED_AT as usize, 0);
    frame.extend(extended);
    let mut waits = was;
    // Not as if it came out of a system call: that is made again later. What comes through it uses the stack below the frame.
    (waits.rip, waits.orig_rax, waits.rbx, waits.rsp) = (at, u64::MAX, RT_SIGRETURN, start);
    (frame, waits)
}
