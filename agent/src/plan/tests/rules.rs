//! One test for each rule, with code that breaks when it is hooked against the rule.

use super::*;

#[test]
fn rule_1_what_is_not_entered_by_a_call_is_left() {
    assert_eq!(decision(&planned(&[PLAIN]), "plain"), Ok(Kind::Frame));
    let odd = "f: .cfi_startproc; .cfi_def_cfa_offset 24; mov eax, 1; add rsp, 16; .cfi_def_cfa_offset 8; ret
        .cfi_endproc";
    assert_eq!(decide(odd), Err(Reason::OddEntryFrame));
    let start = "f: .cfi_startproc; .cfi_undefined rip; xor ebp, ebp; mov rdi, rsp; hlt; .cfi_endproc";
    assert_eq!(decide(start), Err(Reason::OddEntryFrame));
    let signal = "f: .cfi_startproc; .cfi_signal_frame; mov rax, 15; syscall; .cfi_endproc";
    assert_eq!(decide(signal), Err(Reason::SignalFrame));
    let inside = "outer: .cfi_startproc; mov eax, 1; .type f, @function; f: mov eax, 2; mov ecx, 3; ret; .cfi_endproc";
    assert_eq!(decide(inside), Err(Reason::InsideAnother));
}

#[test]
fn rule_1_parts_of_functions_are_left_with_and_without_a_name() {
    let hot = "hot: .cfi_startproc; sub rsp, 24; .cfi_def_cfa_offset 32; test edi, edi; jne f; add rsp, 24
        .cfi_def_cfa_offset 8; ret; .cfi_endproc";
    let cold = "f: .cfi_startproc; .cfi_def_cfa_offset 32; mov eax, 1; add rsp, 24; .cfi_def_cfa_offset 8; ret
        .cfi_endproc";
    let plan = planned(&[hot, cold]);
    assert_eq!(decision(&plan, "hot"), Ok(Kind::Frame));
    assert_eq!(decision(&plan, "f"), Err(Reason::ColdPart));
    // The frame of this one looks like that of a function.
    let named = ".type f.cold, @function; f.cold: .cfi_startproc; mov eax, 1; mov ecx, 2; ret; .cfi_endproc";
    assert_eq!(decision(&planned(&[named]), "f.cold"), Err(Reason::ColdPart));
}

#[test]
fn rule_1_a_nameless_part_that_looks_like_a_function_is_left() {
    let part = ".Lpart: .cfi_startproc; mov eax, 1; mov ecx, 2; ret; .cfi_endproc";
    let left = |others: &[&str]| {
        let plan = planned(&[others, &[part]].concat());
        plan.functions.iter().filter(|function| function.action == Action::Leave(Reason::ColdPart)).count()
    };
    let hot = "hot: .cfi_startproc; test edi, edi; jne .Lpart; mov eax, 2; ret; .cfi_endproc";
    assert_eq!(left(&[hot]), 1);
    // What is also called is a function, and so is what is jumped to without a condition.
    let caller = "caller: .cfi_startproc; call .Lpart; nop; ret; .cfi_endproc";
    assert_eq!(left(&[hot, caller]), 0);
    let tail = "tail: .cfi_startproc; test edi, edi; mov eax, 3; jmp .Lpart; .cfi_endproc";
    assert_eq!(left(&[tail]), 0);
}

#[test]
fn rule_1_an_entry_that_begins_with_padding_is_left_unless_it_is_entered_there() {
    let code = ".cfi_startproc; xchg ax, ax; mov eax, 1; mov ecx, 2; ret; .cfi_endproc";
    let called = [PLAIN, "g: .cfi_startproc; call .Lh; nop; ret; .cfi_endproc; .Lh:", code];
    assert!(planned(&[code]).functions.iter().any(|function| function.action == Action::Leave(Reason::PaddingFirst)));
    assert!(planned(&called).functions.iter().all(|function| function.action != Action::Leave(Reason::PaddingFirst)));
}

#[test]
fn rule_2_what_no_unwind_entry_describes_is_left() {
    assert_eq!(decide("f: mov eax, 1; mov ecx, 2; ret"), Err(Reason::NoUnwindEntry));
    // The entry before it does not reach so far.
    let plan = planned(&[PLAIN, "f: mov eax, 1; mov ecx, 2; ret"]);
    assert_eq!(decision(&plan, "f"), Err(Reason::NoUnwindEntry));
}

