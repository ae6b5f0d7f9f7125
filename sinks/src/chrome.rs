//! Spans as Chrome trace events: JSON that `chrome://tracing`, Perfetto and speedscope open.

use std::{fs::File, io::Write};

use ahash::HashMap;
use codec::{
    FunctionId, SessionNs, StreamId,
    span::{Span, SpanKind, What},
};

use crate::{
    Budget, Catalog, NameCache, Session,
    family::{BirthPoint, ProcessLabel},
    line::quote_plain,
    nest::{Edge, Step},
    picture::{self, Drawing, Note, Point, StepEncoder, Track},
    source_of,
    view::ViewSink,
};

/// Writes spans as Chrome trace events.
///
/// It is the array form, which viewers accept without its end, after a kill. Times are microseconds with three
/// decimals, by the clock of the traced machine.
pub type ChromeSink<W = File> = ViewSink<Drawing<ChromeEncoder>, W>;

/// What stands for the ids of processes, threads and rows that are not threads.
const UNKNOWN_ID: u64 = 1 << 30;
/// How many functions are remembered whose symbol was written. Beyond that, symbols are written again.
const MOST_SYMBOLS: usize = 1 << 18;

/// What a function takes there beside its name, and what a row takes.
const SYMBOL_BYTES: u64 = 64;
const ROW_BYTES: u64 = 128;

/// Encodes the events of one session.
#[derive(Debug)]
pub struct ChromeEncoder {
    /// The session's number in the file, from 1.
    number: u32,
    zero_ns: Option<u64>,
    pid: u64,
    label: Option<ProcessLabel>,
    /// The ids of rows.
    rows: HashMap<(Track, usize), u64>,
    /// The row that was asked for last: mostly the next is the same.
    last_row: Option<((Track, usize), u64)>,
    /// What all events of a row have, of the one that was written to last.
    head: (Option<u64>, Vec<u8>),
    names: NameCache,
    /// The functions whose symbol was written, with their names as JSON has them.
    symbols: HashMap<FunctionId, Box<[u8]>>,
    /// What they take.
    symbol_bytes: u64,
    /// What rows and symbols take.
    budget: Budget,
}

impl StepEncoder for ChromeEncoder {
    // The array's start, and an event that says nothing, so that every other one has a comma before it.
    const HEAD: &'static [u8] =
        b"[\n{\"ph\":\"M\",\"name\":\"trace_format\",\"pid\":0,\"tid\":0,\"args\":{\"unit\":\"us\"}}";
    const FOOT: &'static [u8] = b"\n]\n";

    fn new(number: u32, budget: &Budget) -> Self {
        let pid = UNKNOWN_ID + u64::from(number);
        Self {
            number,
            zero_ns: None,
            pid,
            label: None,
            rows: HashMap::default(),
            last_row: None,
            head: (None, Vec::new()),
            names: NameCache::within(budget.share()),
            symbols: HashMap::default(),
            symbol_bytes: 0,
            budget: budget.share(),
        }
    }

