//! Thousands of random executions, whole and with events missing, told in any order.

use std::collections::{BTreeMap, HashMap, HashSet};

use codec::{
    EventKind, FunctionId,
    profile::Key,
    span::{Reason, Span, SpanFlags, SpanId, SpanKind, SpanStatus},
};
use collector_core::spans::{Finish, SpanConfig};
use quickcheck::{Arbitrary, Gen, QuickCheck};

use crate::{
    model::{Expected, Model},
    script::{Body, Functions, Spans, Step, Told, has, play, times},
};

/// How many cases each property is tried with, unless `QUICKCHECK_TESTS` says otherwise.
const CASES: u64 = 1000;

fn check<P: quickcheck::Testable>(property: P) {
    let cases = std::env::var("QUICKCHECK_TESTS").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES);
    QuickCheck::new().tests(cases).max_tests(cases * 10).rng(Gen::new(250)).quickcheck(property);
}

/// What a program does, and on which thread.
type Choices = Vec<(u8, u8)>;

fn final_ids_are_unique(spans: &Spans) {
    let ids: HashSet<SpanId> = spans.all.iter().map(|span| span.id).collect();
    assert_eq!(ids.len(), spans.all.len(), "each id comes once");
    assert_eq!(spans.counts.open, 0, "nothing is left open");
    assert_eq!(spans.counts.made, spans.all.len() as u64);
}

/// Whoever adds up what functions took relies on it.
fn frames_come_before_their_parents(spans: &Spans) {
    let places: HashMap<SpanId, usize> = spans.all.iter().enumerate().map(|(place, span)| (span.id, place)).collect();
    for (place, span) in spans.all.iter().enumerate().filter(|(_, span)| span.kind == SpanKind::Frame) {
        let parent = span.parent.and_then(|parent| places.get(&parent));
        assert!(parent.is_none_or(|parent| place < *parent), "{span:#?} comes behind its parent");
    }
}

fn parents_enclose(spans: &Spans) {
    let by_id: HashMap<SpanId, &Span> = spans.all.iter().map(|span| (span.id, span)).collect();
    for span in &spans.all {
        let Some(parent) = span.parent.and_then(|parent| by_id.get(&parent)) else { continue };
        // When a tail call ended its caller is known too late.
        let (Some(end), Some(parent_end)) = (span.end, parent.end) else { continue };
        if parent.reason != Some(Reason::TailCall) && end > parent_end {
            assert!(has(span, SpanFlags::OUTSIDE_PARENT), "{span:#?} in {parent:#?}");
        }
    }
}

fn summary(span: &Span, expected: &Expected) -> Expected {
    Expected {
        kind: span.kind,
        key: span.key(),
        start: span.start.0,
        end: span.end.map(|end| end.0),
        parent: span.parent,
        status: span.status,
        reason: span.reason,
        stream: span.stream.0,
        left: expected.left,
        begun: expected.begun,
    }
}

fn nothing_is_lost(choices: Choices) {
    let model = Model::run(&choices);
    let spans = model.script.play(Finish::Exited);
    final_ids_are_unique(&spans);
    parents_enclose(&spans);
    frames_come_before_their_parents(&spans);
    for span in &spans.all {
        let expected = model.expected.get(&span.id).unwrap_or_else(|| panic!("invented: {span:#?}"));
        assert_eq!(&summary(span, expected), expected, "{}", span.id);
    }
    assert_eq!(spans.all.len(), model.expected.len(), "every span is found");
}

#[test]
fn without_loss_every_span_is_just_what_ran() {
    check(nothing_is_lost as fn(Choices));
}

/// Which events are missing: of which stream, from where on, and how many. A few of them are meant.
type Losses = Vec<(u8, u8, u8)>;

