//! The sink that writes every span as a line of JSON.

mod line;

use std::{
    collections::{BTreeMap, HashMap},
    io::Write,
    sync::Arc,
};

use codec::span::Span;

use crate::{Batch, Ended, Gap, NameCache, Session, Sink, SinkError, line::Line, output::Output, said::Said};
pub use line::span_line;

/// Writes one JSON object a line: sessions, spans and ends, told apart by `type`.
///
/// A span is written when it ends. One that is told to be open is written then too, with status `open`, and again when
/// it ends; the line that comes last counts. Events that are missing are spans of kind `gap`. Spans that could not be
/// written are counted in a line of type `lost`.
///
/// Times (`start_ns`, `end_ns`, `created_ns`, `resumed_ns`) are nanoseconds since the session's zero.
#[derive(Debug)]
pub struct SpansSink<W> {
    out: Output<W>,
    said: Said,
    names: HashMap<String, NameCache>,
    /// How many spans of which session were lost, and nobody was told.
    lost: BTreeMap<String, u64>,
}

impl<W: Write> SpansSink<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        Self { out: Output::new(out), said: Said::default(), names: HashMap::new(), lost: BTreeMap::new() }
    }

    /// Tells of what was lost here before.
    fn pay(&mut self) -> Result<(), SinkError> {
        while let Some(entry) = self.lost.first_entry() {
            Line::lost_spans(self.out.buffer()?, entry.key(), *entry.get());
            entry.remove();
        }
        Ok(())
    }

    fn lose(&mut self, session: &Session, spans: usize) {
        let lost = self.lost.entry(session.name.clone()).or_default();
        *lost = lost.saturating_add(spans as u64);
    }
}

impl<W: Write + Send> Sink for SpansSink<W> {
    fn start(&mut self, session: &Arc<Session>) -> Result<(), SinkError> {
        self.said.introduce(&mut self.out, session)?;
        self.out.relieve()
    }

    fn options(&mut self, session: &Arc<Session>, packets: &[u8]) -> Result<(), SinkError> {
        self.said.options(&mut self.out, session, packets)?;
        self.out.relieve()
    }

    /// Events are in the spans that they begin and end.
    fn events(&mut self, _: &Arc<Batch>) -> Result<(), SinkError> {
        Ok(())
    }

    /// A gap is a span too.
    fn gap(&mut self, _: &Arc<Session>, _: &Gap) -> Result<(), SinkError> {
        Ok(())
    }

    fn spans(&mut self, session: &Arc<Session>, spans: &[Span]) -> Result<(), SinkError> {
        let mut paid = self.pay();
        for part in spans.chunks(CHUNK) {
            if let Err(error) = paid.and_then(|()| self.out.buffer().map(drop)) {
                self.lose(session, part.len());
                paid = Err(error);
                continue;
            }
            let names = self.names.entry(session.name.clone()).or_default();
            let buffer = self.out.buffer()?;
            let catalog = session.catalog();
            for span in part {
                span_line(buffer, &session.name, &catalog, names, span);
            }
            // Writing may block, and the collector must be able to enter what it is told meanwhile.
            drop(catalog);
            paid = self.out.relieve();
        }
        paid
    }

    fn end(&mut self, session: &Arc<Session>, ended: &Ended) -> Result<(), SinkError> {
        self.said.forget(session);
        self.names.remove(&session.name);
        self.pay()?;
        Line::end(self.out.buffer()?, session, ended);
        self.out.relieve()
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.pay()?;
        self.out.flush()
    }

    fn close(&mut self) -> Result<(), SinkError> {
        self.flush()
    }
}

/// How many spans are written to memory before the output is looked after.
const CHUNK: usize = 1024;
