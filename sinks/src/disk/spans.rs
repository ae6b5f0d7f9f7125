//! The spans of a part, in `spans.parquet`.
//!
//! The file is of use only once all of it is there, so it has another name until then. Spans can be made again of the
//! events, so they give way: whenever the disk is full, they go first.

use std::{
    io::{self, Seek, SeekFrom},
    path::Path,
};

use codec::{
    atf::{FileChecksum, TableEntry},
    span::Span,
};

use super::files::Files;
use crate::{Budget, Catalog, Session, output::write_some, parquet::SpanTable};

/// The file, once it is whole.
pub(super) const SPANS: &str = "spans.parquet";

/// What answers questions about any time of a session, made of its spans.
pub const OVERVIEW: &str = "overview.spoor";
/// The file until then.
pub(super) const PARTIAL: &str = "spans.parquet.partial";
/// The reason of the limit that tells how many spans are in no file.
pub(super) const LIMIT: &str = "collector:spans";

/// What a row is taken to need in memory until it is in a row group.
const ROW_BYTES: u64 = 192;
/// With this much it is time to write.
const FLUSH_BYTES: usize = 1 << 20;

/// The spans of a part, until they are in its file.
pub(super) struct PartSpans {
    table: Option<Box<SpanTable>>,
    /// Bytes that wait to be written, and how many are.
    tail: Tail,
    /// Spans that will be in no file.
    pub(super) lost: u64,
    given_up: bool,
    /// Whether memory is short, so that it is time to write.
    pressed: bool,
    /// Why the last attempt to write failed, if it did.
    failed: Option<(io::ErrorKind, String)>,
    budget: Budget,
    charged: u64,
    /// How many spans a file has that was ended.
    pub(super) rows: u64,
}

/// The bytes of a file that are not on disk yet.
#[derive(Default)]
struct Tail {
    waiting: Vec<u8>,
    written: u64,
    /// Of all of them.
    checksum: FileChecksum,
}

impl PartSpans {
    /// No spans yet.
    pub(super) fn new(budget: Budget) -> Self {
        Self {
            table: None,
            tail: Tail::default(),
            lost: 0,
            given_up: false,
            pressed: false,
            failed: None,
            budget,
            charged: 0,
            rows: 0,
        }
    }

    /// Takes a span, and tells whether it did.
    pub(super) fn push(&mut self, catalog: &Catalog, span: &Span) -> bool {
        let kept = self.try_push(catalog, span);
        self.lost = self.lost.saturating_add(u64::from(!kept));
        kept
    }

    fn try_push(&mut self, catalog: &Catalog, span: &Span) -> bool {
        if self.given_up || !(self.charge() || self.compact()) {
            return false;
        }
        if self.table.is_none() {
            self.table = SpanTable::new().ok().map(Box::new);
        }
        let Some(table) = &mut self.table else { return false };
        match table.push(catalog, span) {
            Ok(()) if table.waiting_rows() == 0 => {
                self.collect();
                true
            }
            Ok(()) => true,
            // Nothing was written to a disk, so it is the table itself that takes no more.
            Err(_) => {
                self.forsake();
                false
            }
        }
    }

    /// Takes memory for another row.
    fn charge(&mut self) -> bool {
        let taken = self.budget.take(ROW_BYTES);
        self.charged = self.charged.saturating_add(if taken { ROW_BYTES } else { 0 });
        taken
    }

    /// Makes bytes of the rows, which are fewer, and takes memory for another row.
    fn compact(&mut self) -> bool {
        let ended = self.table.as_mut().is_some_and(|table| table.waiting_rows() > 0 && table.end_group().is_ok());
        if ended {
            self.collect();
        }
        self.pressed = true;
        ended && self.charge()
    }

    /// Takes what the table has ready.
    fn collect(&mut self) {
        if let Some(table) = &mut self.table {
            self.tail.append(&table.take_bytes());
        }
        self.settle();
    }

    /// Has as much of the budget as it needs.
    fn settle(&mut self) {
        let rows = self.table.as_ref().map_or(0, |table| table.waiting_rows() as u64);
        let needed = rows.saturating_mul(ROW_BYTES).saturating_add(self.tail.waiting.len() as u64);
        if self.budget.exchange(self.charged, needed) {
            self.charged = needed;
        }
    }

