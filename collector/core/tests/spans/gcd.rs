//! The mapping of Grand Central Dispatch, clause by clause.

use codec::{
    EventKind,
    profile::Key,
    span::{Ending, Reason, SpanFlags, SpanId, SpanKind, SpanStatus},
};
use collector_core::spans::Finish;

use crate::script::{Script, Step, has, more, times};

const CALLOUT: &str = "_dispatch_client_callout";
const INVOKE: u64 = 0x900;

impl Script {
    pub(crate) fn submits(&mut self, stream: u32, at: u64, function: &'static str, block: u64, queue: u64) -> SpanId {
        self.tells(stream, at, function, &[(Key::Block, block), (Key::Invoke, INVOKE), (Key::Queue, queue)])
    }

    pub(crate) fn submits_to_group(&mut self, at: u64, function: &'static str, block: u64, group: u64) -> SpanId {
        let keys = [(Key::Block, block), (Key::Invoke, INVOKE), (Key::Queue, 1), (Key::Group, group)];
        self.tells(0, at, function, &keys)
    }

    pub(crate) fn executes(&mut self, stream: u32, at: u64, block: u64) -> SpanId {
        self.runs(stream, at, "block_invoke", CALLOUT, &[(Key::Block, block), (Key::Invoke, INVOKE)])
    }

    pub(crate) fn block_runs(&mut self, stream: u32, (start, end): (u64, u64), block: u64) -> SpanId {
        let id = self.executes(stream, start, block);
        self.completes(stream, end, block);
        id
    }

    pub(crate) fn completes(&mut self, stream: u32, at: u64, block: u64) {
        self.ran(stream, at, CALLOUT, EventKind::Return, &[(Key::Block, block), (Key::Invoke, INVOKE)]);
    }
}

fn flags_of(function: &'static str) -> SpanFlags {
    let mut script = Script::default();
    let id = script.submits(0, 10, function, 1, 1);
    script.block_runs(1, (20, 30), 1);
    script.play(Finish::Exited).get(id).flags
}

#[test]
fn every_function_that_submits_makes_a_span() {
    for (function, expected) in [
        ("dispatch_async", SpanFlags::default()),
        ("dispatch_async_f", SpanFlags::default()),
        ("dispatch_sync", SpanFlags::SYNC),
        ("dispatch_sync_f", SpanFlags::SYNC),
        ("dispatch_async_and_wait", SpanFlags::SYNC),
        ("dispatch_barrier_async", SpanFlags::BARRIER),
        ("dispatch_barrier_async_f", SpanFlags::BARRIER),
        ("dispatch_barrier_sync", SpanFlags::BARRIER.with(SpanFlags::SYNC, true)),
        ("dispatch_barrier_sync_f", SpanFlags::BARRIER.with(SpanFlags::SYNC, true)),
        ("dispatch_after", SpanFlags::AFTER),
        ("dispatch_after_f", SpanFlags::AFTER),
        ("dispatch_group_async", SpanFlags::default()),
        ("dispatch_group_async_f", SpanFlags::default()),
        ("dispatch_group_notify", SpanFlags::NOTIFY),
        ("dispatch_group_notify_f", SpanFlags::NOTIFY),
    ] {
        let expected = expected.with(SpanFlags::CROSS_THREAD, true);
        assert_eq!(flags_of(function).to_string(), expected.to_string(), "{function}");
    }
}

#[test]
fn a_block_joins_its_submission_to_its_execution() {
    let mut script = Script::default();
    script.call(0, 5, "main");
    let id = script.submits(0, 10, "dispatch_async", 0xB0, 4);
    script.executes(1, 25, 0xB0);
    script.call(1, 30, "work");
    script.ret(1, 40);
    script.completes(1, 45, 0xB0);
    let spans = script.play(Finish::Exited);
    let block = spans.one(SpanKind::Block);
    let more = more(block);
    assert_eq!((block.id, block.status, block.key()), (id, SpanStatus::Matched, Some(0xB0)));
    assert_eq!((more.queue, more.creator.map(|stream| stream.0), block.stream.0), (Some(4), Some(0), 1));
    assert_eq!((block.twin, more.ending), (Some(spans.frame("block_invoke").id), Some(Ending::Returned)));
    assert_eq!((block.parent, more.origin), (Some(spans.frame("main").id), Some(spans.frame("dispatch_async").id)));
}

