use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io,
};

use codec::{
    Counter, EventKind, FunctionId, SessionNs, SubstreamId,
    heph::{Attributes, Stamp},
    profile::{FunctionEvent, Message},
    span::{Span, SpanFlags},
};
use collector_core::spans::SpanConfig;

use super::{
    arrange::{Arranging, Settled},
    contexts::Node,
    gather::{Gathered, Source},
    *,
};
use crate::{
    filter::{Filter, Wanted},
    loss::Loss,
    scene::{Random, Scene},
    spanning,
    top::{self, Ranking},
    turned_down::TurnedDown,
};

pub(crate) fn event(kind: EventKind, function: u64, depth: usize, (start, end): (u64, u64)) -> Message<'static> {
    let (start, end) = (SessionNs(start), SessionNs(end));
    let stamp = Stamp { stream: StreamId(0), counter: Counter(0), substream: SubstreamId(0), start, end };
    let (function, depth) = (Some(FunctionId(function)), u32::try_from(depth).expect("small"));
    let extra = Attributes::default();
    Message::Function(FunctionEvent { stamp, kind, function, ip: None, depth, detail: None, extra })
}

/// A session of two threads that call at random, some of whose events are lost.
fn session(seed: u64, events: u64, loss: u64) -> Scene {
    let (mut random, mut scene) = (Random(seed), Scene::new());
    for stream in 0..2 {
        let (mut now, mut stack) = (random.below(100), Vec::new());
        for _ in 0..events {
            now += seed % 2 * random.below(4) * random.below(20) + (1 - seed % 2) * (1 + random.below(60));
            let is_call = stack.len() < 2 || stack.len() < 9 && random.below(2) == 0;
            let message = if is_call {
                stack.push((random.below(6), now));
                let (function, start) = stack[stack.len() - 1];
                event(EventKind::Call, function, stack.len() - 1, (start, start))
            } else {
                let (function, start) = stack.pop().expect("there is one");
                event(EventKind::Return, function, stack.len(), (start, now))
            };
            if loss > 0 && random.below(loss) == 0 {
                scene.lose(stream, 1);
            } else {
                scene.send(stream, message);
            }
        }
    }
    scene.end();
    scene
}

fn spans(trace: &Trace) -> Vec<Span> {
    let mut all = Vec::new();
    let engine = spanning::engine(trace, SpanConfig::default());
    spanning::spans(trace, engine, |spans| {
        all.extend_from_slice(spans);
        Ok(())
    })
    .expect("it can be read");
    all
}

pub(super) fn make(trace: &Trace) -> Overview {
    Overview::make(trace, SpanConfig::default(), &mut |_| Ok(())).expect("it is made")
}

/// What `collector top` says, and what the overview says of the whole time.
fn compare(scene: &Scene) -> Overview {
    let trace = Trace::open(&scene.folder()).expect("it is there");
    let mut ranking = Ranking::new(TurnedDown::of(&trace.catalog));
    spans(&trace).iter().filter(|span| span.kind == SpanKind::Frame).for_each(|span| ranking.add(span, 1.0));
    let made = make(&trace);
    let overview = Overview::open(&trace).expect("it can be read").expect("it is beside the session");
    assert_eq!(made.directory(), overview.directory());
    let sums = overview.sums(0, u64::MAX, None).expect("it can be read");
    let found: HashMap<_, _> =
        sums.top(&overview).into_iter().map(|(what, sum)| (overview.whats()[what as usize].0.clone(), sum)).collect();
    let mut functions = 0;
    for (what, function) in ranking.finish(false, false) {
        let sum = found[&what];
        let max_ns = function.calls.max();
        let said = (function.count, function.untimed, function.total_ns, function.self_ns, function.unsure_ns, max_ns);
        assert_eq!(said, (sum.count, sum.untimed, sum.total_ns, sum.self_ns, sum.unsure_ns, sum.max_ns), "{what:?}");
        functions += 1;
    }
    assert_eq!(functions, found.len());
    overview
}

#[test]
fn it_says_what_top_says() {
    for seed in 0..20 {
        compare(&session(seed, 1 + seed * 37, 0));
    }
    compare(&session(77, 30_000, 0));
}

#[test]
fn it_says_what_top_says_where_events_are_missing() {
    for seed in 0..60 {
        compare(&session(seed, 300, 5 + seed));
    }
}

