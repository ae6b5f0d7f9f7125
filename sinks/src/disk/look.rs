//! What is known of a part that is not finished, told without changing it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::Path,
};

use codec::{
    StreamId,
    atf::{EDGE_BYTES, GapEntry, IndexEvent, Manifest, ThreadEntry},
};
use collector_core::How;

use super::{
    directory::{read_if_there, threads_in},
    earlier::{events_in, told_notes},
    journal::JOURNAL,
    ledger::drops_of,
    notes::Notes,
    room::MANIFEST,
    summary::thread_entry,
};
use crate::{Catalog, Session};

/// What is known of a part that is being written, or that its collector has left.
#[derive(Debug)]
pub struct Unfinished {
    /// The manifest that it would have if all were over now. It has an end where the agent has told one, and all events
    /// that came before that are there.
    pub manifest: Manifest,
    /// What cannot be read of its journal, and was passed over.
    pub problem: Option<String>,
}

/// Looks at a part that is not finished, also while it is being written. There is none where it is finished.
///
/// # Errors
///
/// Where its files cannot be read.
pub fn look_at_unfinished(dir: &Path) -> io::Result<Option<Unfinished>> {
    if !dir.join(JOURNAL).exists() {
        return Ok(None);
    }
    // Its journal has what comes before events by the time they are in an index, so it is read behind that.
    let mut indexes = BTreeMap::new();
    for (stream, thread) in threads_in(dir)? {
        let path = thread.join("index.atf");
        let events = events_in(&path)?;
        let has_detail = thread.join("detail.atf").metadata().is_ok_and(|data| data.len() > 0);
        let times = if events == 0 { None } else { times_in(&path, events)? };
        indexes.insert(stream, Index { events, has_detail, times });
    }
    let known = read_if_there(&dir.join(MANIFEST))?.as_deref().map(Manifest::parse);
    let known = known.transpose().map_err(io::Error::other)?.unwrap_or_default();
    // It may be finished in this very moment.
    if known.end.is_some() || !dir.join(JOURNAL).exists() {
        return Ok(None);
    }
    let mut catalog = Catalog::from_manifest(&known);
    let mut told = told_notes(dir, false, |notes, option| {
        notes.take_option(option);
        catalog.apply(option);
    });
    let mut problem = None;
    if let Err(error) = told {
        problem = Some(error.to_string());
        catalog = Catalog::from_manifest(&known);
        told = told_notes(dir, true, |notes, option| {
            notes.take_option(option);
            catalog.apply(option);
        });
    }
    let manifest = Looked { known, notes: told?, indexes }.manifest(catalog);
    Ok(Some(Unfinished { manifest, problem }))
}

/// What is in the index of a thread.
#[derive(Debug, Clone, Copy, Default)]
struct Index {
    events: u64,
    has_detail: bool,
    times: Option<(u64, u64)>,
}

/// What was found in a part.
struct Looked {
    known: Manifest,
    notes: Notes,
    indexes: BTreeMap<u32, Index>,
}

impl Looked {
    fn manifest(self, catalog: Catalog) -> Manifest {
        let clock = catalog.clock();
        let zero_ns = self.notes.zero.map_or(clock.map_or(0, |clock| clock.zero_ns), |zero| zero.zero_ns);
        let mut manifest = catalog.manifest_from(zero_ns);
        if let Some(zero) = self.notes.zero {
            manifest.clock = zero.clock.map(|clock| clock.name().into());
            manifest.clock_zero_ns = Some(zero.zero_ns).filter(|_| clock.is_some());
        }
        // They are noted again where a session goes on.
        let made: BTreeMap<u64, _> = self.notes.functions.iter().map(|made| (made.id, made.clone())).collect();
        manifest.functions.retain(|function| !made.contains_key(&function.id));
        manifest.functions = made.into_values().chain(std::mem::take(&mut manifest.functions)).collect();
        let mut next = HashMap::new();
        let streams: BTreeSet<u32> =
            self.notes.firsts.keys().chain(self.notes.gaps.keys()).chain(self.indexes.keys()).copied().collect();
        manifest.threads.clear();
        for stream in streams {
            let (thread, gaps) = self.thread(stream, &catalog, zero_ns);
            let end = thread.first.unwrap_or(0).saturating_add(thread.produced.unwrap_or(0));
            next.insert(StreamId(stream), end);
            manifest.threads.push(thread);
            manifest.gaps.extend(gaps);
        }
        manifest.drops = drops_of(&manifest.gaps);
        let times = self.indexes.values().filter_map(|index| index.times);
        let times = times.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
        (manifest.time_start_ns, manifest.time_end_ns) = times.unwrap_or_default();
        (manifest.part, manifest.spans) = (self.known.part, self.known.spans);
        manifest.seen_unix_ns = self.known.seen_unix_ns;
        let is_there = |stream: &StreamId, end: u64| end == 0 || next.get(stream).is_some_and(|next| *next >= end);
        let has_all = self.notes.told_ends.iter().all(|(stream, end)| is_there(stream, end.0));
        if let (Some((reason, at)), true) = (self.notes.told_end, has_all) {
            let session = Session::new(String::new(), None, String::new(), 0, catalog);
            manifest.end = Some(How::Told(reason).entry(&session, Some(at)));
        }
        manifest
    }

    /// A thread, and what is missing of it.
    fn thread(&self, stream: u32, catalog: &Catalog, zero_ns: u64) -> (ThreadEntry, Vec<GapEntry>) {
        let index = self.indexes.get(&stream).copied().unwrap_or_default();
        let first = self.notes.firsts.get(&stream).copied().unwrap_or(0);
        let gaps = self.notes.gaps.get(&stream).map_or(&[][..], Vec::as_slice);
        // What lies behind events that are in no index yet is not known to be there.
        let mut gaps: Vec<_> = gaps.iter().filter(|gap| gap.at_index.unwrap_or(0) <= index.events).cloned().collect();
        let mut missing = gaps.iter().map(|gap| gap.count).fold(0, u64::saturating_add);
        if let Some((_, _, end)) = self.notes.ends.get(&stream) {
            let next = first.saturating_add(index.events).saturating_add(missing);
            let count = end.saturating_sub(next);
            if count > 0 {
                let (cause, at_index) = (self.notes.cause.clone(), Some(index.events));
                gaps.push(GapEntry { thread: stream, first: next, count, cause, at_index, ..GapEntry::default() });
                missing = missing.saturating_add(count);
            }
        }
        let entry = ThreadEntry {
            has_detail: index.has_detail,
            produced: Some(missing.saturating_add(index.events)),
            written: Some(index.events),
            first: Some(first).filter(|first| *first > 0),
            ..thread_entry(stream, catalog, zero_ns)
        };
        (entry, gaps)
    }
}

/// When the first of so many events of an index was, and the last.
fn times_in(index: &Path, events: u64) -> io::Result<Option<(u64, u64)>> {
    let file = File::open(index)?;
    let time = |event: u64| -> io::Result<Option<u64>> {
        let mut bytes = [0; IndexEvent::BYTES];
        let at = (EDGE_BYTES as u64).saturating_add(event.saturating_mul(IndexEvent::BYTES as u64));
        file.read_exact_at(&mut bytes, at)?;
        Ok(IndexEvent::decode(&bytes, 0).ok().map(|event| event.timestamp.0))
    };
    Ok(time(0)?.zip(time(events.saturating_sub(1))?))
}
