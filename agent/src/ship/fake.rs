//! A collector just good enough to try delivering on, in the test's own thread: it does what it does when it is asked to.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use codec::{
    Arch, Os, Position, SessionId, SessionNs, StreamId,
    heph::{Encode, MAX_PACKET_BYTES, Packets, Stamp, Step, StreamDecoder},
    profile::{Ack, Fingerprint, FunctionEvent, Kept, Known, Message, Nack, ProfileOption, Range, StreamPosition},
};

use super::{Settings, Shipper, Transport, Who, Wire, options::GROUP};

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(30);

/// Both ways to pack function events.
pub(crate) const WIRES: [Wire; 2] = [Wire::Runs, Wire::Plain];

/// How large datagrams to it may be.
const DATAGRAM_BYTES: usize = 1_400;

/// The session of every test.
pub(crate) const SESSION: SessionId = SessionId([9; 16]);

/// Sockets, and what came in by them.
#[derive(Debug)]
pub(crate) struct Fake {
    addresses: (SocketAddr, SocketAddr),
    sockets: Option<(UdpSocket, TcpListener)>,
    connection: Option<(TcpStream, StreamDecoder, Vec<u8>)>,
    peer: Option<SocketAddr>,
    pub(crate) got: Got,
    /// How agents that it makes pack function events.
    wire: Wire,
    /// Every how many datagrams one is overlooked; 0 for none.
    pub(crate) overlook: u64,
    datagrams: u64,
    pub(crate) window_bytes: u64,
    /// Whether it answers.
    pub(crate) answers: bool,
}

/// What a collector knows.
#[derive(Debug, Default)]
pub(crate) struct Got {
    /// Events by stream and position: what was told of them, as text, and their times.
    pub(crate) events: BTreeMap<(u32, u64), (Stamp, String)>,
    /// Drops by stream and position, and why.
    pub(crate) dropped: BTreeMap<(u32, u64), String>,
    /// Options other than progress, as text, by what they are about, where that matters the last of each.
    pub(crate) options: BTreeMap<String, String>,
    /// The names of all options and events in the order in which they came.
    pub(crate) order: Vec<&'static str>,
    pub(crate) settled: BTreeMap<u32, u64>,
    /// How far streams are said to be.
    pub(crate) known: BTreeMap<u32, u64>,
    pub(crate) end: BTreeMap<u32, u64>,
    echo: SessionNs,
    fingerprints: BTreeSet<Fingerprint>,
    pub(crate) packets: u64,
    /// How many events each run had, in the order in which they came.
    pub(crate) runs: Vec<u32>,
}