#[test]
fn parts_of_the_time_come_to_the_whole() {
    let scene = session(5, 30_000, 0);
    let overview = compare(&scene);
    let (first, last) = overview.range();
    let totals = |from, to| {
        let mut totals: HashMap<u32, (u64, u64)> = HashMap::new();
        for (node, sum) in overview.sums(from, to, None).expect("it can be read").nodes {
            totals.insert(node, (sum.total_ns, sum.self_ns));
        }
        totals
    };
    let (whole, mut random) = (totals(first, last + 1), Random(1));
    for _ in 0..10 {
        let mut cuts: Vec<u64> = (0..3).map(|_| first + random.below(last - first)).collect();
        cuts.extend([first, last + 1]);
        cuts.sort_unstable();
        let mut together: HashMap<u32, (u64, u64)> = HashMap::new();
        for part in cuts.windows(2) {
            for (node, (total, own)) in totals(part[0], part[1]) {
                let sum = together.entry(node).or_default();
                *sum = (sum.0 + total, sum.1 + own);
            }
        }
        together.retain(|_, sum| *sum != (0, 0));
        let mut whole = whole.clone();
        whole.retain(|_, sum| *sum != (0, 0));
        // What never ended took as long as what it called, which is rounded where it is cut.
        let ended = |node: &u32| !overview.special.iter().any(|special| special.context == *node);
        whole.retain(|node, _| ended(node));
        together.retain(|node, _| ended(node));
        assert_eq!(together, whole);
    }
}

#[test]
fn every_span_is_drawn_where_it_is_or_folded_with_its_neighbours() {
    let scene = session(9, 20_000, 40);
    let trace = Trace::open(&scene.folder()).expect("it is there");
    let overview = compare(&scene);
    let frames: Vec<Span> = spans(&trace).into_iter().filter(|span| span.kind == SpanKind::Frame).collect();
    let (first, last) = overview.range();
    let mut random = Random(3);
    for step in [1, 2, 64, 1000, 50_000, last] {
        let (mut drawn, mut busy) = (0, 0);
        for row in 0..u32::try_from(overview.rows().len()).expect("few") {
            let slices = overview.boxes(row, 0, u64::MAX, step).expect("it can be read");
            drawn += slices.iter().map(|slice| u64::from(slice.count)).sum::<u64>();
            busy += slices.iter().map(|slice| slice.busy).sum::<u64>();
            for pair in slices.windows(2).filter(|pair| pair[0].depth == pair[1].depth) {
                assert!(pair[0].end <= pair[1].start, "they are in order: {pair:?}");
                let steps = pair.iter().map(|slice| slice.start / step).collect::<Vec<_>>();
                let is_folded = |slice: &Slice| slice.end - slice.start < step;
                assert!(steps[0] != steps[1] || !is_folded(&pair[0]) || !is_folded(&pair[1]), "{step} {pair:?}");
            }
        }
        assert_eq!(drawn, frames.len() as u64 - overview.cut(), "each once, at {step} ns");
        let took = frames.iter().filter(|span| span.end.is_some() && !span.flags.has(SpanFlags::NO_CALL));
        assert!(busy >= took.filter_map(Span::duration).sum::<u64>());
        // A part shows what the whole does there.
        let from = first + random.below(last - first);
        let to = from + random.below(5000);
        let part = overview.boxes(0, from, to, 1).expect("it can be read");
        let mut whole = overview.boxes(0, 0, u64::MAX, 1).expect("it can be read");
        whole.retain(|slice| slice.end >= from && slice.start < to);
        assert_eq!(part, whole);
    }
}

#[test]
fn calls_are_found_in_both_directions() {
    let scene = session(4, 9_000, 0);
    let overview = compare(&scene);
    let wanted = |number: u32| overview.whats()[number as usize].0 == What::Function(FunctionId(3));
    let mut starts: Vec<u64> = Vec::new();
    for row in 0..2 {
        let slices = overview.boxes(row, 0, u64::MAX, 1).expect("it can be read");
        let is_it = |slice: &&Slice| wanted(overview.node(slice.node).expect("it is there").what);
        starts.extend(slices.iter().filter(is_it).map(|slice| slice.start));
    }
    starts.sort_unstable();
    starts.dedup();
    let mut found = Vec::new();
    let mut from = 0;
    while let Some((_, slice)) = overview.find(&wanted, from, true, None).expect("it can be read") {
        found.push(slice.start);
        from = slice.start;
    }
    assert!(found.iter().eq(starts.iter().filter(|start| **start > 0)));
    let mut back = Vec::new();
    let mut from = u64::MAX;
    while let Some((_, slice)) = overview.find(&wanted, from, false, None).expect("it can be read") {
        back.push(slice.start);
        from = slice.start;
    }
    back.reverse();
    assert!(back == starts);
}

