//! An agent that traces nothing: it makes up events and ships them as the real one does.
//!
//! It works in the caller's thread. What comes back from the collector is looked at between sends and while it waits,
//! so a test that calls nothing hears nothing.

mod delivery;
mod event;
#[cfg(test)]
pub(crate) mod fake;
mod link;
mod options;
mod settings;
mod stream;
#[cfg(test)]
mod tests;

use std::{
    io::{self, ErrorKind},
    time::{Duration, Instant},
};

use codec::{
    Position, SessionId, SessionNs, StreamId,
    heph::{Encode, Metadata},
    profile::{Dropped, Drops, End, EndReason, ProfileOption},
};

pub use event::{EVENT_NS, Fate, Made};
pub use settings::{CLOCK_ZERO_NS, EPOCH_UNIX_NS, Settings, Transport};

use link::Link;
use options::Options;
use stream::Stream;

/// How often options are repeated and progress is told.
const REPEAT_EVERY: Duration = Duration::from_millis(100);

/// How long one wait for the collector's answer lasts before the agent looks at its other duties.
const GLANCE: Duration = Duration::from_millis(5);

/// A synthetic agent with one session.
#[derive(Debug)]
pub struct Agent {
    settings: Settings,
    link: Link,
    /// Packets that wait until the datagram is full.
    outgoing: Vec<u8>,
    options: Options,
    streams: Vec<Stream>,
    /// Whether the collector has answered, and so knows whose packets these are.
    greeted: bool,
    window_bytes: u64,
    started: Instant,
    repeated: Instant,
    acks: u64,
    nacked_events: u64,
    sent_bytes: u64,
    history: Vec<Settled>,
}

/// That everything before a position was settled, and when the agent learned it.
#[derive(Debug, Clone, Copy)]
pub struct Settled {
    /// When.
    pub at: Instant,
    /// The stream.
    pub stream: u32,
    /// The position.
    pub next: u64,
}

impl Agent {
    /// Connects, says who it is, and waits until the collector has heard it.
    pub fn start(settings: Settings) -> io::Result<Self> {
        let now = Instant::now();
        let mut agent = Self {
            link: Link::connect(&settings)?,
            outgoing: Vec::new(),
            options: Options::default(),
            streams: (0..settings.streams).map(|id| Stream::new(id, settings.first_position)).collect(),
            greeted: false,
            window_bytes: settings.first_window_bytes,
            started: now,
            repeated: now,
            acks: 0,
            nacked_events: 0,
            sent_bytes: 0,
            history: Vec::new(),
            settings,
        };
        agent.announce()?;
        agent.hello()?;
        Ok(agent)
    }

    /// Its session.
    pub fn session(&self) -> SessionId {
        self.settings.session
    }

    /// How it was set up.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Everything that a stream has produced, from its first position on.
    pub fn made(&self, stream: u32) -> &[Made] {
        &self.streams[stream as usize].made
    }

    /// Everything that all streams have produced: stream, position and event.
    pub fn all_made(&self) -> impl Iterator<Item = (u32, u64, &Made)> {
        let first = self.settings.first_position;
        self.streams.iter().flat_map(move |stream| (first..).zip(&stream.made).map(|(at, made)| (stream.id, at, made)))
    }

    /// How many acknowledgements have come.
    pub fn acks(&self) -> u64 {
        self.acks
    }

    /// How many events the collector has asked for again.
    pub fn nacked_events(&self) -> u64 {
        self.nacked_events
    }

    /// What was settled, in the order in which it was heard.
    pub fn history(&self) -> &[Settled] {
        &self.history
    }

    /// Bytes of events that were sent and are not settled.
    pub fn in_flight_bytes(&self) -> u64 {
        self.streams.iter().map(Stream::in_flight_bytes).sum()
    }

    /// The address it sends from.
    pub fn local_address(&self) -> io::Result<std::net::SocketAddr> {
        self.link.local_address()
    }

    /// Enters a function on a stream.
    pub fn call(&mut self, stream: u32, function: u32, detailed: bool) -> io::Result<()> {
        self.make_room()?;
        let packet = self.streams[stream as usize].call(function, detailed, Fate::Sent);
        self.send_event(stream, packet)
    }

    /// Leaves the function that was entered last on a stream. Does nothing where none is open.
    pub fn return_(&mut self, stream: u32, detailed: bool) -> io::Result<()> {
        self.make_room()?;
        match self.streams[stream as usize].return_(detailed, Fate::Sent) {
            Some(packet) => self.send_event(stream, packet),
            None => Ok(()),
        }
    }

