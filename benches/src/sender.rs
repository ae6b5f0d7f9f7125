//! Sends events over TCP, UDP, TLS or QUIC as an agent does, as fast as the collector takes them.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use agent::ship::{Transport, Tunnel};
use codec::{
    SessionId,
    access::Pin,
    heph::Packets,
    profile::{Known, Message, ProfileOption},
};
use quinn_udp::{Transmit, UdpSockRef, UdpSocketState};
use tunnel::{Encrypted, Setup, Trust};

use crate::load::{Carries, Load, ending, opening, progress, run};

/// The streams that events are spread over.
pub const STREAMS: u32 = 4;

/// What fits a datagram.
const DATAGRAM_BYTES: usize = 1400;

/// The most the system splits at once.
const BURST_BYTES: usize = 62_000;

/// What a run holds: what fits the packets of an agent over TCP.
const RUN_BYTES: usize = 60 << 10;

/// Sends a session of so many events or a few more in runs over TCP, on one stream. `pace` is as below. How many those were, and
/// how many bytes.
pub fn runs(
    to: SocketAddr,
    number: u64,
    carries: Carries,
    events: u64,
    mut pace: impl FnMut(u64),
) -> io::Result<(u64, u64)> {
    let mut connection = TcpStream::connect(to)?;
    let mut replies = connection.try_clone()?;
    let reader = thread::spawn(move || while replies.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {});
    let mut id = [0; 16];
    id[8..].copy_from_slice(&(number + 1).to_be_bytes());
    connection.write_all(&opening(SessionId(id)))?;
    let (mut sent, mut bytes, mut packet) = (0, 0, Vec::new());
    while sent < events {
        packet.clear();
        sent += run(carries, 0, sent, RUN_BYTES, &mut packet);
        bytes += packet.len() as u64;
        connection.write_all(&packet)?;
        pace(sent);
    }
    connection.write_all(&ending(&[sent]))?;
    connection.shutdown(Shutdown::Write)?;
    reader.join().expect("the reader does not panic");
    Ok((sent, bytes))
}

/// Sends `events` over TCP. `pace` is called with how many have been sent, and may wait.
pub fn tcp(to: SocketAddr, id: SessionId, carries: Carries, events: u64, pace: impl FnMut(u64)) -> io::Result<()> {
    let connection = TcpStream::connect(to)?;
    let replies = connection.try_clone()?;
    stream(connection, replies, id, carries, events, pace)
}

/// Sends `events` encrypted, as the agent does: through a thread that encrypts.
pub fn encrypted(
    to: SocketAddr,
    transport: Transport,
    pin: Pin,
    id: SessionId,
    carries: Carries,
    events: u64,
    pace: impl FnMut(u64),
) -> io::Result<()> {
    let (trust, name) = (Trust::Pin(pin), "localhost".into());
    let setup = Setup { transport, trust, name, identity: None, token: None };
    let connection = Encrypted::new(&setup).map_err(io::Error::other)?.open(to)?.socket;
    let replies = connection.try_clone()?;
    stream(connection, replies, id, carries, events, pace)
}

fn stream(
    mut connection: impl Write,
    mut replies: impl Read + Send + 'static,
    id: SessionId,
    carries: Carries,
    events: u64,
    mut pace: impl FnMut(u64),
) -> io::Result<()> {
    // Replies are read, and nothing more: TCP itself does the pacing.
    let reader = thread::spawn(move || while replies.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {});
    connection.write_all(&opening(id))?;
    let mut load = Load::new(carries, 256);
    let mut sent = [0; STREAMS as usize];
    let mut turn = 0;
    while sent.iter().sum::<u64>() < events {
        let stream = turn % STREAMS;
        connection.write_all(load.at(stream, sent[stream as usize]))?;
        sent[stream as usize] += load.events();
        turn += 1;
        pace(sent.iter().sum());
    }
    connection.write_all(&ending(&sent))?;
    reader.join().expect("the reader does not panic");
    Ok(())
}

