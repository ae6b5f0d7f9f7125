//! The bounds that a collector works within.

use std::time::Duration;

use codec::heph::MAX_PACKET_BYTES;

/// What bounds a [`Collector`](crate::Collector).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// How many packets of a stream may wait for an event that is missing.
    pub reorder_packets: u64,
    /// How long they wait.
    pub reorder_time: Duration,
    /// How long they wait for an agent that sends it again. What it cannot send any more it says.
    pub replay_time: Duration,
    /// After how much silence a session is given up.
    pub session_timeout: Duration,
    /// Whether senders have to show that they own the ids that can be claimed. What is read from a file cannot.
    pub wants_claims: bool,
    /// Whether what agents say was kept before was handed on, and is not missing.
    pub hands_on: bool,
    /// How long datagrams of an unknown sender are kept in case it is about to say who it is.
    pub identify_time: Duration,
    /// How many bytes of them are kept.
    pub identify_bytes: usize,
    /// How many sessions may be open.
    pub max_sessions: usize,
    /// How many sessions may be opened in a second in the long run; as many as may be open can be opened at once.
    /// `u64::MAX` is without a limit.
    pub openings_per_second: u64,
    /// After how much silence a session makes room for a new one when all are taken.
    pub evict_time: Duration,
    /// How many streams a session may have.
    pub max_streams: usize,
    /// How many streams all sessions may have together.
    pub max_streams_in_all: usize,
    /// The largest packet that is taken.
    pub max_packet_bytes: u32,
    /// How many bytes of events may wait for missing ones, in all sessions together.
    pub held_bytes: usize,
    /// How many bytes the agents may have sent and not seen acknowledged, all of them together.
    pub window_bytes: u64,
    /// How many bytes of events make a batch. It may be passed on with fewer.
    pub batch_bytes: usize,
    /// How long an acknowledgement may wait for others to travel with.
    pub ack_time: Duration,
    /// How long a missing event is waited for before it is asked for, and then between one time and the next.
    pub nack_time: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            reorder_packets: 65_536,
            reorder_time: Duration::from_millis(500),
            replay_time: Duration::from_secs(10),
            session_timeout: Duration::from_secs(30),
            wants_claims: true,
            hands_on: false,
            identify_time: Duration::from_millis(250),
            identify_bytes: 256 << 10,
            max_sessions: 1024,
            openings_per_second: 100,
            evict_time: Duration::from_secs(2),
            max_streams: 16_384,
            max_streams_in_all: 65_536,
            max_packet_bytes: MAX_PACKET_BYTES,
            held_bytes: 64 << 20,
            window_bytes: 4 << 20,
            batch_bytes: 64 << 10,
            ack_time: Duration::from_millis(20),
            nack_time: Duration::from_millis(20),
        }
    }
}
