//! Going on with a session where its files end.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use codec::atf::Manifest;

use super::{
    directory::{inside, part_name, read_if_there},
    earlier::{earlier_parts, ends_of, may_go_on, part_of},
    files::{lock_dir, replace},
    journal::{JOURNAL, Journal, Note},
    notes::notes_of,
    reopen::{Found, Purpose, Unfinished, session_name},
    room::MANIFEST,
    session::OpenSession,
    volume::Volume,
};
use crate::{Budget, Session};

impl OpenSession {
    /// Goes on with a session of this name and id, if it is there and may go on.
    pub(super) fn resume(volume: &mut Volume, session: &Arc<Session>) -> io::Result<Option<Self>> {
        let Some(dir) = last_part(volume, session) else { return Ok(None) };
        let is_busy = volume.finishing.iter().any(|part| part.dir == dir);
        let json = read_if_there(&dir.join(MANIFEST))?.unwrap_or_default();
        let manifest = Manifest::parse(&json).map_err(io::Error::other)?;
        let id = session.id.filter(|id| manifest.session.as_deref() == Some(&id.to_string()));
        if is_busy || !id.is_some_and(|id| may_go_on(id, manifest.end.as_ref())) {
            return Ok(None);
        }
        let mut found = Unfinished::open(&dir)?;
        if matches!(found, Found::Finished) {
            unfinish(volume, &dir, manifest)?;
            found = Unfinished::open(&dir)?;
        }
        let Found::Unfinished(unfinished) = found else { return Ok(None) };
        Ok(Some(unfinished.reopen(volume, session, Purpose::Resume)?.open))
    }
}

/// The last directory of a session.
pub(super) fn last_part(volume: &Volume, session: &Session) -> Option<PathBuf> {
    let found = session.found.clone().filter(|dir| dir.parent() == Some(&volume.dir));
    let known: Vec<_> = [volume.counters.place(&session.name), found].into_iter().flatten().collect();
    if !known.is_empty() {
        // It may have gone on elsewhere since it was found, and where this collector has left it.
        let parts = known.into_iter().filter_map(|dir| Some((part_of(&dir, session.id?)?, dir)));
        return parts.max().map(|(_, dir)| dir);
    }
    let name = inside(&session.name);
    let parts = fs::read_dir(&volume.dir).ok()?.flatten().filter_map(|entry| {
        let found = entry.file_name().into_string().ok()?;
        let number = match found.strip_prefix(&name)? {
            "" => 1,
            rest => rest.strip_prefix('.')?.parse().ok()?,
        };
        Some(number)
    });
    // One that was begun and has no manifest yet has no events either.
    let mut parts: Vec<u32> = parts.collect();
    parts.sort_unstable();
    let mut dirs = parts.into_iter().rev().map(|number| volume.dir.join(part_name(&name, number)));
    dirs.find(|dir| dir.join(MANIFEST).exists())
}

/// Makes a finished part an unfinished one. It is finished until its manifest is replaced, whenever this is interrupted.
fn unfinish(volume: &Volume, dir: &Path, mut manifest: Manifest) -> io::Result<()> {
    let files = &*volume.handles.files;
    let _locked = lock_dir(dir)?;
    let mut journal = Journal::new(Budget::default(), 0);
    let number = manifest.part.unwrap_or(1);
    let mut firsts = BTreeMap::new();
    for part in earlier_parts(dir, &session_name(dir, number), number) {
        firsts.extend(ends_of(&part));
    }
    for (stream, first) in firsts {
        journal.note(&Note::First { stream, first });
    }
    notes_of(&manifest).iter().for_each(|note| _ = journal.note(note));
    // One that an interrupted attempt has left would be longer.
    files.remove(&dir.join(JOURNAL)).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?;
    journal.create(files, dir)?;
    journal.flush(0)?;
    drop(journal);
    (manifest.end, manifest.gaps, manifest.threads, manifest.table) = (None, Vec::new(), Vec::new(), None);
    manifest.limits.retain(|limit| !limit.reason.starts_with("collector:"));
    let json = manifest.to_json().map_err(io::Error::other)?;
    replace(files, &dir.join(MANIFEST), &json)
}
