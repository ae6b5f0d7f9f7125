//! Delivering: packets to the collector over UDP, TCP or a tunnel, each until it has arrived or was given up, and not more at a
//! time than the collector takes.
//!
//! The caller pushes events while there [is room](Shipper::has_room), and calls [`Shipper::turn`] often: it receives
//! what the collector sends, retransmits what was lost, reports progress, and reconnects. It starts no threads; a tunnel,
//! which others provide, may.

mod asks;
mod contact;
mod delivery;
mod drops;
mod error;
#[cfg(test)]
pub(crate) mod fake;
mod greeting;
mod levels;
mod link;
mod losses;
mod modules;
mod offset;
mod options;
mod replay;
mod report;
mod settings;
mod tunnel;

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use codec::{
    Position, SessionId, SessionNs, StreamId, SubstreamId,
    heph::{Encode, EncodeError, Stamp},
    profile::{End, EndReason, ProfileOption, Range, RunEvent},
};

pub use asks::Asked;
pub use codec::profile::{Birth, BirthKind};
pub(crate) use codec::text;
pub use error::ShipError;
pub use report::Report;
pub use settings::{Settings, Transport, Who, Wire};
pub use tunnel::{Tunnel, TunnelState, Tunnelled};

use asks::Asks;
use contact::Contact;
use drops::Drops;
use losses::Losses;
use offset::OffsetEstimate;
use options::{Options, Topic};
use replay::Replay;

/// What an option that holds a list has before it, at most.
const HEAD_BYTES: usize = 32;

/// How much of the replay buffer is left for what is encoded before anybody looks whether there is room.
const SLACK_BYTES: usize = 256 << 10;

/// How long one wait lasts before other duties are looked at, where the shipper waits by itself.
const GLANCE: Duration = Duration::from_millis(5);

/// How often contact may be lost, and fail to be made again, before a collector that has everything counts as gone.
const MOST_FAILURES: u64 = 3;

/// How long the collector may take to acknowledge an end that was told only because time was up.
const LAST_WORD: Duration = Duration::from_millis(300);

/// Delivers one session.
#[derive(Debug)]
pub struct Shipper {
    settings: Settings,
    session: SessionId,
    clock_zero_ns: u64,
    /// What is said first.
    greeting: Vec<u8>,
    contact: Contact,
    replay: Replay,
    options: Options,
    /// Told before other options: the collector waits for events that it has not been told are dropped.
    drop_reports: Options,
    drops: Drops,
    asks: Asks,
    window_bytes: u64,
    /// What the collector asked for again.
    wanted: Vec<Range>,
    started: Instant,
    progress_sent: Instant,
    repeated: Instant,
    forgotten: Instant,
    /// Since when events wait for the names of functions.
    nameless: Option<Instant>,
    /// How long it takes from a `progress` to its acknowledgement, smoothed.
    round_trip: Duration,
    last_echo: SessionNs,
    scratch: Vec<u8>,
    bytes: u64,
    again: u64,
    lost: Losses,
    offset: OffsetEstimate,
    /// Up to where this collector was told that an earlier one has the events of a stream.
    kept_before: HashMap<StreamId, Position>,
    /// Whether the last word on the clocks has been said.
    offset_told: bool,
    /// Whether the end has been told, be it to another collector.
    ended: bool,
    /// Whether it has to be told again, once the collector has been told everything else.
    end_is_due: bool,
}

impl Shipper {
    /// Makes contact with a collector, and waits until it has answered.
    pub fn connect(settings: Settings, who: &Who) -> Result<Self, ShipError> {
        let mut shipper = Self::new(settings, who)?;
        let deadline = shipper.started + shipper.settings.patience;
        while !shipper.is_connected() {
            let all_failed = shipper.contact.failures() >= shipper.settings.to.len() as u64;
            if all_failed || Instant::now() >= deadline {
                return Err(shipper.contact.error(shipper.settings.patience));
            }
            shipper.turn(GLANCE);
        }
        Ok(shipper)
    }

