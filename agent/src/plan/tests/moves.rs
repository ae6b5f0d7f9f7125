//! Tests of what becomes of instructions that are moved.

use iced_x86::{Code as Op, Decoder, DecoderOptions, Instruction, OpKind, Register};

use super::*;

const BIAS: u64 = 0x7f12_3456_7000;
const AT: u64 = BIAS - 0x4000_0000;

/// The instructions of a piece of code.
fn decode(bytes: &[u8], at: u64) -> Vec<Instruction> {
    Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).iter().collect()
}

/// The first function of a library, and the copy of its first instructions.
fn moved(code: &str) -> (u64, Vec<Instruction>, Trampoline) {
    let plan = planned(&[&format!("f: .cfi_startproc; {code}; .cfi_endproc"), ".p2align 4; label: ret"]);
    let f = find(&plan, "f");
    let hook = f.hook().unwrap_or_else(|| panic!("{code}: {:?}", f.action));
    let trampoline = hook.prologue.relocate(BIAS, AT).expect("all is near");
    (BIAS + f.address, decode(&trampoline.bytes, AT), trampoline)
}

fn targets(instructions: &[Instruction]) -> Vec<u64> {
    instructions.iter().map(Instruction::near_branch_target).collect()
}

#[test]
fn rule_8_an_operand_keeps_its_address_also_if_it_is_that_of_the_function() {
    let (f, copy, _) = moved("lea rax, [rip+f]; ret");
    assert_eq!((copy[0].code(), copy[0].memory_displacement64()), (Op::Lea_r64_m, f));
    assert_eq!((copy[1].code(), copy[1].near_branch_target()), (Op::Jmp_rel32_64, f + 7));
    // Behind the distance there is a constant.
    let (f, copy, trampoline) = moved("mov dword ptr [rip+f+0x100], 0x11223344; ret");
    assert_eq!((copy[0].memory_displacement64(), copy[0].immediate32()), (f + 0x100, 0x1122_3344));
    assert_eq!(trampoline.steps, [(0, 0)]);
}

#[test]
fn rule_8_other_instructions_keep_their_bytes() {
    let (f, copy, trampoline) = moved("push rbx; mov rbx, rdi; .byte 0x48, 0x81, 0xec, 8, 0, 0, 0; ret");
    assert_eq!(trampoline.bytes[..11], [0x53, 0x48, 0x89, 0xfb, 0x48, 0x81, 0xec, 8, 0, 0, 0]);
    assert_eq!(copy[3].near_branch_target(), f + 11);
    assert_eq!(trampoline.steps, [(0, 0), (1, 1), (4, 4)]);
}

#[test]
fn rule_8_a_call_returns_to_the_original() {
    let (f, copy, trampoline) = moved("call label; ret");
    assert_eq!(
        copy.iter().map(Instruction::code).collect::<Vec<_>>(),
        [Op::Pushq_imm32, Op::Mov_rm32_imm32, Op::Jmp_rel32_64]
    );
    let pushed = copy[0].immediate32to64() as u64 & 0xffff_ffff | u64::from(copy[1].immediate32()) << 32;
    assert_eq!(pushed, f + 5);
    assert_eq!((copy[1].memory_base(), copy[1].memory_displacement64()), (Register::RSP, 4));
    assert_eq!(copy[2].near_branch_target(), f + 16);
    assert_eq!(trampoline.steps, [(0, 0)]);
}

#[test]
fn a_thread_in_a_system_call_is_moved_with_it() {
    let (_, _, trampoline) = moved("mov r10, rcx; syscall; ret");
    // From behind the call, too: to restart it, the system goes back by its length.
    assert_eq!(trampoline.steps, [(0, 0), (3, 3), (5, 5)]);
    let (_, _, trampoline) = moved("syscall; mov eax, 1; ret");
    assert_eq!(trampoline.steps, [(0, 0), (2, 2)]);
}

#[test]
fn rule_8_an_indirect_call_finds_what_the_push_moved() {
    let (f, copy, _) = moved("sub rsp, 24; call [rsp+16]; ret");
    assert_eq!((copy[3].code(), copy[3].memory_displacement64()), (Op::Jmp_rm64, 24));
    assert_eq!(copy[1].immediate32to64() as u64 & 0xffff_ffff, (f + 8) & 0xffff_ffff);
    let (f, copy, _) = moved("call [rip+f+0x1000]; ret");
    assert_eq!((copy[2].code(), copy[2].memory_displacement64()), (Op::Jmp_rm64, f + 0x1000));
    let (_, copy, _) = moved("mov rax, rdi; call rax; ret");
    assert_eq!((copy[3].code(), copy[3].op0_register()), (Op::Jmp_rm64, Register::RAX));
    assert_eq!(decide("f: .cfi_startproc; mov rax, rdi; call rsp; ret; .cfi_endproc"), Err(Reason::CannotRelocate));
}

