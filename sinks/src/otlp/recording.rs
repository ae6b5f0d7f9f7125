//! One session on its way to a receiver: which of its spans are exported, and what they are in.

use std::{collections::BTreeMap, sync::Arc};

use ahash::HashMap;
use codec::{
    SessionNs, StreamId,
    span::{Ending, Reason, Span, SpanId, SpanKind, SpanStatus},
};

use super::{
    ids::Identity,
    message::{SpanMessage, Value},
};
use crate::{
    Budget, Catalog, Ended, NameCache, Session, file_name,
    open_spans::OpenSpans,
    picture::{Note, notes},
    source_of,
};

/// How many gaps of a thread are told one by one.
const MOST_GAPS: usize = 128;

/// How many frames are awaited that others are in. There are as many as stacks are deep.
const MOST_AWAITED: usize = 1 << 18;

/// A session that goes on.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) session: Arc<Session>,
    pub(super) identity: Identity,
    /// The session's zero, in nanoseconds since the Unix epoch by the clock of the traced machine.
    zero_unix_ns: u64,
    open: OpenSpans,
    names: NameCache,
    threads: BTreeMap<StreamId, ThreadTimes>,
    /// Frames that exported ones are in, and how long these went on: they are exported too, however brief.
    awaited: HashMap<SpanId, SessionNs>,
    first: Option<SessionNs>,
    last: SessionNs,
    /// The spans that are to be sent next.
    pub(super) waiting: Waiting,
}

/// Spans that are to be sent, encoded.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) bytes: Vec<u8>,
    pub(super) spans: u64,
}

impl Waiting {
    pub(super) fn add(&mut self, message: SpanMessage, parent: Option<[u8; 8]>) {
        message.write(parent, &mut self.bytes);
        self.spans += 1;
    }
}

/// What is seen of a thread.
#[derive(Debug, Default)]
struct ThreadTimes {
    first: Option<SessionNs>,
    last: SessionNs,
    /// Whether a span names it as its parent.
    is_named: bool,
    /// Its span, where its creation was seen.
    span: Option<SpanId>,
    gaps: Vec<GapEvent>,
    /// How many events are missing, in gaps that no span tells of yet.
    missing: u64,
}

/// Events that are missing.
#[derive(Debug)]
struct GapEvent {
    start: SessionNs,
    end: SessionNs,
    count: u64,
    cause: Box<str>,
}

/// A frame that was exported.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exported {
    pub(super) id: SpanId,
    pub(super) stream: StreamId,
    pub(super) start: SessionNs,
    pub(super) end: SessionNs,
}

impl Recording {
    pub(super) fn new(session: &Arc<Session>, catalog: &Catalog, budget: &Budget) -> Self {
        Self {
            session: Arc::clone(session),
            identity: Identity::of(session, catalog),
            zero_unix_ns: catalog.epoch().map_or(session.seen_unix_ns, |epoch| epoch.unix_ns),
            open: OpenSpans::within(budget.share()),
            names: NameCache::within(budget.share()),
            threads: BTreeMap::new(),
            awaited: HashMap::default(),
            first: None,
            last: SessionNs(0),
            waiting: Waiting::default(),
        }
    }

    fn unix(&self, at: SessionNs) -> u64 {
        self.zero_unix_ns.saturating_add(at.0)
    }

    /// Takes note of when something was.
    pub(super) fn see(&mut self, span: &Span) {
        let end = span.end.unwrap_or(span.start).max(span.start);
        let thread = self.threads.entry(span.stream).or_default();
        thread.first = Some(thread.first.map_or(span.start, |first| first.min(span.start)));
        thread.last = thread.last.max(end);
        self.first = Some(self.first.map_or(span.start, |first| first.min(span.start)));
        self.last = self.last.max(end);
    }

    /// Takes a span, and tells which frame was exported. Of one that is only told to be open the end is awaited; what of
    /// those there is no memory for comes when it ends.
    pub(super) fn add(&mut self, catalog: &Catalog, span: &Span, min_ns: u64) -> Option<Exported> {
        match (span.kind, span.status) {
            (SpanKind::Gap, _) => self.gap(span),
            (_, SpanStatus::Open) => _ = self.open.open(span),
            _ => {
                self.open.close(span);
                return self.close(catalog, span, min_ns);
            }
        }
        None
    }

    fn gap(&mut self, span: &Span) {
        let thread = self.threads.entry(span.stream).or_default();
        let count = span.key().unwrap_or(0);
        thread.missing = thread.missing.saturating_add(count);
        if thread.gaps.len() < MOST_GAPS {
            let cause = span.more.as_ref().and_then(|more| more.cause.as_deref()).unwrap_or_default().into();
            thread.gaps.push(GapEvent { start: span.start, end: span.end.unwrap_or(span.start), count, cause });
        }
    }

