//! How a synthetic agent is set up.

use std::{net::SocketAddr, time::Duration};

use codec::{Arch, Os, SessionId};

use crate::Random;

/// What the traced machine's clock shows at the zero of every synthetic session.
pub const CLOCK_ZERO_NS: u64 = 5_000_000_000;

/// What the wall clock shows then.
pub const EPOCH_UNIX_NS: u64 = 1_700_000_000_000_000_000;

/// How packets travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// In datagrams.
    Udp,
    /// In a stream.
    Tcp,
}

/// How an agent is set up. Make one with [`Settings::udp`] or [`Settings::tcp`] and change what should be otherwise.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the collector is.
    pub collector: SocketAddr,
    /// How packets travel.
    pub transport: Transport,
    /// The session.
    pub session: SessionId,
    /// How large a datagram may get; over TCP, how much is written at once.
    pub datagram_bytes: usize,
    /// How many streams there are.
    pub streams: u32,
    /// How many functions there are.
    pub functions: u32,
    /// The position of the first event of every stream.
    pub first_position: u64,
    /// Whether events are kept until they are settled, and sent again when the collector asks.
    pub replay: bool,
    /// Whether the window is honoured.
    pub pace: bool,
    /// The window before the first acknowledgement.
    pub first_window_bytes: u64,
    /// The largest window that is used, whatever the collector allows: little enough that no socket buffer of a
    /// machine overflows.
    pub window_limit_bytes: u64,
    /// How long to wait for the collector before giving up.
    pub patience: Duration,
    /// The processor it claims to run on.
    pub arch: Arch,
    /// The operating system it claims to run on.
    pub os: Os,
    /// The process id it claims to have.
    pub pid: u32,
    /// The machine it claims to be.
    pub host: String,
    /// The program it claims to trace.
    pub executable: String,
}

impl Settings {
    /// An agent that sends datagrams. The seed makes its session.
    pub fn udp(collector: SocketAddr, seed: u64) -> Self {
        Self {
            collector,
            transport: Transport::Udp,
            session: SessionId(Random::new(seed).id()),
            datagram_bytes: 1_400,
            streams: 2,
            functions: 40,
            first_position: 0,
            replay: true,
            pace: true,
            first_window_bytes: 64 << 10,
            window_limit_bytes: 64 << 10,
            patience: Duration::from_secs(20),
            arch: Arch::X86_64,
            os: Os::Linux,
            pid: 4_711,
            host: "machine".into(),
            executable: "/usr/bin/synthetic".into(),
        }
    }

    /// An agent that sends a stream.
    pub fn tcp(collector: SocketAddr, seed: u64) -> Self {
        Self {
            transport: Transport::Tcp,
            datagram_bytes: 16 << 10,
            window_limit_bytes: u64::MAX,
            ..Self::udp(collector, seed)
        }
    }
}
