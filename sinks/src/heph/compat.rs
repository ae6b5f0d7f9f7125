//! Only what Heph's own tools can read.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use codec::{
    heph::{Attribute, Encode, Event, MAX_PACKET_BYTES, Metadata, Packets, Value},
    profile::{FunctionEvent, Message},
};

use crate::{Batch, Ended, Gap, Session, Sink, SinkError, output::Output, probe::probe};

/// Writes the epoch, and each event in a packet of its own, with attributes that are no arrays: what Heph's own tools
/// read.
///
/// Such a trace has room for one session only. Each further session gets a file of its own: `trace.heph`,
/// `trace-2.heph`, …. What is missing cannot be said in it; the counters of events tell.
#[derive(Debug)]
pub struct HephCompatSink {
    path: PathBuf,
    /// How many names were tried.
    tried: u32,
    outputs: HashMap<String, Output<File>>,
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
        Ok(Self { path, tried: 0, outputs: HashMap::new() })
    }

    fn output(&mut self, session: &Session) -> Result<&mut Output<File>, SinkError> {
        let name = &session.name;
        if !self.outputs.contains_key(name) {
            let file = self.next_file().map_err(|source| {
                let what = format!("cannot make a file like {} for the session {name}", self.path.display());
                SinkError::Failed { what, source }
            })?;
            self.outputs.insert(name.clone(), Output::new(file));
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

    fn options(&mut self, session: &Arc<Session>, packets: &[u8]) -> Result<(), SinkError> {
        let mut packets = Packets::new(packets, MAX_PACKET_BYTES);
        let named = |packet| Metadata::decode(packet).map(|metadata| (packet, metadata.name));
        while let Some(Ok((packet, name))) = packets.next_with(named) {
            if name == "epoch" {
                self.output(session)?.buffer()?.extend_from_slice(packet);
            }
        }
        self.outputs.get_mut(&session.name).map_or(Ok(()), Output::relieve)
    }

    fn events(&mut self, batch: &Arc<Batch>) -> Result<(), SinkError> {
        if batch.bytes.is_empty() {
            return Ok(());
        }
        let output = self.output(&batch.session)?;
        let buffer = output.buffer()?;
        let mut packet = Vec::new();
        batch.iter().flatten().for_each(|message| write_event(&message, &mut packet, buffer));
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

    fn takes_more(&self) -> bool {
        self.outputs.values().all(Output::takes_more)
    }
}

/// Writes an event without its arrays. `packet` is there to be reused.
fn write_event(message: &Message<'_>, packet: &mut Vec<u8>, buffer: &mut Vec<u8>) {
    let is_scalar = |attribute: &Attribute<'_>| {
        matches!(attribute.value, Value::U64(_) | Value::I64(_) | Value::F64(_) | Value::Str(_))
    };
    // Each came in a packet at least as large as the one that is written.
    let _ = match message {
        Message::Function(event) if event.extra.is_empty() => FunctionEvent { detail: None, ..*event }.encode(buffer),
        _ => {
            packet.clear();
            let Ok(_) = message.encode(packet) else { return };
            let Ok(event) = Event::decode(packet) else { return };
            let scalars: Vec<_> = event.attributes.iter().filter(is_scalar).collect();
            Event { attributes: scalars.as_slice().into(), ..event }.encode(buffer)
        }
    };
}
