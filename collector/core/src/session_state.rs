//! One session: its streams, its options, and how it ends.

mod answers;
mod end_state;
mod shared;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use codec::{
    Position, SessionId, StreamId, access,
    heph::Stamp,
    profile::{Drops, End, Epoch, Fingerprint, ProfileOption, Progress, StreamPosition},
};

use self::end_state::EndState;
pub(crate) use self::shared::{SessionContext, Shared};
use crate::{
    Answered, Cause, Config, Counts, EarlierSession, How, Output, Peer, Session, Summary, Told,
    asks::Asks,
    cause::AgentCauses,
    outbox::Outbox,
    refused::RefusedStreams,
    reply::Reply,
    stream::{Arrival, Events, Order, Stream, StreamContext, Tally},
};

/// The last position that is believed. A thread would need years to get there.
const MAX_POSITION: Position = Position(1 << 48);

/// How many streams a session may have even if all sessions together have too many.
const FEW_STREAMS: usize = 16;

/// How many streams are refused and accounted for all the same, for each that all sessions may have.
const MOST_REFUSED: usize = 4;

/// How many times the patience for missing events a session that has announced its end may still take.
const LAST_PATIENCE: u32 = 20;

/// How long nothing may be heard of an agent before the time for what is missing stands still.
const RECENTLY: Duration = Duration::from_millis(250);

/// A session that has not ended, or has ended a moment ago.
#[derive(Debug)]
pub(crate) struct SessionState {
    /// What others know of it.
    session: Arc<Session>,
    /// Its id, if it speaks the profile.
    pub(crate) id: Option<SessionId>,
    /// What it is found by: its id, or what a collector called it in a file.
    pub(crate) name: Option<SessionId>,
    /// Where it was last heard from.
    pub(crate) peer: Peer,
    /// When it was last heard from.
    pub(crate) heard: Duration,
    /// How long it was not heard from, all silences together.
    silent: Duration,
    /// Whether it sends again what was lost: it has shown that it is an agent, or says how far it is.
    replays: bool,
    streams: Vec<Stream>,
    by_id: HashMap<StreamId, usize>,
    /// The stream of the last event: the next is most likely of the same.
    last: usize,
    /// The streams that something is missing of.
    waiting: BTreeSet<usize>,
    /// Where the streams stood when contact with this session was lost before.
    resumed: HashMap<StreamId, Position>,
    epoch: Option<Epoch>,
    causes: AgentCauses,
    ending: Option<EndState>,
    pub(crate) out: Outbox,
    reply: Reply,
    /// How far each stream would survive the end of the collector.
    kept: HashMap<StreamId, Position>,
    /// What was lost behind this, by cause.
    pub(crate) lost_by_driver: BTreeMap<Cause, u64>,
    /// When missing events are next looked for, to ask for them.
    next_look: Duration,
    tally: Tally,
    refused: RefusedStreams,
    pub(crate) asks: Asks,
    /// Bytes that came from the peer in datagrams and bytes sent there, so that no more goes out than came in.
    received_bytes: u64,
    sent_bytes: u64,
}

impl SessionState {
    /// A session that starts.
    pub(crate) fn new(session: Session, peer: Peer, context: &mut SessionContext<'_>) -> Self {
        context.counts.sessions += 1;
        let session = Arc::new(session);
        let mut state = Self::with_session(Arc::clone(&session), peer, context);
        state.out.push(Output::Started(session));
        state
    }

    /// A session that goes on.
    pub(crate) fn resume(earlier: EarlierSession, peer: Peer, context: &mut SessionContext<'_>) -> Self {
        let EarlierSession { session, positions, kept, written, missing } = earlier;
        let mut state = Self::with_session(Arc::clone(&session), peer, context);
        // Only who still has what was given up has a reason to come back.
        (state.resumed, state.kept, state.replays) = (positions, kept, true);
        (state.out.written, state.out.missing) = (written, missing);
        state.out.push(Output::Resumed(session));
        state
    }

