//! One line of JSON, written by hand: a serializer would need a value of each event first.

use std::io::Write;

use codec::{
    SessionNs, StreamId,
    heph::{Attributes, Event, Stamp, Value},
    profile::{FunctionEvent, Message, Registers, RuntimeEvent},
    span::{More, Span, SpanId, SpanKind, SpanStatus},
    text::printable_json,
};

use crate::{Catalog, Ended, Gap, KnownName, NameCache, Session, source_of};

const HEX: [u8; 16] = *b"0123456789abcdef";

/// A line that is being written: the object is open, and something is in it.
#[derive(Debug)]
pub struct Line<'b> {
    to: &'b mut Vec<u8>,
}

impl<'b> Line<'b> {
    /// What a session is.
    pub(crate) fn session(to: &'b mut Vec<u8>, session: &Session) {
        let mut line = Self::start(to, "session", &session.name);
        let catalog = session.catalog();
        let process = catalog.session();
        if let Some(id) = process.map(|process| process.id).or(session.id) {
            line.text("id", &id.to_string());
        }
        line.text("source", &session.source);
        line.number("seen_unix_ns", session.seen_unix_ns);
        if let Some(process) = process {
            line.number("pid", process.pid.into());
            line.text("host", &process.host);
            line.text("arch", process.arch.name());
            line.text("os", process.os.name());
            line.text("executable", &process.executable);
        }
        if let Some(birth) = catalog.birth() {
            line.text("parent", &birth.parent.to_string());
            line.text("birth", birth.how.name());
            if birth.tid != 0 {
                line.number("parent_tid", birth.tid.into());
            }
            line.number("birth_ns", birth.at.0);
        }
        line.close();
    }

    /// How a session ended.
    pub(crate) fn end(to: &'b mut Vec<u8>, session: &Session, ended: &Ended) {
        let mut line = Self::start(to, "end", &session.name);
        line.text("how", &ended.end.how);
        if let Some(code) = ended.end.code {
            line.name("code");
            line.integer(code);
        }
        if let Some(at) = ended.end.at_ns {
            let zero_ns = session.catalog().clock().map_or(0, |clock| clock.zero_ns);
            line.number("at_ns", at.saturating_sub(zero_ns));
        }
        line.close();
    }

    /// Starts a line of this type of a session.
    fn start(to: &'b mut Vec<u8>, kind: &str, session: &str) -> Self {
        to.extend_from_slice(b"{\"type\":");
        let mut line = Self { to };
        line.quoted(kind);
        line.text("session", session);
        line
    }

    /// Ends the line.
    fn close(self) {
        self.to.extend_from_slice(b"}\n");
    }

    /// Adds a text.
    fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        self.quoted(value);
    }

    /// Adds a number.
    #[inline(always)]
    fn number(&mut self, name: &str, value: u64) {
        put(self.to, [b",\"", name.as_bytes(), b"\":", itoa::Buffer::new().format(value).as_bytes()]);
    }

    /// The names are ours, and need no escapes.
    #[inline]
    fn name(&mut self, name: &str) {
        put(self.to, [b",\"", name.as_bytes(), b"\":"]);
    }

    fn quoted(&mut self, text: &str) {
        if quote_plain(self.to, text) {
            return;
        }
        if text.bytes().all(|byte| byte < 0x7f) {
            let _ = serde_json::to_writer(&mut *self.to, text);
        } else {
            let json = serde_json::to_string(text).unwrap_or_default();
            self.to.extend_from_slice(printable_json(&json).as_bytes());
        }
    }

    fn integer(&mut self, value: impl itoa::Integer) {
        self.to.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    fn list<T>(&mut self, values: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut Self, T)) {
        self.to.push(b'[');
        for (at, value) in values.into_iter().enumerate() {
            if at > 0 {
                self.to.push(b',');
            }
            write(self, value);
        }
        self.to.push(b']');
    }

    fn float(&mut self, value: f64) {
        if value.is_finite() {
            // Nothing that is written to memory fails.
            let _ = serde_json::to_writer(&mut *self.to, &value);
        } else {
            let _ = write!(self.to, "\"{value}\"");
        }
    }
}

