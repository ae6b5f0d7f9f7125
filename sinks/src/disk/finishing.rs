//! A part that has all its events, and waits to be written to its end.

use std::{cmp::Reverse, collections::VecDeque, fs, io, path::PathBuf};

use codec::atf::{EDGE_BYTES, Manifest, Sealed};

use super::{
    files::{Handles, is_full, replace},
    journal::{JOURNAL, Journal, ROOM_BYTES, StreamEnd},
    room::MANIFEST,
    spans::{LIMIT, PARTIAL, PartSpans, SPANS},
    summary::spans_limit,
    thread::OpenThread,
    volume::Volume,
};

/// Footers first, then the spans, then the manifest, then the journal goes: whenever it stops, what is there can be
/// repaired.
pub(super) struct Finishing {
    pub(super) id: u64,
    pub(super) dir: PathBuf,
    /// The name of the session, as `dir` without suffixes, as long as it goes on.
    pub(super) session: Option<String>,
    pub(super) threads: VecDeque<SealedThread>,
    /// Its spans, if there are any.
    pub(super) spans: Option<PartSpans>,
    /// The manifest as it will be written.
    pub(super) manifest: Option<Vec<u8>>,
    pub(super) journal: Journal,
    /// What the part has on disk beside the journal.
    pub(super) bytes: u64,
}

/// The two files of a thread.
pub(super) struct SealedThread {
    stream: u32,
    index: Sealed,
    detail: Option<Sealed>,
    pending: usize,
    events: u64,
    first: u64,
    missing: u64,
}

/// What a thread is taken to need beside the bytes that wait.
const THREAD_BYTES: usize = 512;

/// What it takes in a journal to say how far a thread has come, with its share of what is said for all.
const END_BYTES: u64 = 256;

/// What an event takes in an index.
const EVENT_BYTES: u64 = 32;

impl SealedThread {
    pub(super) fn new(stream: u32, thread: OpenThread) -> Self {
        let OpenThread { writer, first, missing, .. } = thread;
        let (pending, events) = (writer.pending_bytes(), writer.len().into());
        let (index, detail) = writer.seal();
        Self { stream, index, detail, pending, events, first, missing }
    }
}

impl Finishing {
    /// How many bytes of its events wait.
    pub(super) fn pending_bytes(&self) -> usize {
        self.threads.iter().map(|thread| thread.pending).fold(0, usize::saturating_add)
    }

    /// Closes the files that an attempt has left open.
    pub(super) fn close_files(&self, handles: &mut Handles) {
        self.threads.iter().for_each(|thread| handles.close((self.id, thread.stream)));
    }

    /// How much memory it takes, about.
    pub(super) fn memory_bytes(&self) -> usize {
        let threads = self.threads.len().saturating_mul(THREAD_BYTES).saturating_add(self.pending_bytes());
        let manifest = self.manifest.as_ref().map_or(0, Vec::len);
        let spans = self.spans.as_ref().map_or(0, PartSpans::pending_bytes);
        threads.saturating_add(manifest).saturating_add(self.journal.pending_bytes()).saturating_add(spans)
    }

    /// How far its threads have come, those that lose most first; and how many of their events are in no file.
    pub(super) fn ends(&self) -> (Vec<StreamEnd>, u64) {
        let end = |thread: &SealedThread| {
            let path = self.dir.join(format!("thread_{}", thread.stream)).join("index.atf");
            let bytes = fs::metadata(path).map_or(0, |data| data.len()).saturating_sub(EDGE_BYTES as u64);
            // What is left of a footer may look like an event, but there are no more than there are.
            let unwritten = thread.events.saturating_sub(bytes / EVENT_BYTES);
            let produced = thread.events.saturating_add(thread.missing);
            let (stream, first, next) = (thread.stream, thread.first, thread.first.saturating_add(produced));
            // Gaps may be lost too, where the journal takes nothing.
            (unwritten, thread.missing, (stream, first, next))
        };
        let mut ends: Vec<_> = self.threads.iter().map(end).collect();
        ends.sort_by_key(|(unwritten, missing, _)| Reverse((unwritten.saturating_add(*missing), *unwritten)));
        let lost = ends.iter().map(|(unwritten, ..)| *unwritten).fold(0, u64::saturating_add);
        (ends.into_iter().map(|(.., end)| end).collect(), lost)
    }

