//! The mapping of Swift concurrency, clause by clause.

use codec::{
    EventKind,
    profile::Key,
    span::{Ending, Reason, SpanFlags, SpanId, SpanKind, SpanStatus},
};
use collector_core::spans::Finish;

use crate::script::{Script, Spans, has, more, times};

impl Script {
    pub(crate) fn task(&mut self, stream: u32, at: u64, task: u64, parent: u64) -> SpanId {
        let keys = [(Key::Task, task), (Key::Parent, parent), (Key::Job, 0x100 + task), (Key::Flags, 0)];
        self.tells(stream, at, "swift_task_create", &keys)
    }

    pub(crate) fn job(&mut self, stream: u32, at: u64, task: u64, function: &'static str) -> SpanId {
        let keys = [(Key::Task, task), (Key::Job, 0x100 + task), (Key::Executor, 0)];
        self.runs(stream, at, function, "swift_job_run", &keys)
    }

    pub(crate) fn job_ends(&mut self, stream: u32, at: u64, task: u64) {
        self.ran(stream, at, "swift_job_run", EventKind::Return, &[(Key::Task, task), (Key::Job, 0x100 + task)]);
    }

    pub(crate) fn suspends(&mut self, stream: u32, at: u64, task: u64, continuation: u64) -> SpanId {
        let keys = [(Key::Task, task), (Key::Continuation, continuation)];
        self.tells(stream, at, "swift_continuation_init", &keys)
    }

    pub(crate) fn resumes(&mut self, stream: u32, at: u64, task: u64, continuation: u64) -> SpanId {
        let keys = [(Key::Task, task), (Key::Continuation, continuation)];
        self.tells(stream, at, "swift_continuation_resume", &keys)
    }

    /// A task ends, and then the job that it ends in.
    pub(crate) fn completes_task(&mut self, stream: u32, (end, job_end): (u64, u64), task: u64) {
        self.task_ends(stream, end, task, 0);
        self.job_ends(stream, job_end, task);
    }

    pub(crate) fn task_ends(&mut self, stream: u32, at: u64, task: u64, error: u64) {
        self.tells(stream, at, "swift_task_future_complete", &[(Key::Task, task), (Key::Error, error)]);
    }
}

/// A task that is created at 10, runs from 20 to 30 on one thread and from 60 to 90 on another, and is suspended from 25
/// to 50 in between.
fn suspended() -> (Spans, SpanId) {
    let mut script = Script::default();
    script.call(0, 5, "main");
    let id = script.task(0, 10, 1, 0);
    script.job(1, 20, 1, "body");
    script.suspends(1, 25, 1, 0xC);
    script.job_ends(1, 30, 1);
    script.resumes(0, 50, 1, 0xC);
    script.job(2, 60, 1, "rest");
    script.completes_task(2, (80, 90), 1);
    (script.play(Finish::Exited), id)
}

#[test]
fn a_task_is_a_span_of_its_own_beside_the_frames_of_its_code() {
    let (spans, id) = suspended();
    let task = spans.one(SpanKind::Task);
    assert_eq!((task.id, task.status, times(task)), (id, SpanStatus::Matched, (20, Some(80))));
    assert_eq!((times(spans.frame("body")), times(spans.frame("rest"))), ((20, Some(30)), (60, Some(90))));
    assert_eq!(more(task).latency, Some(10));
}

#[test]
fn every_turn_of_a_task_is_a_job_and_has_its_frame() {
    let (spans, id) = suspended();
    let jobs = spans.of(SpanKind::Job);
    assert_eq!(jobs.iter().map(|job| times(job)).collect::<Vec<_>>(), [(20, Some(30)), (60, Some(90))]);
    assert!(jobs.iter().all(|job| job.parent == Some(id) && job.key() == Some(0x101)));
    for (job, name) in jobs.iter().zip(["body", "rest"]) {
        let frame = spans.frame(name);
        assert_eq!((job.twin, frame.twin), (Some(frame.id), Some(job.id)));
    }
}

#[test]
fn a_job_that_runs_starts_its_task_which_is_named_by_the_function() {
    let mut script = Script::default();
    let id = script.task(0, 10, 1, 0);
    script.job(1, 20, 1, "body");
    let spans = script.play(Finish::Cut);
    let task = spans.get(id);
    assert_eq!((task.status, task.start.0, task.key()), (SpanStatus::Open, 20, Some(1)));
    assert_eq!(spans.name(task), "body");
}

