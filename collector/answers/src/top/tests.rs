//! What comes of a trace from which events are missing: whatever is told of functions and of who called them is true.

use std::collections::{HashMap, HashSet};

use codec::{
    Counter, EventKind, FunctionId, Position, SessionNs, StreamId, SubstreamId,
    atf::Manifest,
    heph::{Attributes, Stamp},
    profile::FunctionEvent,
    span::{Span, SpanKind, What},
};
use collector_core::spans::{Engine, Finish, SpanConfig};
use sinks::{
    Catalog,
    tree::{CallTree, Grouping, Node},
};

use super::ranking::{Function, Ranking};
use crate::filter::{Filter, Share};
use crate::scene::Random;

const STREAM: StreamId = StreamId(0);
const FUNCTIONS: u64 = 8;
const DEEPEST: usize = 12;

/// A call as it was.
struct Call {
    path: Vec<u64>,
    start: u64,
    end: u64,
    called_ns: u64,
}

/// What a thread did: calls, and the events of each in turn.
struct Truth {
    calls: Vec<Call>,
    /// Whether it is a call or a return, and of what.
    events: Vec<(bool, usize)>,
}

impl Truth {
    fn new(random: &mut Random, events: usize) -> Self {
        let mut truth = Self { calls: Vec::new(), events: Vec::new() };
        let (mut open, mut now): (Vec<usize>, u64) = (Vec::new(), 0);
        while truth.events.len() < events || !open.is_empty() {
            now += 1 + random.below(40);
            let is_over = truth.events.len() >= events;
            // The outermost stays to the end, as `main` does.
            let may_return = is_over || open.len() > 1;
            if is_over || may_return && (open.len() >= DEEPEST || random.below(100) < 50) {
                let Some(index) = open.pop() else { break };
                let took = now - truth.calls[index].start;
                truth.calls[index].end = now;
                if let Some(caller) = open.last() {
                    truth.calls[*caller].called_ns += took;
                }
                truth.events.push((false, index));
            } else {
                let mut path = open.last().map_or(Vec::new(), |caller| truth.calls[*caller].path.clone());
                path.push(if open.is_empty() { 0 } else { 1 + random.below(FUNCTIONS - 1) });
                open.push(truth.calls.len());
                truth.events.push((true, truth.calls.len()));
                truth.calls.push(Call { path, start: now, end: 0, called_ns: 0 });
            }
        }
        truth
    }

    /// The spans that come of it without these events.
    fn spans(&self, is_lost: impl Fn(usize) -> bool) -> Vec<Span> {
        let (mut engine, catalog) = (Engine::new(SpanConfig::default()), Catalog::from_manifest(&Manifest::default()));
        let mut spans = Vec::new();
        let mut gap = None;
        for (position, (is_call, index)) in self.events.iter().enumerate() {
            if is_lost(position) {
                gap = gap.or(Some(position));
                continue;
            }
            if let Some(first) = gap.take() {
                engine.gap(STREAM, Position(first as u64), (position - first) as u64, "agent:ring-full");
            }
            let call = &self.calls[*index];
            let (start, end) = (SessionNs(call.start), SessionNs(if *is_call { call.start } else { call.end }));
            let event = FunctionEvent {
                stamp: Stamp {
                    stream: STREAM,
                    substream: SubstreamId(0),
                    counter: Counter(position as u32),
                    start,
                    end,
                },
                kind: if *is_call { EventKind::Call } else { EventKind::Return },
                function: call.path.last().copied().map(FunctionId),
                ip: None,
                depth: call.path.len() as u32 - 1,
                detail: None,
                extra: Attributes::default(),
            };
            engine.function(STREAM, Position(position as u64), &event, &catalog);
            spans.append(engine.spans());
        }
        engine.finish(Finish::Exited, None);
        spans.append(engine.spans());
        spans
    }

    fn function(&self, function: u64) -> (u64, u64, u64) {
        let own = self.calls.iter().filter(|call| call.path.last() == Some(&function));
        let is_outermost = |call: &&Call| call.path.iter().filter(|other| **other == function).count() == 1;
        let took = |call: &Call| call.end - call.start;
        (
            own.clone().count() as u64,
            own.clone().filter(is_outermost).map(took).sum(),
            own.map(|call| took(call) - call.called_ns).sum(),
        )
    }
}

fn ranked(spans: &[Span], weight: f64) -> HashMap<u64, Function> {
    let mut ranking = Ranking::default();
    spans.iter().filter(|span| span.kind == SpanKind::Frame).for_each(|span| ranking.add(span, weight));
    let number = |what: What| if let What::Function(FunctionId(number)) = what { number } else { panic!("{what:?}") };
    ranking.finish(false, false).map(|(what, function)| (number(what), function)).collect()
}

fn children<'tree>(node: &Node<'tree>, path: &[Option<u64>]) -> Vec<(Node<'tree>, Vec<Option<u64>>)> {
    node.children().into_iter().map(|child| (child, path.to_vec())).collect()
}

