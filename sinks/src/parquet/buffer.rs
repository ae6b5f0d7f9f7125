//! The rows of a row group, column by column.

use std::io::Write;

use parquet::{
    data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type},
    errors::{ParquetError, Result},
    file::writer::{SerializedColumnWriter, SerializedFileWriter},
};

use super::{
    columns::{SPAN_COLUMNS, Shape},
    texts::Texts,
};

/// All columns, and how many rows are whole.
pub(super) struct Buffers {
    columns: Vec<Buffer>,
    pub(super) rows: usize,
}

/// The values of one column. What is missing at its end is nothing: most columns are empty in most rows.
struct Buffer {
    values: Values,
    required: bool,
    /// For each value or nothing, whether something is there.
    levels: Vec<i16>,
    /// Of a list, for each element whether it goes on with the list before it.
    repeats: Vec<i16>,
    /// How many rows the levels stand for.
    rows: usize,
}

enum Values {
    Longs(Vec<i64>),
    Ints(Vec<i32>),
    Texts(Vec<u32>),
    Lists(Vec<i32>),
}

/// A row that is being filled, from the first column to the last.
pub(super) struct Row<'b> {
    columns: std::slice::IterMut<'b, Buffer>,
    row: usize,
}

/// How many texts are handed over at a time.
const TEXTS: usize = 4096;

impl Buffers {
    pub(super) fn new() -> Self {
        let buffer = |shape, required| {
            let values = match shape {
                Shape::Long | Shape::Time => Values::Longs(Vec::new()),
                Shape::Int => Values::Ints(Vec::new()),
                Shape::Text => Values::Texts(Vec::new()),
                Shape::Ints => Values::Lists(Vec::new()),
            };
            Buffer { values, required, levels: Vec::new(), repeats: Vec::new(), rows: 0 }
        };
        Self { columns: SPAN_COLUMNS.iter().map(|column| buffer(column.shape, column.required)).collect(), rows: 0 }
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

    /// Writes a row group.
    pub(super) fn write<W: Write + Send>(&mut self, to: &mut SerializedFileWriter<W>, texts: &Texts) -> Result<()> {
        let mut group = to.next_row_group()?;
        for buffer in &mut self.columns {
            buffer.nothing_until(self.rows);
            let column = group.next_column()?;
            let mut column = column.ok_or_else(|| ParquetError::General("there are too few columns".into()))?;
            buffer.write(&mut column, texts)?;
            column.close()?;
        }
        group.close().map(drop)
    }

    pub(super) fn clear(&mut self) {
        self.rows = 0;
        for column in &mut self.columns {
            match &mut column.values {
                Values::Longs(values) => values.clear(),
                Values::Ints(values) | Values::Lists(values) => values.clear(),
                Values::Texts(values) => values.clear(),
            }
            column.levels.clear();
            column.repeats.clear();
            column.rows = 0;
        }
    }
}

impl Buffer {
    /// Says that the rows up to this one have nothing here.
    fn nothing_until(&mut self, row: usize) {
        if !self.required {
            let more = row.saturating_sub(self.rows);
            self.levels.resize(self.levels.len().saturating_add(more), 0);
            if let Values::Lists(_) = self.values {
                self.repeats.resize(self.levels.len(), 0);
            }
        }
        self.rows = row;
    }

    /// Says that this row has something here.
    fn something_in(&mut self, row: usize) {
        if !self.required {
            self.nothing_until(row);
            self.levels.push(1);
        }
        self.rows = row.saturating_add(1);
    }

    fn write(&self, column: &mut SerializedColumnWriter<'_>, texts: &Texts) -> Result<()> {
        let levels = (!self.required).then_some(&*self.levels);
        match &self.values {
            Values::Longs(values) => column.typed::<Int64Type>().write_batch(values, levels, None).map(drop),
            Values::Ints(values) => column.typed::<Int32Type>().write_batch(values, levels, None).map(drop),
            Values::Lists(values) => {
                column.typed::<Int32Type>().write_batch(values, levels, Some(&self.repeats)).map(drop)
            }
            Values::Texts(numbers) => {
                let column = column.typed::<ByteArrayType>();
                let mut batch: Vec<ByteArray> = Vec::with_capacity(TEXTS);
                let mut numbers = numbers.iter();
                let mut hand_over = |count: usize, levels: Option<&[i16]>| {
                    batch.clear();
                    batch.extend(numbers.by_ref().take(count).map(|number| texts.text(*number)));
                    column.write_batch(&batch, levels, None).map(drop)
                };
                match levels {
                    None => (0..self.rows.div_ceil(TEXTS)).try_for_each(|_| hand_over(TEXTS, None)),
                    Some(levels) => levels.chunks(TEXTS).try_for_each(|levels| {
                        hand_over(levels.iter().filter(|level| **level > 0).count(), Some(levels))
                    }),
                }
            }
        }
    }
}

impl Row<'_> {
    /// An id, a key or an address.
    pub(super) fn long(&mut self, value: Option<u64>) {
        self.set(value, |values, value| {
            if let Values::Longs(values) = values {
                values.push(value.cast_signed());
            }
        });
    }

    /// A time. Those that do not fit are the last one that does.
    pub(super) fn time(&mut self, value: Option<u64>) {
        self.long(value.map(|value| value.min(i64::MAX.cast_unsigned())));
    }

    /// A thread or a count.
    pub(super) fn int(&mut self, value: Option<u32>) {
        self.set(value, |values, value| {
            if let Values::Ints(values) = values {
                values.push(value.cast_signed());
            }
        });
    }

    /// A text, by its number.
    pub(super) fn text(&mut self, number: Option<u32>) {
        self.set(number, |values, number| {
            if let Values::Texts(values) = values {
                values.push(number);
            }
        });
    }

    /// A list; an empty one is nothing.
    pub(super) fn list(&mut self, elements: impl Iterator<Item = u32>) {
        let Some(column) = self.columns.next() else { return };
        column.nothing_until(self.row);
        let Values::Lists(values) = &mut column.values else { return };
        let before = values.len();
        values.extend(elements.map(u32::cast_signed));
        let more = values.len().saturating_sub(before);
        if more > 0 {
            column.repeats.push(0);
            column.levels.resize(column.levels.len().saturating_add(more), 2);
            column.repeats.resize(column.levels.len(), 1);
            column.rows = self.row.saturating_add(1);
        }
    }

    fn set<T>(&mut self, value: Option<T>, push: impl FnOnce(&mut Values, T)) {
        let Some(column) = self.columns.next() else { return };
        if let Some(value) = value {
            column.something_in(self.row);
            push(&mut column.values, value);
        }
    }
}
