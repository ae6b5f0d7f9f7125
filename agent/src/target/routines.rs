//! Enter and leave, in assembly: the common case, for the machine.
//!
//! A stub *calls* enter, so that what it returns to says which stub it was, and then *calls* the copy of the function's
//! first instructions, in the very place where the function's caller had left its return address. So every return has
//! its call, and the processor predicts all of them. Enter has two ways to return: to the stub's next instruction, or
//! sixteen bytes behind, where the copy is, when the function's return is to be left alone.
//!
//! What is not the common case goes to [`slow`](super::slow): a thread that is new or forked, another stack than the
//! last time, frames that were unwound, no room in the ring, a handler that interrupted one of these routines. All
//! registers that a caller or a callee may rely on are saved, flags and vector registers included.
//!
//! There are two of each: with registers and stack, and without. Functions of Go have routines of their own.

use core::{arch::global_asm, mem::offset_of};

use super::{
    local::Local,
    shadow::{Entry, Header},
    thread::{STACK_END, Thread, WRITER_AT},
    writer::Writer,
};
use crate::shared::{Kind, header};

/// From the place in a stub that enter returns to, back to the second word of the function's records.
const RECORD: usize = super::shadow::FROM_HEADER - offset_of!(Header, record);

const _: () = assert!(size_of::<Entry>() == 32 && size_of::<Header>() == 32);

