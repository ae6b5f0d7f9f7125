//! Columns of tables.

use std::sync::Arc;

use datafusion::arrow::{
    array::{ArrayRef, BooleanArray, Int64Array, StringViewArray, TimestampNanosecondArray, UInt32Array, UInt64Array},
    datatypes::{DataType, Field, TimeUnit},
};

/// Times since 1970 are those of UTC.
const ZONE: &str = "+00:00";

/// The type of a time since 1970.
pub(crate) fn time_type() -> DataType {
    DataType::Timestamp(TimeUnit::Nanosecond, Some(ZONE.into()))
}

/// A column in which something may be missing.
pub(crate) fn field(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, true)
}

/// Times since 1970, in nanoseconds.
pub(crate) fn times(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(values.collect::<TimestampNanosecondArray>().with_timezone(ZONE))
}

/// The columns of some rows, which are added one by one.
pub(crate) struct Rows<'a, T> {
    rows: &'a [T],
    columns: Vec<ArrayRef>,
}

impl<'a, T> Rows<'a, T> {
    pub(crate) fn of(rows: &'a [T]) -> Self {
        Self { rows, columns: Vec::new() }
    }

    pub(crate) fn text<S: AsRef<str>>(mut self, value: impl Fn(&'a T) -> Option<S>) -> Self {
        self.columns.push(Arc::new(self.rows.iter().map(value).collect::<StringViewArray>()));
        self
    }

    pub(crate) fn long(mut self, value: impl Fn(&'a T) -> Option<u64>) -> Self {
        self.columns.push(Arc::new(self.rows.iter().map(value).collect::<UInt64Array>()));
        self
    }

    pub(crate) fn int(mut self, value: impl Fn(&'a T) -> Option<u32>) -> Self {
        self.columns.push(Arc::new(self.rows.iter().map(value).collect::<UInt32Array>()));
        self
    }

    /// Times and durations, which have a sign as in the table of spans.
    pub(crate) fn ns(mut self, value: impl Fn(&'a T) -> Option<u64>) -> Self {
        let signed = |row| value(row).map(|ns| i64::try_from(ns).unwrap_or(i64::MAX));
        self.columns.push(Arc::new(self.rows.iter().map(signed).collect::<Int64Array>()));
        self
    }

    pub(crate) fn time(mut self, value: impl Fn(&'a T) -> Option<u64>) -> Self {
        self.columns.push(times(self.rows.iter().map(|row| value(row).and_then(|ns| i64::try_from(ns).ok()))));
        self
    }

    pub(crate) fn is(mut self, value: impl Fn(&'a T) -> Option<bool>) -> Self {
        self.columns.push(Arc::new(self.rows.iter().map(value).collect::<BooleanArray>()));
        self
    }

    pub(crate) fn columns(self) -> Vec<ArrayRef> {
        self.columns
    }
}
