//! `spans.parquet` of a part that is finished, made of its files by somebody else than the sink.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, mpsc::Sender},
};

use codec::atf::{FileChecksum, ManifestTail, TableEntry};

use super::{
    DiskCounters, DiskSink, directory, files,
    journal::JOURNAL,
    room::{MANIFEST, Room},
    spans::{PARTIAL, SPANS},
};

/// When the table of spans of a session is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SpansWhen {
    /// While its events arrive, of the spans that the sink is given.
    Live,
    /// When the session, or a part of it, is finished, of its files.
    #[default]
    After,
    /// Never.
    No,
}

impl SpansWhen {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Live, Self::After, Self::No];

    /// Its name, on the command line and in manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::After => "after",
            Self::No => "no",
        }
    }
}

/// A finished session, or part of one, that lacks its table of spans.
#[derive(Debug, Clone)]
pub struct PendingTable {
    dir: PathBuf,
    shared: Option<(Arc<Mutex<Room>>, Arc<DiskCounters>)>,
}

impl DiskSink {
    /// Reports every part that is finished from now on and lacks its table of spans.
    pub fn report_pending_tables(&mut self, to: Sender<PendingTable>) {
        self.volume.pending_tables = Some(to);
    }

    /// The parts in its directory that were to get a table of spans after their end and lack it, the oldest first.
    pub fn earlier_tables(&self) -> Vec<PendingTable> {
        let sessions = directory::sessions_in(&self.volume.dir).unwrap_or_default();
        let pending = |dir: PathBuf| PendingTable::new(&dir, self.volume.room.clone(), self.counters());
        sessions.into_iter().filter(|dir| lacks_table(dir)).map(pending).collect()
    }
}

/// Whether a part is finished, and was to get a table that it lacks.
pub fn lacks_table(dir: &Path) -> bool {
    !dir.join(SPANS).exists() && finished(dir).is_some()
}

/// The manifest of a part that is finished and gets its table after that.
fn finished(dir: &Path) -> Option<(Vec<u8>, ManifestTail)> {
    let json = storage::read(&dir.join(MANIFEST)).ok()?;
    let tail = ManifestTail::read(&json).ok()?;
    let is_wanted = tail.end.is_some() && tail.spans.as_deref() == Some(SpansWhen::After.name());
    (is_wanted && !dir.join(JOURNAL).exists()).then_some((json, tail))
}

impl PendingTable {
    pub(super) fn new(dir: &Path, room: Option<Arc<Mutex<Room>>>, counters: Arc<DiskCounters>) -> Self {
        Self { dir: dir.into(), shared: room.map(|room| (room, counters)) }
    }

    /// The directory of the part.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Begins the file. There is nothing to do if it is there, if another collector makes it, or if the part was
    /// removed.
    pub fn create(&self) -> io::Result<Option<TableFile<'_>>> {
        let partial = self.dir.join(PARTIAL);
        let file = match OpenOptions::new().write(true).create(true).truncate(false).open(&partial) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        match files::lock(&file) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            locked => locked?,
        }
        // Whoever held the lock until now may have finished the file, and this is it. Or the session goes on.
        if !lacks_table(&self.dir) {
            let _ = fs::remove_file(&partial);
            return Ok(None);
        }
        file.set_len(0)?;
        Ok(Some(TableFile { of: self, file, bytes: 0, checksum: FileChecksum::default(), whole: false }))
    }
}

/// A table that is being written. It has another name until it is finished, and is removed if it never is.
#[derive(Debug)]
pub struct TableFile<'a> {
    of: &'a PendingTable,
    file: File,
    bytes: u64,
    checksum: FileChecksum,
    whole: bool,
}

impl TableFile<'_> {
    /// Gives the file its name: all of it is there, with so many rows, and the manifest says so. Returns how many bytes
    /// it has, or nothing if its part was removed or goes on.
    pub fn finish(mut self, rows: u64) -> io::Result<Option<u64>> {
        let dir = &self.of.dir;
        let _locked = match files::lock_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            locked => locked?,
        };
        let Some((json, tail)) = finished(dir) else { return Ok(None) };
        let checksum = self.checksum.to_string();
        let table = TableEntry { rows, bytes: self.bytes, checksum, ..TableEntry::default() };
        let json = tail.with_table(&json, table).map_err(io::Error::other)?;
        // The manifest goes first: a table without a name is made again.
        files::replace(&files::OsFiles, &dir.join(MANIFEST), &json)?;
        fs::rename(dir.join(PARTIAL), dir.join(SPANS))?;
        self.whole = true;
        self.make_room();
        Ok(Some(self.bytes))
    }

    /// Counts the file, and removes the oldest sessions if that is too much.
    fn make_room(&self) {
        if let Some((room, counters)) = &self.of.shared {
            room.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .measure(&self.of.dir, |dir, bytes| counters.removed(dir, bytes));
        }
    }
}

