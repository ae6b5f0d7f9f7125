//! Finishing what a killed collector has left.

mod rebuild;
mod restore;

use std::{
    fs::OpenOptions,
    io,
    path::{Path, PathBuf},
};

use codec::{
    Arch, ClockKind, Os,
    atf::{Manifest, Origin},
};

use super::{
    directory::{read_if_there, sessions_in, threads_in},
    files::{OsFiles, lock, replace},
    journal::JOURNAL,
    room::MANIFEST,
    spans::PARTIAL,
};
use rebuild::Rebuild;
use restore::{Restored, restore, restore_empty};

/// What became of one session, or part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repaired {
    /// Its directory.
    pub dir: PathBuf,
    /// What was done.
    pub outcome: RepairOutcome,
}

/// What repairing a session came to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RepairOutcome {
    /// It was finished already, and was not touched.
    Finished,
    /// It is finished now.
    Repaired {
        /// Its threads.
        threads: u64,
        /// Events in their indexes.
        events: u64,
        /// Events that its gaps say are missing.
        missing: u64,
        /// Events that were cut off although they were whole, because their details are gone. Only where that was
        /// asked for.
        cut: u64,
    },
    /// Its directory was empty, and is gone: its collector was killed before it had written anything.
    Removed,
    /// A collector is writing it, so it was left alone.
    Live,
    /// It cannot be repaired, and why. It was not declared finished.
    Failed(String),
}

/// Repairs a session's directory, or all unfinished sessions in a directory.
///
/// Each thread keeps every whole event of its index, and the details of those. The manifest is made of what the journal
/// tells. A repair that is interrupted can be started again, and one that is done changes nothing.
///
/// `force` also cuts off events that are whole but whose details are gone, and all events behind them. Without it, such
/// a session is left as it is.
pub fn repair(dir: &Path, force: bool) -> io::Result<Vec<Repaired>> {
    let repaired = |dir: PathBuf| {
        let outcome = repair_session(&dir, force).unwrap_or_else(|error| RepairOutcome::Failed(error.to_string()));
        Repaired { dir, outcome }
    };
    Ok(sessions_in(dir)?.into_iter().map(repaired).collect())
}

fn repair_session(dir: &Path, force: bool) -> io::Result<RepairOutcome> {
    let journal_path = dir.join(JOURNAL);
    let journal_file = match OpenOptions::new().read(true).write(true).open(&journal_path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(match read_if_there(&dir.join(MANIFEST))? {
                Some(_) => RepairOutcome::Finished,
                None => match std::fs::remove_dir(dir) {
                    Ok(()) => RepairOutcome::Removed,
                    Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => RepairOutcome::Failed(format!(
                        "neither {MANIFEST} nor {JOURNAL} is there, but other things are"
                    )),
                    Err(error) => return Err(error),
                },
            });
        }
        Err(error) => return Err(error),
    };
    match lock(&journal_file) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(RepairOutcome::Live),
        locked => locked?,
    }
    // Whoever held the lock until now may just have finished it.
    let Some(journal) = read_if_there(&journal_path)? else { return Ok(RepairOutcome::Finished) };
    let json = read_if_there(&dir.join(MANIFEST))?;
    let base = match json.as_deref().map(Manifest::parse).transpose() {
        Ok(base) => base.unwrap_or_default(),
        Err(error) => return Ok(RepairOutcome::Failed(error.to_string())),
    };
    let mut outcome = RepairOutcome::Finished;
    // A manifest with an end was written last of all: only the journal was still to go.
    if base.end.is_none() {
        let rebuild = Rebuild::new(base, &journal);
        match repair_threads(dir, force, rebuild)? {
            Ok((manifest, cut)) => {
                let json = manifest.to_json().map_err(io::Error::other)?;
                replace(&OsFiles, &dir.join(MANIFEST), &json)?;
                let events = manifest.threads.iter().filter_map(|thread| thread.written);
                let events = events.fold(0, u64::saturating_add);
                let missing = manifest.missing().into_values().fold(0, u64::saturating_add);
                outcome = RepairOutcome::Repaired { threads: manifest.threads.len() as u64, events, missing, cut };
            }
            Err(problem) => return Ok(RepairOutcome::Failed(problem)),
        }
    }
    // Spans can be made again of the events; the beginning of a file of them is of no use.
    match std::fs::remove_file(dir.join(PARTIAL)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::remove_file(&journal_path)?;
    Ok(outcome)
}

/// Repairs every thread. What is wrong with one of them is wrong with the session.
fn repair_threads(dir: &Path, force: bool, mut rebuild: Rebuild) -> io::Result<Result<(Manifest, u64), String>> {
    let mut cut = 0_u64;
    for (stream, thread_dir) in threads_in(dir)? {
        let restored = match restore(&thread_dir, origin(&rebuild, stream), force)? {
            Ok(restored) => restored,
            Err(problem) => return Ok(Err(format!("thread_{stream}: {problem}"))),
        };
        cut = cut.saturating_add(restored.cut);
        rebuild.thread(stream, &restored);
    }
    // Threads of which only gaps were known yet.
    for stream in rebuild.streams_without_files() {
        let thread_dir = dir.join(format!("thread_{stream}"));
        std::fs::create_dir(&thread_dir)?;
        restore_empty(&thread_dir, origin(&rebuild, stream))?;
        rebuild.thread(stream, &Restored::default());
    }
    Ok(Ok((rebuild.finish(), cut)))
}

/// What a new file of a thread is to say of where it comes from.
fn origin(rebuild: &Rebuild, stream: u32) -> Origin {
    let (arch, os) = rebuild.platform().unwrap_or((Arch::from(0), Os::from(0)));
    #[allow(clippy::cast_possible_truncation)] // the format has room for the lower half
    let thread = rebuild.os_id(stream).map_or(stream, |id| id as u32);
    Origin { arch, os, clock: rebuild.clock().unwrap_or(ClockKind::from(0)), thread }
}