impl Fake {
    pub(crate) fn new(wire: Wire) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut fake = Self {
            addresses: (any, any),
            sockets: None,
            connection: None,
            peer: None,
            got: Got::default(),
            wire,
            overlook: 0,
            datagrams: 0,
            window_bytes: 256 << 10,
            answers: true,
        };
        fake.open();
        fake
    }

    /// Opens its sockets, again if need be: then it knows nothing.
    pub(crate) fn open(&mut self) {
        let udp = UdpSocket::bind(self.addresses.0).expect("a socket");
        let tcp = TcpListener::bind(self.addresses.1).expect("a socket");
        udp.set_nonblocking(true).expect("a socket");
        tcp.set_nonblocking(true).expect("a socket");
        self.addresses = (udp.local_addr().expect("an address"), tcp.local_addr().expect("an address"));
        (self.sockets, self.got) = (Some((udp, tcp)), Got::default());
    }

    /// Closes its sockets and connections.
    pub(crate) fn close(&mut self) {
        (self.sockets, self.connection, self.peer) = (None, None, None);
    }

    pub(crate) fn settings(&self, transport: Transport) -> Settings {
        let to = match transport {
            Transport::Udp => self.addresses.0,
            _ => self.addresses.1,
        };
        Settings { datagram_bytes: DATAGRAM_BYTES, wire: self.wire, ..Settings::new(vec![to], transport) }
    }

    pub(crate) fn who() -> Who {
        Who {
            session: SESSION,
            secret: None,
            arch: Arch::X86_64,
            os: Os::Linux,
            pid: 4_711,
            agent_version: "test".into(),
            host: "machine".into(),
            executable: "/bin/program".into(),
            arguments: vec!["program".into()],
            epoch_unix_ns: 1,
            clock_zero_ns: 0,
            birth: None,
            root: SESSION,
            trace: Default::default(),
        }
    }

    /// A shipper in contact with this.
    pub(crate) fn shipper(&mut self, transport: Transport) -> Shipper {
        let mut shipper = Shipper::new(self.settings(transport), &Self::who()).expect("a session");
        self.until(&mut shipper, |shipper, _| shipper.is_connected());
        shipper
    }

    /// Both have their turns until something holds.
    #[track_caller]
    pub(crate) fn until(&mut self, shipper: &mut Shipper, mut holds: impl FnMut(&mut Shipper, &Self) -> bool) {
        let deadline = Instant::now() + LONG;
        while !holds(shipper, self) {
            assert!(Instant::now() < deadline, "it does not come to hold: {:?}", shipper.report());
            shipper.turn(Duration::from_millis(1));
            self.turn();
        }
    }

    /// Both have their turns until everything is settled.
    #[track_caller]
    pub(crate) fn settle(&mut self, shipper: &mut Shipper) {
        shipper.flush();
        self.until(shipper, |shipper, _| {
            let report = shipper.report();
            report.unsettled == 0 && report.unacknowledged == 0
        });
    }

    /// Takes what has come and answers.
    pub(crate) fn turn(&mut self) {
        let mut acknowledged = Vec::new();
        let mut heard = false;
        let mut buffer = vec![0; 1 << 16];
        let Some((udp, tcp)) = &self.sockets else { return };
        while let Ok((length, peer)) = udp.recv_from(&mut buffer) {
            self.datagrams += 1;
            assert!(length <= DATAGRAM_BYTES, "a datagram of {length} bytes");
            if self.overlook > 0 && self.datagrams.is_multiple_of(self.overlook) {
                continue;
            }
            (self.peer, heard) = (Some(peer), true);
            let mut packets = Packets::new(&buffer[..length], MAX_PACKET_BYTES);
            while let Some(packet) = packets.next_with(Ok) {
                self.got.take(packet.expect("whole packets"), &mut acknowledged);
            }
        }
        if let Ok((stream, _)) = tcp.accept() {
            stream.set_nonblocking(true).expect("a connection");
            self.connection = Some((stream, StreamDecoder::new(MAX_PACKET_BYTES), Vec::new()));
        }
        if let Some((stream, decoder, received)) = &mut self.connection {
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                received.extend_from_slice(&buffer[..count]);
                heard = true;
            }
            let mut consumed = 0;
            while let Step::Packet { bytes, .. } = decoder.step(&received[consumed..], false) {
                self.got.take(bytes, &mut acknowledged);
                consumed += bytes.len();
            }
            received.drain(..consumed);
        }
        if heard && self.answers && self.got.options.contains_key("session") {
            self.answer(&acknowledged);
        }
    }

    fn answer(&mut self, acknowledged: &[Fingerprint]) {
        let mut answer = Vec::new();
        let settled =
            |(stream, next): (&u32, &u64)| StreamPosition { stream: StreamId(*stream), next: Position(*next) };
        let streams: Vec<_> = self.got.settled.iter().map(settled).collect();
        for part in acknowledged.chunks(48).chain(acknowledged.is_empty().then_some(&[][..])) {
            let (echo, window_bytes) = (self.got.echo, self.window_bytes);
            let (streams, options) = (streams.as_slice().into(), part.into());
            let ack = Ack { session: SESSION, echo, window_bytes, streams, options };
            ProfileOption::from(ack).encode(&mut answer).expect("it fits");
        }
        let kept = Kept { session: SESSION, streams: streams.as_slice().into(), lost: [].as_slice().into(), since: 0 };
        ProfileOption::from(kept).encode(&mut answer).expect("it fits");
        let missing = self.got.missing();
        if !missing.is_empty() {
            let nack = Nack { session: SESSION, ranges: missing.as_slice().into() };
            ProfileOption::from(nack).encode(&mut answer).expect("it fits");
        }
        self.say(&answer);
    }

    /// Sends bytes, whatever they are.
    pub(crate) fn say(&mut self, bytes: &[u8]) {
        if let Some((stream, _, _)) = &mut self.connection {
            match stream.write(bytes) {
                Ok(count) => assert_eq!(count, bytes.len(), "answers are read"),
                Err(error) => assert_ne!(error.kind(), ErrorKind::WouldBlock, "answers are read"),
            }
        } else if let (Some(peer), Some((udp, _))) = (self.peer, &self.sockets) {
            let _ = udp.send_to(bytes, peer);
        }
    }
}

