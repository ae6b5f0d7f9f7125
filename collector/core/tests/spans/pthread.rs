//! The mapping of POSIX threads, clause by clause.

use codec::{
    EventKind, StreamId,
    profile::Key,
    span::{Ending, Reason, SpanFlags, SpanId, SpanKind, SpanStatus},
};
use collector_core::spans::Finish;

use crate::script::{Script, Step, has, more, times};

const HANDLE: u64 = 0x7F00;

impl Script {
    /// `pthread_create`, up to where it returns.
    pub(crate) fn creates(
        &mut self,
        stream: u32,
        at: u64,
        routine: &'static str,
        argument: u64,
        detached: bool,
    ) -> SpanId {
        let routine = self.functions.address(routine);
        let keys = [(Key::StartRoutine, routine), (Key::Argument, argument), (Key::Detached, detached.into())];
        self.call(stream, at, "pthread_create");
        self.runtime(stream, at, "pthread_create", &keys)
    }

    /// It returns.
    pub(crate) fn created(&mut self, stream: u32, at: u64, handle: u64) {
        self.ran(stream, at, "pthread_create", EventKind::Return, &[(Key::Result, 0), (Key::Pthread, handle)]);
    }

    /// A thread enters its start routine.
    pub(crate) fn starts(&mut self, stream: u32, at: u64, routine: &'static str, argument: u64, handle: u64) -> SpanId {
        let address = self.functions.address(routine);
        let keys = [(Key::Pthread, handle), (Key::StartRoutine, address), (Key::Argument, argument)];
        self.runs(stream, at, routine, "pthread_start_routine", &keys)
    }

    /// It returns from there.
    pub(crate) fn ends(&mut self, stream: u32, at: u64, handle: u64, value: u64) {
        let keys = [(Key::Pthread, handle), (Key::ExitValue, value)];
        self.ran(stream, at, "pthread_start_routine", EventKind::Return, &keys);
    }

    pub(crate) fn joins(&mut self, stream: u32, times: (u64, u64), handle: u64, value: u64) {
        let left = [(Key::Result, 0), (Key::Pthread, handle), (Key::ExitValue, value)];
        self.tells_both(stream, times, "pthread_join", &[(Key::Pthread, handle)], &left);
    }
}

/// A thread that is created at 20 and starts at 50.
fn created() -> (Script, SpanId) {
    let mut script = Script::default();
    script.call(0, 10, "main");
    let id = script.creates(0, 20, "worker", 7, false);
    script.created(0, 40, HANDLE);
    script.starts(1, 50, "worker", 7, HANDLE);
    (script, id)
}

#[test]
fn the_life_of_a_thread_is_a_span_from_its_start_to_its_end() {
    let (mut script, id) = created();
    script.call(1, 60, "work");
    script.ret(1, 70);
    script.ends(1, 90, HANDLE, 3);
    let spans = script.play(Finish::Exited);
    let thread = spans.one(SpanKind::Thread);
    assert_eq!((thread.id, times(thread), thread.status), (id, (50, Some(90)), SpanStatus::Matched));
    assert_eq!((thread.stream.0, spans.name(thread)), (1, "worker"));
    assert_eq!(spans.frame("work").parent, Some(spans.frame("worker").id), "frames tell the rest");
}

#[test]
fn a_thread_that_is_created_is_recorded_with_its_creator_handle_routine_and_time() {
    let mut script = Script::default();
    script.call(0, 10, "main");
    let id = script.creates(0, 20, "worker", 7, false);
    script.created(0, 40, HANDLE);
    let spans = script.play(Finish::Cut);
    let thread = spans.one(SpanKind::Thread);
    let more = more(thread);
    assert_eq!((thread.id, thread.status, thread.end), (id, SpanStatus::Open, None), "it has not run yet");
    assert_eq!((more.created.map(|at| at.0), more.creator.map(|stream| stream.0)), (Some(20), Some(0)));
    assert_eq!((more.key, more.argument), (Some(HANDLE), Some(7)));
    let routine = script.functions.address("worker");
    assert_eq!(thread.what, codec::span::What::Address(routine));
    assert_eq!(more.origin, Some(spans.frame("pthread_create").id));
    assert_eq!(thread.parent, Some(spans.frame("main").id));
}

