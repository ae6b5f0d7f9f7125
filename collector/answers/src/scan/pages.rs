//! A file, read from front to back a page at a time.

use std::{
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use codec::atf::{EDGE_BYTES, RunningChecksum};

/// The part of a file that is being looked at.
///
/// The file is opened for every page and closed again: a trace may have more threads than a process may have files.
#[derive(Debug)]
pub(super) struct Pages {
    path: PathBuf,
    page: usize,
    buffer: Vec<u8>,
    /// How much of the buffer is done with.
    at: usize,
    /// Where in the file the buffer ends.
    read: u64,
    /// Where what is to be read ends.
    end: u64,
    /// What it is held against, if it is to be read to its end.
    checksum: Option<RunningChecksum>,
}

impl Pages {
    /// The bytes from `start` to `end`.
    pub(super) fn new(path: PathBuf, start: u64, end: u64, page: usize) -> Self {
        Self { path, page, buffer: Vec::new(), at: 0, read: start, end: end.max(start), checksum: None }
    }

    /// The same, of a file with this footer, which they can be checked against.
    pub(super) fn checked_by(self, footer: Option<&[u8; EDGE_BYTES]>) -> Self {
        Self { checksum: footer.map(RunningChecksum::new), ..self }
    }

    /// Passes over the rest, and fails where the bytes are not what was written.
    pub(super) fn check(&mut self) -> io::Result<()> {
        let Some(_) = self.checksum else { return Ok(()) };
        while self.read < self.end {
            self.skip(self.rest().len());
            self.turn(1)?;
        }
        let checked = self.checksum.as_ref().map_or(Ok(()), RunningChecksum::check);
        checked.map_err(|corrupt| io::Error::new(ErrorKind::InvalidData, corrupt))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where what is to be read ends.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Where in the file the next byte is.
    pub(super) fn offset(&self) -> u64 {
        self.read.saturating_sub(self.rest().len() as u64)
    }

    /// So many bytes from here on, or more; fewer where the file has no more.
    #[inline]
    pub(super) fn have(&mut self, bytes: usize) -> io::Result<&[u8]> {
        if self.rest().len() < bytes && self.read < self.end {
            self.turn(bytes)?;
        }
        Ok(self.rest())
    }

    /// The same, without the rest of the page: for a look at a file whose turn has not come.
    pub(super) fn have_only(&mut self, bytes: usize) -> io::Result<&[u8]> {
        let page = std::mem::replace(&mut self.page, bytes);
        let turned = self.have(bytes).map(drop);
        self.page = page;
        turned?;
        Ok(self.rest())
    }

    /// Where in the buffer the next byte is.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Bytes that were passed over just now.
    pub(super) fn between(&self, start: usize, bytes: usize) -> &[u8] {
        self.buffer.get(start..start.saturating_add(bytes)).unwrap_or_default()
    }

    /// What is there already.
    #[inline]
    pub(super) fn rest(&self) -> &[u8] {
        self.buffer.get(self.at..).unwrap_or_default()
    }

    /// Goes on behind bytes that are there.
    #[inline]
    pub(super) fn skip(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes).min(self.buffer.len());
    }

    /// Takes them away, with their memory.
    pub(super) fn close(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.path.clone(), 0, 0, 0))
    }

    #[cold]
    fn turn(&mut self, bytes: usize) -> io::Result<()> {
        // What is in the way is written over: to clear it takes time.
        let kept = self.rest().len();
        self.buffer.copy_within(self.at.., 0);
        self.at = 0;
        let left = usize::try_from(self.end.saturating_sub(self.read)).unwrap_or(usize::MAX);
        let wanted = self.page.max(bytes).saturating_sub(kept).min(left);
        // One that was large for the sake of one event is not kept.
        if self.buffer.capacity() > self.page.saturating_mul(4) && kept.saturating_add(wanted) <= self.page {
            self.buffer.truncate(kept);
            self.buffer.shrink_to(self.page);
        }
        self.buffer.reserve_exact(kept.saturating_add(wanted).saturating_sub(self.buffer.len()));
        self.buffer.resize(kept.saturating_add(wanted), 0);
        let read = read_at(&self.path, self.buffer.get_mut(kept..).unwrap_or_default(), self.read);
        let read = read.inspect_err(|_| self.buffer.truncate(kept))?;
        self.buffer.truncate(kept.saturating_add(read));
        self.read = self.read.saturating_add(read as u64);
        if read < wanted {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "it has become shorter"));
        }
        if let Some(checksum) = &mut self.checksum {
            checksum.update(self.buffer.get(kept..).unwrap_or_default());
        }
        Ok(())
    }
}

/// Reads bytes of a file from a place on, fewer only where it ends.
pub(super) fn read_at(path: &Path, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    storage::open(path)?.read_at(buffer, offset)
}
