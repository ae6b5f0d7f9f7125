//! Sessions of earlier collectors that may go on.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use codec::{
    Position, SessionId, StreamId, access,
    atf::{EDGE_BYTES, EndEntry, IndexEvent, IndexReader, Manifest},
    profile::ProfileOption,
};
use serde::Deserialize;

use super::{
    directory::{part_name, read_if_there, sessions_in, threads_in},
    files,
    journal::{self, Entry, JOURNAL},
    notes::{Notes, notes_of},
    reopen::{Found, Unfinished, session_name},
    repair::{RepairOutcome, repair_session},
    room::{MANIFEST, remove_files},
};
use crate::{Catalog, Cause, EarlierSession, Session};

/// The sessions in a directory that may go on, by their ids.
#[derive(Debug, Default)]
pub struct EarlierSessions(HashMap<SessionId, Option<PathBuf>>);

/// What is there of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whereabouts {
    /// Nothing.
    Nowhere,
    /// Files that can be gone on with.
    Here,
    /// Files that somebody else writes.
    Busy,
}

/// How many finished parts are looked at, the latest first. A manifest may be large.
const MOST_FINISHED: usize = 256;

/// How sessions end whose agents may come back.
pub(super) const MAY_GO_ON: [&str; 3] = ["lost contact", "stopped", "killed"];

/// What is read of a manifest to find a session.
#[derive(Deserialize)]
pub(super) struct Brief {
    pub(super) session: Option<String>,
    pub(super) end: Option<EndEntry>,
    part: Option<u32>,
}

impl Brief {
    fn read(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&read_if_there(&dir.join(MANIFEST)).ok()??).ok()
    }
}

/// The number of a part of a session, if that is what a directory is.
pub(super) fn part_of(dir: &Path, id: SessionId) -> Option<u32> {
    let Brief { session, part, .. } = Brief::read(dir)?;
    (session? == id.to_string()).then_some(part.unwrap_or(1))
}

/// Whether a session that ended so may go on. One whose agent has to prove that it is its own always may: that agent comes
/// back because it was not told that all has arrived.
pub(super) fn may_go_on(id: SessionId, end: Option<&EndEntry>) -> bool {
    access::is_claimed(id) || end.is_none_or(|end| MAY_GO_ON.contains(&end.how.as_str()))
}

impl EarlierSessions {
    /// Looks for them in these directories. Where several have a session, the first counts.
    pub fn find<'a>(directories: impl IntoIterator<Item = &'a Path>) -> Self {
        let mut found = HashMap::new();
        let mut finished = 0;
        let sessions = directories.into_iter().flat_map(|dir| sessions_in(dir).unwrap_or_default().into_iter().rev());
        for dir in sessions {
            finished += usize::from(!dir.join(JOURNAL).exists());
            if finished > MOST_FINISHED {
                continue;
            }
            let Some(Brief { session: Some(id), end, .. }) = Brief::read(&dir) else { continue };
            let Ok(id) = id.parse::<SessionId>() else { continue };
            // The last part says how it ended, and that came first.
            found.entry(id).or_insert_with(|| may_go_on(id, end.as_ref()).then_some(dir));
        }
        Self(found)
    }

    /// What is there of a session.
    pub fn whereabouts(&self, id: SessionId) -> Whereabouts {
        match self.0.get(&id).and_then(Option::as_deref).map(Unfinished::open) {
            None => Whereabouts::Nowhere,
            Some(Ok(Found::Live)) => Whereabouts::Busy,
            Some(_) => Whereabouts::Here,
        }
    }

    /// Removes all that is there of a session, unless somebody writes it. Returns where its last part was.
    pub fn discard(&mut self, id: SessionId) -> Option<PathBuf> {
        let dir = self.0.get(&id)?.clone()?;
        // The journal of an unfinished part stays locked until it is gone.
        let found = Unfinished::open(&dir).ok()?;
        let manifest = match &found {
            Found::Live | Found::Nothing => return None,
            Found::Unfinished(unfinished) => (*unfinished.manifest).clone(),
            Found::Finished => read_manifest(&dir).ok()?,
        };
        self.0.remove(&id);
        let number = manifest.part.unwrap_or(1);
        let name = session_name(&dir, number);
        let parts = (1..number).map(|number| dir.with_file_name(part_name(&name, number)));
        // What cannot be removed is still there to be seen.
        parts.chain([dir.clone()]).filter(|part| part.is_dir()).for_each(|part| _ = remove_files(&part));
        Some(dir)
    }

    /// Takes out the session with this id, and tells where its streams go on. What is known of it goes into `catalog`.
    ///
    /// # Errors
    ///
    /// Where it is damaged, or cannot be read.
    pub fn take(&mut self, id: SessionId, source: String, mut catalog: Catalog) -> io::Result<Option<EarlierSession>> {
        let Some(dir) = self.0.remove(&id).flatten() else { return Ok(None) };
        let (manifest, notes) = match Unfinished::open(&dir)? {
            Found::Live | Found::Nothing => return Ok(None),
            Found::Unfinished(unfinished) => {
                add_to(&mut catalog, &unfinished.manifest);
                let notes = read_notes(&dir, |_, option| _ = catalog.apply(option))?;
                (*unfinished.manifest, notes)
            }
            Found::Finished => {
                let manifest = read_manifest(&dir)?;
                add_to(&mut catalog, &manifest);
                let mut notes = Notes::default();
                notes_of(&manifest).into_iter().for_each(|note| notes.take(note));
                (manifest, notes)
            }
        };
        let number = manifest.part.unwrap_or(1);
        let name = session_name(&dir, number);
        let mut count = Count::default();
        for part in earlier_parts(&dir, &name, number) {
            count.part(&part);
        }
        count.last(&dir, &notes)?;
        let seen_unix_ns = manifest.seen_unix_ns.unwrap_or(0);
        let mut session = Session::new(name, Some(id), source, seen_unix_ns, catalog);
        session.found = Some(dir);
        let session = Arc::new(session);
        let Count { positions, missing, .. } = count;
        // Parts that were removed to make room had events too.
        let settled = positions.values().map(|position| position.0).fold(0, u64::saturating_add);
        let written = settled.saturating_sub(missing.values().sum()).max(count.written);
        Ok(Some(EarlierSession { session, kept: positions.clone(), positions, written, missing }))
    }
}

