//! One part of a session that is being written: a directory with a manifest, a journal and threads.

use std::{collections::HashMap, io, path::PathBuf, time::Instant};

use codec::{
    StreamId,
    atf::GapEntry,
    profile::{ProfileOption, Thread},
};

use super::{
    directory::{another, part_name},
    files::replace,
    journal::{Journal, Note, ROOM_BYTES},
    ledger::Ledger,
    room::MANIFEST,
    spans::PartSpans,
    table::SpansWhen,
    thread::OpenThread,
    volume::{Failing, Volume},
};
use crate::{Catalog, Session, cut};

/// A part that takes events.
pub(super) struct Part {
    pub(super) id: u64,
    /// From 1.
    pub(super) number: u32,
    pub(super) dir: Option<PathBuf>,
    pub(super) threads: HashMap<u32, OpenThread>,
    pub(super) gaps: Ledger,
    pub(super) journal: Journal,
    /// Whether directory, journal and first manifest are there.
    opened: bool,
    has_journal: bool,
    /// Whether nothing comes any more: this may be its last chance.
    pub(super) is_ending: bool,
    started: Instant,
    pub(super) spans: PartSpans,
    /// When its table of spans is made.
    pub(super) spans_when: SpansWhen,
    /// Bytes on disk beside the journal, and how many of them are of threads and spans.
    pub(super) bytes: u64,
    pub(super) thread_bytes: u64,
    /// Events of streams that there was no room for.
    pub(super) unlisted: u64,
    /// How many functions of module 0 the journal knows.
    pub(super) noted_functions: usize,
}

/// How many directories of one name are tried.
const MOST_ATTEMPTS: u32 = 10_000;

/// A longer cause of a gap is cut.
const MOST_CAUSE_BYTES: usize = 128;

/// Gaps of one thread come to no more than this, so that no sum overflows.
const MOST_MISSING: u64 = u64::MAX / 2;

impl Part {
    /// A part of which nothing is on disk yet. Its journal starts with what is known of the threads.
    pub(super) fn new(volume: &mut Volume, number: u32, catalog: &Catalog) -> Self {
        let mut part = Self::with_journal(volume, number, None);
        for (stream, thread) in catalog.threads() {
            let (os_id, start, end, creator) = (thread.os_id, thread.start, thread.end, thread.creator);
            part.journal.option(&ProfileOption::Thread(Thread {
                stream,
                os_id,
                start,
                end,
                creator,
                name: &thread.name,
            }));
        }
        part
    }

    /// A part that has nothing; but it may have a directory, with a journal and a first manifest.
    pub(super) fn with_journal(volume: &mut Volume, number: u32, dir: Option<PathBuf>) -> Self {
        let opened = dir.is_some();
        let spans_when = match volume.limits.spans {
            // Nobody has the spans that were made before it was opened again.
            SpansWhen::Live if opened => SpansWhen::After,
            when => when,
        };
        Self {
            spans_when,
            id: volume.part_id(),
            number,
            dir,
            threads: HashMap::new(),
            gaps: Ledger::new(volume.shared.gaps.share()),
            journal: Journal::new(volume.shared.journals.share(), volume.limits.option_bytes),
            opened,
            has_journal: opened,
            is_ending: false,
            started: Instant::now(),
            spans: PartSpans::new(volume.shared.spans.share()),
            bytes: 0,
            thread_bytes: 0,
            unlisted: 0,
            noted_functions: 0,
        }
    }

    /// Makes what has to be there before any thread: the directory, the journal, a first manifest. Goes on where an
    /// earlier attempt failed. `base` is the session's name, or what had to be taken instead.
    pub(super) fn open(&mut self, volume: &mut Volume, session: &Session, base: &mut String) -> io::Result<()> {
        if self.opened {
            return Ok(());
        }
        let dir = match &self.dir {
            Some(dir) => dir.clone(),
            // Whoever goes on after a kill goes on in the last part: those before it must have all that they ever will.
            None if !self.is_ending && volume.is_finishing(base) => {
                return Err(volume.failing.as_ref().map_or(io::ErrorKind::StorageFull.into(), Failing::alone));
            }
            None => {
                let dir = self.create(volume, base)?;
                volume.counters.set_place(&session.name, &dir);
                self.dir.insert(dir).clone()
            }
        };
        if !self.has_journal {
            if let Err(error) = self.journal.create(&*volume.handles.files, &dir) {
                // Somebody may have removed a directory that was still empty.
                self.dir.take_if(|_| error.kind() == io::ErrorKind::NotFound);
                return Err(error);
            }
            self.has_journal = true;
        }
        let mut manifest = session.catalog().manifest();
        manifest.part = Some(self.number).filter(|number| *number > 1);
        manifest.session = manifest.session.or(session.id.map(|id| id.to_string()));
        manifest.seen_unix_ns = Some(session.seen_unix_ns).filter(|seen| *seen > 0);
        manifest.spans = Some(self.spans_when.name().into());
        let json = manifest.to_json().map_err(io::Error::other)?;
        replace(&*volume.handles.files, &dir.join(MANIFEST), &json)?;
        self.wrote(volume, json.len() as u64);
        self.opened = true;
        Ok(())
    }

