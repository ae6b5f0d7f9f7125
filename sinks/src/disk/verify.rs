//! Checking what was written: every checksum, every link, every count.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    path::{Path, PathBuf},
};

use codec::atf::{DetailReader, IndexReader, Integrity, Manifest, ThreadEntry, ThreadReader};

use super::{
    directory::{read_if_there, sessions_in, threads_in},
    journal::JOURNAL,
    room::MANIFEST,
    spans::SPANS,
};
use crate::parquet::table_rows;

/// What was found in one session, or part of one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    /// Its directory.
    pub dir: PathBuf,
    /// Threads in its manifest.
    pub threads: u64,
    /// Events in their indexes.
    pub events: u64,
    /// Detail events.
    pub details: u64,
    /// Spans in its table of spans, if it has one.
    pub spans: u64,
    /// Events that its gaps say are missing.
    pub missing: u64,
    /// What is wrong. Nothing, if it is whole.
    pub problems: Vec<String>,
}

/// Checks a session's directory, or all sessions in a directory. Reads every byte of them.
///
/// An error means that the directory could not be looked at; what is wrong with a session is in its
/// [`problems`](Verified::problems). A session that is still being written is unfinished, and that is a problem too.
pub fn verify(dir: &Path) -> io::Result<Vec<Verified>> {
    let verified = |dir| {
        let mut found = Verified { dir, ..Verified::default() };
        // What one cannot be looked at for, the others are.
        if let Err(error) = verify_session(&mut found) {
            found.problems.push(error.to_string());
        }
        found
    };
    Ok(sessions_in(dir)?.into_iter().map(verified).collect())
}

fn verify_session(found: &mut Verified) -> io::Result<()> {
    if read_if_there(&found.dir.join(JOURNAL))?.is_some() {
        let problem = "unfinished: its collector is running or was killed; if none is running, repair it";
        found.problems.push(problem.into());
    }
    let Some(json) = read_if_there(&found.dir.join(MANIFEST))? else {
        let unfinished = !found.problems.is_empty();
        let more = if unfinished { "" } else { ", nor is a journal: if it is empty, a repair removes it" };
        found.problems.push(format!("{MANIFEST} is not there{more}"));
        return Ok(());
    };
    let manifest = match Manifest::parse(&json) {
        Ok(manifest) => manifest,
        Err(error) => {
            found.problems.push(error.to_string());
            return Ok(());
        }
    };
    if let Err(error) = manifest.check() {
        found.problems.push(error.to_string());
    }
    let listed: BTreeSet<u32> = manifest.threads.iter().map(|thread| thread.id).collect();
    for (stream, _) in threads_in(&found.dir)? {
        if !listed.contains(&stream) {
            found.problems.push(format!("thread_{stream} is not in {MANIFEST}"));
        }
    }
    let mut written = BTreeMap::new();
    for thread in &manifest.threads {
        found.threads += 1;
        let problem = match verify_thread(found, thread, &manifest) {
            Ok(events) => {
                written.insert(thread.id, events);
                continue;
            }
            Err(problem) => problem,
        };
        found.problems.push(format!("thread_{}: {problem}", thread.id));
    }
    verify_gaps(found, &manifest, &written);
    verify_spans(found)
}

