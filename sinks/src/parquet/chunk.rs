//! A column of a row group, as it is in the file: a dictionary where there is one, and one page of values.
//!
//! The pages are made here, since much is known that a library has to find out: each text has a number already, and
//! what is nothing comes in long runs.

use std::collections::HashMap;

use ahash::RandomState;
use bytes::Bytes;
use parquet::{
    basic::{Compression, Encoding, PageType},
    column::writer::ColumnCloseResult,
    errors::{ParquetError, Result},
    file::{
        metadata::{ColumnChunkMetaData, PageEncodingStats},
        statistics::{Statistics, ValueStatistics},
    },
    schema::types::ColumnDescPtr,
};

use super::{
    columns::{Shape, SpanColumn},
    delta,
    hybrid::Hybrid,
    texts::Texts,
    thrift::{self, Page},
};

/// What is in a column of a row group.
pub(super) struct Chunk<'a> {
    pub(super) column: &'a SpanColumn,
    pub(super) rows: usize,
    /// How many levels there are: rows, or elements of lists and empty lists.
    pub(super) entries: usize,
    /// Encoded, those that the column has.
    pub(super) repeats: Option<Vec<u8>>,
    pub(super) levels: Option<Vec<u8>>,
    /// What is not nothing. Texts are numbers of texts.
    pub(super) values: &'a [u64],
}

impl Chunk<'_> {
    /// The bytes, and what the index says about them.
    pub(super) fn encode(self, descr: ColumnDescPtr, texts: &Texts) -> Result<(Bytes, ColumnCloseResult)> {
        let mut pages = Pages::new();
        let mut data = Vec::new();
        for levels in self.repeats.iter().chain(&self.levels) {
            data.extend(length(levels.len())?);
            data.extend_from_slice(levels);
        }
        let mut dictionary_at = None;
        let encoding = if self.values.is_empty() {
            Encoding::PLAIN
        } else if self.column.by_difference() {
            delta::encode(&mut data, self.values);
            Encoding::DELTA_BINARY_PACKED
        } else {
            let distinct = places(&mut data, self.values, texts);
            let values = self.dictionary(&distinct, texts)?;
            dictionary_at = Some(0);
            pages.add(Page::Dictionary, distinct.len(), &values)?;
            Encoding::RLE_DICTIONARY
        };
        let data_at = pages.bytes.len();
        let code = match encoding {
            Encoding::DELTA_BINARY_PACKED => thrift::DELTA,
            Encoding::RLE_DICTIONARY => thrift::DICTIONARY,
            _ => thrift::PLAIN,
        };
        pages.add(Page::Data(code), self.entries, &data)?;

        let mut stats = vec![PageEncodingStats { page_type: PageType::DATA_PAGE, encoding, count: 1 }];
        if dictionary_at.is_some() {
            let page_type = PageType::DICTIONARY_PAGE;
            stats.insert(0, PageEncodingStats { page_type, encoding: Encoding::PLAIN, count: 1 });
        }
        let mut encodings: Vec<_> = stats.iter().map(|stats| stats.encoding).collect();
        encodings.push(Encoding::RLE);
        let signed = descr.sort_order().is_signed();
        let metadata = ColumnChunkMetaData::builder(descr)
            .set_compression(Compression::SNAPPY)
            .set_encodings(encodings)
            .set_page_encoding_stats(stats)
            .set_num_values(self.entries as i64)
            .set_total_compressed_size(pages.bytes.len() as i64)
            .set_total_uncompressed_size(pages.uncompressed as i64)
            .set_dictionary_page_offset(dictionary_at)
            .set_data_page_offset(data_at as i64);
        let metadata = match self.statistics(signed) {
            Some(statistics) => metadata.set_statistics(statistics),
            None => metadata,
        };
        let close = ColumnCloseResult {
            bytes_written: pages.bytes.len() as u64,
            rows_written: self.rows as u64,
            metadata: metadata.build()?,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        Ok((pages.bytes.into(), close))
    }

    fn dictionary(&self, distinct: &[u64], texts: &Texts) -> Result<Vec<u8>> {
        Ok(match self.column.shape {
            Shape::Long | Shape::Time => distinct.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Shape::Int | Shape::Ints => distinct.iter().flat_map(|value| (*value as u32).to_le_bytes()).collect(),
            Shape::Text => {
                let mut bytes = Vec::new();
                for number in distinct {
                    let text = texts.text(*number);
                    bytes.extend(length(text.len())?);
                    bytes.extend_from_slice(text.as_bytes());
                }
                bytes
            }
        })
    }

    /// The least and the greatest value. Of texts they help nobody to find spans.
    fn statistics(&self, signed: bool) -> Option<Statistics> {
        if self.column.shape == Shape::Text {
            return None;
        }
        // None is below zero: times are cut.
        let ends = self.values.first().map(|first| {
            self.values.iter().fold((*first, *first), |(least, most), value| (least.min(*value), most.max(*value)))
        });
        let (least, most) = (ends.map(|ends| ends.0), ends.map(|ends| ends.1));
        let nothing = Some(self.entries.saturating_sub(self.values.len()) as u64);
        match self.column.shape {
            Shape::Text => None,
            Shape::Long | Shape::Time => {
                let (least, most) = (least.map(u64::cast_signed), most.map(u64::cast_signed));
                let statistics = ValueStatistics::new(least, most, None, nothing, false);
                Some(Statistics::Int64(statistics.with_backwards_compatible_min_max(signed)))
            }
            Shape::Int | Shape::Ints => {
                let int = |value: u64| (value as u32).cast_signed();
                let statistics = ValueStatistics::new(least.map(int), most.map(int), None, nothing, false);
                Some(Statistics::Int32(statistics.with_backwards_compatible_min_max(signed)))
            }
        }
    }
}

