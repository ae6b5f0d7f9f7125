//! The directory of an overview: all but its slices.

use std::sync::Arc;

use anyhow::{Result, bail};
use codec::{
    FunctionId, StreamId,
    span::{SpanKind, SpanRuntime, What},
};

use super::{
    Gap, Overview, Row, RowKind,
    arrange::Special,
    contexts::Node,
    layout::{Bytes, Chunk, write_text},
    logical::Told,
};
use crate::trace::Trace;

/// What tells whether an overview is of the events that a session has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Identity {
    events: u64,
    missing: u64,
    last_ns: u64,
    threads: u64,
}

const RECURSIVE: u32 = 1 << 31;
const NO_PARENT: u32 = u32::MAX;

impl Identity {
    pub(super) fn of(trace: &Trace) -> Self {
        let manifest = &trace.manifest;
        Self {
            events: trace.events(),
            missing: manifest.gaps.iter().map(|gap| gap.count).fold(0, u64::saturating_add),
            last_ns: manifest.time_end_ns,
            threads: manifest.threads.len() as u64,
        }
    }
}

impl Overview {
    /// The bytes of the directory.
    pub(super) fn directory(&self) -> Vec<u8> {
        let mut to = Vec::new();
        let Identity { events, missing, last_ns, threads } = self.identity;
        let numbers = [events, missing, last_ns, threads, self.range.0, self.range.1, self.cut];
        numbers.iter().for_each(|number| put64(*number, &mut to));
        put32(self.rows.len(), &mut to);
        for row in &self.rows {
            let (kind, stream, more) = match row.kind {
                RowKind::Thread(stream) => (0, stream.0, 0),
                RowKind::Lane(stream, lane) => (1, stream.0, lane),
                RowKind::Logical(runtime) => (2, 0, number_of(SpanRuntime::ALL, runtime)),
            };
            [kind, stream, more].iter().for_each(|number| to.extend_from_slice(&u32::to_le_bytes(*number)));
            [row.first, row.last, row.slices].iter().for_each(|number| put64(*number, &mut to));
            put32(row.depths.len(), &mut to);
            for chunks in &row.depths {
                put32(chunks.len(), &mut to);
                chunks.iter().for_each(|chunk| chunk.write(&mut to));
            }
        }
        put32(self.contexts.len(), &mut to);
        for node in &self.contexts {
            let what = node.what | if node.is_recursive { RECURSIVE } else { 0 };
            to.extend_from_slice(&node.parent.unwrap_or(NO_PARENT).to_le_bytes());
            to.extend_from_slice(&what.to_le_bytes());
        }
        put32(self.whats.len(), &mut to);
        for (what, kind) in &self.whats {
            to.push(number_of(SpanKind::ALL, *kind) as u8);
            write_what(what, &mut to);
        }
        put32(self.gaps.len(), &mut to);
        for gap in &self.gaps {
            to.extend_from_slice(&gap.stream.0.to_le_bytes());
            [gap.from, gap.to, gap.missing, gap.gaps].iter().for_each(|number| put64(*number, &mut to));
            write_text(&gap.cause, &mut to);
        }
        put32(self.special.len(), &mut to);
        for special in &self.special {
            let Special { row, depth, start, end, context, has_end, is_timed, called } = *special;
            [row, depth, context].iter().for_each(|number| to.extend_from_slice(&u32::to_le_bytes(*number)));
            [start, end, called].iter().for_each(|number| put64(*number, &mut to));
            to.push(u8::from(has_end) | u8::from(is_timed) << 1);
        }
        put32(self.told.len(), &mut to);
        for told in &self.told {
            [told.start, told.at].iter().for_each(|number| put64(*number, &mut to));
            [told.what, told.bytes].iter().for_each(|number| to.extend_from_slice(&u32::to_le_bytes(*number)));
        }
        to
    }

