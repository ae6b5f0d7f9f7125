//! What the spans of a table come to, to hold it against the events that it was made of.

use std::io;

use ahash::RandomState;
use codec::span::{Reason, Span, SpanKind};
use parquet::{
    column::reader::get_typed_column_reader,
    data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type},
    errors::{ParquetError, Result},
    file::reader::{FileReader, RowGroupReader, SerializedFileReader},
};
use storage::File;

use super::{chunks::Chunks, error};

/// How many spans there are, and a sum over what each is, where and when: the same whatever their order.
///
/// Callbacks do not count, for they depend on how spans were made and not on the events alone; nor does the status of
/// spans that have not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpanDigest {
    rows: u64,
    sum: u64,
    evicted: u64,
}

impl SpanDigest {
    /// How many spans count.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether spans were given up so that memory stayed bounded. Then others may come to something else.
    pub fn is_bounded(&self) -> bool {
        self.evicted > 0
    }

    /// Another span.
    pub fn add(&mut self, span: &Span) {
        self.evicted += u64::from(span.reason == Some(Reason::Evicted));
        if span.kind == SpanKind::Callback {
            return;
        }
        let time = |at: u64| at.min(i64::MAX.cast_unsigned()).to_le_bytes();
        let id = span.id.to_string();
        let (start, end) = (time(span.start.0), span.end.map(|end| time(end.0)));
        let status = end.map_or("", |_| span.status.name());
        let end = end.as_ref().map_or(&[][..], |end| end);
        let stream = span.stream.0.to_le_bytes();
        self.enter([id.as_bytes(), span.kind.name().as_bytes(), status.as_bytes(), &stream, &start, end]);
    }

    fn enter(&mut self, cells: [&[u8]; 6]) {
        self.rows += 1;
        self.sum = self.sum.wrapping_add(RandomState::with_seeds(1, 2, 3, 4).hash_one(cells));
    }

    /// That of a file.
    pub fn read(file: File) -> io::Result<Self> {
        let mut digest = Self::default();
        let reader = SerializedFileReader::new(Chunks::of(file)?).map_err(error)?;
        for group in 0..reader.num_row_groups() {
            digest.enter_group(&*reader.get_row_group(group).map_err(error)?).map_err(error)?;
        }
        Ok(digest)
    }

    fn enter_group(&mut self, group: &dyn RowGroupReader) -> Result<()> {
        let [ids, kinds, statuses, reasons] =
            ["id", "kind", "status", "reason"].map(|name| cells::<ByteArrayType>(group, name));
        let (ids, kinds, statuses, reasons) = (ids?, kinds?, statuses?, reasons?);
        let threads = cells::<Int32Type>(group, "thread")?;
        let (starts, ends) = (cells::<Int64Type>(group, "start_ns")?, cells::<Int64Type>(group, "end_ns")?);
        for row in 0..ids.len() {
            let time = |cells: &[Option<i64>]| cells.get(row).copied().flatten().map(i64::to_le_bytes);
            self.evicted += u64::from(text(&reasons, row) == Reason::Evicted.name().as_bytes());
            let kind = text(&kinds, row);
            if kind == SpanKind::Callback.name().as_bytes() {
                continue;
            }
            let thread = threads.get(row).copied().flatten().unwrap_or_default().to_le_bytes();
            let (start, end) = (time(&starts).unwrap_or_default(), time(&ends));
            let status = end.map_or(&[][..], |_| text(&statuses, row));
            let end = end.as_ref().map_or(&[][..], |end| end);
            self.enter([text(&ids, row), kind, status, &thread, &start, end]);
        }
        Ok(())
    }
}

fn text(cells: &[Option<ByteArray>], row: usize) -> &[u8] {
    cells.get(row).and_then(Option::as_ref).map_or(&[], ByteArray::data)
}

/// What a row group has in a column that is no list.
fn cells<T: DataType>(group: &dyn RowGroupReader, name: &str) -> Result<Vec<Option<T::T>>> {
    // Older tables call the kind of a span its type, and have fewer columns.
    let is_it = |known: &str| known == name || (name == "kind" && known == "type");
    let columns = group.metadata().columns().iter();
    let place = columns
        .map(|column| column.column_path().parts())
        .position(|path| path.first().is_some_and(|first| is_it(first)));
    let place = place.ok_or_else(|| ParquetError::General(format!("there is no column {name}")))?;
    let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
    let mut reader = get_typed_column_reader::<T>(group.get_column_reader(place)?);
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let mut read = 0;
    while read < rows {
        match reader.read_records(rows - read, Some(&mut levels), None, &mut values)?.0 {
            0 => return Err(ParquetError::General(format!("column {name} has {read} of {rows} rows"))),
            more => read += more,
        }
    }
    let mut values = values.into_iter();
    Ok(match levels.is_empty() {
        true => values.map(Some).collect(),
        false => levels.into_iter().map(|level| if level > 0 { values.next() } else { None }).collect(),
    })
}