/// Events and gaps.
impl Line<'_> {
    /// What is missing.
    pub fn gap(to: &mut Vec<u8>, session: &str, gap: &Gap) {
        let mut line = Line::start(to, "gap", session);
        line.number("stream", gap.stream.0.into());
        line.number("position", gap.first.0);
        line.number("count", gap.count);
        line.text("cause", gap.cause.as_str());
        line.close();
    }

    /// What all events of a session start with.
    pub fn start_of_events(session: &str) -> Vec<u8> {
        Line::start_of("event", session)
    }

    /// What all spans of a session start with.
    pub fn start_of_spans(session: &str) -> Vec<u8> {
        Line::start_of("span", session)
    }

    fn start_of(kind: &str, session: &str) -> Vec<u8> {
        let mut start = Vec::new();
        Line::start(&mut start, kind, session);
        start
    }

    /// An event, with `added_ns` added to its times. What is no event leaves no line.
    pub fn event(
        to: &mut Vec<u8>,
        start: &[u8],
        (stream, position): (StreamId, u64),
        message: &Message<'_>,
        (catalog, names): (&Catalog, &mut NameCache),
        added_ns: u64,
    ) {
        let (stamp, kind) = match message {
            Message::Function(event) => (&event.stamp, event.kind.description()),
            Message::Runtime(event) => (&event.stamp, "runtime"),
            Message::Event(event) => (&event.stamp, "event"),
            Message::Run(_) | Message::Option(_) | Message::Metadata(_) | Message::BadOption { .. } => return,
        };
        to.extend_from_slice(start);
        let mut line = Line { to };
        line.number("stream", stream.0.into());
        line.number("position", position);
        line.stamp(stamp, added_ns);
        line.name("kind");
        line.quoted(kind);
        match message {
            Message::Function(event) => line.function(event, catalog, names),
            Message::Runtime(event) => line.runtime(event),
            Message::Event(Event { description, attributes, .. }) => {
                line.text("description", description);
                line.attributes(*attributes);
            }
            _ => {}
        }
        line.close();
    }

    fn stamp(&mut self, stamp: &Stamp, added_ns: u64) {
        if stamp.substream.0 != 0 {
            self.number("substream", stamp.substream.0);
        }
        self.number("start_ns", stamp.start.0.saturating_add(added_ns));
        self.number("end_ns", stamp.end.0.saturating_add(added_ns));
    }

    /// Adds what something is called.
    fn known(&mut self, name: &KnownName) {
        let part = name.json.get_or_init(|| {
            let mut part = Vec::new();
            let mut line = Line { to: &mut part };
            line.text("function", &name.pretty);
            if let Some(raw) = name.raw.as_deref().filter(|raw| *raw != &*name.pretty) {
                line.text("symbol", raw);
            }
            if let Some(module) = &name.module {
                line.text("module", module);
            }
            part.into()
        });
        self.to.extend_from_slice(part);
    }

    /// Adds where it begins in its sources, if that is known.
    fn source(&mut self, source: Option<(&str, u32)>) {
        if let Some((file, line)) = source {
            self.text("source", &format!("{file}:{line}"));
        }
    }

    fn function(&mut self, event: &FunctionEvent<'_>, catalog: &Catalog, names: &mut NameCache) {
        if let Some(function) = event.function {
            self.known(names.function(catalog, function));
            self.source(catalog.source(function));
            self.name("fn");
            let _ = write!(self.to, "\"{function}\"");
        }
        if let Some(ip) = event.ip {
            self.number("ip", ip);
        }
        self.number("depth", event.depth.into());
        if let Some(detail) = &event.detail {
            self.detail(detail.registers(), detail.stack().iter().flat_map(u64::to_le_bytes));
        }
        self.attributes(event.extra);
    }

    /// Adds registers, and the bytes of a stack unless there are none.
    fn detail(&mut self, registers: Registers, stack: impl IntoIterator<Item = u8>) {
        self.name("registers");
        self.list(registers.to_words(), |line, word| line.integer(word));
        let mut stack = stack.into_iter().peekable();
        if stack.peek().is_some() {
            self.name("stack");
            self.to.push(b'"');
            self.to.extend(stack.flat_map(|byte| [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]));
            self.to.push(b'"');
        }
    }

    fn runtime(&mut self, event: &RuntimeEvent<'_>) {
        self.text("function", event.function);
        self.text("phase", event.phase.description());
        self.attributes(event.keys);
    }

    /// Adds attributes, unless there are none.
    fn attributes(&mut self, attributes: Attributes<'_>) {
        if attributes.iter().next().is_some() {
            self.name("attributes");
            self.object(attributes);
        }
    }

    /// Attributes as an object that stands alone.
    pub fn of_attributes(attributes: Attributes<'_>) -> String {
        let mut to = Vec::new();
        Line { to: &mut to }.object(attributes);
        String::from_utf8(to).unwrap_or_default()
    }

    fn object(&mut self, attributes: Attributes<'_>) {
        self.to.push(b'{');
        for (at, attribute) in attributes.iter().enumerate() {
            if at > 0 {
                self.to.push(b',');
            }
            self.quoted(attribute.name);
            self.to.push(b':');
            self.value(&attribute.value);
        }
        self.to.push(b'}');
    }

    fn value(&mut self, value: &Value<'_>) {
        match *value {
            Value::U64(value) => self.integer(value),
            Value::I64(value) => self.integer(value),
            Value::F64(value) => self.float(value),
            Value::Str(value) => self.quoted(value),
            Value::U64s(values) => self.list(values.iter(), |line, value| line.integer(value)),
            Value::I64s(values) => self.list(values.iter(), |line, value| line.integer(value)),
            Value::F64s(values) => self.list(values.iter(), |line, value| line.float(value)),
            Value::Strs(values) => self.list(values.iter(), |line, value| line.quoted(value)),
        }
    }
}