    /// A span comes for the last time.
    fn close(&mut self, catalog: &Catalog, span: &Span, min_ns: u64) -> Option<Exported> {
        let is_frame = matches!(span.kind, SpanKind::Frame | SpanKind::Event);
        let inner = if is_frame { self.awaited.remove(&span.id) } else { None };
        let end = self.end_of(span, inner);
        let is_long = end.is_some_and(|end| end.0.saturating_sub(span.start.0) >= min_ns);
        if is_frame && !is_long && !span.is_named && inner.is_none() {
            return None;
        }
        let end = end.or(inner).unwrap_or(span.start).max(span.start);
        let parent = self.parent_of(span, end);
        let message = self.message(catalog, span, end);
        self.waiting.add(message, Some(parent));
        is_frame.then_some(Exported { id: span.id, stream: span.stream, start: span.start, end })
    }

    /// When a span ended. What ended with its thread or with the trace went on for as long as those; of what has lost
    /// its end only this is known, that it went on for as long as what is in it.
    fn end_of(&self, span: &Span, inner: Option<SessionNs>) -> Option<SessionNs> {
        match (span.end, span.reason) {
            (Some(end), _) => Some(end),
            (None, Some(Reason::ThreadExit)) => self.threads.get(&span.stream).map(|thread| thread.last),
            (None, Some(Reason::ProcessExit | Reason::Crash | Reason::Timeout)) => Some(self.last),
            (None, None) if span.status == SpanStatus::Open => Some(self.last),
            _ => inner,
        }
    }

    /// What a span is in: of the code of a logical span that one, of what nothing is known to have called its thread, of
    /// what nothing is known to have created the process.
    fn parent_of(&mut self, span: &Span, end: SessionNs) -> [u8; 8] {
        if !matches!(span.kind, SpanKind::Frame | SpanKind::Event) {
            return span.parent.map_or_else(|| self.identity.process(), |parent| self.identity.span(parent));
        }
        match (span.twin, span.parent) {
            (Some(logical), _) => self.identity.span(logical),
            (None, Some(parent)) => {
                let is_known = self.awaited.contains_key(&parent);
                if span.kind == SpanKind::Frame && (is_known || self.awaited.len() < MOST_AWAITED) {
                    let last = self.awaited.entry(parent).or_insert(end);
                    *last = end.max(*last);
                }
                self.identity.span(parent)
            }
            (None, None) => self.name_thread(span.stream),
        }
    }

    /// The span of a thread that is the parent of another.
    pub(super) fn name_thread(&mut self, stream: StreamId) -> [u8; 8] {
        self.threads.entry(stream).or_default().is_named = true;
        self.identity.thread(stream)
    }

    fn message(&mut self, catalog: &Catalog, span: &Span, end: SessionNs) -> SpanMessage {
        let (start, finish) = (self.unix(span.start), self.unix(end));
        let name = self.names.name(catalog, &span.what, span.start).clone();
        let mut message = SpanMessage::new(&self.identity, self.identity.span(span.id), &name.pretty, start, finish);
        message.attribute("spoor.kind", span.kind.name()).attribute("spoor.id", span.id.to_string());
        if !matches!(span.kind, SpanKind::Group | SpanKind::Event) {
            message.attribute("code.function.name", &*name.pretty);
        }
        if let Some(module) = &name.module {
            message.attribute("spoor.module", &**module);
        }
        if let Some((file, line)) = source_of(catalog, span) {
            message.attribute("code.file.path", file).attribute("code.line.number", u64::from(line));
        }
        thread_attributes(&mut message, catalog, span.stream);
        notes(span, |name, note| {
            let name = format!("spoor.{name}");
            match note {
                Note::Number(number) => message.attribute(&name, number),
                Note::Address(address) => message.attribute(&name, format!("{address:#x}")),
                Note::Text(text) => message.attribute(&name, Value::Text(text)),
            };
        });
        let more = span.more.as_deref();
        let causes =
            [("created_by", more.and_then(|more| more.origin)), ("resumed_by", more.and_then(|more| more.resumed_by))];
        for (why, cause) in causes {
            cause.into_iter().for_each(|cause| message.link(self.identity.trace, self.identity.span(cause), why));
        }
        if more.is_some_and(|more| more.ending == Some(Ending::Failed)) {
            message.error("it ended with an error");
        }
        if span.kind == SpanKind::Thread
            && let Some(thread) = self.threads.get_mut(&span.stream)
        {
            thread.span = Some(span.id);
            tell_gaps(&mut message, thread, self.zero_unix_ns);
        }
        message
    }

