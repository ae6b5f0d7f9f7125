//! An event as a line, for people or as JSON.

use answers::{seconds, trace::Trace};
use codec::{
    EventKind, Position, SessionNs, StreamId,
    atf::GapEntry,
    profile::{FunctionEvent, Message},
    span::What,
};
use sinks::{Gap, KnownName, Line, NameCache};

use crate::offline::{
    printable,
    screen::{Screen, Style},
};

/// Writes lines.
pub(super) struct Lines<'a> {
    trace: &'a Trace,
    session: String,
    /// What lines of JSON start with, if they are to be that.
    json: Option<Vec<u8>>,
    names: NameCache,
    screen: Screen,
}

impl<'a> Lines<'a> {
    pub(super) fn new(trace: &'a Trace, json: bool) -> Self {
        let session = trace.name();
        let json = json.then(|| Line::start_of_events(&session));
        Self { trace, session, json, names: NameCache::new(), screen: Screen::of_stdout() }
    }

    /// What an event is called: by its function, or by its description.
    pub(super) fn name(&mut self, message: &Message<'_>) -> &KnownName {
        let (what, at) = match message {
            Message::Function(FunctionEvent { function: Some(function), stamp, .. }) => {
                (What::Function(*function), stamp.end)
            }
            Message::Function(event) => (What::Address(event.ip.unwrap_or(0)), event.stamp.end),
            Message::Runtime(event) => (What::Named(event.function.into()), event.stamp.end),
            Message::Event(event) => (What::Named(event.description.into()), event.stamp.end),
            _ => (What::Unknown, SessionNs(0)),
        };
        self.names.name(&self.trace.catalog, &what, at)
    }

    pub(super) fn event(&mut self, out: &mut Vec<u8>, stream: StreamId, position: Position, message: &Message<'_>) {
        let (catalog, added_ns) = (&self.trace.catalog, self.trace.added_ns);
        if let Some(start) = &self.json {
            return Line::event(out, start, (stream, position.0), message, (catalog, &mut self.names), added_ns);
        }
        let (stamp, kind, depth, attributes) = match message {
            Message::Function(event) => (event.stamp, event.kind, event.depth, event.extra),
            Message::Runtime(event) => (event.stamp, event.phase, 0, event.keys),
            Message::Event(event) => (event.stamp, EventKind::Call, 0, event.attributes),
            _ => return,
        };
        let arrow = match kind {
            EventKind::Call => "→",
            EventKind::Return => "←",
            EventKind::Exception => "⇐",
        };
        let time = seconds(stamp.end.0.saturating_add(added_ns));
        let indent = usize::try_from(depth).unwrap_or(0).min(40) * 2;
        let name = printable(&self.name(message).pretty);
        let head = format!("{time:>16}  {:>4}  {:indent$}{arrow} ", stream.0, "");
        let attributes = match attributes.is_empty() {
            true => String::new(),
            false => format!(" {}", printable(&Line::of_attributes(attributes))),
        };
        out.extend_from_slice(self.screen.line(&head, &name, &attributes, Style::Dim).as_bytes());
        out.push(b'\n');
    }

    pub(super) fn gap(&self, out: &mut Vec<u8>, gap: &GapEntry) {
        if self.json.is_some() {
            let (stream, first, cause) = (StreamId(gap.thread), Position(gap.first), gap.cause.as_str().into());
            return Line::gap(out, &self.session, &Gap { stream, first, count: gap.count, cause });
        }
        let cause = printable(&gap.cause);
        let tail = format!("… {} events missing: {cause}", gap.count);
        let head = format!("{:>16}  {:>4}  ", "", gap.thread);
        out.extend_from_slice(self.screen.line(&head, "", &tail, Style::Alarm).as_bytes());
        out.push(b'\n');
    }
}