#[test]
fn functions_of_the_runtime_do_not_name_a_task() {
    let mut script = Script::default();
    let id = script.task(0, 10, 1, 0);
    script.job(1, 20, 1, "lib:run_job");
    script.call(1, 22, "lib:more_of_it");
    script.call(1, 24, "async_function");
    script.call(1, 26, "another");
    script.ret(1, 27);
    script.ret(1, 28);
    script.ret(1, 29);
    script.completes_task(1, (30, 40), 1);
    let spans = script.play(Finish::Exited);
    assert_eq!(spans.name(spans.get(id)), "async_function");
    assert_eq!(spans.name(spans.one(SpanKind::Job)), "async_function");
}

/// Where its beginning is as short as a jump, or is not recorded, a part of it is called first.
#[test]
fn a_task_is_named_by_a_function_and_not_by_a_part_of_it() {
    for part in ["$s4main3fooyyYaFTY0_", "$s4main3fooyyYaFTQ12_", "$s4main3fooyyYaFTQ_.7"] {
        let mut script = Script::default();
        for known in ["$s4main3fooyyYaF", "$s4main3fooyyYaFTQ1_", "$s4main3baryyYaF"] {
            script.call(2, 5, known);
            script.ret(2, 6);
        }
        let id = script.task(0, 10, 1, 0);
        script.job(1, 20, 1, "lib:run_job");
        script.call(1, 24, part);
        script.ret(1, 28);
        script.completes_task(1, (30, 40), 1);
        let spans = script.play(Finish::Exited);
        assert_eq!(spans.name(spans.get(id)), "$s4main3fooyyYaF", "{part}");
    }
}

#[test]
fn a_task_that_nothing_names_has_a_placeholder() {
    let mut script = Script::default();
    let id = script.task(0, 10, 1, 0);
    script.job(1, 20, 1, "lib:run_job");
    script.completes_task(1, (30, 40), 1);
    let spans = script.play(Finish::Exited);
    assert_eq!(spans.name(spans.get(id)), "swift_task");
    assert!(has(spans.get(id), SpanFlags::PLACEHOLDER));
}

#[test]
fn a_suspension_is_recorded_with_its_continuation_and_does_not_end_the_task() {
    let mut script = Script::default();
    let id = script.task(0, 10, 1, 0);
    script.job(1, 20, 1, "body");
    let suspension = script.suspends(1, 25, 1, 0xC);
    script.job_ends(1, 30, 1);
    let spans = script.play(Finish::Cut);
    let span = spans.get(suspension);
    assert_eq!((span.kind, span.key(), times(span)), (SpanKind::Suspension, Some(0xC), (25, None)));
    assert_eq!((span.parent, span.status), (Some(id), SpanStatus::Open));
    assert_eq!(spans.get(id).status, SpanStatus::Open);
}

#[test]
fn a_resumption_is_matched_by_its_continuation_and_tells_for_how_long() {
    let (spans, id) = suspended();
    let suspension = spans.one(SpanKind::Suspension);
    assert_eq!((suspension.status, times(suspension)), (SpanStatus::Matched, (25, Some(50))));
    assert_eq!((suspension.substream.0, more(suspension).resumer.map(|stream| stream.0)), (1, Some(0)));
    assert_eq!(more(suspension).resumed_by, Some(spans.frame("swift_continuation_resume").id));
    let jobs = spans.of(SpanKind::Job);
    assert!(
        jobs.len() == 2 && jobs.iter().all(|job| job.substream.0 == 1 && more(job).executor == Some(0)),
        "{jobs:?}"
    );
    let task = more(spans.get(id));
    assert_eq!((task.suspended, task.suspensions), (25, 1));
    assert_eq!(more(suspension).end_stream.map(|stream| stream.0), Some(0));
}

#[test]
fn every_form_of_resumption_resumes() {
    for function in
        ["swift_continuation_resume", "swift_continuation_throwingResume", "swift_continuation_throwingResumeWithError"]
    {
        let mut script = Script::default();
        script.suspends(1, 25, 1, 0xC);
        script.tells(0, 50, function, &[(Key::Continuation, 0xC)]);
        assert_eq!(times(script.play(Finish::Exited).one(SpanKind::Suspension)), (25, Some(50)), "{function}");
    }
}