    /// The same read again. The file is where its chunks are.
    pub(super) fn from_directory(file: storage::File, bytes: &[u8]) -> Result<Self> {
        let mut from = Bytes(bytes);
        let mut next = || from.u64();
        let identity = Identity { events: next()?, missing: next()?, last_ns: next()?, threads: next()? };
        let (range, cut) = ((next()?, next()?), next()?);
        let mut rows = Vec::new();
        for _ in 0..from.count(40)? {
            rows.push(read_row(&mut from)?);
        }
        let mut contexts = Vec::new();
        for number in 0..from.count(8)? {
            let (parent, what) = (from.u32()?, from.u32()?);
            // A caller has a smaller number, so that nobody goes round in a circle.
            let parent = Some(parent).filter(|parent| (*parent as usize) < number);
            contexts.push(Node { parent, what: what & !RECURSIVE, is_recursive: what & RECURSIVE != 0 });
        }
        let mut whats = Vec::new();
        for _ in 0..from.count(2)? {
            let kind = SpanKind::ALL.get(usize::from(from.u8()?)).copied().unwrap_or(SpanKind::Frame);
            whats.push((read_what(&mut from)?, kind));
        }
        let mut gaps = Vec::new();
        for _ in 0..from.count(40)? {
            let stream = StreamId(from.u32()?);
            let (start, to, missing, count) = (from.u64()?, from.u64()?, from.u64()?, from.u64()?);
            let cause = Arc::from(from.text()?);
            gaps.push(Gap { stream, from: start, to, missing, gaps: count, cause });
        }
        let mut special = Vec::new();
        for _ in 0..from.count(37)? {
            let (row, depth, context) = (from.u32()?, from.u32()?, from.u32()?);
            let (start, end, called, bits) = (from.u64()?, from.u64()?, from.u64()?, from.u8()?);
            let (has_end, is_timed) = (bits & 1 != 0, bits & 2 != 0);
            special.push(Special { row, depth, start, end, context, has_end, is_timed, called });
        }
        let mut told = Vec::new();
        for _ in 0..from.count(24)? {
            let (start, at) = (from.u64()?, from.u64()?);
            told.push(Told { start, at, what: from.u32()?, bytes: from.u32()? });
        }
        let (lines, memory) = (file.try_clone()?, Vec::new());
        Ok(Self { file, lines, memory, identity, range, cut, rows, contexts, whats, gaps, special, told })
    }
}

fn read_row(from: &mut Bytes<'_>) -> Result<Row> {
    let (kind, stream, more) = (from.u32()?, StreamId(from.u32()?), from.u32()?);
    let kind = match kind {
        0 => RowKind::Thread(stream),
        1 => RowKind::Lane(stream, more),
        2 => RowKind::Logical(SpanRuntime::ALL.get(more as usize).copied().unwrap_or(SpanRuntime::Native)),
        kind => bail!("a row is of a kind that is not known, {kind}"),
    };
    let (first, last, slices) = (from.u64()?, from.u64()?, from.u64()?);
    let mut depths = Vec::new();
    for _ in 0..from.count(4)? {
        let mut chunks = Vec::new();
        for _ in 0..from.count(super::layout::FOLD_BYTES)? {
            chunks.push(Chunk::read(from)?);
        }
        depths.push(chunks);
    }
    Ok(Row { kind, first, last, slices, depths })
}

fn write_what(what: &What, to: &mut Vec<u8>) {
    match what {
        What::Function(id) => {
            to.push(0);
            put64(id.0, to);
        }
        What::Address(address) => {
            to.push(1);
            put64(*address, to);
        }
        What::Named(name) => {
            to.push(2);
            write_text(name, to);
        }
        What::Unknown => to.push(3),
    }
}

fn read_what(from: &mut Bytes<'_>) -> Result<What> {
    Ok(match from.u8()? {
        0 => What::Function(FunctionId(from.u64()?)),
        1 => What::Address(from.u64()?),
        2 => What::Named(from.text()?.into()),
        _ => What::Unknown,
    })
}

fn number_of<T: PartialEq>(all: &[T], one: T) -> u32 {
    all.iter().position(|other| *other == one).and_then(|place| u32::try_from(place).ok()).unwrap_or(0)
}

fn put64(number: u64, to: &mut Vec<u8>) {
    to.extend_from_slice(&number.to_le_bytes());
}

fn put32(number: usize, to: &mut Vec<u8>) {
    to.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
}
