use codec::{Position, StreamId, SubstreamId, span::SpanId};

use super::*;
use crate::spans_for_tests::{frame, named, tell};

fn folded(spans: &[Span], grouping: Grouping) -> String {
    let mut bytes = Vec::new();
    tell(&mut FoldedSink::new(&mut bytes).by(grouping), spans);
    String::from_utf8(bytes).expect("it is text")
}

fn called(name: &str, position: u64, parent: Option<u64>, start: u64, end: u64) -> Span {
    let parent = parent.map(|parent| SpanId::new(StreamId(0), Position(parent)));
    Span { parent, ..named(frame(0, position, start, end), name) }
}

#[test]
fn a_line_has_the_stack_and_the_time_of_its_last_function_alone() {
    let spans = [
        called("leaf", 2, Some(1), 10, 20),
        called("leaf", 3, Some(1), 20, 25),
        called("work", 1, Some(0), 5, 30),
        called("main", 0, None, 0, 100),
    ];
    let expected = "main [7];main 75\nmain [7];main;work 10\nmain [7];main;work;leaf 15\n";
    assert_eq!(folded(&spans, Grouping::Threads), expected);
}

#[test]
fn a_name_cannot_break_a_line() {
    let spans = [called("a;b\n9", 0, None, 0, 3)];
    assert_eq!(folded(&spans, Grouping::Threads), "main [7];a:b 9 3\n");
}

#[test]
fn tasks_have_stacks_of_their_own_if_asked() {
    let spans = [Span { substream: SubstreamId(0xab), ..called("step", 0, None, 0, 3) }, called("f", 1, None, 3, 4)];
    assert_eq!(folded(&spans, Grouping::Tasks), "main [7];f 1\ntask 0xab;step 3\n");
}

#[test]
fn what_is_very_deep_counts_for_the_deepest_that_is_written() {
    let spans: Vec<Span> = (0..2000).rev().map(|at| called("f", at, at.checked_sub(1), at, 5000 - at)).collect();
    let text = folded(&spans, Grouping::Threads);
    assert_eq!(text.lines().count(), MOST_FRAMES);
    let times = text.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    assert_eq!(times.sum::<u64>(), 5000);
}
