//! The socket: nothing here blocks but for the time that it is told it may.

mod tcp;
mod udp;

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    os::fd::AsFd,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use self::{tcp::Tcp, udp::Udp};
use super::{Transport, Tunnel};

/// A socket to a collector. An error from any of its functions means that contact is lost.
#[derive(Debug)]
pub(super) enum Link {
    Udp(Udp),
    Tcp(Tcp),
}

/// What became of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// They are on their way, as far as can be known.
    Yes,
    /// There is no room for them now.
    Blocked,
}

impl Link {
    /// Begins to connect.
    pub(super) fn open(to: SocketAddr, transport: Transport, tunnel: Option<&dyn Tunnel>) -> io::Result<Self> {
        Ok(match (transport, tunnel) {
            (Transport::Udp, _) => Self::Udp(Udp::open(to)?),
            (Transport::Tcp, _) => Self::Tcp(Tcp::open(to)?),
            (Transport::Tls | Transport::Quic | Transport::Socket, Some(tunnel)) => {
                Self::Tcp(Tcp::through(tunnel.open(to)?)?)
            }
            (Transport::Tls | Transport::Quic | Transport::Socket, None) => return Err(ErrorKind::Unsupported.into()),
        })
    }

    /// Whether it is connected.
    pub(super) fn is_ready(&self) -> io::Result<bool> {
        match self {
            Self::Udp(_) => Ok(true),
            Self::Tcp(tcp) => tcp.is_ready(),
        }
    }

    /// Sends whole packets, in one datagram where there are such.
    pub(super) fn send(&mut self, packets: &[u8]) -> io::Result<Sent> {
        match self {
            Self::Udp(udp) => udp.send(packets),
            Self::Tcp(tcp) => tcp.send(packets),
        }
    }

    /// Goes on with what has not gone out.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Udp(_) => Ok(()),
            Self::Tcp(tcp) => tcp.flush(),
        }
    }

    /// Passes on the packets that have come. Whether there were any.
    pub(super) fn receive(&mut self, each: impl FnMut(&[u8])) -> io::Result<bool> {
        match self {
            Self::Udp(udp) => udp.receive(each),
            Self::Tcp(tcp) => tcp.receive(each),
        }
    }

    fn is_tunnel(&self) -> bool {
        matches!(self, Self::Tcp(tcp) if tcp.is_tunnel())
    }

    /// Waits until something has come or, where that is waited for too, something can go; at most so long.
    pub(super) fn wait(&self, wait: Duration, to_send: bool) {
        let (fd, unsent) = match self {
            Self::Udp(udp) => (udp.as_fd(), false),
            Self::Tcp(tcp) => (tcp.as_fd(), tcp.has_unsent()),
        };
        // The socket of a tunnel takes something at once, but that is no news while there is nobody at its other end.
        let to_send = to_send && !(self.is_tunnel() && matches!(self.is_ready(), Ok(false)));
        let flags = if to_send || unsent { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        wait_for(fd, flags, wait);
    }
}

/// Waits for a descriptor, at most so long. Whether it is ready.
fn wait_for(fd: impl AsFd, flags: PollFlags, wait: Duration) -> bool {
    let timeout = Timespec::try_from(wait).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
    // An interruption is as good as the time being over: all who call this look again.
    poll(&mut [PollFd::new(&fd, flags)], Some(&timeout)).is_ok_and(|ready| ready > 0)
}

/// Whether an error only says that nothing can be done now.
fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Whether an error says that the system has no memory for what is to be sent, for the moment.
fn is_out_of_room(error: &io::Error) -> bool {
    [Errno::NOBUFS, Errno::NOMEM].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests;
