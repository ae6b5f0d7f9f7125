//! Answers as lines of JSON.

use std::io::{self, Write};

use codec::text::printable_json;
use datafusion::{
    arrow::{
        array::RecordBatch,
        json::{LineDelimitedWriter, WriterBuilder, writer::LineDelimited},
    },
    common::Result,
};

use crate::form::Writer;

/// One object a line, with hidden characters escaped.
pub(crate) struct Json<'a>(LineDelimitedWriter<Printable<'a>>);

impl<'a> Json<'a> {
    pub(crate) fn new(out: &'a mut (dyn Write + Send)) -> Self {
        let out = Printable { out, line: Vec::new() };
        Self(WriterBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(out))
    }
}

impl Writer for Json<'_> {
    fn rows(&mut self, rows: &RecordBatch) -> Result<()> {
        Ok(self.0.write(rows)?)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.0.finish()?;
        Ok(self.0.into_inner().pass()?)
    }
}

/// Passes on whole lines.
struct Printable<'a> {
    out: &'a mut (dyn Write + Send),
    line: Vec<u8>,
}

impl Printable<'_> {
    fn pass(&mut self) -> io::Result<()> {
        let end = self.line.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = self.line.drain(..end).collect();
        for line in String::from_utf8_lossy(&lines).split_inclusive('\n') {
            let text = line.strip_suffix('\n').unwrap_or(line);
            self.out.write_all(printable_json(text).as_bytes())?;
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }
}

impl Write for Printable<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if self.line.len() >= 64 << 10 {
            self.pass()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pass()
    }
}