global_asm!(
    r#"
// What is pushed, from the top: rsi, rdx, rcx, flags, rax; then what enter returns to; then the function's return address.
.macro SPOOR_SAVE
    push rax
    lahf
    seto al
    push rax
    push rcx
    push rdx
    push rsi
.endm
.macro SPOOR_RESTORE
    pop rsi
    pop rdx
    pop rcx
    pop rax
    add al, 127
    sahf
    pop rax
    ret
.endm
.macro SPOOR_THREAD unknown
    mov rcx, fs:[0]
    cmp rcx, gs:[{pointer}]
    jne \unknown
    mov rcx, gs:[{state}]
.endm
// Says that this call or return is being recorded, unless another is. That is one instruction: a handler may come at any
// other place, and go on with another coroutine.
.macro SPOOR_BEGIN taken
    xor eax, eax
    cmpxchg qword ptr [rcx + {busy}], rsi
    jne \taken
.endm
// Makes what was written up to `next` visible outside, and lets handlers record again.
.macro SPOOR_PUBLISH
    mov rax, [rcx + {next}]
    add rax, [rcx + {bias}]
    mov rdx, [rcx + {written}]
    mov [rdx], rax
    mov qword ptr [rcx + {busy}], 0
.endm
// Counts an event that there is no room for, and lets handlers record again. Now and then the slow way looks for room.
.macro SPOOR_DROP
    add qword ptr [rcx + {untold}], 1
    mov rax, [rcx + {dropped}]
    add qword ptr [rax], 1
    mov qword ptr [rcx + {busy}], 0
.endm
// The second word of the record of the youngest entry, which rdx points to, into rax; rdx is lost.
.macro SPOOR_HEADER more
    mov rax, [rdx + {stub}]
    mov rax, [rax - {record}]
    sub rdx, [rcx + {base}]
    shl rdx, 11
    lea rax, [rax + rdx + \more - 0x10000]
.endm

.macro SPOOR_CALL_DETAIL
    mov [rsi + 16], rdi
    mov rdx, [rsp]
    mov [rsi + 24], rdx
    mov rdx, [rsp + 8]
    mov [rsi + 32], rdx
    mov rdx, [rsp + 16]
    mov [rsi + 40], rdx
    mov [rsi + 48], r8
    mov [rsi + 56], r9
    mov [rsi + 72], rbp
    lea r8, [rsp + 48]
    mov [rsi + 80], r8
    // The window: not past the end of the stack. Another thread may just have taken the stack away: then there is none.
    xor edx, edx
    mov r9, [rcx + {low}]
    add r9, [rcx + {size}]
    sub r9, r8
    cmovb r9, rdx
    cmp r9, [rcx + {window}]
    cmova r9, [rcx + {window}]
    mov rdi, r9
    shl rdi, 5
    lea rax, [rax + rdi + (11 << 8)]
    mov [rsi + 8], rax
    mov rdx, [rcx + {top}]
    mov rax, [rdx + {real}]
    mov [rsi + 64], rax
    // From here r8 is where the window ends, rdi where its copy does.
    lea rdi, [rsi + r9 + 88]
    add r8, r9
    neg r9
    jz 52f
    test r9, 8
    jz 51f
    mov rax, [r8 + r9]
    mov [rdi + r9], rax
    add r9, 8
    jz 52f
51:
    mov rax, [r8 + r9]
    mov rdx, [r8 + r9 + 8]
    mov [rdi + r9], rax
    mov [rdi + r9 + 8], rdx
    add r9, 16
    jnz 51b
52:
    // Return addresses in the window are told as the program would read them, not as stubs.
    mov rdx, [rcx + {top}]
53:
    mov rax, [rdx]
    and rax, -4
    cmp rax, r8
    jae 54f
    sub rax, r8
    mov r9, [rdx + {real}]
    mov [rdi + rax], r9
    sub rdx, 32
    jmp 53b
54:
    mov [rcx + {next}], rdi
    mov rdi, [rsi + 16]
    mov r8, [rsi + 48]
    mov r9, [rsi + 56]
.endm

.macro SPOOR_ENTER detail
    SPOOR_SAVE
    SPOOR_THREAD 41f
    cmp rcx, 1
    jbe 30f
    lea rsi, [rsp + 48]
    test sil, 7
    jnz 41f
    SPOOR_BEGIN 41f
    mov rdx, [rcx + {top}]
    mov rax, rsi
    sub rax, [rcx + {low}]
    cmp rax, [rcx + {size}]
    jae 40f
    mov rax, [rcx + {next}]
    .if \detail
    add rax, [rcx + {largest}]
    .else
    add rax, 16
    .endif
    // In a forked child all of these are zero, and there is no room.
    cmp rax, [rcx + {end}]
    jae 60f
    lea rax, [rsi + 1]
    cmp [rdx], rax
    jbe 20f
    cmp rdx, [rcx + {limit}]
    jae 40f
    mov rax, [rsi]
    mov [rdx + 32 + {real}], rax
    mov [rdx + 32], rsi
    mov rax, [rsp + 40]
    mov [rdx + 32 + {stub}], rax
    add rdx, 32
    mov [rcx + {top}], rdx
10:
    rdtsc
    shl rdx, 32
    or rax, rdx
    mov rdx, [rcx + {top}]
    mov [rdx + {entered}], rax
    mov rsi, [rcx + {next}]
    mov [rsi], rax
    SPOOR_HEADER 0
    .if \detail
    SPOOR_CALL_DETAIL
    .else
    mov [rsi + 8], rax
    add rsi, 16
    mov [rcx + {next}], rsi
    .endif
    SPOOR_PUBLISH
11:
    SPOOR_RESTORE
20:
    // A frame that is gone, or a tail call: the return address is that of the function entered last, and still ours.
    // The entry becomes the new function's, and the slot points to the new function's stub.
    cmp [rdx], rsi
    jne 40f
    mov rax, [rdx + {stub}]
    add rax, 10
    cmp [rsi], rax
    jne 40f
    mov rax, [rsp + 40]
    cmp [rdx + {stub}], rax
    jne 21f
    cmp dword ptr [rax - {loops}], 0
    jne 22f
21:
    mov [rdx + {stub}], rax
    add qword ptr [rsp + 40], 16
    add rax, 10
    mov [rsi], rax
    jmp 10b
22:
    // The function has jumped to its own start: that is a loop, and no call.
    mov qword ptr [rcx + {busy}], 0
    add qword ptr [rsp + 40], 16
    jmp 11b
30:
    jb 41f
    add qword ptr [rsp + 40], 16
    jmp 11b
60:
    // Events are being dropped: the call goes on the shadow stack, and into no record.
    sub qword ptr [rcx + {unlooked}], 1
    js 40f
    lea rax, [rsi + 1]
    cmp [rdx], rax
    jbe 40f
    cmp rdx, [rcx + {limit}]
    jae 40f
    mov rax, [rsi]
    mov [rdx + 32 + {real}], rax
    mov [rdx + 32], rsi
    mov rax, [rsp + 40]
    mov [rdx + 32 + {stub}], rax
    lea rsi, [rdx + 32]
    mov [rcx + {top}], rsi
    rdtsc
    shl rdx, 32
    or rax, rdx
    mov [rsi + {entered}], rax
    SPOOR_DROP
    jmp 11b
40:
    mov qword ptr [rcx + {busy}], 0
41:
    xor eax, eax
    jmp spoor_enter_slowly
.endm

.macro SPOOR_LEAVE detail
    lea rsp, [rsp - 8]
    SPOOR_SAVE
    SPOOR_THREAD 40f
    lea rsi, [rsp + 40]
    cmp rcx, 1
    jbe 40f
    SPOOR_BEGIN 40f
    mov rdx, [rcx + {top}]
    cmp [rdx], rsi
    jne 39f
    mov rax, [rcx + {next}]
    .if \detail
    add rax, 64
    .else
    add rax, 24
    .endif
    cmp rax, [rcx + {end}]
    ja 60f
    mov rax, [rdx + {real}]
    mov [rsi], rax
    rdtsc
    shl rdx, 32
    or rax, rdx
    mov rsi, [rcx + {next}]
    mov [rsi], rax
    mov rdx, [rcx + {top}]
    mov rax, [rdx + {entered}]
    mov [rsi + 16], rax
    .if \detail
    mov rax, [rdx + {real}]
    mov [rsi + 40], rax
    SPOOR_HEADER 0x801
    mov [rsi + 8], rax
    mov rax, [rsp + 32]
    mov [rsi + 24], rax
    mov rax, [rsp + 8]
    mov [rsi + 32], rax
    mov [rsi + 48], rbp
    lea rax, [rsp + 48]
    mov [rsi + 56], rax
    add rsi, 64
    .else
    SPOOR_HEADER 0x101
    mov [rsi + 8], rax
    add rsi, 24
    .endif
    mov [rcx + {next}], rsi
    sub qword ptr [rcx + {top}], 32
    SPOOR_PUBLISH
11:
    SPOOR_RESTORE
60:
    sub qword ptr [rcx + {unlooked}], 1
    js 39f
    mov rax, [rdx + {real}]
    mov [rsi], rax
    sub qword ptr [rcx + {top}], 32
    SPOOR_DROP
    jmp 11b
39:
    mov qword ptr [rcx + {busy}], 0
40:
    SPOOR_SAVE_ALL
    mov rdi, rbp
    call {slow_leave}
    SPOOR_RESTORE_ALL
    jmp 11b
.endm

.macro SPOOR_SAVE_ALL
    push rdi
    push r8
    push r9
    push r10
    push r11
    push rbp
    mov rbp, rsp
    sub rsp, 256
    and rsp, -16
    movaps [rsp], xmm0
    movaps [rsp + 16], xmm1
    movaps [rsp + 32], xmm2
    movaps [rsp + 48], xmm3
    movaps [rsp + 64], xmm4
    movaps [rsp + 80], xmm5
    movaps [rsp + 96], xmm6
    movaps [rsp + 112], xmm7
    movaps [rsp + 128], xmm8
    movaps [rsp + 144], xmm9
    movaps [rsp + 160], xmm10
    movaps [rsp + 176], xmm11
    movaps [rsp + 192], xmm12
    movaps [rsp + 208], xmm13
    movaps [rsp + 224], xmm14
    movaps [rsp + 240], xmm15
    cld
.endm
.macro SPOOR_RESTORE_ALL
    movaps xmm0, [rsp]
    movaps xmm1, [rsp + 16]
    movaps xmm2, [rsp + 32]
    movaps xmm3, [rsp + 48]
    movaps xmm4, [rsp + 64]
    movaps xmm5, [rsp + 80]
    movaps xmm6, [rsp + 96]
    movaps xmm7, [rsp + 112]
    movaps xmm8, [rsp + 128]
    movaps xmm9, [rsp + 144]
    movaps xmm10, [rsp + 160]
    movaps xmm11, [rsp + 176]
    movaps xmm12, [rsp + 192]
    movaps xmm13, [rsp + 208]
    movaps xmm14, [rsp + 224]
    movaps xmm15, [rsp + 240]
    mov rsp, rbp
    pop rbp
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
.endm

    .balign 64
    .globl spoor_enter_index
    .hidden spoor_enter_index
spoor_enter_index:
    SPOOR_ENTER 0
    .balign 64
    .globl spoor_enter_detail
    .hidden spoor_enter_detail
spoor_enter_detail:
    SPOOR_ENTER 1
    .globl spoor_enter_probe
    .hidden spoor_enter_probe
spoor_enter_probe:
    SPOOR_SAVE
    mov eax, 1
    jmp spoor_enter_slowly
    .globl spoor_enter_unwinder
    .hidden spoor_enter_unwinder
spoor_enter_unwinder:
    SPOOR_SAVE
    mov eax, 2
    jmp spoor_enter_slowly
    .globl spoor_enter_watched
    .hidden spoor_enter_watched
spoor_enter_watched:
    SPOOR_SAVE
    mov eax, 3
spoor_enter_slowly:
    SPOOR_SAVE_ALL
    mov rdi, rbp
    mov esi, eax
    mov rdx, r13
    call {slow_enter}
    SPOOR_RESTORE_ALL
    SPOOR_RESTORE
    .balign 64
    .globl spoor_leave_index
    .hidden spoor_leave_index
spoor_leave_index:
    SPOOR_LEAVE 0
    .balign 64
    .globl spoor_leave_detail
    .hidden spoor_leave_detail
spoor_leave_detail:
    SPOOR_LEAVE 1
"#,
    include_str!("routines/go.s"),
    pointer = const offset_of!(Local, pointer),
    state = const offset_of!(Local, state),
    busy = const offset_of!(Thread, busy),
    away = const offset_of!(Thread, away),
    stack_end = const STACK_END,
    top = const offset_of!(Thread, top),
    base = const offset_of!(Thread, base),
    limit = const offset_of!(Thread, limit),
    low = const offset_of!(Thread, low),
    size = const offset_of!(Thread, size),
    next = const WRITER_AT + offset_of!(Writer, place.next),
    end = const WRITER_AT + offset_of!(Writer, place.end),
    bias = const WRITER_AT + offset_of!(Writer, place.bias),
    written = const WRITER_AT + offset_of!(Writer, written),
    window = const WRITER_AT + offset_of!(Writer, window),
    largest = const WRITER_AT + offset_of!(Writer, largest),
    untold = const WRITER_AT + offset_of!(Writer, place.untold),
    dropped = const WRITER_AT + offset_of!(Writer, dropped),
    interrupted = const WRITER_AT + offset_of!(Writer, interrupted),
    unlooked = const WRITER_AT + offset_of!(Writer, unlooked),
    real = const offset_of!(Entry, real),
    stub = const offset_of!(Entry, stub),
    entered = const offset_of!(Entry, entered),
    record = const RECORD,
    watch = const super::shadow::FROM_HEADER - offset_of!(Header, watch),
    loops = const super::shadow::FROM_HEADER - offset_of!(Header, loops),
    slow_enter = sym super::slow::enter,
    slow_enter_go = sym super::slow::enter_go,
    slow_leave = sym super::slow::leave,
);

