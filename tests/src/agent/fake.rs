//! A collector just good enough to try the agent and the relay on.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use codec::{
    Position, SessionId, SessionNs, StreamId,
    heph::{Encode, MAX_PACKET_BYTES, Packets, Stamp, Step, StreamDecoder},
    profile::{Ack, Fingerprint, Known, Message, Nack, ProfileOption, Range, StreamPosition},
};

const GLANCE: Duration = Duration::from_millis(10);

/// What a fake collector has seen.
#[derive(Debug, Default)]
pub(crate) struct State {
    session: Option<SessionId>,
    pub(crate) window_bytes: u64,
    /// The streams, by id.
    pub(crate) streams: BTreeMap<u32, Received>,
    pub(crate) options: BTreeSet<String>,
    /// Every how many events one is overlooked when it comes for the first time; 0 for none.
    pub(crate) overlook: u64,
    /// Whether events are asked for again, rather than given up.
    pub(crate) asks: bool,
    events: u64,
    overlooked: BTreeSet<(u32, u32)>,
    /// The most bytes of events that came between two acknowledgements.
    pub(crate) largest_burst: u64,
    burst: u64,
    pub(crate) peers: BTreeSet<SocketAddr>,
    echo: SessionNs,
}

/// What has come of one stream.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) positions: BTreeSet<u64>,
    pub(crate) settled: u64,
    /// How far the agent said it was, and before that.
    known: u64,
    known_before: u64,
}

impl State {
    /// Takes a packet.
    fn take(&mut self, packet: &[u8], acknowledged: &mut Vec<Fingerprint>) {
        match Message::decode(packet).expect("the agent sends valid packets") {
            Message::Option(Known { option, .. }) => {
                self.options.insert(option.name().to_string());
                acknowledged.push(Fingerprint::of(packet));
                match option {
                    ProfileOption::Session(session) => self.session = Some(session.id),
                    ProfileOption::Progress(progress) => {
                        acknowledged.pop();
                        self.echo = progress.now;
                        progress.streams.into_iter().for_each(|at| self.hear(at));
                    }
                    ProfileOption::End(end) => end.streams.into_iter().for_each(|at| self.hear(at)),
                    _ => {}
                }
            }
            Message::Function(event) => self.event(&event.stamp, packet.len() as u64),
            other => panic!("not of the profile: {other:?}"),
        }
    }

    fn event(&mut self, stamp: &Stamp, bytes: u64) {
        assert!(self.session.is_some(), "an event came before the session was known");
        self.burst += bytes;
        self.largest_burst = self.largest_burst.max(self.burst);
        self.events += 1;
        let overlook = self.overlook > 0 && self.events.is_multiple_of(self.overlook);
        if overlook && self.overlooked.insert((stamp.stream.0, stamp.counter.0)) {
            return;
        }
        let stream = self.streams.entry(stamp.stream.0).or_default();
        let position = Position(stream.settled).nearest(stamp.counter);
        stream.positions.insert(position.0);
        stream.advance();
    }

    fn hear(&mut self, at: StreamPosition) {
        let asks = self.asks;
        let stream = self.streams.entry(at.stream.0).or_default();
        if stream.positions.is_empty() && stream.known == 0 {
            // Where the stream starts.
            (stream.settled, stream.known_before) = (at.next.0, at.next.0);
        }
        // What has not come while the agent told its progress twice does not come any more.
        if !asks && stream.settled < stream.known_before {
            stream.settled = stream.known_before;
        }
        (stream.known_before, stream.known) = (stream.known, at.next.0);
        stream.advance();
    }

    /// The packets to answer with.
    fn answer(&mut self, options: &[Fingerprint]) -> Vec<u8> {
        self.burst = 0;
        let Some(session) = self.session else { return Vec::new() };
        let settled =
            |(id, stream): (&u32, &Received)| StreamPosition { stream: StreamId(*id), next: Position(stream.settled) };
        let streams: Vec<_> = self.streams.iter().map(settled).collect();
        let ack = Ack {
            session,
            echo: self.echo,
            window_bytes: self.window_bytes,
            streams: streams.as_slice().into(),
            options: options.into(),
        };
        let mut answer = Vec::new();
        ProfileOption::from(ack).encode(&mut answer).expect("it fits");
        let missing = self.streams.iter().flat_map(|(id, stream)| stream.missing(*id)).take(50);
        let ranges: Vec<_> = missing.collect();
        if self.asks && !ranges.is_empty() {
            let nack = Nack { session, ranges: ranges.as_slice().into() };
            ProfileOption::from(nack).encode(&mut answer).expect("it fits");
        }
        answer
    }
}

