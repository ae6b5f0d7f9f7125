//! The files of a trace, as the disk sink opens them. Tests put a disk behind this that fails when told to.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::{
    fs::{FallocateFlags, FlockOperation, fallocate, flock},
    io::Errno,
};

use super::journal::JOURNAL;

/// A file that is written.
pub(super) trait Out: Write + Seek + Send {
    /// Sees to it that there is room on the disk for bytes that are written here later. Its length stays as it is.
    fn reserve(&mut self, at: u64, bytes: u64) -> io::Result<()>;
}

impl Out for File {
    fn reserve(&mut self, at: u64, bytes: u64) -> io::Result<()> {
        Ok(fallocate(self, FallocateFlags::KEEP_SIZE, at, bytes)?)
    }
}

/// Whether an error says that the disk has no room.
pub(crate) fn is_full(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// What the sink asks of a file system.
pub(super) trait Files: Send {
    /// Makes a directory; one that exists already is an error.
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    /// Opens a file for writing at its start, and keeps what is in it. It is made only where `create` says so.
    fn open(&self, path: &Path, create: bool) -> io::Result<Box<dyn Out>> {
        let file = OpenOptions::new().write(true).create(create).truncate(false).open(path)?;
        Ok(Box::new(file))
    }

    /// Makes a file and holds a lock on it as long as it is open.
    fn create_locked(&self, path: &Path) -> io::Result<Box<dyn Out>> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        lock(&file)?;
        // Before it was locked it may have been taken for one that a killed collector has left, and removed.
        if file.metadata()?.nlink() == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Box::new(file))
    }

    /// Gives a file another name, over one that has it already.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

/// The real one.
#[derive(Debug, Clone, Copy)]
pub(super) struct OsFiles;

impl Files for OsFiles {}

/// Takes the lock that says somebody is writing here, or fails at once. It is held until the file is closed.
pub(super) fn lock(file: &File) -> io::Result<()> {
    let lock = || flock(file, FlockOperation::NonBlockingLockExclusive);
    // Somebody may look whether it is held, which takes a moment.
    Ok(lock().or_else(|_| {
        thread::sleep(Duration::from_millis(10));
        lock()
    })?)
}

/// Whether somebody is writing the session in a directory, and so holds its journal.
pub fn is_held(dir: &Path) -> bool {
    let Ok(storage::File::Local(journal)) = storage::open(&dir.join(JOURNAL)) else { return false };
    flock(&journal, FlockOperation::NonBlockingLockShared).is_err_and(|error| error == Errno::WOULDBLOCK)
}

/// Waits until nobody else changes whether a part is finished, and keeps others from it until this is dropped.
pub(super) fn lock_dir(dir: &Path) -> io::Result<File> {
    let file = File::open(dir)?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// What a file is called until it is whole.
pub(super) fn fresh(path: &Path) -> PathBuf {
    path.with_extension("json.new")
}

/// Writes a file whole or not at all: under another name first.
pub(super) fn replace(files: &dyn Files, path: &Path, contents: &[u8]) -> io::Result<()> {
    let fresh = fresh(path);
    let written = files.open(&fresh, true).and_then(|mut out| out.write_all(contents).and_then(|()| out.flush()));
    match written.and_then(|()| files.rename(&fresh, path)) {
        Ok(()) => Ok(()),
        Err(error) => {
            // What is left of it helps nobody, and a full disk can use the room.
            let _ = files.remove(&fresh);
            Err(error)
        }
    }
}

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
