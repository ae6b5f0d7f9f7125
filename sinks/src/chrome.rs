//! The sink that writes a trace in Chrome's format.

mod draw;

use std::{collections::HashMap, fs::File, io::Write, path::Path, sync::Arc};

use codec::span::Span;

use crate::{Batch, Ended, Gap, Session, Sink, SinkError, output::Output, picture::Picture};
use draw::Draw;

/// Writes spans as Chrome trace events: JSON that `chrome://tracing`, Perfetto and speedscope open.
///
/// It is the array form, since viewers take that even if its end is missing, after a kill. Times are microseconds with
/// three decimals, by the clock of the traced machine.
#[derive(Debug)]
pub struct ChromeSink<W = File> {
    out: Output<W>,
    sessions: HashMap<String, Process>,
    /// How many sessions there were.
    started: u32,
    /// Whether an event was written, so that the next one needs a comma.
    begun: bool,
    ended: bool,
}

/// A session that goes on.
#[derive(Debug)]
struct Process {
    picture: Picture,
    draw: Draw,
    /// Spans that could not be written, and of which nothing was told yet.
    lost: u64,
}

impl ChromeSink<File> {
    /// Writes to a new file, or over one that is there.
    pub fn create(path: &Path) -> Result<Self, SinkError> {
        let file = File::create(path);
        let failed = |error| SinkError::from_io(format!("cannot create {}", path.display()), error);
        file.map(Self::new).map_err(failed)
    }
}

impl<W: Write> ChromeSink<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        Self { out: Output::new(out), sessions: HashMap::new(), started: 0, begun: false, ended: false }
    }

    fn process(&mut self, session: &Session) -> &mut Process {
        let started = &mut self.started;
        self.sessions.entry(session.name.clone()).or_insert_with(|| {
            *started = started.wrapping_add(1);
            Process { picture: Picture::default(), draw: Draw::new(*started), lost: 0 }
        })
    }

    /// Where events go, after what belongs before them.
    fn opened(&mut self) -> Result<(), SinkError> {
        let buffer = self.out.buffer()?;
        if !self.begun {
            self.begun = true;
            buffer.extend_from_slice(b"[\n");
            // An event that says nothing, so that every other one has a comma before it.
            buffer.extend_from_slice(br#"{"ph":"M","name":"trace_format","pid":0,"tid":0,"args":{"unit":"us"}}"#);
        }
        Ok(())
    }
}

impl<W: Write + Send> Sink for ChromeSink<W> {
    fn start(&mut self, session: &Arc<Session>) -> Result<(), SinkError> {
        self.process(session);
        Ok(())
    }

    /// What options tell is looked up when a span needs it.
    fn options(&mut self, _: &Arc<Session>, _: &[u8]) -> Result<(), SinkError> {
        Ok(())
    }

    /// Events are in the spans that they were made into.
    fn events(&mut self, _: &Arc<Batch>) -> Result<(), SinkError> {
        Ok(())
    }

    /// So are gaps.
    fn gap(&mut self, _: &Arc<Session>, _: &Gap) -> Result<(), SinkError> {
        Ok(())
    }

    fn spans(&mut self, session: &Arc<Session>, spans: &[Span]) -> Result<(), SinkError> {
        if let Err(error) = self.opened() {
            let process = self.process(session);
            process.lost = process.lost.saturating_add(spans.len() as u64);
            return Err(error);
        }
        self.process(session);
        let (Some(process), buffer) = (self.sessions.get_mut(&session.name), self.out.buffer()?) else { return Ok(()) };
        let Process { picture, draw, lost } = process;
        let catalog = session.catalog();
        for span in spans {
            picture.add(span, |step| draw.step(session, &catalog, &step, buffer));
        }
        draw.lost(session, &catalog, std::mem::take(lost), buffer);
        // Writing may block, and the collector must be able to enter what it is told meanwhile.
        drop(catalog);
        self.out.relieve()
    }

    fn end(&mut self, session: &Arc<Session>, _: &Ended) -> Result<(), SinkError> {
        let Some(mut process) = self.sessions.remove(&session.name) else { return Ok(()) };
        self.opened()?;
        let Process { picture, draw, lost } = &mut process;
        let buffer = self.out.buffer()?;
        let catalog = session.catalog();
        picture.finish(|step| draw.step(session, &catalog, &step, buffer));
        draw.lost(session, &catalog, *lost, buffer);
        drop(catalog);
        self.out.relieve()
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.out.flush()
    }

    fn close(&mut self) -> Result<(), SinkError> {
        self.opened()?;
        if !self.ended {
            self.ended = true;
            self.out.buffer()?.extend_from_slice(b"\n]\n");
        }
        self.flush()
    }
}

#[cfg(test)]
mod tests;
