//! One stream of an agent: what it has produced, and what is not settled yet.

use std::collections::VecDeque;

use codec::EventKind;

use super::event::{EVENT_NS, Fate, Made, function_id};

/// A stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    /// The position of the first event.
    first: u64,
    /// Everything produced, from there on.
    pub(super) made: Vec<Made>,
    /// The functions that have been entered and not left.
    open: Vec<Made>,
    settled: u64,
    /// What was sent and is not settled, by position.
    kept: VecDeque<Kept>,
    in_flight_bytes: u64,
}

#[derive(Debug)]
struct Kept {
    position: u64,
    bytes: u64,
    /// Empty where events are not sent again.
    packet: Vec<u8>,
}

impl Stream {
    pub(super) fn new(id: u32, first: u64) -> Self {
        let (made, open, kept) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { id, first, made, open, settled: first, kept, in_flight_bytes: 0 }
    }

    /// The position of the next event.
    pub(super) fn next(&self) -> u64 {
        self.first + self.made.len() as u64
    }

    pub(super) fn settled(&self) -> u64 {
        self.settled
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settled == self.next()
    }

    pub(super) fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// How many events there were, and how many functions are open.
    pub(super) fn shape(&self) -> (u64, usize) {
        (self.made.len() as u64, self.open.len())
    }

    /// Enters a function. Returns the packet.
    pub(super) fn call(&mut self, function: u32, detailed: bool, fate: Fate) -> Vec<u8> {
        let time_ns = self.time_ns();
        let (kind, function, depth) = (EventKind::Call, function_id(function), self.open.len() as u32);
        let made = Made { kind, function, depth, start_ns: time_ns, time_ns, detailed, fate };
        self.open.push(made);
        self.produce(made)
    }

    /// Leaves the function that was entered last.
    pub(super) fn return_(&mut self, detailed: bool, fate: Fate) -> Option<Vec<u8>> {
        let call = self.open.pop()?;
        Some(self.produce(Made { kind: EventKind::Return, time_ns: self.time_ns(), detailed, fate, ..call }))
    }

    /// Leaves the function that was entered last without an event.
    pub(super) fn forget_frame(&mut self) {
        self.open.pop();
    }

    fn produce(&mut self, made: Made) -> Vec<u8> {
        let packet = made.encode(self.id, self.next());
        self.made.push(made);
        packet
    }

    fn time_ns(&self) -> u64 {
        (self.made.len() as u64 + 1) * EVENT_NS
    }

    /// Notes that the event produced last is on its way.
    pub(super) fn keep(&mut self, packet: Vec<u8>, replay: bool) {
        let (position, bytes) = (self.next() - 1, packet.len() as u64);
        self.in_flight_bytes += bytes;
        self.kept.push_back(Kept { position, bytes, packet: if replay { packet } else { Vec::new() } });
    }

    /// Forgets what comes before a position. Whether that was news.
    pub(super) fn settle(&mut self, next: u64) -> bool {
        let news = next > self.settled;
        self.settled = self.settled.max(next);
        while let Some(kept) = self.kept.front().filter(|kept| kept.position < next) {
            self.in_flight_bytes -= kept.bytes;
            self.kept.pop_front();
        }
        news
    }

    /// The packets of a range that are still kept.
    pub(super) fn kept_from(&self, first: u64, count: u64) -> Vec<Vec<u8>> {
        let end = first.saturating_add(count);
        let start = self.kept.partition_point(|kept| kept.position < first);
        let range = self.kept.range(start..).take_while(|kept| kept.position < end);
        range.filter(|kept| !kept.packet.is_empty()).map(|kept| kept.packet.clone()).collect()
    }
}
