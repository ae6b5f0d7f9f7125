//! A system call as code: a thread makes it, waits for a second or two, and goes back by itself where nobody has come for it.
//! It writes to no memory, and leaves the flags and the stack alone. Meanwhile its signals are blocked: a handler would come back
//! into the code at a time that nobody knows. Before it goes back, it unblocks them.

use std::ops::Range;

use agent::registers::SignalMask;
use nix::libc::user_regs_struct;

/// A system call that a thread is to make.
pub(super) struct SystemCall {
    pub(super) number: u64,
    pub(super) arguments: [u64; 6],
    /// What the thread is when it goes back.
    pub(super) back: user_regs_struct,
    /// The signals that it blocks then.
    pub(super) mask: SignalMask,
}

/// `mov reg, [rip + …]` without the distance: for rax, rdi, rsi, rdx, r10, r8 and r9, and for rcx and r11, which the system
/// changes.
const LOAD: [[u8; 3]; 9] = [
    [0x48, 0x8B, 0x05],
    [0x48, 0x8B, 0x3D],
    [0x48, 0x8B, 0x35],
    [0x48, 0x8B, 0x15],
    [0x4C, 0x8B, 0x15],
    [0x4C, 0x8B, 0x05],
    [0x4C, 0x8B, 0x0D],
    [0x48, 0x8B, 0x0D],
    [0x4C, 0x8B, 0x1D],
];
const LOAD_BYTES: usize = 7;
/// How many of them the call needs.
const NEEDED: usize = 7;

const SYSCALL: [u8; 2] = [0x0F, 0x05];

/// `mov ecx, 2³⁰`, then `lea rcx, [rcx - 1]`, `jrcxz` behind what follows, and `jmp` back to the `lea`.
const WAIT: [u8; 13] = [0xB9, 0, 0, 0, 0x40, 0x48, 0x8D, 0x49, 0xFF, 0xE3, 0x02, 0xEB, 0xF8];

/// `rt_sigprocmask(SIG_SETMASK, mask, NULL, 8)` but for the mask: what goes into which of the registers above.
const UNBLOCK: [(usize, u64); 4] = [(0, 14), (1, 2), (3, 0), (4, 8)];
/// `lea rsi, [rip + …]` without the distance.
const MASK: [u8; 3] = [0x48, 0x8D, 0x35];
const UNBLOCK_BYTES: usize = (UNBLOCK.len() + 1) * LOAD_BYTES + SYSCALL.len();

/// `jmp [rip + …]` without the distance.
const JUMP: [u8; 2] = [0xFF, 0x25];

impl SystemCall {
    /// Before this byte of the code, the call is not made yet.
    pub(super) const MADE: usize = NEEDED * LOAD_BYTES + SYSCALL.len();
    /// Here, the thread waits, and its result is in rax.
    pub(super) const WAITING: Range<usize> = Self::MADE..Self::MADE + WAIT.len();
    const DATA: usize =
        (Self::WAITING.end + UNBLOCK_BYTES + LOAD.len() * LOAD_BYTES + JUMP.len() + 4).next_multiple_of(8);
    /// How long all of it is.
    pub(super) const BYTES: usize = Self::DATA + (NEEDED + LOAD.len() + 1 + UNBLOCK.len() + 1) * 8;

    pub(super) fn code(&self) -> Vec<u8> {
        let Self { number, arguments: [a, b, c, d, e, f], back, mask } = *self;
        let given = [number, a, b, c, d, e, f];
        let kept = [back.rax, back.rdi, back.rsi, back.rdx, back.r10, back.r8, back.r9, back.rcx, back.r11, back.rip];
        let mut code = Vec::with_capacity(Self::BYTES);
        // To the word of the data that has this place.
        let distance = |end: usize, place: usize| ((Self::DATA + 8 * place - end) as u32).to_le_bytes();
        let load = |code: &mut Vec<u8>, register: usize, place: usize| {
            code.extend(LOAD[register]);
            code.extend(distance(code.len() + 4, place));
        };
        (0..NEEDED).for_each(|register| load(&mut code, register, register));
        code.extend(SYSCALL);
        code.extend(WAIT);
        let unblock = NEEDED + LOAD.len() + 1;
        UNBLOCK.iter().enumerate().for_each(|(place, (register, _))| load(&mut code, *register, unblock + place));
        code.extend(MASK);
        code.extend(distance(code.len() + 4, unblock + UNBLOCK.len()));
        code.extend(SYSCALL);
        (0..LOAD.len()).for_each(|register| load(&mut code, register, NEEDED + register));
        code.extend(JUMP);
        code.extend(distance(code.len() + 4, NEEDED + LOAD.len()));
        code.resize(Self::DATA, 0xCC);
        let unblocking = UNBLOCK.iter().map(|(_, word)| word).chain([&mask.0]);
        code.extend(given.iter().chain(&kept).chain(unblocking).flat_map(|word| word.to_le_bytes()));
        code
    }
}