// What the assembly adds to that.
const _: () = assert!(header(Kind::Return, 3, 0, 0) - header(Kind::Call, 2, 0, 0) == 0x101);
const _: () = assert!(header(Kind::Return, 8, 0, 0) - header(Kind::Call, 0, 0, 0) == 0x801);
const _: () = assert!(header(Kind::Call, 2, 1, 0) - header(Kind::Call, 2, 0, 0) == 0x1_0000);

unsafe extern "C" {
    pub(super) fn spoor_enter_index();
    pub(super) fn spoor_enter_detail();
    pub(super) fn spoor_enter_probe();
    pub(super) fn spoor_enter_unwinder();
    pub(super) fn spoor_enter_watched();
    pub(super) fn spoor_enter_go_index();
    pub(super) fn spoor_enter_go_detail();
    pub(super) fn spoor_leave_index();
    pub(super) fn spoor_leave_detail();
}

/// Whether this is the address of a routine that a stub of a hooked function calls.
pub(super) fn is_enter(address: usize) -> bool {
    let all: [unsafe extern "C" fn(); 5] =
        [spoor_enter_index, spoor_enter_detail, spoor_enter_probe, spoor_enter_unwinder, spoor_enter_watched];
    all.iter().any(|routine| *routine as usize == address)
}
