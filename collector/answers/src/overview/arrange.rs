//! The second pass: each row from its end to its beginning, so that callers come before what they called.
//!
//! The last spans to end are the outermost. Whoever is read before and still encloses a span has called it, so each span
//! finds its context. Spans that overlap and do not nest are of different stacks, coroutines for instance: these get lanes
//! of their own.

use std::{cmp::Reverse, collections::BTreeMap, io::Write};

use anyhow::Result;

use super::{
    contexts::{Contexts, NONE},
    flags,
    gather::{Drawn, Gathered, Source, traits},
    lane::{Callers, Depth, Lane, Open},
    layout::{CHUNK, Chunk, ContextSum, FOLD, Record},
};

/// How many lanes a thread's stacks may take, and those of a runtime.
const MOST_LANES: usize = 64;
const MOST_LOGICAL_LANES: usize = 512;

/// How many slices may wait to be written.
const MOST_WAITING: usize = 1 << 21;

/// How many slices may be special.
const MOST_SPECIAL: usize = 1 << 20;

/// A slice whose own time is not simply what it took without what it called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Special {
    pub(super) row: u32,
    pub(super) depth: u32,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) context: u32,
    /// Whether it has an end. If not, it took as long as what it called.
    pub(super) has_end: bool,
    /// Whether it counts among those of which it is known how long they took.
    pub(super) is_timed: bool,
    /// How long what it called took.
    pub(super) called: u64,
}

/// Writes chunks, and finds contexts.
#[derive(Debug)]
pub(super) struct Arranging<W> {
    out: W,
    at: u64,
    pub(super) contexts: Contexts,
    pub(super) special: Vec<Special>,
    /// How many spans found no lane.
    pub(super) cut: u64,
    sums: Sums,
    bytes: Vec<u8>,
}

impl<W: Write> Arranging<W> {
    pub(super) fn new(out: W) -> Self {
        let (contexts, sums) = (Contexts::default(), Sums::default());
        Self { out, at: 0, contexts, special: Vec::new(), cut: 0, sums, bytes: Vec::new() }
    }

    /// The lanes of a source, the first of which is the row with this number.
    pub(super) fn rows(&mut self, gathered: &Gathered, source: Source, first: u32) -> Result<Vec<Lane>> {
        let Some(row) = gathered.rows.get(&source) else { return Ok(Vec::new()) };
        let (is_thread, mut waiting) = (matches!(source, Source::Thread(_)), 0);
        let (mut lanes, mut callers) = (Vec::new(), Callers::default());
        // Those that are told of late wait until all is read that ended later. The last to end is the first of them, and of
        // several that end at once the outermost.
        let order = |one: &Drawn| (one.end, Reverse(one.depth), one.id);
        let mut late = BTreeMap::new();
        gathered.backwards(row, |drawn| {
            let is_late = drawn.traits & traits::LATE != 0;
            while !is_late && let Some(next) = late.last_entry().filter(|next| *next.key() > order(&drawn)) {
                self.frame(&mut lanes, &mut callers, &next.remove(), first)?;
            }
            match is_thread {
                true if is_late => drop(late.insert(order(&drawn), drawn)),
                true => self.frame(&mut lanes, &mut callers, &drawn, first)?,
                false => self.logical(&mut lanes, &drawn)?,
            }
            waiting += 1;
            if waiting >= MOST_WAITING {
                waiting = 0;
                lanes.iter_mut().flat_map(|lane| &mut lane.depths).try_for_each(|depth| self.flush(depth, FOLD))?;
            }
            Ok(())
        })?;
        for earlier in late.into_values().rev() {
            self.frame(&mut lanes, &mut callers, &earlier, first)?;
        }
        while let Some(over) = callers.pop() {
            self.close(over);
        }
        for depth in lanes.iter_mut().flat_map(|lane| &mut lane.depths) {
            self.flush(depth, 1)?;
            depth.chunks.reverse();
        }
        Ok(lanes)
    }

    /// A frame goes where its caller is, or else where there is room.
    fn frame(&mut self, lanes: &mut Vec<Lane>, callers: &mut Callers, drawn: &Drawn, first_row: u32) -> Result<()> {
        while let Some(over) = callers.pop_over(drawn) {
            self.close(over);
        }
        let caller = callers.of(drawn);
        let near =
            caller.map(|caller| caller.lane).filter(|lane| lanes.get(*lane).is_some_and(|lane| lane.is_free(drawn)));
        let free = near.or_else(|| lanes.iter().position(|lane| lane.is_free(drawn)));
        let lane = free.unwrap_or(lanes.len());
        if lane >= MOST_LANES {
            self.cut = self.cut.saturating_add(1);
            return Ok(());
        }
        if lanes.len() <= lane {
            lanes.resize_with(lane + 1, Lane::default);
        }
        let context = caller.map_or(NONE, |caller| caller.context);
        let context = self.put(lanes[lane].depth(drawn.depth.into()), context, drawn)?;
        let Drawn { start, end, traits, id, caller: called_by, .. } = *drawn;
        let above = caller.and_then(|caller| caller.special);
        if traits & traits::ENDLESS == 0 {
            self.called(above, end - start);
        }
        let row = first_row.saturating_add(u32::try_from(lane).unwrap_or(u32::MAX));
        let (special, is_lost) = (self.special(drawn, row, context), traits & traits::LOST != 0);
        if traits & traits::NO_CALL == 0 {
            callers.push(Open { id, caller: called_by, start, lane, is_lost, context, special, callers: above });
        }
        Ok(())
    }

