//! A session directory, read.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use codec::atf::{GapEntry, Manifest, ManifestError, OffsetEntry, ThreadEntry};
use sinks::{Catalog, Session};

use super::{
    family::Chosen,
    swift_names::{self, Readings},
};
use codec::quantity::Moment;

/// What the manifest of a session says, with what is looked up in it.
#[derive(Debug)]
pub struct Trace {
    /// Where it is.
    pub dir: PathBuf,
    /// The manifest.
    pub manifest: Manifest,
    /// Names, threads and modules.
    pub catalog: Catalog,
    /// Whether its collector has not finished it.
    pub is_unfinished: bool,
    /// Whether it was not finished, and is told as it was when it was opened.
    pub(crate) is_looked_at: bool,
    /// What cannot be read of what its collector noted while it wrote it.
    pub problem: Option<String>,
    /// What its manifest cannot be trusted for.
    pub wrong: Option<ManifestError>,
    /// Which session was taken, where the directory has several.
    pub note: Option<String>,
    /// What is added to times that are told: the session's zero by the collector's clock with `--align`, or else 0.
    pub added_ns: u64,
    /// What symbols stand for that others understand.
    readings: Arc<Readings>,
}

impl Trace {
    /// Opens a session, or the latest of those that are in a directory.
    pub fn open(dir: &Path) -> Result<Self> {
        Self::read(dir, Manifest::parse)
    }

    /// The same without its functions, where it is finished: for those who list many.
    pub fn outline(dir: &Path) -> Result<Self> {
        Self::read(dir, Manifest::outline)
    }

    fn read(dir: &Path, parse: fn(&[u8]) -> Result<Manifest, ManifestError>) -> Result<Self> {
        let (dir, note) = latest(dir);
        let dir = &*dir;
        if storage::is_remote(dir) {
            storage::look_below(dir).with_context(|| format!("cannot read {}", dir.display()))?;
        }
        // Where its files cannot be read, whoever reads its events says so.
        let unfinished = sinks::disk::look_at_unfinished(dir).unwrap_or_default();
        let path = dir.join("manifest.json");
        let json = match (storage::read(&path), &unfinished) {
            // A collector has only just begun.
            (Err(error), Some(_)) if error.kind() == ErrorKind::NotFound => None,
            (read, _) => Some(read.with_context(|| {
                format!("cannot read {} (is {} a session directory?)", path.display(), dir.display())
            })?),
        };
        let parse = |json: &Vec<u8>| parse(json).with_context(|| format!("cannot read {}", path.display()));
        let on_disk = json.as_ref().map(parse).transpose()?.unwrap_or_default();
        let wrong = json.and_then(|json| Manifest::check_bytes(&json).err()).or_else(|| on_disk.check().err());
        let is_unfinished = on_disk.end.is_none() || dir.join("journal.heph").exists();
        let is_looked_at = unfinished.is_some();
        let (manifest, problem) = match unfinished {
            Some(unfinished) => (unfinished.manifest, unfinished.problem),
            None => (on_disk, None),
        };
        let catalog = Catalog::from_manifest(&manifest);
        let (dir, readings) = (dir.into(), Arc::default());
        Ok(Self { dir, manifest, catalog, is_unfinished, is_looked_at, problem, wrong, note, added_ns: 0, readings })
    }

    /// Opens the session of a process that is meant by its id, its name or that of its session, or where none is, the one
    /// that [`open`](Self::open) takes.
    pub fn of_process(dir: &Path, process: Option<&str>) -> Result<Self> {
        let Some(process) = process else { return Self::open(dir) };
        let chosen = Chosen::process(dir, process)?;
        let mut trace = Self::open(chosen.dir())?;
        trace.note = chosen.note;
        Ok(trace)
    }

    /// The same, with names that only others can tell: for those who show names to people.
    pub fn named(mut self) -> Self {
        self.readings = Arc::new(swift_names::read(self.manifest.functions.iter().map(|function| &*function.name)));
        self.catalog.set_readings(Arc::clone(&self.readings));
        self
    }

    /// The same with times by the collector's clock, where `--align` asks for them.
    pub fn aligned(mut self, align: bool) -> Result<Self> {
        if align {
            self.align(self.manifest.offset)?;
        }
        Ok(self)
    }

    /// Counts times by the collector's clock.
    pub fn align(&mut self, offset: Option<OffsetEntry>) -> Result<()> {
        let offset = offset.with_context(|| {
            format!("--align: {} does not say how its clock and the collector's are apart", self.dir.display())
        })?;
        self.added_ns = offset.zero_unix_ns;
        Ok(())
    }