/// Leaves events out, and tells so.
fn lose(steps: &[Step], losses: &[(u8, u8, u8)]) -> (Vec<Step>, HashSet<(u32, u64)>) {
    let mut lost = HashSet::new();
    for (stream, first, count) in losses.iter().take(losses.len() % 6) {
        for position in 0..u64::from(*count % 8) {
            lost.insert((u32::from(*stream % 7), u64::from(*first) % 60 + position));
        }
    }
    let mut kept: Vec<Step> = Vec::new();
    let mut gaps: BTreeMap<u32, usize> = BTreeMap::new();
    for step in steps {
        let Step::Event(told) = step else {
            kept.push(step.clone());
            continue;
        };
        if !lost.contains(&(told.stream, told.position)) {
            gaps.remove(&told.stream);
            kept.push(step.clone());
        } else if let Some(Step::Gap { count, .. }) = gaps.get(&told.stream).and_then(|place| kept.get_mut(*place)) {
            *count += 1;
        } else {
            gaps.insert(told.stream, kept.len());
            kept.push(Step::Gap { stream: told.stream, first: told.position, count: 1 });
        }
    }
    (kept, lost)
}

fn what_is_missing_is_named(choices: Choices, losses: Losses) {
    let model = Model::run(&choices);
    let (steps, lost) = lose(&model.script.steps, &losses);
    let spans = play(&steps, &model.script.functions, SpanConfig::default(), Finish::Exited);
    final_ids_are_unique(&spans);
    let by_id: HashMap<SpanId, &Span> = spans.all.iter().map(|span| (span.id, span)).collect();
    let with_other_stacks = |stream: u32| {
        let handler = |step: &Step| match step {
            Step::Event(Told { stream: of, body: Body::Function { function, .. }, .. }) => {
                *of == stream && model.script.functions.clone().id("handler") == *function
            }
            _ => false,
        };
        model.script.steps.iter().any(handler)
    };
    // Every frame of which an event is left is there.
    let mut allowed: HashMap<SpanId, &Expected> = HashMap::new();
    for (id, expected) in model.expected.iter().filter(|(_, expected)| expected.kind == SpanKind::Frame) {
        let place = id.position().0;
        let called = !lost.contains(&(expected.stream, place));
        let left = expected.left.filter(|left| !lost.contains(&(expected.stream, *left)));
        let at_return = left.map(|left| Model::id_at(expected.stream, left));
        allowed.insert(*id, expected);
        if let Some(at_return) = at_return {
            allowed.insert(at_return, expected);
        }
        if called {
            let span = by_id.get(id).unwrap_or_else(|| panic!("{id} of {expected:#?} is gone"));
            let same_times = times(span) == (expected.start, expected.end);
            // Who unwinds may be among what is missing.
            let same_reason = span.reason == expected.reason
                || expected.reason.is_some_and(is_unwinding) && span.reason.is_some_and(is_unwinding);
            let same = same_times && span.status == expected.status && same_reason;
            let gap = span.status == SpanStatus::Unmatched
                && (span.reason == Some(Reason::Gap) || span.reason == Some(Reason::TailCall))
                && span.start.0 == expected.start;
            // Which stack a call is on cannot always be told after a loss: then what it replaced is not known either.
            let elsewhere = span.status == SpanStatus::Unmatched
                && expected.reason == Some(Reason::TailCall)
                && span.start.0 == expected.start
                && with_other_stacks(expected.stream);
            assert!(same || gap || elsewhere, "{span:#?} is not {expected:#?}");
            if left.is_some() && !same {
                assert!(with_other_stacks(expected.stream), "{span:#?} has a return: {expected:#?}");
            }
        } else if let Some(at_return) = at_return {
            let span = by_id.get(&at_return).unwrap_or_else(|| panic!("{at_return} of {expected:#?} is gone"));
            assert_eq!(times(span), (expected.start, expected.end));
            assert!(has(span, SpanFlags::NO_CALL));
        }
    }
    // Nothing is made up, and whatever is matched is right.
    let mut logical: HashMap<(SpanKind, u64), &Expected> = HashMap::new();
    for expected in model.expected.values() {
        if let Some(key) = expected.key {
            logical.insert((expected.kind, key), expected);
        }
    }
    let mut found: HashMap<(SpanKind, u64), Vec<&Span>> = HashMap::new();
    for span in &spans.all {
        match (span.kind, span.key()) {
            (SpanKind::Gap, _) => {}
            (SpanKind::Frame, _) => {
                let expected = allowed.get(&span.id).unwrap_or_else(|| panic!("invented: {span:#?}"));
                assert_eq!(span.start.0, expected.start);
                if span.status == SpanStatus::Matched {
                    assert_eq!(span.end.map(|end| end.0), expected.end);
                }
            }
            (kind, Some(mut key)) => {
                if kind == SpanKind::Job && key < 0x1000 {
                    key += 0x1000;
                }
                assert!(logical.contains_key(&(kind, key)), "invented: {span:#?}");
                found.entry((kind, key)).or_default().push(span);
            }
            (kind, None) => assert_eq!(kind, SpanKind::Thread, "{span:#?}"),
        }
    }
    for ((kind, key), expected) in &logical {
        let all = found.get(&(*kind, *key)).map_or(&[][..], Vec::as_slice);
        let made = *kind != SpanKind::Job;
        let of_many = *kind == SpanKind::Job;
        for span in all {
            // The times of what only stands for something are inferred.
            let is_seen = span.status == SpanStatus::Matched && !has(span, SpanFlags::PLACEHOLDER);
            if is_seen && !of_many && *kind != SpanKind::Task {
                assert_eq!(times(span), (expected.start, expected.end), "{span:#?} is not {expected:#?}");
            }
        }
        // Jobs of one task have the same key.
        assert!(of_many || all.len() <= 2, "{all:#?}");
        let begun = expected.begun.filter(|begun| !lost.contains(&(expected.stream, *begun)));
        if made && begun.is_some() {
            assert!(!all.is_empty(), "{expected:#?} is gone");
        }
    }
}

