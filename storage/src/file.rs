//! A file that is read, wherever it is.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read},
    ops::Deref,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    sync::Arc,
};

use rustix::fs::OFlags;

use crate::{blocks::Object, no_file};

/// A file that is read.
#[derive(Debug)]
pub enum File {
    /// One of this machine.
    Local(fs::File),
    /// One in a bucket.
    Remote(Arc<Object>),
}

impl File {
    /// How many bytes it has.
    pub fn len(&self) -> io::Result<u64> {
        match self {
            Self::Local(file) => Ok(file.metadata()?.len()),
            Self::Remote(object) => Ok(object.len()),
        }
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads bytes from a place on, fewer only where it ends.
    pub fn read_at(&self, buffer: &mut [u8], mut offset: u64) -> io::Result<usize> {
        let file = match self {
            Self::Local(file) => file,
            Self::Remote(object) => return object.read_at(buffer, offset),
        };
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, offset) {
                Ok(0) => break,
                Ok(count) => {
                    done = done.saturating_add(count);
                    offset = offset.saturating_add(count as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Reads all these bytes from a place on.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self.read_at(buffer, offset)? == buffer.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The same file once more.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Local(file) => Self::Local(file.try_clone()?),
            Self::Remote(object) => Self::Remote(Arc::clone(object)),
        })
    }

    /// Reads it from its begin to its end.
    pub fn reader(&self) -> Reader<&Self> {
        Reader::new(self, 0)
    }
}

impl From<fs::File> for File {
    fn from(file: fs::File) -> Self {
        Self::Local(file)
    }
}

/// Reads a file from front to back.
#[derive(Debug)]
pub struct Reader<F> {
    file: F,
    at: u64,
}

impl<F> Reader<F> {
    /// Reads a file from a place to its end.
    pub fn new(file: F, at: u64) -> Self {
        Self { file, at }
    }
}

impl<F: Deref<Target = File>> Read for Reader<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at = self.at.saturating_add(read as u64);
        Ok(read)
    }
}

/// Opens a file of this machine. What is none is refused.
pub(crate) fn open_regular(path: &Path) -> io::Result<fs::File> {
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(no_file()),
    }
}
