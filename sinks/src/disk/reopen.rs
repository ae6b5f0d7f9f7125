//! Opening a part again that its collector did not finish.
//!
//! What the journal tells is replayed into what an open session has, and the two files of each thread are brought to an
//! end behind which they can go on. Then the part is what it would be had nobody stopped: it takes events, and it can be
//! finished.

use std::{
    collections::BTreeMap,
    fmt::Display,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use codec::{
    ModuleId, StreamId,
    atf::{
        BrokenLink, DetailReader, EDGE_BYTES, EndEntry, IndexReader, LimitEntry, Manifest, OpenError, ThreadReader,
        ThreadWriter,
    },
};

use super::{
    directory::{read_if_there, threads_in},
    files::lock,
    journal::{self, Entry, JOURNAL, Note},
    notes::Notes,
    part::Part,
    removed,
    room::MANIFEST,
    session::OpenSession,
    spans::{OVERVIEW, PARTIAL, SPANS},
    starts::Starts,
    thread::OpenThread,
    volume::Volume,
};
use collector_core::How;

use crate::Session;

/// A part that nobody writes and nobody has finished.
pub(super) struct Unfinished {
    dir: PathBuf,
    /// The manifest that was written at the start, with what was known then.
    pub(super) manifest: Box<Manifest>,
    /// The journal, locked.
    journal: File,
}

/// What the directory of a part is.
pub(super) enum Found {
    Unfinished(Unfinished),
    /// It is finished.
    Finished,
    /// Somebody is writing it.
    Live,
    /// It has neither a manifest nor a journal.
    Nothing,
}

/// A part that goes on.
pub(super) struct Reopened {
    pub(super) open: OpenSession,
    /// Whole events that were cut off by force.
    pub(super) cut: u64,
    /// How it ended, where its agent has said so.
    pub(super) end: Option<EndEntry>,
    /// The positions that streams are known to have come to, for details or gaps behind it are known: what lies between
    /// was lost.
    pub(super) reached: Vec<(StreamId, u64)>,
}

/// What a part is opened again for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Its session goes on, and its catalog knows everything.
    Resume,
    /// To be finished.
    Repair {
        /// Passes over what cannot be read of the journal, and cuts off events that are whole but whose details are
        /// gone, and all behind them.
        force: bool,
    },
}

/// The reason of the limit that tells how many bytes were put aside.
pub(super) const LIMIT: &str = "collector:removed";

const INDEX: &str = "index.atf";
const DETAIL: &str = "detail.atf";

impl Unfinished {
    /// Looks at a directory, and takes it over if nobody else has it.
    pub(super) fn open(dir: &Path) -> io::Result<Found> {
        let path = dir.join(JOURNAL);
        let journal = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let finished = read_if_there(&dir.join(MANIFEST))?.is_some();
                return Ok(if finished { Found::Finished } else { Found::Nothing });
            }
            Err(error) => return Err(error),
        };
        match lock(&journal) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Found::Live),
            locked => locked?,
        }
        // Whoever held the lock until now may just have finished it.
        if !path.exists() {
            return Ok(Found::Finished);
        }
        let manifest = read_if_there(&dir.join(MANIFEST))?;
        let manifest = manifest.as_deref().map(Manifest::parse).transpose().map_err(io::Error::other)?;
        let manifest = Box::new(manifest.unwrap_or_default());
        // A manifest with an end was written last of all: only the journal was still to go.
        if manifest.end.is_some() {
            remove_spans(dir)?;
            fs::remove_file(&path)?;
            return Ok(Found::Finished);
        }
        Ok(Found::Unfinished(Self { dir: dir.into(), manifest, journal }))
    }

    /// Goes on with it, as `session`. For a repair its catalog gets what the journal tells.
    ///
    /// What cannot be read is an error, and then the part stays as it is but for torn ends. What is taken out of a file
    /// is put aside.
    pub(super) fn reopen(self, volume: &mut Volume, session: &Arc<Session>, purpose: Purpose) -> io::Result<Reopened> {
        let force = purpose == Purpose::Repair { force: true };
        let Self { dir, manifest, journal: file } = self;
        let number = manifest.part.unwrap_or(1);
        let base = session_name(&dir, number);
        let part = Part::with_journal(volume, number, Some(dir.clone()));
        let mut open = OpenSession::with_part(session, base, volume, part);
        let mut told = Told::default();
        let journal = storage::read(&dir.join(JOURNAL))?;
        let take = |entry: Entry<'_>| match entry {
            Entry::Option(option, packet) => {
                told.notes.take_option(&option);
                if purpose != Purpose::Resume {
                    open.session.catalog_mut().apply(&option);
                }
                open.part.journal.has_option(packet);
            }
            Entry::Note(note) => told.notes.take(note),
        };
        let end = journal::replay(&journal, force, take).map_err(io::Error::other)?;
        open.zero = told.notes.zero;
        open.positions = std::mem::take(&mut told.notes.firsts);
        told.notes.functions.iter().for_each(|made| open.stand_ins.restore(made));

        let mut cut = 0;
        for (stream, thread_dir) in threads_in(&dir)? {
            let files = Files { dir: &dir, thread_dir: &thread_dir, stream };
            let found = files
                .reopen(force)
                .map_err(|error| io::Error::new(error.kind(), format!("thread_{stream}: {error}")))?;
            cut += found.cut;
            if found.lost > 0 && !told.notes.ends.contains_key(&stream) {
                told.lost.insert(stream, found.lost);
            }
            let Some(writer) = found.writer else {
                open.thread(volume, StreamId(stream), 0);
                continue;
            };
            open.stand_ins.lose_names(found.stand_ins);
            let (index_bytes, detail_bytes) = writer.written_bytes();
            open.part.thread_bytes += index_bytes + detail_bytes.unwrap_or(0);
            let first = open.positions.get(&stream).copied().unwrap_or(0);
            let starts = Starts::new(volume.shared.depths.share());
            open.part.threads.insert(stream, OpenThread::resume(writer, found.thread, found.times, first, starts));
        }
        // From here on only the journal changes, and what is noted in it again is the same.
        if end < journal.len() {
            removed::cut(&dir, &dir.join(JOURNAL), JOURNAL, &journal, end as u64)?;
        }
        open.part.journal = std::mem::take(&mut open.part.journal).reopen(file, end as u64)?;
        open.part.noted_functions = open.stand_ins.made().len();
        if purpose == Purpose::Resume {
            told.notes.resume();
            open.part.journal.note(&Note::Resumed);
        }
        let told_end = told.notes.told_end.map(|(reason, at)| How::Told(reason).entry(&open.session, Some(at)));
        let (reached, mut limits) = told.enter(&mut open, volume);
        let bytes = removed::removed_bytes(&dir)?;
        if bytes > 0 {
            let detail = format!("bytes that were cut from files are in {}/", removed::REMOVED);
            limits.push(LimitEntry { reason: LIMIT.into(), detail, count: bytes, ..LimitEntry::default() });
        }
        open.limits = limits;
        remove_spans(&dir)?;
        let manifest_bytes = fs::metadata(dir.join(MANIFEST)).map_or(0, |data| data.len());
        open.part.bytes = open.part.thread_bytes.saturating_add(manifest_bytes);
        volume.reopened(&dir, open.part.bytes, end as u64);
        volume.counters.set_place(&session.name, &dir);
        Ok(Reopened { open, cut, end: told_end, reached })
    }
}

