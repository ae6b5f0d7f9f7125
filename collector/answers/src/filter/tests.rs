use codec::{
    FunctionId, Position, SubstreamId,
    span::{Reason, SpanId, What},
};

use super::*;

fn frame(start: u64, end: Option<u64>) -> Span {
    let id = SpanId::new(StreamId(3), Position(start));
    let what = What::Function(FunctionId(1));
    Span { what, depth: 2, ..Span::new(id, SpanKind::Frame, SessionNs(start), end.map(SessionNs)) }
}

fn filter(change: impl FnOnce(&mut Filter)) -> Filter {
    let mut filter = Filter::between(0, u64::MAX);
    change(&mut filter);
    filter
}

/// Whether it counts, and from when to when.
fn share(filter: &Filter, span: &Span) -> Option<(bool, u64, Option<u64>)> {
    let times = |span: &Span| (span.start.0, span.end.map(|end| end.0));
    match filter.share(span, false) {
        Share::Counts(span) => Some((true, times(&span).0, times(&span).1)),
        Share::Hidden(span) => Some((false, times(&span).0, times(&span).1)),
        Share::None => None,
    }
}

#[test]
fn only_the_part_inside_counts() {
    let window = filter(|filter| (filter.from, filter.to) = (100, 200));
    assert_eq!(share(&window, &frame(0, Some(100))), None, "it ended when the time began");
    assert_eq!(share(&window, &frame(0, Some(101))), Some((true, 100, Some(101))));
    assert_eq!(share(&window, &frame(150, Some(160))), Some((true, 150, Some(160))));
    assert_eq!(share(&window, &frame(0, Some(900))), Some((true, 100, Some(200))));
    assert_eq!(share(&window, &frame(100, Some(100))), Some((true, 100, Some(100))), "it takes no time");
    assert_eq!(share(&window, &frame(200, Some(300))), None);
    assert_eq!(share(&window, &frame(0, None)), Some((true, 100, None)), "what has not ended goes on");
    let lost = Span { reason: Some(Reason::Gap), ..frame(0, None) };
    assert_eq!(share(&window, &lost), Some((false, 100, None)), "it may have ended before");
    let lost = Span { start: SessionNs(120), ..lost };
    assert_eq!(share(&window, &lost), Some((true, 120, None)));
    assert!(window.has_span(&frame(0, Some(101))) && !window.has_span(&frame(0, Some(100))));
}

#[test]
fn what_is_too_brief_or_too_deep_is_hidden() {
    let long = filter(|filter| filter.min_duration_ns = 50);
    assert_eq!(share(&long, &frame(0, Some(49))), Some((false, 0, Some(49))));
    assert_eq!(share(&long, &frame(0, Some(50))), Some((true, 0, Some(50))));
    assert_eq!(share(&long, &frame(0, None)), Some((true, 0, None)));
    let shallow = filter(|filter| filter.depth = Some(2));
    assert_eq!(share(&shallow, &frame(0, Some(1))), Some((false, 0, Some(1))));
    assert!(matches!(shallow.share(&frame(0, Some(1)), true), Share::Counts(_)), "a tree counts by itself");
    // The whole call decides, also where only a part of it is inside.
    let both = filter(|filter| (filter.to, filter.min_duration_ns) = (10, 50));
    assert_eq!(share(&both, &frame(0, Some(50))), Some((true, 0, Some(10))));
}

#[test]
fn other_threads_and_tasks_have_no_part() {
    let other = filter(|filter| filter.threads = Some([StreamId(4)].into()));
    assert_eq!(share(&other, &frame(0, Some(1))), None);
    let task = filter(|filter| filter.task = Some(7));
    assert_eq!(share(&task, &frame(0, Some(1))), None);
    let of_task = Span { substream: SubstreamId(7), ..frame(0, Some(1)) };
    assert_eq!(share(&task, &of_task), Some((true, 0, Some(1))));
    let gap = Span { kind: SpanKind::Gap, ..frame(0, Some(1)) };
    assert_eq!(share(&task, &gap), Some((true, 0, Some(1))), "what is missing is told of everything");
}

#[test]
fn gaps_are_asked_for_where_nobody_asks_what_ran() {
    assert!(filter(|_| {}).has_gaps() && !filter(|_| {}).is_any());
    assert!(filter(|filter| filter.from = 1).has_gaps());
    assert!(!filter(|filter| filter.function = Some(Glob::new("f"))).has_gaps());
    assert!(!filter(|filter| filter.task = Some(1)).has_gaps());
}
