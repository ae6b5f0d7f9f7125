//! JSON with a line for each member of the object, and one for each element of a list in it.

use std::io::{self, Write};

use serde_json::ser::Formatter;

/// Writes as much on a line as people can read: a session has many threads, modules and functions.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// How many objects and lists are open.
    depth: usize,
    /// Whether the innermost of them has something in it.
    any: bool,
}

impl Lines {
    fn open(&mut self, writer: &mut (impl Write + ?Sized), bracket: &[u8]) -> io::Result<()> {
        self.depth = self.depth.saturating_add(1);
        self.any = false;
        writer.write_all(bracket)
    }

    fn close(&mut self, writer: &mut (impl Write + ?Sized), broken: usize, bracket: &[u8]) -> io::Result<()> {
        self.depth = self.depth.saturating_sub(1);
        if self.any && self.depth < broken {
            self.new_line(writer)?;
        }
        self.any = true;
        writer.write_all(bracket)
    }

    fn next(&mut self, writer: &mut (impl Write + ?Sized), broken: usize, first: bool) -> io::Result<()> {
        self.any = true;
        if !first {
            writer.write_all(b",")?;
        }
        if self.depth <= broken { self.new_line(writer) } else { Ok(()) }
    }

    fn new_line(&self, writer: &mut (impl Write + ?Sized)) -> io::Result<()> {
        writer.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| writer.write_all(b"  "))
    }
}

/// How deep an object lies of which each member has a line, and a list of which each element has one.
const BROKEN_OBJECTS: usize = 1;
const BROKEN_LISTS: usize = 2;

impl Formatter for Lines {
    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, BROKEN_OBJECTS, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.next(writer, BROKEN_OBJECTS, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(if self.depth <= BROKEN_OBJECTS { b": " } else { b":" })
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, BROKEN_LISTS, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.next(writer, BROKEN_LISTS, first)
    }
}