    /// Writes a begin or an end.
    fn step(&mut self, session: &Session, catalog: &Catalog, step: &Step<Track>, out: &mut Vec<u8>) {
        self.prepare(session, catalog, out);
        let span = &step.span;
        match (step.track, step.edge) {
            (Track::Thread(_) | Track::Gaps(_), Edge::Begin) => {
                let row = self.row(catalog, step.track, step.lane, out);
                self.symbol(catalog, span, out);
                match span.duration() {
                    // Not everyone can tell apart what begins and ends at the same time. An instant has but one side.
                    None | Some(0) if span.kind != SpanKind::Gap => {
                        self.start(out, "i", row, span.start);
                        out.extend_from_slice(br#","s":"t""#);
                    }
                    duration => {
                        self.start(out, "X", row, span.start);
                        out.extend_from_slice(br#","dur":"#);
                        microseconds(out, duration.unwrap_or(0));
                    }
                }
                self.describe(catalog, span, span.kind.name(), out);
            }
            (Track::Thread(_) | Track::Gaps(_), Edge::End) => {}
            (_, edge) => {
                let row = self.row(catalog, Track::Thread(span.stream), 0, out);
                let (category, id) = asynchronous(span);
                if edge == Edge::Begin {
                    self.symbol(catalog, span, out);
                    self.start(out, "b", row, span.start);
                    put(out, format_args!(r#","id":"{id:#x}""#));
                    self.describe(catalog, span, category, out);
                } else {
                    self.start(out, "e", row, step.at);
                    put(out, format_args!(r#","id":"{id:#x}","cat":"{category}""#));
                    self.put_name(catalog, span, out);
                    out.push(b'}');
                }
            }
        }
        if step.edge == Edge::Begin {
            self.arrows(catalog, span, out);
        }
    }

    /// Writes an event that counts the spans that could not be written.
    fn lost(&mut self, session: &Session, catalog: &Catalog, count: u64, out: &mut Vec<u8>) {
        if count > 0 {
            self.prepare(session, catalog, out);
            self.start(out, "i", self.pid, SessionNs(0));
            let name = "spans that could not be written";
            put(out, format_args!(r#","s":"p","cat":"gap","name":"{name}","args":{{"count":{count}}}}}"#));
        }
    }

    fn label(&mut self, label: ProcessLabel) {
        self.label = Some(label);
    }

    fn birth(&mut self, session: &Session, catalog: &Catalog, point: &BirthPoint, out: &mut Vec<u8>) {
        self.prepare(session, catalog, out);
        let row = match point.stream {
            Some(stream) => self.row(catalog, Track::Thread(stream), 0, out),
            None => self.pid,
        };
        self.start(out, "i", row, point.at);
        put(out, format_args!(r#","s":"t","cat":"process","name":"{}"}}"#, point.name()));
        let (phase, binding) = if point.is_parent { ("s", "") } else { ("f", r#","bp":"e""#) };
        self.start(out, phase, row, point.at);
        put(out, format_args!(r#","cat":"process","name":"process","id":"{:#x}"{binding}}}"#, point.arrow()));
    }
}

impl ChromeEncoder {
    fn prepare(&mut self, session: &Session, catalog: &Catalog, out: &mut Vec<u8>) {
        if self.zero_ns.is_some() {
            return;
        }
        self.zero_ns = Some(catalog.clock().map_or(0, |clock| clock.zero_ns));
        let mut name = session.name.clone();
        if let Some(known) = catalog.session() {
            self.pid = known.pid.into();
            name = known.executable.to_string();
            for argument in &known.arguments {
                name.push(' ');
                name.push_str(argument);
            }
        }
        if let Some(label) = &self.label {
            (self.pid, name) = (label.pid.into(), label.name.clone());
        }
        self.name_row("process_name", self.pid, &name, out);
    }

    /// The id of a row, named if it was not: the thread's own, or one that stands beside the threads.
    fn row(&mut self, catalog: &Catalog, track: Track, lane: usize, out: &mut Vec<u8>) -> u64 {
        if let Some((_, row)) = self.last_row.filter(|(last, _)| *last == (track, lane)) {
            return row;
        }
        if let Some(row) = self.rows.get(&(track, lane)) {
            self.last_row = Some(((track, lane), *row));
            return *row;
        }
        // Where there is no room for more rows, what should be beside a thread is drawn on its own.
        if lane > 0 && !self.budget.take(ROW_BYTES) {
            return self.row(catalog, track, 0, out);
        }
        let thread = |stream: StreamId| {
            let known = catalog.thread(stream);
            let id = known.map_or(UNKNOWN_ID + u64::from(stream.0), |known| known.os_id);
            match known.map_or("", |known| &*known.name) {
                "" => (id, format!("thread {id}")),
                name => (id, name.to_owned()),
            }
        };
        let other = 2 * UNKNOWN_ID + self.rows.len() as u64;
        let (id, name) = match (track, lane) {
            (Track::Thread(stream), 0) => thread(stream),
            (Track::Thread(stream), _) => (other, format!("{} (other stacks)", thread(stream).1)),
            (Track::Gaps(stream), _) => (other, format!("{} (gaps)", thread(stream).1)),
            _ => (other, String::new()),
        };
        self.rows.insert((track, lane), id);
        self.name_row("thread_name", id, &name, out);
        id
    }

    fn name_row(&self, what: &str, row: u64, name: &str, out: &mut Vec<u8>) {
        let pid = self.pid;
        put(
            out,
            format_args!(",\n{{\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{pid},\"tid\":{row},\"args\":{{\"name\":"),
        );
        text(out, name);
        out.extend_from_slice(b"}}");
    }

    /// What all events have. They are open still.
    fn start(&mut self, out: &mut Vec<u8>, phase: &str, row: u64, at: SessionNs) {
        let (known, head) = &mut self.head;
        if *known != Some(row) {
            *known = Some(row);
            head.clear();
            put(head, format_args!("\",\"pid\":{},\"tid\":{row},\"ts\":", self.pid));
        }
        out.extend_from_slice(b",\n{\"ph\":\"");
        out.extend_from_slice(phase.as_bytes());
        out.extend_from_slice(head);
        microseconds(out, self.zero_ns.unwrap_or(0).saturating_add(at.0));
    }

    /// The rest of an event that begins a span.
    fn describe(&mut self, catalog: &Catalog, span: &Span, category: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(b",\"cat\":\"");
        out.extend_from_slice(category.as_bytes());
        out.push(b'"');
        self.put_name(catalog, span, out);
        let mut any = false;
        picture::notes(span, |name, note| {
            let start = if any { "," } else { ",\"args\":{" };
            any = true;
            put(out, format_args!("{start}\"{name}\":"));
            match note {
                Note::Number(number) => put(out, format_args!("{number}")),
                // As text: numbers beyond 2⁵³ do not survive a browser.
                Note::Address(address) => put(out, format_args!("\"{address:#x}\"")),
                Note::Text(known) => text(out, &known),
            }
        });
        out.extend_from_slice(if any { b"}}" } else { b"}" });
    }

    fn put_name(&mut self, catalog: &Catalog, span: &Span, out: &mut Vec<u8>) {
        out.extend_from_slice(br#","name":"#);
        if let What::Function(function) = &span.what
            && let Some(name) = self.symbols.get(function).filter(|name| !name.is_empty())
        {
            return out.extend_from_slice(name);
        }
        match &*self.names.of(catalog, span).pretty {
            "?" => text(out, span.kind.name()),
            name => text(out, name),
        }
    }

    /// Writes the symbol of a function once, if it differs from the name, and its place in the sources. They are no arguments of the
    /// function's events, since some viewers take functions with other arguments for other functions.
    fn symbol(&mut self, catalog: &Catalog, span: &Span, out: &mut Vec<u8>) {
        let What::Function(function) = span.what else { return };
        if !self.symbols.contains_key(&function) {
            self.new_symbol(catalog, span, function, out);
        }
    }

    #[inline(never)]
    fn new_symbol(&mut self, catalog: &Catalog, span: &Span, function: FunctionId, out: &mut Vec<u8>) {
        let known = self.names.of(catalog, span);
        let Some(raw) = &known.raw else { return };
        let mut name = Vec::new();
        text(&mut name, &known.pretty);
        let source = source_of(catalog, span);
        if **raw != *known.pretty || source.is_some() {
            let pid = self.pid;
            put(
                out,
                format_args!(",\n{{\"ph\":\"M\",\"name\":\"symbol\",\"pid\":{pid},\"tid\":0,\"args\":{{\"name\":"),
            );
            out.extend_from_slice(&name);
            out.extend_from_slice(br#","symbol":"#);
            text(out, raw);
            if let Some((file, line)) = source {
                out.extend_from_slice(br#","source":"#);
                text(out, &format!("{file}:{line}"));
            }
            out.extend_from_slice(b"}}");
        }
        let bytes = SYMBOL_BYTES.saturating_add(name.len() as u64);
        if self.symbols.len() >= MOST_SYMBOLS || !self.budget.take(bytes) {
            self.budget.release(self.symbol_bytes);
            (self.symbols, self.symbol_bytes) = Default::default();
        }
        self.symbol_bytes = self.symbol_bytes.saturating_add(bytes);
        // What has no name is called by its kind.
        let name = if *known.pretty == *"?" { Box::default() } else { name.into() };
        self.symbols.insert(function, name);
    }

    fn arrows(&mut self, catalog: &Catalog, span: &Span, out: &mut Vec<u8>) {
        for arrow in picture::arrows(span) {
            // Those of different sessions differ.
            let id = arrow.id.wrapping_add(u64::from(self.number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let to = arrow.to.unwrap_or(Point { name: "start", stream: span.stream, at: span.start });
            let ends = [(arrow.from, "s", ""), (to, "f", r#","bp":"e""#)];
            for (point, phase, binding) in ends {
                let row = self.row(catalog, Track::Thread(point.stream), 0, out);
                let (category, name) = (span.kind.name(), arrow.from.name);
                self.start(out, "i", row, point.at);
                put(out, format_args!(r#","s":"t","cat":"{category}","name":"{}"}}"#, point.name));
                self.start(out, phase, row, point.at);
                put(out, format_args!(r#","cat":"{category}","name":"{name}","id":"{id:#x}"{binding}}}"#));
            }
        }
    }
}

/// What makes spans lie in one another that are no frames: a task with its turns is one, all others are themselves.
fn asynchronous(span: &Span) -> (&'static str, u64) {
    let number = span.id.short();
    match span.kind {
        SpanKind::Task => ("task", number),
        SpanKind::Job | SpanKind::Suspension => ("task", span.parent.map_or(number, |task| task.short())),
        kind => (kind.name(), span.key().unwrap_or(number)),
    }
}

/// Three decimals, whatever the size.
#[allow(clippy::cast_possible_truncation)] // a digit at a time
fn microseconds(out: &mut Vec<u8>, nanoseconds: u64) {
    let (whole, rest) = (nanoseconds / 1000, (nanoseconds % 1000) as u32);
    out.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes());
    let digit = |number: u32| b'0' | (number % 10) as u8;
    out.extend_from_slice(&[b'.', digit(rest / 100), digit(rest / 10), digit(rest)]);
}

fn text(out: &mut Vec<u8>, text: &str) {
    if !quote_plain(out, text) {
        // Nothing fails that is written to memory.
        let _ = serde_json::to_writer(out, text);
    }
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests;
