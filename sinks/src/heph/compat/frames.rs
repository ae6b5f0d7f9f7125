//! The events of a session as Heph's own converter can show them.

use std::{borrow::Cow, collections::HashMap};

use codec::{
    Counter, EventKind, SessionNs, StreamId, SubstreamId,
    heph::{Attribute, Attributes, Encode, Event, Stamp, Value},
    profile::{FunctionEvent, Message},
    span::What,
    text::shorten,
};

use crate::{Budget, Catalog, NameCache};

/// The converter fails on packets that are larger, where they lie at the end of what it has read.
const MOST_PACKET_BYTES: usize = 128;
/// What a packet has before its description.
const HEAD_BYTES: usize = 42;
/// What an open call is taken to need.
const OPEN_BYTES: u64 = 80;

/// Makes one event of each call of a function: named by the function, from its entry to its return.
///
/// The converter counts in microseconds, and moves an event that starts in the same one as another on its stream to the
/// left or to the right, until it finds room, which may take for ever. So each call gets a microsecond of its own, if
/// need be a later one. What begins before others that are written already may still share one; that is moved to the
/// left only, since nothing ends before what was written earlier.
#[derive(Debug)]
pub(super) struct Frames {
    streams: HashMap<StreamId, Stream>,
    names: NameCache,
    budget: Budget,
}

#[derive(Debug, Default)]
struct Stream {
    /// The microsecond after the last that something started in.
    free_us: u64,
    /// When the last event that was written ended.
    end_us: u64,
    /// How many were written.
    count: u32,
    /// The calls that have not returned, the innermost last.
    open: Vec<Open>,
}

/// A call that has not returned.
#[derive(Debug)]
struct Open {
    depth: u32,
    start: SessionNs,
    start_us: u64,
    substream: SubstreamId,
    what: What,
}

impl Frames {
    pub(super) fn new(budget: &Budget) -> Self {
        Self { streams: HashMap::new(), names: NameCache::within(budget.share()), budget: budget.share() }
    }

    /// Writes what ends with an event of this stream.
    pub(super) fn event(&mut self, stream: StreamId, message: &Message<'_>, catalog: &Catalog, out: &mut Vec<u8>) {
        let (stamp, description, attributes) = match message {
            Message::Function(event) => return self.function(stream, event, catalog, out),
            Message::Runtime(event) => (event.stamp, event.function, event.keys),
            Message::Event(event) => (event.stamp, event.description, event.attributes),
            Message::Run(_) | Message::Option(_) | Message::Metadata(_) | Message::BadOption { .. } => return,
        };
        let of = self.streams.entry(stream).or_default();
        let (start_us, end_us) = (stamp.start.0 / 1000, stamp.end.0 / 1000);
        let start_us = if start_us >= of.free_us || start_us >= end_us { of.take(start_us) } else { start_us };
        of.write(stream, stamp.substream, (start_us, end_us), description, attributes, out);
    }

    fn function(&mut self, stream: StreamId, event: &FunctionEvent<'_>, catalog: &Catalog, out: &mut Vec<u8>) {
        let what = match (event.function, event.ip) {
            (Some(function), _) => What::Function(function),
            (None, Some(address)) => What::Address(address),
            (None, None) => What::Unknown,
        };
        let FunctionEvent { stamp, depth, .. } = *event;
        let is_call = event.kind == EventKind::Call;
        let is_its_own = |open: &Open| !is_call && (open.depth, open.start) == (depth, stamp.start);
        let of = self.streams.entry(stream).or_default();
        // Of what ended in a tail call, or was hooked at its entry only, there is no return.
        while let Some(open) = of.open.pop_if(|open| open.depth >= depth && !is_its_own(open)) {
            self.budget.release(OPEN_BYTES);
            let at_us = of.take(stamp.end.0 / 1000);
            let name = &self.names.name(catalog, &open.what, open.start).pretty;
            of.write(stream, open.substream, (at_us, at_us), name, Attributes::default(), out);
        }
        if is_call {
            let start_us = of.take(stamp.start.0 / 1000);
            if self.budget.take(OPEN_BYTES) {
                of.open.push(Open { depth, start: stamp.start, start_us, substream: stamp.substream, what });
            }
            return;
        }
        let start_us = match of.open.pop_if(|open| is_its_own(open)) {
            Some(open) => {
                self.budget.release(OPEN_BYTES);
                open.start_us
            }
            None if stamp.start.0 / 1000 >= of.free_us => of.take(stamp.start.0 / 1000),
            None => stamp.start.0 / 1000,
        };
        let name = &self.names.name(catalog, &what, stamp.start).pretty;
        let end_us = (stamp.end.0 / 1000).max(of.free_us.saturating_sub(1));
        of.write(stream, stamp.substream, (start_us, end_us), name, event.extra, out);
    }