#[test]
fn one_that_is_damaged_or_of_other_events_is_made_again() {
    let scene = session(6, 500, 0);
    let trace = Trace::open(&scene.folder()).expect("it is there");
    make(&trace);
    let path = scene.folder().join(sinks::disk::OVERVIEW);
    let whole = std::fs::read(&path).expect("it is there");
    for length in [0, 7, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).expect("there is room");
        assert!(Overview::open(&trace).expect("no error").is_none(), "{length} bytes of it");
    }
    let mut random = Random(8);
    for _ in 0..2000 {
        let mut changed = whole.clone();
        let at = usize::try_from(random.below(whole.len() as u64)).expect("small");
        changed[at] ^= 1 << random.below(8);
        std::fs::write(&path, &changed).expect("there is room");
        // What is changed in the slices is not noticed, but harms nobody.
        if let Some(overview) = Overview::open(&trace).expect("no error") {
            let _ = overview.boxes(0, 0, u64::MAX, 1 + random.below(500));
            let _ = overview.sums(random.below(100), random.below(9000), None).map(|sums| sums.tree(&overview));
        }
    }
    std::fs::write(&path, &whole).expect("there is room");
    let mut other = Trace::open(&scene.folder()).expect("it is there");
    assert!(Overview::open(&other).expect("no error").is_some());
    other.manifest.time_end_ns += 1;
    assert!(Overview::open(&other).expect("no error").is_none(), "the session went on");
    assert!(!scene.folder().join(format!("{}.partial", sinks::disk::OVERVIEW)).exists());
}

#[test]
fn callers_and_callees_add_up() {
    let scene = session(2, 5_000, 0);
    let overview = compare(&scene);
    let sums = overview.sums(0, u64::MAX, None).expect("it can be read");
    for (what, top) in sums.top(&overview) {
        for tree in [sums.callers(&overview, what), sums.callees(&overview, what)] {
            let root = tree[0];
            assert_eq!((root.what, root.parent), (what, None));
            assert_eq!(root.sum.total_ns, top.total_ns);
            assert!(
                tree.iter().enumerate().skip(1).all(|(place, node)| node.parent.is_some_and(|parent| parent < place))
            );
        }
        assert_eq!(sums.callers(&overview, what)[0].sum.count, top.count);
    }
}

#[test]
fn one_call_is_found_by_when_it_was_and_by_its_place() {
    // Where times differ, depth and time tell which one it is.
    let scene = session(8, 3_000, 30);
    let trace = Trace::open(&scene.folder()).expect("it is there");
    let mut found = 0;
    for span in spans(&trace).iter().filter(|span| span.kind == SpanKind::Frame) {
        if span.flags.has(SpanFlags::NO_CALL) {
            continue;
        }
        let call = trace.call_at(span.stream, span.start.0, span.depth).expect("it can be read").expect("it is there");
        assert_eq!(call.position, span.id.position());
        assert_eq!(trace.event_of(span.stream, call.position).expect("it can be read"), Some(call));
        found += 1;
    }
    assert!(found > 1_000);
    let gap = trace.manifest.gaps.first().expect("some are missing");
    let missing = codec::Position(gap.first);
    assert_eq!(trace.event_of(StreamId(gap.thread), missing).expect("it can be read"), None);
    assert_eq!(trace.event_of(StreamId(0), codec::Position(u64::MAX)).expect("it can be read"), None);
    assert_eq!(trace.call_at(StreamId(77), 0, 0).expect("it can be read"), None);
}

