//! The receiver: what the sockets receive goes in, the core decides, the recorders get the rest, and agents get answers.

mod asking;
mod ledger;
mod post;

use std::{
    net::SocketAddr,
    ops::Range,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, atomic::Ordering::Relaxed},
    time::{Duration, Instant, UNIX_EPOCH},
};

use codec::SessionId;
use collector_core::{
    Catalog, CatalogLimits, Collector, Config, EarlierSession, How, Output, Peer, SessionName, SessionNames,
};
use sinks::{EarlierSessions, disk::Whereabouts};
use tokio::sync::{Notify, mpsc::UnboundedSender};
use tracing::info_span;

use self::asking::Waiting;
pub(crate) use self::{asking::NoAnswer, ledger::Ledger, post::Post};
use crate::{
    door::Refusal,
    names::Names,
    notices::Notices,
    recorder::{BackgroundWriter, Kept, KeptPositions, Recorders},
};

/// Owns the sessions. It never waits for a sink: while the recorders lag behind, agents may send less, connections are
/// not read, and everything else goes on.
#[derive(Debug)]
pub(crate) struct Receiver {
    state: Mutex<State>,
    /// Where replies go.
    pub(crate) post: Arc<Post>,
    /// What has been counted, for those who must not wait for the lock.
    pub(crate) ledger: Ledger,
    pub(crate) notices: Arc<Notices>,
    /// Told whenever a session has ended.
    pub(crate) session_ended: Notify,
    backlogs: Vec<BackgroundWriter>,
    kept: Arc<KeptPositions>,
    /// Who waits for answers of agents.
    waiting: Waiting,
    /// The sessions of earlier collectors that may go on.
    earlier: Arc<Mutex<EarlierSessions>>,
    /// Who is told of sessions that are over, and written.
    over: OnceLock<UnboundedSender<SessionId>>,
}

#[derive(Debug)]
struct State {
    core: Collector,
    recorders: Option<Recorders>,
    /// The time that the core counts in, and when it was last moved on.
    now: Duration,
    moved: Instant,
    wall: WallClock,
    /// How many bytes the recorders can still take.
    free_bytes: u64,
}

/// The most that the core's time moves on at once: after a machine was suspended, or had no time for us, what has
/// arrived meanwhile is not to be given up for it.
const MOST_AT_ONCE: Duration = Duration::from_millis(50);

/// How often a connection that has to wait looks for room.
const LOOK_TIME: Duration = Duration::from_millis(2);

impl State {
    /// The time for the core. It stands still while the recorders have no room: what is not taken then is not missing.
    fn now(&mut self) -> Duration {
        let passed = self.moved.elapsed();
        self.moved += passed;
        self.core.set_unix_time(self.wall.unix_ns());
        if self.free_bytes > 0 {
            self.now += passed.min(MOST_AT_ONCE);
        }
        self.now
    }

    /// Looks how much room the recorders have, and tells the core.
    fn look_for_room(&mut self) {
        if let Some(recorders) = &mut self.recorders {
            self.free_bytes = recorders.free_bytes();
            self.core.set_room(self.free_bytes);
        }
    }
}

/// The wall clock as it was at the start, moved on without steps.
#[derive(Debug)]
struct WallClock {
    unix: Duration,
    started: Instant,
}

impl WallClock {
    fn start() -> Self {
        Self { unix: UNIX_EPOCH.elapsed().unwrap_or_default(), started: Instant::now() }
    }

    fn unix_ns(&self) -> u64 {
        u64::try_from((self.unix + self.started.elapsed()).as_nanos()).unwrap_or(u64::MAX)
    }
}

fn lock(earlier: &Mutex<EarlierSessions>) -> MutexGuard<'_, EarlierSessions> {
    earlier.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names sessions by time and number, and says where they come from.
#[derive(Debug)]
struct Naming {
    names: Names,
    post: Arc<Post>,
    earlier: Arc<Mutex<EarlierSessions>>,
    notices: Arc<Notices>,
}

impl SessionNames for Naming {
    fn name(&mut self, peer: &Peer) -> SessionName {
        let (name, seen) = self.names.next();
        let seen_unix_ns = u64::try_from(seen.as_nanos()).unwrap_or(u64::MAX);
        SessionName { name, source: self.post.name(peer), seen_unix_ns }
    }