    fn create(&self, volume: &Volume, base: &mut String) -> io::Result<PathBuf> {
        let name = part_name(base, self.number);
        for attempt in 1..=MOST_ATTEMPTS {
            let name = another(&name, attempt);
            let dir = volume.dir.join(&name);
            match volume.handles.files.create_dir(&dir) {
                Ok(()) => {
                    if self.number == 1 {
                        *base = name;
                    }
                    return Ok(dir);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{name} and {MOST_ATTEMPTS} like it exist already")))
    }

    /// Writes what waits of one thread, the journal first: what it tells of the thread must not be behind.
    pub(super) fn flush_thread(&mut self, volume: &mut Volume, stream: u32) -> io::Result<()> {
        let Some(dir) = self.dir.clone().filter(|_| self.opened) else { return Ok(()) };
        self.flush_journal(volume)?;
        let Some(thread) = self.threads.get_mut(&stream) else { return Ok(()) };
        let before = thread.writer.pending_bytes();
        let (written, result) = thread.flush(&mut volume.handles, (self.id, stream), &dir);
        volume.pending = volume.pending.saturating_sub(before.saturating_sub(thread.writer.pending_bytes()));
        self.thread_bytes = self.thread_bytes.saturating_add(written);
        self.wrote(volume, written);
        result
    }

    fn flush_journal(&mut self, volume: &mut Volume) -> io::Result<()> {
        volume.flush_journal(&mut self.journal, ROOM_BYTES)
    }

    /// Writes all that waits. Tries every thread, and tells the last error.
    pub(super) fn flush(&mut self, volume: &mut Volume) -> io::Result<()> {
        self.flush_journal(volume)?;
        let mut result = Ok(());
        let waits = |thread: &OpenThread| !thread.writer.is_empty() && thread.writer.pending_bytes() > 0;
        let streams: Vec<u32> =
            self.threads.iter().filter(|(_, thread)| waits(thread)).map(|(stream, _)| *stream).collect();
        // A thread that has nothing was silent since the last time: it needs no memory until it speaks again.
        for thread in self.threads.values_mut().filter(|thread| thread.writer.pending_bytes() == 0) {
            thread.writer.shrink();
        }
        for stream in streams {
            if let Err(error) = self.flush_thread(volume, stream) {
                result = Err(error);
            }
        }
        result
    }

    /// Writes what waits of the spans. What fails costs nothing yet.
    pub(super) fn write_spans(&mut self, volume: &mut Volume) -> io::Result<()> {
        let Some(dir) = self.dir.as_deref().filter(|_| self.opened && self.spans.waits()) else { return Ok(()) };
        let (written, result) = self.spans.write(&*volume.handles.files, dir);
        self.thread_bytes = self.thread_bytes.saturating_add(written);
        self.wrote(volume, written);
        result
    }

    /// The spans leave the disk to the events, and there will be no file of them.
    pub(super) fn give_up_spans(&mut self, volume: &mut Volume) {
        let Some(dir) = self.dir.as_deref().filter(|_| self.spans.written() > 0) else { return };
        let before = self.spans.lost;
        let bytes = self.spans.give_up(&*volume.handles.files, dir);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.thread_bytes = self.thread_bytes.saturating_sub(bytes);
        volume.gave_back(bytes);
        volume.counters.lost_spans.add(self.spans.lost.saturating_sub(before));
    }

    /// How many bytes of events wait.
    pub(super) fn pending_bytes(&self) -> usize {
        self.threads.values().map(|thread| thread.writer.pending_bytes()).fold(0, usize::saturating_add)
    }

    /// Enters a gap of a thread that is there.
    pub(super) fn gap(&mut self, StreamId(stream): StreamId, first: u64, count: u64, cause: &str) {
        let Some(thread) = self.threads.get_mut(&stream) else { return };
        let count = count.min(MOST_MISSING.saturating_sub(thread.missing));
        if count == 0 {
            return;
        }
        thread.missing = thread.missing.saturating_add(count);
        thread.next = first.saturating_add(count);
        let (at_index, cause) = (Some(thread.writer.len().into()), cut(cause, MOST_CAUSE_BYTES).into());
        let gap = GapEntry { thread: stream, first, count, cause, at_index, ..GapEntry::default() };
        self.journal.note(&Note::Gap(gap.clone()));
        self.gaps.add(gap);
    }

    /// Whether it has anything that another part could follow.
    pub(super) fn is_empty(&self) -> bool {
        self.gaps.is_empty() && self.threads.values().all(|thread| thread.writer.is_empty())
    }

    /// Whether it is time for another part. A manifest may be large from the start, so it does not count: another
    /// part would have it again.
    pub(super) fn is_due(&self, volume: &Volume) -> bool {
        let large = volume.limits.rotate_bytes.is_some_and(|most| self.thread_bytes >= most);
        let old = volume.limits.rotate_every.is_some_and(|most| self.started.elapsed() >= most);
        (large || old) && self.opened && !self.is_empty()
    }

    fn wrote(&mut self, volume: &mut Volume, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        volume.wrote(bytes);
    }
}