/// Checks that the table of spans can be read, if there is one.
fn verify_spans(found: &mut Verified) -> io::Result<()> {
    let file = match File::open(found.dir.join(SPANS)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    match table_rows(file) {
        Ok(rows) => found.spans = rows,
        Err(problem) => found.problems.push(format!("{SPANS}: {problem}")),
    }
    Ok(())
}

/// Checks the two files of a thread, and tells how many events it has.
fn verify_thread(found: &mut Verified, thread: &ThreadEntry, manifest: &Manifest) -> Result<u64, String> {
    let dir = found.dir.join(format!("thread_{}", thread.id));
    let read = |name: &str| read_if_there(&dir.join(name)).map_err(|error| format!("{name}: {error}"));
    let index_file = read("index.atf")?.ok_or("index.atf is not there")?;
    let detail_file = read("detail.atf")?;
    if detail_file.is_some() != thread.has_detail {
        let (there, said) = (detail_file.is_some(), thread.has_detail);
        return Err(format!("detail.atf is there: {there}, by {MANIFEST}: {said}"));
    }
    let index = IndexReader::open(&index_file).map_err(|error| format!("index.atf: {error}"))?;
    intact("index.atf", index.check())?;
    let detail = detail_file.as_deref().map(DetailReader::open).transpose();
    let detail = detail.map_err(|error| format!("detail.atf: {error}"))?;
    if let Some(detail) = &detail {
        intact("detail.atf", detail.check())?;
        found.details = found.details.saturating_add(detail.len());
    }
    let events = u64::from(index.len());
    if let Some(written) = thread.written.filter(|written| *written != events) {
        return Err(format!("{MANIFEST} says {written} events, index.atf has {events}"));
    }
    let times = manifest.time_start_ns..=manifest.time_end_ns;
    for (sequence, event) in (0_u64..).zip(index.events()) {
        let at = event.map_err(|error| format!("index.atf: {error}"))?.timestamp.0;
        if !times.contains(&at) {
            let (start, end) = times.into_inner();
            return Err(format!("event {sequence} is at {at}, by {MANIFEST} all are from {start} to {end}"));
        }
    }
    ThreadReader { index, detail }.check_links().map_err(|error| error.to_string())?;
    found.events = found.events.saturating_add(events);
    Ok(events)
}

fn intact(name: &str, integrity: Integrity) -> Result<(), String> {
    match integrity {
        Integrity::Intact => Ok(()),
        Integrity::Unfinished { events } => Err(format!("{name} is unfinished, with {events} events")),
        Integrity::Corrupt(corrupt) => Err(format!("{name}: {corrupt}")),
    }
}

/// Checks that the gaps lie in order, and inside what their threads have. `written` has the threads that are whole.
fn verify_gaps(found: &mut Verified, manifest: &Manifest, written: &BTreeMap<u32, u64>) {
    let mut latest: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for gap in &manifest.gaps {
        found.missing = found.missing.saturating_add(gap.count);
        let (Some(at), Some(written)) = (gap.at_index, written.get(&gap.thread)) else { continue };
        if at > *written {
            let (thread, first) = (gap.thread, gap.first);
            found.problems.push(format!("thread_{thread}: the gap at {first} is behind event {at} of {written}"));
        }
        // Merged gaps lie anywhere.
        let before = latest.entry(gap.thread).or_default();
        if gap.ranges.is_none() && (gap.first, at) < *before {
            let (thread, first) = (gap.thread, gap.first);
            found.problems.push(format!("thread_{thread}: the gap at {first} is not in order"));
        }
        let end = if gap.ranges.is_none() { gap.first.saturating_add(gap.count) } else { gap.first };
        *before = (end, at).max(*before);
    }
}

#[cfg(test)]
mod tests {
    use codec::atf::GapEntry;

    use super::*;

    #[test]
    fn gaps_that_were_merged_say_nothing_of_where_the_next_may_be() {
        let gap = |first, count, ranges| {
            let at_index = Some(first);
            GapEntry { thread: 1, first, count, cause: "x".into(), at_index, ranges, ..GapEntry::default() }
        };
        let check = |gaps: Vec<GapEntry>| {
            let (mut found, manifest) = (Verified::default(), Manifest { gaps, ..Manifest::default() });
            verify_gaps(&mut found, &manifest, &BTreeMap::from([(1, 100)]));
            found.problems
        };
        assert_eq!(check(vec![gap(10, 50, Some(5)), gap(20, 1, None), gap(30, 9, None)]), [""; 0]);
        assert_eq!(check(vec![gap(10, 50, None), gap(20, 1, None)]).len(), 1);
    }
}
