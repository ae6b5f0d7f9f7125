//! What an answer is written as.

use std::io::Write;

use datafusion::{
    arrow::{array::RecordBatch, datatypes::SchemaRef},
    common::Result,
    parquet::{arrow::ArrowWriter, basic::Compression, file::properties::WriterProperties},
};

use crate::{csv::Csv, json::Json, text::Text};

/// What an answer is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A table for people.
    Text,
    /// Comma-separated values, with a line of names.
    Csv,
    /// One JSON object a line.
    Json,
    /// A Parquet file.
    Parquet,
}

/// Writes an answer, some rows at a time.
pub(crate) trait Writer {
    /// Writes rows.
    fn rows(&mut self, rows: &RecordBatch) -> Result<()>;
    /// Writes what comes last.
    fn finish(self: Box<Self>) -> Result<()>;
}

impl Form {
    /// Begins an answer with these columns.
    pub(crate) fn begin<'a>(self, schema: &SchemaRef, out: &'a mut (dyn Write + Send)) -> Result<Box<dyn Writer + 'a>> {
        Ok(match self {
            Self::Text => Box::new(Text::new(schema, out)),
            Self::Csv => Box::new(Csv::new(schema, out)?),
            Self::Json => Box::new(Json::new(out)),
            Self::Parquet => {
                let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
                Box::new(Parquet(ArrowWriter::try_new(out, schema.clone(), Some(properties))?))
            }
        })
    }
}

struct Parquet<'a>(ArrowWriter<&'a mut (dyn Write + Send)>);

impl Writer for Parquet<'_> {
    fn rows(&mut self, rows: &RecordBatch) -> Result<()> {
        Ok(self.0.write(rows)?)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.0.close()?;
        Ok(())
    }
}
