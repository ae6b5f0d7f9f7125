//! An overview of a session: any range of its time at any resolution, and what ran in it, without reading the trace.
//!
//! It is a file beside the trace. Each row (a thread, another stack of it, or a runtime) has its slices by depth, in the
//! order of time, in chunks: one that is narrower than what is asked for is answered from the directory, which is in
//! memory; only those that stand out are read. `docs/trace-format.md` describes the file.

mod arrange;
mod boxes;
mod contexts;
mod directory;
mod find;
mod gather;
mod growing;
mod lane;
mod layout;
mod logical;
mod making;
mod packing;
mod sums;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use anyhow::{Context, Result};
use codec::{
    StreamId,
    span::{SpanKind, SpanRuntime, What},
};

use storage::File;

use self::{
    arrange::Special,
    directory::Identity,
    layout::{Bytes, Chunk, Fold, Record},
    logical::Told,
};
pub use self::{
    contexts::Node,
    growing::Growing,
    making::{Begun, Building},
    sums::{Sum, Sums, TreeNode},
};
use crate::trace::Trace;

/// From here on, what lies in memory, and not in a file.
const MEMORY: u64 = 1 << 62;

/// How many bytes are read at a time.
const MOST_READ: usize = 64 << 20;

/// What is true of a slice.
pub mod flags {
    /// Its begin or its end is missing, or something inside of it.
    pub const CUT: u8 = 1;
    /// It had not ended when the trace did.
    pub const OPEN: u8 = 2;
    /// An exception or a jump left it.
    pub const UNWOUND: u8 = 4;
    /// It waited, and did not run.
    pub const WAITING: u8 = 8;
}

/// An overview of a session.
#[derive(Debug)]
pub struct Overview {
    file: File,
    /// Where it is told of logical spans.
    lines: File,
    /// The slices of a session that grows that have no place in the file yet, and what is told of them.
    memory: Vec<u8>,
    identity: Identity,
    range: (u64, u64),
    /// How many spans are not in it: those that are too deep, or overlap too many others.
    cut: u64,
    rows: Vec<Row>,
    contexts: Vec<Node>,
    whats: Vec<(What, SpanKind)>,
    gaps: Vec<Gap>,
    /// Slices whose own time is not simply what they took without what they called.
    special: Vec<Special>,
    /// Where it is told of logical spans, by when they began.
    told: Vec<Told>,
}

/// A row of slices that nest.
#[derive(Debug)]
pub struct Row {
    /// What it is of.
    pub kind: RowKind,
    /// The time of the first and the last slice.
    pub first: u64,
    /// See [`first`](Self::first).
    pub last: u64,
    /// How many slices there are.
    pub slices: u64,
    depths: Vec<Vec<Chunk>>,
}

/// What a row is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKind {
    /// A thread.
    Thread(StreamId),
    /// Another stack of a thread, on which coroutines ran for instance.
    Lane(StreamId, u32),
    /// What a runtime ran: threads, blocks, tasks, callbacks. Those that overlap have different depths.
    Logical(SpanRuntime),
}

/// Something to draw: a call, or several that are too narrow to be told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// How deep it is in its row.
    pub depth: u32,
    /// When it begins.
    pub start: u64,
    /// When it ends.
    pub end: u64,
    /// Its context. Of several, that of the longest.
    pub node: u32,
    /// How many there are.
    pub count: u32,
    /// How long they took together.
    pub busy: u64,
    /// What is true of at least one of them.
    pub flags: u8,
}

/// Events that are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The thread.
    pub stream: StreamId,
    /// When the last event before it was.
    pub from: u64,
    /// When the first event behind it was.
    pub to: u64,
    /// How many events are missing.
    pub missing: u64,
    /// How many gaps it stands for.
    pub gaps: u64,
    /// Why.
    pub cause: Arc<str>,
}

impl Row {
    /// How many depths there are.
    pub fn depths(&self) -> u32 {
        u32::try_from(self.depths.len()).unwrap_or(u32::MAX)
    }

    /// The smallest depth at which there is something: what lies below it may not be traced, or is in another row.
    pub fn shallowest(&self) -> u32 {
        let place = self.depths.iter().position(|chunks| !chunks.is_empty());
        place.and_then(|place| u32::try_from(place).ok()).unwrap_or(0)
    }
}

impl Overview {
    /// The time of the first and of the last thing in it, since the session's zero.
    pub fn range(&self) -> (u64, u64) {
        self.range
    }

    /// The rows, threads first.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// A context.
    pub fn node(&self, node: u32) -> Option<Node> {
        self.contexts.get(node as usize).copied()
    }

    /// What ran, by its number.
    pub fn whats(&self) -> &[(What, SpanKind)] {
        &self.whats
    }

    /// What is missing, in the order in which it was found.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// How many spans are not in it: those that are too deep, or overlap too many others.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// Whether it is of what the session has now.
    pub fn is_of(&self, trace: &Trace) -> bool {
        self.identity == Identity::of(trace)
    }

    /// The rows that are meant: these, or all threads.
    fn wanted<'a>(&'a self, rows: Option<&'a [u32]>) -> Box<dyn Iterator<Item = (u32, &'a Row)> + 'a> {
        let all = (0..).zip(&self.rows);
        match rows {
            Some(rows) => Box::new(rows.iter().filter_map(|row| Some((*row, self.rows.get(*row as usize)?)))),
            None => Box::new(all.filter(|(_, row)| !matches!(row.kind, RowKind::Logical(_)))),
        }
    }

    fn read(&self, place: (u64, usize), to: &mut Vec<u8>) -> Result<()> {
        self.read_of(&self.file, place, to)
    }

    fn read_of(&self, file: &File, (at, bytes): (u64, usize), to: &mut Vec<u8>) -> Result<()> {
        // A chunk has less. The file may say anything.
        anyhow::ensure!(bytes <= MOST_READ, "the overview is damaged");
        to.clear();
        if let Some(at) = at.checked_sub(MEMORY) {
            let at = usize::try_from(at)?;
            to.extend_from_slice(self.memory.get(at..at.saturating_add(bytes)).context("the overview is damaged")?);
            return Ok(());
        }
        to.resize(bytes, 0);
        file.read_exact_at(to, at).context("cannot read the overview")
    }

    fn folds(&self, chunk: &Chunk, buffer: &mut Vec<u8>) -> Result<Vec<Fold>> {
        self.read(chunk.folds_at(), buffer)?;
        let mut bytes = Bytes(buffer);
        std::iter::repeat_with(|| Fold::read(&mut bytes))
            .take((chunk.fold.count as usize).div_ceil(layout::FOLD))
            .collect()
    }

    fn records(&self, chunk: &Chunk, first: usize, count: usize, buffer: &mut Vec<u8>) -> Result<Vec<Record>> {
        self.read(chunk.records_at(first, count), buffer)?;
        Ok(chunk.decode(buffer).collect())
    }
}

/// The chunks that have something in a range.
fn chunks_in(chunks: &[Chunk], from: u64, to: u64) -> &[Chunk] {
    let first = chunks.partition_point(|chunk| chunk.fold.end < from);
    let end = chunks.partition_point(|chunk| chunk.fold.start < to).max(first);
    chunks.get(first..end).unwrap_or_default()
}