#[test]
fn a_part_of_the_time_is_what_top_says_of_it() {
    let mut sure = 0;
    for (seed, lost) in [(11, 0), (12, 0), (13, 60), (14, 25), (15, 3_000), (16, 6_000), (17, 9_000)] {
        let scene = session(seed, 12_000, lost);
        let overview = compare(&scene);
        let trace = Trace::open(&scene.folder()).expect("it is there");
        let (first, last) = overview.range();
        let (mut random, mut names) = (Random(seed), sinks::NameCache::new());
        for _ in 0..12 {
            let from = first + random.below(last - first);
            // Short ones have no gap in them where few are lost.
            let most = if lost > 1_000 { (last - from) / 16 + 1 } else { last - from };
            let to = from + 1 + random.below(most);
            let moment = |ns| Some(codec::quantity::Moment(std::time::Duration::from_nanos(ns)));
            let wanted = Wanted { from: moment(from), to: moment(to), ..Wanted::default() };
            let filter = Filter::new(&trace, &wanted).expect("it can be");
            let (config, runtime, loss) = (SpanConfig::default(), SpanRuntime::Native, Loss::of(&trace));
            let rows = top::rows(&trace, config, runtime, &filter, &loss).expect("it can be read");
            let of_row = |row: &top::Row| {
                let function = &row.function;
                let times = (function.total_ns, function.self_ns, function.calls.max());
                (row.name.clone(), (function.count, times))
            };
            let said: BTreeMap<_, _> = rows.iter().map(of_row).collect();
            let sums = overview.sums(from, to, None).expect("it can be read");
            let mut of_sum = |(what, sum): (u32, Sum)| {
                let name = names.name(&trace.catalog, &overview.whats()[what as usize].0, SessionNs(0));
                let times = (sum.total_ns, sum.self_ns, sum.max_ns);
                (name.pretty.to_string(), (sum.count, times))
            };
            let found: BTreeMap<_, _> = sums.top(&overview).into_iter().map(&mut of_sum).collect();
            if lost == 0 || !overview.is_doubtful(from, to) {
                assert_eq!(found, said, "from {from} to {to}");
                sure += u32::from(lost > 0);
                continue;
            }
            if lost > 1_000 {
                continue;
            }
            // Who has called what is cut off by the range and by gaps is not known exactly.
            assert!(found.keys().eq(said.keys()), "{found:?} {said:?}");
            for ((_, (total, own, _)), (_, said)) in found.values().zip(said.values()) {
                let is_near = |a: u64, b: u64, part: u64| a.abs_diff(b) <= 100 + b / part;
                assert!(
                    is_near(*total, said.0, 20) && is_near(*own, said.1, 4),
                    "{total} {own} {said:?}: from {from} to {to}"
                );
            }
        }
    }
    assert!(sure > 0, "there are parts that no gap matters to");
}

#[test]
fn frames_that_are_told_of_late_stay_where_they_were_called() {
    let scene = session(2, 4_000, 0);
    let trace = Trace::open(&scene.folder()).expect("it is there");
    let is_wanted = |span: &Span| span.stream == StreamId(0) && span.kind == SpanKind::Frame && span.end.is_some();
    let mut all: Vec<_> = spans(&trace).into_iter().filter(is_wanted).collect();
    let arranged = |all: &[Span]| {
        let mut options = std::fs::File::options();
        let path = scene.folder().join("gathered");
        let file = options.read(true).write(true).create(true).truncate(true).open(path).expect("a file");
        let mut gathered = Gathered::new(file);
        all.iter().for_each(|span| assert!(gathered.add(span, u64::MAX).is_ok()));
        let mut arranging = Arranging::new(io::sink());
        let mut settled = Settled::default();
        let source = Source::Thread(StreamId(0));
        arranging.rows(&gathered, source, &mut settled, &[], None).expect("they find their places");
        assert_eq!(settled.lanes.len(), 1, "there is one stack");
        // Who called whom.
        let nodes = &arranging.contexts.nodes;
        let what = |node: &Node| gathered.whats[node.what as usize].0.clone();
        let mut paths: Vec<Vec<What>> = Vec::new();
        for node in nodes {
            let mut path = node.parent.map_or_else(Vec::new, |parent| paths[parent as usize].clone());
            path.push(what(node));
            paths.push(path);
        }
        paths.into_iter().collect::<HashSet<_>>()
    };
    let in_order = arranged(&all);
    // One of ten is told of when the others have been, its callers and what came later among them.
    all.chunks_mut(10).for_each(|some| some.rotate_left(1));
    assert!(arranged(&all) == in_order, "who called whom does not depend on the order");
}
