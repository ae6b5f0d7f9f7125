//! Spans as a Perfetto trace: a protocol buffer that <https://ui.perfetto.dev> and `trace_processor` open.

mod fields;
mod intern;

use std::fs::File;

use ahash::HashMap;
use codec::{
    SessionNs, StreamId,
    span::{Span, SpanId, SpanKind, What},
};

use crate::{
    Budget, Catalog, CatalogProcess, KnownName, NameCache, Session,
    family::{BirthPoint, ProcessLabel},
    nest::{Edge, Step},
    picture::{self, Arrow, Drawing, Note, Point, StepEncoder, Track},
    proto::Message,
    source_of,
    view::ViewSink,
};
use fields::{annotation, clock, defaults, event, packet, process, thread, trace, track as descriptor};
use intern::{FunctionName, Intern, TextKind};

/// Writes spans as a Perfetto trace.
///
/// A session is a process. Each thread has a track with its calls and a track with its gaps; tasks and dispatch queues
/// have tracks too. Arrows lead from where something was created, submitted or suspended to where it started or
/// resumed. A file that is cut off by a kill lacks no more than its last packet.
pub type PerfettoSink<W = File> = ViewSink<Drawing<PerfettoEncoder>, W>;

/// How many tracks are remembered. Beyond that, all are described anew.
const MOST_TRACKS: usize = 1 << 20;
/// The name of the note that has a symbol.
const SYMBOL: &str = "symbol";

/// The name of the note that says where a function is in its sources.
const SOURCE: &str = "source";
/// What a track takes.
const TRACK_BYTES: u64 = 128;
/// What stands for the ids of processes and threads that are not known.
const UNKNOWN_ID: u64 = 1 << 30;

/// Encodes the packets of one session. It knows what was written, so that the next packet can refer to it.
#[derive(Debug)]
pub struct PerfettoEncoder {
    /// The session's number in the file, from 1: its packets are a sequence.
    number: u32,
    begun: bool,
    /// What is added to times: the clock at the session's zero.
    zero_ns: u64,
    clock_written: bool,
    pid: u64,
    label: Option<ProcessLabel>,
    process_written: bool,
    next_track: u32,
    tracks: HashMap<(Track, usize), u64>,
    /// The ids and names of threads, as they were written.
    threads: HashMap<StreamId, (u64, Box<str>)>,
    names: NameCache,
    intern: Intern,
    /// What the tracks take.
    budget: Budget,
    event: Message,
    /// A note of it.
    inner: Message,
    /// The track that was asked for last: mostly the next is the same.
    last_track: Option<((Track, usize), u64)>,
    packet: Message,
    /// What every packet ends with.
    tail: Message,
}

impl StepEncoder for PerfettoEncoder {
    fn new(number: u32, budget: &Budget) -> Self {
        let mut tail = Message::new();
        tail.number(packet::TRUSTED_PACKET_SEQUENCE_ID, number.into()).number(packet::SEQUENCE_FLAGS, packet::NEEDED);
        Self {
            number,
            begun: false,
            zero_ns: 0,
            clock_written: false,
            pid: 0,
            label: None,
            process_written: false,
            next_track: 0,
            tracks: HashMap::default(),
            threads: HashMap::default(),
            names: NameCache::within(budget.share()),
            intern: Intern::within(budget.share()),
            budget: budget.share(),
            event: Message::new(),
            inner: Message::new(),
            last_track: None,
            packet: Message::new(),
            tail,
        }
    }

