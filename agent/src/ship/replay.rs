//! The events that the collector has not kept: as they were sent, in order to be sent again.
//!
//! Events are encoded into a parcel, which is what a datagram carries. What a parcel holds of one stream is a segment:
//! consecutive events in consecutive packets, each a run of function events or a single event. Streams know their
//! segments, so that an acknowledgement removes them from the front, and what the collector asks for again is a slice.

mod parcel;

use std::collections::VecDeque;

use codec::{
    Position, StreamId, SubstreamId,
    heph::{Encode, EncodeError, MAX_PACKET_BYTES, Stamp, packet_size},
    profile::{Message, Range, RunEncoder, RunEvent, StreamPosition},
};

use self::parcel::{Parcel, Pool, Segment};

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
    /// The parcel that is being filled, and how many segments are in it.
    open: Vec<u8>,
    open_segments: u32,
    segment: OpenSegment,
    /// The run at the end of that segment, if it ends with one that may still grow, and its substream.
    run: Option<RunEncoder>,
    substream: SubstreamId,
    limit: usize,
    pool: Pool,
    /// Bytes of events that were sent and not received.
    in_flight: u64,
    /// Memory that parcels take.
    kept_bytes: usize,
    pushed: u64,
}

/// The segment at the end of the open parcel.
#[derive(Debug, Clone, Copy)]
struct OpenSegment {
    stream: StreamId,
    first: u64,
    next: u64,
    offset: usize,
}

impl OpenSegment {
    /// Whether there is one, and this event is its next.
    #[inline(always)]
    fn continues(&self, stream: StreamId, position: Position) -> bool {
        self.stream == stream && self.next == position.0 && self.next != self.first
    }
}

