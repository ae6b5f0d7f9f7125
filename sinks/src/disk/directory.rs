//! Directories that hold sessions: what they are called, and what is in them.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
};

use super::{journal::JOURNAL, room::MANIFEST};

/// The sessions, or parts of them, that `dir` stands for: itself if it is one, otherwise those in it, by name,
/// where numbers in names count as such: `-4` comes before `-10`.
///
/// Links are not followed. A directory without any session is an error.
pub fn sessions_in(dir: &Path) -> io::Result<Vec<PathBuf>> {
    if is_session(dir) {
        return Ok(vec![dir.into()]);
    }
    let mut sessions = Vec::new();
    // Links are left alone: what they lead to may be somebody else's.
    let directories = directories_in(dir)?;
    let is_session = storage::each(&directories, |dir| is_named(dir) || is_session(dir));
    sessions.extend(directories.into_iter().zip(is_session).filter_map(|(dir, is_session)| is_session.then_some(dir)));
    sessions.sort_by_cached_key(|dir| (natural(&dir.to_string_lossy()), dir.clone()));
    // A collector that is killed at once leaves a directory that has only its name.
    if sessions.is_empty() && is_named(dir) {
        sessions.push(dir.into());
    }
    match sessions.is_empty() {
        true if !threads_in(dir)?.is_empty() => {
            let problem = format!("{}: {MANIFEST} is not there, nor is a journal", dir.display());
            Err(io::Error::new(io::ErrorKind::NotFound, problem))
        }
        true => Err(io::Error::new(io::ErrorKind::NotFound, format!("{}: no session is in it", dir.display()))),
        false => Ok(sessions),
    }
}

/// Directories with threads of which nothing says what they are, and that are not among the sessions which [`sessions_in`] tells:
/// `dir` itself, or those in it. In a bucket, these are uploads that go on, or were cut.
pub fn bare_in(dir: &Path, sessions: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    if sessions.iter().any(|session| session == dir) {
        return Ok(Vec::new());
    }
    if is_bare(dir) {
        return Ok(vec![dir.into()]);
    }
    let sessions: HashSet<&PathBuf> = sessions.iter().collect();
    let mut others = directories_in(dir)?;
    others.retain(|dir| !sessions.contains(dir));
    let is_bare = storage::each(&others, is_bare);
    let mut bare: Vec<_> =
        others.into_iter().zip(is_bare).filter_map(|(dir, is_bare)| is_bare.then_some(dir)).collect();
    bare.sort_by_cached_key(|dir| natural(&dir.to_string_lossy()));
    Ok(bare)
}

/// Whether a directory has threads, but neither a manifest nor a journal.
pub fn is_bare(dir: &Path) -> bool {
    !is_session(dir) && threads_in(dir).is_ok_and(|threads| !threads.is_empty())
}

/// Words and numbers of a name: the words before each number, its digits without leading zeros, and their count first.
fn natural(name: &str) -> Vec<(String, usize, String)> {
    let mut pieces: Vec<(String, usize, String)> = Vec::new();
    let mut in_number = true;
    for c in name.chars() {
        let digit = c.is_ascii_digit();
        if pieces.is_empty() || (in_number && !digit) {
            pieces.push(Default::default());
        }
        in_number = digit;
        let Some((word, length, number)) = pieces.last_mut() else { continue };
        match digit {
            false => word.push(c),
            true if number == "0" => *number = c.into(),
            true => number.push(c),
        }
        *length = number.len();
    }
    pieces
}

fn is_session(dir: &Path) -> bool {
    if storage::is_remote(dir) {
        return storage::metadata(&dir.join(MANIFEST)).is_ok_and(|data| !data.is_dir);
    }
    [MANIFEST, JOURNAL].iter().any(|name| fs::symlink_metadata(dir.join(name)).is_ok_and(|data| data.is_file()))
}

/// Whether a directory has the name of a session. In a bucket that says nothing: what is there is not yet one.
fn is_named(dir: &Path) -> bool {
    !storage::is_remote(dir) && dir.file_name().and_then(|name| name.to_str()).is_some_and(is_session_name)
}

fn directories_in(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = storage::entries(dir)?.into_iter();
    Ok(entries.filter(|entry| entry.metadata.is_some_and(|data| data.is_dir)).map(|entry| entry.path).collect())
}