    /// Writes a begin or an end.
    fn step(&mut self, session: &Session, catalog: &Catalog, step: &Step<Track>, out: &mut Vec<u8>) {
        self.prepare(session, catalog, out);
        let span = &step.span;
        let Some(track) = self.track(catalog, step.track, step.lane, span, out) else { return };
        if step.edge == Edge::End {
            self.event.clear();
            self.event.number(event::TYPE, event::SLICE_END).number(event::TRACK_UUID, track);
            self.write_event(step.at, out);
            if span.kind == SpanKind::Task && self.tracks.remove(&(step.track, step.lane)).is_some() {
                self.last_track = None;
                self.budget.release(TRACK_BYTES);
            }
            return;
        }
        let arrows: Vec<Arrow> = picture::arrows(span).collect();
        for arrow in &arrows {
            self.point(catalog, &arrow.from, event::FLOW_IDS, arrow.id, span, out);
        }
        self.begin(catalog, span, track);
        for arrow in arrows.iter().filter(|arrow| arrow.through) {
            let ends_here = arrow.to.is_none();
            let field = if ends_here { event::TERMINATING_FLOW_IDS } else { event::FLOW_IDS };
            let id = self.flow(arrow.id);
            self.event.fixed(field, id);
        }
        self.write_event(span.start, out);
        for (arrow, to) in arrows.iter().filter_map(|arrow| Some((arrow, arrow.to?))) {
            self.point(catalog, &to, event::TERMINATING_FLOW_IDS, arrow.id, span, out);
        }
    }

    /// Writes an event that counts the spans that could not be written.
    fn lost(&mut self, session: &Session, catalog: &Catalog, count: u64, out: &mut Vec<u8>) {
        if count == 0 {
            return;
        }
        self.prepare(session, catalog, out);
        let Some(process) = self.tracks.get(&(Track::Process, 0)).copied() else { return };
        self.start_event(event::INSTANT, process, "spans that could not be written", "gap");
        self.note("count", &Note::Number(count));
        self.write_event(SessionNs(0), out);
    }

    fn label(&mut self, label: ProcessLabel) {
        self.label = Some(label);
    }

    fn birth(&mut self, session: &Session, catalog: &Catalog, point: &BirthPoint, out: &mut Vec<u8>) {
        self.prepare(session, catalog, out);
        let place = point.stream.map_or(Track::Process, Track::Thread);
        let at = Span::new(SpanId::FIRST, SpanKind::Event, point.at, None);
        let Some(track) = self.track(catalog, place, 0, &at, out) else { return };
        self.start_event(event::INSTANT, track, point.name(), "process");
        let field = if point.is_parent { event::FLOW_IDS } else { event::TERMINATING_FLOW_IDS };
        self.event.fixed(field, point.arrow());
        self.write_event(point.at, out);
    }

    /// Writes what became known of the process and its threads after they were first described.
    fn finish(&mut self, session: &Session, catalog: &Catalog, out: &mut Vec<u8>) {
        self.prepare(session, catalog, out);
        let renamed: Vec<StreamId> = self
            .threads
            .iter()
            .filter(|(stream, (tid, name))| {
                catalog.thread(**stream).is_some_and(|known| known.os_id == *tid && known.name != *name)
            })
            .map(|(stream, _)| *stream)
            .collect();
        for stream in renamed {
            if let Some(uuid) = self.tracks.get(&(Track::Thread(stream), 0)).copied() {
                self.describe_thread(catalog, stream, uuid, out);
            }
        }
    }
}

impl PerfettoEncoder {
    /// Writes what every packet depends on: the start of the sequence, the clocks and the process.
    #[inline]
    fn prepare(&mut self, session: &Session, catalog: &Catalog, out: &mut Vec<u8>) {
        if !self.process_written || !self.clock_written || self.intern.is_full() {
            self.introduce(session, catalog, out);
        }
    }

