//! Answers as comma-separated values.

use std::io::Write;

use datafusion::{
    arrow::{
        array::{Array, RecordBatch},
        datatypes::SchemaRef,
        util::display::{ArrayFormatter, FormatOptions},
    },
    common::Result,
};

use crate::form::Writer;

/// Comma-separated values, as the other commands write them.
pub(crate) struct Csv<'a> {
    out: &'a mut (dyn Write + Send),
}

impl<'a> Csv<'a> {
    pub(crate) fn new(schema: &SchemaRef, out: &'a mut (dyn Write + Send)) -> Result<Self> {
        let mut line = String::new();
        schema.fields().iter().for_each(|column| field(&mut line, column.name()));
        let mut csv = Self { out };
        csv.line(&line)?;
        Ok(csv)
    }

    fn line(&mut self, line: &str) -> Result<()> {
        self.out.write_all(line.strip_suffix(',').unwrap_or(line).as_bytes())?;
        self.out.write_all(b"\r\n")?;
        Ok(())
    }
}

/// Adds a field, quoted where it has to be, and a comma.
fn field(line: &mut String, text: &str) {
    if text.contains(['"', ',', '\r', '\n']) {
        line.extend(["\"", &text.replace('"', "\"\""), "\""]);
    } else {
        line.push_str(text);
    }
    line.push(',');
}

impl Writer for Csv<'_> {
    fn rows(&mut self, rows: &RecordBatch) -> Result<()> {
        let options = FormatOptions::default().with_display_error(true);
        let columns = rows.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let mut line = String::new();
        for row in 0..rows.num_rows() {
            line.clear();
            for (values, column) in rows.columns().iter().zip(&columns) {
                let cell = if values.is_null(row) { String::new() } else { column.value(row).to_string() };
                field(&mut line, &cell);
            }
            self.line(&line)?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_have_to_be() {
        let mut line = String::new();
        ["plain", "a,b", "say \"x\"", "two\nlines", ""].iter().for_each(|text| field(&mut line, text));
        assert_eq!(line, "plain,\"a,b\",\"say \"\"x\"\"\",\"two\nlines\",,");
    }
}
