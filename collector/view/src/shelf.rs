//! The overviews of sessions: opened, or made once and in the background.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use answers::{
    overview::{Growing, Overview},
    scan::Scan,
    sessions::Files,
    trace::Trace,
};
use anyhow::bail;
use collector_core::spans::SpanConfig;
use tokio::sync::{Notify, Semaphore};

use crate::{library::Library, loaded::Loaded, refusal::Refusal};

/// How many overviews stay open.
const MOST_OPEN: usize = 16;

/// How many are made at a time.
const MADE_AT_ONCE: usize = 1;

/// For how long it is kept what is known of a session that grows when nobody looks at it.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// That of a session that grows is extended after a rest. It is short where that is, so that the page follows; what takes
/// longer rests for longer in proportion, so that no more than a twentieth of a processor goes into what has to be read anew.
const SHORTEST_REST: Duration = Duration::from_millis(300);
const SHORT: Duration = Duration::from_secs(1);
const MOST_REST: u32 = 20;

/// The overviews.
#[derive(Debug)]
pub(crate) struct Shelf {
    library: Arc<Library>,
    config: SpanConfig,
    places: Mutex<HashMap<PathBuf, Arc<Place>>>,
    making: Arc<Semaphore>,
    /// Whether nobody wants them any more.
    is_over: Arc<AtomicBool>,
}

/// That of one session.
#[derive(Debug, Default)]
struct Place {
    state: Mutex<State>,
    /// Told when it was made, or could not be.
    made: Notify,
    /// How many events have been read for the next one.
    done: AtomicU64,
    /// Of how many.
    of: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    loaded: Option<Arc<Loaded>>,
    /// What the session was like when it was made.
    files: Option<Files>,
    is_making: bool,
    wrong: Option<String>,
    /// How long the last took, and when it was done.
    took: Duration,
    ended: Option<Instant>,
    generation: u32,
    used: Option<Instant>,
    /// What is known of it while it grows.
    growing: Option<Box<Growing>>,
}

impl Shelf {
    pub(crate) fn new(library: Arc<Library>, config: SpanConfig) -> Self {
        let making = Arc::new(Semaphore::new(MADE_AT_ONCE));
        Self { library, config, places: Mutex::default(), making, is_over: Arc::default() }
    }

    /// How spans are made.
    pub(crate) fn config(&self) -> SpanConfig {
        self.config.clone()
    }

    /// The overview of a session: the latest there is. Begins to make the next one where that is due. Waits for so long for
    /// the first one, and for that of what has ended.
    pub(crate) async fn get(&self, name: &str, patience: Duration) -> Result<Arc<Loaded>, Refusal> {
        let (dir, files) = self.library.look(name).await?;
        let place = self.place(&dir);
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            let made = place.made.notified();
            self.make_if_due(&place, &dir, files);
            let last = {
                let mut state = place.lock();
                state.used = Some(Instant::now());
                let last = state.loaded.clone();
                if let Some(loaded) = last.as_ref().filter(|loaded| !state.is_making || !has_ended(loaded, &dir)) {
                    return Ok(Arc::clone(loaded));
                }
                if let Some(wrong) = state.wrong.as_ref().filter(|_| last.is_none()) {
                    return Err(Refusal::Broken(wrong.clone()));
                }
                last
            };
            if tokio::time::timeout_at(deadline, made).await.is_err() {
                return last.ok_or_else(|| Refusal::Making(place.percent()));
            }
        }
    }

    /// How far the making of one is that is being made.
    pub(crate) fn progress(&self, dir: &Path) -> Option<u32> {
        let place = self.places.lock().unwrap_or_else(PoisonError::into_inner).get(dir).map(Arc::clone)?;
        let is_making = place.lock().is_making;
        is_making.then(|| place.percent())
    }

    fn place(&self, dir: &Path) -> Arc<Place> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        for place in places.values() {
            let mut state = place.lock();
            if state.used.is_some_and(|used| used.elapsed() > FORGOTTEN) {
                state.growing = None;
            }
        }
        if places.len() > MOST_OPEN {
            let oldest = places.iter().filter(|(_, place)| !place.lock().is_making);
            let oldest = oldest.min_by_key(|(_, place)| place.lock().used).map(|(dir, _)| dir.clone());
            oldest.and_then(|dir| places.remove(&dir));
        }
        Arc::clone(places.entry(dir.into()).or_default())
    }

    fn make_if_due(&self, place: &Arc<Place>, dir: &Path, files: Files) {
        {
            let mut state = place.lock();
            let was_finished = state.loaded.as_ref().map(|loaded| !loaded.trace.is_unfinished);
            // Of what is finished only the manifest matters, and what has just ended is made once more at once.
            let is_same = state.files.is_some_and(|last| match was_finished {
                Some(true) => last.manifest == files.manifest,
                _ => last == files,
            });
            let has_ended = state.loaded.as_ref().is_some_and(|loaded| has_ended(loaded, dir));
            let rest = rest(state.took);
            let is_due = has_ended || state.ended.is_none_or(|ended| ended.elapsed() >= rest);
            if state.is_making || is_same || !is_due {
                return;
            }
            state.is_making = true;
            state.generation = state.generation.wrapping_add(1);
        }
        let (place, dir, config) = (Arc::clone(place), dir.to_path_buf(), self.config.clone());
        let (making, is_over) = (Arc::clone(&self.making), Arc::clone(&self.is_over));
        tokio::spawn(async move {
            let (opener, path) = (Arc::clone(&place), dir.clone());
            // One that is there does not wait for others that are made.
            let opened = tokio::task::spawn_blocking(move || opener.open(&path)).await.ok().flatten();
            let made = match opened {
                Some(opened) => Ok((Ok(opened), Duration::ZERO)),
                None => {
                    let Ok(_turn) = making.acquire_owned().await else { return };
                    let maker = Arc::clone(&place);
                    tokio::task::spawn_blocking(move || maker.make(&dir, config, &is_over)).await
                }
            };
            let mut state = place.lock();
            state.is_making = false;
            state.ended = Some(Instant::now());
            // What could not be made is tried again.
            state.files = matches!(made, Ok((Ok(_), _))).then_some(files);
            match made {
                Ok((Ok(loaded), took)) => {
                    (state.loaded, state.took, state.wrong) = (Some(Arc::new(loaded)), took, None);
                }
                Ok((Err(error), took)) => (state.took, state.wrong) = (took, Some(format!("{error:#}"))),
                Err(_) => state.wrong = Some("the overview could not be made".into()),
            }
            drop(state);
            place.made.notify_waiters();
        });
    }
}

