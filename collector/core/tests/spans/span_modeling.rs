//! Span modeling and pairing rules, clause by clause.

use codec::{
    profile::Key,
    span::{Ending, Reason, SpanFlags, SpanKind, SpanStatus},
};
use collector_core::spans::{CallbackRule, Finish, SpanConfig};

use crate::script::{Script, Step, has, more, times};

const SECOND: u64 = 1_000_000_000;

/// A thread that the main thread creates and joins, which calls one function.
fn with_a_thread() -> Script {
    let mut script = Script::default();
    script.call(0, 10, "main");
    script.creates(0, 20, "worker", 7, false);
    script.created(0, 30, 0xAB);
    script.starts(1, 40, "worker", 7, 0xAB);
    script.call(1, 50, "work");
    script.ret(1, 60);
    script.ends(1, 70, 0xAB, 3);
    script.ret(0, 100);
    script
}

#[test]
fn spans_are_made_of_the_events_of_a_trace() {
    let spans = with_a_thread().play(Finish::Exited);
    assert_eq!(spans.of(SpanKind::Frame).len(), 4);
    assert_eq!(spans.of(SpanKind::Thread).len(), 1);
    assert_eq!(spans.all.len(), 5);
    assert!(spans.all.iter().all(|span| span.status == SpanStatus::Matched), "{:#?}", spans.all);
}

#[test]
fn a_frame_span_is_from_entry_to_return() {
    let mut script = Script::default();
    script.call(0, 10, "outer");
    script.call(0, 20, "inner");
    script.ret(0, 30);
    script.ret(0, 45);
    let spans = script.play(Finish::Exited);
    assert_eq!(times(spans.frame("outer")), (10, Some(45)));
    assert_eq!(times(spans.frame("inner")), (20, Some(30)));
    assert_eq!(spans.frame("inner").parent, Some(spans.frame("outer").id));
    assert_eq!(spans.frame("inner").duration(), Some(10));
}

#[test]
fn a_logical_span_is_from_the_start_to_the_end_of_what_the_program_meant() {
    let spans = with_a_thread().play(Finish::Exited);
    let thread = spans.one(SpanKind::Thread);
    assert_eq!(times(thread), (40, Some(70)));
    assert!(thread.kind.is_logical() && !spans.frame("work").kind.is_logical());
}

#[test]
fn logical_and_frame_spans_of_the_same_function_point_at_each_other() {
    let spans = with_a_thread().play(Finish::Exited);
    let (thread, frame) = (spans.one(SpanKind::Thread), spans.frame("worker"));
    assert_eq!((thread.twin, frame.twin), (Some(frame.id), Some(thread.id)));
    assert_eq!(thread.what, frame.what, "both are of the same function");
    assert_eq!(spans.frame("work").twin, None);
}

#[test]
fn without_logical_spans_there_are_frame_spans() {
    let mut script = Script::default();
    script.call(1, 40, "worker");
    script.call(1, 50, "work");
    script.ret(1, 60);
    script.ret(1, 70);
    let spans = script.play(Finish::Exited);
    assert_eq!(spans.all.len(), 2);
    assert_eq!(times(spans.frame("worker")), (40, Some(70)));
}

#[test]
fn calls_and_returns_are_matched_by_function_thread_and_depth() {
    let mut script = Script::default();
    // The same function on two threads, and within itself.
    script.call(0, 10, "f");
    script.call(1, 11, "f");
    script.call(0, 12, "f");
    script.ret(1, 13);
    script.ret(0, 14);
    script.ret(0, 15);
    let spans = script.play(Finish::Exited);
    let mut all: Vec<_> = spans.all.iter().map(|span| (span.stream.0, span.depth, times(span))).collect();
    all.sort_unstable();
    assert_eq!(all, [(0, 0, (10, Some(15))), (0, 1, (12, Some(14))), (1, 0, (11, Some(13)))]);
}

