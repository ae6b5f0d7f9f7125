//! Coroutines that change threads, or copy their stacks.

use codec::EventKind;
use tests::{Run, Transport, python::python_with};

/// The program checks itself. Every call and return is recorded, on whichever thread it happens. Where memory only looks
/// like a stack, a thread that left it unnoticed may cost the next one a few; where it does not, nothing is recorded. Both
/// are counted.
#[test]
fn coroutines_go_on_in_other_threads() {
    for arguments in [&[][..], &["guarded"], &["packed"]] {
        let run = Run::target("fibers").arguments(arguments).over(Transport::Tcp);
        let traced = run.trace();
        traced.sound().ended_as_it_did();
        let passed = traced.trace.manifest.limits.iter().find(|limit| limit.reason == "stack-unknown");
        let passed = passed.map_or(0, |limit| limit.count);
        println!("{arguments:?}: {passed} calls were passed through");
        match arguments {
            [] => assert_eq!(passed, 0, "the program says where its stacks are"),
            ["guarded"] => assert!(passed < 2_000, "{passed} calls were passed through"),
            _ => assert!(passed > 10_000, "{passed} calls were passed through"),
        }
        if passed == 0 {
            traced.exact_counts();
        }
    }
}

/// They check themselves: whatever is not known of their stacks is counted, and harms nobody.
#[test]
fn unusual_stacks_harm_nobody() {
    for (target, times) in [("odd_stacks", 3), ("fibers_throw", 5)] {
        for _ in 0..times {
            let traced = Run::target(target).over(Transport::Tcp).with(&["--no-detail"]).trace();
            traced.sound().ended_as_it_did();
        }
    }
}

/// Greenlets share one stack: what is on it is copied away, and back, at every switch. Before they are loaded all is recorded;
/// from then on the entries of functions are.
#[test]
fn a_program_that_copies_its_stacks_goes_on() {
    let Some(python) = python_with(&["greenlet"]) else { return };
    let script = "
import greenlet
def dig(n, main):
    return main.switch(0) if n == 0 else dig(n - 1, main) + 1
def body(n):
    total = 0
    for turn in range(20):
        got = dig((n * 7 + turn) % 40, greenlet.getcurrent().parent)
        total += got
        try:
            raise ValueError(got)
        except ValueError as error:
            total += error.args[0]
    return total
greenlets = [greenlet.greenlet(body) for n in range(30)]
waiting, total, turn = [(g, n) for n, g in enumerate(greenlets)], 0, 0
while waiting:
    g, value = waiting.pop(turn * 7919 % len(waiting))
    turn += 1
    result = g.switch(value)
    if g.dead:
        total += (greenlets.index(g) + 1) * result
    else:
        waiting.append((g, turn))
print(total)
";
    let traced = Run::of(python).arguments(&["-I", "-c", script]).over(Transport::Tcp).with(&["--no-detail"]).trace();
    traced.sound().ended_as_it_did();
    assert!(traced.traced.stderr.contains("copies or reads stacks"), "{}", traced.traced.stderr);
    let events: Vec<_> = traced.trace.threads.values().flatten().collect();
    let last_return = events.iter().rposition(|event| event.kind == EventKind::Return).expect("some return");
    let calls_behind = events.iter().skip(last_return).filter(|event| event.kind == EventKind::Call).count();
    assert!(last_return > 10_000 && calls_behind > 10_000, "{last_return} {calls_behind}");
}
