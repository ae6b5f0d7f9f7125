//! What to draw of a row.

use anyhow::Result;

use super::{
    Overview, Slice, chunks_in,
    layout::{Chunk, FOLD, Fold, Record},
};

impl Overview {
    /// What to draw of a row from one time to another, where `step` nanoseconds are as wide as a point. What is narrower is
    /// drawn together with what begins in the same step; those begin at multiples of it.
    pub fn boxes(&self, row: u32, from: u64, to: u64, step: u64) -> Result<Vec<Slice>> {
        let Some(row) = self.rows.get(row as usize) else { return Ok(Vec::new()) };
        let (step, mut buffer) = (step.max(1), Vec::new());
        let mut drawing = Drawing { step, depth: 0, folded: None, next_step: 0, slices: Vec::new() };
        for (depth, chunks) in (0..).zip(&row.depths) {
            drawing.depth = depth;
            for chunk in chunks_in(chunks, from, to) {
                if chunk.fold.end - chunk.fold.start < step {
                    drawing.add(&chunk.fold);
                    continue;
                }
                self.draw_chunk(chunk, from, to, &mut drawing, &mut buffer)?;
            }
            drawing.flush();
        }
        Ok(drawing.slices)
    }

    fn draw_chunk(&self, chunk: &Chunk, from: u64, to: u64, drawing: &mut Drawing, buffer: &mut Vec<u8>) -> Result<()> {
        let folds = self.folds(chunk, buffer)?;
        let step = drawing.step;
        let is_wide = |fold: &Fold| fold.end.saturating_sub(fold.start) >= step;
        let is_wanted = |fold: &Fold| fold.end >= from && fold.start < to;
        // Those that follow one another are read at once.
        let mut begin = 0;
        for run in folds.chunk_by(|one, other| is_wide(one) == is_wide(other) && is_wanted(one) == is_wanted(other)) {
            let first = begin * FOLD;
            begin += run.len();
            let Some(fold) = run.first().filter(|fold| is_wanted(fold)) else { continue };
            if !is_wide(fold) {
                run.iter().for_each(|fold| drawing.add(fold));
                continue;
            }
            let count = (begin * FOLD).min(chunk.fold.count as usize).saturating_sub(first);
            self.read(chunk.records_at(first, count), buffer)?;
            for record in chunk.decode(buffer).filter(|record| record.end >= from && record.start < to) {
                drawing.add(&one(&record));
            }
        }
        Ok(())
    }
}

fn one(record: &Record) -> Fold {
    let took = record.end.saturating_sub(record.start);
    let Record { start, end, context, flags } = *record;
    Fold { start, end, busy: took, longest: took, context, count: 1, flags }
}

/// Puts together what is too narrow.
struct Drawing {
    step: u64,
    depth: u32,
    folded: Option<Fold>,
    /// Where the step ends that the folded ones begin in: for most of those that follow, that saves a division.
    next_step: u64,
    slices: Vec<Slice>,
}

impl Drawing {
    fn add(&mut self, fold: &Fold) {
        if fold.end.saturating_sub(fold.start) >= self.step {
            self.flush();
            self.emit(fold);
            return;
        }
        match &mut self.folded {
            Some(folded) if (folded.start..self.next_step).contains(&fold.start) => {
                folded.end = folded.end.max(fold.end);
                folded.busy = folded.busy.saturating_add(fold.busy);
                folded.count = folded.count.saturating_add(fold.count);
                folded.flags |= fold.flags;
                if fold.longest > folded.longest {
                    (folded.longest, folded.context) = (fold.longest, fold.context);
                }
            }
            _ => {
                self.flush();
                self.next_step = (fold.start - fold.start % self.step).saturating_add(self.step);
                self.folded = Some(*fold);
            }
        }
    }

    fn flush(&mut self) {
        if let Some(folded) = self.folded.take() {
            self.emit(&folded);
        }
    }

    fn emit(&mut self, fold: &Fold) {
        let Fold { start, end, busy, context: node, count, flags, .. } = *fold;
        self.slices.push(Slice { depth: self.depth, start, end, node, count, busy, flags });
    }
}
