use codec::{Position, StreamId};
use quickcheck::{TestResult, quickcheck};

use super::*;
use crate::spans_for_tests::frame;

/// A call: when it began and ended, and what it called.
#[derive(Debug, Clone)]
struct Call {
    id: u64,
    start: u64,
    end: u64,
    parent: Option<u64>,
}

/// A random execution: calls in the order in which they close, and the order of begins and ends that is right.
fn execution(choices: &[u8]) -> (Vec<Call>, Vec<(Edge, u64)>) {
    let (mut closed, mut truth, mut stack) = (Vec::new(), Vec::new(), Vec::<Call>::new());
    let (mut now, mut next) = (0, 0);
    let mut close = |stack: &mut Vec<Call>, now, truth: &mut Vec<_>| {
        if let Some(call) = stack.pop() {
            truth.push((Edge::End, call.id));
            closed.push(Call { end: now, ..call });
        }
    };
    for choice in choices {
        // The clock stands still more often than not.
        now += u64::from(choice >> 6 == 0);
        if choice & 1 == 0 {
            stack.push(Call { id: next, start: now, end: now, parent: stack.last().map(|call| call.id) });
            truth.push((Edge::Begin, next));
            next += 1;
        } else {
            close(&mut stack, now, &mut truth);
        }
    }
    while !stack.is_empty() {
        close(&mut stack, now, &mut truth);
    }
    (closed, truth)
}

fn id(position: u64) -> SpanId {
    SpanId::new(StreamId(0), Position(position))
}

/// A step as it was passed on.
#[derive(Debug, PartialEq)]
struct Seen {
    edge: Edge,
    lane: usize,
    at: SessionNs,
    id: SpanId,
}

impl From<&Step<'_, u32>> for Seen {
    fn from(step: &Step<'_, u32>) -> Self {
        Self { edge: step.edge, lane: step.lane, at: step.at, id: step.span.id }
    }
}

/// What a viewer sees: the steps sorted by time, those of one time as they were written.
fn seen(calls: &[Call]) -> Vec<Seen> {
    let mut steps = Vec::new();
    let mut nest = Nest::default();
    for call in calls {
        let span = frame(0, call.id, call.start, call.end);
        nest.close(0, call.parent.map(id), &span, |step| steps.push(Seen::from(step)));
    }
    nest.finish(|step| steps.push(step.into()));
    steps.sort_by_key(|step| step.at);
    steps
}

quickcheck! {
    fn a_viewer_sees_the_calls_as_they_were(choices: Vec<u8>) -> TestResult {
        let (calls, truth) = execution(&choices);
        let seen = seen(&calls);
        if seen.iter().any(|step| step.lane != 0) {
            return TestResult::error("all of it nests");
        }
        let seen: Vec<_> = seen.iter().map(|step| (step.edge, step.id)).collect();
        let truth: Vec<_> = truth.iter().map(|(edge, at)| (*edge, id(*at))).collect();
        match seen == truth {
            true => TestResult::passed(),
            false => TestResult::error(format!("{seen:?}\ninstead of\n{truth:?}")),
        }
    }

    /// Whatever times spans have: on every lane, each end closes the span that began last.
    fn every_lane_nests(spans: Vec<(u8, u8, Option<u8>)>) -> bool {
        let mut spans: Vec<Call> = spans.iter().zip(0..).map(|((start, length, parent), id)| {
            let (start, length) = (u64::from(*start), u64::from(length % 16) + 1);
            Call { id, start, end: start + length, parent: parent.map(|parent| 1000 + u64::from(parent % 4)) }
        }).collect();
        spans.sort_by_key(|call| call.end);
        // Between spans that do not touch, the order at one time does not matter.
        spans.iter_mut().for_each(|call| { call.start = call.start * 1000 + call.id; call.end = call.end * 1000 + 900 + call.id % 50; });
        spans.sort_by_key(|call| call.end);
        let mut stacks: HashMap<usize, Vec<SpanId>> = HashMap::default();
        seen(&spans).iter().all(|step| {
            let stack = stacks.entry(step.lane).or_default();
            match step.edge {
                Edge::Begin => { stack.push(step.id); true }
                Edge::End => stack.pop() == Some(step.id),
            }
        })
    }
}