fn is_unwinding(reason: Reason) -> bool {
    matches!(reason, Reason::Longjmp | Reason::Exception | Reason::Unwind)
}

#[test]
fn with_loss_every_span_of_which_an_event_is_left_is_found() {
    check(what_is_missing_is_named as fn(Choices, Losses));
}

/// Tells the events of the streams mixed in another way, and now and then up to when all is told.
fn mix(steps: &[Step], order: &[u8], settles: bool) -> Vec<Step> {
    let mut streams: BTreeMap<u32, Vec<&Step>> = BTreeMap::new();
    let mut mixed = Vec::new();
    for step in steps {
        match step {
            Step::Event(Told { stream, .. }) | Step::Gap { stream, .. } => {
                streams.entry(*stream).or_default().push(step);
            }
            other => mixed.push(other.clone()),
        }
    }
    for all in streams.values_mut() {
        all.reverse();
    }
    let mut order = order.iter().cycle();
    while !streams.is_empty() {
        let choice = order.next().copied().unwrap_or(0);
        let ids: Vec<u32> = streams.keys().copied().collect();
        let id = ids[usize::from(choice >> 3) % ids.len()];
        let Some(all) = streams.get_mut(&id) else { break };
        for _ in 0..=choice % 8 {
            mixed.extend(all.pop().cloned());
        }
        if all.is_empty() {
            streams.remove(&id);
        }
        let next = |all: &Vec<&Step>| {
            all.iter().rev().find_map(|step| match step {
                Step::Event(told) => Some(told.end),
                _ => None,
            })
        };
        if settles && choice % 3 == 0 {
            let until = streams.values().filter_map(next).min();
            mixed.extend(until.map(Step::Settle));
        }
    }
    mixed
}

fn sorted(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|span| (span.id, span.kind));
    spans
}

fn mixing_changes_nothing(choices: Choices, losses: Losses, order: Vec<u8>, timeout: u8) {
    let model = Model::run(&choices);
    let (steps, _) = lose(&model.script.steps, &losses);
    let config = SpanConfig { timeout_ns: 20 * u64::from(timeout) + 1, ..SpanConfig::default() };
    let merged = {
        let mut merged = Vec::new();
        for step in &steps {
            merged.push(step.clone());
            if let Step::Event(told) = step {
                merged.push(Step::Settle(told.end));
            }
        }
        play(&merged, &model.script.functions, config.clone(), Finish::Cut)
    };
    for settles in [false, true] {
        let mixed = mix(&steps, &order, settles);
        let other = play(&mixed, &model.script.functions, config.clone(), Finish::Cut);
        let (expected, other) = (sorted(merged.all.clone()), sorted(other.all));
        for (expected, other) in expected.iter().zip(&other) {
            assert_eq!(other, expected, "settles: {settles}");
        }
        assert_eq!(expected.len(), other.len());
    }
}

