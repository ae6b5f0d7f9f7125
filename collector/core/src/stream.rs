//! One stream: puts its events in order and finds out what is missing.

mod dropped;
mod reorder;

use std::{collections::VecDeque, time::Duration};

use codec::{Counter, Position, SessionNs, StreamId, profile::Dropped};

use self::{
    dropped::DroppedRanges,
    reorder::{HeldEvents, ReorderBuffer, charge},
};
use crate::{Cause, Config, Counts, outbox::Outbox};

/// How much the order of a stream's events and its counters can be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The sender speaks the profile: counters never restart, whatever way the events take.
    Promised,
    /// Plain Heph over a link that keeps the order: a counter that jumps has jumped at the sender.
    Kept,
    /// Plain Heph in datagrams.
    Loose,
}

/// Events of one packet that has arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival<'a> {
    /// The number of the first.
    pub(crate) counter: Counter,
    /// When the last was.
    pub(crate) end: SessionNs,
    pub(crate) events: Events<'a>,
    pub(crate) order: Order,
    pub(crate) now: Duration,
}

/// Consecutive events of one packet: all of them, or some.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Events<'a> {
    pub(crate) packet: &'a [u8],
    /// How many of the packet's events come before these.
    pub(crate) skip: u32,
    pub(crate) count: u32,
    /// How many events the packet has.
    pub(crate) total: u32,
}

impl<'a> Events<'a> {
    /// All events of a packet.
    pub(crate) fn all(packet: &'a [u8], count: u32) -> Self {
        Self { packet, skip: 0, count, total: count }
    }

    /// Those of these events that are in a range, where the first of them lies at `at`.
    fn slice(&self, at: Position, first: Position, end: Position) -> Self {
        let skipped = u32::try_from(first.0.saturating_sub(at.0)).unwrap_or(u32::MAX).min(self.count);
        let length = u32::try_from(end.0.saturating_sub(first.0)).unwrap_or(u32::MAX);
        Self { skip: self.skip + skipped, count: length.min(self.count - skipped), ..*self }
    }

    /// Whether they end with the last event of the packet.
    pub(crate) fn ends_whole(&self) -> bool {
        self.skip + self.count == self.total
    }
}

/// What a stream needs of its surroundings.
pub(crate) struct StreamContext<'a> {
    pub(crate) config: &'a Config,
    pub(crate) counts: &'a mut Counts,
    pub(crate) out: &'a mut Outbox,
    pub(crate) tally: &'a mut Tally,
}

impl StreamContext<'_> {
    /// Whether another event can wait. Half of the room is for whoever needs it; of the rest each session has a share,
    /// so that one cannot take it all.
    fn has_room(&self, charge: usize) -> bool {
        let (all, held) = (self.config.held_bytes, self.counts.held_bytes_now.saturating_add(charge));
        let share = all / 2 / usize::try_from(self.counts.sessions_open.max(1)).unwrap_or(usize::MAX);
        held <= all / 2 || (held <= all && self.tally.held_bytes.saturating_add(charge) <= share)
    }
}

/// What a session counts of its streams beside events.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) held_bytes: usize,
    pub(crate) late: u64,
    pub(crate) duplicates: u64,
    pub(crate) restarts: u64,
}

/// How many declared gaps a stream remembers, to tell a late event from one that came twice.
const REMEMBERED_GAPS: usize = 32;

/// The state of a stream. Every position before `next` is settled: passed on, or declared missing.
#[derive(Debug)]
pub(crate) struct Stream {
    id: StreamId,
    next: Position,
    /// What is added to a number on the wire to get a position. Not zero only where counters restarted or the
    /// stream was joined in the middle; wraps context.
    base: u64,
    /// Whether an event has arrived yet.
    started: bool,
    /// Whether all counters so far were zero: the sender may not count.
    only_zeros: bool,
    /// The time of the last event before the counter restarted: nothing older belongs to what follows.
    restarted_at: Option<SessionNs>,
    /// The latest time of an event passed on.
    latest: SessionNs,
    held: ReorderBuffer,
    /// What the agent says it dropped, before the stream has come there.
    dropped: DroppedRanges,
    /// The end of the stream as far as it was known at a time, while events before it are missing.
    tail: Option<(Position, Duration)>,
    /// How many events the stream is known to have produced.
    known: Position,
    /// When an event last arrived that was missing.
    filled: Duration,
    /// When missing events were last asked for.
    asked: Option<Duration>,
    gaps: VecDeque<(Position, Position)>,
    /// Where the gap begins that its end was given up in for now.
    given_up: Option<Position>,
}

