//! Several processes in one file, with arrows from the calls that made them.

use std::{io::Write, sync::Arc};

use codec::{BirthKind, SessionId, SessionNs, StreamId, profile::Fingerprint};

use crate::{
    Session, Sink, SinkError,
    view::{Encoder, ViewSink},
};

/// How a process is shown in a file with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessLabel {
    /// A process id that no other process of the file has, for viewers take those with one id for one.
    pub pid: u32,
    /// Its name, for people.
    pub name: String,
}

/// One end of the arrow from the call that made a process to the beginning of that process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BirthPoint {
    /// The session of the process that was made.
    pub child: SessionId,
    /// How it was made.
    pub how: BirthKind,
    /// Whether this is where the arrow begins, at the parent.
    pub is_parent: bool,
    /// The thread; without one, the process itself.
    pub stream: Option<StreamId>,
    /// When.
    pub at: SessionNs,
}

impl BirthPoint {
    /// What stands there.
    pub(crate) fn name(&self) -> &'static str {
        match (self.is_parent, self.how) {
            (false, _) => "process start",
            (true, BirthKind::Forked) => "fork",
            (true, BirthKind::Replaced) => "exec",
            (true, BirthKind::Spawned) => "spawn",
            (true, BirthKind::Other(_)) => "process made",
        }
    }

    /// The number of the arrow, which both ends have.
    pub(crate) fn arrow(&self) -> u64 {
        Fingerprint::of(&self.child.0).0
    }
}

/// A sink for several processes of a family.
pub trait FamilySink: Sink {
    /// A session has started that is shown like this.
    fn start_as(&mut self, session: &Arc<Session>, label: ProcessLabel) -> Result<(), SinkError>;

    /// An arrow begins or ends in a session.
    fn birth(&mut self, session: &Arc<Session>, point: &BirthPoint) -> Result<(), SinkError>;
}

impl<E: Encoder, W: Write + Send> FamilySink for ViewSink<E, W> {
    fn start_as(&mut self, session: &Arc<Session>, label: ProcessLabel) -> Result<(), SinkError> {
        self.start(session)?;
        self.with_encoder(session, |encoder, _| {
            encoder.label(label);
            Ok(())
        })
    }

    fn birth(&mut self, session: &Arc<Session>, point: &BirthPoint) -> Result<(), SinkError> {
        self.with_encoder(session, |encoder, out| encoder.birth(session, point, out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_an_arrow_have_its_number_and_no_other_arrow_does() {
        let point = |child, is_parent, how| BirthPoint { child, how, is_parent, stream: None, at: SessionNs(1) };
        let ids: Vec<_> = (0..=u8::MAX).map(|byte| SessionId([byte; 16])).collect();
        let arrows: std::collections::HashSet<_> =
            ids.iter().map(|id| point(*id, true, BirthKind::Forked).arrow()).collect();
        assert_eq!(arrows.len(), ids.len());
        for id in ids {
            assert_eq!(point(id, true, BirthKind::Spawned).arrow(), point(id, false, BirthKind::Spawned).arrow());
        }
    }
}