    /// Writes the calls that have not returned, until the end of their stream.
    pub(super) fn finish(&mut self, catalog: &Catalog, out: &mut Vec<u8>) {
        for (stream, of) in &mut self.streams {
            let end_us = of.end_us.max(of.free_us.saturating_sub(1));
            while let Some(open) = of.open.pop() {
                self.budget.release(OPEN_BYTES);
                let name = &self.names.name(catalog, &open.what, open.start).pretty;
                of.write(*stream, open.substream, (open.start_us, end_us), name, Attributes::default(), out);
            }
        }
    }
}

impl Stream {
    /// A microsecond that nothing has started in: this one or a later one.
    fn take(&mut self, wanted_us: u64) -> u64 {
        let start_us = wanted_us.max(self.free_us).max(self.end_us);
        self.free_us = start_us.saturating_add(1);
        start_us
    }

    fn write(
        &mut self,
        stream: StreamId,
        substream: SubstreamId,
        (start_us, end_us): (u64, u64),
        description: &str,
        attributes: Attributes<'_>,
        out: &mut Vec<u8>,
    ) {
        self.end_us = self.end_us.max(end_us).max(start_us);
        let time = |us: u64| SessionNs(us.saturating_mul(1000));
        let (start, end) = (time(start_us), time(self.end_us));
        let stamp = Stamp { stream, counter: Counter(self.count), substream, start, end };
        self.count = self.count.wrapping_add(1);
        let description = shorten(description, MOST_PACKET_BYTES - HEAD_BYTES);
        let description = unquoted(&description);
        let mut left = MOST_PACKET_BYTES.saturating_sub(HEAD_BYTES).saturating_sub(description.len());
        let mut fits = |attribute: &Attribute<'_>| {
            let bytes = bytes_of(attribute).filter(|bytes| *bytes <= left);
            left -= bytes.unwrap_or(0);
            bytes.is_some()
        };
        let mut texts = Vec::new();
        for Attribute { name, value } in attributes.iter().filter(|attribute| fits(attribute)) {
            let text = if let Value::Str(text) = value { unquoted(text) } else { Cow::default() };
            texts.push((unquoted(name), value, text));
        }
        let attributes: Vec<_> = texts
            .iter()
            .map(|(name, value, text)| Attribute {
                name,
                value: if matches!(value, Value::Str(_)) { Value::Str(text) } else { *value },
            })
            .collect();
        // It is small enough.
        let _ = Event { stamp, description: &description, attributes: attributes.as_slice().into() }.encode(out);
    }
}

/// What an attribute takes, if the converter can read it.
fn bytes_of(attribute: &Attribute<'_>) -> Option<usize> {
    let value = match attribute.value {
        Value::U64(_) | Value::I64(_) => 8,
        Value::F64(value) if value.is_finite() => 8,
        Value::Str(text) => text.len().saturating_add(2),
        _ => return None,
    };
    Some(attribute.name.len().saturating_add(3).saturating_add(value))
}

/// A text that can stand in quotes: the converter writes it into JSON as it is.
fn unquoted(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| !c.is_control() && c != '"' && c != '\\';
    if text.chars().all(is_plain) {
        return text.into();
    }
    text.chars()
        .map(|c| {
            if is_plain(c) {
                c
            } else if c == '"' {
                '\''
            } else {
                ' '
            }
        })
        .collect()
}