#[test]
fn a_return_whose_call_was_lost_makes_its_span_from_its_own_start() {
    let mut script = Script::default();
    script.call(0, 10, "main");
    script.lose(0, |script| {
        script.call(0, 20, "lost");
    });
    script.ret(0, 30);
    script.ret(0, 40);
    let spans = script.play(Finish::Exited);
    let lost = spans.frame("lost");
    assert_eq!((lost.status, lost.reason, times(lost)), (SpanStatus::Unmatched, Some(Reason::Gap), (20, Some(30))));
    assert!(has(lost, SpanFlags::NO_CALL));
    assert_eq!(lost.parent, Some(spans.frame("main").id));
    assert!(has(spans.frame("main"), SpanFlags::ACROSS_GAP));
    let gap = spans.one(SpanKind::Gap);
    assert_eq!((times(gap), gap.key()), ((10, Some(30)), Some(1)));
    assert_eq!(gap.more.as_ref().and_then(|more| more.cause.as_deref()), Some("link:lost"));
}

#[test]
fn a_call_whose_return_was_lost_is_unmatched_because_of_the_gap() {
    let mut script = Script::default();
    script.call(0, 10, "main");
    script.call(0, 20, "lost");
    script.lose(0, |script| script.ret(0, 30));
    script.call(0, 35, "next");
    script.ret(0, 38);
    script.ret(0, 40);
    let spans = script.play(Finish::Exited);
    let lost = spans.frame("lost");
    assert_eq!((lost.status, lost.reason, lost.end), (SpanStatus::Unmatched, Some(Reason::Gap), None));
    assert_eq!(spans.frame("next").parent, Some(spans.frame("main").id));
    assert_eq!(spans.frame("main").status, SpanStatus::Matched);
}

#[test]
fn an_entry_without_a_return_is_kept_and_says_why() {
    let mut script = Script::default();
    script.call(0, 10, "main");
    script.call(0, 20, "f");
    for (finish, reason) in [(Finish::Exited, Reason::ProcessExit), (Finish::Crashed, Reason::Crash)] {
        let spans = script.play(finish);
        assert_eq!(spans.all.len(), 2, "nothing is discarded");
        for span in &spans.all {
            assert_eq!((span.status, span.reason, span.end), (SpanStatus::Unmatched, Some(reason), None));
        }
        assert_eq!(spans.frame("f").parent, Some(spans.frame("main").id));
    }
}

#[test]
fn what_is_watched_at_its_entry_only_says_so() {
    let mut script = Script::default();
    script.call(0, 5, "main");
    let probe = script.functions.id("probe");
    let detail = format!("functions {0},{0}-{0}", probe.index());
    script.steps.insert(0, Step::EntryOnly { detail });
    script.probe(0, 10, "probe");
    script.probe(0, 20, "probe");
    script.call(0, 30, "f");
    script.ret(0, 40);
    script.probe(0, 50, "probe");
    script.ret(0, 60);
    let spans = script.play(Finish::Exited);
    let probes: Vec<_> = spans.of(SpanKind::Frame).into_iter().filter(|span| spans.name(span) == "probe").collect();
    assert_eq!(probes.len(), 3);
    for probe in probes {
        assert_eq!((probe.status, probe.reason), (SpanStatus::Unmatched, Some(Reason::EntryOnly)));
        assert_eq!(probe.parent, Some(spans.frame("main").id));
    }
    for name in ["main", "f"] {
        assert_eq!(spans.frame(name).status, SpanStatus::Matched);
    }
}

#[test]
fn a_module_can_be_watched_at_its_entries_only() {
    let mut script = Script::default();
    script.steps.push(Step::EntryOnly { detail: "all functions".into() });
    script.probe(0, 10, "a");
    script.probe(0, 20, "b");
    let spans = script.play(Finish::Exited);
    assert!(spans.all.iter().all(|span| span.reason == Some(Reason::EntryOnly)), "{:#?}", spans.all);
}

