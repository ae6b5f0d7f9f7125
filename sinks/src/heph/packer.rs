//! Packing single events into runs.

use codec::{
    Counter, StreamId, SubstreamId,
    heph::{Encode, EncodeError},
    profile::{Message, RunEncoder, RunEvent},
};

/// Writes events to a buffer: function events as runs, wherever a run can carry them, and all others as single packets.
///
/// Until [`finish`](Self::finish), nothing else may be written to the buffer.
#[derive(Debug, Default)]
pub struct Packer {
    open: Option<OpenRun>,
}

/// A run that takes the event that comes next in its stream.
#[derive(Debug)]
struct OpenRun {
    encoder: RunEncoder,
    stream: StreamId,
    substream: SubstreamId,
    next: Counter,
}

/// How large a run may get.
const RUN_BYTES: usize = 32 << 10;

impl Packer {
    /// Writes an event. An error leaves the buffer as valid as it was.
    pub fn push(&mut self, message: &Message<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let packable = match message {
            Message::Function(event) => RunEvent::of(event).map(|packable| (event.stamp, packable)),
            _ => None,
        };
        let Some((stamp, event)) = packable else {
            self.finish(out);
            return message.encode(out).map(drop);
        };
        if let Some(run) = &mut self.open
            && (run.stream, run.substream, run.next) == (stamp.stream, stamp.substream, stamp.counter)
            && run.encoder.push(&event, out)
        {
            run.next.0 = run.next.0.wrapping_add(1);
            return Ok(());
        }
        self.finish(out);
        let limit = out.len().saturating_add(RUN_BYTES);
        let mut encoder = RunEncoder::begin(&stamp, &event, limit, out);
        // Any event that a run can carry fits an empty one.
        if encoder.push(&event, out) {
            let next = Counter(stamp.counter.0.wrapping_add(1));
            self.open = Some(OpenRun { encoder, stream: stamp.stream, substream: stamp.substream, next });
            return Ok(());
        }
        encoder.finish(out);
        message.encode(out).map(drop)
    }

    /// Ends the run that is open.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if let Some(run) = self.open.take() {
            run.encoder.finish(out);
        }
    }
}