/// Whether a session was being written when its overview was made, and is no more.
fn has_ended(loaded: &Loaded, dir: &Path) -> bool {
    loaded.trace.is_unfinished && !dir.join("journal.heph").exists()
}

/// How long nothing is made after something that took so long.
fn rest(took: Duration) -> Duration {
    let times = (took.as_millis() * 2 / SHORT.as_millis()).clamp(1, MOST_REST.into());
    (took * u32::try_from(times).unwrap_or(MOST_REST)).max(SHORTEST_REST)
}

impl Drop for Shelf {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
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

    /// Opens it, if it is there.
    fn open(&self, dir: &Path) -> Option<Loaded> {
        if !dir.join(sinks::disk::OVERVIEW).exists() {
            return None;
        }
        let trace = Trace::open(dir).ok()?;
        let overview = Overview::open(&trace).ok().flatten()?;
        let generation = self.lock().generation;
        Some(Loaded::new(trace.named(), overview, generation))
    }

    /// Makes it, or extends what is there of a session that grows. Tells how long that took.
    fn make(&self, dir: &Path, config: SpanConfig, is_over: &AtomicBool) -> (anyhow::Result<Loaded>, Duration) {
        let begun = Instant::now();
        let make = || {
            let trace = Trace::open(dir)?.named();
            self.done.store(0, Relaxed);
            let events = trace
                .threads()
                .iter()
                .filter_map(|thread| thread.written.or_else(|| Scan::events_of(&trace, thread)))
                .sum();
            self.of.store(events, Relaxed);
            let mut progress = |events| {
                self.done.store(events, Relaxed);
                if is_over.load(Relaxed) {
                    bail!("nobody wants it any more");
                }
                Ok(())
            };
            let growing = self.lock().growing.take();
            let overview = if trace.is_unfinished {
                let growing = growing.map_or_else(|| Growing::new(&trace, config), |growing| Ok(*growing))?;
                let (growing, overview) = growing.extend(&trace, &mut progress)?;
                self.lock().growing = Some(Box::new(growing));
                overview
            } else {
                Overview::make(&trace, config, &mut progress)?
            };
            let generation = self.lock().generation;
            Ok(Loaded::new(trace, overview, generation))
        };
        let made = make();
        (made, begun.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_quickly_rests_for_a_moment_and_what_takes_long_for_long() {
        let rests = [0, 100, 700, 1_000, 2_600, 10_000, 60_000].map(|ms| rest(Duration::from_millis(ms)).as_millis());
        assert_eq!(rests, [300, 300, 700, 2_000, 13_000, 200_000, 1_200_000]);
    }
}
