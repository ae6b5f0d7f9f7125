//! Spans as a Parquet file, `spans.parquet`: a table with a row for each.

mod bits;
mod buffer;
mod chunk;
mod columns;
mod delta;
mod hybrid;
mod texts;
mod thrift;

use std::{
    fs::File,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use codec::span::{More, Span, SpanId, SpanKind};
use parquet::{
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        reader::{FileReader, SerializedFileReader},
        writer::SerializedFileWriter,
    },
};

use crate::{Catalog, NameCache, Session};
use buffer::Buffers;
use texts::Texts;

pub use columns::{SPAN_COLUMNS, SpanColumn};

/// Makes a Parquet file of spans. It writes nothing itself: what is to be written is asked for, and no error of a disk
/// gets in between. The file can be read only once all of it is there, since the index comes last.
///
/// `docs/trace-format.md` describes the columns.
pub struct SpanTable {
    writer: SerializedFileWriter<Tail>,
    tail: Tail,
    buffers: Buffers,
    texts: Texts,
    names: NameCache,
    rows: u64,
}

/// A row group has this many rows, if nobody asks for it earlier.
pub(crate) const GROUP_ROWS: usize = 128 << 10;

impl SpanTable {
    /// A file without rows.
    pub fn new() -> io::Result<Self> {
        let tail = Tail::default();
        let schema = columns::schema().map_err(error)?;
        let writer = SerializedFileWriter::new(tail.clone(), schema, columns::properties()).map_err(error)?;
        let (buffers, texts, names) = (Buffers::new(), Texts::default(), NameCache::new());
        Ok(Self { writer, tail, buffers, texts, names, rows: 0 })
    }

    /// How many rows it has.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// How many of them are not among the bytes yet.
    pub fn waiting_rows(&self) -> usize {
        self.buffers.rows
    }

    /// Adds a row.
    pub fn push(&mut self, catalog: &Catalog, span: &Span) -> io::Result<()> {
        let name = self.names.of(catalog, span);
        let function = self.texts.shared(&name.pretty);
        let symbol = name.raw.as_ref().map(|raw| self.texts.shared(raw));
        let module = name.module.as_ref().map(|module| self.texts.shared(module));
        let mut row = self.buffers.row();
        row.long(Some(span.id.number()));
        row.text(Some(self.texts.word(span.kind.name())));
        row.text(Some(self.texts.word(span.kind.runtime().name())));
        row.text(Some(self.texts.word(span.status.name())));
        row.text(span.reason.map(|reason| self.texts.word(reason.name())));
        row.text(Some(function));
        row.text(symbol);
        row.text(module);
        row.long(span.key());
        row.long(span.parent.map(SpanId::number));
        row.long(span.twin.map(SpanId::number));
        row.int(Some(span.stream.0));
        row.long(Some(span.substream.0).filter(|task| *task != 0));
        row.int(Some(span.depth).filter(|_| span.kind == SpanKind::Frame));
        row.time(Some(span.start.0));
        row.time(span.end.map(|end| end.0));
        row.time(span.duration());
        row.text(Some(self.texts.flags(span.flags)));
        if let Some(more) = &span.more {
            push_more(row, &mut self.texts, more, catalog);
        }
        self.rows += 1;
        match self.buffers.end_row() >= GROUP_ROWS {
            true => self.end_group(),
            false => Ok(()),
        }
    }

    /// Ends the row group: all rows so far are among the bytes then. Many small groups make a large file.
    pub fn end_group(&mut self) -> io::Result<()> {
        if self.buffers.rows > 0 {
            self.buffers.write(&mut self.writer, &self.texts).map_err(error)?;
            self.texts.clear();
        }
        Ok(())
    }

    /// The bytes that come next in the file.
    pub fn take_bytes(&mut self) -> Vec<u8> {
        self.tail.take()
    }

    /// The last bytes. Says whose spans they are.
    pub fn finish(mut self, session: &Session) -> io::Result<Vec<u8>> {
        self.end_group()?;
        let mut tell = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                self.writer.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
            }
        };
        let catalog = session.catalog();
        let id = catalog.session().map(|process| process.id).or(session.id);
        tell("session", id.map(|id| id.to_string()));
        tell("session_name", Some(session.name.clone()));
        tell("clock", catalog.clock().map(|clock| clock.clock.name().into()));
        tell("clock_zero_ns", catalog.clock().map(|clock| clock.zero_ns.to_string()));
        tell("epoch_unix_ns", catalog.epoch().map(|epoch| epoch.unix_ns.to_string()));
        tell("spoor_version", Some(env!("CARGO_PKG_VERSION").into()));
        drop(catalog);
        self.writer.finish().map_err(error)?;
        Ok(self.tail.take())
    }
}

fn push_more(mut row: buffer::Row<'_>, texts: &mut Texts, more: &More, catalog: &Catalog) {
    row.list(more.threads.iter().map(|stream| stream.0));
    row.int(more.end_stream.map(|stream| stream.0));
    row.time(more.created.map(|at| at.0));
    row.time(more.latency);
    row.int(more.creator.map(|stream| stream.0));
    row.long(more.origin.map(SpanId::number));
    row.time(Some(more.suspended));
    row.int(Some(more.suspensions));
    row.long(more.queue);
    let label = more.queue.and_then(|queue| Some((queue, catalog.queue_label(queue)?)));
    row.text(label.map(|(queue, label)| texts.label(queue, label)));
    row.long(more.group);
    row.int(more.joiner.map(|stream| stream.0));
    row.time(more.join_latency);
    row.text(more.ending.map(|ending| texts.word(ending.name())));
    row.long(more.argument);
    row.long(more.result);
    row.int(Some(more.level));
    row.time(more.resumed.map(|at| at.0));
    row.text(more.cause.as_ref().map(|cause| texts.shared(cause)));
}

/// How many rows a file has, by its own account. An error says what is wrong with it.
pub(crate) fn table_rows(file: File) -> io::Result<u64> {
    let reader = SerializedFileReader::new(file).map_err(error)?;
    Ok(u64::try_from(reader.metadata().file_metadata().num_rows()).unwrap_or(0))
}

fn error(error: ParquetError) -> io::Error {
    io::Error::other(error)
}

/// The end of the file that nobody has taken yet.
#[derive(Clone, Default)]
struct Tail(Arc<Mutex<Vec<u8>>>);

impl Tail {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl io::Write for Tail {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