#[test]
fn rule_2_of_swift_functions_that_no_unwind_entry_describes_the_entry_is_recorded() {
    const NAME: &str = "$s4main6doubleyS2iYaF";
    let function = |name: &str, code: &str| {
        format!(".type \"{name}\", @function; \"{name}\": {code}; .size \"{name}\", .-\"{name}\"")
    };
    let decide = |name: &str, code: &str| decision(&planned(&[PLAIN, &function(name, code)]), name);
    let (jumps, returns) = ("mov [r14 + 16], rdi; xor esi, esi; jmp plain", "mov [r14 + 16], rdi; xor esi, esi; ret");
    assert_eq!(decide(NAME, jumps), Ok(Kind::Probe));
    assert_eq!(decide(NAME, returns), Ok(Kind::Probe));
    assert_eq!(decide("s4main6doubleyS2iYaF", returns), Err(Reason::NoUnwindEntry));
    // All else that holds for other functions holds for these.
    assert_eq!(decide(NAME, "ret; .skip 32, 0xF4"), Err(Reason::TooShort));
    assert_eq!(decide(NAME, "mov eax, 1; 1: dec eax; jnz 1b; ret"), Ok(Kind::Probe));
    assert_eq!(decide(NAME, "xor eax, eax; 1: inc eax; jnz 1b; ret"), Err(Reason::BranchIntoStart));
}

#[test]
fn rule_2_what_a_broken_unwind_entry_describes_is_left() {
    // The instruction restores a state that none has saved.
    let broken = "f: .cfi_startproc; mov eax, 1; .cfi_escape 0x0b; mov ecx, 2; ret; .cfi_endproc";
    assert_eq!(decide(broken), Err(Reason::BrokenUnwindEntry));
}

#[test]
fn rule_3_what_touches_its_return_address_is_only_probed() {
    let body = |code: &str| decide(&format!("f: .cfi_startproc; {code}; ret; .cfi_endproc"));
    assert_eq!(body("mov rax, [rsp]; mov [rdi], rax"), Ok(Kind::Probe));
    assert_eq!(body("mov eax, 58; pop rdi; syscall; push rdi"), Ok(Kind::Probe));
    assert_eq!(body("lea rax, [rsp]; mov [rdi], rax"), Ok(Kind::Probe));
    assert_eq!(body("push rbx; .cfi_adjust_cfa_offset 8; mov rax, [rsp+8]; mov [rdi], rax"), Ok(Kind::Probe));
    assert_eq!(
        body("push rbp; .cfi_def_cfa_offset 16; mov rbp, rsp; .cfi_def_cfa_register rbp; mov rsi, [rbp+8]"),
        Ok(Kind::Probe)
    );
    // The first argument on the stack, a local variable, a saved register.
    assert_eq!(body("mov rax, [rsp+8]; mov [rdi], rax"), Ok(Kind::Frame));
    assert_eq!(body("mov rax, [rsp-8]; mov [rdi], rax"), Ok(Kind::Frame));
    assert_eq!(body("push rbx; .cfi_adjust_cfa_offset 8; mov rax, [rsp]; mov [rdi], rax"), Ok(Kind::Frame));
}

#[test]
fn rule_4_what_saves_the_registers_of_an_exception_is_an_unwinder() {
    let body =
        |saved: &str| decide(&format!("f: .cfi_startproc; push rax; push rdx; {saved}; mov ecx, 1; ret; .cfi_endproc"));
    assert_eq!(body(".cfi_def_cfa_offset 24; .cfi_offset rax, -16"), Ok(Kind::Unwinder));
    assert_eq!(body(".cfi_def_cfa_offset 24; .cfi_offset rdx, -24"), Ok(Kind::Unwinder));
    let everything = ".cfi_def_cfa_offset 24; .cfi_offset rax, -16; .cfi_offset rcx, -24";
    assert_eq!(body(everything), Ok(Kind::Frame));
    assert_eq!(body(".cfi_def_cfa_offset 24; .cfi_offset rbx, -16"), Ok(Kind::Frame));
}