#[test]
fn cancellation_closes_a_span_at_once_and_says_so() {
    let mut script = Script::default();
    script.task(0, 10, 5, 0);
    script.job(1, 20, 5, "body");
    script.tells(0, 30, "swift_task_cancel", &[(Key::Task, 5)]);
    script.job_ends(1, 40, 5);
    let spans = script.play(Finish::Exited);
    let task = spans.one(SpanKind::Task);
    assert_eq!((task.status, task.reason), (SpanStatus::Canceled, Some(Reason::Canceled)));
    assert_eq!(times(task), (20, Some(30)));
    assert_eq!(more(task).end_stream.map(|stream| stream.0), Some(0), "who canceled it");
}

#[test]
fn a_span_that_is_open_for_longer_than_the_timeout_is_reported_open() {
    let mut script = Script::default();
    script.call(0, 0, "main");
    script.call(0, SECOND, "long");
    script.steps.push(Step::Settle(6 * SECOND + 1));
    script.call(0, 7 * SECOND, "short");
    script.ret(0, 8 * SECOND);
    script.ret(0, 9 * SECOND);
    let spans = script.play(Finish::Cut);
    let notices: Vec<_> = spans.notices.iter().map(|span| (spans.name(span), span.status, span.end)).collect();
    assert_eq!(notices, [("main", SpanStatus::Open, None), ("long", SpanStatus::Open, None)]);
    let long = spans.frame("long");
    assert_eq!((long.status, times(long)), (SpanStatus::Matched, (SECOND, Some(9 * SECOND))), "it is not closed early");
    assert!(has(long, SpanFlags::TIMED_OUT));
    assert_eq!(more(long).resumed.map(|at| at.0), Some(9 * SECOND));
    assert!(!has(spans.frame("short"), SpanFlags::TIMED_OUT));
    let main = spans.frame("main");
    assert_eq!((main.status, main.reason), (SpanStatus::Open, Some(Reason::Timeout)), "the trace ends without it");
    assert_eq!(spans.counts.notices, 2);
}

#[test]
fn a_function_that_is_called_where_a_reported_one_was_is_reported_too() {
    let mut script = Script::default();
    script.call(0, 0, "main");
    script.call(0, 1, "first");
    script.steps.push(Step::Settle(6 * SECOND));
    script.ret(0, 7 * SECOND);
    script.call(0, 8 * SECOND, "second");
    script.steps.push(Step::Settle(20 * SECOND));
    let spans = script.play(Finish::Cut);
    let notices: Vec<_> = spans.notices.iter().map(|span| spans.name(span)).collect();
    assert_eq!(notices, ["main", "first", "second"]);
}

#[test]
fn the_timeout_can_be_set() {
    assert_eq!(SpanConfig::default().timeout_ns, 5 * SECOND);
    let mut script = Script::default();
    script.call(0, 0, "f");
    script.steps.push(Step::Settle(1000));
    script.ret(0, 2000);
    let spans = script.play_with(SpanConfig { timeout_ns: 500, ..SpanConfig::default() }, Finish::Exited);
    assert_eq!(spans.notices.len(), 1);
    assert!(has(spans.frame("f"), SpanFlags::TIMED_OUT));
    assert!(script.play(Finish::Exited).notices.is_empty());
}

#[test]
fn a_logical_span_that_is_heard_of_again_says_when_it_resumed() {
    let mut script = Script::default();
    script.submits(0, 0, "dispatch_async", 1, 1);
    script.steps.push(Step::Settle(6 * SECOND));
    script.block_runs(1, (7 * SECOND, 8 * SECOND), 1);
    let spans = script.play(Finish::Exited);
    assert_eq!(spans.notices.iter().filter(|span| span.kind == SpanKind::Block).count(), 1);
    let block = spans.one(SpanKind::Block);
    assert_eq!(block.status, SpanStatus::Matched);
    assert_eq!(more(block).resumed.map(|at| at.0), Some(7 * SECOND));
}

