//! Lines of events and gaps.

use std::io::Write;

use codec::{
    StreamId,
    heph::{Attributes, Event, Stamp, Value},
    profile::{FunctionEvent, Message, RuntimeEvent},
};

use crate::{Catalog, Gap, Session, line::Line};

const HEX: [u8; 16] = *b"0123456789abcdef";

impl<'b> Line<'b> {
    /// What is missing.
    pub(crate) fn gap(to: &'b mut Vec<u8>, session: &Session, gap: &Gap) {
        let mut line = Self::start(to, "gap", &session.name);
        line.number("stream", gap.stream.0.into());
        line.number("position", gap.first.0);
        line.number("count", gap.count);
        line.text("cause", gap.cause.as_str());
        line.close();
    }

    /// What all events of a session start with.
    pub(crate) fn start_of_events(session: &Session) -> Vec<u8> {
        let mut start = Vec::new();
        Line::start(&mut start, "event", &session.name);
        start
    }

    /// An event. What is no event leaves no line.
    pub(crate) fn event(
        to: &'b mut Vec<u8>,
        start: &[u8],
        stream: StreamId,
        position: u64,
        message: &Message<'_>,
        catalog: &Catalog,
    ) {
        let (stamp, kind) = match message {
            Message::Function(event) => (&event.stamp, event.kind.description()),
            Message::Runtime(event) => (&event.stamp, "runtime"),
            Message::Event(event) => (&event.stamp, "event"),
            Message::Run(_) | Message::Option(_) | Message::Metadata(_) | Message::BadOption { .. } => return,
        };
        to.extend_from_slice(start);
        let mut line = Self { to };
        line.number("stream", stream.0.into());
        line.number("position", position);
        line.stamp(stamp);
        line.name("kind");
        line.quoted(kind);
        match message {
            Message::Function(event) => line.function(event, catalog),
            Message::Runtime(event) => line.runtime(event),
            Message::Event(Event { description, attributes, .. }) => {
                line.text("description", description);
                line.attributes(*attributes);
            }
            _ => {}
        }
        line.close();
    }

    fn stamp(&mut self, stamp: &Stamp) {
        if stamp.substream.0 != 0 {
            self.number("substream", stamp.substream.0);
        }
        self.number("start_ns", stamp.start.0);
        self.number("end_ns", stamp.end.0);
    }

    fn function(&mut self, event: &FunctionEvent<'_>, catalog: &Catalog) {
        if let Some(function) = event.function {
            if let Some(name) = catalog.function_name(function) {
                self.text("function", name);
            }
            if let Some(path) = catalog.module_path(function.module()) {
                self.text("module", path);
            }
            self.name("fn");
            let _ = write!(self.to, "\"{function}\"");
        }
        if let Some(ip) = event.ip {
            self.number("ip", ip);
        }
        self.number("depth", event.depth.into());
        if let Some(detail) = &event.detail {
            self.name("registers");
            self.list(detail.registers().to_words(), |line, word| line.integer(word));
            if !detail.stack().is_empty() {
                self.name("stack");
                self.to.push(b'"');
                let digits = |byte: u8| [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                self.to.extend(detail.stack().iter().flat_map(u64::to_le_bytes).flat_map(digits));
                self.to.push(b'"');
            }
        }
        self.attributes(event.extra);
    }

    fn runtime(&mut self, event: &RuntimeEvent<'_>) {
        self.text("function", event.function);
        self.text("phase", event.phase.description());
        self.attributes(event.keys);
    }

    fn attributes(&mut self, attributes: Attributes<'_>) {
        let mut separator: &[u8] = b",\"attributes\":{";
        for attribute in attributes {
            self.to.extend_from_slice(separator);
            separator = b",";
            self.quoted(attribute.name);
            self.to.push(b':');
            self.value(&attribute.value);
        }
        if separator == b"," {
            self.to.push(b'}');
        }
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