    /// A special one has called something that took so long.
    fn called(&mut self, special: Option<usize>, took: u64) {
        if let Some(special) = special.and_then(|place| self.special.get_mut(place)) {
            special.called = special.called.saturating_add(took);
        }
    }

    /// What is called by one that is over is known: if it has no end, that is what its caller has called.
    fn close(&mut self, over: Open) {
        if let Some(special) = over.special.and_then(|place| self.special.get(place).copied())
            && !special.has_end
        {
            self.called(over.callers, special.called);
        }
    }

    fn special(&mut self, drawn: &Drawn, row: u32, context: u32) -> Option<usize> {
        let has_end = drawn.traits & traits::ENDLESS == 0;
        if has_end && drawn.traits & traits::ACROSS == 0 || self.special.len() >= MOST_SPECIAL {
            return None;
        }
        let (start, end, depth, is_timed) = (drawn.start, drawn.end, drawn.depth.into(), drawn.flags & flags::CUT == 0);
        self.special.push(Special { row, depth, start, end, context, has_end, is_timed, called: 0 });
        Some(self.special.len() - 1)
    }

    /// Of what a runtime ran, each is where there is room; the depth tells the lane.
    fn logical(&mut self, lanes: &mut Vec<Lane>, drawn: &Drawn) -> Result<()> {
        if lanes.is_empty() {
            lanes.push(Lane::default());
        }
        let lane = &mut lanes[0];
        let level = lane.depths.iter().position(|depth| drawn.end <= depth.start).unwrap_or(lane.depths.len());
        if level >= MOST_LOGICAL_LANES {
            self.cut = self.cut.saturating_add(1);
            return Ok(());
        }
        self.put(lane.depth(level), NONE, drawn).map(drop)
    }

    fn put(&mut self, depth: &mut Depth, caller: u32, drawn: &Drawn) -> Result<u32> {
        let context = match depth.known {
            (from, what, context) if (from, what) == (caller, drawn.what) => context,
            _ => self.contexts.child(caller, drawn.what),
        };
        depth.known = (caller, drawn.what, context);
        depth.start = drawn.start;
        depth.waiting.push(Record { start: drawn.start, end: drawn.end, context, flags: drawn.flags });
        if depth.waiting.len() >= CHUNK {
            self.flush(depth, 1)?;
        }
        Ok(context)
    }

    /// Writes what waits at a depth, if it is that much.
    fn flush(&mut self, depth: &mut Depth, least: usize) -> Result<()> {
        if depth.waiting.len() < least {
            return Ok(());
        }
        depth.waiting.reverse();
        let sums = self.sums.of(&depth.waiting, self.contexts.nodes.len());
        self.bytes.clear();
        depth.chunks.push(Chunk::encode(self.at, &depth.waiting, sums, &mut self.bytes));
        depth.waiting.clear();
        self.out.write_all(&self.bytes)?;
        self.at = self.at.saturating_add(self.bytes.len() as u64);
        Ok(())
    }

    /// To whom it was written, and how many bytes.
    pub(super) fn finish(self) -> (W, u64, Contexts, Vec<Special>) {
        (self.out, self.at, self.contexts, self.special)
    }
}

/// Adds up slices by context.
#[derive(Debug, Default)]
struct Sums {
    found: Vec<ContextSum>,
    /// Where each context is among those that were found, counted from one.
    places: Vec<u32>,
}

impl Sums {
    fn of(&mut self, records: &[Record], contexts: usize) -> &[ContextSum] {
        for sum in self.found.drain(..) {
            self.places[sum.context as usize] = 0;
        }
        self.places.resize(contexts, 0);
        for record in records {
            let place = &mut self.places[record.context as usize];
            if *place == 0 {
                let context = record.context;
                self.found.push(ContextSum { context, count: 0, untimed: 0, total: 0, max: 0 });
                *place = self.found.len() as u32;
            }
            let sum = &mut self.found[*place as usize - 1];
            let took = record.end.saturating_sub(record.start);
            sum.count = sum.count.saturating_add(1);
            sum.untimed = sum.untimed.saturating_add(u32::from(record.flags & flags::CUT != 0));
            sum.total = sum.total.saturating_add(took);
            // How long others took that have no end is added when that is known.
            if record.flags & (flags::CUT | flags::OPEN) == 0 {
                sum.max = sum.max.max(took);
            }
        }
        &self.found
    }
}