/// Sends `events` over UDP, no more at a time than the collector allows, and again what it asks for again.
pub fn udp(to: SocketAddr, id: SessionId, carries: Carries, events: u64, mut pace: impl FnMut(u64)) -> io::Result<u64> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(to)?;
    let per_datagram = DATAGRAM_BYTES / Load::new(carries, 1).pair_bytes();
    let datagrams = BURST_BYTES / (per_datagram * Load::new(carries, 1).pair_bytes());
    let mut sender = Udp {
        state: UdpSocketState::new(UdpSockRef::from(&socket))?,
        load: Load::new(carries, per_datagram * datagrams.min(64)),
        one: Load::new(carries, 1),
        datagram_bytes: per_datagram * Load::new(carries, 1).pair_bytes(),
        to,
        socket,
        sent: [0; STREAMS as usize],
        settled: [0; STREAMS as usize],
        window: 64 << 10,
        again: 0,
    };
    sender.run(id, events, &mut pace)?;
    Ok(sender.again)
}

struct Udp {
    socket: UdpSocket,
    state: UdpSocketState,
    to: SocketAddr,
    load: Load,
    one: Load,
    datagram_bytes: usize,
    sent: [u64; STREAMS as usize],
    settled: [u64; STREAMS as usize],
    window: u64,
    again: u64,
}

impl Udp {
    fn run(&mut self, id: SessionId, events: u64, pace: &mut impl FnMut(u64)) -> io::Result<()> {
        let opening = opening(id);
        self.socket.set_nonblocking(false)?;
        self.socket.set_read_timeout(Some(Duration::from_millis(5)))?;
        self.socket.send(&opening)?;
        while self.receive()? == 0 {
            self.socket.send(&opening)?;
        }
        let mut told = Instant::now();
        let mut turn = 0;
        while self.sent.iter().sum::<u64>() < events {
            while self.in_flight() >= self.window {
                self.receive()?;
                self.send_progress(&mut told)?;
            }
            let stream = turn % STREAMS;
            let bytes = self.load.at(stream, self.sent[stream as usize]);
            send(&self.socket, &self.state, self.to, bytes, self.datagram_bytes)?;
            self.sent[stream as usize] += self.load.events();
            turn += 1;
            self.send_progress(&mut told)?;
            pace(self.sent.iter().sum());
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.settled != self.sent && Instant::now() < deadline {
            self.socket.send(&progress(&self.sent))?;
            self.receive()?;
        }
        self.socket.send(&ending(&self.sent))?;
        Ok(())
    }

    /// Says how far it has come, now and then.
    fn send_progress(&mut self, told: &mut Instant) -> io::Result<()> {
        if told.elapsed() >= Duration::from_millis(100) {
            *told = Instant::now();
            self.socket.send(&progress(&self.sent))?;
        }
        Ok(())
    }

    fn in_flight(&self) -> u64 {
        let events: u64 = self.sent.iter().sum::<u64>() - self.settled.iter().sum::<u64>();
        events * self.one.pair_bytes() as u64 / 2
    }

    /// Waits for a reply for a moment. Returns how many options it acknowledges.
    fn receive(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 2048];
        let length = match self.socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => return Ok(0),
            Err(error) => return Err(error),
        };
        let mut options = 0;
        let mut packets = Packets::new(&buffer[..length], 1 << 20);
        while let Some(Ok(message)) = packets.next_with(Message::decode) {
            let Message::Option(Known { option, .. }) = message else { continue };
            match option {
                ProfileOption::Ack(ack) => {
                    self.window = ack.window_bytes;
                    options += ack.options.len();
                    for position in ack.streams {
                        let settled = &mut self.settled[position.stream.0 as usize];
                        *settled = (*settled).max(position.next.0);
                    }
                }
                ProfileOption::Nack(nack) => {
                    for range in nack.ranges {
                        for pair in range.first.0 / 2..(range.first.0 + range.count).div_ceil(2) {
                            self.again += 2;
                            self.socket.send(self.one.at(range.stream.0, 2 * pair))?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(options)
    }
}

/// Sends bytes as datagrams of one size, all at once where the system can.
fn send(socket: &UdpSocket, state: &UdpSocketState, to: SocketAddr, bytes: &[u8], size: usize) -> io::Result<()> {
    let at_once = size * state.max_gso_segments().max(1);
    for contents in bytes.chunks(at_once) {
        let segment_size = (contents.len() > size).then_some(size);
        let transmit = Transmit { destination: to, ecn: None, contents, segment_size, src_ip: None };
        while let Err(error) = state.try_send(UdpSockRef::from(socket), &transmit) {
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(error);
            }
            thread::yield_now();
        }
    }
    Ok(())
}