#[derive(Debug, Default)]
struct Stream {
    /// The position of the next event.
    next: u64,
    /// Everything before this was sent or dropped at some time.
    told: u64,
    /// Everything before this is in the collector's files.
    kept: u64,
    segments: VecDeque<Segment>,
    /// How many of them the collector has received.
    received: usize,
    is_listed: bool,
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
            open_segments: 0,
            segment: OpenSegment { stream: StreamId(0), first: 0, next: 0, offset: 0 },
            run: None,
            substream: SubstreamId(0),
            limit,
            pool,
            in_flight: 0,
            kept_bytes: 0,
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
        self.kept_bytes + self.open.len()
    }

    /// How many events there have been.
    pub(super) fn pushed(&self) -> u64 {
        self.pushed + (self.segment.next - self.segment.first)
    }

    /// How many events the collector has not kept.
    pub(super) fn unsettled_events(&self) -> u64 {
        let segments = self.streams.iter().flat_map(|stream| {
            stream.segments.iter().map(|segment| u64::from(segment.count) - stream.kept.saturating_sub(segment.first))
        });
        segments.sum::<u64>() + (self.segment.next - self.segment.first)
    }

    /// Whether everything that was sent or dropped is settled, and nothing is left to be sent.
    pub(super) fn is_settled(&mut self) -> bool {
        self.list_unsettled();
        self.unsettled.is_empty() && self.open.is_empty()
    }

    /// How far the collector has kept a stream.
    pub(super) fn kept(&self, stream: StreamId) -> Position {
        Position(self.streams.get(stream.0 as usize).map_or(0, |stream| stream.kept))
    }

    /// Makes sure that a stream is known.
    pub(super) fn ensure(&mut self, stream: StreamId) {
        let needed = stream.0 as usize + 1;
        if self.streams.len() < needed {
            self.streams.resize_with(needed, Stream::default);
        }
    }

    /// Encodes an event into the open parcel, in a packet of its own.
    #[inline]
    pub(super) fn push(
        &mut self,
        stream: StreamId,
        position: Position,
        event: &impl Encode,
    ) -> Result<(), EncodeError> {
        self.close_run();
        if !self.segment.continues(stream, position) {
            self.begin_segment(stream, position);
        }
        let before = self.open.len();
        event.encode(&mut self.open)?;
        if self.open.len() > self.limit && before > 0 {
            self.overflow(before);
        }
        self.segment.next += 1;
        Ok(())
    }

    /// Encodes a function event into the run that is open, or into another.
    #[inline(always)]
    pub(super) fn push_function(
        &mut self,
        stream: StreamId,
        substream: SubstreamId,
        position: Position,
        event: &RunEvent<'_>,
    ) -> Result<(), EncodeError> {
        if let Some(run) = &mut self.run
            && self.substream == substream
            && self.segment.continues(stream, position)
            && run.push(event, &mut self.open)
        {
            self.segment.next += 1;
            return Ok(());
        }
        self.begin_run(stream, substream, position, event)
    }

    /// Begins a run with this event: in the open parcel if it fits there, else in another.
    #[inline(never)]
    fn begin_run(
        &mut self,
        stream: StreamId,
        substream: SubstreamId,
        position: Position,
        event: &RunEvent<'_>,
    ) -> Result<(), EncodeError> {
        self.close_run();
        let RunEvent { start, end, .. } = *event;
        let stamp = Stamp { stream, counter: position.counter(), substream, start, end };
        loop {
            if !self.segment.continues(stream, position) {
                self.begin_segment(stream, position);
            }
            let mut run = RunEncoder::begin(&stamp, event, self.limit, &mut self.open);
            if run.push(event, &mut self.open) {
                (self.run, self.substream) = (Some(run), substream);
                self.segment.next += 1;
                return Ok(());
            }
            run.finish(&mut self.open);
            if self.open.is_empty() {
                // No run can hold it.
                return self.push(stream, position, &event.function_event(&stamp, 0));
            }
            self.seal();
        }
    }

    fn close_run(&mut self) {
        if let Some(run) = self.run.take() {
            run.finish(&mut self.open);
        }
    }

    #[cold]
    fn begin_segment(&mut self, stream: StreamId, position: Position) {
        self.close_segment();
        self.ensure(stream);
        self.list(stream);
        self.segment = OpenSegment { stream, first: position.0, next: position.0, offset: self.open.len() };
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

    fn close_segment(&mut self) {
        self.close_run();
        let OpenSegment { stream, first, next, offset } = self.segment;
        let bytes = self.open.len() - offset;
        (self.segment.first, self.segment.offset) = (next, self.open.len());
        if next == first {
            return;
        }
        self.pushed += next - first;
        self.open_segments += 1;
        let parcel = self.first + self.parcels.len() as u64;
        let (count, offset, bytes) = ((next - first) as u32, offset as u32, bytes as u32);
        let state = &mut self.streams[stream.0 as usize];
        state.segments.push_back(Segment { parcel, first, count, offset, bytes, again_ms: 0, again_bytes: 0 });
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
        self.close_segment();
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
        self.segment.offset = 0;
        self.kept_bytes += bytes.capacity();
        let (segments, unreceived_bytes) = (std::mem::take(&mut self.open_segments), bytes.len() as u64);
        self.parcels.push_back(Parcel { bytes, segments, unreceived_bytes, sent: false, sent_ms: 0 });
    }

    /// Events that will never come: the stream goes on behind them.
    pub(super) fn skip(&mut self, stream: StreamId, end: Position) {
        self.close_segment();
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
            if parcel.unreceived_bytes > 0 {
                break;
            }
            self.unsent += 1;
        }
        self.forget_kept();
        let parcel = self.parcels.get((self.unsent - self.first) as usize)?;
        let fits = self.in_flight == 0 || self.in_flight.saturating_add(parcel.unreceived_bytes) <= window_bytes;
        fits.then_some(parcel.bytes.as_slice())
    }

    /// Notes that the parcel which was next is on its way.
    pub(super) fn parcel_sent(&mut self, now_ms: u64) {
        let Some(parcel) = self.parcels.get_mut((self.unsent - self.first) as usize) else { return };
        self.in_flight += parcel.unreceived_bytes;
        (parcel.sent, parcel.sent_ms) = (true, now_ms);
        self.unsent += 1;
    }

    /// Whether a parcel waits to be sent.
    pub(super) fn has_unsent(&self) -> bool {
        self.parcels.iter().skip((self.unsent - self.first) as usize).any(|parcel| parcel.unreceived_bytes > 0)
    }

    /// Whatever was sent may be lost, and what was received with the collector that had it: all that is not kept is to be
    /// sent again, in order.
    pub(super) fn rewind(&mut self) {
        self.positions();
        self.unsent = self.first;
        self.in_flight = 0;
        self.parcels.iter_mut().for_each(|parcel| (parcel.sent, parcel.unreceived_bytes) = (false, 0));
        for state in &mut self.streams {
            state.received = 0;
            for segment in &state.segments {
                if let Some(parcel) = self.parcels.get_mut((segment.parcel - self.first) as usize) {
                    parcel.unreceived_bytes += u64::from(segment.bytes);
                }
            }
        }
    }

    /// Gives up on what was never sent, and tells what that is.
    pub(super) fn abandon(&mut self) -> Vec<Range> {
        self.seal();
        let mut ranges = Vec::new();
        self.positions();
        for (stream, state) in (0..).map(StreamId).zip(&mut self.streams) {
            let sent = state.segments.partition_point(|segment| segment.end() <= state.told);
            state.received = state.received.min(sent);
            for segment in state.segments.drain(sent..) {
                ranges.push(Range { stream, first: Position(segment.first), count: segment.count.into() });
                self.pushed -= u64::from(segment.count);
                if let Some(parcel) = self.parcels.get_mut((segment.parcel - self.first) as usize) {
                    parcel.receive(&segment, &mut self.in_flight);
                    parcel.free(&mut self.kept_bytes, &mut self.pool);
                }
            }
        }
        ranges
    }

    /// Where a stream stands for the collector: everything before was sent, or dropped.
    fn told(&mut self, stream: StreamId) -> u64 {
        let (unsent, open) = (self.unsent, self.segment);
        let Some(state) = self.streams.get_mut(stream.0 as usize) else { return 0 };
        let first = state.segments.partition_point(|segment| segment.parcel < unsent).max(state.received);
        let told = match state.segments.get(first) {
            Some(segment) => segment.first,
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
        let (streams, open) = (&mut self.streams, self.segment);
        self.unsettled.retain(|stream| {
            let Some(state) = streams.get_mut(stream.0 as usize) else { return false };
            let is_open = open.stream == *stream && open.next > open.first;
            state.is_listed = state.kept < state.next || is_open;
            state.is_listed
        });
    }

    /// Everything of a stream before `next` was received or given up, says the collector. What it cannot know of is not
    /// believed.
    pub(super) fn receive(&mut self, stream: StreamId, next: Position) {
        let next = next.0.min(self.told(stream));
        let Some(state) = self.streams.get_mut(stream.0 as usize) else { return };
        while let Some(segment) = state.segments.get(state.received).filter(|segment| segment.end() <= next) {
            if let Some(parcel) = self.parcels.get_mut((segment.parcel - self.first) as usize) {
                parcel.receive(segment, &mut self.in_flight);
            }
            state.received += 1;
        }
    }

    /// Everything of a stream before `next` is in the collector's files: it need not be kept here.
    pub(super) fn keep(&mut self, stream: StreamId, next: Position) {
        let next = next.0.min(self.told(stream));
        self.receive(stream, Position(next));
        let Some(state) = self.streams.get_mut(stream.0 as usize) else { return };
        state.kept = state.kept.max(next);
        while let Some(segment) = state.segments.front().filter(|segment| segment.end() <= next) {
            if let Some(parcel) = self.parcels.get_mut((segment.parcel - self.first) as usize) {
                parcel.free(&mut self.kept_bytes, &mut self.pool);
            }
            state.segments.pop_front();
            state.received = state.received.saturating_sub(1);
        }
        self.forget_kept();
    }

    /// Drops the parcels at the front that nothing is left of.
    fn forget_kept(&mut self) {
        while self.first < self.unsent && self.parcels.front().is_some_and(|parcel| parcel.segments == 0) {
            self.parcels.pop_front();
            self.first += 1;
        }
    }

    /// Passes on the packets that hold a range of events, as far as they are here and were sent, but not those that were
    /// sent less than `gap_ms` ago: those may still arrive. Ranges of one time should come in order: a packet that was
    /// passed on for one of them is not passed on for the next. Returns how many events the packets hold.
    pub(super) fn again(&mut self, range: &Range, now_ms: u64, gap_ms: u64, mut each: impl FnMut(&[u8])) -> u64 {
        let Some(state) = self.streams.get_mut(range.stream.0 as usize).filter(|_| range.count > 0) else { return 0 };
        let (first, end) = (range.first.0, range.first.0.saturating_add(range.count));
        let from = state.segments.partition_point(|segment| segment.end() <= first);
        let mut events = 0;
        for segment in state.segments.range_mut(from..).take_while(|segment| segment.first < end) {
            let Some(parcel) = self.parcels.get((segment.parcel - self.first) as usize) else { break };
            let recently = |at_ms: u64| at_ms + gap_ms > now_ms && at_ms != now_ms;
            let first_time = parcel.sent_ms + gap_ms > now_ms;
            if !parcel.sent || first_time || (segment.again_ms > 0 && recently(segment.again_ms)) {
                continue;
            }
            if segment.again_ms != now_ms {
                (segment.again_ms, segment.again_bytes) = (now_ms, 0);
            }
            let bytes = segment.offset as usize..(segment.offset + segment.bytes) as usize;
            let packets = parcel.bytes.get(bytes).unwrap_or_default();
            let (mut at, mut position, mut start) = (0, segment.first, None);
            while position < end
                && let Some((bytes, count)) = first_packet(packets.get(at..).unwrap_or_default())
            {
                if position + count > first && at >= segment.again_bytes as usize {
                    start = start.or(Some(at));
                    events += count;
                }
                (at, position) = (at + bytes, position + count);
            }
            if let Some(start) = start {
                each(packets.get(start..at).unwrap_or_default());
                segment.again_bytes = at as u32;
            }
        }
        events
    }
}

/// How many bytes the first packet has, and how many events.
fn first_packet(packets: &[u8]) -> Option<(usize, u64)> {
    let size = packet_size(packets, MAX_PACKET_BYTES).ok().flatten()?;
    match Message::decode(packets.get(..size)?) {
        Ok(Message::Run(run)) => Some((size, run.count.into())),
        _ => Some((size, 1)),
    }
}

#[cfg(test)]
mod tests;
