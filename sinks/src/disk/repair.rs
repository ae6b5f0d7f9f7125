//! Finishing what a killed collector has left.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use codec::atf::EndEntry;

use super::{
    SpansWhen,
    directory::sessions_in,
    files::OsFiles,
    journal::JOURNAL,
    removed::removed_bytes,
    reopen::{Found, Purpose, Reopened, Unfinished},
    room::MANIFEST,
    volume::{Limits, Volume},
};
use crate::{Catalog, Cause, Ended, Session};

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
        /// Bytes that were taken out of its files and put aside: torn ends, and details without events.
        removed_bytes: u64,
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
/// The part is opened again as if its collector went on with it, and finished. Each thread keeps every whole event of its
/// index, and the details of those; what else is in the files is put aside in a folder. A repair that is interrupted can
/// be started again, and one that is done changes nothing.
///
/// `force` also cuts off events that are whole but whose details are gone, and all events behind them, and passes over
/// what cannot be read of the journal. Without it, such a session is left as it is.
pub fn repair(dir: &Path, force: bool) -> io::Result<Vec<Repaired>> {
    let repaired = |dir: PathBuf| {
        let outcome = repair_session(&dir, force).unwrap_or_else(|error| RepairOutcome::Failed(error.to_string()));
        Repaired { dir, outcome }
    };
    Ok(sessions_in(dir)?.into_iter().map(repaired).collect())
}

pub(super) fn repair_session(dir: &Path, force: bool) -> io::Result<RepairOutcome> {
    let unfinished = match Unfinished::open(dir)? {
        Found::Unfinished(unfinished) => unfinished,
        Found::Finished => return Ok(RepairOutcome::Finished),
        Found::Live => return Ok(RepairOutcome::Live),
        Found::Nothing => {
            return match fs::remove_dir(dir) {
                Ok(()) => Ok(RepairOutcome::Removed),
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                    let problem = format!("neither {MANIFEST} nor {JOURNAL} is there, but other things are");
                    Ok(RepairOutcome::Failed(problem))
                }
                Err(error) => Err(error),
            };
        }
    };
    let manifest = &unfinished.manifest;
    let spans = SpansWhen::ALL.into_iter().find(|when| manifest.spans.as_deref() == Some(when.name()));
    // The collector had its limits when it wrote this.
    let limits = Limits {
        spans: spans.unwrap_or_default(),
        most_threads: usize::MAX,
        option_bytes: u64::MAX,
        name_bytes: u64::MAX,
        gap_bytes: u64::MAX,
        journal_bytes: u64::MAX,
        finishing_bytes: usize::MAX,
        ..Limits::default()
    };
    let parent = dir.parent().unwrap_or(Path::new("."));
    let mut volume = Volume::new(parent.into(), limits, 1, Box::new(OsFiles), None);
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let session = Arc::new(Session::new(name, None, String::new(), 0, Catalog::from_manifest(manifest)));
    let Reopened { mut open, cut, end, reached } =
        unfinished.reopen(&mut volume, &session, Purpose::Repair { force })?;
    for (stream, position) in reached {
        if let Some(next) = open.thread(&volume, stream, 0).map(|thread| thread.next) {
            open.part.gap(stream, next, position.saturating_sub(next), Cause::killed().as_str());
        }
    }
    let threads = open.part.threads.values();
    let events = threads.clone().map(|thread| u64::from(thread.writer.len())).fold(0, u64::saturating_add);
    let missing = threads.clone().map(|thread| thread.missing).fold(0, u64::saturating_add);
    let threads = threads.len() as u64;
    let end = end.unwrap_or_else(|| EndEntry { how: "killed".into(), ..EndEntry::default() });
    open.finish(&mut volume, &Ended { end, ..Ended::default() }, false);
    match volume.failing {
        Some(failing) => Err(failing.error()),
        None => Ok(RepairOutcome::Repaired { threads, events, missing, cut, removed_bytes: removed_bytes(dir)? }),
    }
}