#[test]
fn a_thread_that_cannot_be_created_is_no_span() {
    let mut script = Script::default();
    script.creates(0, 20, "worker", 7, false);
    script.ran(0, 40, "pthread_create", EventKind::Return, &[(Key::Result, 11)]);
    assert!(script.play(Finish::Exited).of(SpanKind::Thread).is_empty());
}

#[test]
fn the_entry_of_a_start_routine_belongs_to_the_creation_and_tells_the_latency() {
    let (mut script, id) = created();
    script.ends(1, 90, HANDLE, 3);
    let spans = script.play(Finish::Exited);
    let more = more(spans.get(id));
    assert_eq!(more.latency, Some(30));
    assert_eq!((more.key, more.threads.len()), (Some(HANDLE), 1));
    assert!(has(spans.get(id), SpanFlags::CROSS_THREAD));
}

#[test]
fn a_thread_may_start_before_its_creator_knows_its_handle() {
    let mut script = Script::default();
    let first = script.creates(0, 20, "worker", 7, false);
    script.starts(1, 30, "worker", 7, HANDLE);
    script.created(0, 40, HANDLE);
    script.ends(1, 50, HANDLE, 0);
    let spans = script.play(Finish::Exited);
    let thread = spans.one(SpanKind::Thread);
    assert_eq!((thread.id, times(thread)), (first, (30, Some(50))));
    assert_eq!(more(thread).latency, Some(10));
    assert!(!has(thread, SpanFlags::UNCERTAIN));
}

#[test]
fn a_return_of_the_start_routine_ends_the_thread_with_its_value() {
    let (mut script, id) = created();
    script.ends(1, 90, HANDLE, 3);
    let spans = script.play(Finish::Exited);
    let thread = spans.get(id);
    let more = more(thread);
    assert_eq!((thread.duration(), more.ending, more.result), (Some(40), Some(Ending::Returned), Some(3)));
}

#[test]
fn pthread_exit_ends_the_thread_before_its_routine_returns() {
    let (mut script, id) = created();
    script.call(1, 60, "work");
    script.call(1, 70, "pthread_exit");
    script.runtime(1, 70, "pthread_exit", &[(Key::Pthread, HANDLE), (Key::ExitValue, 9)]);
    script.unwind(1, 80);
    script.unwind(1, 80);
    script.ran(1, 80, "pthread_start_routine", EventKind::Exception, &[(Key::Pthread, HANDLE)]);
    let spans = script.play(Finish::Exited);
    let thread = spans.get(id);
    let more = more(thread);
    assert_eq!((thread.status, times(thread)), (SpanStatus::Matched, (50, Some(70))));
    assert_eq!((more.ending, more.result), (Some(Ending::Exited), Some(9)));
    assert_eq!(spans.of(SpanKind::Thread).len(), 1);
    assert_eq!(spans.frame("work").reason, Some(Reason::ThreadExit));
}

#[test]
fn a_thread_is_joinable_or_detached() {
    let mut script = Script::default();
    let attribute = script.creates(0, 10, "a", 1, true);
    script.created(0, 11, 1);
    let later = script.creates(0, 20, "b", 2, false);
    script.created(0, 21, 2);
    let joinable = script.creates(0, 30, "c", 3, false);
    script.created(0, 31, 3);
    script.tells_both(0, (40, 41), "pthread_detach", &[(Key::Pthread, 2)], &[(Key::Result, 0), (Key::Pthread, 2)]);
    for (stream, name, handle) in [(1, "a", 1), (2, "b", 2), (3, "c", 3)] {
        script.starts(stream, 50, name, handle, handle);
        script.ends(stream, 60, handle, 0);
    }
    let spans = script.play(Finish::Exited);
    let detached = |id| has(spans.get(id), SpanFlags::DETACHED);
    assert_eq!((detached(attribute), detached(later), detached(joinable)), (true, true, false));
}