/// Fails the test unless every node of a tree tells what was so.
fn is_true(truth: &Truth, spans: &[Span], about: &str) {
    let mut tree = CallTree::new(Grouping::Threads);
    spans.iter().for_each(|span| tree.add(span));
    tree.finish();
    let mut paths: HashMap<&[u64], (u64, u64)> = HashMap::new();
    for call in &truth.calls {
        let (count, total_ns) = paths.entry(&call.path).or_default();
        (*count, *total_ns) = (*count + 1, *total_ns + call.end - call.start);
    }
    let pairs: HashSet<&[u64]> = truth.calls.iter().flat_map(|call| call.path.windows(2)).collect();
    let mut rest: Vec<_> = tree.roots().flat_map(|(_, root)| children(&root, &[])).collect();
    while let Some((node, mut path)) = rest.pop() {
        path.push(if let What::Function(FunctionId(function)) = node.what() { Some(*function) } else { None });
        rest.extend(children(&node, &path));
        let below: u64 = node.children().iter().map(Node::total_ns).sum();
        assert!(below <= node.total_ns(), "{about}: {path:?} took {}, and what it called {below}", node.total_ns());
        match path.iter().copied().collect::<Option<Vec<u64>>>() {
            Some(whole) => {
                let (count, total_ns) = paths.get(whole.as_slice()).copied().unwrap_or_default();
                assert!(node.count() <= count, "{about}: {path:?} was called {count} times, not {}", node.count());
                assert!(node.total_ns() <= total_ns, "{about}: {path:?} took {total_ns}, not {}", node.total_ns());
            }
            None => {
                if let [.., Some(caller), Some(called)] = path.as_slice() {
                    assert!(pairs.contains([*caller, *called].as_slice()), "{about}: {caller} never called {called}");
                }
            }
        }
    }
}

#[test]
fn whatever_is_missing_what_is_told_is_true() {
    for seed in 0..12 {
        let mut random = Random(seed);
        let truth = Truth::new(&mut random, 8_000);
        for percent in [0, 10, 50, 90] {
            for burst in [1, 30, 400] {
                // Each burst begins with a probability that makes up for its length.
                let mut lost = vec![false; truth.events.len()];
                let starts = 10_000 * percent / (burst * (100 - percent));
                let mut at = 0;
                while at < lost.len() {
                    if random.below(10_000) < starts || percent > 0 && starts == 0 && random.below(100) < 1 {
                        lost.iter_mut().skip(at).take(burst as usize).for_each(|event| *event = true);
                        at += burst as usize;
                    }
                    at += 1;
                }
                let about = format!("seed {seed}, {percent} % in bursts of {burst}");
                let spans = truth.spans(|position| lost[position]);
                is_true(&truth, &spans, &about);
                let there = lost.iter().filter(|lost| !**lost).count() as f64 / lost.len() as f64;
                let found = ranked(&spans, 1.0 / there);
                for function in 0..FUNCTIONS {
                    let (count, total_ns, self_ns) = truth.function(function);
                    let Some(found) = found.get(&function) else { continue };
                    let about = format!("{about}, function {function}: {found:?}");
                    assert!(found.count <= count && found.total_ns <= total_ns && found.self_ns <= self_ns, "{about}");
                    if percent == 0 {
                        assert_eq!((found.count, found.total_ns, found.self_ns), (count, total_ns, self_ns), "{about}");
                        assert_eq!((found.untimed, found.unsure_ns), (0, 0), "{about}");
                    }
                    // Those of a burst share their fate.
                    let error = 6.0 * (count as f64 * (1.0 - there) * burst as f64 / there).sqrt();
                    assert!((found.estimate - count as f64).abs() <= error + 0.5, "{about}: {count} ± {error}");
                }
            }
        }
    }
}

/// What is told of parts of a trace comes to no more than what was so there, and where nothing is missing to just that.
#[test]
fn the_parts_of_a_trace_come_to_the_whole() {
    for seed in 0..6 {
        let mut random = Random(seed);
        let truth = Truth::new(&mut random, 4_000);
        let end = truth.calls.iter().map(|call| call.end).max().unwrap_or(0);
        let mut cuts: Vec<u64> = (0..4).map(|_| random.below(end)).chain([0, u64::MAX]).collect();
        cuts.sort_unstable();
        for percent in [0, 20] {
            let lost: Vec<bool> = truth.events.iter().map(|_| random.below(100) < percent).collect();
            let spans = truth.spans(|position| lost[position]);
            let mut sums: HashMap<u64, (u64, u64)> = HashMap::new();
            for window in cuts.windows(2) {
                let (from, to) = (window[0], window[1]);
                let filter = Filter::between(from, to);
                let (mut ranking, mut tree) = (Ranking::default(), CallTree::new(Grouping::Threads));
                for span in &spans {
                    match filter.share(span, true) {
                        Share::Counts(span) => {
                            tree.add(&span);
                            if span.kind == SpanKind::Frame {
                                ranking.add(&span, 1.0);
                            }
                        }
                        Share::Hidden(span) => {
                            tree.pass(&span);
                            ranking.pass(&span);
                        }
                        Share::None => {}
                    }
                }
                tree.finish();
                let in_tree: u64 = tree.roots().map(|(_, root)| root.total_ns()).sum();
                assert!(
                    in_tree <= to.min(end).saturating_sub(from),
                    "seed {seed}, {percent} %: {from}..{to}: {in_tree}"
                );
                for (what, found) in ranking.finish(false, true) {
                    let What::Function(FunctionId(function)) = what else { panic!("{what:?}") };
                    let ran = truth.calls.iter().filter(|call| {
                        call.path.last() == Some(&function)
                            && call.start < to
                            && (call.end > from || call.start >= from)
                    });
                    let about = format!("seed {seed}, {percent} %, function {function} in {from}..{to}");
                    let ran = ran.count() as u64;
                    assert!(
                        found.count <= ran && (percent > 0 || found.count == ran),
                        "{about}: {} {ran}",
                        found.count
                    );
                    let (total, own) = sums.entry(function).or_default();
                    (*total, *own) = (*total + found.total_ns, *own + found.self_ns);
                }
            }
            for (function, found) in sums {
                let (_, total_ns, self_ns) = truth.function(function);
                let about =
                    format!("seed {seed}, {percent} %, function {function}: {found:?}, not {total_ns} {self_ns}");
                assert!(found.0 <= total_ns && found.1 <= self_ns, "{about}");
                assert!(percent > 0 || found == (total_ns, self_ns), "{about}");
            }
        }
    }
}