/// The name of a session, of which this directory is the part with this number.
pub(super) fn session_name(dir: &Path, number: u32) -> String {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let behind = name.rsplit_once(&format!(".{number}")).filter(|_| number > 1);
    behind.map_or(&*name, |(base, _)| base).to_owned()
}

/// Spans can be made again of the events; those of only some events are of no use.
fn remove_spans(dir: &Path) -> io::Result<()> {
    for name in [PARTIAL, SPANS, OVERVIEW] {
        match fs::remove_file(dir.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// What a journal tells that has to wait for the threads.
#[derive(Default)]
struct Told {
    notes: Notes,
    /// How many events of streams are in no index, though there are details of the last of them.
    lost: BTreeMap<u32, u64>,
}

impl Told {
    /// Enters gaps and what was given up. Tells what streams are known to have come to, and what no gap can say.
    fn enter(mut self, open: &mut OpenSession, volume: &Volume) -> (Vec<(StreamId, u64)>, Vec<LimitEntry>) {
        let mut reached = Vec::new();
        for (stream, gaps) in self.notes.gaps {
            let written = open.part.threads.get(&stream).map_or(0, |thread| u64::from(thread.writer.len()));
            // What lies behind events that were not written yet is lost with them.
            let (kept, void): (Vec<_>, Vec<_>) = gaps.into_iter().partition(|gap| gap.at_index.unwrap_or(0) <= written);
            if let Some(end) = void.iter().map(|gap| gap.first.saturating_add(gap.count)).max() {
                open.part.journal.note(&Note::Cut { stream, at_index: written });
                reached.push((StreamId(stream), end));
            }
            if let Some(lost) = self.lost.get_mut(&stream) {
                let before = void.iter().filter(|gap| gap.at_index.unwrap_or(0) <= written.saturating_add(*lost));
                *lost = before.map(|gap| gap.count).fold(*lost, u64::saturating_add);
            }
            for gap in kept {
                let Some(thread) = open.thread(volume, StreamId(stream), 0) else { break };
                thread.missing = thread.missing.saturating_add(gap.count);
                thread.next = thread.next.saturating_add(gap.count);
                open.part.gaps.add(gap);
            }
        }
        for (stream, lost) in self.lost {
            if let Some(thread) = open.thread(volume, StreamId(stream), 0) {
                reached.push((StreamId(stream), thread.next.saturating_add(lost)));
            }
        }
        reached.extend(self.notes.told_ends.iter().map(|(stream, next)| (*stream, next.0)));
        for &(stream, first, next) in self.notes.ends.values() {
            let Some(thread) = open.thread(volume, StreamId(stream), first) else { continue };
            let settled = thread.missing.saturating_add(thread.writer.len().into());
            let count = next.saturating_sub(first).saturating_sub(settled);
            open.part.gap(StreamId(stream), next.saturating_sub(count), count, &self.notes.cause);
        }
        let count = self.notes.threads.saturating_sub(self.notes.ends.len() as u64);
        let detail = "events at the end of threads are missing, nobody knows how many".into();
        let limit = LimitEntry { reason: self.notes.cause, detail, count, ..LimitEntry::default() };
        (reached, Some(limit).filter(|limit| limit.count > 0).into_iter().collect())
    }
}

/// The two files of a thread that were not finished.
struct Files<'a> {
    dir: &'a Path,
    thread_dir: &'a Path,
    stream: u32,
}

/// What is in them.
#[derive(Default)]
struct ThreadFiles {
    /// What goes on with them. Nothing if there is no index yet.
    writer: Option<ThreadWriter>,
    /// The id that all events have.
    thread: u32,
    /// The earliest and latest timestamp.
    times: Option<(u64, u64)>,
    /// How many functions of module 0 its events use.
    stand_ins: usize,
    cut: u64,
    lost: u64,
}

impl Files<'_> {
    /// Brings them to an end behind which they can go on, or tells what cannot be repaired, and then changes nothing.
    fn reopen(&self, force: bool) -> io::Result<ThreadFiles> {
        let problem = |name: &str, error: &dyn Display| io::Error::other(format!("{name}: {error}"));
        let (index_file, detail_file) = (self.read(INDEX)?, self.read(DETAIL)?);
        let detail = match DetailReader::open(&detail_file) {
            Ok(detail) => Ok(Some(detail)),
            // Its writer was stopped before the first detail.
            Err(OpenError::Short { .. }) => Ok(None),
            Err(error) => Err(problem(DETAIL, &error)),
        };
        // Details that the index has come to lack still tell that there were events.
        let most = |detail: &DetailReader<'_>| detail.events().flatten().map(|event| u64::from(event.index) + 1).max();
        let events = detail.as_ref().ok().and_then(|detail| most(detail.as_ref()?)).unwrap_or(0);
        let index = match IndexReader::open(&index_file) {
            Ok(index) => index,
            // Its writer was stopped before the first event. Details without an index belong to nothing.
            Err(OpenError::Short { .. }) => {
                self.cut(INDEX, &index_file, 0, None)?;
                self.cut(DETAIL, &detail_file, 0, None)?;
                return Ok(ThreadFiles { lost: events, ..ThreadFiles::default() });
            }
            Err(error) => return Err(problem(INDEX, &error)),
        };
        let mut thread = ThreadReader { index, detail: detail? };
        let writer = thread.resume().or_else(|error| match error {
            BrokenLink::Forward { sequence, .. } if force => {
                thread.index = index.cut(sequence);
                // What is left has no broken link any more.
                thread.resume().map_err(io::Error::other)
            }
            BrokenLink::Forward { .. } => {
                Err(io::Error::other(format!("{error}; with force, the events from there on are cut off")))
            }
            error => Err(io::Error::other(error)),
        })?;
        let (index_bytes, detail_bytes) = writer.written_bytes();
        let (index_start, detail_start) = writer.starts();
        self.cut(INDEX, &index_file, index_bytes, Some((index_start, index.is_finished())))?;
        let is_finished = thread.detail.as_ref().is_some_and(DetailReader::is_finished);
        self.cut(DETAIL, &detail_file, detail_bytes.unwrap_or(0), detail_start.map(|start| (start, is_finished)))?;
        let mut found = ThreadFiles {
            thread: index.origin().thread,
            cut: u64::from(index.len() - thread.index.len()),
            lost: events.max(index.len().into()).saturating_sub(thread.index.len().into()),
            ..ThreadFiles::default()
        };
        for event in thread.index.events().flatten() {
            let at = event.timestamp.0;
            found.times = Some(found.times.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
            if event.function.module() == ModuleId(0) {
                found.stand_ins = found.stand_ins.max(event.function.index() as usize + 1);
            }
        }
        Ok(ThreadFiles { writer: Some(writer), ..found })
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        Ok(read_if_there(&self.thread_dir.join(name))?.unwrap_or_default())
    }

    /// Cuts a file behind `keep` of its bytes, and gives it the start that it had before it was finished, if it was.
    fn cut(&self, name: &str, bytes: &[u8], keep: u64, start: Option<([u8; EDGE_BYTES], bool)>) -> io::Result<()> {
        let path = self.thread_dir.join(name);
        let behind = (bytes.len() as u64).saturating_sub(keep);
        match start {
            // A footer will be written again.
            Some((_, true)) if behind == EDGE_BYTES as u64 => {
                OpenOptions::new().write(true).open(&path)?.set_len(keep)?;
            }
            _ if behind > 0 || (keep == 0 && path.exists()) => {
                removed::cut(self.dir, &path, &format!("thread_{}-{name}", self.stream), bytes, keep)?;
            }
            _ => {}
        }
        match start {
            Some((start, _)) if !bytes.starts_with(&start) => {
                OpenOptions::new().write(true).open(&path)?.write_all_at(&start, 0)
            }
            _ => Ok(()),
        }
    }
}
