//! The real agent's shipper, with made-up events instead of a traced program.
//!
//! It works in the caller's thread: the collector's answers are handled while events are made and while it waits.

mod program;

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use codec::{
    Arch, ModuleId, Os, Position, SessionId, SessionNs, StreamId,
    profile::{Birth, EndReason, FunctionName, Module, Thread},
};
use real_agent::ship::{self, ShipError, Shipper, Tunnel, Who};

use tunnel::{Encrypted, Setup};

pub use program::{EVENT_NS, Made, Program};
pub use ship::Transport;

use crate::{Collector, Random};
use program::{FUNCTIONS, MODULE};

/// The traced machine's clock at the zero of a session.
pub const CLOCK_ZERO_NS: u64 = 5_000_000_000;

/// The wall clock at that time.
pub const EPOCH_UNIX_NS: u64 = 1_700_000_000_000_000_000;

/// How many bytes of events the agent keeps: little, so that it soon waits for a collector that takes nothing.
const REPLAY_BYTES: usize = 1 << 20;

/// How long one wait for the collector lasts.
const POLL: Duration = Duration::from_millis(5);

/// How many events are made between two looks at the socket.
const TURN_EVENTS: u64 = 64;

/// How an agent is set up. Make one with [`Settings::udp`] or [`Settings::tcp`] and change what should be otherwise.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the collector is.
    pub collector: SocketAddr,
    /// How packets travel.
    pub transport: Transport,
    /// What encrypts them.
    pub tunnel: Option<Arc<dyn Tunnel>>,
    /// The session.
    pub session: SessionId,
    /// How large a datagram may get; over TCP, how much is written at once.
    pub datagram_bytes: usize,
    /// The traced machine's clock at the zero of the session.
    pub clock_zero_ns: u64,
    /// The process id.
    pub pid: u32,
    /// The path of the executable.
    pub executable: &'static str,
    /// Which process made it.
    pub birth: Option<Birth>,
    /// When the program begins, in nanoseconds since the session's zero.
    pub start_ns: u64,
    /// How many streams there are.
    pub streams: u32,
    /// The position of the first event of every stream. The agent reports everything before it as dropped.
    pub first_position: u64,
    /// How many events there are to one with registers and stack.
    pub detail_every: u64,
    /// How long to wait for the collector before giving up.
    pub patience: Duration,
}

impl Settings {
    /// An agent that sends datagrams. The seed makes its session.
    pub fn udp(collector: SocketAddr, seed: u64) -> Self {
        Self {
            collector,
            transport: Transport::Udp,
            tunnel: None,
            session: SessionId(Random::new(seed).id()),
            datagram_bytes: 1_400,
            clock_zero_ns: CLOCK_ZERO_NS,
            pid: 4_711,
            executable: "/usr/bin/synthetic",
            birth: None,
            start_ns: 0,
            streams: 2,
            first_position: 0,
            detail_every: 8,
            patience: Duration::from_secs(20),
        }
    }

    /// An agent of this collector's.
    pub fn new(collector: &Collector, transport: Transport, seed: u64) -> Self {
        match transport {
            Transport::Udp => Self::udp(collector.udp(), seed),
            _ => Self::tcp(collector.tcp(), seed),
        }
    }

    /// An agent that sends an encrypted stream.
    #[track_caller]
    pub fn encrypted(collector: SocketAddr, setup: &Setup, seed: u64) -> Self {
        let tunnel = Encrypted::new(setup).unwrap_or_else(|wrong| panic!("{wrong}"));
        Self { transport: setup.transport, tunnel: Some(Arc::new(tunnel)), ..Self::tcp(collector, seed) }
    }

    /// An agent that sends a stream.
    pub fn tcp(collector: SocketAddr, seed: u64) -> Self {
        Self { transport: Transport::Tcp, datagram_bytes: 16 << 10, ..Self::udp(collector, seed) }
    }
}

/// An agent with one session.
#[derive(Debug)]
pub struct Agent {
    settings: Settings,
    program: Program,
    shipper: Shipper,
    started: Instant,
    made: u64,
}