    /// Produces this many events in all, on all streams in turn: calls and returns, every eighth with detail.
    pub fn work(&mut self, events: u64) -> io::Result<()> {
        let streams = self.streams.len() as u64;
        for number in 0..events {
            let stream = (number % streams) as u32;
            let (produced, open) = self.streams[stream as usize].shape();
            let detailed = produced % 8 == 0;
            // Down three, up two, and all the way up once it is deep.
            match produced % 5 >= 3 && open > 0 || open > 20 {
                true => self.return_(stream, detailed)?,
                false => self.call(stream, (produced % u64::from(self.settings.functions)) as u32, detailed)?,
            }
        }
        Ok(())
    }

    /// Produces calls that it does not keep, and says so.
    pub fn drop_events(&mut self, stream: u32, count: u64, reason: &'static str) -> io::Result<()> {
        let first = self.skip(stream, count, Fate::Dropped(reason));
        let drops = [Dropped { stream: StreamId(stream), first: Position(first), count, reason }];
        self.option(Drops { drops: (&drops).into() })
    }

    /// Produces calls that it never sends, and says nothing.
    pub fn lose_events(&mut self, stream: u32, count: u64) {
        self.skip(stream, count, Fate::Lost);
    }

    fn skip(&mut self, stream: u32, count: u64, fate: Fate) -> u64 {
        let stream = &mut self.streams[stream as usize];
        let first = stream.next();
        for _ in 0..count {
            stream.call(0, false, fate);
            stream.forget_frame();
        }
        first
    }

    /// Sends an option, and again until it is acknowledged.
    pub fn option<'a>(&mut self, option: impl Into<ProfileOption<'a>>) -> io::Result<()> {
        let mut packet = Vec::new();
        option.into().encode(&mut packet).map_err(io::Error::other)?;
        self.send_option(packet)
    }

    /// Sends an option that need not be of the profile.
    pub fn plain_option(&mut self, name: &str, value: &[u8]) -> io::Result<()> {
        let mut packet = Vec::new();
        Metadata { name, value }.encode(&mut packet).map_err(io::Error::other)?;
        self.send_option(packet)
    }

    /// Tells of a module and its functions.
    pub fn module(&mut self, id: u32, path: &str, names: &[String]) -> io::Result<()> {
        for packet in options::module(id, path, names, self.settings.datagram_bytes) {
            self.send_option(packet)?;
        }
        Ok(())
    }

    /// Sends what waits for a datagram to be full.
    pub fn flush(&mut self) -> io::Result<()> {
        if !self.outgoing.is_empty() {
            let packets = std::mem::take(&mut self.outgoing);
            self.transmit(&packets)?;
            self.outgoing = packets;
            self.outgoing.clear();
        }
        Ok(())
    }

    /// Hears what has come and does what is due, waiting for at most this long.
    pub fn listen(&mut self, wait: Duration) -> io::Result<()> {
        self.duties()?;
        self.receive(wait)
    }

    /// Listens until `done`, or fails when the time is over.
    pub fn listen_until(&mut self, timeout: Duration, mut done: impl FnMut(&Self) -> bool) -> io::Result<()> {
        let deadline = Instant::now() + timeout;
        self.flush()?;
        while !done(self) {
            if Instant::now() > deadline {
                return Err(io::Error::new(ErrorKind::TimedOut, self.waiting_for()));
            }
            self.listen(GLANCE)?;
        }
        Ok(())
    }

    /// Waits until all that was produced so far is settled and every option is acknowledged.
    pub fn settle(&mut self, timeout: Duration) -> io::Result<()> {
        self.tell_progress()?;
        self.listen_until(timeout, |agent| {
            agent.options.all_acknowledged() && agent.streams.iter().all(Stream::is_settled)
        })
    }

    /// Ends the session and waits until all of it is acknowledged.
    pub fn finish(&mut self, reason: EndReason, timeout: Duration) -> io::Result<()> {
        let at = SessionNs(self.now_ns());
        let streams = self.positions();
        let stream_count = streams.len() as u32;
        // The first seventeen bytes of the value, the list's count and the packet's head come before them.
        for part in streams.chunks(self.settings.datagram_bytes.saturating_sub(64).max(12) / 12) {
            self.option(End { reason, at, stream_count, streams: part.into() })?;
        }
        self.listen_until(timeout, |agent| {
            agent.options.all_acknowledged() && agent.streams.iter().all(Stream::is_settled)
        })
    }

    /// Breaks the connection in the middle and resumes on another, or moves to another port.
    pub fn reconnect(&mut self) -> io::Result<()> {
        if self.settings.transport == Transport::Udp {
            self.flush()?;
        }
        self.link = Link::connect(&self.settings)?;
        self.hello()?;
        if self.settings.transport == Transport::Tcp {
            self.resend_everything()?;
        }
        Ok(())
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.flush()?;
        self.link.send(bytes)
    }
}
