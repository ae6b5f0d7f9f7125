//! The sessions that are shown: those of a directory, or one with its family.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use answers::{
    family::{Family, Member},
    scan::Scan,
    trace::Trace,
};
use serde_json::{Value, json};

use crate::refusal::Refusal;

/// A session whose files have not changed for so long is not being written.
const SILENCE: Duration = Duration::from_secs(10);

/// How long what is known of a directory of sessions is told again: many ask, and there may be thousands.
pub(crate) const LASTS: Duration = Duration::from_millis(250);

/// How many causes of missing events are told.
const MOST_CAUSES: usize = 16;

/// Where the sessions are.
#[derive(Debug)]
pub(crate) struct Library {
    dir: PathBuf,
    /// What is known of sessions, by their directories.
    known: Mutex<HashMap<PathBuf, Known>>,
    /// The sessions as they were last, and when that was.
    relatives: Mutex<Option<(Instant, Arc<Relatives>)>>,
    /// What was told of them last, and when.
    listed: Mutex<Option<(Instant, Arc<Value>)>>,
}

/// When a manifest was written, and its size.
type Written = Option<(SystemTime, u64)>;

/// Sessions with who made whom.
#[derive(Debug)]
struct Relatives {
    /// What it was read from.
    key: Vec<(PathBuf, Written)>,
    family: Family,
    /// The places of those that are shown, each before its children, and how many are above it.
    shown: Vec<(usize, usize)>,
}

/// What tells whether the files of a session have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    manifest: Written,
    /// The bytes of all its files.
    pub(crate) bytes: u64,
    /// When the last of them was written.
    changed: Option<SystemTime>,
}

#[derive(Debug)]
struct Known {
    stamp: Stamp,
    numbers: Arc<Numbers>,
    /// When they were read.
    at: Instant,
}

/// What a session comes to.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) is_finished: bool,
    pub(crate) events: u64,
    pub(crate) missing: u64,
    /// Events for each second: of a session that is written, lately.
    pub(crate) rate: f64,
    state: String,
    causes: Vec<(String, u64)>,
    threads: usize,
    lasted_ns: u64,
    start_unix_ns: Option<u64>,
    /// Why it cannot be read.
    wrong: Option<String>,
}

impl Stamp {
    pub(crate) fn of(dir: &Path) -> Self {
        let mut stamp = Self { manifest: written(dir), bytes: 0, changed: None };
        stamp.add(dir, 0);
        stamp
    }

    fn add(&mut self, dir: &Path, level: u32) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(data) if data.is_dir() && level < 2 => self.add(&entry.path(), level + 1),
                // What is made here is no part of what was recorded.
                Ok(data)
                    if data.is_file()
                        && !entry.file_name().as_encoded_bytes().starts_with(b"overview.")
                        && !entry.file_name().as_encoded_bytes().starts_with(b".overview-") =>
                {
                    self.bytes = self.bytes.saturating_add(data.len());
                    self.changed = self.changed.max(data.modified().ok());
                }
                _ => {}
            }
        }
    }

    /// Whether the manifest is another than it was: that of a finished session says all of it.
    pub(crate) fn has_manifest_of(&self, other: &Self) -> bool {
        self.manifest == other.manifest
    }

    /// Whether something was written lately.
    fn is_fresh(&self) -> bool {
        self.changed.is_some_and(|at| at.elapsed().is_ok_and(|since| since < SILENCE))
    }
}

impl Library {
    pub(crate) fn new(dir: PathBuf) -> Self {
        // What ends with dots has no name.
        let dir = fs::canonicalize(&dir).unwrap_or(dir);
        Self { dir, known: Mutex::default(), relatives: Mutex::default(), listed: Mutex::default() }
    }

