//! A recorder among others: which sessions it holds, and what it reads of them.

mod held;
mod unknown;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use async_nats::jetstream::kv::{Operation, Watch};
use bytes::Bytes;
use codec::SessionId;
use futures_util::StreamExt;
use serde_json::json;
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tracing::{debug, info, warn};

use self::{held::Held, unknown::look_for_unknown};
use crate::{
    FleetError, Link, Record, State,
    beats::{self, Beats, LEASE_BEATS, Lease},
    record,
};

/// How often sessions without a recorder are looked through.
const LOOK_TIME: Duration = Duration::from_millis(50);

/// How long it waits for each session that it has before it takes another: whoever has fewer comes first.
const WAIT_PER_SESSION: Duration = Duration::from_millis(3);
const MOST_WAITING: Duration = Duration::from_millis(300);

/// The least silence after which a session is left. Edges announce a session again well before that.
const LEAST_SILENCE: Duration = Duration::from_secs(60);

/// How long giving up all sessions may take.
const RELEASE_TIME: Duration = Duration::from_secs(5);

/// How often it is looked how full the stream is.
const MEASURE_TIME: Duration = Duration::from_secs(2);

/// What takes the packets of sessions, and writes them.
pub trait Intake: Send + Sync + 'static {
    /// A session is about to be read, from where this says. All that comes of it has this number.
    fn open(&self, number: u64, from: String);

    /// Looks for what there is of a session in the files.
    fn prepare(&self, id: SessionId) -> Ready;

    /// Takes whole packets of a session. Returns whether none of its events wait for others that have not come.
    fn take(&self, number: u64, id: SessionId, packets: &[u8]) -> bool;

    /// Returns when more can be taken.
    fn room(&self) -> impl Future<Output = ()> + Send;

    /// Whether all events of a session that wait for no others are in its files.
    fn is_kept(&self, id: SessionId) -> bool;

    /// Nothing has come of a session for long.
    fn lose_contact(&self, id: SessionId);

    /// Nothing more comes under this number.
    fn close(&self, number: u64);

    /// Another recorder has the whole of a session: what is here of it is not needed.
    fn is_elsewhere(&self, id: SessionId);
}

/// The bounds of a recorder.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How many sessions it may hold.
    pub max_sessions: usize,
    /// How long it holds them without being heard of.
    pub lease: Duration,
    /// After how much silence it leaves a session, until its agent is heard of again: a minute at least.
    pub silence: Duration,
}

/// What there is of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// Its files are here.
    Here,
    /// There are none.
    Nowhere,
    /// Somebody else still writes its files.
    NotYet,
}

/// What all sessions of a recorder share.
pub(crate) struct Shared<I> {
    link: Link,
    intake: Arc<I>,
    /// What it calls itself: another name each time it is started.
    id: String,
    /// What its files are known by. Recorders that share a directory share this.
    storage: String,
    /// When the last own beat was sent that was taken.
    beat: Mutex<Instant>,
    /// How often beats were missing for so long that others may have taken sessions.
    lapses: AtomicU64,
    /// Whether the stream is so full that what is kept should leave it.
    is_tight: AtomicBool,
    /// The sessions that it holds.
    sessions: Mutex<HashMap<SessionId, Taken>>,
    /// The sessions of whose records the watch has told.
    known: Mutex<HashSet<SessionId>>,
    /// How many it may hold.
    max_sessions: usize,
    lease: Lease,
    /// After how much silence it leaves a session, until its agent is heard of again.
    silence: Duration,
    next_number: AtomicU64,
}

/// A session that it has taken.
struct Taken {
    /// Told when the session is over.
    over: Arc<Notify>,
    /// The revision of its record by which it has it. The watch may still tell of earlier ones.
    since: u64,
    /// Whether it is certain that no other has taken it at the same time, so that it is read.
    is_read: bool,
}