    #[inline(never)]
    fn introduce(&mut self, session: &Session, catalog: &Catalog, out: &mut Vec<u8>) {
        if !self.begun {
            self.zero_ns = catalog.clock().map_or(0, |clock| clock.zero_ns);
            let known = catalog.session().map(|known| known.pid);
            let known = self.label.as_ref().map(|label| label.pid).or(known);
            self.pid = known.map_or(UNKNOWN_ID + u64::from(self.number), u64::from);
        }
        if !self.begun || self.intern.is_full() {
            self.intern = Intern::within(self.budget.share());
            self.clear_state(out);
            self.begun = true;
        }
        let clock = if self.clock_written { None } else { catalog.clock() };
        let zero = clock.filter(|clock| clock.zero_ns == self.zero_ns);
        if let Some((zero, epoch)) = zero.zip(catalog.epoch()) {
            self.clock_written = true;
            let (mut snapshot, mut one) = (Message::new(), Message::new());
            one.number(clock::CLOCK_ID, clock::BOOTTIME).number(clock::TIMESTAMP, zero.zero_ns);
            snapshot.message(clock::CLOCKS, &one);
            one.clear();
            one.number(clock::CLOCK_ID, clock::REALTIME).number(clock::TIMESTAMP, epoch.unix_ns);
            snapshot.message(clock::CLOCKS, &one);
            self.packet.message(packet::CLOCK_SNAPSHOT, &snapshot);
            self.write_packet(out);
        }
        let is_it = |known: &CatalogProcess| u64::from(known.pid) == self.pid;
        let known = self.process_written || self.label.is_some() || catalog.session().is_some_and(is_it);
        if self.tracks.is_empty() || (known && !self.process_written) {
            self.process_written = known;
            let next = self.new_uuid();
            let uuid = *self.tracks.entry((Track::Process, 0)).or_insert(next);
            self.describe_process(session, catalog, uuid, out);
        }
    }

    /// Makes the reader forget what was interned, and repeats the defaults of all packets.
    fn clear_state(&mut self, out: &mut Vec<u8>) {
        let mut all = Message::new();
        all.number(defaults::TIMESTAMP_CLOCK_ID, clock::BOOTTIME);
        self.packet.clear();
        self.packet
            .number(packet::TRUSTED_PACKET_SEQUENCE_ID, self.number.into())
            .number(packet::SEQUENCE_FLAGS, packet::CLEARED)
            .message(packet::TRACE_PACKET_DEFAULTS, &all);
        if !self.begun {
            self.packet.number(packet::FIRST_PACKET_ON_SEQUENCE, 1);
        }
        self.packet.write(trace::PACKET, out);
        self.packet.clear();
    }

    /// The id of a track, described if it was not.
    #[inline]
    fn track(&mut self, catalog: &Catalog, track: Track, lane: usize, span: &Span, out: &mut Vec<u8>) -> Option<u64> {
        match self.last_track {
            Some((last, uuid)) if last == (track, lane) => Some(uuid),
            _ => self.other_track(catalog, track, lane, span, out),
        }
    }

    #[inline(never)]
    fn other_track(
        &mut self,
        catalog: &Catalog,
        track: Track,
        lane: usize,
        span: &Span,
        out: &mut Vec<u8>,
    ) -> Option<u64> {
        if let Some(uuid) = self.tracks.get(&(track, lane)) {
            self.last_track = Some(((track, lane), *uuid));
            return Some(*uuid);
        }
        if self.tracks.len() >= MOST_TRACKS || !self.budget.take(TRACK_BYTES) {
            self.tracks.retain(|(track, _), _| *track == Track::Process);
            self.tracks.shrink_to_fit();
            self.last_track = None;
            self.budget.release(u64::MAX);
        }
        let (parent, name) = match track {
            Track::Thread(_) if lane > 0 => (track, "other stacks".into()),
            Track::Process | Track::Thread(_) => (Track::Process, String::new()),
            Track::Gaps(stream) => (Track::Thread(stream), "gaps".into()),
            Track::Threads => (Track::Process, "threads".into()),
            Track::Queues => (Track::Process, "dispatch queues".into()),
            Track::Queue(queue) => match catalog.queue_label(queue).filter(|label| !label.is_empty()) {
                Some(label) => (Track::Queues, format!("{label} {queue:#x}")),
                None => (Track::Queues, format!("queue {queue:#x}")),
            },
            Track::Blocks => (Track::Queues, "unknown queue".into()),
            Track::Groups => (Track::Process, "dispatch groups".into()),
            Track::Tasks => (Track::Process, "tasks".into()),
            Track::Task(id) => {
                // The key of a turn or a suspension is its own.
                let key = if span.kind == SpanKind::Task { span.key() } else { Some(span.substream.0) };
                let name = key.filter(|key| *key != 0).map_or_else(|| id.to_string(), |key| format!("{key:#x}"));
                (Track::Tasks, format!("task {name}"))
            }
            Track::Jobs => (Track::Process, "jobs of unknown tasks".into()),
            Track::Callbacks => (Track::Process, "callbacks".into()),
        };
        let parent = self.track(catalog, parent, 0, span, out)?;
        let uuid = match (track, lane) {
            // What a task does after its end lies on the track that was forgotten.
            (Track::Task(id), 0) => self.flow(id.short()) | 1 << 63,
            _ => self.new_uuid(),
        };
        self.tracks.insert((track, lane), uuid);
        match (track, lane) {
            (Track::Thread(stream), 0) => self.describe_thread(catalog, stream, uuid, out),
            _ => {
                let mut message = Message::new();
                message.number(descriptor::UUID, uuid).number(descriptor::PARENT_UUID, parent);
                message.text(descriptor::NAME, &name);
                self.packet.message(packet::TRACK_DESCRIPTOR, &message);
                self.write_packet(out);
            }
        }
        Some(uuid)
    }

