//! Sessions that are finished, put into an archive in the background.

mod upload;

use std::{
    collections::{HashMap, HashSet},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result, ensure};
use sinks::{
    DiskCounters,
    disk::{WholePart, sessions_in, verify},
};
use storage::Store;
use tracing::{info, warn};

use self::upload::{Archived, Upload};
use crate::quantity::{Size, counted};

/// How often the thread looks whether it is to stop, and whether there is something new.
const GLANCE: Duration = Duration::from_millis(50);
const LOOK: Duration = Duration::from_secs(1);

/// How long it rests where the archive takes nothing, at first and at most.
const REST: Duration = Duration::from_secs(2);
const LONGEST_REST: Duration = Duration::from_secs(60);

/// After how many tries a session that cannot be sent, though others can, has to wait for more rounds.
const MOST_TRIES: u32 = 3;
const ROUNDS_BETWEEN: u64 = 60;

/// What receives comes before what archives: the nice value of the thread.
const NICE: i32 = 10;

/// What is archived, and where to.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) place: PathBuf,
    /// Whether sessions that are there are removed here.
    pub(crate) remove: bool,
}

/// What the archive has come to. Each number is read alone, so their order does not matter.
#[derive(Debug, Default)]
pub(crate) struct ArchiveCounters {
    pub(crate) sessions: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) failures: AtomicU64,
    /// How many sessions are finished and not archived.
    pub(crate) waiting: AtomicU64,
    /// How many were gone before they were archived.
    pub(crate) gone: AtomicU64,
    /// Whether no more sessions come, and whether what is not archived by now is left.
    last: AtomicBool,
    stop: AtomicBool,
}

/// The work on the archive.
#[derive(Debug)]
pub(crate) struct Archiving {
    pub(crate) counters: Arc<ArchiveCounters>,
    thread: JoinHandle<bool>,
}

impl Archiving {
    /// Starts to archive the sessions of these directories, of which these sinks remove some. What comes from a file has no agents
    /// that could ask for it again.
    pub(crate) fn start(
        wanted: Wanted,
        dirs: Vec<PathBuf>,
        disks: &[(String, Arc<DiskCounters>)],
        has_agents: bool,
    ) -> Result<Self> {
        let place = wanted.place.display().to_string();
        let store = Store::open(&wanted.place).with_context(|| format!("cannot archive to {place}"))?;
        let counters = Arc::<ArchiveCounters>::default();
        let archivist = Archivist {
            store,
            remove: wanted.remove,
            dirs,
            disks: disks.iter().map(|(_, disk)| Arc::clone(disk)).collect(),
            has_agents,
            counters: Arc::clone(&counters),
            done: HashMap::new(),
            gone: HashSet::new(),
            wrong: HashMap::new(),
            round: 0,
            working: Duration::ZERO,
            is_failing: false,
        };
        let thread = thread::Builder::new().name("archive".into()).spawn(move || archivist.run());
        Ok(Self { counters, thread: thread.context("cannot start a thread for the archive")? })
    }

    /// Blocks until all sessions that are finished are archived, or until it is interrupted. Whether all of them are.
    pub(crate) fn finish(self) -> bool {
        self.counters.last.store(true, Relaxed);
        self.thread.join().unwrap_or(false)
    }
}

impl ArchiveCounters {
    /// Leaves what is not archived by now to the next collector.
    pub(crate) fn interrupt(&self) {
        self.stop.store(true, Relaxed);
    }

    fn go_on(&self) -> io::Result<()> {
        if self.stop.load(Relaxed) { Err(io::Error::other("interrupted")) } else { Ok(()) }
    }
}

struct Archivist {
    store: Store,
    remove: bool,
    dirs: Vec<PathBuf>,
    disks: Vec<Arc<DiskCounters>>,
    has_agents: bool,
    counters: Arc<ArchiveCounters>,
    /// When the manifests of sessions that are archived were written.
    done: HashMap<PathBuf, Option<SystemTime>>,
    /// Sessions that were gone before they were archived.
    gone: HashSet<PathBuf>,
    /// How often sessions could not be sent though the archive takes others.
    wrong: HashMap<PathBuf, u32>,
    round: u64,
    /// How long the last round worked on sessions.
    working: Duration,
    is_failing: bool,
}

impl Archivist {
    /// Whether all that is finished is archived in the end.
    fn run(mut self) -> bool {
        // Where it cannot be lowered, the work is done all the same.
        _ = rustix::process::setpriority_process(None, NICE);
        // What is wrong with it is said at once, and not when the first session has ended. It may be right by then.
        if let Err(error) = self.store.probe() {
            self.is_failing = true;
            warn!("cannot archive: {error}; sessions stay here, and are tried again");
        }
        let mut rest = REST;
        loop {
            // What ends after this is for another round.
            let is_last = self.counters.last.load(Relaxed);
            let started = Instant::now();
            let left = self.archive_all(is_last);
            self.counters.waiting.store(left, Relaxed);
            if is_last || self.counters.stop.load(Relaxed) {
                let dirs: Vec<_> = self.dirs.iter().map(|dir| dir.display().to_string()).collect();
                if left > 0 {
                    let sessions = counted(left, "session");
                    warn!("{sessions} not archived: the next collector on {} goes on with that", dirs.join(", "));
                }
                return left == 0 && self.gone.is_empty();
            }
            rest = if self.is_failing { (rest * 2).min(LONGEST_REST) } else { REST };
            // To look for sessions takes a twentieth of the time at most, however many sessions there are.
            let pause = if self.is_failing {
                rest
            } else {
                LOOK.max((started.elapsed() - self.working) * 20).min(LONGEST_REST)
            };
            let until = Instant::now() + pause;
            while Instant::now() < until && !self.counters.last.load(Relaxed) && !self.counters.stop.load(Relaxed) {
                thread::sleep(GLANCE);
            }
        }
    }