    /// The sessions with who made whom, read again where one has come, gone or changed.
    fn relatives(&self) -> Arc<Relatives> {
        let mut last = self.relatives.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, last)) = last.as_ref().filter(|(at, _)| at.elapsed() < LASTS) {
            return Arc::clone(last);
        }
        let sessions = sinks::disk::sessions_in(&self.dir).unwrap_or_default();
        let is_one = sessions.first().is_some_and(|session| *session == self.dir);
        // One is shown with those that are beside it.
        let beside = self.dir.parent().filter(|_| is_one);
        let all = beside.and_then(|folder| sinks::disk::sessions_in(folder).ok());
        let all = all.as_ref().unwrap_or(&sessions);
        let key: Vec<_> = all.iter().map(|dir| (dir.clone(), written(dir))).collect();
        if let Some((at, last)) = last.as_mut().filter(|(_, last)| last.key == key) {
            *at = Instant::now();
            return Arc::clone(last);
        }
        let (family, shown) = match is_one {
            true => {
                let (family, place) = Family::beside(&self.dir);
                let shown = family.below([family.root_of(place)]);
                (family, shown)
            }
            false => {
                let family = Family::of(sessions);
                let shown = family.below(family.roots().collect::<Vec<_>>());
                (family, shown)
            }
        };
        let (_, relatives) = last.insert((Instant::now(), Arc::new(Relatives { key, family, shown })));
        Arc::clone(relatives)
    }

    /// The directory of a session. Only those that are shown have one.
    pub(crate) fn find(&self, name: &str) -> Result<PathBuf, Refusal> {
        let gone = || Refusal::Missing(format!("there is no session {name}, or not any more"));
        // What is no single name leads elsewhere.
        if name.is_empty() || name.contains(['/', '\0']) || name == "." || name == ".." {
            return Err(gone());
        }
        let relatives = self.relatives();
        let shown = relatives.shown.iter().filter_map(|(place, _)| relatives.family.members.get(*place));
        let found = shown.map(|member| &member.dir).find(|dir| dir.file_name().is_some_and(|one| one == name)).cloned();
        found.filter(|dir| dir.join("manifest.json").exists()).ok_or_else(gone)
    }

    /// What a session comes to, read again only where its files have changed.
    pub(crate) fn numbers(&self, dir: &Path) -> (Stamp, Arc<Numbers>) {
        let known = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(dir).map(|known| (known.stamp, Arc::clone(&known.numbers), known.at))
        };
        // What is finished stays as it is.
        if let Some((last, numbers, _)) = &known
            && numbers.is_finished
            && last.manifest.is_some()
            && last.manifest == written(dir)
        {
            return (*last, Arc::clone(numbers));
        }
        let stamp = Stamp::of(dir);
        if let Some((last, numbers, at)) = &known {
            let has_ended = numbers.is_finished || numbers.rate == 0.0 || at.elapsed() < Duration::from_millis(900);
            if *last == stamp && has_ended && numbers.state != "running" || at.elapsed() < Duration::from_millis(200) {
                return (stamp, Arc::clone(numbers));
            }
        }
        let mut numbers = Numbers::read(dir, &stamp);
        if let (false, Some((_, last, at))) = (numbers.is_finished, &known) {
            let seconds = at.elapsed().as_secs_f64();
            let rate = numbers.events.saturating_sub(last.events) as f64 / seconds.max(0.001);
            // Files grow in pages, and numbers that jump cannot be read.
            numbers.rate = if last.rate > 0.0 { last.rate + (rate - last.rate) * seconds.min(1.0) } else { rate };
            numbers.rate = if numbers.rate < 1.0 { 0.0 } else { numbers.rate };
        }
        let numbers = Arc::new(numbers);
        let fresh = Known { stamp, numbers: Arc::clone(&numbers), at: Instant::now() };
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(dir.into(), fresh);
        (stamp, numbers)
    }

    /// All sessions, each behind the one that made it. Many pages ask for it, and get the same for a while.
    pub(crate) fn list(&self) -> Arc<Value> {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, list)) = listed.as_ref().filter(|(at, _)| at.elapsed() < LASTS) {
            return Arc::clone(list);
        }
        let list = Arc::new(self.list_now());
        *listed = Some((Instant::now(), Arc::clone(&list)));
        list
    }

    fn list_now(&self) -> Value {
        let relatives = self.relatives();
        let Relatives { family, shown, .. } = &*relatives;
        {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let there: HashSet<&Path> = family.members.iter().map(|member| member.dir.as_path()).collect();
            known.retain(|dir, _| there.contains(dir.as_path()));
        }
        let members = shown.iter().filter_map(|(place, level)| {
            let member = family.members.get(*place)?;
            let parent = family.parent(*place).and_then(|parent| family.members.get(parent)).map(Member::name);
            Some(self.describe(member, *level, parent))
        });
        json!({ "dir": self.dir.display().to_string(), "sessions": members.collect::<Vec<_>>() })
    }

    fn describe(&self, member: &Member, level: usize, parent: Option<String>) -> Value {
        let (stamp, numbers) = self.numbers(&member.dir);
        let process = member.head.process.as_ref();
        json!({
            "name": member.name(),
            "level": level,
            "parent": parent,
            "born": member.birth.map(|birth| birth.how.name()),
            "machine": process.map(|process| &process.host),
            "program": process.map(|process| &process.executable),
            "pid": process.map(|process| process.pid),
            "arguments": process.map(|process| &process.arguments),
            "state": numbers.state,
            "finished": numbers.is_finished,
            "threads": numbers.threads,
            "events": numbers.events,
            "rate": numbers.rate,
            "missing": numbers.missing,
            "causes": numbers.causes.iter().map(|(cause, count)| json!([cause, count])).collect::<Vec<_>>(),
            "bytes": stamp.bytes,
            "start_unix_ns": numbers.start_unix_ns,
            "lasted_ns": numbers.lasted_ns,
            "wrong": numbers.wrong,
        })
    }
}

