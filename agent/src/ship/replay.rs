//! The events that are not settled: kept as they were sent, in order to be sent again.
//!
//! Events are encoded into a parcel, which is what a datagram carries. What a parcel holds of one stream is a run:
//! consecutive events in consecutive bytes. Streams know their runs, so that an acknowledgement takes them off from the
//! front, and what the collector asks for again is a slice.

mod pool;

use std::collections::VecDeque;

use codec::{
    Position, StreamId,
    heph::{Encode, EncodeError, MAX_PACKET_BYTES, packet_size},
    profile::{Range, StreamPosition},
};

use self::pool::Pool;

/// Streams, and the parcels with their events.
#[derive(Debug)]
pub(super) struct Replay {
    streams: Vec<Stream>,
    /// Streams that something is not settled of, and some that have been settled since.
    unsettled: Vec<StreamId>,
    parcels: VecDeque<Parcel>,
    /// The number of the first of them: parcels are numbered in the order in which they were made.
    first: u64,
    /// The number of the first that is to be sent.
    unsent: u64,
    /// The parcel that is being filled, and how many runs are in it.
    open: Vec<u8>,
    open_runs: u32,
    run: OpenRun,
    limit: usize,
    pool: Pool,
    /// Bytes of events that were sent and are not settled.
    in_flight: u64,
    /// Memory that parcels take.
    kept: usize,
    pushed: u64,
}

/// The run at the end of the open parcel.
#[derive(Debug, Clone, Copy)]
struct OpenRun {
    stream: StreamId,
    first: u64,
    next: u64,
    offset: usize,
}

#[derive(Debug, Default)]
struct Stream {
    /// The position of the next event.
    next: u64,
    /// Everything before this was sent or dropped at some time.
    told: u64,
    settled: u64,
    runs: VecDeque<Run>,
    is_listed: bool,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    parcel: u64,
    first: u64,
    count: u32,
    offset: u32,
    bytes: u32,
    /// When it was last sent again, in milliseconds.
    again_ms: u64,
}

impl Run {
    fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }
}

#[derive(Debug)]
struct Parcel {
    /// Empty once all of its runs are settled.
    bytes: Vec<u8>,
    /// How many of its runs are not settled, and their bytes.
    runs: u32,
    unsettled_bytes: u64,
    sent: bool,
    sent_ms: u64,
}

impl Replay {
    /// `limit` is how many bytes a parcel may have.
    pub(super) fn new(limit: usize) -> Self {
        let mut pool = Pool::new(limit);
        Self {
            streams: Vec::new(),
            unsettled: Vec::new(),
            parcels: VecDeque::new(),
            first: 0,
            unsent: 0,
            open: pool.take_large(),
            open_runs: 0,
            run: OpenRun { stream: StreamId(0), first: 0, next: 0, offset: 0 },
            limit,
            pool,
            in_flight: 0,
            kept: 0,
            pushed: 0,
        }
    }

    /// Bytes of events that were sent and are not settled.
    #[cfg(test)]
    pub(super) fn in_flight_bytes(&self) -> u64 {
        self.in_flight
    }

