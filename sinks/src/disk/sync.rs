//! Seeing to it that files survive a power failure.

use std::{
    fs::File,
    io,
    path::Path,
    time::{Duration, Instant},
};

/// When the files are made to survive a power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SyncWhen {
    /// Never: the operating system writes them in its own time.
    #[default]
    Never,
    /// When a session, or a part of one, is finished.
    End,
    /// That, and at least this often: what the sink has is kept only after that.
    Every(Duration),
}

/// Tells the file system of a directory to write.
#[derive(Debug)]
pub(super) struct Sync {
    when: SyncWhen,
    last: Instant,
    /// Whether something was written since.
    is_behind: bool,
    /// Whether a part was finished since.
    has_ended: bool,
}

impl Sync {
    pub(super) fn new(when: SyncWhen) -> Self {
        Self { when, last: Instant::now(), is_behind: false, has_ended: false }
    }

    /// Something was written.
    pub(super) fn wrote(&mut self) {
        self.is_behind = true;
    }

    /// A part was finished.
    pub(super) fn ended(&mut self) {
        self.has_ended = true;
    }

    /// Whether all that was written counts as kept.
    pub(super) fn is_kept(&self) -> bool {
        !self.is_behind || !matches!(self.when, SyncWhen::Every(_))
    }

    /// Writes what is due. All files of the file system are written: those that are closed too, and the directories.
    pub(super) fn step(&mut self, dir: &Path) -> io::Result<()> {
        let is_due = match self.when {
            SyncWhen::Never => false,
            SyncWhen::End => self.has_ended,
            SyncWhen::Every(time) => self.has_ended || (self.is_behind && self.last.elapsed() >= time),
        };
        if is_due {
            rustix::fs::syncfs(File::open(dir)?)?;
            (self.last, self.is_behind, self.has_ended) = (Instant::now(), false, false);
        }
        Ok(())
    }
}
