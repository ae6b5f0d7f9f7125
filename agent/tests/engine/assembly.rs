//! Functions whose every instruction is known.

use std::arch::global_asm;

unsafe extern "C" {
    /// Jumps to the second, which jumps to the third: each adds one.
    pub(crate) fn tail_first_test(n: u64) -> u64;
    /// Calls `pops_test` with three arguments on the stack, which that takes off; then a function that jumps to it.
    pub(crate) fn pops_check_test() -> u64;
    pub(crate) fn jumps_to_pops_check_test() -> u64;
    /// Counts down, by jumps to its own first instruction.
    pub(crate) fn loop_test(n: u64) -> u64;
    /// Calls a function that does nothing with values in all registers, and counts those that differ afterwards.
    pub(crate) fn keeper_check_test() -> u64;
}

global_asm!(
    r#"
.macro FUNCTION name
    .globl \name
    .type \name,@function
    .balign 16
\name:
    .cfi_startproc
.endm
.macro END name
    .cfi_endproc
    .size \name, .-\name
.endm

FUNCTION tail_first_test
    add rdi, 1
    nop dword ptr [rax]
    jmp tail_second_test
END tail_first_test
FUNCTION tail_second_test
    add rdi, 1
    nop dword ptr [rax]
    jmp tail_third_test
END tail_second_test
FUNCTION tail_third_test
    lea rax, [rdi + 1]
    nop dword ptr [rax]
    ret
END tail_third_test

// By the calling convention of Swift's asynchronous functions, who is called takes its arguments off the stack.
FUNCTION pops_test
    mov rax, [rsp + 8]
    add rax, [rsp + 16]
    add rax, [rsp + 24]
    ret 24
END pops_test
FUNCTION jumps_to_pops_test
    nop dword ptr [rax + 0x100]
    jmp pops_test
END jumps_to_pops_test
.macro CALL_WITH_THREE name
    push 1
    .cfi_adjust_cfa_offset 8
    push 20
    .cfi_adjust_cfa_offset 8
    push 300
    .cfi_adjust_cfa_offset 8
    call \name
    .cfi_adjust_cfa_offset -24
    ret
.endm
FUNCTION pops_check_test
    CALL_WITH_THREE pops_test
END pops_check_test
FUNCTION jumps_to_pops_check_test
    CALL_WITH_THREE jumps_to_pops_test
END jumps_to_pops_check_test

FUNCTION loop_test
    mov rax, rdi
    dec rdi
    js 1f
    jmp loop_test
1:  ret
END loop_test

FUNCTION keeper_test
    nop dword ptr [rax + 0x100]
    ret
END keeper_test

// Every register that a call may be given something in, or that must survive it, and the flags.
FUNCTION keeper_check_test
    push rbx
    .cfi_adjust_cfa_offset 8
    push rbp
    .cfi_adjust_cfa_offset 8
    push r12
    .cfi_adjust_cfa_offset 8
    push r13
    .cfi_adjust_cfa_offset 8
    push r14
    .cfi_adjust_cfa_offset 8
    push r15
    .cfi_adjust_cfa_offset 8
    sub rsp, 24
    .cfi_adjust_cfa_offset 24
    .irp reg, rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15
    mov \reg, rsp
    .endr
    .irp reg, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    movq xmm\reg, rsp
    .endr
    mov qword ptr [rsp], 0
    mov qword ptr [rsp + 8], 0
    cmp rsp, 0
    stc
    pushfq
    pop qword ptr [rsp + 8]
    call keeper_test
    pushfq
    pop qword ptr [rsp + 16]
    .irp reg, rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15
    cmp \reg, rsp
    je 1f
    inc qword ptr [rsp]
1:
    .endr
    .irp reg, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    movq rax, xmm\reg
    cmp rax, rsp
    je 1f
    inc qword ptr [rsp]
1:
    .endr
    mov rax, [rsp + 8]
    cmp rax, [rsp + 16]
    je 1f
    inc qword ptr [rsp]
1:
    mov rax, [rsp]
    add rsp, 24
    .cfi_adjust_cfa_offset -24
    pop r15
    .cfi_adjust_cfa_offset -8
    pop r14
    .cfi_adjust_cfa_offset -8
    pop r13
    .cfi_adjust_cfa_offset -8
    pop r12
    .cfi_adjust_cfa_offset -8
    pop rbp
    .cfi_adjust_cfa_offset -8
    pop rbx
    .cfi_adjust_cfa_offset -8
    ret
END keeper_check_test
"#
);
