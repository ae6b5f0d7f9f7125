//! Coroutines that change threads.

use tests::{Run, Transport};

/// The program checks itself. Every call and return is recorded, on whichever thread it happens; where nobody says which
/// memory is a stack, a thread that left one unnoticed may cost the next one a few, which are counted.
#[test]
fn coroutines_go_on_in_other_threads() {
    for arguments in [&[][..], &["guarded"], &["packed"]] {
        let run = Run::target("fibers").arguments(arguments).over(Transport::Tcp);
        let traced = run.trace();
        traced.sound().ended_as_it_did();
        let passed = traced.trace.manifest.limits.iter().find(|limit| limit.reason == "stack-shared");
        let passed = passed.map_or(0, |limit| limit.count);
        println!("{arguments:?}: {passed} calls were passed through");
        match arguments {
            [] => assert_eq!(passed, 0, "the program says where its stacks are"),
            _ => assert!(passed < 2_000, "{passed} calls were passed through"),
        }
        if passed == 0 {
            traced.exact_counts();
        }
    }
}
