//! All sessions, and the way of bytes to them.

mod asking;
mod incoming;
mod naming;
mod openings;
mod past;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use codec::{Position, SessionId, StreamId, heph::StreamDecoder};

use self::{incoming::Named, openings::Openings, past::Past};
use crate::{
    CatalogLimits, Cause, Config, Counts, How, Output, Peer, Session, SessionNames, Transmit,
    bindings::{self, Binding, Bindings, Unknown},
    output::{SessionKey, Source},
    reply,
    session_state::{SessionState, Shared},
};

/// How often peers are looked through to forget some.
const PURGE_TIME: Duration = Duration::from_millis(100);

/// What a session may send at least, as long as there is room.
const LEAST_WINDOW_BYTES: u64 = 64 << 10;

/// Takes what arrives and tells what it comes to. Times are counted from any fixed moment.
#[derive(Debug)]
pub struct Collector {
    shared: Shared,
    limits: CatalogLimits,
    names: Box<dyn SessionNames>,
    /// Bytes that all catalogs take.
    catalog_bytes: Arc<AtomicU64>,
    sessions: BTreeMap<SessionKey, SessionState>,
    by_id: HashMap<SessionId, SessionKey>,
    past: Past,
    bindings: Bindings,
    /// What reads each connection, and what is known of its sender.
    decoders: HashMap<u64, (StreamDecoder, incoming::Sender)>,
    next_key: u64,
    /// No session can make room for another before this time.
    full_until: Duration,
    /// How many sessions may be opened at once, and when that was last raised.
    openings: Openings,
    /// When peers were last looked through to forget some.
    purged: Duration,
    /// The sessions that something has happened to since the last flush.
    touched: Vec<SessionKey>,
    /// Sessions of the past that have something to tell.
    answering: BTreeSet<SessionId>,
    outputs: VecDeque<Output>,
    transmits: VecDeque<Transmit>,
}

impl Collector {
    /// A collector without sessions.
    pub fn new(mut config: Config, limits: CatalogLimits, names: impl SessionNames + 'static) -> Self {
        // What is underway behind a lost packet has to wait for it, and with what else that takes there must be room for it.
        config.window_bytes = config.window_bytes.min(config.held_bytes as u64 / 8);
        Self {
            shared: Shared::new(config),
            limits,
            names: Box::new(names),
            catalog_bytes: Arc::default(),
            sessions: BTreeMap::new(),
            by_id: HashMap::new(),
            past: Past::default(),
            bindings: Bindings::default(),
            decoders: HashMap::new(),
            next_key: 0,
            full_until: Duration::ZERO,
            openings: Openings::new(config.max_sessions, config.openings_per_second),
            purged: Duration::ZERO,
            touched: Vec::new(),
            answering: BTreeSet::new(),
            outputs: VecDeque::new(),
            transmits: VecDeque::new(),
        }
    }