#[test]
fn a_join_is_recorded_with_the_time_that_its_caller_waited() {
    let (mut script, id) = created();
    script.call(0, 60, "pthread_join");
    script.runtime(0, 60, "pthread_join", &[(Key::Pthread, HANDLE)]);
    script.ends(1, 90, HANDLE, 3);
    let left = [(Key::Result, 0), (Key::Pthread, HANDLE), (Key::ExitValue, 3)];
    script.ran(0, 95, "pthread_join", EventKind::Return, &left);
    let spans = script.play(Finish::Exited);
    let more = more(spans.get(id));
    assert!(has(spans.get(id), SpanFlags::JOINED));
    assert_eq!((more.joiner.map(|stream| stream.0), more.join_latency), (Some(0), Some(35)));
    assert_eq!(times(spans.get(id)), (50, Some(90)), "the join does not change its life");
}

#[test]
fn a_join_that_fails_joins_nothing() {
    let (mut script, id) = created();
    script.tells_both(0, (55, 56), "pthread_join", &[(Key::Pthread, HANDLE)], &[(Key::Result, 22)]);
    script.ends(1, 90, HANDLE, 3);
    let spans = script.play(Finish::Exited);
    assert!(!has(spans.get(id), SpanFlags::JOINED));
    assert_eq!(times(spans.get(id)), (50, Some(90)));
}

fn cancel(script: &mut Script) {
    let left = [(Key::Result, 0), (Key::Pthread, HANDLE)];
    script.tells_both(0, (60, 61), "pthread_cancel", &[(Key::Pthread, HANDLE)], &left);
}

#[test]
fn a_canceled_thread_is_closed_as_canceled() {
    let (mut script, id) = created();
    cancel(&mut script);
    script.ran(1, 80, "pthread_start_routine", EventKind::Exception, &[(Key::Pthread, HANDLE)]);
    let spans = script.play(Finish::Exited);
    let thread = spans.get(id);
    assert_eq!((thread.status, thread.reason), (SpanStatus::Canceled, Some(Reason::Canceled)));
    assert_eq!(thread.end.map(|end| end.0), Some(80));
    assert_eq!(more(thread).ending, Some(Ending::Canceled));
}

#[test]
fn a_cancellation_that_comes_too_late_changes_nothing() {
    let (mut script, id) = created();
    cancel(&mut script);
    script.ends(1, 80, HANDLE, 3);
    let spans = script.play(Finish::Exited);
    assert_eq!(spans.get(id).status, SpanStatus::Matched);
}

#[test]
fn a_canceled_thread_whose_unwinding_nobody_saw_is_canceled_all_the_same() {
    let (mut script, id) = created();
    cancel(&mut script);
    let spans = script.play(Finish::Exited);
    assert_eq!(spans.get(id).status, SpanStatus::Canceled);
    // Whoever joins it learns when it was gone at the latest.
    script.joins(0, (70, 90), HANDLE, u64::MAX);
    let spans = script.play(Finish::Exited);
    assert_eq!((spans.get(id).status, times(spans.get(id))), (SpanStatus::Canceled, (50, Some(90))));
    assert!(has(spans.get(id), SpanFlags::JOINED));
}

#[test]
fn a_thread_whose_routine_is_not_hooked_has_a_placeholder() {
    let mut script = Script::default();
    let joined = script.creates(0, 20, "hidden", 7, false);
    script.created(0, 40, HANDLE);
    script.joins(0, (50, 90), HANDLE, 1);
    let left = script.creates(0, 100, "hidden", 8, true);
    script.created(0, 110, 0x7F01);
    script.steps.push(Step::Thread { stream: 5, start: 105, end: Some(130), creator: Some(0) });
    let spans = script.play(Finish::Exited);
    for (id, expected) in [(joined, (20, Some(90))), (left, (105, Some(130)))] {
        let thread = spans.get(id);
        assert!(has(thread, SpanFlags::PLACEHOLDER));
        assert_eq!((spans.name(thread), times(thread)), ("pthread_start_routine", expected));
    }
    assert!(has(spans.get(left), SpanFlags::UNCERTAIN), "which thread it is was guessed by time");
    assert_eq!(spans.get(left).stream.0, 5);
}

