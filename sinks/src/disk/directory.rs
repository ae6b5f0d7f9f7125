//! Looking at directories that hold sessions.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{journal::JOURNAL, name::is_session_name, room::MANIFEST};

/// The sessions, or parts of them, that `dir` stands for: itself if it is one, otherwise those in it, by name.
///
/// Links are not followed. A directory without any session is an error.
pub fn sessions_in(dir: &Path) -> io::Result<Vec<PathBuf>> {
    if is_session(dir) {
        return Ok(vec![dir.into()]);
    }
    let mut sessions = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let named = entry.file_name().to_str().is_some_and(is_session_name);
        // Links are left alone: what they lead to may be somebody else's.
        if entry.file_type()?.is_dir() && (named || is_session(&entry.path())) {
            sessions.push(entry.path());
        }
    }
    sessions.sort();
    // A collector that is killed at once leaves a directory that has only its name.
    if sessions.is_empty() && dir.file_name().and_then(|name| name.to_str()).is_some_and(is_session_name) {
        sessions.push(dir.into());
    }
    match sessions.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::NotFound, format!("{}: no session is in it", dir.display()))),
        false => Ok(sessions),
    }
}

fn is_session(dir: &Path) -> bool {
    [MANIFEST, JOURNAL].iter().any(|name| fs::symlink_metadata(dir.join(name)).is_ok_and(|data| data.is_file()))
}

/// The threads that have a directory, by stream.
pub(super) fn threads_in(dir: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let stream = name.to_str().and_then(|name| name.strip_prefix("thread_")).and_then(|id| id.parse().ok());
        if let Some(stream) = stream.filter(|_| entry.path().is_dir()) {
            threads.push((stream, entry.path()));
        }
    }
    threads.sort();
    Ok(threads)
}

/// The bytes of a file, if it is there.
pub(super) fn read_if_there(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