#[test]
fn latency_execution_and_total_are_measured() {
    let mut script = Script::default();
    let id = script.submits(0, 10, "dispatch_async", 1, 1);
    script.block_runs(1, (25, 45), 1);
    let spans = script.play(Finish::Exited);
    let block = spans.get(id);
    let more = more(block);
    assert_eq!((more.latency, block.duration()), (Some(15), Some(20)));
    let total = block.end.expect("its end").0 - more.created.expect("its creation").0;
    assert_eq!(total, 35);
}

#[test]
fn how_many_wait_on_a_queue_can_be_told_from_the_spans() {
    let mut script = Script::default();
    for block in 0..4 {
        script.submits(0, 10 + 2 * block, "dispatch_async", block, 7);
    }
    for block in 0..4 {
        script.block_runs(1, (30 + 10 * block, 35 + 10 * block), block);
    }
    let spans = script.play(Finish::Exited);
    let waits = |at: u64| {
        let is = |span: &&&codec::span::Span| {
            let more = more(span);
            more.queue == Some(7) && more.created.is_some_and(|created| created.0 <= at) && span.start.0 > at
        };
        spans.of(SpanKind::Block).iter().filter(is).count()
    };
    assert_eq!((waits(9), waits(20), waits(36), waits(61)), (0, 4, 3, 0));
}

#[test]
fn the_time_of_a_group_is_from_its_first_entry_to_its_last_leave() {
    let mut script = Script::default();
    script.tells(0, 10, "dispatch_group_enter", &[(Key::Group, 0xA)]);
    script.tells(0, 12, "dispatch_group_enter", &[(Key::Group, 0xA)]);
    script.tells(1, 30, "dispatch_group_leave", &[(Key::Group, 0xA)]);
    script.tells(2, 50, "dispatch_group_leave", &[(Key::Group, 0xA)]);
    // Used again, it is another.
    script.tells(0, 60, "dispatch_group_enter", &[(Key::Group, 0xA)]);
    script.tells(0, 70, "dispatch_group_leave", &[(Key::Group, 0xA)]);
    let spans = script.play(Finish::Exited);
    let groups: Vec<_> = spans.of(SpanKind::Group).into_iter().map(times).collect();
    assert_eq!(groups, [(10, Some(50)), (60, Some(70))]);
    assert_eq!(spans.of(SpanKind::Group)[0].key(), Some(0xA));
}

#[test]
fn what_is_submitted_synchronously_may_run_on_the_callers_own_thread() {
    let mut script = Script::default();
    script.call(0, 5, "main");
    script.call(0, 10, "dispatch_sync");
    let id = script.runtime(0, 10, "dispatch_sync", &[(Key::Block, 1), (Key::Invoke, INVOKE), (Key::Queue, 1)]);
    script.block_runs(0, (12, 20), 1);
    script.ret(0, 25);
    let spans = script.play(Finish::Exited);
    let block = spans.get(id);
    assert!(has(block, SpanFlags::SYNC) && !has(block, SpanFlags::CROSS_THREAD));
    assert_eq!((times(block), block.stream.0), ((12, Some(20)), 0));
    assert_eq!(spans.frame("block_invoke").parent, Some(spans.frame("dispatch_sync").id), "the caller waits");
}

#[test]
fn what_a_caller_waits_for_is_taken_before_what_is_older() {
    let mut script = Script::default();
    let later = script.submits(0, 10, "dispatch_async", 1, 1);
    script.call(2, 15, "dispatch_sync");
    let now = script.runtime(2, 15, "dispatch_sync", &[(Key::Block, 1), (Key::Invoke, INVOKE), (Key::Queue, 1)]);
    script.block_runs(2, (16, 17), 1);
    script.block_runs(1, (18, 19), 1);
    let spans = script.play(Finish::Exited);
    assert_eq!((times(spans.get(now)), times(spans.get(later))), ((16, Some(17)), (18, Some(19))));
}