/// A thread whose start routine is not hooked says that it has started, and calls something.
fn unhooked(script: &mut Script, stream: u32, at: u64, argument: u64, handle: u64) {
    let routine = script.functions.address("hidden");
    let keys = [(Key::Pthread, handle), (Key::StartRoutine, routine), (Key::Argument, argument)];
    script.call(stream, at, "lib:start_thread");
    script.runtime(stream, at, "pthread_started", &keys);
    script.call(stream, at + 5, "work");
    script.ret(stream, at + 10);
}

#[test]
fn a_thread_whose_routine_is_not_hooked_is_known_by_its_first_and_its_last_event() {
    let mut script = Script::default();
    let early = script.creates(0, 20, "hidden", 7, false);
    // It may start before its creator knows its handle.
    unhooked(&mut script, 1, 30, 7, HANDLE);
    script.created(0, 50, HANDLE);
    script.joins(0, (60, 90), HANDLE, 1);
    let canceled = script.creates(0, 100, "hidden", 8, false);
    script.created(0, 110, HANDLE);
    unhooked(&mut script, 2, 120, 8, HANDLE);
    script.tells(0, 140, "pthread_cancel", &[(Key::Pthread, HANDLE)]);
    script.joins(0, (150, 190), HANDLE, u64::MAX);
    let spans = script.play(Finish::Exited);
    let routine = script.functions.address("hidden");
    for (id, stream, expected, latency, status) in
        [(early, 1, (30, Some(40)), 10, SpanStatus::Matched), (canceled, 2, (120, Some(130)), 20, SpanStatus::Canceled)]
    {
        let thread = spans.get(id);
        assert_eq!((thread.what.clone(), thread.stream.0), (codec::span::What::Address(routine), stream));
        assert_eq!((times(thread), thread.status), (expected, status));
        assert_eq!((more(thread).latency, &more(thread).threads), (Some(latency), &vec![StreamId(stream)]));
        assert!(has(thread, SpanFlags::PLACEHOLDER) && has(thread, SpanFlags::JOINED));
        assert!(!has(thread, SpanFlags::UNCERTAIN) && thread.twin.is_none());
    }
}

#[test]
fn the_handle_of_a_thread_that_nobody_joins_is_used_again() {
    let mut script = Script::default();
    let mut ids = Vec::new();
    for (turn, stream) in (0..).zip(1..=3) {
        let at = 100 * turn;
        ids.push(script.creates(0, at + 20, "hidden", turn, true));
        script.created(0, at + 30, HANDLE);
        unhooked(&mut script, stream, at + 40, turn, HANDLE);
    }
    script.steps.push(Step::Thread { stream: 3, start: 240, end: Some(300), creator: Some(0) });
    script.call(0, 1_000_000_000, "much_later");
    let spans = script.play(Finish::Exited);
    for (id, at) in ids.iter().zip([40, 140, 240]) {
        assert_eq!((spans.get(*id).status, times(spans.get(*id))), (SpanStatus::Matched, (at, Some(at + 10))));
    }
}

#[test]
fn a_routine_that_is_seen_after_all_is_the_threads_own() {
    let mut script = Script::default();
    let id = script.creates(0, 20, "worker", 7, false);
    script.created(0, 30, HANDLE);
    let keys = [(Key::Pthread, HANDLE), (Key::StartRoutine, 99), (Key::Argument, 1)];
    script.runtime(1, 40, "pthread_started", &keys);
    script.starts(1, 50, "worker", 7, HANDLE);
    script.ends(1, 90, HANDLE, 3);
    let spans = script.play(Finish::Exited);
    let thread = spans.one(SpanKind::Thread);
    assert_eq!((thread.id, spans.name(thread), times(thread)), (id, "worker", (50, Some(90))));
    assert!(!has(thread, SpanFlags::PLACEHOLDER) && thread.twin == Some(spans.frame("worker").id));
}