#[test]
fn a_tail_call_ends_its_caller_which_has_no_return() {
    let mut script = Script::default();
    script.call(0, 5, "main");
    script.call(0, 10, "first");
    script.tail_call(0, 20, "second");
    script.tail_call(0, 30, "third");
    script.ret(0, 40);
    script.ret(0, 50);
    let spans = script.play(Finish::Exited);
    for (name, end) in [("first", 20), ("second", 30)] {
        let span = spans.frame(name);
        assert_eq!((span.status, span.reason), (SpanStatus::Unmatched, Some(Reason::TailCall)), "{name}");
        assert_eq!(span.end.map(|end| end.0), Some(end));
    }
    assert_eq!((spans.frame("third").status, times(spans.frame("third"))), (SpanStatus::Matched, (30, Some(40))));
    for name in ["first", "second", "third"] {
        assert_eq!(spans.frame(name).parent, Some(spans.frame("main").id), "{name}");
    }
}

#[test]
fn a_tail_call_to_what_has_no_return_ends_both() {
    let mut script = Script::default();
    script.entry_only("probe");
    script.call(0, 5, "main");
    script.call(0, 10, "first");
    script.stack(0).pop();
    script.probe(0, 20, "probe");
    script.ret(0, 30);
    let spans = script.play(Finish::Exited);
    let first = spans.frame("first");
    assert_eq!((first.reason, times(first)), (Some(Reason::TailCall), (10, Some(20))));
    assert_eq!(spans.frame("probe").reason, Some(Reason::EntryOnly));
    assert_eq!(spans.frame("main").status, SpanStatus::Matched);
}

/// `main` calls two functions; the innermost calls what leaves them.
fn left_by(leaver: &'static str) -> Script {
    let mut script = Script::default();
    script.call(0, 10, "main");
    script.call(0, 20, "outer");
    script.call(0, 30, "inner");
    script.call(0, 40, leaver);
    for _ in 0..3 {
        script.unwind(0, 50);
    }
    script.ret(0, 60);
    script
}

#[test]
fn an_exception_says_so_of_every_function_it_leaves() {
    let panic = "_RNvCs7ZPhSPWuhs_7___rustc10rust_panic";
    for leaver in ["_Unwind_RaiseException", "__cxa_throw", "rust_panic", panic] {
        let spans = left_by(leaver).play(Finish::Exited);
        for name in ["outer", "inner", leaver] {
            let span = spans.frame(name);
            assert_eq!((span.status, span.reason), (SpanStatus::Unmatched, Some(Reason::Exception)), "{name}");
            assert_eq!(span.end.map(|end| end.0), Some(50));
        }
        assert_eq!(spans.frame("main").status, SpanStatus::Matched);
    }
}

#[test]
fn a_longjmp_says_so_of_every_function_it_leaves() {
    let spans = left_by("longjmp").play(Finish::Exited);
    for name in ["outer", "inner", "longjmp"] {
        assert_eq!(spans.frame(name).reason, Some(Reason::Longjmp), "{name}");
    }
}

#[test]
fn an_unwinding_by_nobody_knows_whom_is_an_unwind() {
    let spans = left_by("something").play(Finish::Exited);
    for name in ["outer", "inner", "something"] {
        assert_eq!(spans.frame(name).reason, Some(Reason::Unwind), "{name}");
    }
    assert_eq!(left_by("_Unwind_ForcedUnwind").play(Finish::Exited).frame("outer").reason, Some(Reason::Canceled));
    assert_eq!(left_by("pthread_exit").play(Finish::Exited).frame("outer").reason, Some(Reason::ThreadExit));
}

#[test]
fn at_the_end_of_the_process_all_that_is_open_is_unmatched() {
    let mut script = with_a_thread();
    script.call(2, 200, "loop");
    script.submits(2, 210, "dispatch_async", 1, 1);
    let spans = script.play(Finish::Exited);
    let open = spans.frame("loop");
    assert_eq!((open.status, open.reason), (SpanStatus::Unmatched, Some(Reason::ProcessExit)));
    assert_eq!(spans.one(SpanKind::Block).status, SpanStatus::Unmatched);
    assert_eq!(spans.counts.open, 0);
    assert_eq!(script.play(Finish::Cut).frame("loop").status, SpanStatus::Open, "the process may go on");
}

