//! The sink that writes every event as a line of JSON.

mod line;

use std::{io::Write, sync::Arc};

use crate::{Batch, Ended, Gap, Session, Sink, SinkError, line::Line, output::Output, said::Said};

/// Writes one JSON object a line: sessions, events, gaps and ends, told apart by `type`.
///
/// Times (`start_ns`, `end_ns`) are nanoseconds since the session's zero. Numbers are written whole however large they
/// are; a floating-point number that JSON does not have is a string.
#[derive(Debug)]
pub struct EventsSink<W> {
    out: Output<W>,
    said: Said,
}

impl<W: Write> EventsSink<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        Self { out: Output::new(out), said: Said::default() }
    }

    /// Tells of what was lost here before.
    fn pay(&mut self) -> Result<(), SinkError> {
        while let Some((session, gap)) = self.out.next_owed() {
            match self.out.buffer() {
                Ok(buffer) => Line::gap(buffer, &session, &gap),
                Err(error) => {
                    self.out.owe_still(session, gap);
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

impl<W: Write + Send> Sink for EventsSink<W> {
    fn start(&mut self, session: &Arc<Session>) -> Result<(), SinkError> {
        self.said.introduce(&mut self.out, session)?;
        self.out.relieve()
    }

    /// What options tell is in the lines of the events. Only who is traced gets another line of its own, if it
    /// says more than the one before.
    fn options(&mut self, session: &Arc<Session>, packets: &[u8]) -> Result<(), SinkError> {
        self.said.options(&mut self.out, session, packets)?;
        self.out.relieve()
    }

    fn events(&mut self, batch: &Arc<Batch>) -> Result<(), SinkError> {
        if let Err(error) = self.pay().and_then(|()| self.out.buffer().map(drop)) {
            self.out.lose(batch);
            return Err(error);
        }
        let buffer = self.out.buffer()?;
        let catalog = batch.session.catalog();
        let start = Line::start_of_events(&batch.session);
        for run in batch.iter() {
            let (stream, first) = (run.run.stream, run.run.first.0);
            for (position, message) in (first..=u64::MAX).zip(run) {
                Line::event(buffer, &start, stream, position, &message, &catalog);
            }
        }
        // Writing may block, and the collector must be able to enter what it is told meanwhile.
        drop(catalog);
        self.out.relieve()
    }

    fn gap(&mut self, session: &Arc<Session>, gap: &Gap) -> Result<(), SinkError> {
        self.out.owe(session, gap.clone());
        self.pay()?;
        self.out.relieve()
    }

    fn end(&mut self, session: &Arc<Session>, ended: &Ended) -> Result<(), SinkError> {
        self.said.forget(session);
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
