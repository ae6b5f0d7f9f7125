//! One session on its way to the archive.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use sinks::disk::WholePart;
use storage::{Store, Stored};

/// What makes a session one: it comes last, and whoever sees it sees all.
const MANIFEST: &str = "manifest.json";

/// A session that is whole.
#[derive(Debug)]
pub(super) struct Upload<'a> {
    store: &'a Store,
    dir: &'a Path,
    whole: &'a WholePart,
    /// What it is called in the archive.
    name: String,
}

/// What was put into the archive.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Archived {
    /// How many files were sent, and their bytes: none of what was there already.
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// Whether all of it was read again, and is what is here.
    pub(super) is_checked: bool,
}

impl<'a> Upload<'a> {
    /// Sessions of different collectors may have the same name, so its id is added.
    pub(super) fn new(store: &'a Store, dir: &'a Path, whole: &'a WholePart) -> Self {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let id = whole.session().map_or_else(
            || format!("{:08x}", storage::checksum(whole.manifest())),
            |id| id.chars().filter(char::is_ascii_alphanumeric).take(16).collect(),
        );
        Self { store, dir, whole, name: format!("{name}-{id}") }
    }

    /// Where it is in the archive.
    pub(super) fn place(&self) -> PathBuf {
        self.store.place().join(&self.name)
    }

    /// Puts it there, or what is missing of it, and reads all of it again if that is asked for. `go_on` may stop it.
    pub(super) fn run(&self, check: bool, go_on: &dyn Fn() -> io::Result<()>) -> Result<Archived> {
        let files = self.whole.files();
        let mut there = self.list()?;
        let known = self.store.read(&self.key(MANIFEST))?;
        let is_known = known.as_deref() == Some(self.whole.manifest());
        let is_there = |there: &BTreeMap<String, u64>, (name, bytes): &(String, u64)| there.get(name) == Some(bytes);
        let mut archived = Archived::default();
        if is_known && files.iter().all(|file| is_there(&there, file)) && !check {
            return Ok(archived);
        }
        if known.is_some() && !is_known {
            // It has gone on since: what is there is of another state, and nobody is to see half of each.
            self.store.remove(&self.key(MANIFEST))?;
        }
        let mut sums = BTreeMap::new();
        for file @ (name, bytes) in &files {
            go_on()?;
            let here = self.dir.join(name);
            // An earlier collector may have sent it. Only what is the same is left there.
            if is_there(&there, file) {
                let sum = storage::checksum_of(&here)?;
                if is_known || self.store.check(&self.key(name))? == sum {
                    sums.insert(name, sum);
                    continue;
                }
            }
            let sent = self.store.put(&self.key(name), &here, |_| go_on());
            let sent = sent.with_context(|| format!("cannot send {}", here.display()))?;
            if sent.bytes != *bytes {
                bail!("{} has changed while it was sent", here.display());
            }
            archived.files += 1;
            archived.bytes = archived.bytes.saturating_add(sent.bytes);
            sums.insert(name, sent);
        }
        there = self.list()?;
        if let Some((name, bytes)) = files.iter().find(|file| !is_there(&there, file)) {
            let found = there.get(name).map_or_else(|| "nothing".into(), |found| format!("{found} bytes"));
            bail!("{}: {found} arrived of {bytes} bytes", self.place().join(name).display());
        }
        if !self.whole.is_unchanged() {
            bail!("{} has changed while it was sent", self.dir.display());
        }
        if !is_known {
            self.store.put(&self.key(MANIFEST), &self.dir.join(MANIFEST), |_| go_on())?;
            archived.files += 1;
            archived.bytes = archived.bytes.saturating_add(self.whole.manifest().len() as u64);
        }
        if check {
            self.check(&sums, go_on)?;
            archived.is_checked = true;
        }
        Ok(archived)
    }

    /// Reads all that is there, and fails where it is not what is here.
    fn check(&self, sums: &BTreeMap<&String, Stored>, go_on: &dyn Fn() -> io::Result<()>) -> Result<()> {
        for (name, sum) in sums {
            go_on()?;
            if self.store.check(&self.key(name))? != *sum {
                // The next try sends it again.
                self.store.remove(&self.key(name))?;
                bail!("{}: what is there is not what was sent", self.place().join(name).display());
            }
        }
        if self.store.read(&self.key(MANIFEST))?.as_deref() != Some(self.whole.manifest()) {
            bail!("{}: what is there is not what was sent", self.place().join(MANIFEST).display());
        }
        Ok(self.store.sync()?)
    }

    fn list(&self) -> Result<BTreeMap<String, u64>> {
        self.store.list(&self.name).with_context(|| format!("cannot look into {}", self.store.place().display()))
    }

    fn key(&self, file: &str) -> String {
        format!("{}/{file}", self.name)
    }
}
