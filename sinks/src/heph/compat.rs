//! Only what Heph's own tools can read.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use codec::heph::{Attribute, Encode, Event, MAX_PACKET_BYTES, Metadata, Packets, Value};

use crate::{Batch, Ended, Gap, Session, Sink, SinkError, output::Output};

/// Writes the epoch, and events with attributes that are no arrays: what Heph's own tools read.
///
/// Such a trace has room for one session only. With a file name, each further session gets a file of its own:
/// `trace.heph`, `trace-2.heph`, …. What is missing cannot be said in it; the counters of events tell.
pub struct HephCompatSink {
    target: Target,
    outputs: HashMap<String, Output<Box<dyn Write + Send>>>,
    left_out: Arc<AtomicU64>,
    lost_events: u64,
}

enum Target {
    /// Files of this name, and how many there are.
    Files(PathBuf, u32),
    /// The one that takes the first session.
    Pipe(Option<Box<dyn Write + Send>>),
}

/// How many names are tried for a file.
const MOST_ATTEMPTS: u32 = 10_000;

impl HephCompatSink {
    /// Writes to files of this name. The first may replace one that is there, the others do not.
    pub fn create(path: impl Into<PathBuf>) -> Self {
        Self::with(Target::Files(path.into(), 0))
    }

    /// Writes the first session to `out`. Further ones are refused.
    pub fn new(out: impl Write + Send + 'static) -> Self {
        Self::with(Target::Pipe(Some(Box::new(out))))
    }

    fn with(target: Target) -> Self {
        Self { target, outputs: HashMap::new(), left_out: Arc::default(), lost_events: 0 }
    }

    /// How many attributes were left out because they are arrays.
    pub fn left_out(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.left_out)
    }

    /// Events that could not be kept.
    pub fn lost_events(&self) -> u64 {
        self.lost_events
    }

    fn output(&mut self, session: &Session) -> Result<&mut Output<Box<dyn Write + Send>>, SinkError> {
        let name = &session.name;
        if !self.outputs.contains_key(name) {
            let out = self.target.next().map_err(|source| {
                let what = format!("no room for the session {name} in a trace of one session");
                SinkError::Failed { what, source }
            })?;
            self.outputs.insert(name.clone(), Output::new(out));
        }
        self.outputs.get_mut(name).ok_or(SinkError::Closed)
    }
}

impl Target {
    fn next(&mut self) -> io::Result<Box<dyn Write + Send>> {
        match self {
            Self::Pipe(out) => out.take().ok_or_else(|| io::ErrorKind::Unsupported.into()),
            Self::Files(path, made) => {
                while *made < MOST_ATTEMPTS {
                    *made += 1;
                    let file = match *made {
                        1 => File::create(&*path),
                        number => File::create_new(numbered(path, number)),
                    };
                    match file {
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                        file => return file.map(|file| Box::new(file) as Box<dyn Write + Send>),
                    }
                }
                Err(io::ErrorKind::AlreadyExists.into())
            }
        }
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
    fn start(&mut self, session: &Arc<Session>) -> Result<(), SinkError> {
        self.output(session).map(drop)
    }

    fn options(&mut self, session: &Arc<Session>, packets: &[u8]) -> Result<(), SinkError> {
        let output = self.output(session)?;
        let mut packets = Packets::new(packets, MAX_PACKET_BYTES);
        let named = |packet| Metadata::decode(packet).map(|metadata| (packet, metadata.name));
        while let Some(Ok((packet, name))) = packets.next_with(named) {
            if name == "epoch" {
                output.buffer()?.extend_from_slice(packet);
            }
        }
        output.relieve()
    }

    fn events(&mut self, batch: &Arc<Batch>) -> Result<(), SinkError> {
        let left_out = Arc::clone(&self.left_out);
        let output = match self.output(&batch.session).and_then(|output| output.buffer().map(drop).map(|()| output)) {
            Ok(output) => output,
            Err(error) => {
                self.lost_events = self.lost_events.saturating_add(batch.events());
                return Err(error);
            }
        };
        let buffer = output.buffer()?;
        for run in batch.iter() {
            let mut packets = Packets::new(run.bytes, MAX_PACKET_BYTES);
            let decode = |packet| Event::decode(packet).map(|event| (packet, event));
            while let Some(Ok((packet, event))) = packets.next_with(decode) {
                // ORDERING: the number says nothing about other memory.
                left_out.fetch_add(write_event(packet, &event, buffer), Ordering::Relaxed);
            }
        }
        output.relieve()
    }

    fn gap(&mut self, _: &Arc<Session>, _: &Gap) -> Result<(), SinkError> {
        Ok(())
    }

    fn end(&mut self, session: &Arc<Session>, _: &Ended) -> Result<(), SinkError> {
        match self.outputs.remove(&session.name) {
            Some(mut output) => output.flush(),
            None => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.outputs.values_mut().map(Output::flush).fold(Ok(()), Result::and)
    }

    fn close(&mut self) -> Result<(), SinkError> {
        self.flush()
    }
}

/// Writes an event without its arrays, and tells how many those were.
fn write_event(packet: &[u8], event: &Event<'_>, buffer: &mut Vec<u8>) -> u64 {
    let is_scalar = |attribute: &Attribute<'_>| {
        matches!(attribute.value, Value::U64(_) | Value::I64(_) | Value::F64(_) | Value::Str(_))
    };
    let arrays = event.attributes.iter().filter(|attribute| !is_scalar(attribute)).count() as u64;
    if arrays == 0 {
        buffer.extend_from_slice(packet);
    } else {
        let scalars: Vec<_> = event.attributes.iter().filter(is_scalar).collect();
        // It is smaller than the packet it came in.
        let _ = Event { attributes: scalars.as_slice().into(), ..*event }.encode(buffer);
    }
    arrays
}
