//! What is captured of a call: registers, return address and stack are those that the program had.

use codec::{EventKind, FunctionId};
use tests::{Run, Traced, trace::Recorded};

use crate::tracing::BOTH;

/// What `detail.c` passes to `known`, in registers and then on the stack.
const PASSED: [u64; 8] = [
    0x1111_1111_1111_1111,
    0x2222_2222_2222_2222,
    0x3333_3333_3333_3333,
    0x4444_4444_4444_4444,
    0x5555_5555_5555_5555,
    0x6666_6666_6666_6666,
    0x7777_7777_7777_7777,
    0x8888_8888_8888_8888,
];

/// What `known` returns.
const RESULT: u64 = 0x8888_8888_8888_8888;

/// A variable of `known`'s caller, on the stack.
const KEPT: u64 = 0x5175_e57a_cc00_0001;

fn events<'a>(traced: &'a Traced, name: &str, kind: EventKind) -> Vec<&'a Recorded> {
    let all = traced.trace.threads.values().flatten();
    let found: Vec<_> = all.filter(|event| event.kind == kind && event.name.as_deref() == Some(name)).collect();
    assert_eq!(found.len(), 100, "{kind:?} of {name}");
    found
}

fn words(stack: &[u8]) -> Vec<u64> {
    stack.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

/// Where a function of the program is in memory: from its first byte to that of the next function.
fn place(traced: &Traced, name: &str) -> std::ops::Range<u64> {
    let manifest = &traced.trace.manifest;
    let function = manifest.functions.iter().find(|function| function.name == name).expect("its name is known");
    let id = FunctionId(function.id).module().0;
    let base = manifest.modules.iter().find(|module| module.id == id).expect("its module is known").base;
    let of_module = manifest.functions.iter().filter(|other| FunctionId(other.id).module().0 == id);
    let next = of_module.map(|other| other.offset).filter(|offset| *offset > function.offset).min();
    base + function.offset..base + next.expect("it is not the last")
}

#[test]
fn arguments_results_and_the_stack_are_captured() {
    for transport in BOTH {
        let traced = Run::target("detail").over(transport).trace();
        let caller = place(&traced, "caller");
        for event in events(&traced, "known", EventKind::Call) {
            let (registers, stack) = event.captured.as_ref().expect("detail");
            assert_eq!(registers.general[..6], PASSED[..6], "arguments in registers");
            assert_eq!(registers.general[6..], [0, 0]);
            assert!(caller.contains(&registers.return_address), "{:#x} is in {caller:x?}", registers.return_address);
            let stack = words(stack);
            assert_eq!(stack.len(), 16, "128 bytes");
            // As the program would read it, and not as it was changed to see the return.
            assert_eq!(stack[0], registers.return_address, "the stack starts with the return address");
            assert_eq!(stack[1..3], PASSED[6..], "arguments on the stack");
            assert!(stack.contains(&KEPT), "{KEPT:x} in {stack:x?}");
            let outer = place(&traced, "main");
            assert!(stack.iter().any(|word| outer.contains(word)), "the caller's return address is the real one, too");
        }
        for event in events(&traced, "known", EventKind::Return) {
            let (registers, _) = event.captured.as_ref().expect("detail");
            assert_eq!(registers.general[0], RESULT, "rax");
            assert!(caller.contains(&registers.return_address));
        }
        for event in events(&traced, "both", EventKind::Return) {
            let (registers, _) = event.captured.as_ref().expect("detail");
            assert_eq!(registers.general[..2], [RESULT, !RESULT], "rax and rdx");
        }
    }
}

#[test]
fn the_stack_pointer_is_the_same_at_every_call_from_one_place() {
    let traced = Run::target("detail").trace();
    let pointers = |name| {
        let events = events(&traced, name, EventKind::Call);
        events.iter().map(|event| event.captured.as_ref().expect("detail").0.stack_pointer).collect::<Vec<_>>()
    };
    let (known, caller) = (pointers("known"), pointers("caller"));
    assert!(known.iter().all(|pointer| *pointer == known[0] && pointer % 16 == 8), "{known:x?}");
    assert!(caller.iter().all(|pointer| *pointer > known[0] && *pointer - known[0] < 256), "{caller:x?}");
}

#[test]
fn the_frame_pointer_is_that_of_the_caller() {
    let traced = Run::target("plain_frame_pointer").trace();
    let all = traced.trace.threads.values().flatten();
    let leaf = all.filter(|event| event.kind == EventKind::Call && event.name.as_deref() == Some("leaf"));
    for event in leaf {
        let (registers, stack) = event.captured.as_ref().expect("detail");
        // The caller's frame has the frame pointer of its own caller, and above it the address it returns to.
        let at = registers.frame_pointer.checked_sub(registers.stack_pointer).expect("the frame is above") as usize / 8;
        let return_address = words(stack)[at + 1];
        assert!(place(&traced, "outer").contains(&return_address), "{return_address:x}");
    }
}

#[test]
fn as_much_stack_is_captured_as_was_asked_for() {
    for bytes in [0, 8, 64, 512] {
        let traced = Run::target("detail").with(&["--stack-bytes", &bytes.to_string()]).trace();
        traced.sound().exact_counts();
        for event in events(&traced, "known", EventKind::Call) {
            let (registers, stack) = event.captured.as_ref().expect("detail");
            assert_eq!((registers.general[0], stack.len()), (PASSED[0], bytes));
        }
    }
}

#[test]
fn the_stack_is_not_read_past_its_end() {
    // Threads start close to the end of their stacks.
    let traced = Run::target("short_threads").with(&["--stack-bytes", "512"]).trace();
    traced.sound().exact_counts();
    let main = Run::target("ends").arguments(&["_exit"]).with(&["--stack-bytes", "512"]).trace();
    main.sound().exact_counts();
}

#[test]
fn without_detail_there_is_none() {
    let traced = Run::target("detail").with(&["--no-detail"]).trace();
    traced.sound().exact_counts();
    assert!(traced.trace.threads.values().flatten().all(|event| event.captured.is_none()));
}