#[test]
fn a_join_counts_however_late_it_comes_and_whatever_it_is_called() {
    const LATER: u64 = 60_000_000_000;
    for join in ["pthread_join", "pthread_timedjoin_np", "pthread_clockjoin_np", "pthread_tryjoin_np"] {
        let (mut script, id) = created();
        script.ends(1, 90, HANDLE, 3);
        let keys = [(Key::Pthread, HANDLE)];
        script.tells_both(0, (100, 110), join, &keys, &[(Key::Pthread, HANDLE), (Key::Result, 110)]);
        script.steps.push(Step::Settle(LATER));
        let done = [(Key::Pthread, HANDLE), (Key::Result, 0), (Key::ExitValue, 3)];
        script.tells_both(0, (LATER, LATER + 10), join, &keys, &done);
        let spans = script.play(Finish::Exited);
        let thread = spans.get(id);
        assert!(has(thread, SpanFlags::JOINED), "{join}");
        assert_eq!((times(thread), more(thread).join_latency), ((50, Some(90)), Some(10)), "{join}");
        assert!(spans.notices.iter().any(|notice| notice.id == id), "who looks on learns of it before");
    }
}

#[test]
fn a_thread_that_ends_unseen_ends_when_the_agent_says_so() {
    let (mut script, id) = created();
    script.steps.push(Step::Thread { stream: 1, start: 45, end: Some(75), creator: Some(0) });
    let thread = script.play(Finish::Exited).get(id).clone();
    assert_eq!((thread.reason, times(&thread)), (Some(Reason::ProcessExit), (50, None)), "it went with the process");
    script.call(0, 1_000_000_000, "much_later");
    let thread = script.play(Finish::Exited).get(id).clone();
    assert_eq!((thread.reason, times(&thread)), (Some(Reason::ThreadExit), (50, Some(75))));
}

#[test]
fn a_thread_that_creates_another_is_its_parent() {
    let (mut script, id) = created();
    let child = script.creates(1, 60, "grandchild", 1, false);
    script.created(1, 65, 2);
    script.starts(2, 70, "grandchild", 1, 2);
    script.ends(2, 80, 2, 0);
    script.ends(1, 90, HANDLE, 3);
    let spans = script.play(Finish::Exited);
    let levels = |id| spans.get(id).more.as_ref().map(|more| more.level);
    assert_eq!((spans.get(child).parent, levels(id), levels(child)), (Some(id), Some(0), Some(1)));
    assert_eq!(more(spans.get(child)).creator.map(|stream| stream.0), Some(1));
    assert!(!has(spans.get(child), SpanFlags::OUTSIDE_PARENT));
}

#[test]
fn a_thread_that_outlives_its_parent_says_so() {
    let (mut script, _) = created();
    let child = script.creates(1, 60, "grandchild", 1, false);
    script.created(1, 65, 2);
    script.ends(1, 66, HANDLE, 3);
    script.starts(2, 70, "grandchild", 1, 2);
    script.ends(2, 80, 2, 0);
    assert!(has(script.play(Finish::Exited).get(child), SpanFlags::OUTSIDE_PARENT));
}

#[test]
fn handles_that_are_used_again_are_told_apart_by_time() {
    let mut script = Script::default();
    let mut ids = Vec::new();
    for (stream, at) in [(1, 100), (2, 200), (3, 300)] {
        let id = script.creates(0, at, "worker", 7, false);
        script.created(0, at + 10, HANDLE);
        script.starts(stream, at + 20, "worker", 7, HANDLE);
        script.ends(stream, at + 30, HANDLE, at);
        script.joins(0, (at + 15, at + 40), HANDLE, at);
        ids.push((id, stream, at));
    }
    // As written down the join lies before the end; the order of time decides.
    let spans = script.play(Finish::Exited);
    assert_eq!(spans.of(SpanKind::Thread).len(), 3);
    for (id, stream, at) in ids {
        let thread = spans.get(id);
        assert_eq!((thread.stream.0, times(thread)), (stream, (at + 20, Some(at + 30))));
        assert!(has(thread, SpanFlags::JOINED) && !has(thread, SpanFlags::UNCERTAIN));
        assert_eq!(more(thread).result, Some(at));
    }
}