/// What becomes of sessions that a killed collector has left in a directory.
#[derive(Debug, Default)]
pub struct Leftover {
    /// Those that had ended, with all that their agents sent: they are finished now.
    pub finished: Vec<PathBuf>,
    /// How many others there are. They go on when their agents come back.
    pub unfinished: u64,
}

/// Finishes the sessions in a directory whose agents have ended them, and which lack nothing but that. Those that were killed
/// before anything was written are removed: nobody could tell whose they were.
pub fn finish_ended(dir: &Path) -> Leftover {
    let mut leftover = Leftover::default();
    let is_left = |dir: &PathBuf| dir.join(JOURNAL).exists();
    for dir in sessions_in(dir).unwrap_or_default().into_iter().filter(is_left) {
        // Where that fails, it stays as it is.
        if remove_empty(&dir).unwrap_or(false) {
            continue;
        }
        // What cannot be read is told when it is repaired.
        match has_ended(&dir).unwrap_or(Some(false)) {
            Some(true) if matches!(repair_session(&dir, false), Ok(RepairOutcome::Repaired { .. })) => {
                leftover.finished.push(dir);
            }
            Some(_) => leftover.unfinished += 1,
            None => {}
        }
    }
    leftover
}

/// Removes a part that holds an empty journal and no manifest yet, unless somebody is writing it. Whether it did.
fn remove_empty(dir: &Path) -> io::Result<bool> {
    let path = dir.join(JOURNAL);
    let storage::File::Local(journal) = storage::open(&path)? else { return Ok(false) };
    let fresh = files::fresh(&dir.join(MANIFEST));
    let is_begun = fs::read_dir(dir)?.flatten().all(|entry| [&path, &fresh].contains(&&entry.path()));
    if journal.metadata()?.len() > 0 || !is_begun || files::lock(&journal).is_err() {
        return Ok(false);
    }
    if fresh.exists() {
        fs::remove_file(&fresh)?;
    }
    fs::remove_file(&path)?;
    fs::remove_dir(dir)?;
    Ok(true)
}

/// Whether an unfinished part has all events that its agent had when it ended the session. None where it is somebody else's.
fn has_ended(dir: &Path) -> io::Result<Option<bool>> {
    let Found::Unfinished(_locked) = Unfinished::open(dir)? else { return Ok(None) };
    let notes = read_notes(dir, Notes::take_option)?;
    let mut count = Count::default();
    count.last(dir, &notes)?;
    let is_there = |(stream, next): (&StreamId, &Position)| {
        next.0 == 0 || count.positions.get(stream).is_some_and(|position| position >= next)
    };
    Ok(Some(notes.told_end.is_some() && notes.told_ends.iter().all(is_there)))
}