#[test]
fn barriers_are_marked() {
    assert!(flags_of("dispatch_barrier_async").has(SpanFlags::BARRIER));
    assert!(!flags_of("dispatch_async").has(SpanFlags::BARRIER));
}

#[test]
fn a_block_that_submits_another_is_its_parent() {
    let mut script = Script::default();
    let outer = script.submits(0, 10, "dispatch_async", 1, 1);
    script.executes(1, 20, 1);
    let inner = script.submits(1, 22, "dispatch_async", 2, 1);
    script.completes(1, 30, 1);
    script.block_runs(1, (40, 50), 2);
    let spans = script.play(Finish::Exited);
    assert_eq!(spans.of(SpanKind::Block).len(), 2, "each has its own span");
    assert_eq!(spans.get(inner).parent, Some(outer));
    assert_eq!(spans.get(inner).more.as_ref().map(|more| more.level), Some(1));
    assert!(has(spans.get(inner), SpanFlags::OUTSIDE_PARENT), "it runs when the other has ended");
}

#[test]
fn blocks_that_run_within_one_another_are_told_apart() {
    let mut script = Script::default();
    let outer = script.submits(0, 10, "dispatch_async", 1, 1);
    script.executes(1, 20, 1);
    script.call(1, 22, "dispatch_sync");
    let inner = script.runtime(1, 22, "dispatch_sync", &[(Key::Block, 2), (Key::Invoke, INVOKE), (Key::Queue, 2)]);
    script.block_runs(1, (24, 26), 2);
    script.ret(1, 28);
    script.completes(1, 30, 1);
    let spans = script.play(Finish::Exited);
    assert_eq!((times(spans.get(outer)), times(spans.get(inner))), ((20, Some(30)), (24, Some(26))));
    assert!(!has(spans.get(inner), SpanFlags::OUTSIDE_PARENT));
}

#[test]
fn blocks_of_a_group_enter_and_leave_it() {
    let mut script = Script::default();
    script.submits_to_group(10, "dispatch_group_async", 1, 0xA);
    script.submits_to_group(12, "dispatch_group_async", 2, 0xA);
    let notify = script.submits_to_group(14, "dispatch_group_notify", 3, 0xA);
    for (block, at) in [(1, 20), (2, 30), (3, 40)] {
        script.block_runs(1, (at, at + 5), block);
    }
    let spans = script.play(Finish::Exited);
    assert_eq!(times(spans.one(SpanKind::Group)), (10, Some(35)), "the count reaches zero with the second block");
    let notified = spans.get(notify);
    assert!(has(notified, SpanFlags::NOTIFY) && notified.start > spans.one(SpanKind::Group).end.expect("its end"));
    assert_eq!(more(notified).group, Some(0xA));
}

#[test]
fn a_notification_that_never_fires_is_pending() {
    let mut script = Script::default();
    script.tells(0, 10, "dispatch_group_enter", &[(Key::Group, 0xA)]);
    let notify = script.submits_to_group(14, "dispatch_group_notify", 3, 0xA);
    // Something else runs, so executions are seen.
    script.submits(0, 20, "dispatch_async", 1, 1);
    script.block_runs(1, (30, 35), 1);
    let spans = script.play(Finish::Exited);
    let notify = spans.get(notify);
    assert_eq!((notify.status, notify.reason, notify.end), (SpanStatus::Unmatched, Some(Reason::Pending), None));
    assert!(!has(notify, SpanFlags::PLACEHOLDER));
    assert_eq!(spans.one(SpanKind::Group).status, SpanStatus::Unmatched);
}

