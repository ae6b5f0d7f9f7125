//! Datagrams.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use codec::heph::{MAX_PACKET_BYTES, Packets};
use rustix::{event::PollFlags, io::Errno};
use socket2::SockRef;

use super::{Sent, is_out_of_room, wait_for, would_block};

/// The buffers that the system is asked for. It gives what it may.
const SEND_BUFFER_BYTES: usize = 4 << 20;
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;

/// How long a datagram waits for room in the socket's buffer.
const WAIT_FOR_ROOM: Duration = Duration::from_millis(2);

/// How many datagrams are taken before others have their turn.
const MOST_AT_ONCE: usize = 256;

/// A socket that is connected, so that the system tells it where nobody listens.
///
/// Datagrams larger than the network's are cut up by the system: slow, but they arrive.
#[derive(Debug)]
pub(in crate::ship) struct Udp {
    socket: UdpSocket,
    buffer: Box<[u8]>,
}

impl Udp {
    pub(super) fn open(to: SocketAddr) -> io::Result<Self> {
        let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
        let socket = UdpSocket::bind(any)?;
        let options = SockRef::from(&socket);
        // Smaller buffers make it slower and nothing else.
        let _ = options.set_send_buffer_size(SEND_BUFFER_BYTES);
        let _ = options.set_recv_buffer_size(RECEIVE_BUFFER_BYTES);
        socket.set_nonblocking(true)?;
        socket.connect(to)?;
        Ok(Self { socket, buffer: vec![0; 1 << 16].into() })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn send(&mut self, packets: &[u8]) -> io::Result<Sent> {
        let mut waited = false;
        loop {
            match self.socket.send(packets) {
                Ok(_) => return Ok(Sent::Yes),
                Err(error) if would_block(&error) || is_out_of_room(&error) => {
                    if waited || !wait_for(&self.socket, PollFlags::OUT, WAIT_FOR_ROOM) {
                        return Ok(Sent::Blocked);
                    }
                    waited = true;
                }
                // It never fits. The collector finds it missing, and says so.
                Err(error) if error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error()) => return Ok(Sent::Yes),
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn receive(&mut self, mut each: impl FnMut(&[u8])) -> io::Result<bool> {
        let mut any = false;
        for _ in 0..MOST_AT_ONCE {
            let length = match self.socket.recv(&mut self.buffer) {
                Ok(length) => length,
                Err(error) if would_block(&error) => break,
                Err(error) => return Err(error),
            };
            any = true;
            let mut packets = Packets::new(self.buffer.get(..length).unwrap_or_default(), MAX_PACKET_BYTES);
            // What is no packet, and what is behind it, is nothing to answer to.
            while let Some(Ok(packet)) = packets.next_with(Ok) {
                each(packet);
            }
        }
        Ok(any)
    }
}