    /// One that makes contact in its turns.
    pub fn new(settings: Settings, who: &Who) -> Result<Self, ShipError> {
        let now = Instant::now();
        let datagram_bytes = settings.packet_bytes();
        let is_ordered = settings.transport != Transport::Udp;
        Ok(Self {
            session: who.session,
            clock_zero_ns: who.clock_zero_ns,
            greeting: greeting::greeting(who, datagram_bytes)?,
            contact: Contact::new(&settings, now)?,
            replay: Replay::new(datagram_bytes),
            options: Options::new(is_ordered),
            drop_reports: Options::new(is_ordered),
            drops: Drops::default(),
            asks: Asks::default(),
            window_bytes: delivery::FIRST_WINDOW_BYTES,
            wanted: Vec::new(),
            started: now,
            progress_sent: now,
            repeated: now,
            forgotten: now,
            nameless: None,
            round_trip: Duration::ZERO,
            last_echo: SessionNs(0),
            scratch: Vec::new(),
            bytes: 0,
            again: 0,
            lost: Losses::default(),
            offset: OffsetEstimate::default(),
            kept_before: HashMap::new(),
            offset_told: false,
            ended: false,
            end_is_due: false,
            settings,
        })
    }

    /// Whether the collector is in contact.
    pub fn is_connected(&self) -> bool {
        self.contact.is_made()
    }

    /// Whether the collector is gone for good: it was this program's own.
    pub fn is_forsaken(&self) -> bool {
        self.contact.is_forsaken()
    }

    /// How long ago the collector was last heard from.
    pub fn heard_ago(&self) -> Duration {
        self.contact.heard_ago(Instant::now())
    }

    /// The collector's address, or the one that is tried next.
    pub fn address(&self) -> SocketAddr {
        self.contact.address()
    }

    /// What went wrong last, and with which address.
    pub fn last_error(&self) -> Option<(SocketAddr, &io::Error)> {
        self.contact.last_error().map(|(to, error)| (*to, error))
    }

    /// How many bytes a packet may have.
    pub fn datagram_bytes(&self) -> usize {
        self.settings.packet_bytes()
    }

    /// Tells an option until it is acknowledged. A later one about the same thread, module, part of a table or queue
    /// takes its place.
    ///
    /// One that cannot be encoded is left out: what is longer than its format allows is not to be passed here.
    pub fn option(&mut self, option: ProfileOption<'_>) {
        if let ProfileOption::Thread(thread) = &option {
            self.replay.ensure(thread.stream);
        }
        self.scratch.clear();
        let encoded = option.encode(&mut self.scratch);
        debug_assert!(encoded.is_ok(), "{option:?}: {encoded:?}");
        if encoded.is_ok() {
            self.options.add(&self.scratch, Topic::of(&option));
        }
    }

