//! A column of a row group: its values, and the pages that they become.
//!
//! The pages are made here, since much is known that a library has to find out: each text has a number already, and
//! what is nothing comes in long runs.

use std::{
    borrow::Cow,
    collections::HashMap,
    io::Write,
    mem,
    panic::resume_unwind,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use ahash::RandomState;
use bytes::Bytes;
use codec::span::SpanId;
use parquet::{
    basic::{Compression, Encoding, PageType},
    column::{
        page::{CompressedPage, Page, PageWriter},
        writer::ColumnCloseResult,
    },
    errors::{ParquetError, Result},
    file::{
        metadata::{ColumnChunkMetaData, PageEncodingStats},
        statistics::{Statistics, ValueStatistics},
        writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite},
    },
    schema::types::ColumnDescPtr,
};

use super::{
    columns::{Shape, SpanColumn},
    encode::{differences, one_run, runs},
    texts::Texts,
};

/// The values of one column.
pub(super) struct Column {
    spec: &'static SpanColumn,
    /// The row of each value, once a row had none or several: until then its place is its row.
    rows: Vec<u32>,
    is_sparse: bool,
    /// Numbers, and what stands for texts.
    values: Vec<u64>,
    /// How often the first of them comes, for as long as it is the only one.
    same: usize,
    /// Ids of spans, where they are no numbers.
    ids: Vec<SpanId>,
}

impl Column {
    pub(super) fn new(spec: &'static SpanColumn) -> Self {
        Self { spec, rows: Vec::new(), is_sparse: false, values: Vec::new(), same: 0, ids: Vec::new() }
    }

    #[inline]
    pub(super) fn push(&mut self, row: u32, value: u64) {
        let before = self.same.max(self.values.len());
        if self.is_sparse || before != row as usize {
            self.note_row(row, before);
        }
        match self.values.first() {
            Some(first) if self.same > 0 && *first == value => self.same += 1,
            Some(first) if self.same > 0 => {
                let first = *first;
                self.values.resize(mem::take(&mut self.same), first);
                self.values.push(value);
            }
            Some(_) => self.values.push(value),
            None => {
                self.values.push(value);
                self.same = 1;
            }
        }
    }

    #[inline]
    pub(super) fn push_id(&mut self, row: u32, id: SpanId) {
        if self.is_sparse || self.ids.len() != row as usize {
            self.note_row(row, self.ids.len());
        }
        self.ids.push(id);
    }

    fn note_row(&mut self, row: u32, before: usize) {
        if !self.is_sparse {
            self.rows.extend(0..before as u32);
            self.is_sparse = true;
        }
        self.rows.push(row);
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.is_sparse = false;
        self.values.clear();
        self.same = 0;
        self.ids.clear();
    }

    /// How many values there are.
    fn len(&self) -> usize {
        self.same.max(self.values.len()).max(self.ids.len())
    }

    /// Says which rows have values, and returns how many entries there are: rows, or elements of lists and empty ones.
    fn put_levels(&self, rows: usize, to: &mut Vec<u8>) -> Result<usize> {
        let is_list = matches!(self.spec.shape, Shape::Ints);
        if self.spec.required {
            return Ok(rows);
        }
        // A list is nothing, or empty, or has elements.
        let there = if is_list { 2 } else { 1 };
        // Most columns of most groups have all or nothing.
        if !self.is_sparse {
            let count = self.len();
            if is_list {
                put_levels(to, 1, |to, width| one_run(to, 0, rows, width))?;
            }
            put_levels(to, there, |to, width| {
                one_run(to, there, count, width);
                one_run(to, 0, rows.saturating_sub(count), width);
            })?;
            return Ok(rows);
        }
        let (mut levels, mut repeats) = (Vec::with_capacity(rows), Vec::new());
        let mut next = 0;
        for row in &self.rows {
            let again = row.checked_add(1) == Some(next) && is_list;
            let empty = row.saturating_sub(next) as usize;
            levels.extend(std::iter::repeat_n(0, empty));
            levels.push(there);
            if is_list {
                repeats.resize(levels.len().saturating_sub(1), 0);
                repeats.push(u32::from(again));
            }
            next = row.saturating_add(1);
        }
        let behind = rows.saturating_sub(next as usize);
        levels.extend(std::iter::repeat_n(0, behind));
        if is_list {
            repeats.resize(levels.len(), 0);
            put_levels(to, 1, |to, width| runs(to, &repeats, width))?;
        }
        put_levels(to, there, |to, width| runs(to, &levels, width))?;
        Ok(levels.len())
    }