#[test]
fn only_the_first_calls_wait_for_their_caller() {
    let mut nest = Nest::default();
    let mut written = Vec::new();
    for at in 0..1000_u64 {
        nest.close(0, Some(id(5000)), &frame(0, at, 10 * at, 10 * at + 5), |step: &Step<'_, u32>| {
            written.push(step.edge);
        });
    }
    assert_eq!(written.len(), 2 * 1000 - 1);
    assert_eq!(nest.waiting.len(), 1);
    nest.close(0, None, &frame(0, 5000, 0, 10_000), |step: &Step<'_, u32>| written.push(step.edge));
    assert_eq!(written.len(), 2 * 1001);
    assert!(nest.waiting.is_empty());
}

#[test]
fn what_does_not_nest_gets_a_lane_of_its_own() {
    let calls = [
        Call { id: 1, start: 10, end: 20, parent: Some(0) },
        Call { id: 2, start: 30, end: 40, parent: Some(0) },
        // On another stack: begins within the first, ends within the second.
        Call { id: 3, start: 15, end: 45, parent: None },
        Call { id: 0, start: 5, end: 50, parent: None },
    ];
    let lanes: Vec<_> = seen(&calls).iter().map(|step| (step.id, step.lane)).filter(|(_, lane)| *lane > 0).collect();
    assert_eq!(lanes, [(id(3), 1), (id(3), 1)]);
}

#[test]
fn what_is_nobodys_call_and_lies_inside_nests() {
    // A signal handler on a stack of its own.
    let calls = [Call { id: 9, start: 12, end: 14, parent: None }, Call { id: 0, start: 5, end: 50, parent: None }];
    assert!(seen(&calls).iter().all(|step| step.lane == 0));
}

#[test]
fn lanes_are_used_again() {
    let mut lanes = Lanes::default();
    let taken = [(0, 10), (5, 15), (10, 20), (12, 13), (15, 16)].map(|(start, end)| lanes.admit(start, end));
    assert_eq!(taken, [0, 1, 0, 2, 2]);
}

/// A random execution in which some calls end in tail calls, told as the engine does: what was replaced comes behind what
/// took its place.
fn execution_with_tail_calls(choices: &[u8]) -> Vec<Call> {
    let (mut closed, mut stack) = (Vec::new(), Vec::<Vec<Call>>::new());
    let mut now = 0;
    let close = |stack: &mut Vec<Vec<Call>>, closed: &mut Vec<Call>, now| {
        let chain = stack.pop().unwrap_or_default();
        let ends: Vec<u64> = chain.iter().skip(1).map(|next| next.start).chain([now]).collect();
        closed.extend(chain.into_iter().zip(ends).map(|(call, end)| Call { end, ..call }).rev());
    };
    for (choice, id) in choices.iter().zip(0..) {
        now += u64::from(choice >> 3) + 1;
        let parent = |stack: &[Vec<Call>]| stack.last().and_then(|chain| chain.last()).map(|call| call.id);
        match choice % 4 {
            0 | 1 => {
                let parent = parent(&stack);
                stack.push(vec![Call { id, start: now, end: now, parent }]);
            }
            2 => close(&mut stack, &mut closed, now),
            _ => {
                let outside = stack.len().saturating_sub(1);
                let parent = parent(stack.get(..outside).unwrap_or_default());
                if let Some(chain) = stack.last_mut() {
                    chain.push(Call { id, start: now, end: now, parent });
                }
            }
        }
    }
    while !stack.is_empty() {
        now += 1;
        close(&mut stack, &mut closed, now);
    }
    closed
}

quickcheck! {
    fn tail_calls_lie_beside_what_took_their_place(choices: Vec<u8>) -> TestResult {
        let calls = execution_with_tail_calls(&choices);
        let mut open = Vec::new();
        for step in seen(&calls) {
            if step.lane != 0 {
                return TestResult::error(format!("{step:?} has a lane of its own in {calls:?}"));
            }
            match step.edge {
                Edge::Begin => open.push(step.id),
                Edge::End if open.pop() == Some(step.id) => {}
                Edge::End => return TestResult::error(format!("{step:?} does not nest in {calls:?}")),
            }
        }
        TestResult::passed()
    }
}

#[test]
fn what_waits_at_the_end_comes_in_the_order_of_time() {
    let mut nest = Nest::default();
    let mut steps = Vec::new();
    // Their callers are not shown, and never close.
    for call in (0..50).rev() {
        let span = frame(0, 100 + call, 10 * call, 10 * call + 5);
        nest.close(0, Some(id(call)), &span, |step: &Step<'_, u32>| steps.push(Seen::from(step)));
    }
    assert!(steps.iter().all(|step| step.edge == Edge::End), "their begins wait");
    steps.clear();
    nest.finish(|step| steps.push(step.into()));
    assert_eq!(steps.len(), 50);
    assert!(steps.is_sorted_by_key(|step| step.at));
}
