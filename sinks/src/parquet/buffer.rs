//! The rows of a row group, column by column.

use std::io::Write;

use parquet::{
    errors::{ParquetError, Result},
    file::writer::SerializedFileWriter,
};

use super::{
    chunk::Chunk,
    columns::{SPAN_COLUMNS, Shape, SpanColumn},
    hybrid::Hybrid,
    texts::Texts,
};

/// All columns, and how many rows are whole.
pub(super) struct Buffers {
    columns: Vec<Buffer>,
    pub(super) rows: usize,
}

/// The values of one column. What is missing at its end is nothing: most columns are empty in most rows.
struct Buffer {
    column: &'static SpanColumn,
    /// What is not nothing; of a text, its number.
    values: Vec<u64>,
    /// For each value or nothing, whether something is there.
    levels: Hybrid,
    /// Of a list, for each element whether it goes on with the list before it.
    repeats: Hybrid,
    /// How many levels there are.
    entries: usize,
    /// How many rows the levels stand for.
    rows: usize,
}

/// A row that is being filled, from the first column to the last.
pub(super) struct Row<'b> {
    columns: std::slice::IterMut<'b, Buffer>,
    row: usize,
}

impl Buffers {
    pub(super) fn new() -> Self {
        let buffer = |column: &'static SpanColumn| {
            // A list is nothing, or empty, or has elements.
            let levels = Hybrid::new(if column.shape == Shape::Ints { 2 } else { 1 });
            Buffer { column, values: Vec::new(), levels, repeats: Hybrid::new(1), entries: 0, rows: 0 }
        };
        Self { columns: SPAN_COLUMNS.iter().map(buffer).collect(), rows: 0 }
    }

    /// The next row. Columns that are not filled are empty.
    pub(super) fn row(&mut self) -> Row<'_> {
        Row { columns: self.columns.iter_mut(), row: self.rows }
    }

    /// Ends the row, and tells how many there are.
    pub(super) fn end_row(&mut self) -> usize {
        self.rows += 1;
        self.rows
    }

    /// Writes a row group, and forgets its rows.
    pub(super) fn write<W: Write + Send>(&mut self, to: &mut SerializedFileWriter<W>, texts: &Texts) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        let descriptions = to.schema_descr().columns().to_vec();
        if descriptions.len() != self.columns.len() {
            return Err(ParquetError::General("there are other columns".into()));
        }
        let mut group = to.next_row_group()?;
        for (buffer, description) in self.columns.iter_mut().zip(descriptions) {
            buffer.nothing_until(rows);
            let (bytes, close) = buffer.chunk(rows).encode(description, texts)?;
            group.append_column(&bytes, close)?;
            buffer.clear();
        }
        group.close().map(drop)
    }
}

impl Buffer {
    /// Says that the rows up to this one have nothing here.
    #[inline]
    fn nothing_until(&mut self, row: usize) {
        let more = row.saturating_sub(self.rows);
        if more > 0 {
            self.level(0, more);
            self.repeats.repeat(0, more);
        }
        self.rows = row;
    }

    /// Says that this row has something here.
    #[inline]
    fn something_in(&mut self, row: usize) {
        if row > self.rows {
            self.nothing_until(row);
        }
        self.level(1, 1);
        self.rows = row.saturating_add(1);
    }

    #[inline]
    fn level(&mut self, level: u64, times: usize) {
        self.levels.repeat(level, times);
        self.entries = self.entries.saturating_add(times);
    }

    fn chunk(&mut self, rows: usize) -> Chunk<'_> {
        let (levels, repeats) = (self.levels.take(), self.repeats.take());
        Chunk {
            column: self.column,
            rows,
            entries: self.entries,
            repeats: (self.column.shape == Shape::Ints).then_some(repeats),
            levels: (!self.column.required).then_some(levels),
            values: &self.values,
        }
    }

    fn clear(&mut self) {
        self.values.clear();
        (self.entries, self.rows) = (0, 0);
    }
}

impl Row<'_> {
    /// An id, a key or an address.
    #[inline]
    pub(super) fn long(&mut self, value: Option<u64>) {
        let Some(column) = self.columns.next() else { return };
        if let Some(value) = value {
            column.something_in(self.row);
            column.values.push(value);
        }
    }

    /// A time. Those that do not fit are the last one that does.
    #[inline]
    pub(super) fn time(&mut self, value: Option<u64>) {
        self.long(value.map(|value| value.min(i64::MAX.cast_unsigned())));
    }

    /// A thread or a count.
    #[inline]
    pub(super) fn int(&mut self, value: Option<u32>) {
        self.long(value.map(u64::from));
    }

    /// A text, by its number.
    #[inline]
    pub(super) fn text(&mut self, number: Option<u32>) {
        self.int(number);
    }

    /// A list; an empty one is nothing.
    pub(super) fn list(&mut self, elements: impl Iterator<Item = u32>) {
        let Some(column) = self.columns.next() else { return };
        let before = column.values.len();
        column.values.extend(elements.map(u64::from));
        let more = column.values.len().saturating_sub(before);
        if more > 0 {
            column.nothing_until(self.row);
            column.level(2, more);
            column.repeats.push(0);
            column.repeats.repeat(1, more.saturating_sub(1));
            column.rows = self.row.saturating_add(1);
        }
    }
}