    /// Memory that is taken, more or less.
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept + self.open.len()
    }

    /// How many events there have been.
    pub(super) fn pushed(&self) -> u64 {
        self.pushed + (self.run.next - self.run.first)
    }

    /// How many events are not settled.
    pub(super) fn unsettled_events(&self) -> u64 {
        let runs = self.streams.iter().flat_map(|stream| {
            stream.runs.iter().map(|run| u64::from(run.count) - stream.settled.saturating_sub(run.first))
        });
        runs.sum::<u64>() + (self.run.next - self.run.first)
    }

    /// Whether everything that was sent or dropped is settled, and nothing is left to be sent.
    pub(super) fn is_settled(&mut self) -> bool {
        self.list_unsettled();
        self.unsettled.is_empty() && self.open.is_empty()
    }

    /// How far a stream is settled.
    pub(super) fn settled(&self, stream: StreamId) -> Position {
        Position(self.streams.get(stream.0 as usize).map_or(0, |stream| stream.settled))
    }

    /// Makes sure that a stream is known.
    pub(super) fn ensure(&mut self, stream: StreamId) {
        let needed = stream.0 as usize + 1;
        if self.streams.len() < needed {
            self.streams.resize_with(needed, Stream::default);
        }
    }

    /// Encodes an event into the open parcel.
    #[inline]
    pub(super) fn push(
        &mut self,
        stream: StreamId,
        position: Position,
        event: &impl Encode,
    ) -> Result<(), EncodeError> {
        if self.run.stream != stream || self.run.next != position.0 || self.run.next == self.run.first {
            self.begin_run(stream, position);
        }
        let before = self.open.len();
        event.encode(&mut self.open)?;
        if self.open.len() > self.limit && before > 0 {
            self.overflow(before);
        }
        self.run.next += 1;
        Ok(())
    }

    #[cold]
    fn begin_run(&mut self, stream: StreamId, position: Position) {
        self.close_run();
        self.ensure(stream);
        self.list(stream);
        self.run = OpenRun { stream, first: position.0, next: position.0, offset: self.open.len() };
    }

    /// The last event, from `before` on, does not fit: it is the first of another parcel.
    #[cold]
    fn overflow(&mut self, before: usize) {
        let mut other = self.pool.take_large();
        other.extend_from_slice(self.open.get(before..).unwrap_or_default());
        self.open.truncate(before);
        self.seal();
        self.pool.give(std::mem::replace(&mut self.open, other));
    }

    fn close_run(&mut self) {
        let OpenRun { stream, first, next, offset } = self.run;
        let bytes = self.open.len() - offset;
        (self.run.first, self.run.offset) = (next, self.open.len());
        if next == first {
            return;
        }
        self.pushed += next - first;
        self.open_runs += 1;
        let parcel = self.first + self.parcels.len() as u64;
        let (count, offset, bytes) = ((next - first) as u32, offset as u32, bytes as u32);
        let state = &mut self.streams[stream.0 as usize];
        state.runs.push_back(Run { parcel, first, count, offset, bytes, again_ms: 0 });
        state.next = next;
    }

    fn list(&mut self, stream: StreamId) {
        let state = &mut self.streams[stream.0 as usize];
        if !state.is_listed {
            state.is_listed = true;
            self.unsettled.push(stream);
        }
    }

    /// Ends the open parcel: it can be sent.
    pub(super) fn seal(&mut self) {
        self.close_run();
        if self.open.is_empty() {
            return;
        }
        // Parcels wait here for a while: they should not take much more memory than they have bytes.
        let bytes = match self.pool.take_small(self.open.len()) {
            Some(mut small) => {
                small.extend_from_slice(&self.open);
                self.open.clear();
                small
            }
            None => std::mem::replace(&mut self.open, self.pool.take_large()),
        };
        self.run.offset = 0;
        self.kept += bytes.capacity();
        let (runs, unsettled_bytes) = (std::mem::take(&mut self.open_runs), bytes.len() as u64);
        self.parcels.push_back(Parcel { bytes, runs, unsettled_bytes, sent: false, sent_ms: 0 });
    }

    /// Events that will never come: the stream goes on behind them.
    pub(super) fn skip(&mut self, stream: StreamId, end: Position) {
        self.close_run();
        self.ensure(stream);
        let state = &mut self.streams[stream.0 as usize];
        state.next = state.next.max(end.0);
        self.list(stream);
    }

    /// The next parcel to be sent, if the window has room for it. A window without anything in it takes one of any size:
    /// otherwise nothing would ever open a window that got too small.
    pub(super) fn next_parcel(&mut self, window_bytes: u64) -> Option<&[u8]> {
        loop {
            let parcel = self.parcels.get((self.unsent - self.first) as usize)?;
            if parcel.runs > 0 {
                break;
            }
            self.unsent += 1;
        }
        self.forget_settled();
        let parcel = self.parcels.get((self.unsent - self.first) as usize)?;
        let fits = self.in_flight == 0 || self.in_flight.saturating_add(parcel.unsettled_bytes) <= window_bytes;
        fits.then_some(parcel.bytes.as_slice())
    }

    /// Notes that the parcel which was next is on its way.
    pub(super) fn parcel_sent(&mut self, now_ms: u64) {
        let Some(parcel) = self.parcels.get_mut((self.unsent - self.first) as usize) else { return };
        self.in_flight += parcel.unsettled_bytes;
        (parcel.sent, parcel.sent_ms) = (true, now_ms);
        self.unsent += 1;
    }

    /// Whether a parcel waits to be sent.
    pub(super) fn has_unsent(&self) -> bool {
        self.parcels.iter().skip((self.unsent - self.first) as usize).any(|parcel| parcel.runs > 0)
    }

    /// Whatever was sent may be lost: all that is not settled is to be sent again.
    pub(super) fn rewind(&mut self) {
        self.positions();
        self.unsent = self.first;
        self.in_flight = 0;
        self.parcels.iter_mut().for_each(|parcel| parcel.sent = false);
    }

    /// Gives up on what was never sent, and tells what that is.
    pub(super) fn abandon(&mut self) -> Vec<Range> {
        self.seal();
        let mut ranges = Vec::new();
        self.positions();
        for (stream, state) in (0..).map(StreamId).zip(&mut self.streams) {
            let sent = state.runs.partition_point(|run| run.end() <= state.told);
            for run in state.runs.drain(sent..) {
                ranges.push(Range { stream, first: Position(run.first), count: run.count.into() });
                if let Some(parcel) = self.parcels.get_mut((run.parcel - self.first) as usize) {
                    parcel.settle(&run, &mut self.in_flight, &mut self.kept, &mut self.pool);
                }
            }
        }
        ranges
    }

    /// Where a stream stands for the collector: everything before was sent, or dropped.
    fn told(&mut self, stream: StreamId) -> u64 {
        let (unsent, open) = (self.unsent, self.run);
        let Some(state) = self.streams.get_mut(stream.0 as usize) else { return 0 };
        let first = state.runs.partition_point(|run| run.parcel < unsent);
        let told = match state.runs.get(first) {
            Some(run) => run.first,
            None if open.stream == stream && open.next > open.first => open.first,
            None => state.next,
        };
        state.told = state.told.max(told);
        state.told
    }

    /// Where the streams stand of which not all is settled.
    pub(super) fn positions(&mut self) -> Vec<StreamPosition> {
        self.list_unsettled();
        let streams = std::mem::take(&mut self.unsettled);
        let at = |stream: &StreamId| StreamPosition { stream: *stream, next: Position(self.told(*stream)) };
        let positions = streams.iter().map(at).collect();
        self.unsettled = streams;
        positions
    }

    /// Where all streams stand.
    pub(super) fn all_positions(&mut self) -> Vec<StreamPosition> {
        let streams = (0..self.streams.len() as u32).map(StreamId);
        streams.map(|stream| StreamPosition { stream, next: Position(self.told(stream)) }).collect()
    }

    fn list_unsettled(&mut self) {
        let (streams, open) = (&mut self.streams, self.run);
        self.unsettled.retain(|stream| {
            let Some(state) = streams.get_mut(stream.0 as usize) else { return false };
            let is_open = open.stream == *stream && open.next > open.first;
            state.is_listed = state.settled < state.next || is_open;
            state.is_listed
        });
    }

    /// Everything of a stream before `next` is settled, says the collector. What it cannot know of is not believed.
    pub(super) fn settle(&mut self, stream: StreamId, next: Position) {
        let next = next.0.min(self.told(stream));
        let Some(state) = self.streams.get_mut(stream.0 as usize) else { return };
        state.settled = state.settled.max(next);
        while let Some(run) = state.runs.front().filter(|run| run.end() <= next) {
            if let Some(parcel) = self.parcels.get_mut((run.parcel - self.first) as usize) {
                parcel.settle(run, &mut self.in_flight, &mut self.kept, &mut self.pool);
            }
            state.runs.pop_front();
        }
        self.forget_settled();
    }

    /// Drops the parcels at the front that nothing is left of.
    fn forget_settled(&mut self) {
        while self.first < self.unsent && self.parcels.front().is_some_and(|parcel| parcel.runs == 0) {
            self.parcels.pop_front();
            self.first += 1;
        }
    }

    /// Passes on the bytes of a range as far as they are here and were sent, but not those that were sent less than
    /// `gap_ms` ago: those may still arrive. How many events that were.
    pub(super) fn again(&mut self, range: &Range, now_ms: u64, gap_ms: u64, mut each: impl FnMut(&[u8])) -> u64 {
        let Some(state) = self.streams.get_mut(range.stream.0 as usize) else { return 0 };
        let (first, end) = (range.first.0, range.first.0.saturating_add(range.count));
        let from = state.runs.partition_point(|run| run.end() <= first);
        let mut events = 0;
        for run in state.runs.range_mut(from..).take_while(|run| run.first < end) {
            let Some(parcel) = self.parcels.get((run.parcel - self.first) as usize) else { break };
            let recently = |at_ms: u64| at_ms + gap_ms > now_ms && at_ms != now_ms;
            let first_time = parcel.sent_ms + gap_ms > now_ms;
            if !parcel.sent || first_time || (run.again_ms > 0 && recently(run.again_ms)) {
                continue;
            }
            run.again_ms = now_ms;
            let whole = parcel.bytes.get(run.offset as usize..(run.offset + run.bytes) as usize).unwrap_or_default();
            let (first, end) = (first.max(run.first), end.min(run.end()));
            let start = skip_packets(whole, first - run.first);
            let length = skip_packets(whole.get(start..).unwrap_or_default(), end - first);
            each(whole.get(start..start + length).unwrap_or_default());
            events += end - first;
        }
        events
    }
}

impl Parcel {
    /// One of its runs is settled.
    fn settle(&mut self, run: &Run, in_flight: &mut u64, kept: &mut usize, pool: &mut Pool) {
        self.runs = self.runs.saturating_sub(1);
        self.unsettled_bytes = self.unsettled_bytes.saturating_sub(run.bytes.into());
        if self.sent {
            *in_flight = in_flight.saturating_sub(run.bytes.into());
        }
        if self.runs == 0 {
            *kept -= self.bytes.capacity();
            pool.give(std::mem::take(&mut self.bytes));
        }
    }
}

/// How many bytes the first `count` packets take.
fn skip_packets(packets: &[u8], count: u64) -> usize {
    let mut at = 0;
    for _ in 0..count {
        let Ok(Some(size)) = packet_size(packets.get(at..).unwrap_or_default(), MAX_PACKET_BYTES) else { break };
        at += size;
    }
    at
}

#[cfg(test)]
mod tests;
