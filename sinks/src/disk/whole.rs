//! A part that is finished, as a whole: to be copied elsewhere, and removed then.

use std::{
    collections::HashSet,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    earlier::{Brief, MAY_GO_ON, may_go_on},
    files,
    journal::JOURNAL,
    room::{self, MANIFEST},
    spans::{OVERVIEW, PARTIAL, SPANS},
    table::lacks_table,
};

/// For how long a session that ended without its program may still go on.
const MAY_GO_ON_FOR: Duration = Duration::from_secs(600);

/// For how long an agent that has not heard that all has arrived may come back to ask.
const MAY_ASK_FOR: Duration = Duration::from_secs(60);

/// A part that is finished, with all that is made of it. Nobody else has it as a whole for as long as this is there.
#[derive(Debug)]
pub struct WholePart {
    dir: PathBuf,
    manifest: Vec<u8>,
    session: Option<String>,
    /// Whether its agent may come back to ask whether all has arrived.
    is_asked_for: bool,
    _locked: fs::File,
}

impl WholePart {
    /// Opens a part. There is none while it is written, while its table is to be made, where its program may still go on, and
    /// where somebody else has it.
    pub fn open(dir: &Path) -> io::Result<Option<Self>> {
        let path = dir.join(MANIFEST);
        let storage::File::Local(file) = storage::open(&path)? else { return Ok(None) };
        match files::lock(&file) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            locked => locked?,
        }
        let manifest = storage::read(&path)?;
        let Brief { session, end, .. } = serde_json::from_slice(&manifest)?;
        let Some(end) = end else { return Ok(None) };
        let age = file.metadata()?.modified()?.elapsed().unwrap_or_default();
        let goes_on = MAY_GO_ON.contains(&end.how.as_str()) && age < MAY_GO_ON_FOR;
        if goes_on || dir.join(JOURNAL).exists() || lacks_table(dir) {
            return Ok(None);
        }
        let id = session.as_deref().and_then(|id| id.parse().ok());
        let is_asked_for = id.is_some_and(|id| may_go_on(id, Some(&end))) && age < MAY_ASK_FOR;
        Ok(Some(Self { dir: dir.into(), manifest, session, is_asked_for, _locked: file }))
    }

    /// The id of its session, if that has one.
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Its manifest.
    pub fn manifest(&self) -> &[u8] {
        &self.manifest
    }

    /// Whether its agent may come back to ask whether all has arrived, for which it has to be here.
    pub fn is_asked_for(&self) -> bool {
        self.is_asked_for
    }

    /// Its files but for the manifest: their names from its directory on, in order, and how many bytes they have.
    pub fn files(&self) -> Vec<(String, u64)> {
        let is_whole = |name: &str| {
            name != JOURNAL && name != PARTIAL && (name == OVERVIEW || name == SPANS || name.contains('/'))
        };
        let named =
            |(path, bytes): (PathBuf, u64)| Some((path.strip_prefix(&self.dir).ok()?.to_str()?.to_owned(), bytes));
        let mut files: Vec<_> = room::part_files(&self.dir).into_iter().filter_map(named).collect();
        files.retain(|(name, _)| is_whole(name));
        files.sort();
        files
    }

    /// Whether it is still what it was when it was opened: it may have gone on, or be gone.
    pub fn is_unchanged(&self) -> bool {
        let manifest = storage::read(&self.dir.join(MANIFEST));
        !self.dir.join(JOURNAL).exists() && manifest.is_ok_and(|manifest| manifest == self.manifest)
    }

    /// Removes it from here, unless there is something in its directory that is not of a trace.
    pub fn remove(self) -> io::Result<()> {
        let ours: HashSet<_> = room::part_files(&self.dir).into_iter().map(|(path, _)| path).collect();
        if let Some(other) = files_in(&self.dir)?.into_iter().find(|file| !ours.contains(file)) {
            return Err(io::Error::other(format!("{} is not part of a trace", other.display())));
        }
        room::remove(&self.dir).map_err(|(_, error)| error)
    }
}

/// All that is in a directory and in those below it, but for directories.
fn files_in(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => files.extend(files_in(&entry.path())?),
            false => files.push(entry.path()),
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFESTS: [(&str, bool); 4] = [
        (r#"{"threads": [], "time_start_ns": 0, "time_end_ns": 0, "end": {"how": "exited"}}"#, true),
        (r#"{"threads": [], "time_start_ns": 0, "time_end_ns": 0, "end": {"how": "stopped"}}"#, false),
        (r#"{"threads": [], "time_start_ns": 0, "time_end_ns": 0, "end": {"how": "exited"}, "spans": "after"}"#, false),
        (r#"{"threads": [], "time_start_ns": 0, "time_end_ns": 0}"#, false),
    ];

    #[test]
    fn only_what_is_finished_is_whole() {
        let folder = std::env::temp_dir().join(format!("spoor-whole-{}", std::process::id()));
        for (number, (manifest, is_whole)) in MANIFESTS.into_iter().enumerate() {
            let dir = folder.join(format!("20260101-000000-{number}"));
            fs::create_dir_all(dir.join("thread_1")).expect("made");
            for (name, bytes) in [("thread_1/index.atf", 3), ("overview.spoor.partial", 1), ("notes", 1), (OVERVIEW, 2)]
            {
                fs::write(dir.join(name), vec![0; bytes]).expect("written");
            }
            fs::write(dir.join(MANIFEST), manifest).expect("written");
            let whole = WholePart::open(&dir).expect("it can be read");
            assert_eq!(whole.is_some(), is_whole, "{manifest}");
            let Some(whole) = whole else { continue };
            assert!(WholePart::open(&dir).expect("it can be read").is_none(), "one has it");
            assert_eq!(whole.files(), [(OVERVIEW.into(), 2), ("thread_1/index.atf".into(), 3)]);
            assert!(whole.is_unchanged());
            fs::write(dir.join(JOURNAL), []).expect("written");
            assert!(!whole.is_unchanged(), "it goes on");
            assert!(whole.remove().is_err() && dir.join("notes").exists(), "what is not ours stays, and all with it");
        }
        fs::remove_dir_all(&folder).expect("it is there");
    }
}
