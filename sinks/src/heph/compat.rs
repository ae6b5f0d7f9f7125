//! Only what Heph's own tools can read.

mod frames;

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use codec::{heph::Encode, profile::ProfileOption};

use self::frames::Frames;
use crate::{Batch, Budget, Ended, Gap, Session, Sink, SinkError, output::Output, probe::probe};

/// Writes what Heph's own tools read: the epoch, and an event for each call of a function, named by the function, from
/// its entry to its return; and each other event, with attributes that are no arrays. Packets are small and times are
/// whole microseconds, as Heph's converter needs them.
///
/// A call that has not returned lasts until the end of its stream. One that ended without a return, as in a tail call,
/// has no length, and lies where that was noticed.
///
/// Such a trace has room for one session only. Each further session gets a file of its own: `trace.heph`,
/// `trace-2.heph`, …. What is missing cannot be said in it.
#[derive(Debug)]
pub struct HephCompatSink {
    path: PathBuf,
    /// How many names were tried.
    tried: u32,
    outputs: HashMap<String, OpenFile>,
    /// What all sessions remember.
    budget: Budget,
}

/// The file of a session that goes on.
#[derive(Debug)]
struct OpenFile {
    session: Arc<Session>,
    out: Output<File>,
    frames: Frames,
}

impl OpenFile {
    fn finish(mut self) -> Result<(), SinkError> {
        self.frames.finish(&self.session.catalog(), self.out.buffer()?);
        self.out.flush()
    }
}

/// How many names are tried for files.
const MOST_ATTEMPTS: u32 = 10_000;

impl HephCompatSink {
    /// Writes to files of this name. The first may replace one that is there, the others do not. A session gets its file
    /// with the first thing that is written of it. Fails if no file can be made there.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, SinkError> {
        let path = path.into();
        let usable = match fs::metadata(&path) {
            // What is in it stays until there is something to write.
            Ok(data) if data.is_file() => OpenOptions::new().write(true).open(&path).map(drop),
            Ok(data) if data.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            // A pipe may have no reader yet.
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                probe(parent.unwrap_or(Path::new(".")))
            }
            Err(error) => Err(error),
        };
        usable.map_err(|source| SinkError::Failed { what: format!("cannot make {}", path.display()), source })?;
        Ok(Self { path, tried: 0, outputs: HashMap::new(), budget: Budget::default() })
    }

    /// The same, and it remembers no more calls and names than a budget that others share has room for.
    pub fn within(self, budget: &Budget) -> Self {
        Self { budget: budget.share(), ..self }
    }

    /// The file of a session. It starts with the epoch, which Heph's converter cannot read at the end of a file.
    fn file(&mut self, session: &Arc<Session>) -> Result<&mut OpenFile, SinkError> {
        let name = &session.name;
        if !self.outputs.contains_key(name) {
            let file = self.next_file().map_err(|source| {
                let what = format!("cannot make a file like {} for the session {name}", self.path.display());
                SinkError::Failed { what, source }
            })?;
            let mut head = Vec::new();
            if let Some(epoch) = session.catalog().epoch() {
                // It is small enough.
                let _ = ProfileOption::from(epoch).encode(&mut head);
            }
            let out = Output::starting_with(file, &head);
            let (session, frames) = (Arc::clone(session), Frames::new(&self.budget));
            self.outputs.insert(name.clone(), OpenFile { session, out, frames });
        }
        self.outputs.get_mut(name).ok_or(SinkError::Closed)
    }

    fn next_file(&mut self) -> io::Result<File> {
        while self.tried < MOST_ATTEMPTS {
            let number = self.tried + 1;
            let file = match number {
                1 => File::create(&self.path)?,
                number => match File::create_new(numbered(&self.path, number)) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                        self.tried = number;
                        continue;
                    }
                    file => file?,
                },
            };
            self.tried = number;
            return Ok(file);
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

/// `trace.heph` as `trace-2.heph`.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

impl Sink for HephCompatSink {
    fn start(&mut self, _: &Arc<Session>) -> Result<(), SinkError> {
        Ok(())
    }

    fn options(&mut self, _: &Arc<Session>, _: &[u8]) -> Result<(), SinkError> {
        Ok(())
    }

    fn events(&mut self, batch: &Arc<Batch>) -> Result<(), SinkError> {
        if batch.bytes.is_empty() {
            return Ok(());
        }
        let OpenFile { out, frames, .. } = self.file(&batch.session)?;
        let buffer = out.buffer()?;
        let catalog = batch.session.catalog();
        for run in batch.iter() {
            let stream = run.run.stream;
            run.for_each(|message| frames.event(stream, &message, &catalog, buffer));
        }
        // Writing may block, and the collector must be able to enter what it receives meanwhile.
        drop(catalog);
        out.relieve()
    }

    fn gap(&mut self, _: &Arc<Session>, _: &Gap) -> Result<(), SinkError> {
        Ok(())
    }

    fn end(&mut self, session: &Arc<Session>, _: &Ended) -> Result<(), SinkError> {
        self.outputs.remove(&session.name).map_or(Ok(()), OpenFile::finish)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.outputs.values_mut().map(|file| file.out.flush()).fold(Ok(()), Result::and)
    }

    fn close(&mut self) -> Result<(), SinkError> {
        self.outputs.drain().map(|(_, file)| file.finish()).fold(Ok(()), Result::and)
    }

    fn takes_more(&self) -> bool {
        self.outputs.values().all(|file| file.out.takes_more())
    }
}
