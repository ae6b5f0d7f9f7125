//! What comes out of a collector.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, SocketAddr},
};

use bytes::Bytes;
use codec::{Position, SessionId, SessionNs, StreamId, profile::EndReason};

use crate::Cause;

/// A session of a [`Collector`](crate::Collector). Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey(pub u64);

/// Where bytes come from and replies go to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Peer {
    /// A sender of datagrams.
    Datagram {
        /// The driver's number for the socket that they arrive at.
        socket: usize,
        /// Its address.
        address: SocketAddr,
    },
    /// A connection or a file, by the driver's number for it.
    Stream(u64),
}

/// Who is behind a peer: a machine may have many ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    Machine(IpAddr),
    Stream(u64),
}

impl Peer {
    pub(crate) fn source(&self) -> Source {
        match self {
            Self::Datagram { address, .. } => Source::Machine(address.ip()),
            Self::Stream(number) => Source::Stream(*number),
        }
    }
}

/// What the sinks are to be told. For each session, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// A session has started.
    Started {
        /// The session.
        session: SessionKey,
        /// Its id, if it has announced one.
        id: Option<SessionId>,
        /// Where it was first heard from.
        peer: Peer,
    },
    /// Options of the session: whole packets, as they came.
    Options {
        /// The session.
        session: SessionKey,
        /// The packets.
        packets: Bytes,
    },
    /// Events of the session.
    Events {
        /// The session.
        session: SessionKey,
        /// The packets, as they came.
        bytes: Bytes,
        /// Whose they are.
        runs: Vec<Run>,
    },
    /// Events that will not come.
    Gap {
        /// The session.
        session: SessionKey,
        /// What is missing.
        gap: Gap,
    },
    /// The session has ended; nothing more will be told of it.
    Ended {
        /// The session.
        session: SessionKey,
        /// What it came to.
        summary: Summary,
    },
}

/// Events of one stream without a gap between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The stream.
    pub stream: StreamId,
    /// The position of the first event.
    pub first: Position,
    /// How many events there are.
    pub events: u32,
    /// How many bytes their packets have.
    pub bytes: u32,
    /// How many events of the first packet are not meant: they were here before.
    pub skip: u32,
}

/// Events of one stream that are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The stream.
    pub stream: StreamId,
    /// The position of the first.
    pub first: Position,
    /// How many.
    pub count: u64,
    /// Why.
    pub cause: Cause,
}

/// What a session came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The id, if the session announced one, be it late.
    pub id: Option<SessionId>,
    /// How it ended.
    pub how: How,
    /// When it ended, by its own account.
    pub at: Option<SessionNs>,
    /// How many streams it had.
    pub streams: usize,
    /// Events passed on.
    pub written: u64,
    /// Events missing, by cause.
    pub missing: BTreeMap<Cause, u64>,
    /// Events that arrived after their gap was declared.
    pub late: u64,
    /// Events that arrived again.
    pub duplicates: u64,
    /// How often a stream's counter started anew.
    pub restarts: u64,
    /// Events refused because they were of one stream too many. They are in no gap, since nothing is known of their
    /// streams.
    pub refused: u64,
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// As the agent said.
    Told(EndReason),
    /// The connection or file that carried it ended.
    Closed,
    /// It was silent for too long.
    LostContact,
    /// The collector was stopped.
    Stopped,
}

impl How {
    /// The word for it in a manifest, and the exit code or signal where there is one.
    pub fn word(self) -> (&'static str, Option<i32>) {
        match self {
            Self::Told(EndReason::Exited(code)) => ("exited", Some(code)),
            Self::Told(EndReason::Signaled(signal)) => ("signaled", Some(signal)),
            Self::Told(EndReason::Detached) => ("detached", None),
            Self::Told(EndReason::Replaced) => ("replaced", None),
            Self::Told(EndReason::Other(_, number)) => ("ended", Some(number)),
            Self::Closed => ("closed", None),
            Self::LostContact => ("lost contact", None),
            Self::Stopped => ("stopped", None),
        }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.word() {
            ("exited", Some(code)) => write!(f, "exited with code {code}"),
            ("signaled", Some(signal)) => write!(f, "ended by signal {signal}"),
            (word, _) => f.write_str(word),
        }
    }
}

/// A packet for an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// Who gets it.
    pub to: Peer,
    /// The packet.
    pub packet: Bytes,
}
