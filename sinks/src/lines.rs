//! The sink that writes every event, or every span, as a line of JSON.

use std::{
    collections::{BTreeMap, HashMap},
    io::Write,
    sync::Arc,
};

use codec::{
    heph::{MAX_PACKET_BYTES, Metadata, Packets},
    span::Span,
};

use crate::{
    Batch, Budget, Ended, Gap, NameCache, Session, Sink, SinkError,
    line::{Line, span_line},
    output::Output,
};

/// How many spans are encoded before the output is flushed if it has enough.
const CHUNK: usize = 1024;

/// Writes one JSON object a line: sessions, events with gaps or spans, and ends, told apart by `type`.
///
/// Times (`start_ns`, `end_ns`, `created_ns`, `resumed_ns`, `at_ns`) are nanoseconds since the session's zero. Numbers are
/// written whole however large they are; a floating-point number that JSON does not have is a string.
///
/// A span is written when it ends. One that is reported open is written then too, with status `open`, and again when
/// it ends; the line that comes last counts. Missing events are spans of kind `gap`. Spans that could not be written
/// are counted in a line of type `lost`.
#[derive(Debug)]
pub struct LineSink<W> {
    out: Output<W>,
    kind: Kind,
    sessions: HashMap<String, OpenSession>,
    /// How many spans of which session were lost and are not yet counted in a line.
    lost: BTreeMap<String, u64>,
    /// What the names of all sessions take.
    budget: Budget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Events,
    Spans,
}

/// A session that goes on.
#[derive(Debug)]
struct OpenSession {
    /// Its line, as it was written last.
    banner: Vec<u8>,
    names: NameCache,
}

impl<W: Write> LineSink<W> {
    /// Writes events and gaps to `out`.
    pub fn events(out: W) -> Self {
        Self::new(out, Kind::Events)
    }

    /// Writes spans to `out`.
    pub fn spans(out: W) -> Self {
        Self::new(out, Kind::Spans)
    }

    fn new(out: W, kind: Kind) -> Self {
        let (sessions, lost) = (HashMap::new(), BTreeMap::new());
        Self { out: Output::new(out), kind, sessions, lost, budget: Budget::default() }
    }

    /// The same, and it remembers no more names than a budget that others share has room for.
    pub fn within(self, budget: &Budget) -> Self {
        Self { budget: budget.share(), ..self }
    }

    /// Writes what is known of a session, unless its last line says just that.
    fn introduce(&mut self, session: &Session) -> Result<(), SinkError> {
        let mut line = Vec::new();
        Line::session(&mut line, session);
        let known = open(&mut self.sessions, session, &self.budget);
        if known.banner != line {
            self.out.buffer()?.extend_from_slice(&line);
            known.banner = line;
        }
        Ok(())
    }

    /// Writes the gaps and the lost spans that could not be written before.
    fn report_losses(&mut self) -> Result<(), SinkError> {
        while let Some((session, gap)) = self.out.next_unreported() {
            match self.out.buffer() {
                Ok(buffer) => Line::gap(buffer, &session.name, &gap),
                Err(error) => {
                    self.out.put_back(session, gap);
                    return Err(error);
                }
            }
        }
        while let Some(entry) = self.lost.first_entry() {
            Line::lost_spans(self.out.buffer()?, entry.key(), *entry.get());
            entry.remove();
        }
        Ok(())
    }

    /// Encodes a few spans.
    fn chunk(&mut self, session: &Session, spans: &[Span]) -> Result<(), SinkError> {
        let known = open(&mut self.sessions, session, &self.budget);
        let (buffer, catalog) = (self.out.buffer()?, session.catalog());
        let start = Line::start_of_spans(&session.name);
        for span in spans {
            span_line(buffer, &start, &catalog, &mut known.names, span);
        }
        Ok(())
    }
}

fn open<'a>(sessions: &'a mut HashMap<String, OpenSession>, session: &Session, budget: &Budget) -> &'a mut OpenSession {
    let new = || OpenSession { banner: Vec::new(), names: NameCache::within(budget.share()) };
    sessions.entry(session.name.clone()).or_insert_with(new)
}

impl<W: Write + Send> Sink for LineSink<W> {
    fn start(&mut self, session: &Arc<Session>) -> Result<(), SinkError> {
        self.introduce(session)?;
        self.out.relieve()
    }

    /// The lines of events and spans have what options say. Only the session gets another line, if it says more than
    /// the one before.
    fn options(&mut self, session: &Arc<Session>, packets: &[u8]) -> Result<(), SinkError> {
        let mut packets = Packets::new(packets, MAX_PACKET_BYTES);
        let named = |packet| Metadata::decode(packet).map(|metadata| metadata.name);
        while let Some(Ok(name)) = packets.next_with(named) {
            if name == "session" {
                self.introduce(session)?;
            }
        }
        self.out.relieve()
    }

    fn events(&mut self, batch: &Arc<Batch>) -> Result<(), SinkError> {
        if self.kind != Kind::Events {
            return Ok(());
        }
        if let Err(error) = self.report_losses().and_then(|()| self.out.buffer().map(drop)) {
            self.out.lose(batch);
            return Err(error);
        }
        let known = open(&mut self.sessions, &batch.session, &self.budget);
        let buffer = self.out.buffer()?;
        let catalog = batch.session.catalog();
        let start = Line::start_of_events(&batch.session.name);
        for run in batch.iter() {
            let (stream, first) = (run.run.stream, run.run.first.0);
            for (position, message) in (first..=u64::MAX).zip(run) {
                Line::event(buffer, &start, (stream, position), &message, (&catalog, &mut known.names), 0);
            }
        }
        // Writing may block, and the collector must be able to enter what it receives meanwhile.
        drop(catalog);
        self.out.relieve()
    }

    fn gap(&mut self, session: &Arc<Session>, gap: &Gap) -> Result<(), SinkError> {
        if self.kind != Kind::Events {
            return Ok(());
        }
        self.out.add_unreported(session, gap.clone());
        self.report_losses()?;
        self.out.relieve()
    }

    fn spans(&mut self, session: &Arc<Session>, spans: &[Span]) -> Result<(), SinkError> {
        if self.kind != Kind::Spans {
            return Ok(());
        }
        let mut result = self.report_losses();
        for part in spans.chunks(CHUNK) {
            if let Err(error) = result.and_then(|()| self.chunk(session, part)) {
                let lost = self.lost.entry(session.name.clone()).or_default();
                *lost = lost.saturating_add(part.len() as u64);
                result = Err(error);
                continue;
            }
            result = self.out.relieve();
        }
        result
    }

    fn end(&mut self, session: &Arc<Session>, ended: &Ended) -> Result<(), SinkError> {
        self.sessions.remove(&session.name);
        self.report_losses()?;
        Line::end(self.out.buffer()?, session, ended);
        self.out.relieve()
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.report_losses()?;
        self.out.flush()
    }
}
