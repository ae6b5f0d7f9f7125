//! What a session has to tell its agent.

use std::{collections::BTreeSet, time::Duration};

use bytes::{Bytes, BytesMut};
use codec::{
    Position, SessionId, SessionNs, StreamId,
    heph::Encode,
    profile::{Ack, Fingerprint, Kept, Lost, Nack, ProfileOption, Range, StreamPosition, Times},
};

/// How many streams, options or ranges one packet tells of: it has to fit a datagram.
const PER_PACKET: usize = 48;

/// How many options are acknowledged at a time. Those beyond are sent again, and acknowledged then.
const MAX_OPTIONS: usize = 64 * PER_PACKET;

/// What has not been told yet.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    streams: BTreeSet<StreamId>,
    /// The stream that moved last: most events are of the same stream as the one before.
    last: Option<StreamId>,
    options: BTreeSet<Fingerprint>,
    /// The streams of which more is kept.
    kept: BTreeSet<StreamId>,
    /// Whether anything is to be told, even if it is only the window.
    wanted: bool,
    /// When it is to be told at the latest.
    due: Option<Duration>,
    /// Bytes of events that have arrived since the last time.
    bytes: u64,
    echo: SessionNs,
    /// When a `progress` arrived that has not been answered, by the wall clock.
    received_unix_ns: Option<u64>,
}

impl Reply {
    /// A stream has come further, by events of so many bytes.
    #[inline]
    pub(crate) fn moved(&mut self, stream: StreamId, bytes: u64, by: Duration) {
        self.bytes += bytes;
        if self.last != Some(stream) {
            self.last = Some(stream);
            self.streams.insert(stream);
            self.want(by);
        }
    }

    /// More of a stream is kept, or that is to be told again.
    pub(crate) fn kept(&mut self, stream: StreamId, by: Duration) {
        self.kept.insert(stream);
        self.want(by);
    }

    /// An option has arrived.
    pub(crate) fn option(&mut self, fingerprint: Fingerprint, by: Duration) {
        // A sender that repeats one option endlessly shall not fill the memory.
        if self.options.len() < MAX_OPTIONS {
            self.options.insert(fingerprint);
        }
        self.want(by);
    }

    /// A `progress` has arrived.
    pub(crate) fn echo(&mut self, now: SessionNs, received_unix_ns: u64, by: Duration) {
        (self.echo, self.received_unix_ns) = (now, Some(received_unix_ns).filter(|time| *time > 0));
        self.want(by);
    }

    fn want(&mut self, by: Duration) {
        self.wanted = true;
        self.due = Some(self.due.map_or(by, |due| due.min(by)));
    }

    /// Whether anything is to be told.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// Whether it is time to tell: something has waited long enough, or a quarter of the window has been used.
    pub(crate) fn is_due(&self, now: Duration, window_bytes: u64) -> bool {
        self.wanted && (self.due.is_some_and(|due| due <= now) || self.bytes >= window_bytes / 4)
    }

    /// The acknowledgements, of all that has not been told. `next` and `kept` tell how far a stream has come, and `lost`
    /// is what the session has lost, and since when that is counted.
    pub(crate) fn acks(
        &mut self,
        session: SessionId,
        window_bytes: u64,
        next: impl Fn(StreamId) -> Option<Position>,
        kept: impl Fn(StreamId) -> Option<Position>,
        (lost, since): (&[Lost<'_>], u64),
        answered_unix_ns: u64,
    ) -> Vec<Bytes> {
        fn positions(streams: BTreeSet<StreamId>, of: impl Fn(StreamId) -> Option<Position>) -> Vec<StreamPosition> {
            let position = |stream| of(stream).map(|next| StreamPosition { stream, next });
            streams.into_iter().filter_map(position).collect()
        }
        let streams = positions(std::mem::take(&mut self.streams), next);
        let kept = positions(std::mem::take(&mut self.kept), kept);
        let options: Vec<_> = std::mem::take(&mut self.options).into_iter().collect();
        let packets = streams.len().div_ceil(PER_PACKET).max(options.len().div_ceil(PER_PACKET)).max(1);
        let mut streams = streams.chunks(PER_PACKET);
        let mut options = options.chunks(PER_PACKET);
        let echo = self.echo;
        let times = self
            .received_unix_ns
            .and_then(|received_unix_ns| packet(Times { session, echo, received_unix_ns, answered_unix_ns }.into()));
        *self = Self { echo, ..Self::default() };
        let lost = lost.get(..PER_PACKET).unwrap_or(lost);
        let kept = kept
            .chunks(PER_PACKET)
            .filter_map(|streams| packet(Kept { session, streams: streams.into(), lost: lost.into(), since }.into()));
        let acks = (0..packets).filter_map(|_| {
            let streams = streams.next().unwrap_or_default().into();
            let options = options.next().unwrap_or_default().into();
            packet(Ack { session, echo, window_bytes, streams, options }.into())
        });
        times.into_iter().chain(acks).chain(kept).collect()
    }
}

/// The packets that ask for ranges.
pub(crate) fn nacks(session: SessionId, ranges: &[Range]) -> Vec<Bytes> {
    ranges.chunks(PER_PACKET).filter_map(|ranges| packet(Nack { session, ranges: ranges.into() }.into())).collect()
}

/// The packet that asks an agent who it is.
pub(crate) fn who() -> Option<Bytes> {
    packet(Nack { session: SessionId::NONE, ranges: [].as_slice().into() }.into())
}

/// The most ranges that one tick asks a session for.
pub(crate) const MAX_RANGES: usize = 4 * PER_PACKET;

pub(crate) fn packet(option: ProfileOption<'_>) -> Option<Bytes> {
    let mut bytes = BytesMut::new();
    // None of them can be too large for a packet.
    option.encode(&mut bytes).ok()?;
    Some(bytes.freeze())
}