impl Received {
    fn advance(&mut self) {
        while self.positions.contains(&self.settled) {
            self.settled += 1;
        }
    }

    /// What is missing before the last event that came, or that the agent said there was.
    fn missing(&self, id: u32) -> Vec<Range> {
        let last = self.positions.last().map_or(0, |last| last + 1).max(self.known);
        let missing = (self.settled..last).filter(|position| !self.positions.contains(position)).take(50);
        missing.map(|first| Range { stream: StreamId(id), first: Position(first), count: 1 }).collect()
    }
}

/// A fake collector on a UDP and a TCP port of its own.
#[derive(Debug)]
pub(crate) struct Fake {
    state: Arc<Mutex<State>>,
    pub(crate) udp: SocketAddr,
    pub(crate) tcp: SocketAddr,
    stopped: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Fake {
    pub(crate) fn start(window_bytes: u64, overlook: u64, asks: bool) -> io::Result<Self> {
        let state = Arc::new(Mutex::new(State { window_bytes, overlook, asks, ..State::default() }));
        let stopped = Arc::new(AtomicBool::new(false));
        let (socket, listener) = (UdpSocket::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
        let (udp, tcp) = (socket.local_addr()?, listener.local_addr()?);
        socket.set_read_timeout(Some(GLANCE))?;
        let datagrams = {
            let (state, stopped) = (Arc::clone(&state), Arc::clone(&stopped));
            thread::spawn(move || serve_datagrams(&socket, &state, &stopped))
        };
        let connections = {
            let (state, stopped) = (Arc::clone(&state), Arc::clone(&stopped));
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    if is_set(&stopped) {
                        return;
                    }
                    let _ = serve_connection(stream, &state, &stopped);
                }
            })
        };
        Ok(Self { state, udp, tcp, stopped, threads: vec![datagrams, connections] })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // ORDERING: nothing but the flag itself is told by it.
        self.stopped.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = TcpStream::connect(self.tcp);
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "the fake collector failed");
        }
    }
}

fn is_set(stopped: &AtomicBool) -> bool {
    // ORDERING: nothing but the flag itself is told by it.
    stopped.load(Ordering::Relaxed)
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve_datagrams(socket: &UdpSocket, state: &Mutex<State>, stopped: &AtomicBool) {
    let mut buffer = vec![0; 1 << 16];
    while !is_set(stopped) {
        let Ok((count, peer)) = socket.recv_from(&mut buffer) else { continue };
        let mut acknowledged = Vec::new();
        let mut packets = Packets::new(&buffer[..count], MAX_PACKET_BYTES);
        let mut state = lock(state);
        state.peers.insert(peer);
        while let Some(packet) = packets.next_with(Ok) {
            state.take(packet.expect("whole packets"), &mut acknowledged);
        }
        let _ = socket.send_to(&state.answer(&acknowledged), peer);
    }
}

fn serve_connection(mut stream: TcpStream, state: &Mutex<State>, stopped: &AtomicBool) -> io::Result<()> {
    stream.set_read_timeout(Some(GLANCE))?;
    lock(state).peers.insert(stream.peer_addr()?);
    let mut decoder = StreamDecoder::new(MAX_PACKET_BYTES);
    let (mut received, mut buffer) = (Vec::new(), [0; 1 << 14]);
    while !is_set(stopped) {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => received.extend_from_slice(&buffer[..count]),
            Err(_) => continue,
        }
        let mut acknowledged = Vec::new();
        let mut consumed = 0;
        let mut state = lock(state);
        while let Step::Packet { bytes, .. } = decoder.step(&received[consumed..], false) {
            state.take(bytes, &mut acknowledged);
            consumed += bytes.len();
        }
        received.drain(..consumed);
        stream.write_all(&state.answer(&acknowledged))?;
    }
    Ok(())
}
