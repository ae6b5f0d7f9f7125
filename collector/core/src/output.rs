//! What comes out of a collector.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use bytes::Bytes;
use codec::{Position, SessionId, SessionNs, StreamId, atf::EndEntry, profile::EndReason};

use crate::{Batch, Cause, Session};

/// A session of a collector. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionKey(pub(crate) u64);

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

/// What happened to a session. For each session, in order.
#[derive(Debug)]
pub enum Output {
    /// It has started.
    Started(Arc<Session>),
    /// It was recorded before, and goes on: its streams go on where they were.
    Resumed(Arc<Session>),
    /// Options arrived: whole packets, as they came. The session's catalog has them already.
    Options(Arc<Session>, Bytes),
    /// Events arrived.
    Events(Arc<Batch>),
    /// Events are missing.
    Gap(Arc<Session>, Gap),
    /// It is about to end, as these packets say: all events before that are settled. They come again as options at its end.
    Ending(Arc<Session>, Bytes),
    /// It has ended; nothing follows.
    Ended(Arc<Session>, Summary),
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
    /// What it is found by: its id, or what a collector called it that handed it on.
    pub name: Option<SessionId>,
    /// How it ended.
    pub how: How,
    /// When it ended, by its own account.
    pub at: Option<SessionNs>,
    /// How many streams it had.
    pub streams: usize,
    /// Events passed on.
    pub written: u64,
    /// Events missing, by cause. Those of [too many streams](Cause::streams) are in no gap, since nothing else is known
    /// of their streams.
    pub missing: BTreeMap<Cause, u64>,
    /// Events that arrived after their gap was declared.
    pub late: u64,
    /// Events that arrived again.
    pub duplicates: u64,
    /// How often a stream's counter started anew.
    pub restarts: u64,
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
    /// What a manifest says of it, where it was at this time by the session's own account.
    pub fn entry(self, session: &Session, at: Option<SessionNs>) -> EndEntry {
        let (how, code) = self.word();
        let clock = session.catalog().clock();
        let at_ns = at.map(|at| clock.map_or(at.0, |clock| clock.at(at).0));
        EndEntry { how: how.into(), code, at_ns, ..EndEntry::default() }
    }

    /// The word for it in a manifest, and the exit code or signal where there is one.
    pub fn word(self) -> (&'static str, Option<i32>) {
        match self {
            Self::Told(EndReason::Exited(code)) => ("exited", Some(code)),
            Self::Told(EndReason::Signaled(signal)) => ("signaled", Some(signal)),
            Self::Told(EndReason::Detached) => ("detached", None),
            Self::Told(EndReason::Replaced) => ("replaced", None),
            Self::Told(EndReason::UNKNOWN) => ("ended", None),
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