/// When the manifest of a session was written, and how long it is.
fn written(dir: &Path) -> Written {
    let data = fs::metadata(dir.join("manifest.json")).ok()?;
    Some((data.modified().ok()?, data.len()))
}

impl Numbers {
    fn read(dir: &Path, stamp: &Stamp) -> Self {
        let trace = match Trace::open(dir) {
            Ok(trace) => trace,
            Err(_) if stamp.manifest.is_none() => return Self { state: "starting".into(), ..Self::default() },
            Err(error) => {
                let (state, wrong) = ("unreadable".into(), Some(format!("{error:#}")));
                return Self { state, wrong, is_finished: true, ..Self::default() };
            }
        };
        let manifest = &trace.manifest;
        let threads = trace.threads();
        let written = |thread| Scan::events_of(&trace, thread);
        let events = threads.iter().map(|thread| thread.written.or_else(|| written(thread)).unwrap_or(0));
        let events = events.fold(0, u64::saturating_add);
        let mut causes: HashMap<&str, u64> = HashMap::new();
        for gap in &manifest.gaps {
            let count = causes.entry(&gap.cause).or_default();
            *count = count.saturating_add(gap.count);
        }
        let missing = causes.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let mut causes: Vec<_> = causes.into_iter().map(|(cause, count)| (cause.to_owned(), count)).collect();
        causes.sort_by(|(a, first), (b, second)| second.cmp(first).then_with(|| a.cmp(b)));
        causes.truncate(MOST_CAUSES);
        let lasted_ns = manifest.time_end_ns.saturating_sub(manifest.time_start_ns);
        let state = match &manifest.end {
            Some(end) if !trace.is_unfinished => {
                end.code.map_or_else(|| end.how.clone(), |code| format!("{} ({code})", end.how))
            }
            _ if stamp.is_fresh() => "running".into(),
            _ => "unfinished".into(),
        };
        let rate = match trace.is_unfinished || lasted_ns == 0 {
            true => 0.0,
            false => events as f64 * 1e9 / lasted_ns as f64,
        };
        // The zero is that of the first process of a family, and those that came from it began later.
        let since = manifest.time_start_ns.saturating_sub(trace.zero_ns());
        let zero = manifest.offset.map(|offset| offset.zero_unix_ns).or(manifest.epoch_unix_ns);
        let start_unix_ns = zero.map(|zero| zero.saturating_add(since));
        Self {
            is_finished: !trace.is_unfinished,
            events,
            missing,
            rate,
            state,
            causes,
            threads: threads.len(),
            lasted_ns,
            start_unix_ns: start_unix_ns.or(manifest.seen_unix_ns),
            wrong: trace.wrong.as_ref().map(ToString::to_string),
        }
    }
}
