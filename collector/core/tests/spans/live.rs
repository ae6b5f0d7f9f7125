//! What the agent says of its progress decides when spans of several threads are made.

use codec::span::{SpanKind, SpanStatus};
use collector_core::spans::{Engine, Finish, SpanConfig};

use crate::script::{Script, Step, more, tell};

/// A block that one thread submits and another runs; what follows says how far the streams are.
fn submitted() -> Script {
    let mut script = Script::default();
    script.submits(0, 10, "dispatch_async", 1, 1);
    script.block_runs(1, (20, 30), 1);
    script
}

impl Script {
    /// So many seconds after the start, the agent says how far its streams are.
    fn progress(&mut self, seconds: u64, streams: &[(u32, u64)]) {
        self.steps.push(Step::Progress { now: seconds * 1_000_000_000, streams: streams.into() });
    }
}

/// How many blocks are ready after each of these.
fn blocks_after(steps: &[Step], script: &Script) -> Vec<usize> {
    let mut engine = Engine::new(SpanConfig::default());
    let mut blocks = 0;
    let ready = steps.iter().map(|step| {
        tell(&mut engine, step, &script.functions.catalog());
        blocks += engine.spans().drain(..).filter(|span| span.kind == SpanKind::Block).count();
        blocks
    });
    ready.collect()
}

#[test]
fn a_span_is_made_once_all_streams_have_come_as_far_as_they_were_said_to_be() {
    let mut script = submitted();
    script.progress(1, &[(0, 3), (1, 4)]);
    script.progress(2, &[(0, 3), (1, 4)]);
    let ready = blocks_after(&script.steps, &script);
    assert_eq!(ready[ready.len() - 3..], [0, 0, 1]);
}

#[test]
fn a_stream_that_is_late_is_waited_for() {
    let mut script = submitted();
    // The submission comes last.
    script.steps.rotate_left(3);
    let late = script.steps.split_off(4);
    script.progress(1, &[(0, 3), (1, 4)]);
    script.progress(2, &[(0, 3), (1, 4)]);
    script.steps.extend(late);
    script.progress(3, &[(0, 3), (1, 4)]);
    let ready = blocks_after(&script.steps, &script);
    assert_eq!(ready.last(), Some(&1));
    assert!(ready[..ready.len() - 1].iter().all(|ready| *ready == 0), "{ready:?}");
    let spans = script.play(Finish::Exited);
    assert_eq!(spans.one(SpanKind::Block).status, SpanStatus::Matched);
    assert_eq!(more(spans.one(SpanKind::Block)).latency, Some(10));
}

#[test]
fn a_stream_that_never_comes_is_not_waited_for_for_ever() {
    let mut script = submitted();
    (1..=20).for_each(|second| script.progress(second, &[(0, 3), (1, 4), (99, 5)]));
    let ready = blocks_after(&script.steps, &script);
    assert_eq!(ready.last(), Some(&1));
    assert_eq!(ready[ready.len() - 15], 0, "some seconds it is");
}

#[test]
fn a_gap_at_the_end_of_a_stream_counts_as_come() {
    let mut script = submitted();
    script.steps.push(Step::Gap { stream: 1, first: 4, count: 6 });
    script.progress(1, &[(0, 3), (1, 10)]);
    script.progress(2, &[(0, 3), (1, 10)]);
    assert_eq!(blocks_after(&script.steps, &script).last(), Some(&1));
}

#[test]
fn a_long_list_of_streams_comes_in_several_packets() {
    let mut script = submitted();
    for second in [1, 2] {
        script.progress(second, &[(0, 3)]);
        script.progress(second, &[(1, 5)]);
    }
    // Stream 1 has come to 4 only.
    assert_eq!(blocks_after(&script.steps, &script).last(), Some(&0));
}
