//! What the compiler takes for granted, for the library that goes into a target: it stands alone there.
//!
//! Copying and filling memory, which the compiler does where it likes. The program's own would be hooked, and would use
//! vector registers whose upper halves nobody has saved. All of these are hidden: nobody but this library sees them.

use core::{arch::global_asm, panic::PanicInfo};

use super::slow;

/// A fault of ours. There is no way to go on.
#[panic_handler]
fn panicked(_: &PanicInfo<'_>) -> ! {
    slow::end_with(b"spoor: the agent's library in this program has failed; cannot go on\n")
}

global_asm!(
    r#"
    .macro SPOOR_FUNCTION name
    .globl \name
    .hidden \name
    .type \name,@function
\name:
    .endm

SPOOR_FUNCTION memcpy
    mov rax, rdi
    mov rcx, rdx
    rep movsb
    ret
SPOOR_FUNCTION memmove
    mov rax, rdi
    mov rcx, rdx
    mov rdx, rdi
    sub rdx, rsi
    cmp rdx, rcx
    jb 1f
    rep movsb
    ret
1:
    lea rdi, [rdi + rcx - 1]
    lea rsi, [rsi + rcx - 1]
    std
    rep movsb
    cld
    ret
SPOOR_FUNCTION memset
    mov r8, rdi
    mov eax, esi
    mov rcx, rdx
    rep stosb
    mov rax, r8
    ret
SPOOR_FUNCTION bcmp
SPOOR_FUNCTION memcmp
    xor eax, eax
    mov rcx, rdx
    test rcx, rcx
    jz 2f
    repe cmpsb
    je 2f
    movzx eax, byte ptr [rdi - 1]
    movzx ecx, byte ptr [rsi - 1]
    sub ecx, eax
    mov eax, ecx
2:
    ret
// Named by the compiled core library, and never called: nothing is unwound here.
SPOOR_FUNCTION rust_eh_personality
    ud2
"#
);
