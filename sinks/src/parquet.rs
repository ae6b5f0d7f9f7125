//! Spans as a Parquet file, `spans.parquet`: a table with a row for each.

mod chunks;
mod column;
mod columns;
mod digest;
mod encode;
mod texts;

use std::{
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
use storage::File;

use crate::{Catalog, Session};
use chunks::Chunks;
use column::Column;
use columns::ARGUMENT_COLUMNS;
use texts::Texts;

pub use columns::{SPAN_COLUMNS, SpanColumn};
pub use digest::SpanDigest;

/// Makes a Parquet file of spans. It writes nothing itself: what is to be written is asked for, and no error of a disk
/// gets in between. The file can be read only once all of it is there, since the index comes last.
///
/// `docs/trace-format.md` describes the columns.
pub struct SpanTable {
    writer: SerializedFileWriter<Tail>,
    tail: Tail,
    columns: Vec<Column>,
    texts: Texts,
    /// How many rows are in no row group yet.
    waiting: u32,
    rows: u64,
}

/// A row group has this many rows, if nobody asks for it earlier.
const GROUP_ROWS: u32 = 128 << 10;

impl SpanTable {
    /// A file without rows.
    pub fn new() -> io::Result<Self> {
        Self::with(&[])
    }

    /// The same, with columns for the registers that arguments are passed in.
    pub fn with_arguments() -> io::Result<Self> {
        Self::with(ARGUMENT_COLUMNS)
    }

    fn with(further: &'static [SpanColumn]) -> io::Result<Self> {
        let tail = Tail::default();
        let all = || SPAN_COLUMNS.iter().chain(further);
        let schema = columns::schema(all()).map_err(error)?;
        let writer = SerializedFileWriter::new(tail.clone(), schema, columns::properties()).map_err(error)?;
        let columns = all().map(Column::new).collect();
        Ok(Self { writer, tail, columns, texts: Texts::default(), waiting: 0, rows: 0 })
    }

    /// How many rows it has.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// How many of them are not among the bytes yet.
    pub fn waiting_rows(&self) -> usize {
        self.waiting as usize
    }

    /// Adds a row.
    pub fn push(&mut self, catalog: &Catalog, span: &Span) -> io::Result<()> {
        self.push_with(catalog, span, &[])
    }

    /// Adds a row, with the arguments of a frame.
    pub fn push_with(&mut self, catalog: &Catalog, span: &Span, arguments: &[u64]) -> io::Result<()> {
        let columns = self.columns.get_mut(SPAN_COLUMNS.len()..).unwrap_or_default();
        for (column, argument) in columns.iter_mut().zip(arguments) {
            column.push(self.waiting, *argument);
        }
        let [function, symbol, module] = self.texts.name(catalog, span);
        let (tid, thread_name) = self.texts.thread(catalog, span.stream);
        let mut row = Row { columns: self.columns.iter_mut(), row: self.waiting };
        row.id(Some(span.id));
        row.int(Some(span.kind as u32));
        row.int(Some(span.kind.runtime() as u32));
        row.int(Some(span.status as u32));
        row.int(span.reason.map(|reason| reason as u32));
        row.int(function);
        row.int(symbol);
        row.int(module);
        row.long(span.key());
        row.id(span.parent);
        row.id(span.twin);
        row.int(Some(span.stream.0));
        row.long(tid);
        row.int(thread_name);
        row.long(Some(span.substream.0).filter(|task| *task != 0));
        row.int(Some(span.depth).filter(|_| span.kind == SpanKind::Frame));
        row.time(Some(span.start.0));
        row.time(span.end.map(|end| end.0));
        row.time(span.duration());
        row.int(Some(span.flags.0));
        if let Some(more) = &span.more {
            push_more(row, &mut self.texts, more, catalog);
        }
        self.rows += 1;
        self.waiting += 1;
        if self.waiting >= GROUP_ROWS { self.end_group() } else { Ok(()) }
    }

    /// Ends the row group: all rows so far are among the bytes then. Many small groups make a large file.
    pub fn end_group(&mut self) -> io::Result<()> {
        if self.waiting > 0 {
            let rows = std::mem::take(&mut self.waiting) as usize;
            column::write(&mut self.columns, rows, &self.texts, &mut self.writer).map_err(error)?;
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
        tell("parent", catalog.birth().map(|birth| birth.parent.to_string()));
        tell("clock", catalog.clock().map(|clock| clock.clock.name().into()));
        tell("clock_zero_ns", catalog.clock().map(|clock| clock.zero_ns.to_string()));
        tell("epoch_unix_ns", catalog.epoch().map(|epoch| epoch.unix_ns.to_string()));
        tell("spoor_version", Some(env!("CARGO_PKG_VERSION").into()));
        drop(catalog);
        self.writer.finish().map_err(error)?;
        Ok(self.tail.take())
    }
}

/// A row that is being filled, from the first column to the last. Columns that are not filled are empty.
struct Row<'b> {
    columns: std::slice::IterMut<'b, Column>,
    row: u32,
}

impl Row<'_> {
    /// A key or an address.
    #[inline]
    fn long(&mut self, value: Option<u64>) {
        if let (Some(column), Some(value)) = (self.columns.next(), value) {
            column.push(self.row, value);
        }
    }

    /// A time. Those that do not fit are the last one that does.
    #[inline]
    fn time(&mut self, value: Option<u64>) {
        self.long(value.map(|value| value.min(i64::MAX.cast_unsigned())));
    }

    /// A thread, a count, or what stands for a text.
    #[inline]
    fn int(&mut self, value: Option<u32>) {
        self.long(value.map(u64::from));
    }

    #[inline]
    fn id(&mut self, id: Option<SpanId>) {
        if let (Some(column), Some(id)) = (self.columns.next(), id) {
            column.push_id(self.row, id);
        }
    }

    /// A list; an empty one is nothing.
    fn list(&mut self, elements: impl Iterator<Item = u32>) {
        if let Some(column) = self.columns.next() {
            elements.for_each(|element| column.push(self.row, element.into()));
        }
    }
}

fn push_more(mut row: Row<'_>, texts: &mut Texts, more: &More, catalog: &Catalog) {
    row.list(more.threads.iter().map(|stream| stream.0));
    row.int(more.end_stream.map(|stream| stream.0));
    row.time(more.created.map(|at| at.0));
    row.time(more.latency);
    row.int(more.creator.map(|stream| stream.0));
    row.id(more.origin);
    row.time(Some(more.suspended));
    row.int(Some(more.suspensions));
    row.long(more.queue);
    let label = more.queue.and_then(|queue| catalog.queue_label(queue));
    row.int(label.map(|label| texts.number(label)));
    row.long(more.group);
    row.int(more.joiner.map(|stream| stream.0));
    row.time(more.join_latency);
    row.int(more.ending.map(|ending| ending as u32));
    row.long(more.argument);
    row.long(more.result);
    row.long(more.executor);
    row.int(more.resumer.map(|stream| stream.0));
    row.id(more.resumed_by);
    row.int(Some(more.level));
    row.time(more.resumed.map(|at| at.0));
    row.int(more.cause.as_ref().map(|cause| texts.number(cause)));
}

/// How many rows a file has, by its own account. An error says what is wrong with it.
pub(crate) fn table_rows(file: File) -> io::Result<u64> {
    let reader = SerializedFileReader::new(Chunks::of(file)?).map_err(error)?;
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