/// Writes pieces one after another. Those that are known when this is compiled are copied without a call.
#[inline(always)]
fn put<const N: usize>(to: &mut Vec<u8>, pieces: [&[u8]; N]) {
    pieces.iter().for_each(|piece| to.extend_from_slice(piece));
}

/// Writes a text that needs no escapes in JSON, as most names do not, and tells whether it did.
pub(crate) fn quote_plain(to: &mut Vec<u8>, text: &str) -> bool {
    let is_plain =
        text.bytes().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~') & (byte != b'"') & (byte != b'\\'));
    if is_plain {
        to.push(b'"');
        to.extend_from_slice(text.as_bytes());
        to.push(b'"');
    }
    is_plain
}

/// Writes the line of a span, which starts like all of its session. What a span does not have is left out.
pub fn span_line(to: &mut Vec<u8>, start: &[u8], catalog: &Catalog, names: &mut NameCache, span: &Span) {
    to.extend_from_slice(start);
    let mut line = Line { to };
    line.id("id", Some(span.id));
    match (span.kind, span.status) {
        // Nearly all are so.
        (SpanKind::Frame, SpanStatus::Matched) => {
            line.to.extend_from_slice(br#","kind":"frame","runtime":"native","status":"matched""#);
        }
        (kind, status) => {
            line.word("kind", kind.name());
            line.word("runtime", kind.runtime().name());
            line.word("status", status.name());
        }
    }
    if let Some(reason) = span.reason {
        line.word("reason", reason.name());
    }
    line.known(names.of(catalog, span));
    line.source(source_of(catalog, span));
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

/// Spans.
impl Line<'_> {
    /// Spans that could not be written.
    pub(crate) fn lost_spans(to: &mut Vec<u8>, session: &str, spans: u64) {
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
        self.maybe("executor", more.executor);
        self.maybe("resumer", stream(more.resumer));
        self.id("resumed_by", more.resumed_by);
        self.maybe("level", Some(more.level.into()).filter(|level| *level > 0));
        self.maybe("resumed_ns", time(more.resumed));
        if let Some(cause) = &more.cause {
            self.text("cause", cause);
        }
    }

    #[inline(always)]
    fn maybe(&mut self, name: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.number(name, value);
        }
    }

    #[inline(always)]
    fn id(&mut self, name: &str, id: Option<SpanId>) {
        if let Some(id) = id {
            let text = &mut [0; SpanId::MOST_TEXT];
            put(self.to, [b",\"", name.as_bytes(), b"\":\"", id.ascii(text), b"\""]);
        }
    }

    /// A word of ours, which needs no escapes.
    #[inline]
    fn word(&mut self, name: &str, word: &str) {
        put(self.to, [b",\"", name.as_bytes(), b"\":\"", word.as_bytes(), b"\""]);
    }
}
