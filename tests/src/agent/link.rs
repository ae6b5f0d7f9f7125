//! The socket of an agent.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use codec::heph::{MAX_PACKET_BYTES, Packets, Step, StreamDecoder};

use super::{Settings, Transport};

/// How much may wait to be written before the agent itself waits.
const UNSENT_BYTES: usize = 64 << 10;

/// A socket that does not block, except where it is told how long it may.
#[derive(Debug)]
pub(super) enum Link {
    Udp(UdpSocket),
    Tcp(Connection),
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    decoder: StreamDecoder,
    received: Vec<u8>,
    unsent: Vec<u8>,
    patience: Duration,
}

impl Link {
    pub(super) fn connect(settings: &Settings) -> io::Result<Self> {
        let to = settings.collector;
        match settings.transport {
            Transport::Udp => {
                let local = if to.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
                let socket = UdpSocket::bind(local)?;
                socket.connect(to)?;
                socket.set_nonblocking(true)?;
                Ok(Self::Udp(socket))
            }
            Transport::Tcp => {
                let stream = TcpStream::connect_timeout(&to, settings.patience)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                Ok(Self::Tcp(Connection {
                    stream,
                    decoder: StreamDecoder::new(MAX_PACKET_BYTES),
                    received: Vec::new(),
                    unsent: Vec::new(),
                    patience: settings.patience,
                }))
            }
        }
    }

    pub(super) fn local_address(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Udp(socket) => socket.local_addr(),
            Self::Tcp(connection) => connection.stream.local_addr(),
        }
    }

    /// Sends whole packets. A datagram that nobody takes is lost, which is no error.
    pub(super) fn send(&mut self, packets: &[u8]) -> io::Result<()> {
        match self {
            Self::Udp(socket) => loop {
                match socket.send(packets) {
                    Ok(_) => return Ok(()),
                    // An answer to an earlier datagram: there was nobody. This one has not been sent.
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => return Err(error),
                }
            },
            Self::Tcp(connection) => connection.send(packets),
        }
    }

    /// What has come, packet by packet. Waits for the first for at most this long.
    pub(super) fn receive(&mut self, wait: Duration) -> io::Result<Vec<Vec<u8>>> {
        match self {
            Self::Udp(socket) => receive_datagrams(socket, wait),
            Self::Tcp(connection) => connection.receive(wait),
        }
    }
}

fn receive_datagrams(socket: &UdpSocket, wait: Duration) -> io::Result<Vec<Vec<u8>>> {
    let mut packets = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    let mut taken = receive_datagram(socket, &mut buffer, &mut packets)?;
    if !taken && !wait.is_zero() {
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(wait))?;
        let waited = receive_datagram(socket, &mut buffer, &mut packets);
        socket.set_nonblocking(true)?;
        taken = waited?;
    }
    while taken {
        taken = receive_datagram(socket, &mut buffer, &mut packets)?;
    }
    Ok(packets)
}

/// Takes the packets of one datagram. Whether there was one, or word that an earlier one did not arrive.
fn receive_datagram(socket: &UdpSocket, buffer: &mut [u8], packets: &mut Vec<Vec<u8>>) -> io::Result<bool> {
    let count = match socket.recv(buffer) {
        Ok(count) => count,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Ok(true),
        Err(error) if is_empty(&error) => return Ok(false),
        Err(error) => return Err(error),
    };
    let mut datagram = Packets::new(&buffer[..count], MAX_PACKET_BYTES);
    while let Some(packet) = datagram.next_with(|bytes| Ok(bytes.to_vec())) {
        packets.push(packet.map_err(io::Error::other)?);
    }
    Ok(true)
}

impl Connection {
    fn send(&mut self, packets: &[u8]) -> io::Result<()> {
        self.unsent.extend_from_slice(packets);
        self.write_on()?;
        let deadline = Instant::now() + self.patience;
        while self.unsent.len() > UNSENT_BYTES {
            if Instant::now() > deadline {
                return Err(io::Error::new(ErrorKind::TimedOut, "the collector does not read"));
            }
            // Reading on while waiting: the collector may be waiting to be heard.
            self.fill(Duration::from_millis(1))?;
            self.write_on()?;
        }
        Ok(())
    }

    fn write_on(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if is_empty(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive(&mut self, wait: Duration) -> io::Result<Vec<Vec<u8>>> {
        self.write_on()?;
        self.fill(wait)?;
        let mut packets = Vec::new();
        let mut consumed = 0;
        loop {
            match self.decoder.step(&self.received[consumed..], false) {
                Step::Packet { bytes, .. } => {
                    packets.push(bytes.to_vec());
                    consumed += bytes.len();
                }
                Step::Skip { cause, .. } => return Err(io::Error::other(cause)),
                Step::More { .. } => break,
            }
        }
        self.received.drain(..consumed);
        Ok(packets)
    }

    /// Reads what is there; if that is nothing, waits for it.
    fn fill(&mut self, wait: Duration) -> io::Result<()> {
        let mut taken = self.read()?;
        if !taken && !wait.is_zero() {
            self.stream.set_nonblocking(false)?;
            self.stream.set_read_timeout(Some(wait))?;
            let waited = self.read();
            self.stream.set_nonblocking(true)?;
            taken = waited?;
        }
        while taken {
            taken = self.read()?;
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 1 << 14];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(io::Error::new(ErrorKind::UnexpectedEof, "the collector closed the connection")),
            Ok(count) => {
                self.received.extend_from_slice(&buffer[..count]);
                Ok(true)
            }
            Err(error) if is_empty(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn is_empty(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
