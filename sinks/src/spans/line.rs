//! The line of a span.

use codec::{
    SessionNs, StreamId,
    span::{More, Span, SpanId, SpanKind},
};

use crate::{Catalog, NameCache, line::Line};

/// Writes the line of a span. What a span does not have is left out.
pub fn span_line(to: &mut Vec<u8>, session: &str, catalog: &Catalog, names: &mut NameCache, span: &Span) {
    let mut line = Line::start(to, "span", session);
    line.id("id", Some(span.id));
    line.word("kind", span.kind.name());
    line.word("runtime", span.kind.runtime().name());
    line.word("status", span.status.name());
    if let Some(reason) = span.reason {
        line.word("reason", reason.name());
    }
    let name = names.of(catalog, span);
    line.text("function", &name.pretty);
    if let Some(raw) = name.raw.as_deref().filter(|raw| *raw != &*name.pretty) {
        line.text("symbol", raw);
    }
    if let Some(module) = &name.module {
        line.text("module", module);
    }
    line.maybe("key", span.key());
    line.id("parent", span.parent);
    line.id("twin", span.twin);
    line.number("thread", span.stream.0.into());
    if span.substream.0 != 0 {
        line.number("task", span.substream.0);
    }
    if span.kind == SpanKind::Frame {
        line.number("depth", span.depth.into());
    }
    line.number("start_ns", span.start.0);
    line.maybe("end_ns", span.end.map(|end| end.0));
    line.maybe("duration_ns", span.duration());
    if let Some(more) = &span.more {
        line.more(more, catalog);
    }
    if span.flags.0 != 0 {
        line.name("flags");
        line.list(span.flags.names(), Line::quoted);
    }
    line.close();
}

impl Line<'_> {
    /// Spans that could not be written.
    pub(super) fn lost_spans(to: &mut Vec<u8>, session: &str, spans: u64) {
        let mut line = Line::start(to, "lost", session);
        line.number("spans", spans);
        line.close();
    }

    fn more(&mut self, more: &More, catalog: &Catalog) {
        let time = |time: Option<SessionNs>| time.map(|time| time.0);
        let stream = |stream: Option<StreamId>| stream.map(|stream| stream.0.into());
        if more.threads.len() > 1 {
            self.name("threads");
            self.list(&more.threads, |line, stream| line.integer(stream.0));
        }
        self.maybe("end_thread", stream(more.end_stream));
        self.maybe("created_ns", time(more.created));
        self.maybe("latency_ns", more.latency);
        if more.suspensions > 0 {
            self.number("suspended_ns", more.suspended);
            self.number("suspensions", more.suspensions.into());
        }
        self.maybe("creator", stream(more.creator));
        self.id("origin", more.origin);
        self.maybe("queue", more.queue);
        if let Some(label) = more.queue.and_then(|queue| catalog.queue_label(queue)) {
            self.text("queue_label", label);
        }
        self.maybe("group", more.group);
        self.maybe("joiner", stream(more.joiner));
        self.maybe("join_latency_ns", more.join_latency);
        if let Some(ending) = more.ending {
            self.word("ending", ending.name());
        }
        self.maybe("argument", more.argument);
        self.maybe("result", more.result);
        self.maybe("level", Some(more.level.into()).filter(|level| *level > 0));
        self.maybe("resumed_ns", time(more.resumed));
        if let Some(cause) = &more.cause {
            self.text("cause", cause);
        }
    }

    fn maybe(&mut self, name: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.number(name, value);
        }
    }

    fn id(&mut self, name: &str, id: Option<SpanId>) {
        if let Some(id) = id {
            self.word(name, id.text(&mut [0; SpanId::MOST_TEXT]));
        }
    }

    /// A word of ours, which needs no escapes.
    fn word(&mut self, name: &str, word: &str) {
        self.name(name);
        self.to.push(b'"');
        self.to.extend_from_slice(word.as_bytes());
        self.to.push(b'"');
    }
}
