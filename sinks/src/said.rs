//! What lines have said of sessions.

use std::{collections::HashMap, io::Write};

use codec::heph::{MAX_PACKET_BYTES, Metadata, Packets};

use crate::{Session, SinkError, line::Line, output::Output};

/// What was said last of each session that goes on.
#[derive(Debug, Default)]
pub(crate) struct Said(HashMap<String, Vec<u8>>);

impl Said {
    /// Says what a session is, unless just that was said.
    pub(crate) fn introduce<W: Write>(&mut self, out: &mut Output<W>, session: &Session) -> Result<(), SinkError> {
        let mut line = Vec::new();
        Line::session(&mut line, session);
        if self.0.get(&session.name) != Some(&line) {
            out.buffer()?.extend_from_slice(&line);
            self.0.insert(session.name.clone(), line);
        }
        Ok(())
    }

    /// Says it again if options tell more.
    pub(crate) fn options<W: Write>(
        &mut self,
        out: &mut Output<W>,
        session: &Session,
        packets: &[u8],
    ) -> Result<(), SinkError> {
        let mut packets = Packets::new(packets, MAX_PACKET_BYTES);
        let named = |packet| Metadata::decode(packet).map(|metadata| metadata.name);
        while let Some(Ok(name)) = packets.next_with(named) {
            if name == "session" {
                self.introduce(out, session)?;
            }
        }
        Ok(())
    }

    /// The session is over.
    pub(crate) fn forget(&mut self, session: &Session) {
        self.0.remove(&session.name);
    }
}