#[test]
fn a_task_ends_with_its_completion() {
    let (spans, id) = suspended();
    let task = spans.get(id);
    let more = more(task);
    assert_eq!((task.duration(), more.ending, more.result), (Some(60), Some(Ending::Returned), None));
    assert_eq!(more.end_stream.map(|stream| stream.0), Some(2));
}

#[test]
fn a_task_may_end_with_an_error() {
    let mut script = Script::default();
    let id = script.task(0, 10, 1, 0);
    script.job(1, 20, 1, "body");
    script.task_ends(1, 30, 1, 0xE);
    script.job_ends(1, 40, 1);
    let spans = script.play(Finish::Exited);
    let more = more(spans.get(id));
    assert_eq!((more.ending, more.result), (Some(Ending::Failed), Some(0xE)));
}

#[test]
fn a_task_keeps_its_id_on_every_thread_that_it_runs_on() {
    let (spans, id) = suspended();
    let task = spans.get(id);
    let threads: Vec<_> = more(task).threads.iter().map(|stream| stream.0).collect();
    assert_eq!((spans.of(SpanKind::Task).len(), threads), (1, vec![1, 2]));
    assert!(has(task, SpanFlags::CROSS_THREAD));
    let jobs: Vec<_> = spans.of(SpanKind::Job).into_iter().map(|job| job.stream.0).collect();
    assert_eq!(jobs, [1, 2], "the timeline of the task");
}

#[test]
fn a_task_that_creates_others_is_their_parent() {
    let mut script = Script::default();
    let outer = script.task(0, 10, 1, 0);
    script.job(1, 20, 1, "body");
    let by_key = script.task(1, 22, 2, 1);
    let by_thread = script.task(1, 24, 3, 0);
    for task in [2, 3] {
        script.job(2, 30 * task, task, "child");
        script.completes_task(2, (30 * task + 10, 30 * task + 12), task);
    }
    script.completes_task(1, (200, 210), 1);
    let spans = script.play(Finish::Exited);
    for child in [by_key, by_thread] {
        let span = spans.get(child);
        assert_eq!((span.parent, span.more.as_ref().map(|more| more.level)), (Some(outer), Some(1)));
        assert!(!has(span, SpanFlags::OUTSIDE_PARENT));
    }
    assert_ne!(spans.get(by_key).key(), spans.get(by_thread).key());
}

#[test]
fn a_task_may_suspend_many_times_and_all_times_are_summed() {
    let mut script = Script::default();
    let id = script.task(0, 10, 1, 0);
    for round in 0..3 {
        let at = 100 * (round + 1);
        script.job(1, at, 1, "body");
        script.suspends(1, at + 10, 1, 0xC0 + round);
        script.job_ends(1, at + 20, 1);
        script.resumes(0, at + 30 + round, 1, 0xC0 + round);
    }
    script.job(1, 500, 1, "body");
    script.completes_task(1, (510, 520), 1);
    let spans = script.play(Finish::Exited);
    let suspensions = spans.of(SpanKind::Suspension);
    assert_eq!(suspensions.iter().map(|span| span.key()).collect::<Vec<_>>(), [Some(0xC0), Some(0xC1), Some(0xC2)]);
    let sum: u64 = suspensions.iter().filter_map(|span| span.duration()).sum();
    let more = more(spans.get(id));
    assert_eq!((more.suspended, more.suspensions, sum), (63, 3, 63));
}

#[test]
fn waiting_for_another_task_is_a_suspension_if_it_takes_another_turn() {
    let mut script = Script::default();
    let id = script.task(0, 10, 1, 0);
    script.job(1, 20, 1, "body");
    script.tells(1, 25, "swift_task_future_wait", &[(Key::Task, 1), (Key::Job, 0x102)]);
    script.job_ends(1, 30, 1);
    script.tells(2, 40, "swift_task_enqueue", &[(Key::Task, 1), (Key::Job, 0x101)]);
    script.job(1, 50, 1, "body");
    // This one is there already: the task goes on.
    script.tells(1, 55, "swift_task_future_wait", &[(Key::Task, 1), (Key::Job, 0x103)]);
    script.completes_task(1, (60, 70), 1);
    let spans = script.play(Finish::Exited);
    let suspension = spans.one(SpanKind::Suspension);
    assert_eq!((times(suspension), suspension.key(), suspension.parent), ((25, Some(50)), Some(0x102), Some(id)));
    assert_eq!(spans.get(id).more.as_ref().map(|more| more.suspended), Some(25));
}

