//! Events on their way to the sinks.

use std::sync::Arc;

use bytes::Bytes;
use codec::{
    Position, StreamId,
    heph::{MAX_PACKET_BYTES, Packets},
    profile::Message,
};

use crate::Session;

/// Events of one session, in order within each stream. All sinks share one batch: nobody copies it.
#[derive(Debug)]
pub struct Batch {
    /// The session.
    pub session: Arc<Session>,
    /// The event packets, just as they came, one behind the other.
    pub bytes: Bytes,
    /// Which streams they are of.
    pub runs: Vec<Run>,
}

/// Events of one stream without a gap between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The stream.
    pub stream: StreamId,
    /// The position of the first event. The counter on the wire may be another, where the stream was restarted.
    pub first: Position,
    /// How many events there are.
    pub events: u32,
    /// How many bytes their packets have.
    pub bytes: u32,
}

impl Batch {
    /// How many events it holds.
    pub fn events(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.events)).sum()
    }

    /// The runs, each with its events.
    pub fn iter(&self) -> impl Iterator<Item = RunEvents<'_>> {
        let mut rest = self.bytes.as_ref();
        self.runs.iter().map(move |run| {
            let (bytes, behind) = rest.split_at_checked(run.bytes as usize).unwrap_or((rest, &[]));
            rest = behind;
            RunEvents { run: *run, bytes, packets: Packets::new(bytes, MAX_PACKET_BYTES) }
        })
    }
}

/// The events of one [`Run`].
#[derive(Debug, Clone)]
pub struct RunEvents<'a> {
    /// Whose they are.
    pub run: Run,
    /// Their packets.
    pub bytes: &'a [u8],
    packets: Packets<'a>,
}

impl<'a> Iterator for RunEvents<'a> {
    type Item = Message<'a>;

    /// The next event. The collector has decoded it once already, so it is never in error.
    #[inline]
    fn next(&mut self) -> Option<Message<'a>> {
        self.packets.next_with(Message::decode)?.ok()
    }
}
