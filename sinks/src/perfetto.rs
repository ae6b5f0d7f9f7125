//! The sink that writes a trace for Perfetto.

mod fields;
mod intern;
mod paint;
mod proto;

use std::{collections::HashMap, fs::File, io::Write, path::Path, sync::Arc};

use codec::span::Span;

use crate::{Batch, Ended, Gap, Session, Sink, SinkError, output::Output, picture::Picture};
use paint::Paint;

/// Writes spans as a Perfetto trace: a protocol buffer that <https://ui.perfetto.dev> and `trace_processor` open.
///
/// A session is a process. Its threads have tracks with what they called, and with what is missing of them; so have
/// its tasks and its dispatch queues. Arrows lead from where something was created, submitted or suspended to where it
/// started or went on. What is cut off by a kill loses no more than its last packet.
#[derive(Debug)]
pub struct PerfettoSink<W = File> {
    out: Output<W>,
    sessions: HashMap<String, Process>,
    /// How many sessions there were: each has a number.
    started: u32,
}

/// A session that goes on.
#[derive(Debug)]
struct Process {
    picture: Picture,
    paint: Paint,
    /// Spans that could not be written, and of which nothing was told yet.
    lost: u64,
}

impl PerfettoSink<File> {
    /// Writes to a new file, or over one that is there.
    pub fn create(path: &Path) -> Result<Self, SinkError> {
        let file = File::create(path);
        let failed = |error| SinkError::from_io(format!("cannot create {}", path.display()), error);
        file.map(Self::new).map_err(failed)
    }
}

impl<W: Write> PerfettoSink<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        Self { out: Output::new(out), sessions: HashMap::new(), started: 0 }
    }

    fn process(&mut self, session: &Session) -> &mut Process {
        let started = &mut self.started;
        self.sessions.entry(session.name.clone()).or_insert_with(|| {
            *started = started.wrapping_add(1);
            Process { picture: Picture::default(), paint: Paint::new(*started), lost: 0 }
        })
    }
}

impl<W: Write + Send> Sink for PerfettoSink<W> {
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
        if let Err(error) = self.out.buffer().map(drop) {
            let process = self.process(session);
            process.lost = process.lost.saturating_add(spans.len() as u64);
            return Err(error);
        }
        self.process(session);
        let (Some(process), buffer) = (self.sessions.get_mut(&session.name), self.out.buffer()?) else { return Ok(()) };
        let Process { picture, paint, lost } = process;
        let catalog = session.catalog();
        for span in spans {
            picture.add(span, |step| paint.step(session, &catalog, &step, buffer));
        }
        paint.lost(session, &catalog, std::mem::take(lost), buffer);
        // Writing may block, and the collector must be able to enter what it is told meanwhile.
        drop(catalog);
        self.out.relieve()
    }

    fn end(&mut self, session: &Arc<Session>, _: &Ended) -> Result<(), SinkError> {
        let Some(mut process) = self.sessions.remove(&session.name) else { return Ok(()) };
        let Process { picture, paint, lost } = &mut process;
        let buffer = self.out.buffer()?;
        let catalog = session.catalog();
        picture.finish(|step| paint.step(session, &catalog, &step, buffer));
        paint.lost(session, &catalog, *lost, buffer);
        paint.finish(session, &catalog, buffer);
        drop(catalog);
        self.out.relieve()
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.out.flush()
    }

    fn close(&mut self) -> Result<(), SinkError> {
        self.flush()
    }
}

#[cfg(test)]
mod tests;