/// The threads that have a directory, by stream.
pub(super) fn threads_in(dir: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let mut threads = Vec::new();
    for dir in directories_in(dir)? {
        let name = dir.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("thread_"));
        threads.extend(name.and_then(|id| id.parse().ok()).map(|stream| (stream, dir.clone())));
    }
    threads.sort();
    Ok(threads)
}

/// The bytes of a file, if it is there.
pub(super) fn read_if_there(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match storage::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The name of a part's directory: that of the session, and from the second part on its number.
pub(super) fn part_name(session: &str, part: u32) -> String {
    match part {
        0 | 1 => session.into(),
        part => format!("{session}.{part}"),
    }
}

/// The name to take where `attempt` others (from 1) were taken already.
pub(super) fn another(name: &str, attempt: u32) -> String {
    match attempt {
        0 | 1 => name.into(),
        attempt => format!("{name}-{attempt}"),
    }
}

/// Whether a collector may have made this name: `YYYYMMDD-HHMMSS-N`, then perhaps `-K`, `.P`, or `.P-K`.
pub(super) fn is_session_name(name: &str) -> bool {
    let (session, part) = match name.split_once('.') {
        Some((session, part)) => (session, Some(part)),
        None => (name, None),
    };
    let mut fields = session.split('-');
    let date = fields.next().is_some_and(|field| field.len() == 8 && is_number(field));
    let time = fields.next().is_some_and(|field| field.len() == 6 && is_number(field));
    let rest = fields.clone().count();
    let part = part.is_none_or(|part| part.split('-').count() <= 2 && part.split('-').all(is_number));
    date && time && (rest == 1 || rest == 2) && fields.all(is_number) && part
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() <= 10 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// A session's name as one that stays inside its directory. The collector's names all do.
pub(super) fn inside(name: &str) -> String {
    let clean: String = name.chars().map(|c| if c.is_alphanumeric() || "-_.+".contains(c) { c } else { '_' }).collect();
    match clean.starts_with('.') || clean.is_empty() {
        true => format!("_{clean}"),
        false => clean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_numbers() {
        let sorted =
            ["s-1", "s-4", "s-4-2", "s-4.9", "s-4.10", "s-10", "s-010", "s-11", "s-99999999999999999999999", "t-1"];
        let mut names = sorted;
        names.reverse();
        names.sort_by_cached_key(|name| (natural(name), *name));
        let position = |name| names.iter().position(|known| *known == name).expect("it is there");
        assert!(names.len() == sorted.len() && position("s-010").abs_diff(position("s-10")) == 1);
        let rest = |names: [&'static str; 10]| names.into_iter().filter(|name| *name != "s-010").collect::<Vec<_>>();
        assert_eq!(rest(names), rest(sorted));
    }

    #[test]
    fn sessions_come_in_the_order_in_which_they_were() {
        let dir = std::env::temp_dir().join(format!("spoor-natural-{}", std::process::id()));
        let names = ["20260101-000000-4", "20260101-000000-4.9", "20260101-000000-4.10", "20260101-000000-10"];
        names.iter().for_each(|name| fs::create_dir_all(dir.join(name)).expect("made"));
        let found = sessions_in(&dir).expect("they are there");
        fs::remove_dir_all(&dir).expect("it is there");
        assert_eq!(found, names.map(|name| dir.join(name)));
    }

    #[test]
    fn only_names_of_sessions_are_taken_for_such() {
        for name in ["20260101-120000-1", "20260101-120000-12-2", "20260101-120000-1.2", "20260101-120000-1-3.4-5"] {
            assert!(is_session_name(name), "{name}");
        }
        let others = ["", "notes", "20260101-120000", "20260101-120000-", "20260101-120000-a", "2026010-120000-1"];
        for name in others.into_iter().chain(["20260101-120000-1.", "20260101-120000-1.2.3", "20260101-120000-1-2-3"]) {
            assert!(!is_session_name(name), "{name}");
        }
    }

    #[test]
    fn a_name_stays_inside() {
        assert_eq!(inside("20260101-120000-1"), "20260101-120000-1");
        assert_eq!((inside("../x"), inside("/etc"), inside("")), ("_.._x".into(), "_etc".into(), "_".into()));
    }
}