    /// The bytes, and what the index says about them.
    fn encode(&self, rows: usize, descr: ColumnDescPtr, texts: &Texts) -> Result<(Bytes, ColumnCloseResult)> {
        let mut pages = Pages::new();
        let mut data = Vec::new();
        let entries = self.put_levels(rows, &mut data)?;
        let encoding = match self.spec.shape {
            _ if self.len() == 0 => Encoding::PLAIN,
            Shape::Id => {
                put_ids(&mut data, &self.ids);
                Encoding::DELTA_BYTE_ARRAY
            }
            Shape::Time => {
                match self.values.first() {
                    Some(only) if self.same > 0 => differences(&mut data, &vec![*only; self.same]),
                    _ => differences(&mut data, &self.values),
                }
                Encoding::DELTA_BINARY_PACKED
            }
            _ => {
                let distinct = put_places(&mut data, &self.values, self.same);
                let dictionary = self.dictionary(&distinct, texts)?;
                let (num_values, encoding) = (distinct.len() as u32, Encoding::PLAIN);
                let page = |buf| Page::DictionaryPage { buf, num_values, encoding, is_sorted: false };
                pages.add(&dictionary, encoding, page)?;
                Encoding::RLE_DICTIONARY
            }
        };
        let dictionary = (encoding == Encoding::RLE_DICTIONARY).then_some(0);
        let data_at = pages.sink.bytes_written() as i64;
        pages.add(&data, encoding, |buf| Page::DataPage {
            buf,
            num_values: entries as u32,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        })?;
        let Pages { sink, uncompressed, stats, .. } = pages;
        let bytes = sink.into_inner()?;
        let mut encodings: Vec<_> = stats.iter().map(|stats| stats.encoding).collect();
        encodings.push(Encoding::RLE);
        let mut metadata = ColumnChunkMetaData::builder(descr)
            .set_compression(Compression::SNAPPY)
            .set_encodings(encodings)
            .set_page_encoding_stats(stats)
            .set_num_values(entries as i64)
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(uncompressed)
            .set_dictionary_page_offset(dictionary)
            .set_data_page_offset(data_at);
        if matches!(self.spec.shape, Shape::Time) {
            let ends = (self.values.iter().min().copied(), self.values.iter().max().copied());
            let (least, most) = (ends.0.map(u64::cast_signed), ends.1.map(u64::cast_signed));
            let nothing = Some(entries.saturating_sub(self.len()) as u64);
            metadata =
                metadata.set_statistics(Statistics::Int64(ValueStatistics::new(least, most, None, nothing, false)));
        }
        let close = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: rows as u64,
            metadata: metadata.build()?,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        Ok((bytes.into(), close))
    }

    /// What the distinct values stand for.
    fn dictionary(&self, distinct: &[u64], texts: &Texts) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for value in distinct {
            let text: Cow<'_, str> = match self.spec.shape {
                Shape::Long | Shape::Time | Shape::Id => {
                    bytes.extend(value.to_le_bytes());
                    continue;
                }
                Shape::Int | Shape::Ints => {
                    bytes.extend((*value as u32).to_le_bytes());
                    continue;
                }
                Shape::Word(name) => name(*value as usize).unwrap_or_default().into(),
                Shape::Flags => codec::span::SpanFlags(*value as u32).to_string().into(),
                Shape::Text => texts.text(*value).into(),
            };
            bytes.extend(length(text.len())?);
            bytes.extend_from_slice(text.as_bytes());
        }
        Ok(bytes)
    }
}

/// Writes a row group, and forgets its rows. Columns are encoded by several processors.
pub(super) fn write<W: Write + Send>(
    columns: &mut [Column],
    rows: usize,
    texts: &Texts,
    to: &mut SerializedFileWriter<W>,
) -> Result<()> {
    let descriptions = to.schema_descr().columns().to_vec();
    let pairs: Vec<_> = columns.iter().zip(descriptions).collect();
    let helpers = if rows < WORTH_A_THREAD { 0 } else { other_processors().min(MOST_HELPERS) };
    let encoded = each(&pairs, helpers, |(column, description)| column.encode(rows, description.clone(), texts));
    let mut group = to.next_row_group()?;
    for column in encoded {
        let (bytes, close) = column?;
        group.append_column(&bytes, close)?;
    }
    columns.iter_mut().for_each(Column::clear);
    group.close().map(drop)
}

/// From so many rows on it takes longer to encode them than to start a thread for that.
const WORTH_A_THREAD: usize = 8 << 10;
/// There are few large columns.
const MOST_HELPERS: usize = 7;

/// How many processors there are beside this thread's.
fn other_processors() -> usize {
    thread::available_parallelism().map_or(0, |all| all.get() - 1)
}

/// Does the same with each of them, with the help of so many threads, and returns what came of each in their order.
fn each<A: Sync, B: Send>(all: &[A], helpers: usize, work: impl Fn(&A) -> B + Sync) -> Vec<B> {
    let next = AtomicUsize::new(0);
    let help = || {
        let mut done = Vec::new();
        // ORDERING: a number that each thread gets another one of.
        while let Some((number, one)) = Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|n| Some((n, all.get(n)?)))
        {
            done.push((number, work(one)));
        }
        done
    };
    let mut done = thread::scope(|scope| {
        // Where there may be no more threads, this one does all of it.
        let helpers: Vec<_> = (0..helpers)
            .map_while(|_| thread::Builder::new().name("encoding".into()).spawn_scoped(scope, help).ok())
            .collect();
        let mut done = help();
        for helper in helpers {
            done.extend(helper.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        done
    });
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, done)| done).collect()
}

