//! The files of a trace, as the disk sink opens them. Tests put a disk behind this that fails when told to.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Seek, Write},
    path::Path,
};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};

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
pub(super) fn is_full(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// What the sink asks of a file system.
pub(super) trait Files: Send {
    /// Makes a directory; one that exists already is an error.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Opens a file for writing at its start, and keeps what is in it. It is made only where `create` says so.
    fn open(&self, path: &Path, create: bool) -> io::Result<Box<dyn Out>>;

    /// Makes a file and holds a lock on it as long as it is open.
    fn create_locked(&self, path: &Path) -> io::Result<Box<dyn Out>>;

    /// Gives a file another name, over one that has it already.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// The real one.
#[derive(Debug, Clone, Copy)]
pub(super) struct OsFiles;

impl Files for OsFiles {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Box<dyn Out>> {
        let file = OpenOptions::new().write(true).create(create).truncate(false).open(path)?;
        Ok(Box::new(file))
    }

    fn create_locked(&self, path: &Path) -> io::Result<Box<dyn Out>> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        lock(&file)?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

/// Takes the lock that says somebody is writing here, or fails at once. It is held until the file is closed.
pub(super) fn lock(file: &File) -> io::Result<()> {
    Ok(flock(file, FlockOperation::NonBlockingLockExclusive)?)
}

/// Writes a file whole or not at all: under another name first.
pub(super) fn replace(files: &dyn Files, path: &Path, contents: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("json.new");
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