#[test]
fn functions_of_a_thread_that_has_ended_were_left_with_it() {
    let mut script = Script::default();
    script.call(1, 10, "f");
    script.steps.push(Step::Thread { stream: 1, start: 5, end: Some(20), creator: None });
    script.call(0, 30, "main");
    script.ret(0, 1_000_000_000);
    let spans = script.play(Finish::Cut);
    assert_eq!(spans.frame("f").reason, Some(Reason::ThreadExit));
}

#[test]
fn spans_that_cross_threads_are_matched_by_keys_alone() {
    let mut script = Script::default();
    // Two blocks submitted by one thread, run by two others in the other order.
    script.submits(0, 10, "dispatch_async", 1, 1);
    script.submits(0, 20, "dispatch_async", 2, 1);
    script.block_runs(1, (30, 40), 2);
    script.block_runs(2, (31, 41), 1);
    let spans = script.play(Finish::Exited);
    let blocks: Vec<_> = spans.of(SpanKind::Block).into_iter().map(|span| (span.key(), span.stream.0)).collect();
    assert_eq!(blocks, [(Some(2), 1), (Some(1), 2)]);
    for block in spans.of(SpanKind::Block) {
        assert!(has(block, SpanFlags::CROSS_THREAD));
        let created = more(block).created.expect("its creation");
        assert!(created < block.start, "in the order of time");
    }
}

#[test]
fn a_callback_is_joined_to_the_call_that_was_given_it() {
    let mut script = Script::default();
    script.call(0, 10, "main");
    let callback = script.functions.address("on_event");
    script.call_with(0, 20, "register_cb", Some([1, callback, 0xC0, 0, 0, 0]));
    script.ret(0, 30);
    script.call_with(1, 40, "on_event", Some([0xC0, 0, 0, 0, 0, 0]));
    script.ret(1, 55);
    script.call_with(1, 60, "on_event", Some([0xC1, 0, 0, 0, 0, 0]));
    script.ret(1, 65);
    let rule: CallbackRule = "register_cb:arg1:arg2".parse().expect("a rule");
    let config = SpanConfig { callbacks: vec![rule], ..SpanConfig::default() };
    let spans = script.play_with(config, Finish::Exited);
    let span = spans.one(SpanKind::Callback);
    let more = more(span);
    assert_eq!((times(span), span.status), ((40, Some(55)), SpanStatus::Matched));
    assert_eq!((more.created.map(|at| at.0), more.latency, more.argument), (Some(20), Some(20), Some(0xC0)));
    assert_eq!(more.origin, Some(spans.frame("register_cb").id));
    assert_eq!(span.parent, Some(spans.frame("main").id));
    assert!(has(span, SpanFlags::CROSS_THREAD) && span.twin.is_some());
    assert!(script.play(Finish::Exited).of(SpanKind::Callback).is_empty(), "without a rule there is none");
}

#[test]
fn a_callback_that_ends_in_a_tail_call_ends_with_what_took_its_place() {
    let mut script = Script::default();
    script.call(0, 10, "main");
    let callback = script.functions.address("on_event");
    script.call_with(0, 20, "register_cb", Some([callback, 0, 0, 0, 0, 0]));
    for (at, behind) in [(30, 40), (60, 70), (90, 100)] {
        script.call_with(0, at, "on_event", Some([0; 6]));
        script.tail_call(0, at + 2, "jumped_to");
        script.tail_call(0, at + 4, "jumped_on");
        script.ret(0, at + 9);
        // Whatever comes next: another call, or the return of what called it.
        if at < 90 {
            script.call(0, behind, "next");
            script.ret(0, behind + 1);
        }
    }
    script.ret(0, 110);
    // This one is left by an exception.
    script.call_with(0, 120, "on_event", Some([0; 6]));
    script.tail_call(0, 122, "jumped_to");
    script.unwind(0, 129);
    script.ret(0, 140);
    let config = SpanConfig { callbacks: vec!["register_cb:arg0".parse().expect("a rule")], ..SpanConfig::default() };
    let spans = script.play_with(config, Finish::Exited);
    let callbacks = spans.of(SpanKind::Callback);
    let (last, others) = callbacks.split_last().expect("callbacks");
    for (callback, at) in others.iter().zip([30, 60, 90]) {
        assert_eq!(
            (times(callback), callback.status, callback.reason),
            ((at, Some(at + 9)), SpanStatus::Matched, None)
        );
        assert_eq!(more(callback).ending, Some(Ending::Returned));
    }
    assert_eq!((others.len(), last.status, last.reason), (3, SpanStatus::Unmatched, Some(Reason::TailCall)));
}

