use codec::{Position, SessionNs, span::Reason};

use super::*;
use crate::spans_for_tests::{frame, named};

fn tree_of(spans: &[Span], grouping: Grouping) -> CallTree {
    let mut tree = CallTree::new(grouping);
    spans.iter().for_each(|span| tree.add(span));
    tree.finish();
    tree
}

/// Every node as `depth name count total self`.
fn lines(tree: &CallTree) -> Vec<String> {
    let mut lines = Vec::new();
    for (owner, root) in tree.roots() {
        lines.push(format!("{owner:?} {}", root.total_ns()));
        let mut rest: Vec<_> = root.children().into_iter().rev().map(|node| (1, node)).collect();
        while let Some((depth, node)) = rest.pop() {
            let What::Named(name) = node.what() else { panic!("{:?}", node.what()) };
            lines.push(format!("{depth} {name} {} {} {}", node.count(), node.total_ns(), node.self_ns()));
            rest.extend(node.children().into_iter().rev().map(|node| (depth + 1, node)));
        }
    }
    lines
}

/// A frame with a name and an id of its own, in a frame or in none.
fn called(name: &str, position: u64, parent: Option<u64>, start: u64, end: u64) -> Span {
    let parent = parent.map(|parent| SpanId::new(StreamId(0), Position(parent)));
    Span { parent, ..named(frame(0, position, start, end), name) }
}

#[test]
fn calls_from_the_same_place_are_one_node() {
    let spans = [
        called("leaf", 2, Some(1), 10, 20),
        called("work", 1, Some(0), 5, 30),
        called("leaf", 4, Some(3), 40, 60),
        called("other", 5, Some(3), 60, 65),
        called("work", 3, Some(0), 35, 70),
        called("leaf", 6, Some(0), 80, 81),
        called("main", 0, None, 0, 100),
    ];
    let expected = [
        "Thread(StreamId(0)) 100",
        "1 main 1 100 39",
        "2 work 2 60 25",
        "3 leaf 2 30 30",
        "3 other 1 5 5",
        "2 leaf 1 1 1",
    ];
    assert_eq!(lines(&tree_of(&spans, Grouping::Threads)), expected);
}

#[test]
fn what_is_open_at_the_end_ends_there_and_a_notice_counts_once() {
    let open = |span: Span| Span { end: None, status: SpanStatus::Open, ..span };
    let spans = [
        open(called("main", 0, None, 0, 0)),
        open(called("slow", 1, Some(0), 10, 0)),
        open(called("stuck", 2, Some(0), 60, 0)),
        called("slow", 1, Some(0), 10, 50),
        called("inner", 3, Some(2), 70, 100),
    ];
    let expected =
        ["Thread(StreamId(0)) 100", "1 main 1 100 20", "2 slow 1 40 40", "2 stuck 1 40 10", "3 inner 1 30 30"];
    assert_eq!(lines(&tree_of(&spans, Grouping::Threads)), expected);
}

#[test]
fn a_task_has_a_tree_of_its_own_if_asked() {
    let task = |span: Span| Span { substream: SubstreamId(7), ..span };
    let spans = [
        task(called("leaf", 2, Some(1), 20, 30)),
        task(called("step", 1, Some(0), 10, 40)),
        called("idle", 3, Some(0), 50, 60),
        called("worker", 0, None, 0, 100),
        task(called("step", 4, None, 110, 120)),
    ];
    let by_task = [
        "Thread(StreamId(0)) 100",
        "1 worker 1 100 60",
        "2 idle 1 10 10",
        "Task(SubstreamId(7)) 40",
        "1 step 2 40 30",
        "2 leaf 1 10 10",
    ];
    assert_eq!(lines(&tree_of(&spans, Grouping::Tasks)), by_task);
    assert_eq!(lines(&tree_of(&spans, Grouping::Threads))[1..3], ["1 worker 1 100 60", "2 step 1 30 20"]);
}

#[test]
fn what_nobody_is_seen_to_call_is_at_the_root() {
    let spans = [called("lost", 5, Some(4), 10, 20), called("lost", 9, Some(8), 30, 45)];
    assert_eq!(lines(&tree_of(&spans, Grouping::Threads)), ["Thread(StreamId(0)) 25", "1 lost 2 25 25"]);
}

