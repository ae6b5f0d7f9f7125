//! The sink that writes every event as a line of JSON.

mod line;

use std::{collections::HashMap, io::Write, sync::Arc};

use codec::heph::{MAX_PACKET_BYTES, Metadata, Packets};

use crate::{Batch, Ended, Gap, Session, Sink, SinkError, output::Output};
use line::Line;

/// Writes one JSON object a line: sessions, events, gaps and ends, told apart by `type`.
///
/// Times (`start_ns`, `end_ns`) are nanoseconds since the session's zero. Numbers are written whole however large they
/// are; a floating-point number that JSON does not have is a string.
#[derive(Debug)]
pub struct EventsSink<W> {
    out: Output<W>,
    /// What was said last of each session that goes on.
    said: HashMap<String, Vec<u8>>,
}

impl<W: Write> EventsSink<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        Self { out: Output::new(out), said: HashMap::new() }
    }

    /// Says what a session is, unless just that was said.
    fn introduce(&mut self, session: &Session) -> Result<(), SinkError> {
        let mut line = Vec::new();
        Line::session(&mut line, session);
        if self.said.get(&session.name) != Some(&line) {
            self.out.buffer()?.extend_from_slice(&line);
            self.said.insert(session.name.clone(), line);
        }
        Ok(())
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
        self.introduce(session)?;
        self.out.relieve()
    }

    /// What options tell is in the lines of the events. Only who is traced gets another line of its own, if it
    /// says more than the one before.
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
        self.said.remove(&session.name);
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
