//! Answers as tables for people.

use std::io::Write;

use answers::printable;
use datafusion::{
    arrow::{
        array::RecordBatch,
        datatypes::SchemaRef,
        util::display::{ArrayFormatter, FormatOptions},
    },
    common::Result,
};

use crate::form::Writer;

/// Columns are as wide as these first rows need; wider cells later move those behind them.
const LOOKED_AT: usize = 2000;
/// No column is made wider than this for the sake of others.
const WIDEST: usize = 80;

/// A table. Names come from programs that were traced, and are made printable.
pub(crate) struct Text<'a> {
    out: &'a mut (dyn Write + Send),
    heads: Vec<String>,
    /// Which columns are numbers, and stand at the right.
    is_number: Vec<bool>,
    widths: Option<Vec<usize>>,
    waiting: Vec<Vec<String>>,
}

impl<'a> Text<'a> {
    pub(crate) fn new(schema: &SchemaRef, out: &'a mut (dyn Write + Send)) -> Self {
        let heads = schema.fields().iter().map(|field| printable(field.name())).collect();
        let is_number = schema.fields().iter().map(|field| field.data_type().is_numeric()).collect();
        Self { out, heads, is_number, widths: None, waiting: Vec::new() }
    }

    /// Decides how wide the columns are, and writes what waits for that.
    fn begin(&mut self) -> Result<()> {
        if self.widths.is_none() {
            let mut widths: Vec<_> = self.heads.iter().map(|head| head.chars().count()).collect();
            for (width, cell) in self.waiting.iter().flat_map(|row| widths_of(row)).collect::<Vec<_>>() {
                if let Some(widest) = widths.get_mut(cell) {
                    *widest = (*widest).max(width.min(WIDEST));
                }
            }
            self.widths = Some(widths);
            let heads = self.heads.clone();
            self.line(&heads)?;
        }
        for row in std::mem::take(&mut self.waiting) {
            self.line(&row)?;
        }
        Ok(())
    }

    fn line(&mut self, cells: &[String]) -> Result<()> {
        let widths = self.widths.as_deref().unwrap_or_default();
        let mut line = String::new();
        for ((cell, width), is_number) in cells.iter().zip(widths).zip(&self.is_number) {
            let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
            let (before, behind) = if *is_number { (padding.as_str(), "") } else { ("", padding.as_str()) };
            line.extend([before, cell, behind, "  "]);
        }
        writeln!(self.out, "{}", line.trim_end())?;
        Ok(())
    }
}

fn widths_of(row: &[String]) -> impl Iterator<Item = (usize, usize)> {
    row.iter().enumerate().map(|(place, cell)| (cell.chars().count(), place))
}

impl Writer for Text<'_> {
    fn rows(&mut self, rows: &RecordBatch) -> Result<()> {
        let options = FormatOptions::default().with_display_error(true).with_null("–");
        let columns = rows.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        for row in 0..rows.num_rows() {
            let cells = columns.iter().map(|column| printable(&column.value(row).to_string())).collect();
            self.waiting.push(cells);
        }
        if self.widths.is_some() || self.waiting.len() >= LOOKED_AT { self.begin() } else { Ok(()) }
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.begin()
    }
}