#[test]
fn deep_recursion_does_not_overflow() {
    const DEEP: u64 = 300_000;
    let spans = (0..2).flat_map(|round| {
        let first = round * DEEP;
        (first..first + DEEP).rev().map(move |at| called("f", at, (at > first).then(|| at - 1), at, 4 * DEEP - at))
    });
    let mut tree = CallTree::new(Grouping::Threads);
    spans.for_each(|span| tree.add(&span));
    tree.finish();
    let (_, root) = tree.roots().next().expect("one thread");
    let mut depth = 0;
    let mut at = root.children();
    while let Some(node) = at.first() {
        assert_eq!(node.count(), 2);
        depth += 1;
        at = node.children();
    }
    assert_eq!(depth, DEEP);
}

#[test]
fn too_many_nodes_become_their_callers_own_time() {
    let mut tree = CallTree::new(Grouping::Threads);
    tree.most_nodes = 2000;
    // Many different functions under `big`, which stay; then many under `small`, for which there is no room.
    (0..1990).for_each(|at| tree.add(&called(&format!("f{at}"), 10 + at, Some(1), at, at + 1)));
    tree.add(&called("big", 1, Some(0), 0, 1990));
    (0..20).for_each(|at| tree.add(&called(&format!("g{at}"), 3000 + at, Some(2), 2000 + at, 2001 + at)));
    tree.add(&called("small", 2, Some(0), 2000, 2020));
    tree.add(&called("main", 0, None, 0, 3000));
    tree.finish();
    let lines = lines(&tree);
    assert_eq!(lines[..3], ["Thread(StreamId(0)) 3000", "1 main 1 3000 990", "2 big 1 1990 0"]);
    assert_eq!(lines.len(), 3 + 1990 + 1);
    assert_eq!(lines[lines.len() - 1], "2 small 1 20 20");
    assert_eq!(tree.cut(), 20);
}

#[test]
fn a_span_without_an_end_takes_no_time() {
    let span = Span { end: None, start: SessionNs(5), ..called("f", 0, None, 0, 0) };
    assert_eq!(lines(&tree_of(&[span], Grouping::Threads)), ["Thread(StreamId(0)) 0", "1 f 1 0 0"]);
}

#[test]
fn what_has_no_end_took_as_long_as_what_it_called() {
    let endless = |span| Span { end: None, status: SpanStatus::Unmatched, ..span };
    let spans = [
        called("work", 2, Some(1), 10, 30),
        endless(called("exit", 3, Some(1), 40, 40)),
        endless(called("main", 1, Some(0), 5, 5)),
        endless(called("start", 0, None, 0, 0)),
    ];
    let expected = ["Thread(StreamId(0)) 20", "1 start 1 20 0", "2 main 1 20 0", "3 work 1 20 20", "3 exit 1 0 0"];
    assert_eq!(lines(&tree_of(&spans, Grouping::Threads)), expected);
}

#[test]
fn a_span_is_below_the_one_that_created_it_and_stands_for_the_frame_that_is_its_code() {
    let id = |position| SpanId::new(StreamId(0), Position(position));
    let logical = |kind, name: &str, position, parent: Option<u64>, start, end| Span {
        kind,
        ..called(name, position, parent, start, end)
    };
    let spans = [
        // A block, reported before the thread that submitted it; the frame `code` is what it ran.
        called("leaf", 11, Some(10), 40, 45),
        Span { twin: Some(id(5)), ..called("code", 10, None, 38, 48) },
        logical(SpanKind::Block, "block", 5, Some(1), 30, 50),
        logical(SpanKind::Thread, "thread", 1, None, 0, 100),
        // Calls in a task, before and after it ended.
        Span { substream: SubstreamId(7), ..called("step", 20, None, 60, 70) },
        Span {
            more: Some(Box::new(codec::span::More { key: Some(7), ..Default::default() })),
            ..logical(SpanKind::Task, "task", 2, Some(1), 55, 80)
        },
        Span { substream: SubstreamId(7), ..called("step", 21, None, 75, 80) },
        // A task of which nothing but a call is known.
        Span { substream: SubstreamId(8), ..called("other", 30, None, 90, 91) },
    ];
    let expected = [
        "Thread(StreamId(0)) 100",
        "1 thread 1 100 100",
        "2 task 1 25 25",
        "3 step 2 15 15",
        "2 block 1 20 15",
        "3 leaf 1 5 5",
        "1 task 8 1 0 0",
        "2 other 1 1 1",
    ];
    assert_eq!(lines(&tree_of(&spans, Grouping::Causes)), expected);
}

