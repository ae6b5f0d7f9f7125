//! What Gum has saved of a call, on each processor.
//!
//! Where only Gum's own hooks can go, they say what a function was called with. On x86_64 that is tested; on arm64 it
//! is written after Gum's layout and has never run, as nothing of the target's half has.

/// What a call's record has in it, in its order: what arguments are passed in, the frame pointer, and the stack pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Captured<const ARGUMENTS: usize> {
    pub(super) arguments: [u64; ARGUMENTS],
    pub(super) return_address: Option<u64>,
    pub(super) frame_pointer: u64,
    pub(super) stack_pointer: u64,
}

/// As Gum saves them on x86_64.
#[derive(Debug)]
#[repr(C)]
pub(super) struct X64 {
    _rip: u64,
    _r15_to_r10: [u64; 6],
    r9: u64,
    r8: u64,
    rdi: u64,
    rsi: u64,
    rbp: u64,
    rsp: u64,
    _rbx: u64,
    rdx: u64,
    rcx: u64,
    _rax: u64,
}

impl X64 {
    /// The return address is on the stack, where the stack pointer points to.
    pub(super) fn captured(&self) -> Captured<6> {
        Captured {
            arguments: [self.rdi, self.rsi, self.rdx, self.rcx, self.r8, self.r9],
            return_address: None,
            frame_pointer: self.rbp,
            stack_pointer: self.rsp,
        }
    }
}

/// As Gum saves them on arm64.
#[cfg_attr(not(target_arch = "aarch64"), allow(dead_code))]
#[derive(Debug)]
#[repr(C)]
pub(super) struct Arm64 {
    _pc: u64,
    sp: u64,
    _nzcv: u64,
    x: [u64; 29],
    fp: u64,
    lr: u64,
    _v: [u128; 32],
}

#[cfg_attr(not(target_arch = "aarch64"), allow(dead_code))]
impl Arm64 {
    /// The return address is in the link register.
    pub(super) fn captured(&self) -> Captured<8> {
        let [a, b, c, d, e, f, g, h, ..] = self.x;
        Captured {
            arguments: [a, b, c, d, e, f, g, h],
            return_address: Some(self.lr),
            frame_pointer: self.fp,
            stack_pointer: self.sp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_in_the_order_of_the_calling_convention() {
        let (r9, r8, rdi, rsi, rbp, rsp, rdx, rcx) = (6, 5, 1, 2, 7, 8, 3, 4);
        let x64 = X64 { _rip: 0, _r15_to_r10: [0; 6], r9, r8, rdi, rsi, rbp, rsp, _rbx: 0, rdx, rcx, _rax: 0 };
        let captured = x64.captured();
        assert_eq!(captured.arguments, [1, 2, 3, 4, 5, 6]);
        assert_eq!((captured.frame_pointer, captured.stack_pointer), (7, 8));
        let x = std::array::from_fn(|place| place as u64);
        let arm64 = Arm64 { _pc: 0, sp: 31, _nzcv: 0, x, fp: 29, lr: 30, _v: [0; 32] };
        let captured = arm64.captured();
        assert_eq!(captured.arguments, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!((captured.return_address, captured.frame_pointer, captured.stack_pointer), (Some(30), 29, 31));
    }
}