    /// Ids are small, since every event carries one; those of different sessions differ.
    fn new_uuid(&mut self) -> u64 {
        self.next_track = self.next_track.wrapping_add(1);
        u64::from(self.number.wrapping_sub(1)) << 32 | u64::from(self.next_track)
    }

    fn describe_process(&mut self, session: &Session, catalog: &Catalog, uuid: u64, out: &mut Vec<u8>) {
        let (mut inner, mut message) = (Message::new(), Message::new());
        inner.number(process::PID, self.pid & 0x7fff_ffff);
        match catalog.session() {
            Some(known) => {
                inner.text(process::CMDLINE, &known.executable);
                let mut name = known.executable.to_string();
                for argument in &known.arguments {
                    inner.text(process::CMDLINE, argument);
                    name.push(' ');
                    name.push_str(argument);
                }
                inner.text(process::PROCESS_NAME, self.label.as_ref().map_or(&name, |label| &label.name));
            }
            None => {
                inner.text(process::PROCESS_NAME, self.label.as_ref().map_or(&session.name, |label| &label.name));
            }
        }
        message.number(descriptor::UUID, uuid).message(descriptor::PROCESS, &inner);
        self.packet.message(packet::TRACK_DESCRIPTOR, &message);
        self.write_packet(out);
    }

    fn describe_thread(&mut self, catalog: &Catalog, stream: StreamId, uuid: u64, out: &mut Vec<u8>) {
        let (mut inner, mut message) = (Message::new(), Message::new());
        let known = catalog.thread(stream);
        let tid = known.map_or(UNKNOWN_ID + u64::from(stream.0), |known| known.os_id);
        let name = known.map_or("", |known| &*known.name);
        inner.number(thread::PID, self.pid & 0x7fff_ffff).number(thread::TID, tid);
        if !name.is_empty() {
            inner.text(thread::THREAD_NAME, name);
        }
        self.threads.insert(stream, (tid, name.into()));
        message.number(descriptor::UUID, uuid).message(descriptor::THREAD, &inner);
        self.packet.message(packet::TRACK_DESCRIPTOR, &message);
        self.write_packet(out);
    }