    fn with_session(session: Arc<Session>, peer: Peer, context: &mut SessionContext<'_>) -> Self {
        context.counts.sessions_open += 1;
        let out = Outbox::new(Arc::clone(&session), context.config.batch_bytes, context.buffers.clone());
        Self {
            id: session.id,
            replays: session.id.is_some_and(access::is_claimed),
            session,
            name: None,
            silent: Duration::ZERO,
            peer,
            heard: context.now,
            streams: Vec::new(),
            by_id: HashMap::new(),
            last: 0,
            waiting: BTreeSet::new(),
            resumed: HashMap::new(),
            epoch: None,
            causes: AgentCauses::default(),
            ending: None,
            out,
            reply: Reply::default(),
            kept: HashMap::new(),
            lost_by_driver: BTreeMap::new(),
            next_look: Duration::ZERO,
            tally: Tally::default(),
            refused: RefusedStreams::default(),
            asks: Asks::default(),
            received_bytes: 0,
            sent_bytes: 0,
        }
    }

    /// What it is for a session that goes on with it.
    pub(crate) fn into_earlier(self, counts: &mut Counts) -> EarlierSession {
        let positions = self.positions().collect();
        let (given_up, missing): (BTreeMap<_, _>, _) =
            self.missing().into_iter().partition(|(cause, _)| cause.is_provisional());
        given_up.iter().for_each(|(cause, count)| counts.found(cause, *count));
        let (session, kept, written) = (self.session, self.kept, self.out.written);
        EarlierSession { session, positions, kept, written, missing }
    }