impl Write for TableFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes = self.bytes.saturating_add(written as u64);
        self.checksum.update(bytes.get(..written).unwrap_or_default());
        if written > 0 {
            self.make_room();
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for TableFile<'_> {
    fn drop(&mut self) {
        if !self.whole {
            let _ = fs::remove_file(self.of.dir.join(PARTIAL));
            self.make_room();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use super::*;
    use crate::{Catalog, CatalogLimits, DiskOptions, Ended, Session, Sink, disk::verify};

    /// A sink on an empty directory, with two sessions that it has finished and reported.
    fn finished(name: &str, max_bytes: u64) -> (PathBuf, DiskSink, [PendingTable; 2]) {
        let dir = std::env::temp_dir().join(format!("spoor-table-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let options = DiskOptions { max_bytes: Some(max_bytes), ..DiskOptions::new(&dir) };
        let mut sink = DiskSink::open(options).expect("it opens");
        let (to, reported) = mpsc::channel();
        sink.report_pending_tables(to);
        for number in 1..=2 {
            let catalog = Catalog::new(CatalogLimits::default(), Arc::default());
            let name = format!("20260101-000000-{number}");
            let session = Arc::new(Session::new(name, None, String::new(), 0, catalog));
            sink.start(&session).expect("it starts");
            sink.end(&session, &Ended::default()).expect("it ends");
        }
        let tables = [0; 2].map(|_| reported.recv().expect("it is finished"));
        let found: Vec<_> = sink.earlier_tables().into_iter().map(|table| table.dir).collect();
        assert_eq!(found, tables.each_ref().map(|table| table.dir.clone()), "the oldest first");
        (dir, sink, tables)
    }

    #[test]
    fn a_table_has_its_name_when_it_is_whole_and_only_one_makes_it() {
        let (dir, _sink, [first, second]) = finished("whole", 1 << 20);
        let mut file = first.create().expect("it is made").expect("nobody else does");
        assert!(first.create().expect("looked at").is_none(), "somebody does");
        file.write_all(b"rows").expect("room");
        drop(file);
        assert!(!first.dir.join(PARTIAL).exists() && !first.dir.join(SPANS).exists(), "half of it is gone");
        fs::write(first.dir.join(PARTIAL), b"what a killed collector left").expect("room");
        let mut file = first.create().expect("it is made").expect("nobody else does");
        file.write_all(b"rows").expect("room");
        assert_eq!(file.finish(1).expect("renamed"), Some(4));
        assert_eq!(fs::read(first.dir.join(SPANS)).expect("it is there"), b"rows");
        assert!(first.create().expect("looked at").is_none() && !first.dir.join(PARTIAL).exists(), "it is there");
        fs::remove_dir_all(&second.dir).expect("it is there");
        assert!(second.create().expect("looked at").is_none(), "the session is gone");
        fs::remove_dir_all(&dir).expect("it is there");
    }

    #[test]
    fn a_table_that_is_about_to_get_its_name_is_not_missing() {
        let (dir, _sink, [first, _]) = finished("about", 1 << 20);
        let mut file = first.create().expect("it is made").expect("nobody else does");
        file.write_all(b"rows").expect("room");
        file.finish(1).expect("renamed");
        // As it is between the manifest and the name.
        let locked = files::lock_dir(&first.dir).expect("it is free");
        fs::rename(first.dir.join(SPANS), first.dir.join(PARTIAL)).expect("renamed");
        let verifying = thread::spawn({
            let dir = first.dir.clone();
            move || verify(&dir).expect("looked at")
        });
        thread::sleep(Duration::from_millis(100));
        assert!(!verifying.is_finished(), "it waits");
        fs::rename(first.dir.join(PARTIAL), first.dir.join(SPANS)).expect("renamed");
        drop(locked);
        let found = verifying.join().expect("no panic");
        assert!(!format!("{found:?}").contains("it is not there"), "{found:?}");
        fs::remove_dir_all(&dir).expect("it is there");
    }

    #[test]
    fn a_table_counts_and_the_oldest_session_makes_room_for_it() {
        const MOST: usize = 100_000;
        let (dir, sink, [first, second]) = finished("room", MOST as u64);
        let manifest = fs::metadata(first.dir.join(MANIFEST)).expect("it is there").len();
        let mut file = second.create().expect("it is made").expect("nobody else does");
        file.write_all(&[1; 50_000]).expect("room");
        assert!(first.dir.exists(), "both fit");
        // It is as large as there is room for it alone.
        let rest = MOST - 50_000 - usize::try_from(manifest).expect("few");
        file.write_all(&vec![1; rest]).expect("room");
        assert!(!first.dir.exists() && second.dir.exists() && sink.counters().removed_sessions.get() == 1);
        // Now it is too large itself, and goes with its session.
        file.write_all(&[1]).expect("room");
        assert!(!second.dir.exists());
        assert_eq!(file.finish(1).expect("it is no error"), None);
        fs::remove_dir_all(&dir).expect("it is there");
    }
}