#[test]
fn the_spans_are_the_same_however_the_streams_are_mixed() {
    check(mixing_changes_nothing as fn(Choices, Losses, Vec<u8>, u8));
}

fn memory_is_bounded(choices: Choices, most: u8) {
    let model = Model::run(&choices);
    let most = usize::from(most % 20) + 2;
    let config = SpanConfig { max_open: most, ..SpanConfig::default() };
    let spans = model.script.play_with(config, Finish::Exited);
    final_ids_are_unique(&spans);
    let slack = 2 * 7 + 1;
    assert!(spans.most_open <= most as u64 + slack, "{} open, {most} allowed", spans.most_open);
    let evicted = spans.all.iter().filter(|span| span.reason == Some(Reason::Evicted)).count() as u64;
    assert_eq!(spans.counts.evicted, evicted, "what is evicted is counted");
    // Nothing is lost silently: every frame that was entered is told.
    let ids: HashSet<SpanId> = spans.all.iter().map(|span| span.id).collect();
    for (id, expected) in model.expected.iter().filter(|(_, expected)| expected.kind == SpanKind::Frame) {
        assert!(ids.contains(id), "{expected:#?} is gone");
    }
}

#[test]
fn with_little_memory_spans_are_evicted_and_told() {
    check(memory_is_bounded as fn(Choices, u8));
}

/// An event that makes no sense.
#[derive(Debug, Clone)]
struct Garbage(Step);

const RUNTIME: [&str; 14] = [
    "pthread_create",
    "pthread_start_routine",
    "pthread_exit",
    "pthread_join",
    "pthread_detach",
    "pthread_cancel",
    "dispatch_group_async",
    "dispatch_apply",
    "_dispatch_client_callout",
    "swift_task_create",
    "swift_job_run",
    "swift_continuation_init",
    "swift_continuation_resume",
    "swift_task_cancel",
];

impl Arbitrary for Garbage {
    fn arbitrary(gen_: &mut Gen) -> Self {
        let number = |gen_: &mut Gen| match u8::arbitrary(gen_) % 8 {
            0 => u64::MAX,
            1 => u64::arbitrary(gen_),
            _ => u64::from(u8::arbitrary(gen_) % 6),
        };
        let stream = u32::from(u8::arbitrary(gen_) % 3);
        let (start, end) = (number(gen_), number(gen_));
        let kind = *gen_.choose(&EventKind::ALL).expect("a kind");
        let depth = *gen_.choose(&[0, 1, 2, 3, 7, u32::MAX - 1, u32::MAX]).expect("a depth");
        let body = match u8::arbitrary(gen_) % 8 {
            0 => return Self(Step::Gap { stream, first: number(gen_), count: number(gen_) }),
            1 if bool::arbitrary(gen_) => return Self(Step::Settle(number(gen_))),
            1 => return Self(Step::Progress { now: number(gen_), streams: vec![(stream, number(gen_))] }),
            2 => Body::Plain("event"),
            3 | 4 => {
                let keys = (0..u8::arbitrary(gen_) % 5)
                    .map(|_| (*gen_.choose(Key::ALL).expect("a key"), number(gen_)))
                    .collect();
                Body::Runtime { function: gen_.choose(&RUNTIME).expect("a function"), phase: kind, keys }
            }
            _ => Body::Function { kind, function: FunctionId(number(gen_)), depth, arguments: None },
        };
        let substream = number(gen_);
        Self(Step::Event(Told { stream, position: number(gen_), start, end, substream, body }))
    }
}

fn garbage_is_survived(garbage: Vec<Garbage>, most: u8) {
    let steps: Vec<Step> = garbage.into_iter().map(|garbage| garbage.0).collect();
    let most = usize::from(most % 30) + 2;
    let config = SpanConfig { max_open: most, ..SpanConfig::default() };
    let spans = play(&steps, &Functions::default(), config, Finish::Crashed);
    assert_eq!(spans.counts.open, 0);
    assert!(spans.most_open <= most as u64 + 7, "{} open, {most} allowed", spans.most_open);
}

#[test]
fn events_that_make_no_sense_do_no_harm() {
    check(garbage_is_survived as fn(Vec<Garbage>, u8));
}