    /// The session as it was when it was recorded, with its zero where it is to be.
    pub fn session(&self) -> Arc<Session> {
        let moved = (self.added_ns != 0).then(|| {
            let mut manifest = self.manifest.clone();
            move_times(&mut manifest, self.zero_ns(), self.added_ns);
            manifest.clock_zero_ns = Some(self.added_ns);
            manifest.epoch_unix_ns = Some(self.added_ns);
            manifest
        });
        let mut catalog = Catalog::from_manifest(moved.as_ref().unwrap_or(&self.manifest));
        catalog.set_readings(Arc::clone(&self.readings));
        let id = catalog.session().map(|process| process.id);
        let seen_unix_ns = self.manifest.epoch_unix_ns.unwrap_or(0);
        Arc::new(Session::new(self.name(), id, self.dir.display().to_string(), seen_unix_ns, catalog))
    }

    /// The name of its directory, which is that of the session.
    pub fn name(&self) -> String {
        let name = self.dir.file_name().map(|name| name.to_string_lossy().into_owned());
        // The path may end with dots.
        let full = || Some(fs::canonicalize(&self.dir).ok()?.file_name()?.to_string_lossy().into_owned());
        name.or_else(full).unwrap_or_default()
    }

    /// How many events its manifest says that it has.
    pub fn events(&self) -> u64 {
        self.manifest.threads.iter().filter_map(|thread| thread.written).fold(0, u64::saturating_add)
    }

    /// What the trace's clock showed at the session's zero: times in the files count from there on.
    pub fn zero_ns(&self) -> u64 {
        self.manifest.clock_zero_ns.unwrap_or(0)
    }

    /// A time that somebody gave, counted like those that are told, since the session's zero.
    pub fn given_ns(&self, time: Moment) -> u64 {
        u64::try_from(time.0.as_nanos()).unwrap_or(u64::MAX).saturating_sub(self.added_ns)
    }

    /// Whether its agent has told how it ended, and with that all that it had counted.
    pub fn is_told_to_its_end(&self) -> bool {
        const TOLD: [&str; 5] = ["exited", "signaled", "detached", "replaced", "ended"];
        !self.is_unfinished && self.manifest.end.as_ref().is_some_and(|end| TOLD.contains(&end.how.as_str()))
    }

    /// Where the files of a thread are.
    pub fn thread_dir(&self, thread: u32) -> PathBuf {
        self.dir.join(format!("thread_{thread}"))
    }

    /// The threads: those of the manifest, and in a session that is not finished those that have a directory.
    pub fn threads(&self) -> Vec<ThreadEntry> {
        let mut threads = self.manifest.threads.clone();
        if self.is_unfinished {
            let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
            let ids = entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("thread_")?.parse().ok());
            let mut known: HashSet<u32> = threads.iter().map(|thread| thread.id).collect();
            let found = ids.filter(|id| known.insert(*id));
            threads.extend(found.map(|id| ThreadEntry { id, ..ThreadEntry::default() }));
            threads.sort_by_key(|thread| thread.id);
        }
        threads
    }

    /// What is missing of each thread, in the order of its events. What nobody knows the place of comes last.
    pub fn gaps_by_thread(&self) -> HashMap<u32, Vec<&GapEntry>> {
        let mut gaps: HashMap<u32, Vec<&GapEntry>> = HashMap::new();
        for gap in &self.manifest.gaps {
            gaps.entry(gap.thread).or_default().push(gap);
        }
        gaps.values_mut().for_each(|gaps| gaps.sort_by_key(|gap| (gap.at_index.unwrap_or(u64::MAX), gap.first)));
        gaps
    }
}

/// Of a directory of sessions, the first of the latest family, and which that is; anything else as it is.
fn latest(dir: &Path) -> (Cow<'_, Path>, Option<String>) {
    let sessions = sinks::disk::sessions_in(dir).unwrap_or_default();
    let is_folder = sessions.last().is_some_and(|last| last != dir);
    if !is_folder {
        return (dir.into(), None);
    }
    let chosen = Chosen::open(dir);
    (Cow::Owned(chosen.dir().into()), chosen.note)
}

/// Counts the times of a manifest from another zero: what was at `from` is at `to`.
pub fn move_times(manifest: &mut Manifest, from: u64, to: u64) {
    let offset = manifest.offset.as_mut().map(|offset| &mut offset.at_ns);
    let birth = manifest.birth.as_mut().map(|birth| &mut birth.at_ns);
    let end = manifest.end.as_mut().and_then(|end| end.at_ns.as_mut());
    let threads = manifest.threads.iter_mut().flat_map(|thread| [thread.start_ns.as_mut(), thread.end_ns.as_mut()]);
    let modules =
        manifest.modules.iter_mut().flat_map(|module| [module.loaded_ns.as_mut(), module.unloaded_ns.as_mut()]);
    let times = [Some(&mut manifest.time_start_ns), Some(&mut manifest.time_end_ns), birth, offset, end];
    for time in times.into_iter().chain(threads).chain(modules).flatten() {
        *time = time.saturating_sub(from).saturating_add(to);
    }
}
