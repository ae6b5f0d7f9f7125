//! The files of threads that are open at a time: a session may have more threads than a process may have files.

use std::{
    collections::HashMap,
    io::{self, SeekFrom},
    path::Path,
};

use super::files::{Files, Out};

/// The open files, the ones used least recently closed first.
pub(super) struct Handles {
    pub(super) files: Box<dyn Files>,
    most: usize,
    tick: u64,
    open: HashMap<HandleKey, Handle>,
}

/// The part of a session, and the stream in it.
pub(super) type HandleKey = (u64, u32);

/// The two files of a thread.
pub(super) struct Handle {
    pub(super) index: Box<dyn Out>,
    pub(super) detail: Option<Box<dyn Out>>,
    used: u64,
}

impl Handles {
    pub(super) fn new(files: Box<dyn Files>, most: usize) -> Self {
        Self { files, most: most.max(1), tick: 0, open: HashMap::new() }
    }

    /// The files of a thread, which have come this far. The detail file is there only where it is asked for.
    pub(super) fn get(
        &mut self,
        key: HandleKey,
        dir: &Path,
        index_bytes: u64,
        detail_bytes: Option<u64>,
    ) -> io::Result<&mut Handle> {
        self.tick += 1;
        if !self.open.contains_key(&key) {
            let index = self.open_thread(dir, key.1, "index.atf", index_bytes)?;
            self.make_room();
            self.open.insert(key, Handle { index, detail: None, used: 0 });
        }
        if let Some(bytes) = detail_bytes
            && self.open.get(&key).is_some_and(|handle| handle.detail.is_none())
        {
            let detail = self.open_thread(dir, key.1, "detail.atf", bytes)?;
            if let Some(handle) = self.open.get_mut(&key) {
                handle.detail = Some(detail);
            }
        }
        let handle = self.open.get_mut(&key).ok_or(io::ErrorKind::NotFound)?;
        handle.used = self.tick;
        Ok(handle)
    }

    /// Closes the files of a thread.
    pub(super) fn close(&mut self, key: HandleKey) {
        self.open.remove(&key);
    }

    /// How many threads have files open.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    fn open_thread(&self, dir: &Path, stream: u32, name: &str, at: u64) -> io::Result<Box<dyn Out>> {
        let dir = dir.join(format!("thread_{stream}"));
        let path = dir.join(name);
        let mut out = match self.files.open(&path, at == 0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && at == 0 => {
                self.files.create_dir(&dir)?;
                self.files.open(&path, true)?
            }
            opened => opened?,
        };
        out.seek(SeekFrom::Start(at))?;
        Ok(out)
    }

    fn make_room(&mut self) {
        while self.open.len() >= self.most {
            let Some(oldest) = self.open.iter().min_by_key(|(_, handle)| handle.used).map(|(key, _)| *key) else {
                return;
            };
            self.open.remove(&oldest);
        }
    }
}
