//! Events that have a start and an end of their own, as any plain Heph trace has them.
//!
//! Of two events of one stream and substream, the one that lies within the other was caused by it. An event is told
//! when it has ended, so those within it have come before it: they wait for it, and it takes them in.

use std::collections::HashMap;

use codec::{
    Position, StreamId, SubstreamId,
    heph::Event,
    span::{Span, SpanId, SpanKind, What},
};

use super::out::Out;

/// How many events wait on one substream, and how many substreams of one stream have any: whatever waits longer has no
/// parent.
const MOST_WAITING: usize = 4096;
const MOST_SUBSTREAMS: usize = 1024;

/// The events of one stream that wait for one that they lie within.
#[derive(Debug, Clone, Default)]
pub(super) struct Plain {
    waiting: HashMap<SubstreamId, Vec<Span>>,
}

impl Plain {
    pub(super) fn event(&mut self, stream: StreamId, position: Position, event: &Event<'_>, out: &mut Out) {
        let (substream, start, end) = (event.stamp.substream, event.stamp.start, event.stamp.end);
        let id = SpanId::new(stream, position);
        let what = What::Named(out.name(event.description));
        // A sender whose clock went backward meant a moment.
        let span = Span { what, substream, ..Span::new(id, SpanKind::Event, start, Some(end.max(start))) };
        let is_crowded = self.waiting.len() >= MOST_SUBSTREAMS && !self.waiting.contains_key(&substream);
        if is_crowded || out.is_full() {
            self.finish(out);
        }
        let waiting = self.waiting.entry(substream).or_default();
        let within = |other: &Span| other.start >= start && other.end <= Some(end);
        while let Some(mut inner) = waiting.pop_if(|last| within(last)) {
            inner.parent = Some(id);
            out.gone(weight(&inner));
            out.made(inner);
        }
        // What ended long ago is not kept from those who want to see it.
        let long_ago = end.0.saturating_sub(out.timeout_ns());
        let is_old = |span: &Span| span.end.is_some_and(|end| end.0 < long_ago);
        let old = waiting.iter().take_while(|span| is_old(span)).count();
        let crowded = if waiting.len() >= MOST_WAITING { MOST_WAITING / 2 } else { 0 };
        for span in waiting.drain(..old.max(crowded).min(waiting.len())) {
            out.gone(weight(&span));
            out.made(span);
        }
        out.opened(weight(&span));
        waiting.push(span);
    }

    /// Nothing more comes.
    pub(super) fn finish(&mut self, out: &mut Out) {
        let mut all: Vec<Span> = std::mem::take(&mut self.waiting).into_values().flatten().collect();
        all.sort_by_key(|span| span.id);
        for span in all {
            out.gone(weight(&span));
            out.made(span);
        }
    }
}

/// How many spans take as much room as this one: descriptions can be long.
fn weight(span: &Span) -> u64 {
    const ROOM: usize = 256;
    let named = if let What::Named(name) = &span.what { name.len() / ROOM } else { 0 };
    (named as u64).saturating_add(1)
}
