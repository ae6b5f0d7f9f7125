//! What nobody ends does not take memory or time without end.

use codec::{
    EventKind,
    profile::Key,
    span::{Reason, SpanKind, SpanStatus},
};
use collector_core::spans::{Finish, SpanConfig};

use crate::script::{Script, Spans, Step};

const MOST: usize = 100;
const MANY: u64 = 20_000;

/// Plays something that would take many times the memory that there is.
fn bounded(script: &Script) -> Spans {
    let spans = script.play_with(SpanConfig { max_open: MOST, ..SpanConfig::default() }, Finish::Exited);
    assert!(spans.most_open <= MOST as u64 + 8, "{}", spans.most_open);
    let evicted = spans.all.iter().filter(|span| span.reason == Some(Reason::Evicted)).count();
    assert_eq!(spans.counts.evicted, evicted as u64);
    spans
}

#[test]
fn a_stack_without_end_is_evicted_from_its_outer_end() {
    let mut script = Script::default();
    for at in 0..MANY {
        script.call(0, at, "f");
    }
    let spans = bounded(&script);
    assert_eq!(spans.all.len(), MANY as usize, "every call is told");
    assert!(spans.counts.evicted >= MANY - MOST as u64);
}

#[test]
fn a_thread_with_ever_more_stacks_keeps_few_of_them() {
    let mut script = Script::default();
    for at in 0..MANY {
        script.call(0, 10 * at, "f");
        script.call(0, 10 * at + 5, "g");
        script.other_stack(0, Vec::new());
    }
    assert_eq!(bounded(&script).all.len(), 2 * MANY as usize);
}

#[test]
fn a_loop_of_tail_calls_keeps_few_frames() {
    let mut script = Script::default();
    script.call(0, 0, "main");
    script.call(0, 1, "f");
    for at in 2..MANY {
        script.tail_call(0, at, "f");
    }
    let spans = bounded(&script);
    assert_eq!(spans.counts.evicted, 0, "they have ended");
    let ended = spans.all.iter().filter(|span| span.reason == Some(Reason::TailCall)).count();
    assert_eq!(ended, MANY as usize - 2);
}

#[test]
fn blocks_that_never_run_are_evicted_the_oldest_first() {
    let mut script = Script::default();
    for at in 0..MANY {
        script.submits(0, 10 * at, "dispatch_async_f", 0, 1);
    }
    let spans = bounded(&script);
    let pending = spans.of(SpanKind::Block).into_iter().filter(|span| span.reason == Some(Reason::Pending));
    assert!(pending.map(|span| span.start.0).min() > Some(10 * (MANY - 2 * MOST as u64)));
}

#[test]
fn many_submissions_of_one_function_are_matched_in_good_time() {
    let mut script = Script::default();
    for at in 0..MANY {
        script.submits(0, 10 * at, "dispatch_async_f", 0, 1);
    }
    for at in MANY..2 * MANY {
        script.block_runs(1, (10 * at, 10 * at + 5), 0);
    }
    let spans = script.play(Finish::Exited);
    let blocks = spans.of(SpanKind::Block);
    assert_eq!(blocks.len(), MANY as usize);
    assert!(blocks.iter().all(|block| block.more.as_ref().is_some_and(|more| more.latency == Some(10 * MANY))));
}

#[test]
fn tasks_that_are_canceled_and_never_end_are_forgotten() {
    let mut script = Script::default();
    for task in 0..MANY {
        script.tells(0, 20 * task, "swift_task_create", &[(Key::Task, task)]);
        script.tells(0, 20 * task + 10, "swift_task_cancel", &[(Key::Task, task)]);
    }
    let spans = bounded(&script);
    assert_eq!(spans.counts.evicted, 0);
    assert!(spans.of(SpanKind::Task).iter().all(|task| task.status == SpanStatus::Canceled));
}

#[test]
fn runs_that_never_end_are_evicted() {
    for function in ["_dispatch_client_callout", "swift_job_run", "pthread_start_routine", "pthread_create"] {
        let mut script = Script::default();
        for at in 0..MANY {
            let keys = [(Key::Block, at), (Key::Task, at), (Key::Pthread, at), (Key::Argument, at)];
            script.runtime(0, 10 * at, function, &keys);
        }
        bounded(&script);
    }
}

#[test]
fn what_waits_for_its_turn_is_bounded_too() {
    // Nobody says how far the streams are.
    let mut script = Script::default();
    for at in 0..MANY {
        script.tells(0, 10 * at, "dispatch_group_enter", &[(Key::Group, 1)]);
        script.tells(0, 10 * at + 5, "dispatch_group_leave", &[(Key::Group, 1)]);
    }
    let spans = bounded(&script);
    assert_eq!(spans.of(SpanKind::Group).len(), MANY as usize);
    assert_eq!(spans.counts.evicted, 0);
}

#[test]
fn plain_events_that_wait_for_their_parents_are_bounded_over_all_streams() {
    let mut script = Script::default();
    for at in 0..MANY {
        script.plain((at % 4) as u32, (10 * at, 10 * at + 5), "event");
    }
    let spans = bounded(&script);
    assert_eq!(spans.all.len(), MANY as usize);
}

#[test]
fn events_with_long_descriptions_count_for_as_much_as_they_take() {
    let mut script = Script::default();
    for at in 0..MOST as u64 * 4 {
        let description = format!("{at:060000}");
        script.plain(0, (10 * at, 10 * at + 5), description.leak());
    }
    // One of them takes more room than there is for all.
    let spans = script.play_with(SpanConfig { max_open: MOST, ..SpanConfig::default() }, Finish::Exited);
    assert_eq!(spans.all.len(), MOST * 4, "all are told, though none waits for long");
    assert!(spans.most_open <= 60_000 / 256 + 1, "{}", spans.most_open);
}

#[test]
fn many_returns_without_calls_in_a_deep_stack_are_told_in_good_time() {
    let mut script = Script::default();
    let depth = 5 * MANY;
    for at in 0..depth {
        script.call(0, at + 10, "f");
    }
    let function = script.functions.id("never_called");
    for at in 0..depth {
        script.function(0, EventKind::Return, (1, 10 + depth + at), function, depth as u32 + 1);
    }
    let spans = script.play(Finish::Exited);
    assert_eq!(spans.all.len(), 2 * depth as usize);
}

#[test]
fn limits_that_say_the_same_again_and_again_are_read_in_good_time() {
    let mut script = Script::default();
    let all = "0-1048000,".repeat(MANY as usize);
    script.steps.push(Step::EntryOnly { detail: format!("functions {all}0") });
    script.call(0, 1, "f");
    assert_eq!(script.play(Finish::Exited).all.len(), 1);
}

#[test]
fn threads_are_matched_in_good_time_though_many_creations_never_returned() {
    let mut script = Script::default();
    for at in 0..MANY {
        script.runtime((at % 64) as u32, 10 * at, "pthread_create", &[(Key::StartRoutine, 7), (Key::Argument, at)]);
    }
    for at in MANY..2 * MANY {
        let keys = [(Key::Pthread, at), (Key::StartRoutine, 7), (Key::Argument, at)];
        script.runtime(100, 10 * at, "pthread_start_routine", &keys);
    }
    let threads = script.play(Finish::Exited).of(SpanKind::Thread).len();
    assert_eq!(threads, 2 * MANY as usize);
}
