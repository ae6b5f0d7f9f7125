//! What is told of logical spans: all of it, as the command `spans --json` does.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
};

use anyhow::Result;
use codec::span::Span;
use sinks::{Line, NameCache, span_line};

use super::{MEMORY, Overview};
use crate::trace::Trace;

/// How many are told of.
const MOST: usize = 1 << 20;

/// Where it is told of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Told {
    pub(super) start: u64,
    pub(super) what: u32,
    pub(super) at: u64,
    pub(super) bytes: u32,
}

/// What is told of logical spans, as they end.
#[derive(Debug)]
pub(super) struct Telling {
    pub(super) file: File,
    length: u64,
    pub(super) told: Vec<Told>,
    names: NameCache,
    /// What the line of each starts with.
    start: Vec<u8>,
    line: Vec<u8>,
}

impl Telling {
    /// Nothing yet. The file is for this alone.
    pub(super) fn new(file: File, session: &str) -> Self {
        let start = Line::start_of_spans(session);
        Self { file, length: 0, told: Vec::new(), names: NameCache::new(), start, line: Vec::new() }
    }

    pub(super) fn add(&mut self, trace: &Trace, span: &Span, what: u32) -> io::Result<()> {
        if self.told.len() >= MOST {
            return Ok(());
        }
        self.line.clear();
        span_line(&mut self.line, &self.start, &trace.catalog, &mut self.names, span);
        self.file.write_all(&self.line)?;
        let bytes = u32::try_from(self.line.len()).unwrap_or(0);
        self.told.push(Told { start: span.start.0, what, at: self.length, bytes });
        self.length = self.length.saturating_add(bytes.into());
        Ok(())
    }

    /// What is told of one that has not ended.
    pub(super) fn open(&mut self, trace: &Trace, span: &Span, what: u32, memory: &mut Vec<u8>) -> Told {
        let at = memory.len();
        span_line(memory, &self.start, &trace.catalog, &mut self.names, span);
        let bytes = u32::try_from(memory.len() - at).unwrap_or(0);
        Told { start: span.start.0, what, at: MEMORY + at as u64, bytes }
    }

    /// Copies all of it behind so many bytes, and returns how many there are then.
    pub(super) fn finish(&mut self, to: &mut impl Write, at: u64) -> io::Result<u64> {
        let (mut done, mut buffer) = (0, vec![0; 1 << 16]);
        while done < self.length {
            let part = usize::try_from(self.length - done).unwrap_or(usize::MAX).min(buffer.len());
            let Some(part) = buffer.get_mut(..part) else { break };
            self.file.read_exact_at(part, done)?;
            to.write_all(part)?;
            done += part.len() as u64;
        }
        self.told.iter_mut().for_each(|told| told.at = told.at.saturating_add(at));
        self.told.sort_unstable();
        Ok(at.saturating_add(self.length))
    }
}

impl Overview {
    /// All that is known of the logical spans of something, by its number, that began then: a line of JSON each.
    pub fn told(&self, start: u64, what: u32) -> Result<Vec<String>> {
        let first = self.told.partition_point(|told| (told.start, told.what) < (start, what));
        let rest = self.told.get(first..).unwrap_or_default();
        let same = rest.iter().take_while(|told| (told.start, told.what) == (start, what));
        let mut buffer = Vec::new();
        same.map(|told| {
            self.read_of(&self.lines, (told.at, told.bytes as usize), &mut buffer)?;
            Ok(String::from_utf8_lossy(&buffer).trim_end().to_owned())
        })
        .collect()
    }
}