#[test]
fn without_executions_there_are_submissions_without_latency() {
    let mut script = Script::default();
    let id = script.submits(0, 10, "dispatch_async", 1, 1);
    script.submits(0, 20, "dispatch_async", 2, 1);
    let spans = script.play(Finish::Exited);
    assert_eq!(spans.of(SpanKind::Block).len(), 2);
    let block = spans.get(id);
    assert_eq!(more(block).latency, None);
    assert!(has(block, SpanFlags::PLACEHOLDER), "no execution was ever seen");
    assert_eq!((block.reason, block.end), (Some(Reason::Pending), None));
}

#[test]
fn a_block_that_is_used_again_is_matched_to_the_nearest_later_execution() {
    let mut script = Script::default();
    let mut ids = Vec::new();
    for round in 0..3 {
        let at = 100 * round;
        ids.push(script.submits(0, at, "dispatch_async", 1, 1));
        script.block_runs(1, (at + 10, at + 20), 1);
    }
    // Two that wait on one queue run in their order.
    ids.push(script.submits(0, 300, "dispatch_async", 1, 1));
    ids.push(script.submits(0, 302, "dispatch_async", 1, 1));
    for at in [310, 330] {
        script.block_runs(1, (at, at + 10), 1);
    }
    let spans = script.play(Finish::Exited);
    let starts: Vec<_> = ids.iter().map(|id| spans.get(*id).start.0).collect();
    assert_eq!(starts, [10, 110, 210, 310, 330]);
    assert!(ids.iter().all(|id| !has(spans.get(*id), SpanFlags::UNCERTAIN)));
}

#[test]
fn what_waits_on_two_queues_is_uncertain() {
    let mut script = Script::default();
    let first = script.submits(0, 10, "dispatch_async", 1, 1);
    let second = script.submits(0, 20, "dispatch_async", 1, 2);
    script.block_runs(1, (30, 35), 1);
    script.block_runs(2, (40, 45), 1);
    let spans = script.play(Finish::Exited);
    assert_eq!((spans.get(first).start.0, spans.get(second).start.0), (30, 40));
    assert!(has(spans.get(first), SpanFlags::UNCERTAIN));
}

#[test]
fn the_return_of_a_submission_closes_nothing() {
    let mut script = Script::default();
    let id = script.submits(0, 10, "dispatch_async", 1, 1);
    script.steps.push(Step::Settle(20));
    script.block_runs(1, (30, 40), 1);
    let spans = script.play(Finish::Exited);
    assert_eq!(times(spans.frame("dispatch_async")), (10, Some(11)));
    assert_eq!(times(spans.get(id)), (30, Some(40)));
}

#[test]
fn a_block_that_nobody_was_seen_to_submit_is_an_orphan() {
    let mut script = Script::default();
    let id = script.block_runs(1, (30, 40), 1);
    let spans = script.play(Finish::Exited);
    assert!(has(spans.get(id), SpanFlags::ORPHAN));
    assert_eq!(spans.get(id).status, SpanStatus::Matched);
}

#[test]
fn a_block_that_is_left_by_an_exception_says_so() {
    let mut script = Script::default();
    let id = script.submits(0, 10, "dispatch_async", 1, 1);
    script.executes(1, 20, 1);
    script.call(1, 25, "__cxa_throw");
    script.unwind(1, 30);
    script.ran(1, 30, CALLOUT, EventKind::Exception, &[(Key::Block, 1), (Key::Invoke, INVOKE)]);
    let spans = script.play(Finish::Exited);
    let block = spans.get(id);
    assert_eq!((block.status, block.reason), (SpanStatus::Unmatched, Some(Reason::Exception)));
    assert_eq!(more(block).ending, Some(Ending::Unwound));
}

