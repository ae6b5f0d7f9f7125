//! The middle: what the sockets receive goes in, the core decides, and the sinks and agents are told.

mod ledger;
mod post;

use std::{
    collections::HashMap,
    net::SocketAddr,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use codec::{
    atf::EndEntry,
    heph::{MAX_PACKET_BYTES, Packets},
    profile::Message,
};
use collector_core::{Collector, Config, How, Output, Peer, SessionKey, Summary};
use sinks::{Batch, Catalog, CatalogLimits, Ended, Gap, Run, Session};
use tokio::sync::{Mutex, Notify};

pub(crate) use self::{ledger::Ledger, post::Post};
use crate::{
    names::Names,
    notices::Notices,
    summary,
    tee::{Ending, Item, Tee},
};

/// Joins the parts. One lock holds the core and the way to the sinks: whoever has received something takes it, does
/// the work, and so waits where a sink is to be waited for.
#[derive(Debug)]
pub(crate) struct Hub {
    state: Mutex<State>,
    /// Tells the tee that it is to end.
    ending: Arc<Ending>,
    /// Where replies go.
    pub(crate) post: Post,
    /// What has been counted, for those who must not wait for the lock.
    pub(crate) ledger: Ledger,
    pub(crate) notices: Arc<Notices>,
    /// Told whenever a session has ended.
    pub(crate) session_ended: Notify,
}

#[derive(Debug)]
struct State {
    core: Collector,
    tee: Option<Tee>,
    sessions: HashMap<SessionKey, Live>,
    names: Names,
    limits: CatalogLimits,
    catalog_bytes: Arc<AtomicU64>,
    /// The time that the core counts in, and when it was last moved on.
    now: Duration,
    moved: Instant,
}

/// The most that the core's time moves on at once: after a machine was suspended, or had no time for us, what has
/// arrived meanwhile is not to be given up for it.
const MOST_AT_ONCE: Duration = Duration::from_millis(50);

impl State {
    /// The time for the core.
    fn now(&mut self) -> Duration {
        let passed = self.moved.elapsed();
        self.moved += passed;
        self.now += passed.min(MOST_AT_ONCE);
        self.now
    }
}

/// A session that has not ended.
#[derive(Debug)]
struct Live {
    session: Arc<Session>,
    since: Instant,
}

impl Hub {
    pub(crate) fn new(config: Config, limits: CatalogLimits, tee: Tee, notices: Arc<Notices>) -> Self {
        let (ledger, ending) = (Ledger::new(&tee), tee.ending());
        let state = State {
            core: Collector::new(config),
            tee: Some(tee),
            sessions: HashMap::new(),
            names: Names::default(),
            limits,
            catalog_bytes: ledger.catalog_bytes.clone(),
            now: Duration::ZERO,
            moved: Instant::now(),
        };
        Self { state: Mutex::new(state), ending, post: Post::default(), ledger, notices, session_ended: Notify::new() }
    }

    /// Datagrams have arrived: in `bytes`, each where it says, from the address beside it.
    pub(crate) async fn datagrams(&self, socket: usize, bytes: &[u8], datagrams: &[(SocketAddr, Range<usize>)]) {
        let mut state = self.state.lock().await;
        if state.tee.is_none() {
            return;
        }
        let now = state.now();
        for (address, place) in datagrams {
            let datagram = bytes.get(place.clone()).unwrap_or_default();
            self.ledger.udp_bytes.fetch_add(datagram.len() as u64, Relaxed);
            state.core.datagram(now, Peer::Datagram { socket, address: *address }, datagram);
        }
        self.pump(&mut state).await;
    }

    /// Bytes of a connection or file have arrived: all that were not consumed before. Returns how many are now.
    pub(crate) async fn bytes(&self, stream: u64, bytes: &[u8], ended: bool) -> usize {
        let mut state = self.state.lock().await;
        if state.tee.is_none() {
            return bytes.len();
        }
        let now = state.now();
        let consumed = state.core.stream(now, stream, bytes, ended);
        self.pump(&mut state).await;
        consumed
    }

    /// A connection or file has ended.
    pub(crate) async fn disconnected(&self, stream: u64) {
        let mut state = self.state.lock().await;
        let now = state.now();
        state.core.disconnected(now, stream);
        self.pump(&mut state).await;
    }

    /// Time has passed.
    pub(crate) async fn tick(&self) {
        let mut state = self.state.lock().await;
        if state.tee.is_none() {
            return;
        }
        let now = state.now();
        state.core.tick(now);
        self.pump(&mut state).await;
    }

    /// Says that the end is near: from now on a sink that takes nothing is waited for only so long.
    pub(crate) fn begin_end(&self) {
        self.ending.begin();
    }

    /// Ends all sessions and finishes all sinks. Returns whether those could be finished. Nothing is taken after that.
    pub(crate) async fn finish(&self, how: How) -> bool {
        let mut state = self.state.lock().await;
        let now = state.now();
        state.core.finish(now, how);
        self.pump(&mut state).await;
        let Some(tee) = state.tee.take() else { return true };
        let closed = tokio::task::spawn_blocking(move || tee.close()).await;
        closed.unwrap_or(false)
    }

    /// Takes what the core has to tell to where it belongs.
    async fn pump(&self, state: &mut State) {
        state.core.flush(state.now);
        while let Some(output) = state.core.poll_output() {
            if let Some(item) = self.translate(state, output)
                && let Some(tee) = &mut state.tee
            {
                let before = Instant::now();
                tee.give(item).await;
                // While a sink is waited for, nothing is received, and so nothing is late for it.
                state.moved += before.elapsed();
            }
        }
        while let Some(transmit) = state.core.poll_transmit() {
            self.post.send(&transmit);
        }
        self.ledger.enter(state.core.counts());
    }

    /// What the sinks are to be told of an output.
    fn translate(&self, state: &mut State, output: Output) -> Option<Item> {
        Some(match output {
            Output::Started { session: key, id, peer } => {
                let (name, seen) = state.names.next();
                let catalog = Catalog::new(state.limits, state.catalog_bytes.clone());
                let seen = u64::try_from(seen.as_nanos()).unwrap_or(u64::MAX);
                let session = Arc::new(Session::new(name, id, self.post.name(&peer), seen, catalog));
                self.notices.say(format!("session {} from {}", session.name, session.source));
                state.sessions.insert(key, Live { session: session.clone(), since: Instant::now() });
                Item::Started(session)
            }
            Output::Options { session: key, packets } => {
                let session = &state.sessions.get(&key)?.session;
                self.enter_options(session, &packets);
                Item::Options(session.clone(), packets)
            }
            Output::Events { session: key, bytes, runs } => {
                let session = state.sessions.get(&key)?.session.clone();
                let run = |run: collector_core::Run| Run {
                    stream: run.stream,
                    first: run.first,
                    events: run.events,
                    bytes: run.bytes,
                    skip: run.skip,
                };
                Item::Events(Arc::new(Batch { session, bytes, runs: runs.into_iter().map(run).collect() }))
            }
            Output::Gap { session: key, gap } => {
                let session = state.sessions.get(&key)?.session.clone();
                let cause = gap.cause.to_string().into();
                Item::Gap(session, Gap { stream: gap.stream, first: gap.first, count: gap.count, cause })
            }
            Output::Ended { session: key, summary } => {
                let live = state.sessions.remove(&key)?;
                self.say_ended(&live, &summary, state);
                // Somebody who says nothing is not what `--once` waits for.
                if summary.id.is_some() || summary.written > 0 || !summary.missing.is_empty() {
                    self.session_ended.notify_one();
                }
                Item::Ended(live.session.clone(), ended(&live.session, &summary))
            }
        })
    }

    /// Enters what options tell into the session's catalog.
    fn enter_options(&self, session: &Session, packets: &[u8]) {
        let mut catalog = session.catalog_mut();
        let mut packets = Packets::new(packets, MAX_PACKET_BYTES);
        while let Some(Ok(message)) = packets.next_with(Message::decode) {
            if let Message::Option(known) = message {
                self.ledger.refused.add(&catalog.apply(&known.option));
            }
        }
    }

    fn say_ended(&self, live: &Live, summary: &Summary, state: &State) {
        let places = state.tee.iter().flat_map(|tee| tee.places(&live.session));
        let line = summary::line(&live.session, summary, live.since.elapsed(), places);
        self.notices.say(line);
    }
}

/// How a session ended, as the sinks put it down.
fn ended(session: &Session, summary: &Summary) -> Ended {
    let (how, code) = summary.how.word();
    let clock = session.catalog().clock();
    let at_ns = summary.at.map(|at| clock.map_or(at.0, |clock| clock.at(at).0));
    let mut limits = Vec::new();
    if summary.refused > 0 {
        limits.push(codec::atf::LimitEntry {
            reason: "collector:streams".into(),
            detail: "events of streams beyond --max-streams".into(),
            count: summary.refused,
            ..Default::default()
        });
    }
    Ended { end: EndEntry { how: how.into(), code, at_ns, ..EndEntry::default() }, limits }
}
