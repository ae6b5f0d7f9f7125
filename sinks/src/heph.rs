//! Sinks that write packets again, to be read by whatever reads them from the wire.

mod compat;
mod packer;
pub mod packets;

use std::{fs::File, io::Write, path::Path, sync::Arc};

pub use compat::HephCompatSink;
pub use packer::Packer;

use crate::{Batch, Ended, Gap, Session, Sink, SinkError, output::Output};

/// Writes options and events as they came, to one file or pipe. Where only some events of a packet belong to the batch,
/// because others came before, it packs these into packets of their own.
///
/// Sessions may take turns in it: before the packets of another session than those before, its `session` option is
/// written again. One that announced none gets one made of its name, which says that its packets are plain Heph.
///
/// What is missing for another reason than the agent's is written as a `drops` option whose reason is the cause.
#[derive(Debug)]
pub struct HephSink<W> {
    out: Output<W>,
    /// The session that the last packets are of.
    current: Option<String>,
}

impl HephSink<File> {
    /// Writes to a new file, over one that is there.
    pub fn create(path: &Path) -> Result<Self, SinkError> {
        let file = File::create(path)
            .map_err(|source| SinkError::Failed { what: format!("cannot make {}", path.display()), source })?;
        Ok(Self::new(file))
    }
}

impl<W: Write> HephSink<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        Self { out: Output::new(out), current: None }
    }

    /// Makes sure that what follows is taken for this session's.
    fn turn_to(&mut self, session: &Session) -> Result<(), SinkError> {
        let buffer = self.out.buffer()?;
        if self.current.as_ref().is_some_and(|current| *current == session.name) {
            return Ok(());
        }
        // The first one says who it is by itself, if it ever does.
        if self.current.is_some() || session.id.is_none() {
            packets::session(session, buffer);
        }
        self.current = Some(session.name.clone());
        Ok(())
    }

    /// Tells of what was lost here before.
    fn pay(&mut self) -> Result<(), SinkError> {
        while let Some((session, gap)) = self.out.next_unreported() {
            if let Err(error) = self.write_gap(&session, &gap) {
                self.out.put_back(session, gap);
                return Err(error);
            }
        }
        Ok(())
    }

    fn write_gap(&mut self, session: &Session, gap: &Gap) -> Result<(), SinkError> {
        self.turn_to(session)?;
        packets::gap(gap, self.out.buffer()?);
        Ok(())
    }
}

impl<W: Write + Send> Sink for HephSink<W> {
    fn start(&mut self, _: &Arc<Session>) -> Result<(), SinkError> {
        Ok(())
    }

    fn options(&mut self, session: &Arc<Session>, packets: &[u8]) -> Result<(), SinkError> {
        self.turn_to(session)?;
        packets::options(session, packets, self.out.buffer()?);
        self.out.relieve()
    }

    fn events(&mut self, batch: &Arc<Batch>) -> Result<(), SinkError> {
        let ready = self.pay().and_then(|()| self.turn_to(&batch.session));
        if let Err(error) = ready.and_then(|()| self.out.buffer().map(drop)) {
            self.out.lose(batch);
            return Err(error);
        }
        let buffer = self.out.buffer()?;
        for run in batch.iter() {
            packets::run(run, buffer);
        }
        self.out.relieve()
    }

    fn gap(&mut self, session: &Arc<Session>, gap: &Gap) -> Result<(), SinkError> {
        // What the agent dropped it has said itself, in options that were written as they came.
        if gap.cause.agent_reason().is_some() {
            return Ok(());
        }
        self.out.add_unreported(session, gap.clone());
        self.pay()?;
        self.out.relieve()
    }

    fn end(&mut self, _: &Arc<Session>, _: &Ended) -> Result<(), SinkError> {
        self.out.relieve()
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.pay()?;
        self.out.flush()
    }

    fn takes_more(&self) -> bool {
        self.out.takes_more()
    }
}
