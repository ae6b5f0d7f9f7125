//! Keeping a directory below a size: the oldest finished sessions go.

use std::{
    collections::{HashMap, VecDeque},
    fs, io,
    path::{Path, PathBuf},
};

use codec::atf::Manifest;

use super::{
    directory::is_session_name,
    journal::JOURNAL,
    removed::REMOVED,
    spans::{OVERVIEW, PARTIAL, SPANS},
};

/// The parts in a directory, and how much they take.
#[derive(Debug)]
pub(super) struct Room {
    max_bytes: u64,
    /// Finished parts in their order, the oldest first, and others among them.
    parts: Vec<Held>,
    /// What was removed of sessions that go on, by the session's name.
    removed: HashMap<String, Removed>,
    /// What parts that are still open have, and their journals, as far as is known.
    open: (u64, u64),
}

/// A part that takes room.
#[derive(Debug)]
struct Held {
    path: PathBuf,
    session: Option<String>,
    bytes: u64,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Finished,
    /// A killed collector has left it, or another is writing it: it counts, but nobody removes it.
    Unfinished,
    /// It could not be removed to its end so far.
    Removing,
}

/// The parts of a session that are gone.
#[derive(Debug, Clone, Default)]
pub(super) struct Removed {
    /// The names of the latest.
    pub(super) names: VecDeque<String>,
    /// How many there are in all.
    pub(super) count: u64,
}

/// How many names of removed parts are remembered of a session.
const MOST_NAMES: usize = 256;

/// What directories are called while they are being removed, so that half of one is never taken for a session.
const REMOVING: &str = ".removing-";

/// The manifest of a part.
pub(super) const MANIFEST: &str = "manifest.json";

impl Room {
    /// Looks at what there is. What a removal that was interrupted has left is removed now.
    pub(super) fn scan(dir: &Path, max_bytes: u64) -> io::Result<Self> {
        let mut parts = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let (path, Ok(name)) = (entry.path(), entry.file_name().into_string()) else { continue };
            // Not through a link: what it leads to is not ours.
            if !entry.file_type()?.is_dir() {
                continue;
            }
            let state = if name.strip_prefix(REMOVING).is_some_and(is_session_name) {
                match remove_files(&path) {
                    Ok(()) => continue,
                    Err(_) => State::Removing,
                }
            } else if is_session_name(&name) {
                if is_finished(&path) { State::Finished } else { State::Unfinished }
            } else {
                continue;
            };
            let finished = fs::metadata(path.join(MANIFEST)).and_then(|data| data.modified()).ok();
            parts.push((finished, Held { bytes: part_bytes(&path), path, session: None, state }));
        }
        parts.sort_by(|(a, x), (b, y)| (a, &x.path).cmp(&(b, &y.path)));
        // What has nothing of ours in it is somebody else's.
        let parts = parts.into_iter().map(|(_, part)| part).filter(|part| part.bytes > 0).collect();
        Ok(Self { max_bytes, parts, removed: HashMap::new(), open: (0, 0) })
    }

    /// A part was finished. The session is told of what is removed of it as long as it goes on.
    pub(super) fn add(&mut self, path: &Path, session: Option<&str>) {
        self.hold(path, session, State::Finished);
    }

    /// A part was left as it is.
    pub(super) fn add_unfinished(&mut self, path: &Path) {
        self.hold(path, None, State::Unfinished);
    }

    fn hold(&mut self, path: &Path, session: Option<&str>, state: State) {
        // Only what would be recognised later too may go.
        if path.file_name().and_then(|name| name.to_str()).is_some_and(is_session_name) {
            let (bytes, session) = (part_bytes(path), session.map(Into::into));
            self.parts.push(Held { path: path.into(), session, bytes, state });
        }
    }

    /// An unfinished part goes on: it is an open one again.
    pub(super) fn reopen(&mut self, path: &Path) {
        self.parts.retain(|part| part.path != path);
    }

    /// The files of a finished part have changed: its table of spans is being made. What cannot be removed for it is
    /// reported by the next flush.
    pub(super) fn measure(&mut self, path: &Path, removed: impl FnMut(&Path, u64)) {
        if let Some(part) = self.parts.iter_mut().find(|part| part.path == path) {
            part.bytes = part_bytes(path);
        }
        let _ = self.enforce(self.open.0, self.open.1, removed);
    }

    /// Removes what is too much beside the bytes of parts that are still open, and tells the bytes of each. What cannot
    /// be removed still counts; the others are tried all the same.
    ///
    /// Journals go when their sessions end, so they count for a quarter at most: however many options come, the other
    /// three are there for traces.
    pub(super) fn enforce(
        &mut self,
        open_bytes: u64,
        journal_bytes: u64,
        mut removed: impl FnMut(&Path, u64),
    ) -> io::Result<()> {
        self.open = (open_bytes, journal_bytes);
        let open_bytes = open_bytes.saturating_add(journal_bytes.min(self.max_bytes / 4));
        if self.held_bytes().saturating_add(open_bytes) <= self.max_bytes {
            return Ok(());
        }
        let mut result = self.look_again(&mut removed);
        let mut at = 0;
        while self.held_bytes().saturating_add(open_bytes) > self.max_bytes {
            let Some(oldest) = self.parts.get(at) else { break };
            if oldest.state != State::Finished {
                at += 1;
                continue;
            }
            let name = oldest.path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            // Somebody else may have removed it, or begun to use the name.
            if !fs::symlink_metadata(&oldest.path).is_ok_and(|data| data.is_dir()) || !is_finished(&oldest.path) {
                self.parts.remove(at);
                continue;
            }
            let left = match remove(&oldest.path) {
                Ok(()) => None,
                Err((path, error)) if path == oldest.path => {
                    result = Err(error);
                    at += 1;
                    continue;
                }
                Err((path, error)) => {
                    result = Err(error);
                    Some(path)
                }
            };
            let oldest = self.parts.remove(at);
            if let Some(session) = oldest.session {
                self.removed.entry(session).or_default().add(name);
            }
            match left {
                None => removed(&oldest.path, oldest.bytes),
                Some(path) => {
                    self.parts.push(Held { path, session: None, bytes: oldest.bytes, state: State::Removing });
                }
            }
        }
        result
    }

    /// Goes on with removals that failed, and looks whether somebody has finished or removed what was not finished.
    fn look_again(&mut self, removed: &mut impl FnMut(&Path, u64)) -> io::Result<()> {
        let mut result = Ok(());
        let (mut kept, mut finished) = (Vec::new(), Vec::new());
        for part in std::mem::take(&mut self.parts) {
            match part.state {
                State::Finished => kept.push(part),
                State::Removing => {
                    let outcome = remove_files(&part.path);
                    // What is left where nothing of ours is, is somebody else's.
                    if part_bytes(&part.path) == 0 {
                        removed(&before_removal(&part.path), part.bytes);
                        continue;
                    }
                    result = result.and(outcome);
                    kept.push(part);
                }
                State::Unfinished if is_finished(&part.path) => finished.push(part.path),
                State::Unfinished if part.path.exists() => kept.push(part),
                State::Unfinished => {}
            }
        }
        self.parts = kept;
        finished.iter().for_each(|path| self.add(path, None));
        result
    }

    fn held_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).fold(0, u64::saturating_add)
    }

    /// The parts of a session that are gone.
    pub(super) fn removed_of(&self, session: &str) -> Option<Removed> {
        self.removed.get(session).cloned()
    }

    /// The session is over: nobody will ask for its parts again.
    pub(super) fn forget(&mut self, session: &str) {
        self.removed.remove(session);
        for part in &mut self.parts {
            part.session.take_if(|name| name == session);
        }
    }
}

