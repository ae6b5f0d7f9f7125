//! A part that has all its events, and waits to be written to its end.

use std::{collections::VecDeque, fs, io, path::PathBuf};

use codec::atf::{EDGE_BYTES, Sealed, ThreadWriter};

use super::{
    files::replace,
    handles::Handles,
    journal::{JOURNAL, Journal},
    room::MANIFEST,
    volume::Volume,
};

/// Footers first, then the manifest, then the journal goes: whenever it stops, what is there can be repaired.
pub(super) struct Finishing {
    pub(super) id: u64,
    pub(super) dir: PathBuf,
    /// The name of the session, as `dir` without suffixes, as long as it goes on.
    pub(super) session: Option<String>,
    pub(super) threads: VecDeque<SealedThread>,
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
    index_bytes: u64,
    detail_bytes: u64,
    pending: usize,
    events: u64,
}

/// What a thread is taken to need beside the bytes that wait.
const THREAD_BYTES: usize = 512;

/// What an event takes in an index.
const EVENT_BYTES: u64 = 32;

impl SealedThread {
    pub(super) fn new(stream: u32, writer: ThreadWriter, (index_bytes, detail_bytes): (u64, u64)) -> Self {
        let (pending, events) = (writer.pending_bytes(), writer.len().into());
        let (index, detail) = writer.seal();
        Self { stream, index, detail, index_bytes, detail_bytes, pending, events }
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
        threads.saturating_add(manifest).saturating_add(self.journal.pending_bytes())
    }

    /// How many of its events are in no file.
    pub(super) fn unwritten_events(&self) -> u64 {
        let unwritten = self.threads.iter().map(|thread| {
            let path = self.dir.join(format!("thread_{}", thread.stream)).join("index.atf");
            let bytes = fs::metadata(path).map_or(0, |data| data.len()).saturating_sub(EDGE_BYTES as u64);
            // What is left of a footer may look like an event, but there are no more than there are.
            thread.events.saturating_sub(bytes / EVENT_BYTES)
        });
        unwritten.fold(0, u64::saturating_add)
    }

    /// Goes on where the last attempt stopped.
    pub(super) fn step(&mut self, volume: &mut Volume) -> io::Result<()> {
        volume.flush_journal(&mut self.journal)?;
        while let Some(thread) = self.threads.front_mut() {
            let key = (self.id, thread.stream);
            let detail_bytes = thread.detail.as_ref().map(|_| thread.detail_bytes);
            let result = volume.handles.get(key, &self.dir, thread.index_bytes, detail_bytes).and_then(|handle| {
                if let (Some(sealed), Some(out)) = (&mut thread.detail, &mut handle.detail) {
                    sealed.write_to(out)?;
                }
                thread.index.write_to(&mut handle.index)
            });
            volume.handles.close(key);
            result?;
            volume.pending = volume.pending.saturating_sub(thread.pending);
            volume.counters.wrote(thread.pending as u64);
            self.threads.pop_front();
        }
        if let Some(json) = &self.manifest {
            replace(&*volume.handles.files, &self.dir.join(MANIFEST), json)?;
            volume.counters.wrote(json.len() as u64);
            self.manifest = None;
        }
        match volume.handles.files.remove(&self.dir.join(JOURNAL)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        volume.closed(self);
        self.journal = Journal::default();
        if let Some(room) = &mut volume.room {
            room.add(&self.dir, self.session.as_deref());
        }
        Ok(())
    }
}