    /// Whether there is much to write.
    pub(super) fn is_due(&self) -> bool {
        self.tail.waiting.len() >= FLUSH_BYTES || (self.pressed && self.waits())
    }

    /// Whether there is anything to write.
    pub(super) fn waits(&self) -> bool {
        !self.tail.waiting.is_empty()
    }

    /// Writes what waits, and tells how many bytes it wrote.
    pub(super) fn write(&mut self, files: &dyn Files, dir: &Path) -> (u64, io::Result<()>) {
        let before = self.tail.written;
        let result = self.tail.write(files, dir);
        self.pressed = false;
        self.failed = result.as_ref().err().map(|error| (error.kind(), error.to_string()));
        self.settle();
        (self.tail.written.saturating_sub(before), result)
    }

    /// There will be no file, and what there is of it goes. Tells how many bytes that was.
    pub(super) fn give_up(&mut self, files: &dyn Files, dir: &Path) -> u64 {
        // Where it cannot be removed, it is tried again at the end of the part.
        let _ = files.remove(&dir.join(PARTIAL));
        self.forsake()
    }

    /// A span that is open was not kept. It may still end, and is in the file then.
    pub(super) fn refuse(&mut self) {
        self.lost = self.lost.saturating_add(1);
    }

    /// Why spans are lost.
    pub(super) fn why(&self) -> io::Error {
        match &self.failed {
            Some((kind, text)) => io::Error::new(*kind, text.clone()),
            None if self.given_up => io::Error::new(io::ErrorKind::StorageFull, "spans have given way to events"),
            None => io::Error::new(io::ErrorKind::QuotaExceeded, "there are too many in memory"),
        }
    }

    /// How many bytes a file that is given up would leave to others.
    pub(super) fn written(&self) -> u64 {
        self.tail.written
    }

    fn forsake(&mut self) -> u64 {
        let rows = self.table.take().map_or(0, |table| table.rows());
        self.lost = self.lost.saturating_add(rows);
        self.given_up = true;
        let tail = std::mem::take(&mut self.tail);
        self.settle();
        tail.written
    }

    /// Ends the file, and tells whether there is one: not without spans.
    pub(super) fn end(&mut self, session: &Session) -> bool {
        let Some(table) = self.table.take() else { return false };
        let rows = table.rows();
        match table.finish(session) {
            Ok(bytes) => {
                self.tail.append(&bytes);
                self.rows = rows;
            }
            Err(_) => self.lost = self.lost.saturating_add(rows),
        }
        self.rows > 0
    }

    /// Writes the rest of a file that was ended, gives it its name, and tells how many bytes it wrote.
    pub(super) fn finish(&mut self, files: &dyn Files, dir: &Path) -> (u64, io::Result<()>) {
        let (written, result) = self.write(files, dir);
        (written, result.and_then(|()| files.rename(&dir.join(PARTIAL), &dir.join(SPANS))))
    }

    /// What the manifest says of a file that is finished.
    pub(super) fn entry(&self) -> TableEntry {
        let Tail { written, checksum, .. } = &self.tail;
        TableEntry { rows: self.rows, bytes: *written, checksum: checksum.to_string(), ..TableEntry::default() }
    }

    /// How many bytes wait.
    pub(super) fn pending_bytes(&self) -> usize {
        self.tail.waiting.len()
    }
}

impl Tail {
    fn append(&mut self, bytes: &[u8]) {
        self.checksum.update(bytes);
        self.waiting.extend_from_slice(bytes);
    }

    /// Writes what waits. What could not be written still waits.
    fn write(&mut self, files: &dyn Files, dir: &Path) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        // It is not open in between: there may be many sessions, and they write seldom.
        let mut out = files.open(&dir.join(PARTIAL), true)?;
        out.seek(SeekFrom::Start(self.written))?;
        let (done, result) = write_some(&mut out, &self.waiting);
        self.waiting.drain(..done);
        self.written = self.written.saturating_add(done as u64);
        result
    }
}