/// What the journal of an unfinished part says, as it counts when the session goes on.
fn read_notes(dir: &Path, take_option: impl FnMut(&mut Notes, &ProfileOption<'_>)) -> io::Result<Notes> {
    let mut notes = told_notes(dir, false, take_option)?;
    notes.resume();
    Ok(notes)
}

/// What the journal of an unfinished part says. With `force`, what cannot be read of it is passed over.
pub(super) fn told_notes(
    dir: &Path,
    force: bool,
    mut take_option: impl FnMut(&mut Notes, &ProfileOption<'_>),
) -> io::Result<Notes> {
    let mut notes = Notes::default();
    let journal = read_if_there(&dir.join(JOURNAL))?.unwrap_or_default();
    let take = |entry: Entry<'_>| match entry {
        Entry::Option(option, _) => take_option(&mut notes, &option),
        Entry::Note(note) => notes.take(note),
    };
    journal::replay(&journal, force, take).map_err(io::Error::other)?;
    Ok(notes)
}

fn read_manifest(dir: &Path) -> io::Result<Manifest> {
    let json = read_if_there(&dir.join(MANIFEST))?.unwrap_or_default();
    Manifest::parse(&json).map_err(io::Error::other)
}

/// The manifests of the parts before this one that are there.
pub(super) fn earlier_parts(dir: &Path, name: &str, number: u32) -> impl Iterator<Item = Manifest> {
    let parts = (1..number).map(move |number| dir.with_file_name(part_name(name, number)));
    parts.filter_map(|dir| read_manifest(&dir).ok())
}

/// What a manifest says that was told by the agent: the rest is found out again.
fn add_to(catalog: &mut Catalog, manifest: &Manifest) {
    let mut told = manifest.clone();
    told.functions.retain(|function| function.id >> 32 != 0);
    told.limits.retain(|limit| !limit.reason.starts_with("collector:"));
    catalog.add_manifest(&told);
}

/// What the parts of a session come to.
#[derive(Default)]
struct Count {
    positions: HashMap<StreamId, Position>,
    written: u64,
    missing: BTreeMap<Cause, u64>,
}

impl Count {
    /// A part that another follows.
    fn part(&mut self, manifest: &Manifest) {
        for (stream, next) in ends_of(manifest) {
            self.positions.insert(StreamId(stream), Position(next));
        }
        self.written += manifest.threads.iter().filter_map(|thread| thread.written).sum::<u64>();
        manifest.gaps.iter().for_each(|gap| self.miss(&gap.cause, gap.count));
    }

    fn miss(&mut self, cause: &str, count: u64) {
        let missing = self.missing.entry(Cause::from(cause)).or_default();
        *missing = missing.saturating_add(count);
    }

    /// The last part.
    fn last(&mut self, dir: &Path, notes: &Notes) -> io::Result<()> {
        let mut written = HashMap::new();
        for (stream, thread) in threads_in(dir)? {
            written.insert(stream, events_in(&thread.join("index.atf"))?);
        }
        let streams: BTreeSet<_> = notes.firsts.keys().chain(written.keys()).chain(notes.gaps.keys()).collect();
        for stream in streams {
            let written = written.get(stream).copied().unwrap_or(0);
            let gaps = notes.gaps.get(stream).map(Vec::as_slice).unwrap_or_default();
            let mut next = notes.firsts.get(stream).copied().unwrap_or(0).saturating_add(written);
            for gap in gaps.iter().filter(|gap| gap.at_index.unwrap_or(0) <= written) {
                next = next.saturating_add(gap.count);
                self.miss(&gap.cause, gap.count);
            }
            if let Some((_, _, end)) = notes.ends.get(stream) {
                self.miss(&notes.cause, end.saturating_sub(next));
                next = next.max(*end);
            }
            self.written += written;
            self.positions.insert(StreamId(*stream), Position(next));
        }
        Ok(())
    }
}

/// Where the streams of a finished part end.
pub(super) fn ends_of(manifest: &Manifest) -> impl Iterator<Item = (u32, u64)> {
    let end = |thread: &codec::atf::ThreadEntry| thread.first.unwrap_or(0).saturating_add(thread.produced.unwrap_or(0));
    manifest.threads.iter().map(move |thread| (thread.id, end(thread)))
}

/// How many whole events are in an index, finished or not. Looks at the ends of the file only.
pub(super) fn events_in(index: &Path) -> io::Result<u64> {
    const EVENT: u64 = IndexEvent::BYTES as u64;
    const EDGE: u64 = EDGE_BYTES as u64;
    let file = match File::open(index) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        file => file?,
    };
    let bytes = file.metadata()?.len();
    if let Some(events) = bytes.checked_sub(2 * EDGE) {
        let mut foot = [0; EDGE_BYTES];
        file.read_exact_at(&mut foot, bytes - EDGE)?;
        if IndexReader::is_footer(&foot, events) {
            return Ok(events / EVENT);
        }
    }
    let events = bytes.saturating_sub(EDGE) / EVENT;
    let Some(before) = events.checked_sub(1) else { return Ok(0) };
    let mut last = [0; IndexEvent::BYTES];
    file.read_exact_at(&mut last, EDGE + before * EVENT)?;
    Ok(if IndexReader::is_half_footer(&last, before) { before } else { events })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_killed_before_anything_was_written_is_removed() {
        let dir = std::env::temp_dir().join(format!("spoor-empty-{}", std::process::id()));
        let sessions = [1, 2, 3, 4].map(|number| dir.join(format!("20260101-000000-{number}")));
        for session in &sessions {
            fs::create_dir_all(session).expect("made");
            fs::write(session.join(JOURNAL), "").expect("written");
        }
        let [_, live, used, begun] = &sessions;
        fs::write(begun.join("manifest.json.new"), "{}").expect("written");
        let journal = File::open(live.join(JOURNAL)).expect("there");
        files::lock(&journal).expect("free");
        fs::create_dir(used.join("thread_0")).expect("made");
        finish_ended(&dir);
        let left = sessions.iter().map(|session| session.exists()).collect::<Vec<_>>();
        fs::remove_dir_all(&dir).expect("there");
        assert_eq!(left, [false, true, true, false]);
    }
}