/// The pages of a column, one after another.
struct Pages {
    sink: TrackedWrite<Vec<u8>>,
    uncompressed: i64,
    stats: Vec<PageEncodingStats>,
    snappy: snap::raw::Encoder,
}

impl Pages {
    fn new() -> Self {
        let sink = TrackedWrite::new(Vec::new());
        Self { sink, uncompressed: 0, stats: Vec::new(), snappy: snap::raw::Encoder::new() }
    }

    fn add(&mut self, bytes: &[u8], encoding: Encoding, page: impl FnOnce(Bytes) -> Page) -> Result<()> {
        let compressed = self.snappy.compress_vec(bytes).map_err(|error| ParquetError::External(error.into()))?;
        let page = CompressedPage::new(page(compressed.into()), bytes.len());
        let page_type: PageType = page.page_type();
        let spec = SerializedPageWriter::new(&mut self.sink).write_page(page)?;
        self.uncompressed += spec.uncompressed_size as i64;
        self.stats.push(PageEncodingStats { page_type, encoding, count: 1 });
        Ok(())
    }
}

/// Levels from 0 to `most`, with their length before them.
fn put_levels(to: &mut Vec<u8>, most: u32, put: impl FnOnce(&mut Vec<u8>, u32)) -> Result<()> {
    let mut bytes = Vec::new();
    put(&mut bytes, u32::BITS - most.leading_zeros());
    to.extend(length(bytes.len())?);
    to.extend(bytes);
    Ok(())
}

/// Ids as texts, each by what differs from the one before it: `DELTA_BYTE_ARRAY`.
fn put_ids(to: &mut Vec<u8>, ids: &[SpanId]) {
    let (mut shared, mut rest) = (Vec::with_capacity(ids.len()), Vec::with_capacity(ids.len()));
    let mut bytes = Vec::with_capacity(ids.len().saturating_mul(4));
    let mut buffer = [0; SpanId::MOST_TEXT];
    let (mut last, mut last_id, mut last_length) = (buffer, None, 0);
    for id in ids {
        if last_id.replace(*id) == Some(*id) {
            shared.push(last_length as u64);
            rest.push(0);
            continue;
        }
        let text = id.ascii(&mut buffer);
        let mut next = [0; SpanId::MOST_TEXT];
        next.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
        // Zeros follow each, so that none of them has more in common than the shorter one has.
        let same = common_start(&last, &next).min(text.len());
        let new = text.get(same..).unwrap_or_default();
        shared.push(same as u64);
        rest.push(new.len() as u64);
        bytes.extend_from_slice(new);
        (last, last_length) = (next, text.len());
    }
    differences(to, &shared);
    differences(to, &rest);
    to.extend(bytes);
}

/// How many bytes two texts have in common at their start.
fn common_start(a: &[u8; SpanId::MOST_TEXT], b: &[u8; SpanId::MOST_TEXT]) -> usize {
    let mut same = 0;
    for (a, b) in a.as_chunks().0.iter().zip(b.as_chunks().0) {
        let differing = u128::from_le_bytes(*a) ^ u128::from_le_bytes(*b);
        same += differing.trailing_zeros() as usize / 8;
        if differing != 0 {
            break;
        }
    }
    same
}

/// Numbers below this are found without hashing.
const SMALL: usize = 4096;

/// Writes for each value where it is among the distinct ones, and returns those. There is but one where that is the same
/// so many times.
fn put_places(to: &mut Vec<u8>, values: &[u64], same: usize) -> Vec<u64> {
    const UNKNOWN: u32 = u32::MAX;
    if same > 0 {
        to.push(1);
        one_run(to, 0, same, 1);
        return values.to_vec();
    }
    let (mut distinct, mut small) = (Vec::new(), vec![UNKNOWN; SMALL]);
    let mut others: HashMap<u64, u32, RandomState> = HashMap::default();
    let mut places = Vec::with_capacity(values.len());
    for value in values {
        let place = match usize::try_from(*value).ok().and_then(|value| small.get_mut(value)) {
            Some(place) => place,
            None => others.entry(*value).or_insert(UNKNOWN),
        };
        if *place == UNKNOWN {
            *place = distinct.len() as u32;
            distinct.push(*value);
        }
        places.push(*place);
    }
    // Some readers stumble over numbers without bits.
    let width = (usize::BITS - distinct.len().saturating_sub(1).leading_zeros()).max(1);
    to.push(width as u8);
    runs(to, &places, width);
    distinct
}

fn length(length: usize) -> Result<[u8; 4]> {
    let fits = i32::try_from(length).map(i32::to_le_bytes);
    fits.map_err(|_| ParquetError::General(format!("{length} is too much for one page")))
}