/// The thread ended when it did, but its code may have called something that is missing.
#[test]
fn what_is_missing_in_the_code_of_a_thread_is_not_its_own_time() {
    let thread_id = SpanId::new(StreamId(0), Position(1));
    let code = |span: Span| Span { twin: Some(thread_id), ..span };
    let whole = called("code", 10, None, 0, 90);
    let lost = code(Span { end: None, reason: Some(Reason::Gap), ..whole.clone() });
    let across = code(Span { flags: SpanFlags::ACROSS_GAP, ..whole });
    let thread = Span { id: thread_id, kind: SpanKind::Thread, ..called("thread", 1, None, 0, 100) };
    for frame in [lost, across] {
        let spans = [called("leaf", 11, Some(10), 40, 45), frame, thread.clone()];
        let expected = ["Thread(StreamId(0)) 100", "1 thread 1 100 0", "2 (missing) 0 95 95", "2 leaf 1 5 5"];
        assert_eq!(lines(&tree_of(&spans, Grouping::Causes)), expected);
    }
}

/// The path of names to each birth, and how well its place is known.
fn births(spans: &[Span], at: &[u64]) -> Vec<(String, BirthPlace)> {
    let mut tree = CallTree::new(Grouping::Causes);
    let numbers: Vec<_> = at.iter().map(|at| tree.find_birth(StreamId(0), SessionNs(*at))).collect();
    spans.iter().for_each(|span| tree.add(span));
    tree.finish();
    let mut paths = vec![String::new(); at.len()];
    let mut rest: Vec<_> = tree.roots().map(|(_, root)| (String::new(), root)).collect();
    while let Some((path, node)) = rest.pop() {
        tree.births_in(&node).iter().for_each(|birth| paths[*birth] = path.clone());
        let below = tree.births_below(&node);
        assert_eq!(tree.leads_to_birth(&node), !below.is_empty());
        for child in node.children() {
            let What::Named(name) = child.what() else { panic!("{:?}", child.what()) };
            rest.push((format!("{path}/{name}"), child));
        }
    }
    numbers.into_iter().map(|number| (paths[number].clone(), tree.birth_place(number))).collect()
}

#[test]
fn a_birth_is_in_the_innermost_call_that_was_open() {
    let open =
        |span: Span| Span { end: None, status: SpanStatus::Unmatched, reason: Some(Reason::ProcessExit), ..span };
    let spans = [
        called("fork", 2, Some(1), 10, 20),
        called("make", 1, Some(0), 5, 30),
        called("fork", 4, Some(3), 40, 60),
        called("make", 3, Some(0), 35, 70),
        // Another thread does not matter, nor does a function of which only the entry is known.
        named(frame(1, 0, 0, 200), "other"),
        Span { reason: Some(Reason::EntryOnly), ..open(called("probe", 5, Some(0), 71, 0)) },
        open(called("execve", 6, Some(0), 90, 0)),
        open(called("main", 0, None, 0, 0)),
    ];
    let found = births(&spans, &[15, 50, 25, 80, 95]);
    let call = |path: &str| (path.to_owned(), BirthPlace::Call);
    // Calls from one place are one node, and what a program ends in is open to the end.
    let expected = ["/main/make/fork", "/main/make/fork", "/main/make", "/main", "/main/execve"];
    assert_eq!(found, expected.map(call));
    assert_eq!(births(&spans[4..5], &[7]), [(String::new(), BirthPlace::NoCall)]);
}

#[test]
fn a_birth_where_events_are_missing_says_so() {
    let gap = |position, start, end| Span { kind: SpanKind::Gap, ..named(frame(0, position, start, end), "gap") };
    let lost = |span: Span| Span { end: None, status: SpanStatus::Unmatched, reason: Some(Reason::Gap), ..span };
    let spans = [
        lost(called("started", 1, Some(0), 10, 0)),
        gap(2, 20, 30),
        called("after", 4, Some(0), 30, 40),
        gap(5, 40, 50),
        called("fork", 6, Some(0), 45, 60),
        called("main", 0, None, 0, 100),
    ];
    let place = |path: &str, place| (path.to_owned(), place);
    assert_eq!(
        births(&spans, &[15, 25, 35, 42, 55]),
        [
            place("/main/started", BirthPlace::Call),
            place("/main", BirthPlace::Inside),
            place("/main/after", BirthPlace::Call),
            place("/main", BirthPlace::Inside),
            place("/main/fork", BirthPlace::Call),
        ]
    );
    assert_eq!(births(&spans[1..2], &[25]), [place("", BirthPlace::Missing)]);
}