impl<I> Shared<I> {
    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Taken>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, HashSet<SessionId>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn since_beat(&self) -> Duration {
        self.beat.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Returns as soon as no other can have taken a session of this one, and tells how often that was in doubt.
    async fn fence(&self) -> u64 {
        while self.since_beat() >= self.lease.fence_time() {
            sleep(LOOK_TIME).await;
        }
        self.lapses.load(Relaxed)
    }
}

/// Reads sessions that no other recorder reads.
pub struct Recorder<I> {
    shared: Arc<Shared<I>>,
}

/// A session that needs a recorder, or may need another.
struct Seen {
    record: Record,
    revision: u64,
    since: Instant,
    is_told: bool,
}

impl<I: Intake> Recorder<I> {
    /// A recorder whose files are in this storage.
    pub fn new(link: Link, intake: Arc<I>, storage: String, limits: Limits) -> Self {
        let Limits { max_sessions, lease, silence } = limits;
        let shared = Shared {
            id: link.unique_name(),
            link,
            intake,
            storage,
            beat: Mutex::new(Instant::now()),
            lapses: AtomicU64::new(0),
            is_tight: AtomicBool::new(false),
            sessions: Mutex::default(),
            known: Mutex::default(),
            max_sessions,
            lease: Lease(lease),
            silence: silence.max(LEAST_SILENCE),
            next_number: AtomicU64::new(1),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Reads sessions for ever. `over` tells of those that are over and complete in the files.
    ///
    /// # Errors
    ///
    /// Another recorder has taken a session of this one, which it took for dead. It writes the same files if the storage is
    /// shared, so whoever gets this error must not write another byte.
    pub async fn run(&self, over: &mut mpsc::UnboundedReceiver<SessionId>) -> FleetError {
        let shared = &self.shared;
        let mut tasks = JoinSet::new();
        let mut beats = Beats::new(&shared.id);
        let mut waiting: HashMap<SessionId, Seen> = HashMap::new();
        let mut watch: Option<(Watch, bool)> = None;
        let mut own_beat = Instant::now();
        // They go on whatever else is waited for.
        let mut background = JoinSet::new();
        background.spawn(beat(Arc::clone(shared)));
        background.spawn(measure(Arc::clone(shared)));
        let (tell, mut found) = mpsc::unbounded_channel();
        background.spawn(look_for_unknown(Arc::clone(shared), tell));
        let mut ticks = interval(LOOK_TIME);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if watch.is_none() || own_beat.elapsed() >= shared.lease.0 {
                own_beat = Instant::now();
                watch = match shared.link.records.watch_with_history(">").await {
                    Ok(entries) => {
                        shared.known().clear();
                        Some((entries, false))
                    }
                    Err(_) => None,
                };
            }
            tokio::select! {
                Some(id) = over.recv() => {
                    if let Some(taken) = shared.sessions().get(&id) {
                        taken.over.notify_one();
                    }
                }
                Some((id, record, revision)) = found.recv() => {
                    let is_known = shared.known().contains(&id) || shared.sessions().contains_key(&id);
                    if !is_known && let Err(lost) = self.saw(id, Some(record), revision, &mut waiting) {
                        return lost;
                    }
                }
                Some(done) = tasks.join_next(), if !tasks.is_empty() => {
                    if let Ok(Err(lost)) = done {
                        return lost;
                    }
                }
                entry = next_entry(&mut watch) => match entry {
                    Some(Ok(entry)) => {
                        if let Some((_, is_whole)) = &mut watch {
                            *is_whole |= entry.seen_current;
                        }
                        if entry.key == beats::key(&shared.id) {
                            own_beat = Instant::now();
                        }
                        let is_there = entry.operation == Operation::Put;
                        if beats.heard(&entry.key, is_there) {
                            continue;
                        }
                        let Some(id) = record::session_of(&entry.key) else { continue };
                        let record = Record::read(&entry.value).filter(|_| is_there);
                        if let Err(lost) = self.saw(id, record, entry.revision, &mut waiting) {
                            return lost;
                        }
                    }
                    Some(Err(_)) | None => watch = None,
                },
                _ = ticks.tick() => {
                    if watch.as_ref().is_some_and(|(_, is_whole)| *is_whole) && shared.since_beat() < shared.lease.fence_time() {
                        self.claim(&beats, &mut waiting, &mut tasks).await;
                    }
                }
            }
        }
    }

    /// A record was written. An error is that another has taken a session of this recorder.
    fn saw(
        &self,
        id: SessionId,
        record: Option<Record>,
        revision: u64,
        waiting: &mut HashMap<SessionId, Seen>,
    ) -> Result<(), FleetError> {
        waiting.remove(&id);
        let Some(record) = record else {
            self.shared.known().remove(&id);
            return Ok(());
        };
        self.shared.known().insert(id);
        let taken = self.shared.sessions().get(&id).map(|taken| (taken.since, taken.is_read));
        let is_read = taken.map(|(_, is_read)| is_read);
        let is_own = record.owner.as_deref() == Some(&self.shared.id);
        match record.state {
            State::Open if is_read == Some(true) && !is_own && record.owner.is_some() => {
                if taken.is_some_and(|(since, _)| revision > since) {
                    return Err(FleetError::lost(id));
                }
                // The watch lags behind, or the bucket was made anew: it is looked whether the session is still its own.
                self.shared.lapses.fetch_add(1, Relaxed);
            }
            // One that is its own and not held was taken with a word that did not come back.
            State::Open if is_read.is_none() || !is_own => {
                waiting.insert(id, Seen { record, revision, since: Instant::now(), is_told: false });
            }
            State::Over if record.storage.as_deref() != Some(&self.shared.storage) => {
                self.shared.intake.is_elsewhere(id);
            }
            State::Open | State::Over | State::Silent => {}
        }
        Ok(())
    }

    /// Takes sessions that nobody has, or whose recorder is gone.
    async fn claim(
        &self,
        beats: &Beats,
        waiting: &mut HashMap<SessionId, Seen>,
        tasks: &mut JoinSet<Result<(), FleetError>>,
    ) {
        let shared = &self.shared;
        let is_free = |seen: &Seen| match &seen.record.owner {
            None => true,
            Some(owner) if *owner == shared.id => true,
            // Who has the files already comes first.
            Some(owner) if seen.record.storage.as_deref() == Some(&shared.storage) => beats.is_gone(owner, LEASE_BEATS),
            Some(owner) => beats.is_gone(owner, 2 * LEASE_BEATS),
        };
        let free: Vec<_> = waiting.iter().filter(|(_, seen)| is_free(seen)).map(|(id, _)| *id).collect();
        for id in free {
            let held = shared.sessions().len();
            if held >= shared.max_sessions {
                return;
            }
            let load = u32::try_from(held).unwrap_or(u32::MAX);
            if shared.sessions().contains_key(&id) {
                continue;
            }
            let Some(seen) = waiting.get_mut(&id) else { continue };
            if seen.since.elapsed() < WAIT_PER_SESSION.saturating_mul(load).min(MOST_WAITING) {
                continue;
            }
            let is_here = seen.record.storage.as_deref() == Some(&shared.storage);
            if seen.record.is_cut && !is_here {
                if !seen.is_told {
                    seen.is_told = true;
                    let storage = seen.record.storage.as_deref().unwrap_or_default();
                    warn!("session {id} waits for a recorder on storage {storage}: its beginning is there alone");
                }
                continue;
            }
            let record = seen.record.clone();
            let (before, is_new) = (record.owner.clone(), record.storage.is_none());
            let record = if is_here { record } else { Record { kept: 0, next: None, ..record } };
            let (owner, storage) = (Some(shared.id.clone()), Some(shared.storage.clone()));
            let record = Record { owner, storage, ..record };
            let written = match record.replace(&shared.link.records, id, seen.revision).await {
                Ok(written) => written,
                // It is tried again. If it is written after all, the next entry tells that.
                Err(error) => {
                    debug!("session {id}: {error}");
                    seen.since = Instant::now();
                    return;
                }
            };
            waiting.remove(&id);
            let Some(revision) = written else {
                // Another was faster. The next entry tells that, unless it was told before, by a server that lags behind.
                shared.known().remove(&id);
                continue;
            };
            let before = before.filter(|before| *before != shared.id);
            if let Some(before) = before {
                info!("session {id}: taken over from recorder {before}, which is gone");
            }
            let over = Arc::new(Notify::new());
            shared.sessions().insert(id, Taken { over: Arc::clone(&over), since: revision, is_read: false });
            let held = Held::new(Arc::clone(shared), id, (record, revision), is_new, over);
            tasks.spawn(held.run());
        }
    }

    /// Gives up all sessions, once they are closed in the files: others may go on with those that are not over.
    pub async fn release(&self, over: &mut mpsc::UnboundedReceiver<SessionId>) {
        let shared = &self.shared;
        let ids: Vec<_> = shared.sessions().drain().map(|(id, _)| id).collect();
        let mut done = HashSet::new();
        while let Ok(id) = over.try_recv() {
            done.insert(id);
        }
        let release = async {
            for id in ids {
                let is_done = done.contains(&id);
                let is_over = match Record::find(&shared.link.records, id).await {
                    Ok(Some((record, revision))) if record.owner.as_deref() == Some(&shared.id) => {
                        let state = if is_done { State::Over } else { record.state };
                        let record = Record { owner: None, state, ..record };
                        let released = record.replace(&shared.link.records, id, revision).await;
                        state == State::Over && matches!(released, Ok(Some(_)))
                    }
                    Ok(Some((record, _))) => record.state == State::Over,
                    // Somebody has removed it.
                    Ok(None) => is_done,
                    // One that cannot be given up now is taken when this recorder is missed.
                    Err(_) => false,
                };
                if is_over {
                    _ = shared.link.forget(id, None).await;
                }
            }
            _ = shared.link.records.delete(beats::key(&shared.id)).await;
        };
        _ = timeout(RELEASE_TIME, release).await;
    }
}

/// The next record that is written.
async fn next_entry(
    watch: &mut Option<(Watch, bool)>,
) -> Option<Result<async_nats::jetstream::kv::Entry, async_nats::jetstream::kv::WatcherError>> {
    match watch {
        Some((entries, _)) => entries.next().await,
        None => {
            sleep(LOOK_TIME).await;
            None
        }
    }
}

/// Says again and again that this recorder is there.
async fn beat<I: Intake>(shared: Arc<Shared<I>>) {
    let mut ticks = interval(shared.lease.beat_time());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_told = false;
    loop {
        ticks.tick().await;
        let sent = Instant::now();
        let sessions = shared.sessions().len();
        let value = json!({ "storage": shared.storage, "sessions": sessions }).to_string();
        let put = shared.link.records.put(beats::key(&shared.id), Bytes::from(value));
        let why = match timeout(shared.lease.beat_time(), put).await {
            Ok(Ok(_)) => {
                let mut beat = shared.beat.lock().unwrap_or_else(PoisonError::into_inner);
                if beat.elapsed() >= shared.lease.fence_time() {
                    shared.lapses.fetch_add(1, Relaxed);
                }
                // From when it was sent: others may have counted from then.
                *beat = sent;
                drop(beat);
                if std::mem::take(&mut is_told) {
                    info!("{}: records are taken again", shared.link.address);
                }
                continue;
            }
            // Somebody may have removed the bucket.
            Ok(Err(error)) => {
                _ = timeout(shared.lease.beat_time(), shared.link.restore()).await;
                error.to_string()
            }
            Err(_) => "no answer".into(),
        };
        if !is_told && shared.since_beat() >= shared.lease.fence_time() {
            is_told = true;
            warn!("{}: no record is taken ({why}): nothing is read until one is", shared.link.address);
        }
    }
}

/// Looks again and again how full the stream is.
async fn measure<I: Intake>(shared: Arc<Shared<I>>) {
    let mut ticks = interval(MEASURE_TIME);
    loop {
        ticks.tick().await;
        let Ok((bytes, most)) = shared.link.fill().await else { continue };
        let is_tight = bytes >= most / 2;
        let was_tight = shared.is_tight.swap(is_tight, Relaxed);
        if is_tight && !was_tight {
            let name = &shared.link.address.stream;
            warn!("the stream {name} is half full: what is recorded leaves it before its session is over");
        }
    }
}