    /// Whether events may be pushed now. Some more than a few may be pushed after that: 256 KiB of them.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.replay.kept_bytes() + SLACK_BYTES <= self.settings.replay_bytes.max(2 * SLACK_BYTES)
    }

    /// Keeps an event of a stream, to be sent in a packet of its own when a datagram is full or at the next
    /// [`flush`](Self::flush).
    ///
    /// What lies between it and the event before must have been [dropped](Self::dropped).
    #[inline]
    pub fn push(&mut self, stream: StreamId, position: Position, event: &impl Encode) -> Result<(), EncodeError> {
        self.replay.push(stream, position, event)
    }

    /// Keeps a function event like [`push`](Self::push), in a run with its neighbours of the same stream and substream
    /// unless the settings [say otherwise](Settings::wire).
    #[inline(always)]
    pub fn push_function(
        &mut self,
        stream: StreamId,
        substream: SubstreamId,
        position: Position,
        event: &RunEvent<'_>,
    ) -> Result<(), EncodeError> {
        if self.settings.wire == Wire::Plain {
            let stamp = Stamp { stream, counter: position.counter(), substream, start: event.start, end: event.end };
            return self.push(stream, position, &event.function_event(&stamp, 0));
        }
        self.replay.push_function(stream, substream, position, event)
    }

    /// Tells that events of a stream were dropped, from a position on, and why, in a short word.
    pub fn dropped(&mut self, stream: StreamId, first: Position, count: u64, reason: &'static str) {
        self.drops.add(stream, first, count, reason);
        self.replay.skip(stream, Position(first.0.saturating_add(count)));
    }

    /// What the collector asks for, which is to be [answered](Self::answer). Each request comes once.
    pub fn next_ask(&mut self) -> Option<Asked> {
        self.asks.next()
    }

    /// Tells the collector what came of what it asked for, or why nothing did.
    pub fn answer(&mut self, number: u64, result: Result<&str, &str>) {
        self.asks.answer(self.session, number, result);
    }

    /// Sends what waits for a datagram to be full.
    pub fn flush(&mut self) {
        self.replay.seal();
        self.pump(Instant::now());
    }

    /// Hears what has come and does what is due. Waits for something to come for at most so long. Whether the collector
    /// is in contact.
    pub fn turn(&mut self, wait: Duration) -> bool {
        let mut now = Instant::now();
        let heard = self.receive(now);
        self.poll(now);
        if !heard && !wait.is_zero() {
            let to_send = self.is_blocked(now);
            self.contact.wait(wait, to_send, now);
            now = Instant::now();
            self.receive(now);
            self.poll(now);
        }
        self.is_connected()
    }

    /// Ends the session: waits until everything is settled and acknowledged, or nothing was for as long as `linger`. What could not even
    /// be sent by then is dropped, and told to be.
    pub fn finish(&mut self, reason: EndReason, at: SessionNs, linger: Duration) -> Report {
        self.replay.seal();
        let mut deadline = Instant::now() + linger;
        let failures = self.contact.failures();
        let mut unsettled = self.replay.unsettled_events();
        while Instant::now() < deadline && !self.is_forsaken() && !self.is_over(reason, at) {
            self.turn(GLANCE);
            // As long as the collector takes something, there is no reason to give up.
            let left = self.replay.unsettled_events();
            if left < unsettled {
                (unsettled, deadline) = (left, Instant::now() + linger);
            }
            // A collector that has everything and is gone will confirm nothing more.
            if self.ended && self.replay.is_settled() && self.contact.failures() > failures + MOST_FAILURES {
                break;
            }
        }
        if self.end_is_open() {
            for Range { stream, first, count } in self.replay.abandon() {
                self.drops.add(stream, first, count, "not-sent");
            }
            self.tell_end(reason, at);
            let deadline = Instant::now() + LAST_WORD;
            while Instant::now() < deadline && !self.is_forsaken() && !self.is_over(reason, at) {
                self.turn(GLANCE);
            }
        }
        self.report()
    }

    /// Whether everything has arrived, the end included, which is told once all events were sent and all options have
    /// arrived: the collector waits for no others behind it.
    fn is_over(&mut self, reason: EndReason, at: SessionNs) -> bool {
        if self.end_is_open() && self.has_told_all() {
            self.tell_last_offset();
            if self.has_told_all() {
                self.tell_end(reason, at);
            }
        }
        self.is_complete()
    }

    fn end_is_open(&self) -> bool {
        !self.ended || self.end_is_due
    }

    fn has_told_all(&self) -> bool {
        !self.replay.has_unsent() && self.count_open() == 0
    }

    fn is_complete(&mut self) -> bool {
        !self.end_is_open() && self.count_open() == 0 && self.drops.is_empty() && self.replay.is_settled()
    }

    fn count_open(&self) -> usize {
        self.options.count_open() + self.drop_reports.count_open()
    }

    fn tell_end(&mut self, reason: EndReason, at: SessionNs) {
        (self.ended, self.end_is_due) = (true, false);
        self.tell_last_offset();
        let streams = self.replay.all_positions();
        let stream_count = streams.len() as u32;
        let each = delivery::positions_per_packet(self.datagram_bytes());
        if streams.is_empty() {
            return self.option(End { reason, at, stream_count, streams: [].as_slice().into() }.into());
        }
        for part in streams.chunks(each) {
            self.option(End { reason, at, stream_count, streams: part.into() }.into());
        }
    }

    /// What has been delivered so far.
    pub fn report(&mut self) -> Report {
        Report {
            events: self.replay.pushed(),
            unsettled: self.replay.unsettled_events(),
            dropped: self.drops.counts().clone(),
            lost: self.lost.sum(),
            unacknowledged: self.count_open(),
            complete: self.is_complete(),
            bytes: self.bytes,
            again: self.again,
            reconnects: self.contact.remade(),
        }
    }
}

#[cfg(test)]
mod tests;