#[test]
fn every_run_of_dispatch_apply_is_a_span() {
    let mut script = Script::default();
    script.call(0, 10, "dispatch_apply");
    script.runtime(0, 10, "dispatch_apply", &[(Key::Block, 1), (Key::Invoke, INVOKE), (Key::Queue, 1)]);
    for (stream, at) in [(0, 20), (1, 21), (2, 22)] {
        script.executes(stream, at, 1);
    }
    for (stream, at) in [(2, 30), (1, 31), (0, 32)] {
        script.completes(stream, at, 1);
    }
    script.steps.push(Step::Settle(6_000_000_000));
    script.ret(0, 6_000_000_001);
    let spans = script.play(Finish::Exited);
    let blocks: Vec<_> = spans.of(SpanKind::Block).into_iter().map(times).collect();
    assert_eq!(blocks, [(20, Some(32)), (21, Some(31)), (22, Some(30))]);
    assert!(spans.of(SpanKind::Block).iter().all(|block| has(block, SpanFlags::SYNC)));
    assert!(spans.notices.iter().all(|notice| notice.kind == SpanKind::Frame), "what stands for them is not reported");
}

#[test]
fn an_execution_whose_start_was_lost_is_known_from_its_end() {
    let mut script = Script::default();
    let id = script.submits(0, 10, "dispatch_async", 1, 1);
    script.lose(1, |script| {
        script.executes(1, 20, 1);
    });
    script.completes(1, 30, 1);
    let spans = script.play(Finish::Exited);
    let block = spans.one(SpanKind::Block);
    assert_eq!((block.id, times(block)), (id, (20, Some(30))));
    assert!(has(block, SpanFlags::NO_CALL));
    assert_eq!(more(block).latency, Some(10));
}

#[test]
fn an_execution_whose_end_was_lost_does_not_take_that_of_another() {
    let mut script = Script::default();
    let lost = script.submits(0, 10, "dispatch_async", 1, 1);
    let other = script.submits(0, 12, "dispatch_async", 2, 1);
    script.executes(1, 20, 1);
    script.lose(1, |script| script.completes(1, 30, 1));
    script.lose(1, |script| {
        script.executes(1, 40, 2);
    });
    script.completes(1, 50, 2);
    let spans = script.play(Finish::Exited);
    assert_eq!(times(spans.get(other)), (40, Some(50)));
    assert_eq!((spans.get(lost).reason, spans.get(lost).end), (Some(Reason::Gap), None));
}

#[test]
fn a_submission_that_is_told_from_within_is_still_of_its_own_function() {
    let mut script = Script::default();
    script.call(0, 5, "main");
    script.call(0, 10, "dispatch_async");
    script.call(0, 12, "_Block_copy");
    // The copy is what will run; it is known when it was made.
    let keys = [(Key::Block, 0xC0), (Key::Invoke, INVOKE), (Key::Queue, 1)];
    script.runtime_left(0, (10, 14), "dispatch_async", EventKind::Call, &keys);
    script.ret(0, 14);
    script.ret(0, 16);
    script.block_runs(1, (30, 40), 0xC0);
    let spans = script.play(Finish::Exited);
    let block = spans.one(SpanKind::Block);
    let more = more(block);
    assert_eq!((more.created.map(|at| at.0), more.latency), (Some(10), Some(20)));
    assert_eq!((more.origin, block.parent), (Some(spans.frame("dispatch_async").id), Some(spans.frame("main").id)));
}

#[test]
fn a_submission_whose_function_is_not_known_is_matched_by_the_block() {
    let mut script = Script::default();
    let id = script.tells(0, 10, "dispatch_async", &[(Key::Block, 0xC0), (Key::Queue, 1)]);
    script.block_runs(1, (30, 40), 0xC0);
    assert_eq!(times(script.play(Finish::Exited).get(id)), (30, Some(40)));
}

#[test]
fn a_block_whose_function_ends_in_a_tail_call_ends_with_what_it_jumped_to() {
    let mut script = Script::default();
    let id = script.submits(0, 10, "dispatch_async", 1, 1);
    script.executes(1, 20, 1);
    script.tail_call(1, 25, "rest");
    script.runtime_left(1, (20, 40), CALLOUT, EventKind::Return, &[(Key::Block, 1), (Key::Invoke, INVOKE)]);
    script.ret(1, 40);
    let spans = script.play(Finish::Exited);
    assert_eq!((times(spans.get(id)), spans.get(id).status), ((20, Some(40)), SpanStatus::Matched));
    let code = spans.frame("block_invoke");
    assert_eq!((code.reason, code.twin), (Some(Reason::TailCall), Some(id)));
}