#[test]
fn a_callback_that_never_comes_is_pending() {
    let mut script = Script::default();
    let callback = script.functions.address("on_event");
    script.call_with(0, 20, "register_cb", Some([callback, 0, 0, 0, 0, 0]));
    script.ret(0, 30);
    let config = SpanConfig { callbacks: vec!["register_cb:arg0".parse().expect("a rule")], ..SpanConfig::default() };
    let spans = script.play_with(config, Finish::Exited);
    assert_eq!(spans.one(SpanKind::Callback).reason, Some(Reason::Pending));
}

#[test]
fn each_thread_has_its_own_stack_and_may_run_on_several() {
    let mut script = Script::default();
    script.call(0, 10, "main");
    script.call(0, 20, "f");
    // A signal handler on a stack of its own; then the thread goes on where it was.
    let before = script.other_stack(0, Vec::new());
    script.call(0, 30, "handler");
    script.call(0, 40, "in_handler");
    script.ret(0, 50);
    script.ret(0, 60);
    script.other_stack(0, before);
    script.call(0, 70, "g");
    script.ret(0, 80);
    script.ret(0, 90);
    script.ret(0, 100);
    let spans = script.play(Finish::Exited);
    assert!(spans.all.iter().all(|span| span.status == SpanStatus::Matched), "{:#?}", spans.all);
    assert_eq!(spans.frame("handler").parent, None);
    assert_eq!(spans.frame("in_handler").parent, Some(spans.frame("handler").id));
    assert_eq!(spans.frame("g").parent, Some(spans.frame("f").id));
}

#[test]
fn a_handler_on_another_stack_is_no_tail_call_of_the_outermost_function() {
    let mut script = Script::default();
    script.call(0, 10, "main");
    let before = script.other_stack(0, Vec::new());
    script.call(0, 30, "handler");
    script.ret(0, 60);
    script.other_stack(0, before);
    script.call(0, 70, "g");
    script.ret(0, 80);
    script.ret(0, 100);
    let spans = script.play(Finish::Exited);
    assert!(spans.all.iter().all(|span| span.status == SpanStatus::Matched), "{:#?}", spans.all);
    assert_eq!(spans.frame("g").parent, Some(spans.frame("main").id));
}

#[test]
fn events_with_a_start_and_an_end_are_spans_nested_by_time() {
    let mut script = Script::default();
    let inner = script.plain(0, (20, 30), "inner");
    let beside = script.plain(1, (21, 22), "beside");
    let outer = script.plain(0, (10, 40), "outer");
    let spans = script.play(Finish::Cut);
    assert_eq!(spans.get(inner).parent, Some(outer));
    assert_eq!((spans.get(outer).parent, spans.get(beside).parent), (None, None));
    assert_eq!((spans.get(outer).kind, times(spans.get(outer))), (SpanKind::Event, (10, Some(40))));
}

#[test]
fn a_span_outside_of_its_parent_says_so() {
    let mut script = Script::default();
    script.call(0, 5, "main");
    script.call(0, 8, "submits");
    script.submits(0, 10, "dispatch_async", 1, 1);
    script.ret(0, 15);
    script.block_runs(1, (30, 40), 1);
    script.ret(0, 50);
    let spans = script.play(Finish::Exited);
    let block = spans.one(SpanKind::Block);
    assert_eq!(block.parent, Some(spans.frame("submits").id));
    assert!(has(block, SpanFlags::OUTSIDE_PARENT));
}
