//! The two files of a thread that were not finished.

use std::{
    fs::{self, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    path::Path,
};

use codec::atf::{
    BrokenLink, DetailReader, EDGE_BYTES, IndexReader, IndexWriter, Integrity, OpenError, Origin, Repair, ThreadReader,
    ThreadWriter,
};

use crate::disk::directory::read_if_there;

/// What a thread came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Restored {
    pub(super) written: u64,
    pub(super) has_detail: bool,
    /// The earliest and latest timestamp.
    pub(super) times: Option<(u64, u64)>,
    /// Whole events that were cut off.
    pub(super) cut: u64,
}

const INDEX: &str = "index.atf";
const DETAIL: &str = "detail.atf";

/// Finishes the files of a thread, or tells what cannot be repaired.
pub(super) fn restore(dir: &Path, origin: Origin, force: bool) -> io::Result<Result<Restored, String>> {
    let Some(index_file) = read_if_there(&dir.join(INDEX))? else {
        restore_empty(dir, origin)?;
        return Ok(Ok(Restored::default()));
    };
    let index = match IndexReader::open(&index_file) {
        Ok(index) => index,
        Err(OpenError::Short { .. }) => {
            restore_empty(dir, origin)?;
            return Ok(Ok(Restored::default()));
        }
        Err(error) => return Ok(Err(format!("{INDEX}: {error}"))),
    };
    let detail_file = read_if_there(&dir.join(DETAIL))?;
    let detail = match detail_file.as_deref().map(DetailReader::open).transpose() {
        Ok(detail) => detail,
        // Its writer was stopped before the first detail.
        Err(OpenError::Short { .. }) => None,
        Err(error) => return Ok(Err(format!("{DETAIL}: {error}"))),
    };
    let thread = ThreadReader { index, detail };
    let (events, repairs) = match thread.repair() {
        Ok(repairs) => (thread.index.len(), repairs),
        Err(BrokenLink::Forward { sequence, .. }) if force => {
            return cut_at(dir, &thread, sequence, origin);
        }
        Err(error @ BrokenLink::Forward { .. }) => {
            let problem = format!("{error}; with force, the events from there on are cut off");
            return Ok(Err(problem));
        }
        Err(error) => return Ok(Err(error.to_string())),
    };
    let linked = thread.index.events().flatten().any(|event| event.detail.is_some());
    let whole = thread.detail.as_ref().is_none_or(|detail| detail.check() == Integrity::Intact);
    let detail_bytes = detail_file.as_ref().map_or(0, Vec::len) as u64;
    match repairs.1 {
        // A detail file is finished before its index, and then has details of events that the index lost.
        Some(repair) if linked && !(whole && repair.length.saturating_add(EDGE_BYTES as u64) == detail_bytes) => {
            apply(&dir.join(DETAIL), &repair)?;
        }
        Some(_) if linked => {}
        _ if detail_file.is_some() => fs::remove_file(dir.join(DETAIL))?,
        _ => {}
    }
    if thread.index.check() != Integrity::Intact {
        apply(&dir.join(INDEX), &repairs.0)?;
    }
    let times = thread.index.events().flatten().map(|event| (event.timestamp.0, event.timestamp.0));
    let times = times.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
    Ok(Ok(Restored { written: events.into(), has_detail: linked, times, cut: 0 }))
}

/// Makes the files of a thread without events. Details without an index belong to nothing.
pub(super) fn restore_empty(dir: &Path, origin: Origin) -> io::Result<()> {
    if read_if_there(&dir.join(DETAIL))?.is_some() {
        fs::remove_file(dir.join(DETAIL))?;
    }
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(dir.join(INDEX))?;
    ThreadWriter::new(origin).seal().0.write_to(&mut file)
}

/// Keeps only the first events of an index, then repairs what is left.
fn cut_at(dir: &Path, thread: &ThreadReader<'_>, events: u32, origin: Origin) -> io::Result<Result<Restored, String>> {
    let mut writer = IndexWriter::new(*thread.index.origin());
    let kept = usize::try_from(events).unwrap_or(usize::MAX);
    for event in thread.index.events().flatten().take(kept) {
        writer.append(&event).map_err(io::Error::other)?;
    }
    let fresh = dir.join("index.atf.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&fresh)?;
    writer.flush_to(&mut file)?;
    fs::rename(&fresh, dir.join(INDEX))?;
    let cut = u64::from(thread.index.len().saturating_sub(events));
    // What is left has no broken link any more, so this ends.
    Ok(restore(dir, origin, false)?.map(|restored| Restored { cut, ..restored }))
}

/// Cuts a file behind its events, and gives it the footer and header that they have.
fn apply(path: &Path, repair: &Repair) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.set_len(repair.length)?;
    file.seek(SeekFrom::Start(repair.length))?;
    file.write_all(&repair.footer)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&repair.header)
}
