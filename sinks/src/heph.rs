//! Sinks that write packets again, to be read by whatever reads them from the wire.

mod compat;
mod packer;

use std::{fs::File, io::Write, path::Path, sync::Arc};

use codec::{
    Arch, Os, SessionId,
    heph::{Encode, MAX_PACKET_BYTES, Metadata, Packets},
    profile::{Dropped, Drops, Fingerprint, PROFILE_VERSION, ProfileOption, Session as SessionOption},
};

pub use compat::HephCompatSink;
pub use packer::Packer;

use crate::{Batch, Ended, Gap, RunEvents, Session, Sink, SinkError, cut, output::Output};

/// What a string in a packet may have.
const MOST_NAME_BYTES: usize = u16::MAX as usize;

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
            write_session(session, buffer);
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
        let reason = cut(gap.cause.as_str(), MOST_NAME_BYTES);
        let drops = [Dropped { stream: gap.stream, first: gap.first, count: gap.count, reason }];
        // One range with a short reason always fits.
        let _ = ProfileOption::from(Drops { drops: (&drops).into() }).encode(self.out.buffer()?);
        Ok(())
    }
}

impl<W: Write + Send> Sink for HephSink<W> {
    fn start(&mut self, _: &Arc<Session>) -> Result<(), SinkError> {
        Ok(())
    }

    fn options(&mut self, session: &Arc<Session>, packets: &[u8]) -> Result<(), SinkError> {
        self.turn_to(session)?;
        let buffer = self.out.buffer()?;
        match session.id {
            Some(_) => buffer.extend_from_slice(packets),
            None => extend_without_session(buffer, packets),
        }
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
            write_run(run, buffer);
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

/// Appends the events of a run: their packets, or where these hold others as well, new ones.
fn write_run(run: RunEvents<'_>, buffer: &mut Vec<u8>) {
    if run.has_whole_packets() {
        return buffer.extend_from_slice(run.bytes);
    }
    let mut packer = Packer::default();
    for message in run {
        // What came in a packet fits into one.
        let _ = packer.push(&message, buffer);
    }
    packer.finish(buffer);
}

/// Appends options without those that name a session: one that was started without a name is called by another here,
/// from its first packet on.
fn extend_without_session(buffer: &mut Vec<u8>, packets: &[u8]) {
    let mut packets = Packets::new(packets, MAX_PACKET_BYTES);
    let named = |packet| Metadata::decode(packet).map(|metadata| (metadata.name, packet));
    while let Some(Ok((name, packet))) = packets.next_with(named) {
        if name != "session" {
            buffer.extend_from_slice(packet);
        }
    }
}

/// The `session` option of a session, or one made of its name. The latter says that what follows is plain Heph.
fn write_session(session: &Session, buffer: &mut Vec<u8>) {
    if session.id.is_some() {
        let catalog = session.catalog();
        let written = catalog.with_session_option(|option| ProfileOption::from(option).encode(buffer).is_ok());
        if written == Some(true) {
            return;
        }
    }
    let (name, mut id) = (session.name.as_str(), [0; 16]);
    let hashes = [Fingerprint::of(name.as_bytes()), Fingerprint::of(session.source.as_bytes())];
    id.as_chunks_mut().0.iter_mut().zip(hashes).for_each(|(to, hash)| *to = hash.0.to_be_bytes());
    let option = SessionOption {
        id: session.id.unwrap_or(SessionId(id)),
        profile: if session.id.is_some() { PROFILE_VERSION } else { 0 },
        arch: Arch::from(0),
        os: Os::from(0),
        pid: 0,
        agent_version: "",
        host: "",
        executable: cut(name, MOST_NAME_BYTES),
        argument_count: 0,
        arguments: (&[]).into(),
    };
    // A short name always fits.
    let _ = ProfileOption::from(option).encode(buffer);
}
