//! The sessions that are shown: those of a directory, or one with its family.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use answers::{
    family::{Family, Member},
    sessions::{Files, Summary, Written, manifest_of},
};
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::refusal::Refusal;

/// How long what is known of a directory of sessions is told again: many ask, and there may be thousands.
pub(crate) const LASTS: Duration = Duration::from_millis(250);

/// The same of a bucket, where to look takes longer, and nothing is written that is not finished.
const LASTS_IN_BUCKET: Duration = Duration::from_secs(15);

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
    /// How long both are told again.
    lasts: Duration,
}

/// Sessions with who made whom.
#[derive(Debug)]
struct Relatives {
    /// What it was read from.
    key: Vec<(PathBuf, Written)>,
    family: Family,
    /// The places of those that are shown, each before its children, and how many are above it.
    shown: Vec<(usize, usize)>,
}

#[derive(Debug)]
struct Known {
    files: Files,
    numbers: Arc<Numbers>,
    /// When they were read.
    at: Instant,
}

/// What a session comes to.
#[derive(Debug)]
pub(crate) struct Numbers {
    pub(crate) summary: Summary,
    /// Events for each second: of a session that is written, lately.
    pub(crate) rate: f64,
}

impl Library {
    pub(crate) fn new(dir: PathBuf) -> Self {
        // What ends with dots has no name.
        let dir = fs::canonicalize(&dir).unwrap_or(dir);
        let lasts = if storage::is_remote(&dir) { LASTS_IN_BUCKET } else { LASTS };
        Self { dir, known: Mutex::default(), relatives: Mutex::default(), listed: Mutex::default(), lasts }
    }

    /// The sessions with who made whom, read again where one has come, gone or changed.
    fn relatives(&self) -> Arc<Relatives> {
        let mut last = self.relatives.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, last)) = last.as_ref().filter(|(at, _)| at.elapsed() < self.lasts) {
            return Arc::clone(last);
        }
        let mut sessions = sinks::disk::sessions_in(&self.dir).unwrap_or_default();
        sessions.extend(sinks::disk::bare_in(&self.dir, &sessions).unwrap_or_default());
        let is_one = sessions.first().is_some_and(|session| *session == self.dir);
        // One is shown with those that are beside it.
        let beside = self.dir.parent().filter(|_| is_one);
        let all = beside.and_then(|folder| sinks::disk::sessions_in(folder).ok());
        let all = all.as_ref().unwrap_or(&sessions);
        let key = storage::each(all, |dir| (dir.to_owned(), manifest_of(dir)));
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
        found.filter(|dir| storage::metadata(dir).is_ok_and(|data| data.is_dir)).ok_or_else(gone)
    }

    /// The directory of a session and its files as they are now, looked for where that keeps nobody waiting.
    pub(crate) async fn look(self: &Arc<Self>, name: &str) -> Result<(PathBuf, Files), Refusal> {
        let (library, name) = (Arc::clone(self), name.to_owned());
        let looked = spawn_blocking(move || {
            let dir = library.find(&name)?;
            let files = Files::of(&dir);
            Ok((dir, files))
        });
        looked.await.map_err(|_| Refusal::Busy)?
    }

    /// The directory of the session of a process, or of the latest that is being written, or if none is of the latest.
    pub(crate) fn chosen(&self, process: Option<&str>) -> Result<PathBuf, Refusal> {
        answers::live::chosen(&self.dir, process).map_err(|error| Refusal::Missing(format!("{error:#}")))
    }

    /// What a session comes to, read again only where its files have changed.
    pub(crate) fn numbers(&self, dir: &Path) -> (Files, Arc<Numbers>) {
        let known = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(dir).map(|known| (known.files, Arc::clone(&known.numbers), known.at))
        };
        // What is finished stays as it is.
        if let Some((last, numbers, _)) = &known
            && numbers.summary.is_finished
            && last.manifest.is_some()
            && last.manifest == manifest_of(dir)
        {
            return (*last, Arc::clone(numbers));
        }
        let files = Files::of(dir);
        if let Some((last, numbers, at)) = &known {
            let has_ended =
                numbers.summary.is_finished || numbers.rate == 0.0 || at.elapsed() < Duration::from_millis(900);
            if *last == files && has_ended && numbers.summary.state != "running"
                || at.elapsed() < Duration::from_millis(200)
            {
                return (files, Arc::clone(numbers));
            }
        }
        let mut numbers = Numbers::read(dir, &files);
        if let (false, Some((_, last, at))) = (numbers.summary.is_finished, &known) {
            let seconds = at.elapsed().as_secs_f64();
            let rate = numbers.summary.events.saturating_sub(last.summary.events) as f64 / seconds.max(0.001);
            // Files grow in pages, and numbers that jump cannot be read.
            numbers.rate = if last.rate > 0.0 { last.rate + (rate - last.rate) * seconds.min(1.0) } else { rate };
            numbers.rate = if numbers.rate < 1.0 { 0.0 } else { numbers.rate };
        }
        let numbers = Arc::new(numbers);
        let fresh = Known { files, numbers: Arc::clone(&numbers), at: Instant::now() };
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(dir.into(), fresh);
        (files, numbers)
    }

    /// All sessions, each behind the one that made it. Many pages ask for it, and get the same for a while.
    pub(crate) fn list(&self) -> Arc<Value> {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, list)) = listed.as_ref().filter(|(at, _)| at.elapsed() < self.lasts) {
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
        let (files, numbers) = self.numbers(&member.dir);
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
            "state": numbers.summary.state,
            "finished": numbers.summary.is_finished,
            "threads": numbers.summary.threads,
            "events": numbers.summary.events,
            "rate": numbers.rate,
            "missing": numbers.summary.missing,
            "causes": numbers.summary.causes.iter().map(|(cause, count)| json!([cause, count])).collect::<Vec<_>>(),
            "bytes": files.bytes,
            "start_unix_ns": numbers.summary.start_unix_ns,
            "lasted_ns": numbers.summary.lasted_ns,
            "wrong": numbers.summary.wrong,
        })
    }
}

impl Numbers {
    fn read(dir: &Path, files: &Files) -> Self {
        let summary = Summary::read(dir, files);
        let rate = match summary.is_finished && summary.lasted_ns > 0 {
            true => summary.events as f64 * 1e9 / summary.lasted_ns as f64,
            false => 0.0,
        };
        Self { summary, rate }
    }
}
