//! How an overview is laid out in its file.
//!
//! All numbers are little-endian. The file begins with the chunks of all rows, one after the other, and ends with the
//! directory and a trailer that tells where the directory is. A chunk holds up to [`CHUNK`] slices of one depth of one
//! row, in the order of time: first what groups of [`FOLD`] of them come to, then the slices, then what each context's
//! slices come to.

use anyhow::{Context, Result, bail};

/// How many slices a chunk and a fold have at most.
pub(super) const CHUNK: usize = 4096;
pub(super) const FOLD: usize = 128;

/// The four highest bits of a slice's context are its flags.
pub(super) const CONTEXT_BITS: u32 = 28;
pub(super) const MOST_CONTEXTS: usize = 1 << 20;

/// A slice on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) context: u32,
    pub(super) flags: u8,
}

/// What slices that follow one another come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Fold {
    pub(super) start: u64,
    pub(super) end: u64,
    /// How long they took together.
    pub(super) busy: u64,
    /// How long the longest took, and where it was called.
    pub(super) longest: u64,
    pub(super) context: u32,
    pub(super) count: u32,
    pub(super) flags: u8,
}

/// What the slices of one context come to in a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContextSum {
    pub(super) context: u32,
    pub(super) count: u32,
    pub(super) untimed: u32,
    pub(super) total: u64,
    pub(super) max: u64,
}

/// A chunk, in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Chunk {
    pub(super) at: u64,
    pub(super) fold: Fold,
    /// How many contexts its slices have.
    pub(super) sums: u32,
}

pub(super) const FOLD_BYTES: usize = 41;
pub(super) const SUM_BYTES: usize = 28;
const NARROW_BYTES: usize = 12;
const WIDE_BYTES: usize = 20;

impl Fold {
    pub(super) fn of(records: &[Record]) -> Self {
        let first = records.first().map_or(0, |record| record.start);
        let mut fold = Self { start: first, end: first, ..Self::default() };
        for record in records {
            let took = record.end.saturating_sub(record.start);
            fold.end = fold.end.max(record.end);
            fold.busy = fold.busy.saturating_add(took);
            fold.count = fold.count.saturating_add(1);
            fold.flags |= record.flags;
            if took >= fold.longest {
                (fold.longest, fold.context) = (took, record.context);
            }
        }
        fold
    }

    pub(super) fn write(&self, to: &mut Vec<u8>) {
        for number in [self.start, self.end, self.busy, self.longest] {
            to.extend_from_slice(&number.to_le_bytes());
        }
        to.extend_from_slice(&self.context.to_le_bytes());
        to.extend_from_slice(&self.count.to_le_bytes());
        to.push(self.flags);
    }

    pub(super) fn read(from: &mut Bytes<'_>) -> Result<Self> {
        let (start, end, busy, longest) = (from.u64()?, from.u64()?, from.u64()?, from.u64()?);
        Ok(Self { start, end, busy, longest, context: from.u32()?, count: from.u32()?, flags: from.u8()? })
    }
}

impl ContextSum {
    fn write(&self, to: &mut Vec<u8>) {
        for number in [self.context, self.count, self.untimed] {
            to.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.total, self.max] {
            to.extend_from_slice(&number.to_le_bytes());
        }
    }

    pub(super) fn read(from: &mut Bytes<'_>) -> Result<Self> {
        let (context, count, untimed) = (from.u32()?, from.u32()?, from.u32()?);
        Ok(Self { context, count, untimed, total: from.u64()?, max: from.u64()? })
    }
}

impl Chunk {
    /// Whether its slices need more than 32 bits for their times.
    fn is_wide(&self) -> bool {
        self.fold.end.saturating_sub(self.fold.start) > u32::MAX.into()
    }

    fn record_bytes(&self) -> usize {
        if self.is_wide() { WIDE_BYTES } else { NARROW_BYTES }
    }