    fn earlier(&mut self, id: SessionId, peer: &Peer, catalog: Catalog) -> Option<EarlierSession> {
        let earlier = lock(&self.earlier).take(id, self.post.name(peer), catalog);
        earlier.unwrap_or_else(|error| {
            self.notices.warn(format_args!("cannot go on with session {id}: {error}; it goes on in another directory"));
            None
        })
    }
}

impl Receiver {
    pub(crate) fn new(
        config: Config,
        limits: CatalogLimits,
        recorders: Recorders,
        earlier: EarlierSessions,
        notices: Arc<Notices>,
    ) -> Self {
        let post = Arc::new(Post::default());
        let earlier = Arc::new(Mutex::new(earlier));
        let naming = Naming {
            names: Names::default(),
            post: Arc::clone(&post),
            earlier: Arc::clone(&earlier),
            notices: Arc::clone(&notices),
        };
        let core = Collector::new(config, limits, naming);
        let (ledger, backlogs) = (Ledger::new(&recorders, &core), recorders.backlogs.clone());
        let kept = Arc::clone(&recorders.kept);
        let state = State {
            core,
            recorders: Some(recorders),
            now: Duration::ZERO,
            moved: Instant::now(),
            wall: WallClock::start(),
            free_bytes: 1,
        };
        Self {
            state: Mutex::new(state),
            post,
            ledger,
            notices,
            session_ended: Notify::new(),
            backlogs,
            kept,
            waiting: Waiting::default(),
            earlier,
            over: OnceLock::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody does not get in.
    pub(crate) fn refuse(&self, refusal: &Refusal, from: &str) {
        self.ledger.refusals.add(refusal, from, &self.notices);
    }

    /// Datagrams have arrived: in `bytes`, each where it says, from the address beside it.
    pub(crate) fn datagrams(&self, socket: usize, bytes: &[u8], datagrams: &[(SocketAddr, Range<usize>)]) {
        let mut state = self.state();
        let now = state.now();
        for (address, place) in datagrams {
            let datagram = bytes.get(place.clone()).unwrap_or_default();
            self.ledger.udp_bytes.fetch_add(datagram.len() as u64, Relaxed);
            state.core.datagram(now, Peer::Datagram { socket, address: *address }, datagram);
        }
        self.pump(&mut state);
    }

    /// Bytes of a connection or file have arrived: all that were not consumed before. Returns how many are now.
    pub(crate) fn bytes(&self, stream: u64, bytes: &[u8], ended: bool) -> usize {
        let mut state = self.state();
        if state.recorders.is_none() {
            return bytes.len();
        }
        let now = state.now();
        let consumed = state.core.stream(now, stream, bytes, ended);
        self.pump(&mut state);
        consumed
    }

    /// Returns when the recorders have room.
    pub(crate) async fn room(&self) {
        while !self.has_room() {
            tokio::time::sleep(LOOK_TIME).await;
        }
    }

    fn has_room(&self) -> bool {
        let mut state = self.state();
        state.now();
        state.look_for_room();
        state.free_bytes > 0 || state.recorders.is_none()
    }

    /// A connection or file has ended.
    pub(crate) fn disconnected(&self, stream: u64) {
        let mut state = self.state();
        let now = state.now();
        state.core.disconnected(now, stream);
        self.pump(&mut state);
    }

    /// Time has passed.
    pub(crate) fn tick(&self) {
        let mut state = self.state();
        let now = state.now();
        self.acknowledge_kept(&mut state);
        state.core.tick(now);
        self.pump(&mut state);
    }

    /// Tells agents what they need not keep any longer.
    fn acknowledge_kept(&self, state: &mut State) {
        for Kept { session, positions, lost, ended } in self.kept.take() {
            state.core.lost(&session, lost);
            state.core.kept(state.now, &session, positions);
            let Some((name, how)) = ended else { continue };
            state.core.end_kept(state.now, &session);
            if let (Some(name), How::Told(_) | How::Closed, Some(over)) = (name, how, self.over.get()) {
                // Nobody is left to be told once all ends.
                _ = over.send(name);
            }
        }
    }

    /// From now on tells of sessions that are over, and written.
    pub(crate) fn tell_over(&self, over: UnboundedSender<SessionId>) {
        _ = self.over.set(over);
    }

    /// Whether events of a session have arrived that wait for others before them.
    pub(crate) fn holds_events(&self, id: SessionId) -> bool {
        self.state().core.holds_events(id)
    }

    /// Nothing is heard of a session any more.
    pub(crate) fn lose_contact(&self, id: SessionId) {
        let mut state = self.state();
        let now = state.now();
        state.core.lose_contact(now, id);
        self.pump(&mut state);
    }

    /// Whether all events of a session that wait for no others are written.
    pub(crate) fn is_kept(&self, id: SessionId) -> bool {
        self.state().core.is_kept(id)
    }

    /// Looks again for sessions in directories that others write to as well. Returns what is there of this one.
    pub(crate) fn look_for(&self, id: SessionId, dirs: &[PathBuf]) -> Whereabouts {
        self.state().core.forget(id);
        let mut earlier = lock(&self.earlier);
        *earlier = EarlierSessions::find(dirs.iter().map(PathBuf::as_path));
        earlier.whereabouts(id)
    }

    /// Removes what earlier collectors have left of a session, which is complete elsewhere. Returns where that was.
    pub(crate) fn discard(&self, id: SessionId) -> Option<PathBuf> {
        lock(&self.earlier).discard(id)
    }

    /// Ends all sessions and closes all sinks. Returns whether those could be closed. Nothing is taken after that.
    pub(crate) async fn finish(&self, how: How) -> bool {
        let recorders = {
            let mut state = self.state();
            let now = state.now();
            state.core.finish(now, how);
            self.pump(&mut state);
            state.recorders.take()
        };
        let Some(recorders) = recorders else { return true };
        let closed = tokio::task::spawn_blocking(move || recorders.close(how == How::Stopped)).await.unwrap_or(false);
        let mut state = self.state();
        self.acknowledge_kept(&mut state);
        self.pump(&mut state);
        closed
    }

    /// Gives up outputs that nobody reads, so that the recorders can finish the other sinks. Returns whether there are any.
    pub(crate) fn give_up_outputs(&self) -> bool {
        self.backlogs.iter().for_each(BackgroundWriter::give_up);
        !self.backlogs.is_empty()
    }

    /// Takes what the core has to say to where it belongs.
    fn pump(&self, state: &mut State) {
        state.look_for_room();
        state.core.set_unix_time(state.wall.unix_ns());
        state.core.flush(state.now);
        while let Some(output) = state.core.poll_output() {
            self.announce(&output);
            if let Some(recorders) = &mut state.recorders {
                recorders.push(output);
            }
        }
        while let Some(transmit) = state.core.poll_transmit() {
            self.post.send(&transmit);
        }
        while let Some(answered) = state.core.poll_answer() {
            self.waiting.tell(answered);
        }
        self.ledger.enter(state.core.counts());
    }

    /// Says when a session starts, and tells who waits for one that it has ended. What it came to its recorder says.
    fn announce(&self, output: &Output) {
        match output {
            Output::Started(session) => {
                let _about = info_span!("session", session = %session.name, peer = %session.source).entered();
                self.notices.say(format!("session {} from {}", session.name, session.source));
            }
            Output::Gap(session, gap) if gap.cause.is_kept_before() && session.found.is_some() => {
                let (name, count) = (&session.name, gap.count);
                let what =
                    format!("session {name}: {count} events that its agent was told are kept are not in its files");
                self.notices.warn(format_args!("{what}: a full disk dropped them, or the files were damaged"));
            }
            Output::Resumed(session) => {
                let _about = info_span!("session", session = %session.name, peer = %session.source).entered();
                self.notices.say(format!("session {} goes on", session.name));
            }
            Output::Ended(_, summary) => {
                // Somebody who says nothing is not what `--once` waits for.
                if summary.id.is_some() || summary.written > 0 || !summary.missing.is_empty() {
                    self.session_ended.notify_one();
                }
            }
            Output::Options(..) | Output::Ending(..) | Output::Events(_) | Output::Gap(..) => {}
        }
    }
}