#[test]
fn a_task_that_waits_at_the_end_is_suspended_at_the_end() {
    let mut script = Script::default();
    script.task(0, 10, 1, 0);
    script.job(1, 20, 1, "body");
    script.tells(1, 25, "swift_task_future_wait", &[(Key::Task, 1), (Key::Job, 0x102)]);
    script.job_ends(1, 30, 1);
    let spans = script.play(Finish::Exited);
    let suspension = spans.one(SpanKind::Suspension);
    assert_eq!((suspension.status, suspension.reason), (SpanStatus::Unmatched, Some(Reason::ProcessExit)));
}

#[test]
fn cancellation_closes_a_task_with_its_partial_time_and_what_it_waits_for() {
    let mut script = Script::default();
    let id = script.task(0, 10, 1, 0);
    script.job(1, 20, 1, "body");
    let suspension = script.suspends(1, 25, 1, 0xC);
    script.job_ends(1, 30, 1);
    script.tells(0, 40, "swift_task_cancel", &[(Key::Task, 1)]);
    let spans = script.play(Finish::Exited);
    let task = spans.get(id);
    assert_eq!((task.status, task.reason, times(task)), (SpanStatus::Canceled, Some(Reason::Canceled), (20, Some(40))));
    assert_eq!(task.more.as_ref().map(|more| (more.suspended, more.ending)), Some((15, Some(Ending::Canceled))));
    let suspension = spans.get(suspension);
    assert_eq!((suspension.status, times(suspension)), (SpanStatus::Canceled, (25, Some(40))));
}

#[test]
fn what_a_canceled_task_still_does_lies_outside_of_it() {
    let mut script = Script::default();
    let id = script.task(0, 10, 1, 0);
    script.tells(0, 15, "swift_task_cancel", &[(Key::Task, 1)]);
    let job = script.job(1, 20, 1, "body");
    script.completes_task(1, (25, 30), 1);
    let spans = script.play(Finish::Exited);
    assert_eq!(spans.of(SpanKind::Task).len(), 1);
    assert_eq!(spans.get(job).parent, Some(id));
    assert!(has(spans.get(job), SpanFlags::OUTSIDE_PARENT));
}

#[test]
fn without_the_symbols_of_the_runtime_there_are_frames_only() {
    let mut script = Script::default();
    script.call(1, 20, "body");
    script.call(1, 22, "async_function");
    script.ret(1, 28);
    script.ret(1, 30);
    let spans = script.play(Finish::Exited);
    assert!(spans.all.iter().all(|span| span.kind == SpanKind::Frame && span.status == SpanStatus::Matched));
    assert_eq!(spans.all.len(), 2);
}

#[test]
fn a_resumption_of_what_nobody_saw_suspended_is_kept_and_counted() {
    let mut script = Script::default();
    let resume = script.resumes(0, 50, 1, 0xBAD);
    let spans = script.play(Finish::Exited);
    let orphan = spans.get(resume);
    assert_eq!((orphan.status, orphan.reason), (SpanStatus::Unmatched, Some(Reason::Orphan)));
    assert!(has(orphan, SpanFlags::ORPHAN));
    assert_eq!(orphan.key(), Some(0xBAD));
    assert_eq!(spans.counts.orphans, 1, "what the warning counts");
}

#[test]
fn a_task_that_was_created_before_the_trace_is_an_orphan() {
    let mut script = Script::default();
    script.job(1, 20, 1, "body");
    script.completes_task(1, (25, 30), 1);
    let spans = script.play(Finish::Exited);
    let task = spans.one(SpanKind::Task);
    assert!(has(task, SpanFlags::ORPHAN));
    assert_eq!((times(task), spans.name(task)), ((20, Some(25)), "body"));
}

#[test]
fn a_job_whose_start_was_lost_is_known_from_its_end() {
    let mut script = Script::default();
    let id = script.task(0, 10, 1, 0);
    script.lose(1, |script| {
        script.job(1, 20, 1, "body");
    });
    script.job_ends(1, 30, 1);
    let spans = script.play(Finish::Exited);
    let job = spans.one(SpanKind::Job);
    assert_eq!((times(job), job.parent), ((20, Some(30)), Some(id)));
    assert!(has(job, SpanFlags::NO_CALL));
    assert_eq!(spans.get(id).start.0, 20);
}