    /// The begin of a span, but for its arrows.
    fn begin(&mut self, catalog: &Catalog, span: &Span, track: u64) {
        let function = match span.what {
            What::Function(function) => Some(function),
            _ => None,
        };
        let known = function.and_then(|function| self.intern.function(function));
        // Where a function is in its sources may be told late.
        let is_whole = |known: &FunctionName| {
            known.source.is_some() || function.is_none_or(|function| catalog.source(function).is_none())
        };
        if let Some(FunctionName { name, symbol, source }) = known.filter(is_whole) {
            self.start_named(event::SLICE_BEGIN, track, name, span.kind.name());
            if let Some(symbol) = symbol {
                self.annotate(SYMBOL, annotation::STRING_VALUE_IID, symbol);
            }
            if let Some(source) = source {
                self.annotate(SOURCE, annotation::STRING_VALUE_IID, source);
            }
        } else {
            let KnownName { raw, pretty, .. } = self.names.of(catalog, span).clone();
            let name = if *pretty == *"?" { span.kind.name() } else { &pretty };
            let name = self.intern.text(TextKind::Name, name);
            self.start_named(event::SLICE_BEGIN, track, name, span.kind.name());
            let symbol = raw.as_ref().filter(|raw| **raw != pretty);
            let symbol = symbol.map(|symbol| self.note_text(SYMBOL, symbol));
            let source = source_of(catalog, span).map(|(file, line)| self.note_text(SOURCE, &format!("{file}:{line}")));
            if let (Some(function), Some(_)) = (function, &raw) {
                self.intern.remember(function, FunctionName { name, symbol, source });
            }
        }
        picture::notes(span, |name, note| self.note(name, &note));
    }

    /// One end of an arrow, on a thread's track.
    fn point(&mut self, catalog: &Catalog, point: &Point, field: u32, arrow: u64, span: &Span, out: &mut Vec<u8>) {
        let Some(track) = self.track(catalog, Track::Thread(point.stream), 0, span, out) else { return };
        self.start_event(event::INSTANT, track, point.name, span.kind.name());
        let id = self.flow(arrow);
        self.event.fixed(field, id);
        self.write_event(point.at, out);
    }

    /// An arrow's id in the file.
    fn flow(&self, arrow: u64) -> u64 {
        arrow.wrapping_add(u64::from(self.number - 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn start_event(&mut self, kind: u64, track: u64, name: &str, category: &'static str) {
        let name = self.intern.text(TextKind::Name, name);
        self.start_named(kind, track, name, category);
    }

    fn start_named(&mut self, kind: u64, track: u64, name: u64, category: &'static str) {
        let category = self.intern.category(category);
        self.event.clear();
        self.event.number(event::CATEGORY_IIDS, category).number(event::TYPE, kind);
        self.event.number(event::NAME_IID, name).number(event::TRACK_UUID, track);
    }

    fn note(&mut self, name: &'static str, note: &Note) {
        match note {
            Note::Number(number) => self.annotate(name, annotation::UINT_VALUE, *number),
            Note::Address(address) => self.annotate(name, annotation::POINTER_VALUE, *address),
            Note::Text(text) => _ = self.note_text(name, text),
        }
    }

    /// Notes a text, and returns its number.
    fn note_text(&mut self, name: &'static str, text: &str) -> u64 {
        // A reader knows the name before the text.
        self.intern.note_name(name);
        let number = self.intern.text(TextKind::Text, text);
        self.annotate(name, annotation::STRING_VALUE_IID, number);
        number
    }

    fn annotate(&mut self, name: &'static str, field: u32, value: u64) {
        self.inner.clear();
        self.inner.number(annotation::NAME_IID, self.intern.note_name(name)).number(field, value);
        self.event.message(event::DEBUG_ANNOTATIONS, &self.inner);
    }

    #[inline]
    fn write_event(&mut self, at: SessionNs, out: &mut Vec<u8>) {
        self.packet
            .number(packet::TIMESTAMP, self.zero_ns.saturating_add(at.0))
            .start(packet::TRACK_EVENT, &self.event);
        if !self.intern.news.is_empty() {
            self.event.message(packet::INTERNED_DATA, &self.intern.news);
            self.intern.news.clear();
        }
        Message::write_parts([&self.packet, &self.event, &self.tail], trace::PACKET, out);
        self.packet.clear();
    }

    /// Writes the packet that was begun, as one of the session's sequence.
    fn write_packet(&mut self, out: &mut Vec<u8>) {
        Message::write_parts([&self.packet, &self.tail], trace::PACKET, out);
        self.packet.clear();
    }
}

#[cfg(test)]
mod tests;