impl Stream {
    /// A stream of which everything before `next` is settled already.
    pub(crate) fn new(id: StreamId, next: Position) -> Self {
        Self {
            id,
            next,
            base: 0,
            started: false,
            only_zeros: true,
            restarted_at: None,
            latest: SessionNs(0),
            held: ReorderBuffer::default(),
            dropped: DroppedRanges::default(),
            tail: None,
            known: next,
            filled: Duration::ZERO,
            asked: None,
            gaps: VecDeque::new(),
            given_up: None,
        }
    }

    pub(crate) fn id(&self) -> StreamId {
        self.id
    }

    /// Everything before this is settled.
    pub(crate) fn next(&self) -> Position {
        self.next
    }

    /// Everything before this is settled, also where the session goes on.
    pub(crate) fn settled(&self) -> Position {
        self.given_up.unwrap_or(self.next)
    }

    /// How many events the stream is known to have produced.
    pub(crate) fn known(&self) -> Position {
        self.known.max(self.next)
    }

    /// Whether something is missing that may still come.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.held.is_empty() || self.tail.is_some()
    }

    /// Whether events have arrived that wait for others before them.
    pub(crate) fn holds_events(&self) -> bool {
        !self.held.is_empty()
    }

    /// Events have arrived.
    #[inline]
    pub(crate) fn arrive(&mut self, arrival: &Arrival<'_>, context: &mut StreamContext<'_>) {
        let in_order = arrival.counter == self.expected() && self.started;
        if in_order && !self.is_waiting() && self.dropped.is_empty() && self.restarted_at.is_none() {
            self.only_zeros = false;
            self.pass_on(&arrival.events, arrival.end, context);
        } else {
            self.arrive_slowly(arrival, context);
        }
    }

    fn arrive_slowly(&mut self, arrival: &Arrival<'_>, context: &mut StreamContext<'_>) {
        let Arrival { counter, end, events, order, now } = *arrival;
        if self.restarted_at.is_some_and(|at| end <= at) {
            return self.too_late(events.count, context);
        }
        let lone_zero = counter.0 == 0 && events.total == 1;
        if order != Order::Promised {
            if !self.started {
                self.start_anew(counter, context.config);
            } else if self.only_zeros && counter.0 <= 1 {
                // A sender that does not count, or whose first event came twice before the second.
                self.base = self.next.0.wrapping_sub(counter.0.into());
            }
        }
        self.started = true;
        self.only_zeros &= lone_zero;
        let ahead = counter.ahead_of(self.expected());
        let position = match order {
            Order::Promised => self.next.nearest(counter),
            _ => Position(self.next.0.saturating_add_signed(ahead.into())),
        };
        let behind = Position(position.0.saturating_add(events.count.into()));
        if position <= self.next && behind > self.next {
            // What was here before is left out.
            self.twice(u32::try_from(self.next.0 - position.0).unwrap_or(u32::MAX), context);
            self.filled = now;
            let events = events.slice(position, self.next, behind);
            self.pass_on(&events, end, context);
            self.settle(context);
        } else if position > self.next {
            match order {
                Order::Kept => {
                    self.declare(position, &Cause::network(), context);
                    self.pass_on(&events, end, context);
                    self.settle(context);
                }
                _ => self.hold(position, arrival, context),
            }
        } else if self.is_restart(order, ahead, end, context.config) {
            self.give_up(&Cause::network(), context);
            context.tally.restarts += 1;
            context.counts.restarts += 1;
            // In datagrams, what was sent before may still come; it can be told by its time, if time goes on.
            self.restarted_at = (order == Order::Loose && end > self.latest).then_some(self.latest);
            self.latest = self.latest.min(end);
            self.start_anew(counter, context.config);
            self.only_zeros = lone_zero;
            // Now it lies at `next` or ahead of it, so this does not come here again.
            return self.arrive_slowly(arrival, context);
        } else if self.gaps.iter().any(|(first, end)| (*first..*end).contains(&position)) {
            self.too_late(events.count, context);
        } else {
            self.twice(events.count, context);
        }
        self.watch_tail(now);
    }

    /// The number on the wire that `next` has.
    #[inline]
    fn expected(&self) -> Counter {
        Position(self.next.0.wrapping_sub(self.base)).counter()
    }

    /// Begins to count with this counter. A low one means that the first events are missing; of a high one nothing
    /// can be said but that the stream was joined in the middle.
    fn start_anew(&mut self, counter: Counter, config: &Config) {
        let missing = u64::from(counter.0);
        self.base = if missing < config.reorder_packets { self.next.0 } else { self.next.0.wrapping_sub(missing) };
    }

    /// Whether an event that is behind is the first one after a restart.
    fn is_restart(&self, order: Order, ahead: i32, end: SessionNs, config: &Config) -> bool {
        match order {
            Order::Promised => false,
            Order::Kept => true,
            // What was delayed or came twice is older than what has been passed on, and not from long ago.
            Order::Loose => {
                let behind = u64::from(ahead.unsigned_abs());
                behind > config.reorder_packets || end > self.latest
            }
        }
    }

    /// The events from `next` on are here.
    #[inline]
    fn pass_on(&mut self, events: &Events<'_>, end: SessionNs, context: &mut StreamContext<'_>) {
        context.out.events(self.id, self.next, events);
        context.counts.written += u64::from(events.count);
        self.latest = self.latest.max(end);
        self.next.0 += u64::from(events.count);
    }

    fn too_late(&self, count: u32, context: &mut StreamContext<'_>) {
        context.tally.late += u64::from(count);
        context.counts.late += u64::from(count);
    }

    fn twice(&self, count: u32, context: &mut StreamContext<'_>) {
        context.tally.duplicates += u64::from(count);
        context.counts.duplicates += u64::from(count);
    }

    /// Keeps events until those before them are settled.
    fn hold(&mut self, position: Position, arrival: &Arrival<'_>, context: &mut StreamContext<'_>) {
        let Arrival { events, end, now, order, .. } = *arrival;
        let charge = charge(events.packet);
        let behind = Position(position.0.saturating_add(events.count.into()));
        let mut new = 0;
        let mut at = position;
        // Those that wait already are not kept twice.
        while let Some((first, until)) = self.held.first_hole(at.max(self.next), behind) {
            let piece = events.slice(position, first, until);
            new += piece.count;
            at = until;
            if !self.make_room(first, charge, order, context) {
                self.pass_on(&piece, end, context);
                self.settle(context);
                continue;
            }
            context.counts.held_bytes_now += charge;
            context.tally.held_bytes += charge;
            self.held.insert(first, HeldEvents::new(&piece, end, now));
        }
        self.twice(events.count - new, context);
        self.settle(context);
    }

    /// Makes room for a packet to wait: where there is none, what has been missing longest is given up. Returns whether
    /// it has to wait at all after that.
    fn make_room(&mut self, position: Position, charge: usize, order: Order, context: &mut StreamContext<'_>) -> bool {
        while position > self.next {
            // Agents say how far they are, so a number far ahead is as good as any. Of others it may be anything.
            let distance = position.0 - self.next.0;
            let most = context.config.reorder_packets;
            let is_near = order == Order::Promised || distance < most;
            let fits_window = is_near && (self.held.len() as u64) < most;
            if fits_window && context.has_room(charge) {
                return true;
            }
            let cause = if fits_window { Cause::collector("memory") } else { Cause::network() };
            let end = if is_near { position } else { Position(position.0.saturating_sub(most - 1)) };
            let end = self.held.first().map_or(end, |first| first.min(end));
            self.declare(end, &cause, context);
            self.settle(context);
        }
        false
    }

    /// Passes on what lies at `next`: events that waited, and what the agent said it dropped.
    fn settle(&mut self, context: &mut StreamContext<'_>) {
        loop {
            if let Some((first, held)) = self.held.take(self.next) {
                let events = held.events();
                context.counts.held_bytes_now -= charge(events.packet);
                context.tally.held_bytes -= charge(events.packet);
                let behind = Position(first.0.saturating_add(events.count.into()));
                let rest = events.slice(first, self.next, behind);
                // Some may have come again in another packet, and gone by.
                self.twice(events.count - rest.count, context);
                if rest.count > 0 {
                    self.pass_on(&rest, held.end, context);
                }
            } else if let Some((end, cause)) = self.dropped.at(self.next) {
                let end = self.held.first().map_or(end, |first| first.min(end));
                self.missing(end, cause, context);
            } else {
                break;
            }
        }
        self.dropped.forget_before(self.next);
    }

    /// Begins to wait for what is known to have been produced, or ends it.
    fn watch_tail(&mut self, now: Duration) {
        self.tail.take_if(|(tail, _)| *tail <= self.next);
        if self.tail.is_none() && self.known > self.next {
            self.tail = Some((self.known, now));
        }
    }

    /// What is missing before `end`, where an event waits or nothing does, will not come.
    fn declare(&mut self, end: Position, cause: &Cause, context: &mut StreamContext<'_>) {
        while self.next < end {
            match self.dropped.at(self.next) {
                Some((known, cause)) => self.missing(known.min(end), cause, context),
                None => {
                    let until = self.dropped.after(self.next).map_or(end, |first| first.min(end));
                    self.missing(until, cause.clone(), context);
                }
            }
        }
    }

    /// The events from `next` to `end` are missing.
    fn missing(&mut self, end: Position, cause: Cause, context: &mut StreamContext<'_>) {
        let count = end.0 - self.next.0;
        if !(context.config.hands_on && cause.is_kept_before()) {
            context.counts.miss(&cause, count);
            context.out.miss(&cause, count);
        }
        context.out.gap(self.id, self.next, count, cause);
        if self.gaps.len() == REMEMBERED_GAPS {
            self.gaps.pop_front();
        }
        self.gaps.push_back((self.next, end));
        self.next = end;
    }

    /// The agent dropped events, and says so.
    pub(crate) fn dropped(&mut self, lost: &Dropped<'_>, cause: Cause, now: Duration, context: &mut StreamContext<'_>) {
        let end = Position(lost.first.0.saturating_add(lost.count));
        self.dropped.insert(lost.first.max(self.next), end, cause);
        self.known = self.known.max(end);
        self.settle(context);
        self.watch_tail(now);
    }

    /// The stream has come as far as `next`, says the agent.
    pub(crate) fn reached(&mut self, next: Position, now: Duration, context: &mut StreamContext<'_>) {
        // So far ahead that counters alone could not tell: what lies between was not sent to this collector.
        if next.0.saturating_sub(self.next.0) > u64::from(u32::MAX / 2) {
            self.give_up(&Cause::network(), context);
            self.declare(Position(next.0 - context.config.reorder_packets.min(next.0)), &Cause::network(), context);
        }
        self.known = self.known.max(next);
        self.watch_tail(now);
    }

    /// Gives up on what has been missing for longer than this.
    pub(crate) fn tick(&mut self, patience: Duration, now: Duration, context: &mut StreamContext<'_>) {
        while let Some((first, arrived)) = self.held.oldest() {
            if !self.is_overdue(arrived, now, patience) {
                return;
            }
            self.declare(first, &Cause::network(), context);
            self.settle(context);
        }
        if let Some((tail, since)) = self.tail
            && now.saturating_sub(since.max(self.filled)) >= patience
        {
            self.declare(tail, &Cause::network(), context);
        }
        self.watch_tail(now);
    }

    /// Whether what is missing has been waited for long enough. As long as missing events keep coming it is waited
    /// for twice as long, and no longer.
    fn is_overdue(&self, since: Duration, now: Duration, patience: Duration) -> bool {
        let quiet = now.saturating_sub(since.max(self.filled)) >= patience;
        quiet || now.saturating_sub(since) >= 2 * patience
    }

    /// Gives up on what has not come, for now: the agent still has it, and what waits for it too.
    pub(crate) fn give_up_for_now(&mut self, tail: &Cause, context: &mut StreamContext<'_>) {
        let known = self.known().max(self.held.ranges().last().map_or(self.next, |(_, end)| end));
        let held = self.held.clear();
        context.counts.held_bytes_now -= held;
        context.tally.held_bytes -= held;
        self.given_up = Some(self.next);
        // What the agent dropped among it, it says again.
        if known > self.next {
            self.missing(known, tail.clone(), context);
        }
        self.tail = None;
    }

    /// Gives up on all that is missing.
    pub(crate) fn give_up(&mut self, cause: &Cause, context: &mut StreamContext<'_>) {
        while let Some(first) = self.held.first() {
            self.declare(first, cause, context);
            self.settle(context);
        }
        self.declare(self.known(), cause, context);
        self.tail = None;
    }

    /// The ranges to ask the agent for, if it is time to.
    pub(crate) fn wanted(&mut self, now: Duration, config: &Config, limit: usize) -> Vec<(Position, u64)> {
        let since = match (self.held.oldest(), self.tail) {
            (Some((_, arrived)), _) => arrived,
            (None, Some((_, since))) => since,
            (None, None) => return Vec::new(),
        };
        let since = self.asked.map_or(since, |asked| asked.max(since));
        if now.saturating_sub(since) < config.nack_time {
            return Vec::new();
        }
        self.asked = Some(now);
        let mut ranges = Vec::new();
        let mut from = self.next;
        let tail = self.tail.map(|(tail, _)| (tail, tail));
        for (first, end) in self.held.ranges().chain(tail) {
            if first > from && ranges.len() < limit {
                ranges.push((from, first.0 - from.0));
            }
            from = from.max(end);
        }
        ranges
    }
}