impl Removed {
    fn add(&mut self, name: String) {
        self.count = self.count.saturating_add(1);
        self.names.push_back(name);
        if self.names.len() > MOST_NAMES {
            self.names.pop_front();
        }
    }
}

/// Whether a directory is a part that was finished: a journal or no end would say otherwise.
fn is_finished(dir: &Path) -> bool {
    if fs::symlink_metadata(dir.join(JOURNAL)).is_ok() {
        return false;
    }
    let manifest = storage::read(&dir.join(MANIFEST)).ok().and_then(|json| Manifest::parse(&json).ok());
    manifest.is_some_and(|manifest| manifest.end.is_some())
}

/// The files that we write in a part, each with its size.
pub(super) fn part_files(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut files = Vec::new();
    let mut add = |path: PathBuf| {
        if let Ok(data) = fs::symlink_metadata(&path) {
            files.push((path, data.len()));
        }
    };
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let is_thread = entry.file_name().to_str().is_some_and(|name| name.starts_with("thread_"));
        if is_thread && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            add(entry.path().join("index.atf"));
            add(entry.path().join("detail.atf"));
        }
        // One that is made, one that is being made, and what whoever made it left when it was killed.
        let name = entry.file_name();
        let is_overview =
            [OVERVIEW, ".overview-"].iter().any(|start| name.as_encoded_bytes().starts_with(start.as_bytes()));
        if is_overview {
            add(entry.path());
        }
    }
    for entry in fs::read_dir(dir.join(REMOVED)).into_iter().flatten().flatten() {
        add(entry.path());
    }
    add(dir.join(MANIFEST));
    add(dir.join(JOURNAL));
    add(dir.join(SPANS));
    add(dir.join(PARTIAL));
    files
}

pub(super) fn part_bytes(dir: &Path) -> u64 {
    part_files(dir).into_iter().map(|(_, bytes)| bytes).fold(0, u64::saturating_add)
}

/// Where a part was before it was called by the name that it has while it is removed.
fn before_removal(aside: &Path) -> PathBuf {
    let name = aside.file_name().and_then(|name| name.to_str()?.strip_prefix(REMOVING));
    name.map_or_else(|| aside.into(), |name| aside.with_file_name(name))
}

/// Removes a part. Under another name first: half of one is never taken for a session.
pub(super) fn remove(dir: &Path) -> Result<(), (PathBuf, io::Error)> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let aside = dir.with_file_name(format!("{REMOVING}{name}"));
    fs::rename(dir, &aside).map_err(|error| (dir.to_owned(), error))?;
    remove_files(&aside).map_err(|error| (aside, error))
}

