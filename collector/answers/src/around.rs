//! What ran at one moment.

use std::collections::HashMap;

use codec::{
    SessionNs, StreamId,
    span::{Span, SpanKind},
};

use super::filter::known_end;

/// The spans that were open at one moment.
#[derive(Debug)]
pub struct Around {
    at: SessionNs,
    open: Vec<Span>,
    /// Those whose ends are missing, by thread: they were open until events are missing there, as far as anybody knows.
    lost: HashMap<StreamId, Vec<Span>>,
    /// Where events of a thread are missing last, before that moment.
    gaps: HashMap<StreamId, SessionNs>,
}

impl Around {
    /// None yet.
    pub fn new(at: SessionNs) -> Self {
        Self { at, open: Vec::new(), lost: HashMap::new(), gaps: HashMap::new() }
    }

    /// Looks at a span, and keeps it if it is wanted and was open then.
    pub fn add(&mut self, span: &Span, is_wanted: impl FnOnce(&Span) -> bool) {
        if span.kind == SpanKind::Gap && span.start <= self.at {
            let last = self.gaps.entry(span.stream).or_default();
            *last = span.start.max(*last);
            let last = *last;
            if let Some(lost) = self.lost.get_mut(&span.stream) {
                lost.retain(|span| span.start > last);
            }
        }
        let is_open = span.start <= self.at && known_end(span).is_none_or(|end| end > self.at || span.start == self.at);
        if !is_open || !is_wanted(span) {
            return;
        }
        match (span.has_lost_its_end(), self.gaps.get(&span.stream)) {
            (false, _) => self.open.push(span.clone()),
            (true, Some(last)) if span.start <= *last => {}
            (true, _) => self.lost.entry(span.stream).or_default().push(span.clone()),
        }
    }

    /// All of them by thread, the outermost first.
    pub fn finish(self) -> Vec<Span> {
        let mut open = self.open;
        open.extend(self.lost.into_values().flatten());
        open.sort_by_key(|span| (span.stream, span.start, span.depth, span.id));
        open
    }
}

#[cfg(test)]
mod tests {
    use codec::{
        Position,
        span::{Reason, SpanId},
    };

    use super::*;

    fn span(stream: u32, kind: SpanKind, start: u64, end: Option<u64>) -> Span {
        let id = SpanId::new(StreamId(stream), Position(start));
        Span::new(id, kind, SessionNs(start), end.map(SessionNs))
    }

    #[test]
    fn what_was_open_is_told_from_outside_in() {
        let mut around = Around::new(SessionNs(50));
        let frame = |start, end| span(1, SpanKind::Frame, start, end);
        let lost = |start| Span { reason: Some(Reason::Gap), ..frame(start, None) };
        for span in [
            frame(40, Some(50)),
            frame(45, Some(60)),
            frame(50, Some(50)),
            frame(51, Some(60)),
            frame(2, Some(70)),
            // One that was entered before events were missing may have ended there, one behind them not.
            lost(3),
            span(1, SpanKind::Gap, 10, Some(20)),
            lost(30),
            frame(1, None),
            span(0, SpanKind::Frame, 9, Some(99)),
        ] {
            around.add(&span, |_| true);
        }
        let found: Vec<_> = around.finish().iter().map(|span| (span.stream.0, span.start.0)).collect();
        assert_eq!(found, [(0, 9), (1, 1), (1, 2), (1, 30), (1, 45), (1, 50)]);
    }
}
