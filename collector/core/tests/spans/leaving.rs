//! Why functions were left without returning, as programs are really seen to do it.

use codec::span::Reason;
use collector_core::spans::Finish;

use crate::script::Script;

/// `main` calls two functions; the innermost calls what leaves them, of which only the entry is watched.
fn left_by_probe(inner: &'static str, leaver: &'static str) -> Script {
    let mut script = Script::default();
    script.call(0, 10, "main");
    script.call(0, 20, "outer");
    script.call(0, 30, inner);
    script.probe(0, 40, leaver);
    script.entry_only(leaver);
    for _ in 0..2 {
        script.unwind(0, 50);
    }
    script.ret(0, 60);
    script
}

#[test]
fn what_unwinds_says_so_though_only_its_entry_is_watched() {
    for (inner, leaver, reason) in [
        ("inner", "_Unwind_Resume", Reason::Exception),
        ("inner", "_Unwind_RaiseException", Reason::Exception),
        ("inner", "_Unwind_ForcedUnwind", Reason::Canceled),
        ("pthread_exit", "_Unwind_ForcedUnwind", Reason::ThreadExit),
        ("inner", "something", Reason::Unwind),
    ] {
        let spans = left_by_probe(inner, leaver).play(Finish::Exited);
        for name in ["outer", inner] {
            assert_eq!(spans.frame(name).reason, Some(reason), "{name} by {leaver}");
        }
        assert_eq!(spans.frame(leaver).reason, Some(Reason::EntryOnly));
    }
}

#[test]
fn a_jump_out_of_a_handler_on_another_stack_says_so_of_what_it_leaves() {
    let mut script = Script::default();
    script.call(0, 10, "main");
    script.call(0, 20, "f");
    let before = script.other_stack(0, Vec::new());
    script.call(0, 30, "handler");
    script.call(0, 40, "siglongjmp");
    script.other_stack(0, before);
    script.unwind(0, 50);
    script.ret(0, 60);
    let spans = script.play(Finish::Exited);
    assert_eq!(spans.frame("f").reason, Some(Reason::Longjmp));
}

#[test]
fn a_jump_that_is_told_late_says_so_of_what_it_left() {
    let mut script = Script::default();
    script.call(0, 10, "main");
    let before = script.other_stack(0, Vec::new());
    script.call(0, 30, "handler");
    script.call(0, 40, "siglongjmp");
    let handler = script.other_stack(0, before);
    script.call(0, 50, "g");
    script.ret(0, 60);
    let before = script.other_stack(0, handler);
    script.unwind(0, 70);
    script.unwind(0, 70);
    script.other_stack(0, before);
    script.ret(0, 80);
    let spans = script.play(Finish::Exited);
    for name in ["handler", "siglongjmp"] {
        assert_eq!(spans.frame(name).reason, Some(Reason::Longjmp), "{name}");
    }
}