    /// Goes on where the last attempt stopped.
    pub(super) fn step(&mut self, volume: &mut Volume) -> io::Result<()> {
        // All that may still have to be said is how far they have come.
        let keep = (self.threads.len() as u64).saturating_mul(END_BYTES).saturating_add(END_BYTES);
        volume.flush_journal(&mut self.journal, keep.min(ROOM_BYTES))?;
        self.finish_threads(volume)?;
        self.finish_spans(volume);
        if let Some(json) = &self.manifest {
            replace(&*volume.handles.files, &self.dir.join(MANIFEST), json)?;
            volume.count(json.len() as u64);
            self.manifest = None;
        }
        match volume.handles.files.remove(&self.dir.join(JOURNAL)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        volume.closed(self.bytes, &self.journal);
        volume.sync.ended();
        self.journal = Journal::default();
        volume.with_room(|room| room.add(&self.dir, self.session.as_deref()));
        volume.report_pending_table(&self.dir);
        Ok(())
    }

    /// Where the disk has no room for the events, the spans give theirs.
    fn finish_threads(&mut self, volume: &mut Volume) -> io::Result<()> {
        match self.write_threads(volume) {
            Err(error) if is_full(error.kind()) && self.give_up_spans(volume) => self.write_threads(volume),
            result => result,
        }
    }

    fn write_threads(&mut self, volume: &mut Volume) -> io::Result<()> {
        while let Some(thread) = self.threads.front_mut() {
            let key = (self.id, thread.stream);
            let (index_bytes, detail_bytes) =
                (thread.index.written_bytes(), thread.detail.as_ref().map(Sealed::written_bytes));
            let result = volume.handles.get(key, &self.dir, index_bytes, detail_bytes).and_then(|handle| {
                if let (Some(sealed), Some(out)) = (&mut thread.detail, &mut handle.detail) {
                    sealed.write_to(out)?;
                }
                thread.index.write_to(&mut handle.index)
            });
            volume.handles.close(key);
            result?;
            volume.pending = volume.pending.saturating_sub(thread.pending);
            volume.count(thread.pending as u64);
            self.threads.pop_front();
        }
        Ok(())
    }

    /// Spans that cannot be written to their end are not worth waiting for: they can be made again of the events.
    fn finish_spans(&mut self, volume: &mut Volume) {
        let Some(spans) = &mut self.spans else {
            // Spans that were given up before may have left something.
            let _ = volume.handles.files.remove(&self.dir.join(PARTIAL));
            // And a table that was made before the session went on lacks what came since.
            let _ = volume.handles.files.remove(&self.dir.join(SPANS));
            return;
        };
        let (written, result) = spans.finish(&*volume.handles.files, &self.dir);
        volume.wrote(written);
        self.bytes = self.bytes.saturating_add(written);
        match result {
            Ok(()) => {
                let table = Some(spans.entry());
                self.spans = None;
                self.change_manifest(|manifest| manifest.table = table);
            }
            Err(_) => {
                self.give_up_spans(volume);
            }
        }
    }

    /// There will be no file of spans, and the manifest says so. Tells whether there would have been one.
    pub(super) fn give_up_spans(&mut self, volume: &mut Volume) -> bool {
        let Some(mut spans) = self.spans.take() else { return false };
        spans.give_up(&*volume.handles.files, &self.dir);
        volume.counters.lost_spans.add(spans.rows);
        self.change_manifest(|manifest| match manifest.limits.iter_mut().find(|limit| limit.reason == LIMIT) {
            Some(limit) => limit.count = limit.count.saturating_add(spans.rows),
            None => manifest.limits.push(spans_limit(spans.rows)),
        });
        true
    }

    fn change_manifest(&mut self, change: impl FnOnce(&mut Manifest)) {
        let manifest = self.manifest.as_deref().and_then(|json| Manifest::parse(json).ok());
        if let Some(mut manifest) = manifest {
            change(&mut manifest);
            self.manifest = manifest.to_json().ok().or(self.manifest.take());
        }
    }
}
