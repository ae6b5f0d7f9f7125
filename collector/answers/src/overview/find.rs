//! Finding calls by what was called.

use anyhow::Result;

use super::{
    Overview, Row, Slice,
    layout::{Bytes, Chunk, ContextSum, Record},
};

impl Overview {
    /// The next call of something that is wanted, by its number, that begins behind this time, or the last one before it;
    /// and the row it is in. In these rows, or on all threads.
    pub fn find(
        &self,
        wanted: &dyn Fn(u32) -> bool,
        from: u64,
        forward: bool,
        rows: Option<&[u32]>,
    ) -> Result<Option<(u32, Slice)>> {
        let is_wanted: Vec<bool> = (0..).zip(&self.whats).map(|(number, _)| wanted(number)).collect();
        let is_wanted = |context: u32| {
            let what = self.node(context).map_or(usize::MAX, |node| node.what as usize);
            is_wanted.get(what).copied().unwrap_or(false)
        };
        let mut search =
            Search { overview: self, is_wanted: &is_wanted, from, forward, best: None, buffer: Vec::new() };
        for (number, row) in self.wanted(rows) {
            search.row(number, row)?;
        }
        Ok(search.best)
    }
}

struct Search<'a> {
    overview: &'a Overview,
    is_wanted: &'a dyn Fn(u32) -> bool,
    from: u64,
    forward: bool,
    best: Option<(u32, Slice)>,
    buffer: Vec<u8>,
}

impl Search<'_> {
    fn row(&mut self, number: u32, row: &Row) -> Result<()> {
        for (depth, chunks) in (0..).zip(&row.depths) {
            let near: Box<dyn Iterator<Item = &Chunk>> = match self.forward {
                true => Box::new(chunks.iter()),
                false => Box::new(chunks.iter().rev()),
            };
            for chunk in near.filter(|chunk| chunk.fold.count > 0) {
                if self.is_beyond(chunk) {
                    break;
                }
                if let Some(record) = self.chunk(chunk)? {
                    let Record { start, end, context: node, flags } = record;
                    let slice = Slice { depth, start, end, node, count: 1, busy: end.saturating_sub(start), flags };
                    if self.is_better(start, depth) {
                        self.best = Some((number, slice));
                    }
                    break;
                }
            }
        }
        Ok(())
    }

    fn is_better(&self, start: u64, depth: u32) -> bool {
        self.best.is_none_or(|(_, best)| match self.forward {
            true => (start, depth) < (best.start, best.depth),
            false => (start, depth) > (best.start, best.depth),
        })
    }

    /// Whether what is found already is nearer than all of this.
    fn is_beyond(&self, chunk: &Chunk) -> bool {
        self.best.is_some_and(|(_, best)| match self.forward {
            true => chunk.fold.start > best.start,
            false => chunk.fold.end < best.start,
        })
    }

    /// The nearest in a chunk.
    fn chunk(&mut self, chunk: &Chunk) -> Result<Option<Record>> {
        let is_near = |start: u64| if self.forward { start > self.from } else { start < self.from };
        let may_be = if self.forward { chunk.fold.end >= self.from } else { chunk.fold.start < self.from };
        if !may_be {
            return Ok(None);
        }
        self.overview.read(chunk.sums_at(), &mut self.buffer)?;
        let mut bytes = Bytes(&self.buffer);
        let mut is_there = false;
        for _ in 0..chunk.sums {
            is_there |= (self.is_wanted)(ContextSum::read(&mut bytes)?.context);
        }
        if !is_there {
            return Ok(None);
        }
        let records = self.overview.records(chunk, 0, chunk.fold.count as usize, &mut self.buffer)?;
        let is_it = |record: &&Record| is_near(record.start) && (self.is_wanted)(record.context);
        let found = if self.forward { records.iter().find(is_it) } else { records.iter().rev().find(is_it) };
        Ok(found.copied())
    }
}