impl Got {
    fn take(&mut self, packet: &[u8], acknowledged: &mut Vec<Fingerprint>) {
        self.packets += 1;
        match Message::decode(packet).expect("the agent sends valid packets") {
            Message::Option(Known { option, .. }) => {
                self.order.push(option.name());
                self.option(&option);
                if option.name() != "progress" {
                    acknowledged.push(Fingerprint::of(packet));
                    self.fingerprints.insert(Fingerprint::of(packet));
                }
            }
            Message::Function(event) => self.function(&event),
            Message::Run(run) => {
                self.runs.push(run.count);
                run.function_events().for_each(|event| self.function(&event));
            }
            Message::Runtime(event) => {
                self.event(event.stamp, format!("{} {:?} {:?}", event.function, event.phase, event.keys));
            }
            other => panic!("not of the profile: {other:?}"),
        }
    }

    fn function(&mut self, event: &FunctionEvent<'_>) {
        let FunctionEvent { stamp, kind, function, depth, detail, .. } = event;
        let detail = detail.map(|detail| (detail.registers().to_words(), detail.stack()));
        self.event(*stamp, format!("{kind:?} {function:?} {depth} {detail:?}"));
    }

    fn event(&mut self, stamp: Stamp, text: String) {
        self.order.push("event");
        let stream = stamp.stream.0;
        let settled = self.settled.entry(stream).or_default();
        let position = Position(*settled).nearest(stamp.counter).0;
        let before = self.events.insert((stream, position), (stamp, text));
        assert!(before.is_none_or(|before| before == self.events[&(stream, position)]), "an event changed");
        self.advance(stream);
    }

    fn advance(&mut self, stream: u32) {
        let settled = self.settled.entry(stream).or_default();
        while self.events.contains_key(&(stream, *settled)) || self.dropped.contains_key(&(stream, *settled)) {
            *settled += 1;
        }
    }

    fn option(&mut self, option: &ProfileOption<'_>) {
        let about = match option {
            ProfileOption::Progress(progress) => {
                self.echo = progress.now;
                for StreamPosition { stream, next } in progress.streams {
                    self.known.insert(stream.0, next.0);
                }
                return;
            }
            ProfileOption::Drops(drops) => {
                for lost in drops.drops {
                    for position in lost.first.0..lost.first.0 + lost.count {
                        self.dropped.insert((lost.stream.0, position), lost.reason.to_string());
                    }
                    self.advance(lost.stream.0);
                }
                return;
            }
            ProfileOption::End(end) => {
                self.end.extend(end.streams.iter().map(|at| (at.stream.0, at.next.0)));
                self.known.extend(end.streams.iter().map(|at| (at.stream.0, at.next.0)));
                format!("end {}", end.streams.len())
            }
            ProfileOption::Thread(thread) => format!("thread {}", thread.stream.0),
            ProfileOption::Module(module) => format!("module {}", module.id.0),
            ProfileOption::Functions(part) => format!("functions {} {}", part.module.0, part.first_index),
            ProfileOption::Queue(queue) => format!("queue {}", queue.id),
            ProfileOption::Counted(counted) => {
                let first = counted.calls.iter().next().map_or(0, |calls| u64::from(calls.function.index()) / GROUP);
                format!("counted {} {first}", counted.stream.0)
            }
            other => other.name().to_string(),
        };
        self.options.insert(about, format!("{option:?}"));
    }

    /// What is missing before the last event that came, or that the agent said there was.
    fn missing(&self) -> Vec<Range> {
        let mut ranges = Vec::new();
        for (stream, known) in &self.known {
            let settled = self.settled.get(stream).copied().unwrap_or(0);
            let here =
                |at: &u64| self.events.contains_key(&(*stream, *at)) || self.dropped.contains_key(&(*stream, *at));
            let missing = (settled..*known).filter(|at| !here(at)).take(40 - ranges.len().min(40));
            ranges.extend(missing.map(|at| Range { stream: StreamId(*stream), first: Position(at), count: 1 }));
        }
        ranges
    }
}
