//! The functions of sessions, or of a part of the time, read from their events as commands do: what is noise, estimates, and times
//! where events are missing, overviews do not know. It takes a while, so it is done in the background, while somebody asks for it, and kept.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use answers::{
    diff::Compared,
    filter::{Filter, Wanted},
    sessions::Files,
    trace::Trace,
};
use codec::quantity::Moment;
use collector_core::spans::SpanConfig;
use tokio::{
    sync::{Notify, Semaphore},
    task::spawn_blocking,
};

use crate::{library::Library, refusal::Refusal};

/// How many are kept, and how many are read at a time.
const MOST: usize = 16;
const AT_ONCE: usize = 2;

/// How long what was read of a session that goes on is told.
const LASTS: Duration = Duration::from_secs(10);

/// After how long nobody asks any more.
const FORGOTTEN: Duration = Duration::from_secs(5);

/// Nobody asks for it any more. It is read when somebody does.
#[derive(Debug)]
struct Unwanted;

impl std::fmt::Display for Unwanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("nobody wants it any more")
    }
}

impl std::error::Error for Unwanted {}

/// From when on, and until when, since the session's zero.
pub(crate) type Range = (Option<u64>, Option<u64>);

/// What was read, by the directories of sessions and parts of their time.
#[derive(Debug)]
pub(crate) struct Exact {
    library: Arc<Library>,
    config: SpanConfig,
    places: Mutex<HashMap<(PathBuf, Range), Arc<Place>>>,
    turns: Arc<Semaphore>,
}

/// One of them.
#[derive(Debug, Default)]
struct Place {
    state: Mutex<State>,
    /// Told when it was read.
    read: Notify,
    /// How many events were read, and of how many.
    done: AtomicU64,
    of: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    is_reading: bool,
    asked: Option<Instant>,
    last: Option<Last>,
}

/// What was read last.
#[derive(Debug)]
struct Last {
    files: Files,
    at: Instant,
    found: Result<Arc<Compared>, String>,
}

impl Exact {
    pub(crate) fn new(library: Arc<Library>, config: SpanConfig) -> Self {
        Self { library, config, places: Mutex::default(), turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// The functions of a session, or of a part of its time. Waits for them for so long.
    pub(crate) async fn get(&self, name: &str, range: Range, patience: Duration) -> Result<Arc<Compared>, Refusal> {
        let (dir, files) = self.library.look(name).await?;
        let place = self.place((dir.clone(), range));
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            let read = place.read.notified();
            {
                let mut state = place.lock();
                state.asked = Some(Instant::now());
                if let Some(last) = state.last.as_ref().filter(|last| last.files == files || last.at.elapsed() < LASTS)
                {
                    return last.found.clone().map_err(Refusal::Broken);
                }
                if !std::mem::replace(&mut state.is_reading, true) {
                    self.read(&place, &dir, range, files);
                }
            }
            if tokio::time::timeout_at(deadline, read).await.is_err() {
                return Err(Refusal::Making(place.percent()));
            }
        }
    }

    fn place(&self, which: (PathBuf, Range)) -> Arc<Place> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= MOST && !places.contains_key(&which) {
            let oldest = places.iter().min_by_key(|(_, place)| place.lock().asked).map(|(which, _)| which.clone());
            oldest.and_then(|which| places.remove(&which));
        }
        Arc::clone(places.entry(which).or_default())
    }

    fn read(&self, place: &Arc<Place>, dir: &Path, range: Range, files: Files) {
        let (place, dir, config) = (Arc::clone(place), dir.to_path_buf(), self.config.clone());
        let turns = Arc::clone(&self.turns);
        tokio::spawn(async move {
            let Ok(_turn) = turns.acquire_owned().await else { return };
            let reader = Arc::clone(&place);
            let found = spawn_blocking(move || reader.compare(&dir, range, config)).await;
            let mut state = place.lock();
            state.is_reading = false;
            let found = match found {
                Ok(Err(error)) if error.is::<Unwanted>() => None,
                Ok(found) => Some(found.map(Arc::new).map_err(|error| format!("{error:#}"))),
                Err(_) => Some(Err("it cannot be read".into())),
            };
            if let Some(found) = found {
                state.last = Some(Last { files, at: Instant::now(), found });
            }
            drop(state);
            place.read.notify_waiters();
        });
    }
}

impl State {
    fn is_wanted(&self) -> bool {
        self.asked.is_some_and(|asked| asked.elapsed() < FORGOTTEN)
    }
}

impl Place {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn percent(&self) -> u32 {
        let (done, of) = (self.done.load(Relaxed), self.of.load(Relaxed).max(1));
        u32::try_from(u128::from(done) * 100 / u128::from(of)).unwrap_or(0).min(99)
    }

    fn compare(&self, dir: &Path, (from, to): Range, config: SpanConfig) -> anyhow::Result<Compared> {
        let trace = Trace::open(dir)?.named();
        let moment = |ns| Moment(Duration::from_nanos(ns));
        let wanted = Wanted { from: from.map(moment), to: to.map(moment), ..Wanted::default() };
        let filter = Filter::new(&trace, &wanted)?;
        self.of.store(trace.events(), Relaxed);
        Compared::read(&trace, config, &filter, &mut |events| {
            self.done.store(events, Relaxed);
            if !self.lock().is_wanted() {
                return Err(Unwanted.into());
            }
            Ok(())
        })
    }
}