#[test]
fn a_task_whose_end_was_lost_says_so() {
    let mut script = Script::default();
    let id = script.task(0, 10, 1, 0);
    script.job(1, 20, 1, "body");
    script.lose(1, |script| {
        script.completes_task(1, (25, 30), 1);
    });
    script.call(1, 50, "next");
    script.ret(1, 60);
    let spans = script.play(Finish::Exited);
    for span in [spans.get(id), spans.one(SpanKind::Job), spans.frame("body")] {
        assert_eq!((span.status, span.reason), (SpanStatus::Unmatched, Some(Reason::Gap)), "{span:#?}");
    }
}

#[test]
fn a_task_that_yields_is_suspended_until_the_job_runs_that_resumes_it() {
    let mut script = Script::default();
    let id = script.task(0, 10, 1, 0);
    script.job(1, 20, 1, "body");
    let suspension = script.suspends(1, 25, 1, 0xC);
    // A job that is no task, and will resume this one.
    script.tells(1, 27, "swift_task_enqueueGlobal", &[(Key::Job, 0x77)]);
    script.tells(1, 29, "swift_continuation_await", &[(Key::Task, 1), (Key::Continuation, 0xC)]);
    script.job_ends(1, 30, 1);
    script.runs(2, 40, "lib:helper", "swift_job_run", &[(Key::Job, 0x77)]);
    script.tells(2, 45, "swift_task_enqueue", &[(Key::Task, 1), (Key::Job, 0x101)]);
    script.ran(2, 48, "swift_job_run", EventKind::Return, &[(Key::Job, 0x77)]);
    script.job(1, 60, 1, "rest");
    // One that waits for somebody is not resumed by another job.
    let other = script.suspends(1, 65, 1, 0xC);
    script.runs(2, 67, "lib:helper", "swift_job_run", &[(Key::Job, 0x77)]);
    script.ran(2, 68, "swift_job_run", EventKind::Return, &[(Key::Job, 0x77)]);
    script.resumes(0, 70, 1, 0xC);
    script.completes_task(1, (80, 90), 1);
    let spans = script.play(Finish::Exited);
    let suspensions = [suspension, other].map(|id| (times(spans.get(id)), spans.get(id).status));
    assert_eq!(suspensions, [((25, Some(40)), SpanStatus::Matched), ((65, Some(70)), SpanStatus::Matched)]);
    assert_eq!((more(spans.get(id)).suspensions, more(spans.get(id)).suspended), (2, 20));
}

#[test]
fn what_a_canceled_task_slept_on_is_resumed_by_the_cancellation() {
    let mut script = Script::default();
    script.task(0, 10, 1, 0);
    script.job(1, 20, 1, "body");
    script.suspends(1, 25, 1, 0xC);
    script.job_ends(1, 30, 1);
    script.tells(0, 40, "swift_task_cancel", &[(Key::Task, 1)]);
    script.resumes(0, 42, 1, 0xC);
    script.job(1, 50, 1, "rest");
    // The same address, by another task.
    script.completes_task(1, (55, 60), 1);
    script.resumes(0, 70, 2, 0xC);
    let spans = script.play(Finish::Exited);
    let suspensions = spans.of(SpanKind::Suspension);
    let statuses: Vec<_> = suspensions.iter().map(|span| (times(span), span.status, span.reason)).collect();
    assert_eq!(
        statuses,
        [
            ((25, Some(40)), SpanStatus::Canceled, Some(Reason::Canceled)),
            ((70, Some(70)), SpanStatus::Unmatched, Some(Reason::Orphan)),
        ]
    );
    assert_eq!(spans.counts.orphans, 1, "only what nobody saw suspended");
}