    fn folds(&self) -> usize {
        (self.fold.count as usize).div_ceil(FOLD)
    }

    /// Where its folds are in the file, and how many bytes they have.
    pub(super) fn folds_at(&self) -> (u64, usize) {
        (self.at, self.folds() * FOLD_BYTES)
    }

    /// Where these of its slices are.
    pub(super) fn records_at(&self, first: usize, count: usize) -> (u64, usize) {
        let before = self.folds() * FOLD_BYTES + first * self.record_bytes();
        (self.at.saturating_add(before as u64), count * self.record_bytes())
    }

    /// Where its sums are.
    pub(super) fn sums_at(&self) -> (u64, usize) {
        let (at, bytes) = self.records_at(0, self.fold.count as usize);
        (at.saturating_add(bytes as u64), self.sums as usize * SUM_BYTES)
    }

    /// Writes a chunk that comes at this place of the file.
    pub(super) fn encode(at: u64, records: &[Record], sums: &[ContextSum], to: &mut Vec<u8>) -> Self {
        let chunk = Self { at, fold: Fold::of(records), sums: u32::try_from(sums.len()).unwrap_or(u32::MAX) };
        records.chunks(FOLD).for_each(|fold| Fold::of(fold).write(to));
        for record in records {
            let start = record.start.saturating_sub(chunk.fold.start);
            let took = record.end.saturating_sub(record.start);
            if chunk.is_wide() {
                to.extend_from_slice(&start.to_le_bytes());
                to.extend_from_slice(&took.to_le_bytes());
            } else {
                to.extend_from_slice(&(start as u32).to_le_bytes());
                to.extend_from_slice(&(took as u32).to_le_bytes());
            }
            let flags = u32::from(record.flags) << CONTEXT_BITS;
            to.extend_from_slice(&(record.context | flags).to_le_bytes());
        }
        sums.iter().for_each(|sum| sum.write(to));
        chunk
    }

    /// Slices from their bytes.
    pub(super) fn decode(&self, bytes: &[u8]) -> impl Iterator<Item = Record> {
        let (base, is_wide) = (self.fold.start, self.is_wide());
        bytes.chunks_exact(self.record_bytes()).map(move |bytes| {
            let mut bytes = Bytes(bytes);
            let (start, took) = match is_wide {
                true => (bytes.u64().unwrap_or(0), bytes.u64().unwrap_or(0)),
                false => (bytes.u32().unwrap_or(0).into(), bytes.u32().unwrap_or(0).into()),
            };
            let context = bytes.u32().unwrap_or(0);
            let start = base.saturating_add(start);
            Record {
                start,
                end: start.saturating_add(took),
                context: context & ((1 << CONTEXT_BITS) - 1),
                flags: (context >> CONTEXT_BITS) as u8,
            }
        })
    }

    pub(super) fn write(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.at.to_le_bytes());
        self.fold.write(to);
        to.extend_from_slice(&self.sums.to_le_bytes());
    }

    pub(super) fn read(from: &mut Bytes<'_>) -> Result<Self> {
        Ok(Self { at: from.u64()?, fold: Fold::read(from)?, sums: from.u32()? })
    }
}

/// Bytes that are read from their front.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).context("it is cut short")?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().context("it is cut short")?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A number of things, each of which has at least so many bytes: no more than there is room for.
    pub(super) fn count(&mut self, least_bytes: usize) -> Result<usize> {
        let count = self.u32()? as usize;
        if count.saturating_mul(least_bytes) > self.0.len() {
            bail!("it is cut short");
        }
        Ok(count)
    }

    pub(super) fn text(&mut self) -> Result<&'a str> {
        let length = self.count(1)?;
        Ok(str::from_utf8(self.take(length)?)?)
    }
}

pub(super) fn write_text(text: &str, to: &mut Vec<u8>) {
    to.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    to.extend_from_slice(text.as_bytes());
}
