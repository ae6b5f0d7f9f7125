// Enter for functions of Go.
//
// The stub of a function of Go jumps here, with the place in itself in r12. Nothing of the goroutine's stack may be used,
// which may have no room at all. Of the registers only r12, r13 and the flags are nobody's at a function's entry.
.macro SPOOR_ENTER_GO detail
    rdfsbase r13
    cmp r13, gs:[{pointer}]
    jne 40f
    mov r13, gs:[{state}]
    cmp r13, 1
    je 12f
    jb 39f
    cmp qword ptr [r13 + {away}], 0
    jne 30f
    mov [r13 + {away}], rsp
    lea rsp, [r13 + {stack_end} - 16]
    SPOOR_SAVE_GO
    .if \detail == 0
    cmp dword ptr [r12 - {watch}], 0
    jne 20f
    mov rcx, r13
    mov rsi, [r13 + {away}]
    SPOOR_BEGIN 20f
    mov rax, [rcx + {next}]
    add rax, 16
    // In a forked child all of these are zero, and there is no room.
    cmp rax, [rcx + {end}]
    jae 19f
    rdtsc
    shl rdx, 32
    or rax, rdx
    mov rsi, [rcx + {next}]
    mov [rsi], rax
    mov rax, [r12 - {record}]
    mov rdx, [rcx + {top}]
    sub rdx, [rcx + {base}]
    shl rdx, 11
    add rax, rdx
    mov [rsi + 8], rax
    add rsi, 16
    mov [rcx + {next}], rsi
    SPOOR_PUBLISH
    .else
    jmp 20f
    .endif
11:
    SPOOR_RESTORE_GO
    mov rsp, [r13 + {away}]
    mov qword ptr [r13 + {away}], 0
12:
    add r12, 16
    jmp r12
19:
    mov qword ptr [rcx + {busy}], 0
20:
    SPOOR_SAVE_ALL
    mov rdi, rbp
    mov rsi, [r13 + {away}]
    call {slow_enter_go}
    SPOOR_RESTORE_ALL
    jmp 11b
30:
    // A handler that has interrupted this very thing. Go blocks all signals in it, so that none comes while it is away.
    mov r13, [r13 + {interrupted}]
    test r13, r13
    jz 12b
    add qword ptr [r13], 1
    jmp 12b
39:
    rdfsbase r13
40:
    // A new thread. One at a time has the stack that all share, and x15 keeps rax: it is zero at a function's entry.
    movq xmm15, rax
41:
    xor eax, eax
    lock cmpxchg [rip + spoor_shared_owner], r13
    je 42f
    // A handler that has interrupted it.
    cmp rax, r13
    je 43f
    pause
    jmp 41b
42:
    movq rax, xmm15
    mov [rip + spoor_shared_away], rsp
    lea rsp, [rip + spoor_shared_stack_end - 16]
    SPOOR_SAVE_GO
    SPOOR_SAVE_ALL
    mov rdi, rbp
    mov rsi, [rip + spoor_shared_away]
    call {slow_enter_go}
    SPOOR_RESTORE_ALL
    SPOOR_RESTORE_GO
    mov rsp, [rip + spoor_shared_away]
    mov qword ptr [rip + spoor_shared_owner], 0
    xorps xmm15, xmm15
    jmp 12b
43:
    movq rax, xmm15
    xorps xmm15, xmm15
    jmp 12b
.endm
// The same as what the others save, without the return address and the flags, which nobody looks at.
.macro SPOOR_SAVE_GO
    mov [rsp], r12
    push rax
    push rax
    push rcx
    push rdx
    push rsi
.endm
.macro SPOOR_RESTORE_GO
    pop rsi
    pop rdx
    pop rcx
    pop rax
    pop rax
.endm

    .local spoor_shared_owner
    .comm spoor_shared_owner, 8, 64
    .local spoor_shared_away
    .comm spoor_shared_away, 8, 8
    .pushsection .bss.spoor_shared_stack, "aw", @nobits
    .balign 64
    .zero 32768
spoor_shared_stack_end:
    .popsection

    .balign 64
    .globl spoor_enter_go_index
    .hidden spoor_enter_go_index
spoor_enter_go_index:
    SPOOR_ENTER_GO 0
    .globl spoor_enter_go_detail
    .hidden spoor_enter_go_detail
spoor_enter_go_detail:
    SPOOR_ENTER_GO 1