    /// Archives what is finished. How many sessions are finished and could not be archived.
    fn archive_all(&mut self, is_last: bool) -> u64 {
        let (mut left, mut is_given_up) = (0, false);
        self.working = Duration::ZERO;
        self.round += 1;
        self.tell_removed();
        let found: Vec<_> = self.dirs.iter().flat_map(|dir| sessions_in(dir).unwrap_or_default()).collect();
        let there: HashSet<_> = found.iter().collect();
        self.done.retain(|dir, _| there.contains(dir));
        for dir in found {
            let written = written(&dir);
            if written.is_none() || self.done.get(&dir) == Some(&written) {
                continue;
            }
            // What could not be sent again and again is tried now and then, and in the end.
            let is_wrong = self.wrong.get(&dir).is_some_and(|times| *times >= MOST_TRIES);
            if is_given_up || is_wrong && !is_last && !self.round.is_multiple_of(ROUNDS_BETWEEN) {
                left += u64::from(WholePart::open(&dir).is_ok_and(|whole| whole.is_some()));
                continue;
            }
            let started = Instant::now();
            let archived = self.archive(&dir, is_last);
            self.working += started.elapsed();
            match archived {
                Ok(true) => {
                    self.done.insert(dir, written);
                }
                Ok(false) => {}
                Err(_) if !dir.exists() => self.lose(dir),
                Err(_) if self.counters.stop.load(Relaxed) => left += 1,
                Err(error) => {
                    left += 1;
                    self.counters.failures.fetch_add(1, Relaxed);
                    // Where the archive takes nothing, the others need not be tried, but for the last time.
                    let is_away = self.store.probe().is_err();
                    is_given_up = is_away && !is_last;
                    let was_told = match is_away {
                        true => std::mem::replace(&mut self.is_failing, true),
                        false => {
                            let times = self.wrong.entry(dir.clone()).or_default();
                            *times = times.saturating_add(1);
                            *times > 1
                        }
                    };
                    if !was_told {
                        warn!("cannot archive {}: {error:#}; it stays here, and is tried again", dir.display());
                    }
                }
            }
        }
        self.tell_removed();
        left
    }

    /// Tells of sessions that were removed to make room before they were archived.
    fn tell_removed(&mut self) {
        for dir in self.disks.iter().flat_map(|disk| disk.take_removed()).collect::<Vec<_>>() {
            if !self.done.contains_key(&dir) {
                self.lose(dir);
            }
        }
    }

    fn lose(&mut self, dir: PathBuf) {
        if !self.gone.contains(&dir) {
            warn!("{} is gone before it was archived: --max-bytes, or somebody else, has removed it", dir.display());
            self.counters.gone.fetch_add(1, Relaxed);
            self.gone.insert(dir);
        }
    }

    /// Archives a session. Whether it is archived: it may not be finished, or somebody else archives it.
    fn archive(&mut self, dir: &Path, is_last: bool) -> Result<bool> {
        let whole = match WholePart::open(dir) {
            // Another collector that archives the same directory may have removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            whole => whole?,
        };
        let Some(whole) = whole else { return Ok(false) };
        let remove = self.remove && !(self.has_agents && whole.is_asked_for());
        if self.remove && !remove && !is_last {
            return Ok(false);
        }
        let started = Instant::now();
        let counters = &self.counters;
        let upload = Upload::new(&self.store, dir, &whole);
        let Archived { files, bytes, is_checked } = upload.run(remove, &|| counters.go_on())?;
        let place = upload.place();
        if std::mem::take(&mut self.is_failing) {
            info!("the archive works again");
        }
        if files > 0 {
            counters.sessions.fetch_add(1, Relaxed);
            counters.bytes.fetch_add(bytes, Relaxed);
            let (files, size, took) = (counted(files, "file"), Size(bytes), started.elapsed().as_secs_f64());
            info!("archived {}: {files}, {size}, in {took:.1} s", place.display());
        }
        if self.remove && !remove {
            info!("{} stays here for now: its agent may still ask for it", dir.display());
        }
        if is_checked {
            match remove_sound(dir, whole) {
                Ok(()) => info!("removed {}: it is in the archive", dir.display()),
                Err(error) => warn!("{} is archived as it is, and stays here: {error:#}", dir.display()),
            }
        }
        Ok(true)
    }
}

/// Removes a session that is archived, unless something is wrong with it that can be mended only here.
fn remove_sound(dir: &Path, whole: WholePart) -> Result<()> {
    let problems: Vec<_> = verify(dir)?.into_iter().flat_map(|session| session.problems).collect();
    ensure!(problems.is_empty(), "{}", problems.join("; "));
    ensure!(whole.is_unchanged(), "it has changed");
    Ok(whole.remove()?)
}

/// When the manifest of a session was written.
fn written(dir: &Path) -> Option<SystemTime> {
    storage::metadata(&dir.join("manifest.json")).ok()?.modified
}