    /// Whether this is what sinks know it by.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.session.name == name
    }

    /// The session says who it is, after it has been started without.
    pub(crate) fn adopt(&mut self, id: SessionId) {
        (self.id, self.name) = (Some(id), Some(id));
        self.replays |= access::is_claimed(id);
    }

    /// Where each stream stands, and those that have not been heard of since contact was lost before.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (StreamId, Position)> {
        let silent = self.resumed.iter().map(|(stream, position)| (*stream, *position));
        self.streams.iter().map(|stream| (stream.id(), stream.settled())).chain(silent).chain(self.refused.positions())
    }

    /// How many positions are remembered.
    pub(crate) fn stream_count(&self) -> usize {
        self.streams.len() + self.resumed.len() + self.refused.len()
    }

    /// Bytes have arrived from this peer.
    pub(crate) fn hear(&mut self, peer: Peer, bytes: usize, now: Duration) {
        if peer != self.peer {
            // Somebody else may be there now: it has to send before it is sent anything.
            (self.peer, self.received_bytes, self.sent_bytes) = (peer, 0, 0);
        }
        if self.replays {
            self.silent += now.saturating_sub(self.heard + RECENTLY);
        }
        self.heard = now;
        self.received_bytes = self.received_bytes.saturating_add(bytes as u64);
    }

    /// The time for what is missing. It stands still while an agent is silent, which may still have it.
    fn listening(&self, now: Duration) -> Duration {
        match self.replays {
            true => now.min(self.heard + RECENTLY).saturating_sub(self.silent),
            false => now,
        }
    }

    /// How long a missing event is waited for.
    fn patience(&self, config: &Config) -> Duration {
        if self.replays { config.replay_time.max(config.reorder_time) } else { config.reorder_time }
    }

    /// A packet with events of one stream has arrived.
    #[inline]
    pub(crate) fn events(&mut self, stamp: &Stamp, count: u32, packet: &[u8], context: &mut SessionContext<'_>) {
        if context.room == 0 && matches!(self.peer, Peer::Datagram { .. }) {
            context.counts.untaken += u64::from(count);
            return;
        }
        let Some(index) = self.stream(stamp.stream, context) else {
            context.counts.refused_stream_events += u64::from(count);
            if !self.refused.contains(stamp.stream) {
                self.refused.count(count.into());
            }
            return;
        };
        let order = match (self.id, self.peer) {
            (Some(_), _) => Order::Promised,
            (None, Peer::Stream(_)) => Order::Kept,
            (None, Peer::Datagram { .. }) => Order::Loose,
        };
        let now = self.listening(context.now);
        let Some(stream) = self.streams.get_mut(index) else { return };
        let events = Events::all(packet, count);
        let arrival = Arrival { counter: stamp.counter, end: stamp.end, events, order, now };
        let mut stream_context = StreamContext {
            config: context.config,
            counts: &mut *context.counts,
            out: &mut self.out,
            tally: &mut self.tally,
        };
        stream.arrive(&arrival, &mut stream_context);
        if stream.is_waiting() {
            self.waiting.insert(index);
        }
        if self.id.is_some() {
            self.reply.moved(stamp.stream, packet.len() as u64, context.now + context.config.ack_time);
        }
    }

    /// The index of a stream, which is made if it is new and there is room.
    #[inline]
    fn stream(&mut self, id: StreamId, context: &mut SessionContext<'_>) -> Option<usize> {
        if self.streams.get(self.last).is_some_and(|stream| stream.id() == id) {
            return Some(self.last);
        }
        self.find_stream(id, context)
    }

    fn find_stream(&mut self, id: StreamId, context: &mut SessionContext<'_>) -> Option<usize> {
        if let Some(index) = self.by_id.get(&id) {
            self.last = *index;
            return Some(*index);
        }
        let all_taken = context.counts.streams_now >= context.config.max_streams_in_all;
        let full = self.streams.len() >= context.config.max_streams;
        if full || (all_taken && self.streams.len() >= FEW_STREAMS) || self.refused.contains(id) {
            let most = context.config.max_streams_in_all.saturating_mul(MOST_REFUSED);
            if self.id.is_some() && context.counts.refused_streams_now < most && !self.refused.contains(id) {
                self.refused.add(id);
                context.counts.refused_streams_now += 1;
            }
            return None;
        }
        let index = self.streams.len();
        self.streams.push(Stream::new(id, self.resumed.remove(&id).unwrap_or_default()));
        context.counts.streams_now += 1;
        self.by_id.insert(id, index);
        self.last = index;
        Some(index)
    }

    /// An option has arrived.
    pub(crate) fn option(
        &mut self,
        option: Option<&ProfileOption<'_>>,
        packet: &[u8],
        context: &mut SessionContext<'_>,
    ) {
        let soon = context.now + context.config.ack_time;
        match option {
            // What the collector says itself is nothing to be told by others.
            Some(ProfileOption::Ack(_) | ProfileOption::Times(_) | ProfileOption::Kept(_) | ProfileOption::Nack(_)) => {
                return;
            }
            // A secret goes into no file.
            Some(ProfileOption::Claim(_) | ProfileOption::Token(_)) => return,
            Some(ProfileOption::Refused(_) | ProfileOption::Ask(_)) => return,
            Some(ProfileOption::Answer(answer)) => return self.answered(answer, context),
            // A name that a collector made up says nothing about who it is.
            Some(ProfileOption::Session(_)) if self.id.is_none() => return,
            Some(ProfileOption::Epoch(epoch)) => self.epoch = Some(*epoch),
            Some(ProfileOption::Progress(progress)) => self.progress(progress, context),
            Some(ProfileOption::Drops(drops)) => self.drops(drops, context),
            Some(ProfileOption::End(end)) => {
                // The sinks get it when all events before it are settled.
                return self.end(end, packet, context);
            }
            _ => {}
        }
        if let Some(option) = option {
            let refused = self.session.catalog_mut().apply(option);
            context.counts.refused_by_catalogs.add(&refused);
        }
        self.out.option(packet);
        if self.id.is_some() {
            let by = if matches!(option, Some(ProfileOption::Session(_))) { context.now } else { soon };
            self.reply.option(Fingerprint::of(packet), by);
        }
    }

    /// Whether this epoch is another than the session's: then its sender has started anew.
    pub(crate) fn is_other_epoch(&self, epoch: &Epoch) -> bool {
        self.id.is_none() && self.epoch.is_some_and(|known| known != *epoch)
    }

    fn progress(&mut self, progress: &Progress<'_>, context: &mut SessionContext<'_>) {
        self.replays = self.id.is_some();
        self.reply.echo(progress.now, context.unix_ns, context.now + context.config.ack_time);
        for StreamPosition { stream, next } in progress.streams {
            self.reached(stream, next, context);
            // Acknowledged again although it may not have moved: the acknowledgement may have been lost.
            if self.id.is_some() && self.knows(stream) {
                self.reply.moved(stream, 0, context.now + context.config.ack_time);
                self.reply.kept(stream, context.now + context.config.ack_time);
            }
        }
    }

    fn end(&mut self, end: &End<'_>, packet: &[u8], context: &mut SessionContext<'_>) {
        for StreamPosition { stream, next } in end.streams {
            self.reached(stream, next, context);
        }
        let ending = self.ending.get_or_insert_with(|| EndState::new(end, context.now));
        ending.add(end, packet, &mut context.counts.ending_room_now);
        self.answer_end(Fingerprint::of(packet), context.now);
        self.announce_end();
    }

    /// Tells the sinks that the session is about to end, so that they know should the collector not live to see it.
    fn announce_end(&mut self) {
        if self.id.is_some()
            && self.waiting.is_empty()
            && let Some(packets) = self.ending.as_mut().and_then(EndState::announce)
        {
            self.out.push(Output::Ending(Arc::clone(&self.session), packets));
        }
    }

    /// Whether there is something to tell of a stream.
    fn knows(&self, stream: StreamId) -> bool {
        self.by_id.contains_key(&stream) || self.refused.contains(stream)
    }

    /// A stream has come as far as `next`, says the agent. Those who do not speak the profile cannot say so.
    fn reached(&mut self, id: StreamId, next: Position, context: &mut SessionContext<'_>) {
        // A stream of which there is nothing to tell yet need not be known.
        if self.id.is_none() || next > MAX_POSITION || (next == Position(0) && !self.by_id.contains_key(&id)) {
            return;
        }
        self.with_stream(id, context, |stream, context, now| stream.reached(next, now, context));
        self.refused.reached(id, next);
    }

    fn drops(&mut self, drops: &Drops<'_>, context: &mut SessionContext<'_>) {
        for lost in drops.drops {
            if self.id.is_none() || lost.first.0.saturating_add(lost.count) > MAX_POSITION.0 {
                continue;
            }
            let cause = self.causes.cause(lost.reason);
            self.with_stream(lost.stream, context, |stream, context, now| {
                stream.dropped(&lost, cause, now, context);
            });
            self.refused.dropped(&lost);
        }
    }

    /// Does something with a stream, and remembers what it is left as.
    fn with_stream(
        &mut self,
        id: StreamId,
        context: &mut SessionContext<'_>,
        act: impl FnOnce(&mut Stream, &mut StreamContext<'_>, Duration),
    ) {
        let Some(index) = self.find_stream(id, context) else { return };
        self.with_index(index, context, act);
    }

    fn with_index(
        &mut self,
        index: usize,
        context: &mut SessionContext<'_>,
        act: impl FnOnce(&mut Stream, &mut StreamContext<'_>, Duration),
    ) {
        let now = self.listening(context.now);
        let Some(stream) = self.streams.get_mut(index) else { return };
        let before = stream.next();
        let mut stream_context = StreamContext {
            config: context.config,
            counts: &mut *context.counts,
            out: &mut self.out,
            tally: &mut self.tally,
        };
        act(stream, &mut stream_context, now);
        if stream.next() != before && self.id.is_some() {
            self.reply.moved(stream.id(), 0, context.now + context.config.ack_time);
        }
        if stream.is_waiting() {
            self.waiting.insert(index);
        } else {
            self.waiting.remove(&index);
        }
    }

    /// Time has passed. Returns whether the session has come to the end that it announced.
    pub(crate) fn tick(&mut self, context: &mut SessionContext<'_>) -> Option<How> {
        let waiting: Vec<_> = self.waiting.iter().copied().collect();
        let patience = self.patience(context.config);
        for index in waiting {
            self.with_index(index, context, |stream, context, now| stream.tick(patience, now, context));
        }
        self.announce_end();
        self.is_over(context.now, context.config).then_some(How::Told(self.ending.as_ref()?.reason))
    }

    /// Whether the session has come to the end that it announced.
    pub(crate) fn is_over(&self, now: Duration, config: &Config) -> bool {
        let Some(ending) = &self.ending else { return false };
        let patience = config.reorder_time;
        // Datagrams may overtake one another: an option may still come behind the end, unless it is of an agent, which
        // tells the end last. Streams that wait are given up in their own time, and an `end` that never comes whole in this.
        let is_last = matches!(self.peer, Peer::Stream(_)) || self.id.is_some_and(access::is_claimed);
        let in_order = is_last && ending.is_complete();
        let settled = self.waiting.is_empty() && (in_order || ending.is_overdue(now, patience));
        settled || ending.is_overdue(now, (LAST_PATIENCE * patience).max(2 * config.replay_time))
    }

    /// Whether the agent has said that it is over.
    pub(crate) fn has_ended(&self) -> bool {
        self.ending.is_some()
    }

    /// Lets go of names, which take room that others need: this session will not go on.
    pub(crate) fn forget_names(&mut self) {
        self.session = Arc::new(self.session.without_names());
        self.out.session = Arc::clone(&self.session);
    }

    /// Ends the session: nothing that is missing will come any more. If it has announced its end, that is how it ended.
    pub(crate) fn finish(&mut self, how: How, context: &mut SessionContext<'_>) {
        // An end that not all events have come before is not the end yet: the agent waits for the next collector.
        self.ending.take_if(|_| how == How::Stopped && self.replays && !self.waiting.is_empty());
        let may_return = self.replays && self.ending.is_none();
        for index in 0..self.streams.len() {
            self.with_index(index, context, |stream, context, _| match how {
                How::LostContact if may_return => stream.give_up_for_now(&Cause::lost_contact(), context),
                How::Stopped if may_return => stream.give_up_for_now(&Cause::stopped(), context),
                How::Stopped => stream.give_up(&Cause::stopped(), context),
                _ => stream.give_up(&Cause::network(), context),
            });
        }
        if let Some(ending) = &mut self.ending {
            let (packets, charged) = ending.take();
            self.out.option(&packets);
            context.counts.ending_room_now += charged;
        }
        context.answers.extend(self.asks.take().map(|number| Answered { number, told: Told::Nothing }));
        context.counts.sessions_open -= 1;
        context.counts.streams_now -= self.streams.len();
        context.counts.refused_streams_now -= self.refused.len();
        if self.refused.events() > 0 {
            context.counts.miss(&Cause::streams(), self.refused.events());
        }
        let summary = Summary {
            id: self.id,
            name: self.name.or(self.id),
            how: self.ending.as_ref().map_or(how, |ending| How::Told(ending.reason)),
            at: self.ending.as_ref().map(|ending| ending.at),
            streams: self.stream_count(),
            written: self.out.written,
            missing: self.missing(),
            late: self.tally.late,
            duplicates: self.tally.duplicates,
            restarts: self.tally.restarts,
        };
        self.out.push(Output::Ended(Arc::clone(&self.session), summary));
    }

    /// What is missing, by cause: the gaps, and what is of streams that were refused.
    fn missing(&self) -> BTreeMap<Cause, u64> {
        let mut missing = self.out.missing.clone();
        let refused = self.refused.events();
        if refused > 0 {
            *missing.entry(Cause::streams()).or_default() += refused;
        }
        missing
    }
}