#[test]
fn rule_4_what_reads_its_return_address_and_calls_what_unwinders_call_is_one() {
    let unwinder = |name: &str, callees: &str| {
        format!(
            "{name}: .cfi_startproc; push rax; .cfi_def_cfa_offset 16; .cfi_offset rax, -16; mov rbx, rdi; mov ecx, 1
            {callees}; pop rax; .cfi_def_cfa_offset 8; ret; .cfi_endproc"
        )
    };
    let reader = |name: &str, callee: &str| {
        format!("{name}: .cfi_startproc; mov rax, [rsp]; mov ecx, 1; call {callee}; ret; .cfi_endproc")
    };
    let plan = planned(&[
        &unwinder("raise", "call capture; call search; call abort@plt"),
        &unwinder("resume", "call capture; call abort@plt"),
        &reader("backtrace", "capture"),
        &reader("search_reader", "search"),
        &reader("abort_reader", "abort@plt"),
        &PLAIN.replace("plain", "capture"),
        &PLAIN.replace("plain", "search"),
        &PLAIN.replace("plain", "walker").replace("mov eax, 1", "call capture"),
    ]);
    assert_eq!(decision(&plan, "raise"), Ok(Kind::Unwinder));
    assert_eq!(decision(&plan, "resume"), Ok(Kind::Unwinder));
    assert_eq!(decision(&plan, "backtrace"), Ok(Kind::Unwinder));
    assert_eq!(decision(&plan, "search_reader"), Ok(Kind::Probe));
    assert_eq!(decision(&plan, "abort_reader"), Ok(Kind::Probe));
    assert_eq!(decision(&plan, "walker"), Ok(Kind::Frame));
}

#[test]
fn rule_5_what_is_branched_into_is_left() {
    let f = "f: .cfi_startproc; mov rax, rdi; add rax, rdx; ret; .cfi_endproc";
    let with = |other: &str| decision(&planned(&[f, other]), "f");
    assert_eq!(with(PLAIN), Ok(Kind::Frame));
    assert_eq!(with("g: .cfi_startproc; add rdi, rdx; jmp f+3; .cfi_endproc"), Err(Reason::BranchIntoStart));
    assert_eq!(with("g: add rdi, rdx; je f+3; ret"), Err(Reason::BranchIntoStart));
    assert_eq!(with("g: call f+3; ret"), Err(Reason::BranchIntoStart));
    assert_eq!(with("g: lea rax, [rip+f+3]; jmp rax"), Err(Reason::BranchIntoStart));
    assert_eq!(with(".section .text.other, \"ax\"; g: jmp f+3"), Err(Reason::BranchIntoStart));
    // To the first byte, and behind the covered ones.
    assert_eq!(with("g: jmp f; jmp f+6"), Ok(Kind::Frame));
    // From within.
    let loops = "f: .cfi_startproc; dec rdi; .L1: dec rsi; jne .L1; ret; .cfi_endproc";
    assert_eq!(decide(loops), Err(Reason::BranchIntoStart));
}

#[test]
fn rule_5_data_in_code_hides_no_branch() {
    let f = "f: .cfi_startproc; mov rax, rdi; add rax, rdx; ret; .cfi_endproc";
    // The two bytes begin an instruction of ten, which would swallow the jump.
    let plan = planned(&[f, ".byte 0x48, 0xb8; .type g, @function; g: jmp f+3; ret; .zero 16, 0x90"]);
    assert_eq!(decision(&plan, "f"), Err(Reason::BranchIntoStart));
    let plan = planned(&[f, ".byte 0x48, 0xb8; g: .cfi_startproc; jmp f+3; ret; .cfi_endproc"]);
    assert_eq!(decision(&plan, "f"), Err(Reason::BranchIntoStart));
    let plan = planned(&[f, "g: .byte 0x62; jmp f+3; ret"]);
    assert_eq!(decision(&plan, "f"), Err(Reason::BranchIntoStart));
}