#[test]
fn rule_8_branches_reach_further() {
    let (f, copy, trampoline) = moved("test edi, edi; je 1f; nop; nop; 1: ret");
    assert_eq!(copy[1].code(), Op::Je_rel32_64);
    assert_eq!(targets(&copy)[1..], [f + 6, 0, f + 5]);
    assert_eq!(trampoline.steps, [(0, 0), (2, 2), (4, 8)]);
    let (f, copy, _) = moved("jmp label");
    assert_eq!((copy.len(), copy[0].near_branch_target()), (1, f + 16));
    // To the first instruction: through the hook, like any other.
    let (f, copy, _) = moved("dec rdi; jne f; ret");
    assert_eq!(targets(&copy)[1..], [f, f + 5]);
}

#[test]
fn rule_8_loops_that_reach_no_further_get_a_jump() {
    for (code, op) in [("jrcxz", Op::Jrcxz_rel8_64), ("loop", Op::Loop_rel8_64_RCX), ("jecxz", Op::Jecxz_rel8_64)] {
        let (f, copy, _) = moved(&format!("{code} label; mov rax, rdi; ret"));
        assert_eq!(copy[0].code(), op);
        assert_eq!(copy[0].near_branch_target(), copy[2].ip(), "{code} takes the second jump");
        assert_eq!(copy[1].near_branch_target(), copy[3].ip(), "or none");
        assert_eq!(copy[2].near_branch_target(), f + 16);
    }
}

#[test]
fn rule_8_what_works_only_where_it_stands_is_left() {
    let body = |code: &str| decide(&format!("f: .cfi_startproc; {code}; ret; .cfi_endproc"));
    assert_eq!(body("xbegin f"), Err(Reason::CannotRelocate));
    assert_eq!(body("mov eax, [eip+f]"), Err(Reason::CannotRelocate));
    // A system call comes back behind itself, wherever that is.
    assert_eq!(body("xor eax, eax; syscall; cmp rax, 5"), Ok(Kind::Frame));
}

#[test]
fn nothing_is_moved_too_far() {
    let plan = planned(&["f: .cfi_startproc; lea rax, [rip+f]; ret; .cfi_endproc"]);
    let prologue = find(&plan, "f").hook().expect("it is hooked").prologue;
    let reach = i64::from(i32::MAX) as u64 - 0x10000;
    assert!(prologue.relocate(BIAS, BIAS + reach).is_ok());
    assert!(prologue.relocate(BIAS, BIAS - reach).is_ok());
    assert_eq!(prologue.relocate(BIAS, BIAS + (1 << 31) + 0x10000), Err(Reason::CannotRelocate));
    assert_eq!(prologue.relocate(BIAS, BIAS - (1 << 31) - 0x10000), Err(Reason::CannotRelocate));
}

#[test]
fn the_longest_copy_has_room() {
    let (_, copy, trampoline) = moved("loop label; loop label; call fs:[rsp+rax*8+0x11223344]; ret");
    assert_eq!(copy[8].memory_displacement64(), 0x1122_334c);
    assert!(trampoline.bytes.len() <= Trampoline::MAX_LEN, "{}", trampoline.bytes.len());
    let (_, _, trampoline) = moved("loop label; loop label; .byte 0x67; mov qword ptr fs:[rax*8+0x11223344], 1; ret");
    assert!(trampoline.bytes.len() <= Trampoline::MAX_LEN, "{}", trampoline.bytes.len());
}

/// Of every function of a module that is hooked: the copy has the same instructions, and the steps lead from one to
/// the other.
#[test]
fn copies_of_the_system_libraries_have_the_same_instructions() {
    for name in ["libc.so.6", "libstdc++.so.6", "libgcc_s.so.1"] {
        let plan = planned_image(&real::system(name));
        for function in &plan.functions {
            let Some(hook) = function.hook() else { continue };
            let at = (BIAS + function.address) ^ 0x1000_0000;
            let trampoline = hook.prologue.relocate(BIAS, at).expect("all is near");
            assert!(trampoline.bytes.len() <= Trampoline::MAX_LEN);
            let originals = decode(hook.prologue.bytes(), BIAS + hook.prologue.patch);
            let copies = decode(&trampoline.bytes, at);
            for (&(from, to), original) in trampoline.steps.iter().zip(&originals) {
                assert_eq!(BIAS + hook.prologue.patch + u64::from(from), original.ip());
                let copy = copies.iter().find(|copy| copy.ip() == at + u64::from(to)).expect("a step to a boundary");
                assert_same(original, copy);
            }
            let flows_on = trampoline.steps.len() == originals.len();
            let last = copies.last().expect("there is one");
            assert!(flows_on || !last.is_invalid(), "padding is not copied");
        }
    }
}

fn assert_same(original: &Instruction, copy: &Instruction) {
    if original.is_call_near() || original.is_call_near_indirect() {
        assert_eq!(copy.code(), Op::Pushq_imm32);
        return;
    }
    assert_eq!(original.mnemonic(), copy.mnemonic());
    assert_eq!(original.op_count(), copy.op_count());
    if original.op0_kind() == OpKind::NearBranch64 {
        assert_eq!(original.near_branch_target(), copy.near_branch_target());
    } else {
        // All operands and prefixes, but not the address.
        let mut same = *copy;
        same.set_ip(original.ip());
        same.set_next_ip(original.next_ip());
        assert_eq!(*original, same);
    }
}