#[test]
fn two_creations_that_look_the_same_are_uncertain() {
    let mut script = Script::default();
    script.creates(0, 10, "worker", 7, false);
    script.creates(1, 11, "worker", 7, false);
    script.starts(2, 20, "worker", 7, 0xA);
    script.starts(3, 21, "worker", 7, 0xB);
    script.created(0, 30, 0xB);
    script.created(1, 31, 0xA);
    script.ends(2, 40, 0xA, 0);
    script.ends(3, 41, 0xB, 0);
    let spans = script.play(Finish::Exited);
    let threads = spans.of(SpanKind::Thread);
    assert_eq!(threads.len(), 2);
    assert!(threads.iter().all(|thread| has(thread, SpanFlags::UNCERTAIN)), "{threads:#?}");
}

#[test]
fn a_thread_that_nobody_was_seen_to_create_is_an_orphan() {
    let mut script = Script::default();
    let id = script.starts(1, 50, "worker", 7, HANDLE);
    script.ends(1, 60, HANDLE, 0);
    let spans = script.play(Finish::Exited);
    assert!(has(spans.get(id), SpanFlags::ORPHAN));
    assert_eq!((spans.get(id).status, times(spans.get(id))), (SpanStatus::Matched, (50, Some(60))));
}

#[test]
fn a_creation_whose_call_was_lost_is_known_from_its_return() {
    let mut script = Script::default();
    script.call(0, 10, "main");
    script.lose(0, |script| {
        script.creates(0, 20, "worker", 7, false);
    });
    script.created(0, 40, HANDLE);
    script.starts(1, 50, "worker", 7, HANDLE);
    script.ends(1, 60, HANDLE, 0);
    let spans = script.play(Finish::Exited);
    let thread = spans.one(SpanKind::Thread);
    let more = more(thread);
    assert_eq!((more.created.map(|at| at.0), more.latency, times(thread)), (Some(20), Some(30), (50, Some(60))));
}

#[test]
fn a_thread_whose_start_was_lost_is_known_from_its_end() {
    let mut script = Script::default();
    let id = script.creates(0, 20, "worker", 7, false);
    script.created(0, 40, HANDLE);
    script.lose(1, |script| {
        script.starts(1, 50, "worker", 7, HANDLE);
    });
    script.ends(1, 60, HANDLE, 4);
    let spans = script.play(Finish::Exited);
    let thread = spans.one(SpanKind::Thread);
    assert_eq!((thread.id, times(thread)), (id, (50, Some(60))));
    assert!(has(thread, SpanFlags::NO_CALL));
}

#[test]
fn a_thread_whose_end_was_lost_says_so() {
    let (mut script, id) = created();
    script.lose(1, |script| script.ends(1, 90, HANDLE, 3));
    let spans = script.play(Finish::Exited);
    assert_eq!((spans.get(id).status, spans.get(id).reason), (SpanStatus::Unmatched, Some(Reason::Gap)));
}

#[test]
fn measures_of_threads_are_those_of_their_spans() {
    let mut script = Script::default();
    for thread in 0..3 {
        let at = 100 * thread;
        script.creates(0, at, "worker", thread, true);
        script.created(0, at + 10, thread);
        script.starts(thread as u32 + 1, at + 20, "worker", thread, thread);
    }
    for thread in 0..3 {
        script.ends(thread as u32 + 1, 400 + thread, thread, 0);
    }
    let spans = script.play(Finish::Exited);
    let threads = spans.of(SpanKind::Thread);
    assert_eq!(threads.len(), 3, "threads created");
    let active = threads.iter().filter(|thread| thread.start.0 <= 350 && thread.end.is_some_and(|end| end.0 > 350));
    assert_eq!(active.count(), 3, "threads that run at a time");
    assert!(threads.iter().all(|thread| thread.more.as_ref().is_some_and(|more| more.latency == Some(20))));
    assert_eq!(threads.iter().filter_map(|thread| thread.duration()).collect::<Vec<_>>(), [380, 281, 182]);
}
