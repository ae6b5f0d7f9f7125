//! Where to deliver, how, and what for.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use codec::{Arch, Os, SessionId, profile::Birth};

use super::Tunnel;

/// The least that a datagram is made for: whatever an event carries, it fits.
pub(super) const LEAST_DATAGRAM_BYTES: usize = 1_200;

/// The most that a datagram is made for.
pub(super) const MOST_DATAGRAM_BYTES: usize = 65_000;

/// What fits every network that is worth the name, whole.
const COMMON_DATAGRAM_BYTES: usize = 1_400;

/// Within a machine nothing is cut up on the way, so that larger is faster.
const LOOPBACK_DATAGRAM_BYTES: usize = 60_000;

/// How much is written to a connection at once.
const WRITE_BYTES: usize = 64 << 10;

/// How packets travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// In datagrams.
    Udp,
    /// In a stream.
    Tcp,
    /// In a stream through a [tunnel](Settings::tunnel), over TCP.
    Tls,
    /// In a stream through a tunnel, over UDP.
    Quic,
    /// In a stream through a tunnel that leads to a collector on the same machine.
    Socket,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
            Self::Quic => "QUIC",
            Self::Socket => "a socket",
        })
    }
}

/// How function events are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Consecutive events of a stream and substream in one packet.
    Runs,
    /// Each event in a packet of its own, for collectors that do not know runs.
    Plain,
}

/// How a [`Shipper`](super::Shipper) is set up. Make one with [`Settings::new`] and change what should be otherwise.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the collector may be; tried in order.
    pub to: Vec<SocketAddr>,
    /// How packets travel.
    pub transport: Transport,
    /// How function events are packed.
    pub wire: Wire,
    /// What makes connections that are more than TCP.
    pub tunnel: Option<Arc<dyn Tunnel>>,
    /// How large a datagram may get; in a stream, how much is written at once.
    pub datagram_bytes: usize,
    /// How many bytes of events are kept until they are settled.
    pub replay_bytes: usize,
    /// How long to wait for the first answer.
    pub patience: Duration,
}

impl Settings {
    /// The usual settings for these addresses.
    pub fn new(to: Vec<SocketAddr>, transport: Transport) -> Self {
        let datagram_bytes = Self::usual_datagram_bytes(&to, transport);
        Self {
            to,
            transport,
            tunnel: None,
            wire: Wire::Runs,
            datagram_bytes,
            replay_bytes: 32 << 20,
            patience: Duration::from_secs(5),
        }
    }

    /// How large datagrams to these addresses should be where the user has not said.
    pub fn usual_datagram_bytes(to: &[SocketAddr], transport: Transport) -> usize {
        match transport {
            Transport::Tcp | Transport::Tls | Transport::Quic | Transport::Socket => WRITE_BYTES,
            Transport::Udp if !to.is_empty() && to.iter().all(|to| to.ip().is_loopback()) => LOOPBACK_DATAGRAM_BYTES,
            Transport::Udp => COMMON_DATAGRAM_BYTES,
        }
    }

    /// How many bytes a packet or datagram may have, within what is possible.
    pub(super) fn packet_bytes(&self) -> usize {
        self.datagram_bytes.clamp(LEAST_DATAGRAM_BYTES, MOST_DATAGRAM_BYTES)
    }
}

/// Who is being traced: what `session`, `epoch`, `clock`, `birth` and `context` say.
#[derive(Debug, Clone)]
pub struct Who {
    /// The session's id.
    pub session: SessionId,
    /// The secret that the id was made of, where it was.
    pub secret: Option<[u8; 32]>,
    /// The processor.
    pub arch: Arch,
    /// The operating system.
    pub os: Os,
    /// The process id.
    pub pid: u32,
    /// The version of the agent.
    pub agent_version: String,
    /// The name of the machine.
    pub host: String,
    /// The path of the executable.
    pub executable: String,
    /// The arguments, its own name included. Those that do not fit a datagram are left out, from the last on.
    pub arguments: Vec<String>,
    /// The session's zero by the wall clock.
    pub epoch_unix_ns: u64,
    /// The session's zero by `CLOCK_BOOTTIME`.
    pub clock_zero_ns: u64,
    /// The session that it came from, if that is traced too. Both have the same zero.
    pub birth: Option<Birth>,
    /// The first session of the family: its own, if it came from no other.
    pub root: SessionId,
    /// The trace that the process was started in: `traceparent` and `tracestate` of its environment, possibly empty.
    pub trace: (String, String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_large_only_within_the_machine() {
        let (near, far) = ("127.0.0.1:7000".parse(), "192.0.2.1:7000".parse());
        let (near, far): (SocketAddr, SocketAddr) = (near.expect("an address"), far.expect("an address"));
        let usual = Settings::usual_datagram_bytes;
        assert_eq!(usual(&[near], Transport::Udp), LOOPBACK_DATAGRAM_BYTES);
        for to in [&[far][..], &[near, far], &[]] {
            assert_eq!(usual(to, Transport::Udp), COMMON_DATAGRAM_BYTES);
        }
        assert_eq!(usual(&[far], Transport::Tcp), WRITE_BYTES);
        let silly = |datagram_bytes| Settings { datagram_bytes, ..Settings::new(vec![near], Transport::Udp) };
        assert_eq!(silly(3).packet_bytes(), LEAST_DATAGRAM_BYTES);
        assert_eq!(silly(1 << 30).packet_bytes(), MOST_DATAGRAM_BYTES);
    }
}