impl Agent {
    /// Connects, announces the session, its threads and its module, and waits until the collector has answered.
    pub fn start(settings: Settings) -> Result<Self, ShipError> {
        let who = Who {
            session: settings.session,
            secret: None,
            arch: Arch::X86_64,
            os: Os::Linux,
            pid: settings.pid,
            agent_version: "synthetic".into(),
            host: "machine".into(),
            executable: settings.executable.into(),
            arguments: vec![settings.executable.into(), "--synthetic".into()],
            epoch_unix_ns: EPOCH_UNIX_NS,
            clock_zero_ns: settings.clock_zero_ns,
            birth: settings.birth,
            root: settings.birth.map_or(settings.session, |birth| birth.parent),
            trace: Default::default(),
        };
        let Settings { collector, transport, datagram_bytes, patience, streams, first_position, .. } = settings;
        let tunnel = settings.tunnel.clone();
        let ship = ship::Settings::new(vec![collector], transport);
        let ship = ship::Settings { tunnel, datagram_bytes, patience, replay_bytes: REPLAY_BYTES, ..ship };
        let mut shipper = Shipper::connect(ship, &who)?;
        for stream in 0..streams {
            let (name, os_id) = (format!("worker {stream}"), 1_000 + u64::from(stream));
            let (stream, start) = (StreamId(stream), SessionNs(0));
            shipper.option(Thread { stream, os_id, start, end: None, creator: None, name: &name }.into());
            if first_position > 0 {
                shipper.dropped(stream, Position(0), first_position, "before");
            }
        }
        let names: Vec<_> = (0..FUNCTIONS).map(|index| format!("function_{index}")).collect();
        let functions = (0..).zip(&names).map(|(index, name)| FunctionName { offset: index * 16, name });
        let module = Module {
            id: ModuleId(MODULE),
            base: 0x40_0000,
            size: 0x10_0000,
            loaded: SessionNs(0),
            unloaded: None,
            function_count: 0,
            table_hash: 0,
            build_id: &[0xAB; 20],
            path: "/usr/bin/synthetic",
        };
        shipper.module(&module, &functions.collect::<Vec<_>>());
        let program = Program::new(streams, first_position, settings.detail_every);
        let program = program.starting_at(settings.start_ns);
        Ok(Self { settings, program, shipper, started: Instant::now(), made: 0 })
    }

    /// Its session.
    pub fn session(&self) -> SessionId {
        self.settings.session
    }

    /// What it traces.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// What has been delivered so far.
    pub fn report(&mut self) -> ship::Report {
        self.shipper.report()
    }

    /// Whether the collector is in contact.
    pub fn is_connected(&self) -> bool {
        self.shipper.is_connected()
    }

    /// Enters a function on a stream.
    pub fn call(&mut self, stream: u32) -> io::Result<()> {
        self.make_room()?;
        let (position, made) = self.program.call(stream, 0, false);
        self.push(stream, position, made)
    }

    /// Makes this many events in all, on all streams in turn: calls and returns.
    pub fn work(&mut self, events: u64) -> io::Result<()> {
        for number in 0..events {
            let stream = (number % u64::from(self.settings.streams)) as u32;
            self.make_room()?;
            let (position, made) = self.program.step(stream);
            self.push(stream, position, made)?;
        }
        Ok(())
    }

    /// Makes calls that it drops, and reports that.
    pub fn drop_events(&mut self, stream: u32, count: u64, reason: &'static str) {
        let first = self.program.drop_calls(stream, count, reason);
        self.shipper.dropped(StreamId(stream), Position(first), count, reason);
    }

    /// Sends what waits for a datagram to be full.
    pub fn flush(&mut self) {
        self.shipper.flush();
    }

    /// Handles what the collector sent and does what is due, waiting for at most this long.
    pub fn listen(&mut self, wait: Duration) {
        self.shipper.turn(wait);
    }

    /// Listens until `done`, or fails when the time is over.
    pub fn listen_until(&mut self, timeout: Duration, mut done: impl FnMut(&mut Self) -> bool) -> io::Result<()> {
        let deadline = Instant::now() + timeout;
        self.flush();
        while !done(self) {
            if Instant::now() > deadline {
                return Err(self.timed_out());
            }
            self.listen(POLL);
        }
        Ok(())
    }

    /// Waits until the collector has settled all events so far and acknowledged every option.
    pub fn settle(&mut self, timeout: Duration) -> io::Result<()> {
        self.listen_until(timeout, |agent| {
            let report = agent.report();
            report.unsettled == 0 && report.unacknowledged == 0
        })
    }

    /// Ends the session and waits until the collector has acknowledged all of it.
    pub fn finish(&mut self, reason: EndReason, timeout: Duration) -> io::Result<()> {
        let at = SessionNs(self.started.elapsed().as_nanos() as u64);
        match self.shipper.finish(reason, at, timeout) {
            report if report.complete => Ok(()),
            _ => Err(self.timed_out()),
        }
    }

    fn push(&mut self, stream: u32, position: u64, made: Made) -> io::Result<()> {
        let pushed =
            made.with_event(stream, position, |event| self.shipper.push(StreamId(stream), Position(position), event));
        pushed.map_err(io::Error::other)?;
        self.made += 1;
        if self.made.is_multiple_of(TURN_EVENTS) {
            self.listen(Duration::ZERO);
        }
        Ok(())
    }

    fn make_room(&mut self) -> io::Result<()> {
        match self.shipper.has_room() {
            true => Ok(()),
            false => self.listen_until(self.settings.patience, |agent| agent.shipper.has_room()),
        }
    }

    fn timed_out(&mut self) -> io::Error {
        io::Error::new(ErrorKind::TimedOut, format!("{:?}", self.report()))
    }
}