#[test]
fn children_are_canceled_with_their_parent_and_with_their_group() {
    const CHILD: u64 = 0x3100;
    let child = |script: &mut Script, at: u64, task: u64, parent: u64, group: Option<u64>| {
        let job = (Key::Job, 0x100 + task);
        if let Some(group) = group {
            script.tells(1, at, "swift_taskGroup_attachChild", &[(Key::Task, parent), (Key::Group, group), job]);
        }
        let flags = (Key::Flags, if group.is_some() { CHILD } else { 0x1000 });
        script.tells(1, at + 1, "swift_task_create", &[(Key::Task, task), (Key::Parent, parent), job, flags])
    };
    let mut script = Script::default();
    let parent = script.task(0, 10, 1, 0);
    script.job(1, 20, 1, "body");
    let [in_group, in_other] =
        [(2, 0xA), (3, 0xB)].map(|(task, group)| child(&mut script, 10 + 10 * task, task, 1, Some(group)));
    script.tells(1, 50, "swift_asyncLet_begin", &[(Key::Task, 1)]);
    let of_let = child(&mut script, 55, 4, 1, None);
    let grandchild = {
        script.tells(1, 60, "swift_asyncLet_begin", &[(Key::Task, 4)]);
        child(&mut script, 62, 5, 4, None)
    };
    let on_its_own = child(&mut script, 65, 6, 1, None);
    script.tells(1, 70, "swift_taskGroup_cancelAll", &[(Key::Task, 1), (Key::Group, 0xA)]);
    script.task_ends(1, 75, 3, 0);
    script.tells(0, 80, "swift_task_cancel", &[(Key::Task, 1)]);
    // Who is canceled has canceled children from the start.
    let late = child(&mut script, 90, 7, 1, Some(0xA));
    let spans = script.play(Finish::Exited);
    let ends = [in_group, in_other, parent, of_let, grandchild, late, on_its_own]
        .map(|id| (spans.get(id).status, spans.get(id).end.map(|end| end.0)));
    let canceled = |at| (SpanStatus::Canceled, Some(at));
    let expected = [canceled(70), (SpanStatus::Matched, Some(75)), canceled(80), canceled(80), canceled(80)];
    assert_eq!(ends[..5], expected);
    assert_eq!(ends[5..], [canceled(91), (SpanStatus::Unmatched, None)]);
}

#[test]
fn a_wait_begins_where_the_task_was_and_is_named_by_what_it_waits_for() {
    for (function, key) in [
        ("swift_task_future_wait", Key::Job),
        ("swift_task_future_wait_throwing", Key::Job),
        ("swift_taskGroup_wait_next_throwing", Key::Group),
        ("swift_taskGroup_waitAll", Key::Group),
        ("swift_asyncLet_get", Key::Job),
        // An actor that is busy.
        ("swift_task_switch", Key::Executor),
    ] {
        let mut script = Script::default();
        let id = script.task(0, 10, 1, 0);
        script.job(1, 20, 1, "body");
        // These were not waited for: the task went on in the same turn.
        script.tells(1, 22, "swift_task_switch", &[(Key::Task, 1), (Key::Executor, 7)]);
        script.tells(1, 25, function, &[(Key::Task, 1), (key, 0x99)]);
        // The thread runs another task before it leaves what the first one ran in.
        script.job(1, 30, 2, "another");
        script.job(2, 50, 1, "rest");
        script.completes_task(2, (60, 65), 1);
        script.completes_task(1, (70, 75), 2);
        script.job_ends(1, 80, 1);
        let spans = script.play(Finish::Exited);
        let wait = spans.one(SpanKind::Suspension);
        assert_eq!((spans.name(wait), wait.key(), times(wait)), (function, Some(0x99), (25, Some(50))));
        assert_eq!((wait.stream.0, more(wait).end_stream.map(|stream| stream.0)), (1, Some(2)), "{function}");
        assert_eq!(more(wait).threads.iter().map(|stream| stream.0).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((wait.parent, more(spans.get(id)).suspended), (Some(id), 25), "{function}");
    }
}

/// A task that gives itself to another executor may run there before the thread has left its last turn.
#[test]
fn a_turn_that_ends_late_suspends_nobody() {
    let mut script = Script::default();
    let id = script.task(0, 10, 1, 0);
    script.job(1, 20, 1, "body");
    script.tells(1, 25, "swift_task_switch", &[(Key::Task, 1), (Key::Executor, 7)]);
    script.job(2, 30, 1, "rest");
    // It is where it wants to be, and goes on.
    script.tells(2, 35, "swift_task_switch", &[(Key::Task, 1), (Key::Executor, 7)]);
    script.job_ends(1, 40, 1);
    script.call(2, 45, "exit");
    let spans = script.play(Finish::Exited);
    let wait = spans.one(SpanKind::Suspension);
    assert_eq!((times(wait), wait.status, wait.parent), ((25, Some(30)), SpanStatus::Matched, Some(id)));
}