/// Removes a part, but nothing in it that is not ours: then the directory stays.
pub(super) fn remove_files(dir: &Path) -> io::Result<()> {
    for (file, _) in part_files(dir) {
        fs::remove_file(&file)?;
        if let Some(parent) = file.parent().filter(|parent| *parent != dir) {
            // Fails while the other file of the thread is there.
            let _ = fs::remove_dir(parent);
        }
    }
    fs::remove_dir(dir)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const END: &str = r#"{"threads": [], "time_start_ns": 0, "time_end_ns": 0, "end": {"how": "exited"}}"#;

    fn scene() -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("spoor-room-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        dir
    }

    /// A part with an index of this many bytes.
    fn part(dir: &Path, name: &str, bytes: usize, manifest: Option<&str>) -> PathBuf {
        let path = dir.join(name);
        fs::create_dir_all(path.join("thread_1")).expect("made");
        fs::write(path.join("thread_1/index.atf"), vec![0; bytes]).expect("written");
        for name in [OVERVIEW, "overview.spoor.partial", ".overview-1-0"] {
            fs::write(path.join(name), []).expect("written");
        }
        match manifest {
            Some(json) => fs::write(path.join(MANIFEST), json).expect("written"),
            None => fs::write(path.join(JOURNAL), [0; 100]).expect("written"),
        }
        path
    }

    #[test]
    fn what_cannot_be_removed_still_counts_and_is_tried_again() {
        let dir = scene();
        let old = part(&dir, "20250101-000000-1", 1000, Some(END));
        let new = part(&dir, "20250101-000000-2", 1000, Some(END));
        let newest = part(&dir, "20250101-000000-3", 1000, Some(END));
        // One whose name is taken by something that is in the way, and one with an index that no file can be.
        fs::create_dir_all(dir.join(".removing-20250101-000000-1/mine")).expect("made");
        fs::remove_file(new.join("thread_1/index.atf")).expect("removed");
        fs::create_dir_all(new.join("thread_1/index.atf/mine")).expect("made");
        let mut room = Room::scan(&dir, 0).expect("it is there");
        let before = room.held_bytes();
        let (mut told, mut sessions) = (0, 0);
        let mut removed = |_: &Path, bytes| (told, sessions) = (told + bytes, sessions + 1);
        assert!(room.enforce(0, 0, &mut removed).is_err());
        assert!(old.exists() && !new.exists() && !newest.exists(), "the others are removed all the same");
        assert!(room.held_bytes() > 1000, "what is there counts");
        fs::remove_dir_all(dir.join(".removing-20250101-000000-1")).expect("it is there");
        fs::remove_dir(dir.join(".removing-20250101-000000-2/thread_1/index.atf/mine")).expect("it is there");
        fs::remove_dir(dir.join(".removing-20250101-000000-2/thread_1/index.atf")).expect("it is there");
        room.enforce(0, 0, &mut removed).expect("nothing is in the way now");
        assert_eq!((room.held_bytes(), told, sessions), (0, before, 3));
        fs::remove_dir_all(&dir).expect("it is there");
    }

    #[test]
    fn what_a_killed_collector_left_counts_until_it_is_gone_and_is_not_removed() {
        let dir = scene();
        let killed = part(&dir, "20240101-000000-1", 1000, None);
        let finished = part(&dir, "20250101-000000-1", 1000, Some(END));
        let mut room = Room::scan(&dir, 2000).expect("it is there");
        assert!(room.held_bytes() > 2000);
        room.enforce(0, 0, |_, _| {}).expect("there is something to remove");
        assert!(killed.exists() && !finished.exists());
        room.enforce(5000, 0, |_, _| {}).expect("there is nothing to remove");
        assert_eq!(room.held_bytes(), 1100);
        // Somebody repairs it.
        fs::remove_file(killed.join(JOURNAL)).expect("it is there");
        fs::write(killed.join(MANIFEST), END).expect("written");
        room.enforce(1500, 0, |_, _| {}).expect("it can go now");
        assert_eq!((room.held_bytes(), killed.exists()), (0, false));
        fs::remove_dir_all(&dir).expect("it is there");
    }

    #[test]
    fn journals_remove_no_more_than_a_quarter() {
        let dir = scene();
        let paths = [1, 2, 3].map(|number| part(&dir, &format!("20250101-000000-{number}"), 1000, Some(END)));
        let mut room = Room::scan(&dir, 4000).expect("it is there");
        room.enforce(0, u64::MAX, |_, _| {}).expect("there is something to remove");
        assert_eq!(paths.map(|path| path.exists()), [false, true, true]);
        fs::remove_dir_all(&dir).expect("it is there");
    }

    #[test]
    fn only_so_many_names_of_removed_parts_are_remembered() {
        let mut removed = Removed::default();
        (0..1000).for_each(|part| removed.add(part.to_string()));
        assert_eq!((removed.names.len(), removed.count), (MOST_NAMES, 1000));
        assert_eq!(removed.names.back().map(String::as_str), Some("999"));
    }
}
