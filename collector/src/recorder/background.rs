//! Writing to somebody who may not read.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    thread,
};

use rustix::fs::{FileType, fstat};

use super::SinkCounters;

/// How many bytes may wait to be written.
const LIMIT: usize = 8 << 20;

/// Where standard output leads: a file is written to at once, and anything else by a thread of its own.
pub(super) enum Stdout {
    File(io::Stdout),
    Background(BackgroundWriter),
}

impl Stdout {
    /// The writer in the background, if there is one.
    pub(super) fn as_background(&self) -> Option<&BackgroundWriter> {
        match self {
            Self::File(_) => None,
            Self::Background(writer) => Some(writer),
        }
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.write(bytes),
            Self::Background(writer) => writer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Background(writer) => writer.flush(),
        }
    }
}

/// Bytes on their way to somebody who may read them slowly, or not at all.
#[derive(Debug, Clone)]
pub(crate) struct BackgroundWriter {
    shared: Arc<Shared>,
    /// Whether it waits for room. Otherwise whoever writes looks for room first, and may then write more than fits.
    waits: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    counters: Arc<SinkCounters>,
}

#[derive(Debug, Default)]
struct State {
    chunks: VecDeque<Vec<u8>>,
    /// Bytes in them, and in the one that is being written.
    bytes: usize,
    /// Why nothing can be written any more: nobody reads, or something went wrong.
    failed: Option<io::ErrorKind>,
}

impl State {
    fn fail(&mut self, kind: io::ErrorKind) {
        (self.failed, self.bytes) = (Some(kind), 0);
        self.chunks.clear();
    }
}

impl BackgroundWriter {
    /// Writes to standard output.
    pub(super) fn stdout(counters: &Arc<SinkCounters>, waits: bool) -> Stdout {
        let stdout = io::stdout();
        match fstat(&stdout).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile) {
            true => Stdout::File(stdout),
            false => Stdout::Background(Self::new(stdout, counters, waits)),
        }
    }

    pub(super) fn new(out: impl Write + Send + 'static, counters: &Arc<SinkCounters>, waits: bool) -> Self {
        let shared = Arc::new(Shared { counters: Arc::clone(counters), ..Shared::default() });
        let writer = Arc::clone(&shared);
        thread::spawn(move || writer.write_all(out));
        Self { shared, waits }
    }

    /// Whether more can wait.
    pub(super) fn has_room(&self) -> bool {
        let state = self.shared.state();
        state.bytes < LIMIT || state.failed.is_some()
    }

    /// Whether no more than half of what can wait does.
    pub(super) fn is_half_empty(&self) -> bool {
        self.shared.state().bytes <= LIMIT / 2
    }

    /// Gives up what waits: whoever should read it takes nothing any more.
    pub(crate) fn give_up(&self) {
        let mut state = self.shared.state();
        state.fail(io::ErrorKind::BrokenPipe);
        self.shared.changed.notify_all();
    }

    /// Waits until everything has been written, or nothing more can be. Returns whether nothing went wrong: that nobody
    /// reads any more is no failure.
    pub(super) fn finish(&self) -> bool {
        let mut state = self.shared.state();
        while state.bytes > 0 && state.failed.is_none() {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.failed.is_none_or(|kind| kind == io::ErrorKind::BrokenPipe)
    }
}

impl Write for BackgroundWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.shared.state();
        while self.waits && state.bytes >= LIMIT && state.failed.is_none() {
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(kind) = state.failed {
            return Err(kind.into());
        }
        state.bytes += bytes.len();
        state.chunks.push_back(bytes.to_vec());
        self.shared.count(&state);
        self.shared.changed.notify_all();
        Ok(bytes.len())
    }

    /// It is on its way as soon as it was written here.
    fn flush(&mut self) -> io::Result<()> {
        self.shared.state().failed.map_or(Ok(()), |kind| Err(kind.into()))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, state: &State) {
        self.counters.backlog_bytes.store(state.bytes as u64, Relaxed);
    }

    fn write_all(&self, mut out: impl Write) {
        loop {
            let mut state = self.state();
            let chunk = loop {
                match state.chunks.pop_front() {
                    Some(chunk) => break chunk,
                    None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(state);
            let result = out.write_all(&chunk).and_then(|()| out.flush());
            let mut state = self.state();
            if state.failed.is_some() {
                return;
            }
            state.bytes = state.bytes.saturating_sub(chunk.len());
            if let Err(error) = &result {
                state.fail(error.kind());
            }
            self.counters.taken.fetch_add(1, Relaxed);
            self.count(&state);
            self.changed.notify_all();
            if result.is_err() {
                return;
            }
        }
    }
}
