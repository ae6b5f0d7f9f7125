//! A session directory, read.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use codec::{
    FunctionId,
    atf::{DetailReader, GapEntry, IndexReader, Manifest, ThreadEntry, ThreadReader},
};

/// What the manifest of a session says, with what is looked up in it.
#[derive(Debug)]
pub(super) struct Trace {
    pub(super) dir: PathBuf,
    pub(super) manifest: Manifest,
    functions: HashMap<u64, usize>,
    modules: HashMap<u32, usize>,
}

/// The files of a thread.
#[derive(Debug)]
pub(super) struct ThreadFiles {
    index: Vec<u8>,
    detail: Option<Vec<u8>>,
    path: PathBuf,
}

impl Trace {
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let path = dir.join("manifest.json");
        let json = fs::read(&path)
            .with_context(|| format!("cannot read {} (is {} a session directory?)", path.display(), dir.display()))?;
        let manifest = Manifest::parse(&json).with_context(|| format!("cannot read {}", path.display()))?;
        let functions = manifest.functions.iter().enumerate().map(|(index, function)| (function.id, index)).collect();
        let modules = manifest.modules.iter().enumerate().map(|(index, module)| (module.id, index)).collect();
        Ok(Self { dir: dir.into(), manifest, functions, modules })
    }

    /// Whether its collector has not finished it.
    pub(super) fn is_unfinished(&self) -> bool {
        self.manifest.end.is_none() || self.dir.join("journal.heph").exists()
    }

    /// The name of a function, where it is known.
    pub(super) fn function_name(&self, function: FunctionId) -> Option<&str> {
        let entry = self.manifest.functions.get(*self.functions.get(&function.0)?)?;
        (!entry.name.is_empty()).then_some(entry.name.as_str())
    }

    /// The path of a function's module, where it is known.
    pub(super) fn module_path(&self, function: FunctionId) -> Option<&str> {
        let entry = self.manifest.modules.get(*self.modules.get(&function.module().0)?)?;
        Some(&entry.path)
    }

    /// The threads: those of the manifest, and in a session that is not finished those that have a directory.
    pub(super) fn threads(&self) -> Vec<ThreadEntry> {
        let mut threads = self.manifest.threads.clone();
        if self.is_unfinished() {
            let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
            let ids = entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("thread_")?.parse().ok());
            let mut known: HashSet<u32> = threads.iter().map(|thread| thread.id).collect();
            let found = ids.filter(|id| known.insert(*id));
            threads.extend(found.map(|id| ThreadEntry { id, ..ThreadEntry::default() }));
            threads.sort_by_key(|thread| thread.id);
        }
        threads
    }

    /// What is missing of a thread, in the order of its events.
    pub(super) fn gaps(&self, thread: u32) -> Vec<&GapEntry> {
        let mut gaps: Vec<_> = self.manifest.gaps.iter().filter(|gap| gap.thread == thread).collect();
        gaps.sort_by_key(|gap| (gap.at_index, gap.first));
        gaps
    }

    /// Reads the files of a thread.
    pub(super) fn thread_files(&self, thread: u32) -> Result<ThreadFiles> {
        let path = self.dir.join(format!("thread_{thread}"));
        let index = path.join("index.atf");
        let detail = path.join("detail.atf");
        let index = fs::read(&index).with_context(|| format!("cannot read {}", index.display()))?;
        let detail = match fs::read(&detail) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", detail.display())),
        };
        Ok(ThreadFiles { index, detail, path })
    }
}

impl ThreadFiles {
    /// The thread, or none where its collector was stopped before it wrote anything.
    pub(super) fn reader(&self) -> Result<Option<ThreadReader<'_>>> {
        let name = self.path.display();
        let index = match IndexReader::open(&self.index) {
            Ok(index) => index,
            Err(codec::atf::OpenError::Short { .. }) => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("{name}/index.atf")),
        };
        let detail = match self.detail.as_deref().map(DetailReader::open).transpose() {
            Ok(detail) => detail,
            Err(codec::atf::OpenError::Short { .. }) => None,
            Err(error) => return Err(error).with_context(|| format!("{name}/detail.atf")),
        };
        Ok(Some(ThreadReader { index, detail }))
    }
}