#[test]
fn every_event_that_a_source_handles_is_a_span() {
    let mut script = Script::default();
    script.call(0, 5, "main");
    let source = (Key::Source, 0x50);
    script.tells(0, 10, "dispatch_source_create", &[source, (Key::Queue, 4)]);
    let handler = [(Key::Block, 0xB0), (Key::Invoke, INVOKE), source];
    let registered = script.tells(0, 20, "dispatch_source_set_event_handler", &handler);
    // Of a function it is not known before what it will be given.
    let never = script.tells(0, 30, "dispatch_source_set_cancel_handler_f", &[(Key::Invoke, 77), source]);
    let function = script.tells(0, 40, "dispatch_source_set_registration_handler_f", &[(Key::Invoke, 78), source]);
    for at in [50, 60, 6_000_000_000] {
        script.block_runs(1, (at, at + 5), 0xB0);
    }
    let keys = [(Key::Block, 0xC0), (Key::Invoke, 78)];
    script.runs(2, 55, "on_registration", CALLOUT, &keys);
    script.ran(2, 58, CALLOUT, EventKind::Return, &keys);
    let spans = script.play(Finish::Exited);
    let blocks = spans.of(SpanKind::Block);
    let ran: Vec<_> = blocks.iter().filter(|block| block.status == SpanStatus::Matched).collect();
    assert_eq!(
        ran.iter().map(|block| times(block)).collect::<Vec<_>>(),
        [(50, Some(55)), (55, Some(58)), (60, Some(65)), (6_000_000_000, Some(6_000_000_005))]
    );
    for block in ran {
        assert!(!has(block, SpanFlags::ORPHAN) && !has(block, SpanFlags::TIMED_OUT));
        assert_eq!((more(block).queue, more(block).creator.map(|stream| stream.0)), (Some(4), Some(0)));
        assert_eq!((more(block).created, more(block).latency), (None, None), "nobody knows when the event came");
        assert_eq!(block.parent, Some(spans.frame("main").id));
    }
    assert_eq!((spans.get(never).status, spans.get(never).reason), (SpanStatus::Unmatched, Some(Reason::Pending)));
    assert!(!blocks.iter().any(|block| block.id == registered || block.id == function));
}

#[test]
fn a_block_that_is_canceled_before_it_runs_is_canceled() {
    let mut script = Script::default();
    let keys = [(Key::Block, 0xB0), (Key::Invoke, INVOKE)];
    let ran = script.submits(0, 10, "dispatch_async", 0xB0, 1);
    script.executes(1, 20, 0xB0);
    let waiting = script.submits_to_group(30, "dispatch_group_async", 0xB0, 9);
    script.tells(0, 40, "dispatch_block_cancel", &keys);
    script.completes(1, 50, 0xB0);
    let late = script.submits(0, 60, "dispatch_async", 0xB0, 1);
    script.tells(0, 65, "dispatch_block_cancel", &keys);
    // The same address may be another block's afterwards.
    let other = script.submits(0, 70, "dispatch_async", 0xB0, 1);
    script.block_runs(1, (80, 90), 0xB0);
    let spans = script.play(Finish::Exited);
    for (id, expected, status) in [
        (ran, (20, Some(50)), SpanStatus::Matched),
        (waiting, (30, Some(40)), SpanStatus::Canceled),
        (late, (60, Some(65)), SpanStatus::Canceled),
        (other, (80, Some(90)), SpanStatus::Matched),
    ] {
        assert_eq!((times(spans.get(id)), spans.get(id).status), (expected, status));
    }
    assert_eq!(
        (spans.get(waiting).reason, more(spans.get(waiting)).ending),
        (Some(Reason::Canceled), Some(Ending::Canceled))
    );
    assert_eq!(times(spans.one(SpanKind::Group)).1, Some(40), "it leaves its group");
}