#[test]
fn rule_5_a_switch_into_the_first_bytes_counts() {
    let switch = |entry: &str| {
        decide(&format!(
            "f: .cfi_startproc; xor eax, eax; .L1: movzx edx, byte ptr [rdi]; inc rdi; lea rcx, [rip+.Ltable]
            movsxd rdx, dword ptr [rcx+rdx*4]; add rdx, rcx; jmp rdx; .L2: ret; .cfi_endproc
            .section .rodata; .Ltable: .long .L2-.Ltable; .long {entry}-.Ltable"
        ))
    };
    assert_eq!(switch(".L2"), Ok(Kind::Frame));
    assert_eq!(switch(".L1"), Err(Reason::BranchIntoStart));
    // Behind the table of this function is that of another; read on, it would lead to the third byte of this one.
    let functions = [
        "f: .cfi_startproc; xor eax, eax; mov edx, edi; lea rcx, [rip+.Lf]; movsxd rdx, dword ptr [rcx+rdx*4]
        add rdx, rcx; jmp rdx; .L2: ret; .cfi_endproc; .section .rodata; .p2align 3; .Lf: .long .L2-.Lf",
        "g: .cfi_startproc; lea rcx, [rip+.Lg]; movsxd rdx, dword ptr [rcx+rdx*4]; add rdx, rcx; jmp rdx; .cfi_endproc
        .section .rodata; .Lg: .long f+6-.Lg",
    ];
    assert_eq!(decision(&planned(&functions), "f"), Ok(Kind::Frame));
    let absolute = ".intel_syntax noprefix; .globl _start, f; .type f, @function
        _start: jmp f; f: .cfi_startproc; xor eax, eax; .L1: movzx edx, byte ptr [rdi]; inc rdi
        jmp [.Ltable+rdx*8]; .cfi_endproc; .section .rodata; .Ltable: .quad .L1\n";
    let image = Image::parse(compile("assembler", &["-nostdlib", "-static", "-no-pie"], absolute)).expect("good");
    assert_eq!(decision(&planned_image(&image), "f"), Err(Reason::BranchIntoStart));
}

#[test]
fn rule_6_what_somebody_else_has_patched_is_left() {
    let image = image(&[PLAIN, &PLAIN.replace("plain", "f")]);
    let f = find(&planned_image(&image), "f").address;
    let at = |address| {
        let patched = |start, buffer: &mut [u8]| {
            buffer.copy_from_slice(&image.loaded(start)[..buffer.len()]);
            if let Some(byte) = u64::checked_sub(address, start).and_then(|offset| buffer.get_mut(offset as usize)) {
                *byte ^= 1;
            }
            true
        };
        let plan = plan(&image, Some(&patched), &|_| None);
        (decision(&plan, "plain"), decision(&plan, "f"))
    };
    assert_eq!(at(0), (Ok(Kind::Frame), Ok(Kind::Frame)));
    assert_eq!(at(f), (Ok(Kind::Frame), Err(Reason::AlreadyPatched)));
    assert_eq!(at(f + 8), (Ok(Kind::Frame), Err(Reason::AlreadyPatched)));
    assert_eq!(at(f - 1), (Err(Reason::AlreadyPatched), Ok(Kind::Frame)));
    let plan = plan(&image, Some(&|_, _| false), &|_| None);
    assert_eq!(decision(&plan, "f"), Err(Reason::AlreadyPatched));
}

#[test]
fn rule_7_there_must_be_room() {
    let body = |code: &str| decide(&format!("f: .cfi_startproc; {code}; .cfi_endproc"));
    assert_eq!(body("ret; .cfi_endproc; .zero 16, 0x90; .cfi_startproc; mov eax, 1; ret"), Ok(Kind::Frame));
    assert_eq!(body("ret; .cfi_endproc; .zero 16, 0xcc; .cfi_startproc; mov eax, 1; ret"), Ok(Kind::Frame));
    assert_eq!(body("ret; .cfi_endproc; .zero 3, 0x90; .cfi_startproc; mov eax, 1; ret"), Err(Reason::TooShort));
    assert_eq!(body("ret; .byte 0, 0, 0, 0, 0, 0"), Err(Reason::TooShort));
    assert_eq!(body("xor eax, eax; ret"), Err(Reason::TooShort));
    assert_eq!(body("push rbx; call [rdi]; pop rbx; ret"), Err(Reason::CallInStart));
    assert_eq!(body("call rdi; nop; nop; nop; ret"), Err(Reason::CallInStart));
    assert_eq!(body(".byte 0x06; mov eax, 1; ret"), Err(Reason::NotCode));
}