    /// The session has ended: what is open ends with it, and its threads and its process are told. The last one waits for
    /// its parent.
    pub(super) fn finish(
        &mut self,
        session: &Session,
        catalog: &Catalog,
        ended: &Ended,
        min_ns: u64,
    ) -> (SpanMessage, Vec<Exported>) {
        let left = self.open.finish();
        left.iter().for_each(|span| self.see(span));
        let exported = left.iter().filter_map(|span| self.close(catalog, span, min_ns)).collect();
        let missing: u64 = self.threads.values().map(|thread| thread.missing).sum();
        for (stream, mut thread) in std::mem::take(&mut self.threads) {
            if !thread.is_named && thread.missing == 0 {
                continue;
            }
            let known = catalog.thread(stream);
            // The agent sees later than the thread that it has ended.
            let start = thread.first.or(known.map(|known| known.start)).unwrap_or(self.last);
            let end = thread.last.max(start);
            (self.first, self.last) = (Some(self.first.map_or(start, |first| first.min(start))), self.last.max(end));
            let name = known.map(|known| &*known.name).filter(|name| !name.is_empty());
            let name = name.map_or_else(|| format!("thread {}", stream.0), str::to_owned);
            let (start, end) = (self.unix(start), self.unix(end));
            let mut message = SpanMessage::new(&self.identity, self.identity.thread(stream), &name, start, end);
            message.attribute("spoor.kind", "thread");
            thread_attributes(&mut message, catalog, stream);
            tell_gaps(&mut message, &mut thread, self.zero_unix_ns);
            let parent = thread.span.map_or_else(|| self.identity.process(), |span| self.identity.span(span));
            self.waiting.add(message, Some(parent));
        }
        (self.process(session, catalog, ended, missing), exported)
    }

    fn process(&self, session: &Session, catalog: &Catalog, ended: &Ended, missing: u64) -> SpanMessage {
        let zero = catalog.clock().map_or(0, |clock| clock.zero_ns);
        let end = ended.end.at_ns.map_or(self.last, |at| SessionNs(at.saturating_sub(zero))).max(self.last);
        let start = self.first.unwrap_or(end).min(end);
        let name = catalog.session().map_or(&*session.name, |process| file_name(&process.executable));
        let (start, end) = (self.unix(start), self.unix(end));
        let mut message = SpanMessage::new(&self.identity, self.identity.process(), name, start, end);
        message.attribute("spoor.kind", "process").attribute("spoor.session", session.name.as_str());
        message.attribute("spoor.end", ended.end.how.as_str());
        if missing > 0 {
            message.attribute("spoor.missing_events", missing);
        }
        if let Some(birth) = catalog.birth() {
            message.attribute("spoor.birth", birth.how.name());
        }
        match (ended.end.how.as_str(), ended.end.code) {
            ("exited", Some(code)) => _ = message.attribute("process.exit.code", u64::from(code.unsigned_abs())),
            ("signaled", Some(signal)) => message.error(&format!("it was ended by signal {signal}")),
            _ => {}
        }
        if let Some(offset) = catalog.offset() {
            let offset_ns = i128::from(offset.zero_unix_ns) - i128::from(self.zero_unix_ns);
            message.attribute("spoor.clock_offset_ns", offset_ns.to_string());
            message.attribute("spoor.clock_error_ns", offset.error_ns);
        }
        message
    }
}

fn thread_attributes(message: &mut SpanMessage, catalog: &Catalog, stream: StreamId) {
    if let Some(thread) = catalog.thread(stream) {
        message.attribute("thread.id", thread.os_id);
        if !thread.name.is_empty() {
            message.attribute("thread.name", &*thread.name);
        }
    }
}

/// Tells of the events that are missing of a thread, each gap once.
fn tell_gaps(message: &mut SpanMessage, thread: &mut ThreadTimes, zero_unix_ns: u64) {
    if thread.missing == 0 {
        return;
    }
    message.attribute("spoor.missing_events", std::mem::take(&mut thread.missing));
    for gap in thread.gaps.drain(..) {
        let attributes = [
            ("spoor.count", Value::from(gap.count)),
            ("spoor.cause", Value::from(&*gap.cause)),
            ("spoor.duration_ns", Value::from(gap.end.0.saturating_sub(gap.start.0))),
        ];
        message.event("gap", zero_unix_ns.saturating_add(gap.start.0), attributes);
    }
}