/// Pages one after another.
struct Pages {
    bytes: Vec<u8>,
    /// How many bytes there would be if none were compressed.
    uncompressed: usize,
    snappy: snap::raw::Encoder,
}

impl Pages {
    fn new() -> Self {
        Self { bytes: Vec::new(), uncompressed: 0, snappy: snap::raw::Encoder::new() }
    }

    fn add(&mut self, page: Page, values: usize, bytes: &[u8]) -> Result<()> {
        let compressed = self.snappy.compress_vec(bytes).map_err(|error| ParquetError::External(error.into()))?;
        let head = thrift::head(page, number(values)?, number(bytes.len())?, number(compressed.len())?);
        self.uncompressed = self.uncompressed.saturating_add(head.len()).saturating_add(bytes.len());
        self.bytes.extend(head);
        self.bytes.extend(compressed);
        Ok(())
    }
}

/// Writes for each value where it is among the distinct ones, and returns those.
fn places(to: &mut Vec<u8>, values: &[u64], texts: &Texts) -> Vec<u64> {
    let mut distinct = Distinct::new(texts.count().max(SMALL));
    let places: Vec<u64> = values.iter().map(|value| u64::from(distinct.place(*value))).collect();
    let last = distinct.values.len().saturating_sub(1);
    // Some readers stumble over numbers without bits.
    let width = (usize::BITS - last.leading_zeros()).max(1);
    let mut hybrid = Hybrid::new(width);
    places.iter().for_each(|place| hybrid.push(*place));
    to.push(width as u8);
    to.extend(hybrid.take());
    distinct.values
}

/// Numbers below this are found without hashing.
const SMALL: usize = 4096;

/// The distinct values, in the order they came.
struct Distinct {
    values: Vec<u64>,
    small: Vec<u32>,
    others: HashMap<u64, u32, RandomState>,
}

impl Distinct {
    const UNKNOWN: u32 = u32::MAX;

    fn new(small: usize) -> Self {
        Self { values: Vec::new(), small: vec![Self::UNKNOWN; small], others: HashMap::default() }
    }

    #[inline]
    fn place(&mut self, value: u64) -> u32 {
        let place = match usize::try_from(value).ok().and_then(|value| self.small.get_mut(value)) {
            Some(place) => place,
            None => self.others.entry(value).or_insert(Self::UNKNOWN),
        };
        if *place == Self::UNKNOWN {
            // A row group does not have so many rows.
            *place = u32::try_from(self.values.len()).unwrap_or(0);
            self.values.push(value);
        }
        *place
    }
}

fn number(number: usize) -> Result<i32> {
    i32::try_from(number).map_err(|_| ParquetError::General(format!("{number} is too much for one page")))
}

fn length(length: usize) -> Result<[u8; 4]> {
    number(length).map(i32::to_le_bytes)
}