#[test]
fn rule_7_another_function_may_begin_close_by() {
    let plan = planned(&["f: .cfi_startproc; xor eax, eax; .type g, @function; g: mov ecx, 1; ret; .cfi_endproc"]);
    assert_eq!(decision(&plan, "f"), Err(Reason::TooShort));
}

#[test]
fn rule_7_the_hook_goes_behind_endbr64() {
    let plan = planned(&["f: .cfi_startproc; endbr64; mov eax, 1; ret; .cfi_endproc"]);
    let f = find(&plan, "f");
    let prologue = f.hook().expect("it is hooked").prologue;
    assert_eq!((prologue.patch, prologue.covered), (f.address + 4, 5));
    assert_eq!(prologue.original, [0xb8, 1, 0, 0, 0]);
    assert_eq!(prologue.bytes(), prologue.original);
}

#[test]
fn rule_7_linkage_tables_are_left() {
    let plan = planned(&["f: .cfi_startproc; call other@plt; nop; ret; .cfi_endproc"]);
    assert!(plan.functions.iter().any(|function| function.action == Action::Leave(Reason::Plt)));
}

#[test]
fn excluded_functions_are_left() {
    let image =
        image(&[".type f, @function; .type g, @function; f: g: .cfi_startproc; mov eax, 1; ret; .cfi_endproc", PLAIN]);
    let plan = plan(&image, None, &|function| function.names.contains(&"g").then_some(Reason::Excluded));
    assert_eq!(decision(&plan, "f"), Err(Reason::Excluded));
    assert_eq!(decision(&plan, "plain"), Ok(Kind::Frame));
}

#[test]
fn what_looks_at_the_return_address_of_another_function_is_hooked_in_any_case() {
    let looks = "f: .cfi_startproc; mov rax, [rsp]; mov [rdi], rax; ret; .cfi_endproc";
    let nothing = |_: &Candidate<'_>| Some(Reason::Excluded);
    let jumps = "g: .cfi_startproc; mov eax, 1; jmp f; .cfi_endproc";
    let jumped = plan(&image(&[looks, jumps]), None, &nothing);
    assert_eq!((decision(&jumped, "f"), decision(&jumped, "g")), (Ok(Kind::Probe), Err(Reason::Excluded)));
    let calls = "g: .cfi_startproc; mov eax, 1; call f; nop; ret; .cfi_endproc";
    assert_eq!(decision(&plan(&image(&[looks, calls]), None, &nothing), "f"), Err(Reason::Excluded));
}

#[test]
fn a_function_is_as_large_as_it_is_said_to_be() {
    let image = image(&["f: .cfi_startproc; mov eax, 1; ret; .cfi_endproc; .size f, .-f", PLAIN]);
    let seen = std::cell::RefCell::new(Vec::new());
    plan(&image, None, &|function| {
        seen.borrow_mut().extend(function.names.first().map(|name| (name.to_string(), function.size)));
        (function.size < 6).then_some(Reason::Small)
    });
    assert!(seen.borrow().contains(&("f".into(), 6)), "{seen:?}");
}

#[test]
fn functions_that_jump_to_their_start_are_known() {
    let loops = |functions: &[&str]| match find(&planned(functions), "f").action {
        Action::Hook(hook) => hook.loops,
        Action::Leave(reason) => panic!("{reason}"),
    };
    let jumping = |code: &str| loops(&[&format!("f: .cfi_startproc; {code}; ret; .cfi_endproc")]);
    assert!(!jumping("mov eax, 1; 1: add eax, eax; jnz 1b"));
    assert!(!jumping("mov eax, 1; jz 1f; call f; 1: nop"));
    assert!(jumping("sub rdi, 1; jnz f"));
    assert!(jumping("endbr64; 1: sub rdi, 1; jnz 1b"));
    assert!(jumping(
        "mov eax, edi; mov eax, eax; lea rcx, [rip+.Lt]; movsxd rdx, dword ptr [rcx+rax*4]; add rdx, rcx; jmp rdx
        .section .rodata; .Lt: .long f-.Lt; .text"
    ));
    let other = "f: .cfi_startproc; mov eax, 1; jmp g; .cfi_endproc";
    assert!(!loops(&[other, "g: .cfi_startproc; mov eax, 2; jmp f; .cfi_endproc"]));
}