    /// What has been counted so far.
    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    /// Bytes that all catalogs take.
    pub fn catalog_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.catalog_bytes)
    }

    /// How many more bytes the driver has room for. Agents may send no more than that. Without any room, events in
    /// datagrams are not taken: their agents keep them, and are asked for them later.
    pub fn set_room(&mut self, bytes: u64) {
        self.shared.room = bytes;
    }

    /// What the wall clock shows now, in nanoseconds since the Unix epoch, without steps. To be called before what
    /// arrives is handed over, and before replies are made; otherwise agents cannot tell how far their clocks are off.
    pub fn set_unix_time(&mut self, unix_ns: u64) {
        self.shared.unix_ns = unix_ns;
    }

    /// The driver has written everything of these streams of a session before these positions, be it as a gap, so that it
    /// would survive the end of the process.
    pub fn kept(&mut self, now: Duration, session: &Session, streams: impl IntoIterator<Item = (StreamId, Position)>) {
        let Some(id) = id_of(session) else { return };
        match self.by_id.get(&id) {
            Some(key) => self.touched.push(*key),
            None => _ = self.answering.insert(id),
        }
        if let Some(state) = self.state_mut(id) {
            streams.into_iter().for_each(|(stream, next)| state.kept(stream, next, now));
        }
    }

    /// The driver has finished a session that ended, so that this would survive the end of the process: only then its agent
    /// is told that the end has arrived.
    pub fn end_kept(&mut self, now: Duration, session: &Session) {
        let Some(id) = id_of(session) else { return };
        if let Some(state) = self.past.session_mut(id) {
            state.end_is_kept(now);
            self.answering.insert(id);
        }
    }

    /// Whether events of a session have arrived that wait for others before them.
    pub fn holds_events(&self, id: SessionId) -> bool {
        self.by_id.get(&id).and_then(|key| self.sessions.get(key)).is_some_and(SessionState::holds_events)
    }

    /// Nothing is heard of a session any more: it ends, and goes on should its agent come back.
    pub fn lose_contact(&mut self, now: Duration, id: SessionId) {
        if let Some(key) = self.by_id.get(&id).copied() {
            self.finish_session(now, key, How::LostContact);
        }
    }

    /// Whether the driver has [kept](Self::kept) all events of a session that are settled.
    pub fn is_kept(&self, id: SessionId) -> bool {
        match self.by_id.get(&id).and_then(|key| self.sessions.get(key)) {
            Some(state) => state.is_kept(),
            None => self.past.session(id).is_none_or(SessionState::is_kept),
        }
    }

    /// So many events of a session were lost by the driver so far, by cause: its agent is told with what is kept.
    pub fn lost(&mut self, session: &Session, lost: BTreeMap<Cause, u64>) {
        if let Some(state) = id_of(session).and_then(|id| self.state_mut(id)) {
            state.lost_by_driver = lost;
        }
    }

    /// The session with this id, open or past.
    fn state_mut(&mut self, id: SessionId) -> Option<&mut SessionState> {
        match self.by_id.get(&id) {
            Some(key) => self.sessions.get_mut(key),
            None => self.past.session_mut(id),
        }
    }

    /// A datagram has arrived.
    pub fn datagram(&mut self, now: Duration, peer: Peer, datagram: &[u8]) {
        self.shared.counts.datagrams += 1;
        match self.bindings.get(&peer) {
            Some(Binding::Open(key)) => self.take_datagram(now, peer, Some(*key), datagram),
            Some(Binding::Past(_)) => self.take_datagram(now, peer, None, datagram),
            Some(Binding::Unknown(_)) | None => {
                match incoming::announced(datagram, self.shared.config.max_packet_bytes) {
                    Some(name) => self.identify(now, peer, name, datagram),
                    None => self.wait_for_name(now, peer, datagram),
                }
            }
        }
    }

    /// Bytes of a connection or file have arrived: all from the first that was not consumed. Returns how many are
    /// consumed now. `ended` says that no more will follow.
    pub fn stream(&mut self, now: Duration, stream: u64, input: &[u8], ended: bool) -> usize {
        let limit = self.shared.config.max_packet_bytes;
        let mut decoder =
            self.decoders.remove(&stream).unwrap_or_else(|| (StreamDecoder::new(limit), Default::default()));
        let consumed = self.take_stream(now, Peer::Stream(stream), &mut decoder, input, ended);
        self.decoders.insert(stream, decoder);
        consumed
    }

    /// A connection or file has ended.
    pub fn disconnected(&mut self, now: Duration, stream: u64) {
        self.decoders.remove(&stream);
        let peer = Peer::Stream(stream);
        if let Some(Binding::Open(key)) = self.bindings.remove(&peer) {
            // One that has said who it is may come back.
            let anonymous = self.sessions.get(&key).is_some_and(|session| session.id.is_none());
            if anonymous {
                self.finish_session(now, key, How::Closed);
            }
        }
    }

    /// Time has passed. To be called every few milliseconds.
    pub fn tick(&mut self, now: Duration) {
        for peer in bindings::unknown_since(&self.bindings, now.saturating_sub(self.shared.config.identify_time)) {
            self.give_no_name(now, peer);
        }
        let mut ended = Vec::new();
        for (key, session) in &mut self.sessions {
            let mut context = self.shared.context(now);
            let told = session.tick(&mut context);
            let silent = now.saturating_sub(session.heard) >= self.shared.config.session_timeout;
            if let Some(how) = told.or(silent.then_some(How::LostContact)) {
                ended.push((*key, how));
            }
            self.touched.push(*key);
        }
        for (key, how) in ended {
            self.finish_session(now, key, how);
        }
        self.flush(now);
    }

    /// Ends all sessions.
    pub fn finish(&mut self, now: Duration, how: How) {
        for peer in bindings::unknown_since(&self.bindings, now) {
            self.give_no_name(now, peer);
        }
        let keys: Vec<_> = self.sessions.keys().copied().collect();
        for key in keys {
            self.finish_session(now, key, how);
        }
        self.flush(now);
    }

    /// Makes everything ready that has been settled, and the replies that are due. To be called after each burst.
    pub fn flush(&mut self, now: Duration) {
        let share = self.shared.config.window_bytes.min(self.shared.room) / self.shared.counts.sessions_open.max(1);
        let window_bytes = share.max(LEAST_WINDOW_BYTES.min(self.shared.room));
        let mut touched = std::mem::take(&mut self.touched);
        touched.dedup();
        for key in touched.drain(..) {
            let Some(session) = self.sessions.get_mut(&key) else { continue };
            if session.is_over(now, &self.shared.config) {
                self.finish_session(now, key, How::Closed);
                continue;
            }
            session.out.drain_to(&mut self.outputs);
            let mut context = self.shared.context(now);
            session.reply(window_bytes, &mut context, &mut self.transmits);
        }
        self.touched = touched;
        self.answering.retain(|id| {
            let Some(session) = self.past.session_mut(*id) else { return false };
            let mut context = self.shared.context(now);
            session.reply(window_bytes, &mut context, &mut self.transmits);
            session.owes_reply()
        });
    }

    /// What the sinks are to be told next.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// What is to be sent next.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Keeps a datagram of an unknown sender, in case its next one says who it is.
    fn wait_for_name(&mut self, now: Duration, peer: Peer, datagram: &[u8]) {
        if !incoming::is_readable(datagram, self.shared.config.max_packet_bytes) {
            self.shared.counts.bad_datagrams += 1;
            self.shared.counts.skipped_bytes += datagram.len() as u64;
            return;
        }
        if !self.bindings.contains_key(&peer) && !self.make_room_for_peer(now) {
            self.shared.counts.refused_datagrams += 1;
            return;
        }
        let bytes = datagram.len() + 64;
        let within = self.shared.counts.held_bytes_now.saturating_add(bytes) <= self.shared.config.held_bytes;
        let first = || Binding::Unknown(Unknown { since: now, ..Unknown::default() });
        let Binding::Unknown(unknown) = self.bindings.entry(peer).or_insert_with(first) else { return };
        if incoming::is_of_agent(datagram, self.shared.config.max_packet_bytes) {
            unknown.is_agent = true;
            self.transmits.extend(reply::who().map(|packet| Transmit { to: peer, packet }));
        }
        if within && unknown.bytes.saturating_add(bytes) <= self.shared.config.identify_bytes {
            unknown.datagrams.push(datagram.into());
            unknown.bytes += bytes;
            self.shared.counts.held_bytes_now += bytes;
            return;
        }
        self.give_no_name(now, peer);
        if let Some(key) = bindings::session(&self.bindings, &peer) {
            self.take_datagram(now, peer, Some(key), datagram);
        }
    }

    /// Whether another peer can be remembered.
    fn make_room_for_peer(&mut self, now: Duration) -> bool {
        let limit = self.shared.config.max_sessions.saturating_mul(4);
        // Looking through all of them takes a while, so it is not done for each that is refused.
        if self.bindings.len() >= limit && now >= self.purged + PURGE_TIME {
            self.purged = now;
            let current: HashSet<_> = self.sessions.values().map(|session| session.peer).collect();
            bindings::purge(&mut self.bindings, &current);
        }
        self.bindings.len() < limit
    }

    /// A sender has said who it is: what it sent before is its session's too.
    fn identify(&mut self, now: Duration, peer: Peer, name: Named, datagram: &[u8]) {
        let before = self.take_unknown(&peer).datagrams;
        let key = self.session_for(now, peer, name);
        if key.is_none() && !self.past.is_over(name.id) {
            self.shared.counts.refused_datagrams += 1 + before.len() as u64;
            return;
        }
        for datagram in before.iter().map(AsRef::as_ref).chain([datagram]) {
            self.take_datagram(now, peer, key, datagram);
        }
    }

    /// A sender has not said who it is: it is known by its address from now on.
    fn give_no_name(&mut self, now: Duration, peer: Peer) {
        let Unknown { datagrams: before, is_agent, .. } = self.take_unknown(&peer);
        // An agent says who it is when it is asked, and still has what it sent.
        let key = if is_agent { None } else { self.open_session(now, peer, None) };
        let Some(key) = key else {
            self.shared.counts.refused_datagrams += before.len() as u64;
            return;
        };
        for datagram in before {
            self.take_datagram(now, peer, Some(key), &datagram);
        }
    }

    fn take_unknown(&mut self, peer: &Peer) -> Unknown {
        let Some(Binding::Unknown(unknown)) = self.bindings.get_mut(peer) else { return Unknown::default() };
        let unknown = std::mem::take(unknown);
        self.bindings.remove(peer);
        self.shared.counts.held_bytes_now -= unknown.bytes;
        unknown
    }

    /// The open session with this id, to which the peer belongs from now on. There is none if it has ended, or if
    /// there are too many.
    fn session_for(&mut self, now: Duration, peer: Peer, name: Named) -> Option<SessionKey> {
        let Named { id, is_proven, plain } = name;
        if !is_proven && self.shared.config.wants_claims {
            self.shared.counts.refused_claims += 1;
            return None;
        }
        let can_bind = self.bindings.contains_key(&peer) || self.make_room_for_peer(now);
        if let Some(key) = self.by_id.get(&id) {
            if can_bind {
                self.bindings.insert(peer, Binding::Open(*key));
            }
            return Some(*key);
        }
        if self.past.is_over(id) {
            if can_bind {
                self.bindings.insert(peer, Binding::Past(id));
            }
            return None;
        }
        if let Some(key) = bindings::session(&self.bindings, &peer)
            && let Some(session) = self.sessions.get_mut(&key)
            && session.name.is_none()
        {
            // One that was started without a name has one now. In a connection the name would have come first: there
            // another session follows, and nothing can lead back to the one before.
            if matches!(peer, Peer::Datagram { .. }) && !plain {
                session.adopt(id);
                self.by_id.insert(id, key);
                return Some(key);
            }
            self.finish_session(now, key, How::Closed);
        }
        let key = self.open_session(now, peer, Some(id).filter(|_| !plain))?;
        self.by_id.insert(id, key);
        if let Some(session) = self.sessions.get_mut(&key) {
            session.name = Some(id);
        }
        Some(key)
    }

    fn open_session(&mut self, now: Duration, peer: Peer, id: Option<SessionId>) -> Option<SessionKey> {
        let room = self.openings.take(now) && self.make_room_for_session(now, &peer);
        if !room || (!self.bindings.contains_key(&peer) && !self.make_room_for_peer(now)) {
            self.shared.counts.refused_sessions += 1;
            return None;
        }
        let key = SessionKey(self.next_key);
        self.next_key += 1;
        let earlier = id.and_then(|id| match self.past.resume(id) {
            Some(session) => Some(session.into_earlier(&mut self.shared.counts)),
            None => self.find_earlier(id, &peer, key),
        });
        let mut state = match earlier {
            Some(earlier) => SessionState::resume(earlier, peer, &mut self.shared.context(now)),
            None => SessionState::new(self.new_session(id, &peer), peer, &mut self.shared.context(now)),
        };
        state.id = id;
        self.sessions.insert(key, state);
        self.bindings.insert(peer, Binding::Open(key));
        self.touched.push(key);
        Some(key)
    }

    /// Whether another session can be opened. The one that has been silent longest may have to go for it, or one of a
    /// sender that has more than half of all.
    fn make_room_for_session(&mut self, now: Duration, peer: &Peer) -> bool {
        if self.sessions.len() < self.shared.config.max_sessions {
            return true;
        }
        if now < self.full_until {
            return false;
        }
        let Some((key, heard)) = self.sessions.iter().map(|(key, session)| (*key, session.heard)).min_by_key(|s| s.1)
        else {
            return false;
        };
        let silent = now.saturating_sub(heard) >= self.shared.config.evict_time;
        let victim = if silent { Some(key) } else { self.session_of_the_greediest(peer) };
        match victim {
            Some(key) => self.finish_session(now, key, How::LostContact),
            // Looking through all of them takes a while, so it is not done for each that is refused.
            None => self.full_until = (heard + self.shared.config.evict_time).min(now + PURGE_TIME),
        }
        victim.is_some()
    }

    /// A session of the sender that has more than half of all, unless that is who asks.
    fn session_of_the_greediest(&self, asking: &Peer) -> Option<SessionKey> {
        let mut sessions: HashMap<Source, usize> = HashMap::new();
        for session in self.sessions.values() {
            *sessions.entry(session.peer.source()).or_default() += 1;
        }
        let (greediest, _) = sessions.into_iter().find(|(_, count)| *count > self.shared.config.max_sessions / 2)?;
        let theirs = self.sessions.iter().filter(|(_, session)| session.peer.source() == greediest);
        let (key, _) = theirs.min_by_key(|(_, session)| session.heard)?;
        (greediest != asking.source()).then_some(*key)
    }

    fn finish_session(&mut self, now: Duration, key: SessionKey, how: How) {
        let Some(mut session) = self.sessions.remove(&key) else { return };
        let mut context = self.shared.context(now);
        session.finish(how, &mut context);
        session.out.drain_to(&mut self.outputs);
        // Nothing is left to wait for: what is to be told is told now.
        session.reply(0, &mut context, &mut self.transmits);
        let (id, over) = (session.id, session.has_ended());
        if let Some(name) = session.name {
            self.by_id.remove(&name);
        }
        if over {
            session.forget_names();
        }
        if let Some(id) = id {
            self.past.remember(id, session, over);
        }
        bindings::release(&mut self.bindings, key, id);
    }
}

/// The id that an agent told of a session, at first or later.
fn id_of(session: &Session) -> Option<SessionId> {
    session.id.or_else(|| session.catalog().session().map(|process| process.id))
}
