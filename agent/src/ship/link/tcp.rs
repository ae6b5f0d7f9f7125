//! A connection.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use codec::heph::{MAX_PACKET_BYTES, Step, StreamDecoder};
use rustix::{event::PollFlags, io::Errno};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use super::{Sent, wait_for, would_block};
use crate::ship::{TunnelState, Tunnelled};

/// How much may wait to be written before no more is taken.
const UNSENT_BYTES: usize = 256 << 10;

/// How much is read before others have their turn.
const MOST_AT_ONCE: usize = 1 << 20;

/// After how much silence the other side is asked whether it is still there, and then how often, and how many times.
const ASK_AFTER: Duration = Duration::from_secs(5);
const ASK_EVERY: Duration = Duration::from_secs(2);
const ASK_TIMES: u32 = 5;

/// How long a connection that takes nothing is believed in. One whose reader waits for its disk looks the same as one
/// whose machine was switched off; both are tried again then, which loses nothing.
const STUCK: Duration = Duration::from_secs(120);

/// A connection that does not block. What could not be written waits here.
#[derive(Debug)]
pub(in crate::ship) struct Tcp {
    stream: Socket,
    /// How far the tunnel is that this leads through, if it does.
    tunnel: Option<Arc<TunnelState>>,
    unsent: Vec<u8>,
    /// How much of `unsent` is written.
    written: usize,
    received: Vec<u8>,
    buffer: Box<[u8]>,
    decoder: StreamDecoder,
}

impl Tcp {
    pub(super) fn open(to: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(ASK_AFTER).with_interval(ASK_EVERY).with_retries(ASK_TIMES);
        socket.set_tcp_keepalive(&keepalive)?;
        socket.set_tcp_user_timeout(Some(STUCK))?;
        match socket.connect(&to.into()) {
            Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {}
            connected => connected?,
        }
        Ok(Self::new(socket, None))
    }

    /// A connection that a tunnel makes.
    pub(super) fn through(tunnelled: Tunnelled) -> io::Result<Self> {
        let Tunnelled { socket, state } = tunnelled;
        socket.set_nonblocking(true)?;
        Ok(Self::new(socket.into(), Some(state)))
    }

    fn new(stream: Socket, tunnel: Option<Arc<TunnelState>>) -> Self {
        Self {
            stream,
            tunnel,
            unsent: Vec::new(),
            written: 0,
            received: Vec::new(),
            buffer: vec![0; 1 << 16].into(),
            decoder: StreamDecoder::new(MAX_PACKET_BYTES),
        }
    }

    pub(super) fn is_tunnel(&self) -> bool {
        self.tunnel.is_some()
    }

    /// What an error of the socket means.
    fn explained(&self, error: io::Error) -> io::Error {
        match &self.tunnel {
            Some(tunnel) => tunnel.explain(error),
            None => error,
        }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub(super) fn is_ready(&self) -> io::Result<bool> {
        if let Some(tunnel) = &self.tunnel {
            return tunnel.is_open();
        }
        if !wait_for(&self.stream, PollFlags::OUT, Duration::ZERO) {
            return Ok(false);
        }
        self.stream.take_error()?.map_or(Ok(true), Err)
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.written < self.unsent.len()
    }

    /// Takes all of the packets or nothing.
    pub(super) fn send(&mut self, packets: &[u8]) -> io::Result<Sent> {
        self.flush()?;
        if self.unsent.len() - self.written > UNSENT_BYTES {
            return Ok(Sent::Blocked);
        }
        // Without a detour as long as the connection takes it.
        let mut rest = packets;
        while !self.has_unsent() && !rest.is_empty() {
            match self.write(rest)? {
                0 => break,
                count => rest = rest.get(count..).unwrap_or_default(),
            }
        }
        self.unsent.extend_from_slice(rest);
        Ok(Sent::Yes)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.has_unsent() {
            let unsent = std::mem::take(&mut self.unsent);
            let count = self.write(unsent.get(self.written..).unwrap_or_default());
            self.unsent = unsent;
            match count? {
                0 => return Ok(()),
                count => self.written += count,
            }
        }
        self.unsent.clear();
        self.written = 0;
        Ok(())
    }

    /// Writes what can be written now, which may be nothing.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.stream.write(bytes) {
            Ok(0) => Err(ErrorKind::WriteZero.into()),
            Ok(count) => Ok(count),
            Err(error) if would_block(&error) => Ok(0),
            Err(error) => Err(self.explained(error)),
        }
    }

    pub(super) fn receive(&mut self, mut each: impl FnMut(&[u8])) -> io::Result<bool> {
        let (mut taken, mut closed) = (0, false);
        while taken < MOST_AT_ONCE && !closed {
            match self.stream.read(&mut self.buffer) {
                Ok(0) => closed = true,
                Ok(count) => {
                    taken += count;
                    self.received.extend_from_slice(self.buffer.get(..count).unwrap_or_default());
                }
                Err(error) if would_block(&error) => break,
                Err(error) => return Err(self.explained(error)),
            }
        }
        let mut consumed = 0;
        loop {
            match self.decoder.step(self.received.get(consumed..).unwrap_or_default(), false) {
                Step::Packet { bytes, .. } => {
                    each(bytes);
                    consumed += bytes.len();
                }
                Step::Skip { bytes, .. } => consumed += bytes,
                Step::More { .. } => break,
            }
        }
        self.received.drain(..consumed);
        if closed {
            let closed = io::Error::new(ErrorKind::UnexpectedEof, "the collector closed the connection");
            return Err(self.explained(closed));
        }
        Ok(taken > 0)
    }
}
