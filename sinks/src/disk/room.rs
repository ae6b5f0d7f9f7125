//! Keeping a directory below a size: the oldest finished sessions go.

use std::{
    collections::{HashMap, VecDeque},
    fs, io,
    path::{Path, PathBuf},
};

use codec::atf::Manifest;

use super::{journal::JOURNAL, name::is_session_name};

/// The finished parts in a directory, oldest first, and how much they take.
#[derive(Debug)]
pub(super) struct Room {
    dir: PathBuf,
    max_bytes: u64,
    finished: VecDeque<Finished>,
    finished_bytes: u64,
    /// What was removed of sessions that go on, by the session's name.
    removed: HashMap<String, Vec<String>>,
}

#[derive(Debug)]
struct Finished {
    path: PathBuf,
    session: Option<String>,
    bytes: u64,
}

/// What directories are called while they are being removed, so that half of one is never taken for a session.
const REMOVING: &str = ".removing-";

/// The manifest of a part.
pub(super) const MANIFEST: &str = "manifest.json";

impl Room {
    /// Looks at what there is. What a removal that was interrupted has left is removed now.
    pub(super) fn scan(dir: &Path, max_bytes: u64) -> io::Result<Self> {
        let mut found = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            // Not through a link: what it leads to is not ours.
            if !entry.file_type()?.is_dir() {
                continue;
            }
            if name.strip_prefix(REMOVING).is_some_and(is_session_name) {
                let _ = remove_files(&entry.path());
            } else if is_session_name(&name) && is_finished(&entry.path()) {
                let modified = fs::metadata(entry.path().join(MANIFEST)).and_then(|data| data.modified())?;
                let bytes = part_bytes(&entry.path());
                found.push((modified, Finished { path: entry.path(), session: None, bytes }));
            }
        }
        found.sort_by(|(a, x), (b, y)| (a, &x.path).cmp(&(b, &y.path)));
        let finished: VecDeque<_> = found.into_iter().map(|(_, finished)| finished).collect();
        let finished_bytes = finished.iter().map(|part| part.bytes).sum();
        Ok(Self { dir: dir.into(), max_bytes, finished, finished_bytes, removed: HashMap::new() })
    }

    /// A part was finished.
    pub(super) fn add(&mut self, path: &Path, session: &str) {
        // Only what would be recognised later too may go.
        let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| is_session_name(name)) else {
            return;
        };
        let bytes = part_bytes(&self.dir.join(name));
        self.finished_bytes = self.finished_bytes.saturating_add(bytes);
        self.finished.push_back(Finished { path: path.into(), session: Some(session.into()), bytes });
    }

    /// Removes what is too much beside the bytes of parts that are still open, and tells the bytes of each.
    pub(super) fn enforce(&mut self, open_bytes: u64, mut removed: impl FnMut(u64)) -> io::Result<()> {
        while self.finished_bytes.saturating_add(open_bytes) > self.max_bytes {
            let Some(oldest) = self.finished.pop_front() else { return Ok(()) };
            self.finished_bytes = self.finished_bytes.saturating_sub(oldest.bytes);
            let Some(name) = oldest.path.file_name().and_then(|name| name.to_str()) else { continue };
            // Somebody else may have removed it, or begun to use the name.
            if !fs::symlink_metadata(&oldest.path).is_ok_and(|data| data.is_dir()) || !is_finished(&oldest.path) {
                continue;
            }
            let aside = self.dir.join(format!("{REMOVING}{name}"));
            fs::rename(&oldest.path, &aside)?;
            if let Some(session) = oldest.session {
                self.removed.entry(session).or_default().push(name.into());
            }
            removed(oldest.bytes);
            remove_files(&aside)?;
        }
        Ok(())
    }

    /// The parts of a session that are gone.
    pub(super) fn removed_of(&self, session: &str) -> &[String] {
        self.removed.get(session).map_or(&[], Vec::as_slice)
    }

    /// The session is over: nobody will ask for its parts again.
    pub(super) fn forget(&mut self, session: &str) {
        self.removed.remove(session);
        for part in &mut self.finished {
            part.session.take_if(|name| name == session);
        }
    }
}

/// Whether a directory is a part that was finished: a journal or no end would say otherwise.
fn is_finished(dir: &Path) -> bool {
    let manifest = fs::read(dir.join(MANIFEST)).ok().and_then(|json| Manifest::parse(&json).ok());
    manifest.is_some_and(|manifest| manifest.end.is_some()) && fs::symlink_metadata(dir.join(JOURNAL)).is_err()
}

/// The files that we write in a part, each with its size.
fn part_files(dir: &Path) -> Vec<(PathBuf, u64)> {
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
    }
    add(dir.join(MANIFEST));
    files
}

pub(super) fn part_bytes(dir: &Path) -> u64 {
    part_files(dir).iter().map(|(_, bytes)| bytes).sum()
}

/// Removes a part, but nothing in it that is not ours: then the directory stays.
fn remove_files(dir: &Path) -> io::Result<()> {
    for (file, _) in part_files(dir) {
        fs::remove_file(&file)?;
        if let Some(parent) = file.parent().filter(|parent| *parent != dir) {
            // Fails while the other file of the thread is there.
            let _ = fs::remove_dir(parent);
        }
    }
    fs::remove_dir(dir)
}
