//! A part that has all its events, and waits to be written to its end.

use std::{collections::VecDeque, io, path::PathBuf};

use codec::atf::{Manifest, Sealed, ThreadWriter};

use super::{
    files::replace,
    journal::{JOURNAL, Journal},
    room::MANIFEST,
    volume::Volume,
};

/// Footers first, then the manifest, then the journal goes: whenever it stops, what is there can be repaired.
pub(super) struct Finishing {
    pub(super) id: u64,
    pub(super) dir: PathBuf,
    /// The name of the session, as `dir` without suffixes.
    pub(super) session: String,
    pub(super) threads: VecDeque<SealedThread>,
    pub(super) manifest: Option<Manifest>,
    pub(super) journal: Journal,
    /// What the part has on disk.
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
}

impl SealedThread {
    pub(super) fn new(stream: u32, writer: ThreadWriter, (index_bytes, detail_bytes): (u64, u64)) -> Self {
        let pending = writer.pending_bytes();
        let (index, detail) = writer.seal();
        Self { stream, index, detail, index_bytes, detail_bytes, pending }
    }
}

impl Finishing {
    /// How many bytes of its events wait.
    pub(super) fn pending_bytes(&self) -> usize {
        self.threads.iter().map(|thread| thread.pending).fold(0, usize::saturating_add)
    }

    /// Goes on where the last attempt stopped.
    pub(super) fn step(&mut self, volume: &mut Volume) -> io::Result<()> {
        self.journal.flush()?;
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
        if let Some(manifest) = &self.manifest {
            let json = manifest.to_json().map_err(io::Error::other)?;
            replace(&*volume.handles.files, &self.dir.join(MANIFEST), &json)?;
            volume.counters.wrote(json.len() as u64);
            self.manifest = None;
        }
        match volume.handles.files.remove(&self.dir.join(JOURNAL)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.journal = Journal::default();
        volume.open_bytes = volume.open_bytes.saturating_sub(self.bytes);
        if let Some(room) = &mut volume.room {
            room.add(&self.dir, &self.session);
        }
        Ok(())
    }
}
