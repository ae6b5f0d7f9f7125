//! The second pass: each row from its end to its beginning, so that callers come before what they called.
//!
//! The last spans to end are the outermost. Whoever is read before and still encloses a span has called it, so each span
//! finds its context. Spans that overlap and do not nest are of different stacks, coroutines for instance: these get lanes
//! of their own.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
    io::Write,
};

use ahash::RandomState;
use anyhow::Result;

use super::{
    MEMORY,
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

/// How many slices may wait to be settled, since others that are told of late come before them.
const MOST_LEFT: usize = 1 << 16;

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
    pub(super) out: W,
    pub(super) at: u64,
    pub(super) contexts: Contexts,
    /// How many spans found no lane.
    pub(super) cut: u64,
    /// What is not settled.
    pub(super) later: Later,
    /// How many slices are special, for good.
    special: usize,
    sums: Sums,
    bytes: Vec<u8>,
}

/// What is arranged again in the next pass.
#[derive(Debug, Default)]
pub(super) struct Later {
    /// The chunks.
    pub(super) memory: Vec<u8>,
    pub(super) cut: u64,
    /// Whether what was settled would be elsewhere now: it has turned out that something had not ended in a gap.
    pub(super) is_wrong: bool,
}

/// What was settled of a source.
#[derive(Debug, Default)]
pub(super) struct Settled {
    pub(super) lanes: Vec<Lane>,
    /// Their rows are numbers of lanes.
    pub(super) special: Vec<Special>,
    /// How long what was called took, of what is settled, by the ids of the callers, which are not.
    called: HashMap<u64, u64, RandomState>,
    /// Those that are open and that others would be in, had they not ended in a gap.
    doubted: HashSet<u64, RandomState>,
}

/// What of a source is not settled yet.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    pub(super) special: Vec<Special>,
    /// What was to be settled, and has to wait.
    pub(super) left: Vec<Drawn>,
}

/// What becomes of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It has not ended.
    Open,
    /// It has ended, and its place is found again in the next pass.
    Kept,
    /// Its place is found for good.
    Settled,
}

/// A pass over a source.
#[derive(Default)]
struct Pass {
    callers: Callers,
    special: Vec<Noted>,
    /// Before when things have to end to be settled, by depth.
    limits: Vec<u64>,
    /// Those that are open and that calls are not in, since they may have ended in a gap.
    passed_over: HashSet<u64, RandomState>,
    left: Vec<Drawn>,
}

/// One that is special, with what is known of it while its place is found.
struct Noted {
    special: Special,
    id: u64,
    /// How long what it called took, of what is settled.
    settled: u64,
    is_settled: bool,
}

impl<W: Write> Arranging<W> {
    pub(super) fn new(out: W) -> Self {
        let (contexts, later, sums) = (Contexts::default(), Later::default(), Sums::default());
        Self { out, at: 0, contexts, cut: 0, later, special: 0, sums, bytes: Vec::new() }
    }

    /// Finds lanes for the spans of a source that are not settled: what was gathered, and behind it `open`. What is held and
    /// the last parts stay as they are, and the others are settled.
    pub(super) fn rows(
        &mut self,
        gathered: &Gathered,
        source: Source,
        row: &mut Settled,
        open: &[Drawn],
        kept: Option<usize>,
    ) -> Result<Unsettled> {
        let (is_thread, mut waiting, mut pass) = (matches!(source, Source::Thread(_)), 0, Pass::default());
        row.lanes.iter_mut().for_each(Lane::begin);
        // Those that are told of late wait until all is read that ended later. The last to end is the first of them, and of
        // several that end at once the outermost.
        let order = |one: &Drawn| (one.end, Reverse(one.depth), one.id);
        let mut late: BTreeMap<_, (Drawn, Standing)> = BTreeMap::new();
        let mut take = |this: &mut Self, row: &mut Settled, pass: &mut Pass, drawn: Drawn, standing: Standing| {
            let is_late = drawn.traits & traits::LATE != 0;
            if is_late && standing != Standing::Settled {
                pass.limit(&drawn);
            }
            while !is_late && let Some(next) = late.last_entry().filter(|next| *next.key() > order(&drawn)) {
                let (next, standing) = next.remove();
                this.frame(row, pass, &next, standing)?;
            }
            match is_thread {
                true if is_late => drop(late.insert(order(&drawn), (drawn, standing))),
                true => this.frame(row, pass, &drawn, standing)?,
                false => this.logical(row, &drawn, standing)?,
            }
            waiting += 1;
            if waiting >= MOST_WAITING {
                waiting = 0;
                row.lanes.iter_mut().flat_map(|lane| &mut lane.depths).try_for_each(|depth| this.flush(depth, FOLD))?;
            }
            Ok(())
        };
        open.iter().rev().try_for_each(|drawn| take(self, row, &mut pass, *drawn, Standing::Open))?;
        if let Some(told) = gathered.rows.get(&source) {
            gathered.backwards(told, |drawn, part| {
                let is_kept = kept.is_some_and(|kept| part.is_none_or(|part| part < kept));
                let is_lost = drawn.traits & traits::LOST != 0;
                self.later.is_wrong |= !is_lost && row.doubted.contains(&drawn.id);
                take(self, row, &mut pass, drawn, if is_kept { Standing::Kept } else { Standing::Settled })
            })?;
        }
        for (earlier, standing) in late.into_values().rev() {
            self.frame(row, &mut pass, &earlier, standing)?;
        }
        while let Some(over) = pass.callers.pop() {
            pass.close(over);
        }
        for depth in row.lanes.iter_mut().flat_map(|lane| &mut lane.depths) {
            self.flush(depth, 1)?;
        }
        row.lanes.iter_mut().for_each(Lane::end);
        Ok(self.end(row, pass))
    }

    fn end(&mut self, row: &mut Settled, mut pass: Pass) -> Unsettled {
        let mut special = Vec::new();
        row.called.clear();
        for noted in pass.special {
            if noted.is_settled {
                self.special += 1;
                row.special.push(noted.special);
                continue;
            }
            if noted.settled > 0 {
                row.called.insert(noted.id, noted.settled);
            }
            special.push(noted.special);
        }
        pass.left.reverse();
        Unsettled { special, left: pass.left }
    }

    /// A frame goes where its caller is, or else where there is room.
    fn frame(&mut self, row: &mut Settled, pass: &mut Pass, drawn: &Drawn, standing: Standing) -> Result<()> {
        while let Some(over) = pass.callers.pop_over(drawn) {
            pass.close(over);
        }
        let (mut is_doubtful, passed_over) = (false, &mut pass.passed_over);
        let caller = pass.callers.of(drawn, |lost| {
            is_doubtful |= lost.is_open;
            if lost.is_open {
                passed_over.insert(lost.id);
            }
        });
        is_doubtful |= caller.is_some_and(|caller| caller.is_doubtful);
        // What is in something that is settled has to be settled, too.
        let has_to_be = caller.is_some_and(|caller| caller.is_settled) || pass.left.len() >= MOST_LEFT;
        let is_settled = standing == Standing::Settled && (has_to_be || pass.may_settle(drawn));
        if standing == Standing::Settled && !is_settled {
            pass.left.push(*drawn);
            pass.limit(drawn);
        }
        if is_settled && is_doubtful {
            row.doubted.extend(&pass.passed_over);
        }
        let lanes = &mut row.lanes;
        let is_free = |lane: &Lane| lane.is_free(drawn, is_settled);
        let near = caller.map(|caller| caller.lane).filter(|lane| lanes.get(*lane).is_some_and(is_free));
        let lane = near.or_else(|| lanes.iter().position(is_free)).unwrap_or(lanes.len());
        if lane >= MOST_LANES {
            self.leave_out(is_settled);
            return Ok(());
        }
        if lanes.len() <= lane {
            lanes.resize_with(lane + 1, Lane::default);
        }
        let context = caller.map_or(NONE, |caller| caller.context);
        let context = self.put(lanes[lane].depth(drawn.depth.into()), context, drawn, is_settled)?;
        let Drawn { start, end, traits, id, caller: called_by, .. } = *drawn;
        let above = caller.and_then(|caller| caller.special);
        if traits & traits::ENDLESS == 0 {
            pass.called(above, end - start, is_settled);
        }
        let number = u32::try_from(lane).unwrap_or(u32::MAX);
        let is_room = self.special.saturating_add(pass.special.len()) < MOST_SPECIAL;
        let called = row.called.get(&id).copied().unwrap_or(0);
        let special = special(drawn, number, context, called).filter(|_| is_room).map(|special| {
            pass.special.push(Noted { special, id, settled: called, is_settled });
            pass.special.len() - 1
        });
        if traits & traits::NO_CALL == 0 {
            let (is_lost, is_open) = (traits & traits::LOST != 0, standing == Standing::Open);
            let caller = called_by;
            let open = Open {
                id,
                caller,
                start,
                lane,
                is_lost,
                is_open,
                is_settled,
                is_doubtful,
                context,
                special,
                callers: above,
            };
            pass.callers.push(open);
        }
        Ok(())
    }

    fn leave_out(&mut self, is_settled: bool) {
        let cut = if is_settled { &mut self.cut } else { &mut self.later.cut };
        *cut = cut.saturating_add(1);
    }

    /// Of what a runtime ran, each is where there is room; the depth tells the lane.
    fn logical(&mut self, row: &mut Settled, drawn: &Drawn, standing: Standing) -> Result<()> {
        if row.lanes.is_empty() {
            row.lanes.push(Lane::default());
        }
        let (lane, is_settled) = (&mut row.lanes[0], standing == Standing::Settled);
        let level = lane.depths.iter().position(|depth| depth.is_free(drawn, is_settled)).unwrap_or(lane.depths.len());
        if level >= MOST_LOGICAL_LANES {
            self.leave_out(is_settled);
            return Ok(());
        }
        self.put(lane.depth(level), NONE, drawn, is_settled).map(drop)
    }

    fn put(&mut self, depth: &mut Depth, caller: u32, drawn: &Drawn, is_settled: bool) -> Result<u32> {
        if is_settled && !depth.is_settled {
            self.flush(depth, 1)?;
            depth.is_settled = true;
        }
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
        if depth.is_settled {
            self.bytes.clear();
            depth.chunks.push(Chunk::encode(self.at, &depth.waiting, sums, &mut self.bytes));
            self.out.write_all(&self.bytes)?;
            self.at = self.at.saturating_add(self.bytes.len() as u64);
        } else {
            let memory = &mut self.later.memory;
            depth.later.push(Chunk::encode(MEMORY + memory.len() as u64, &depth.waiting, sums, memory));
        }
        depth.waiting.clear();
        Ok(())
    }
}

impl Pass {
    /// What ends behind the begin of this one, at its depth, cannot be settled before it is.
    fn limit(&mut self, drawn: &Drawn) {
        let depth = usize::from(drawn.depth);
        if self.limits.len() <= depth {
            self.limits.resize(depth + 1, u64::MAX);
        }
        let limit = &mut self.limits[depth];
        *limit = drawn.start.min(*limit);
    }

    fn may_settle(&self, drawn: &Drawn) -> bool {
        self.limits.get(usize::from(drawn.depth)).is_none_or(|limit| drawn.end <= *limit)
    }

    /// A special one has called something that took so long.
    fn called(&mut self, special: Option<usize>, took: u64, is_settled: bool) {
        if let Some(noted) = special.and_then(|place| self.special.get_mut(place)) {
            noted.special.called = noted.special.called.saturating_add(took);
            noted.settled = noted.settled.saturating_add(if is_settled { took } else { 0 });
        }
    }

    /// What is called by one that is over is known: if it has no end, that is what its caller has called.
    fn close(&mut self, over: Open) {
        if let Some(noted) = over.special.and_then(|place| self.special.get(place))
            && !noted.special.has_end
        {
            let (called, is_settled) = (noted.special.called, noted.is_settled);
            self.called(over.callers, called, is_settled);
        }
    }
}

fn special(drawn: &Drawn, row: u32, context: u32, called: u64) -> Option<Special> {
    let has_end = drawn.traits & traits::ENDLESS == 0;
    if has_end && drawn.traits & traits::ACROSS == 0 {
        return None;
    }
    let (start, end, depth, is_timed) = (drawn.start, drawn.end, drawn.depth.into(), drawn.flags & flags::CUT == 0);
    Some(Special { row, depth, start, end, context, has_end, is_timed, called })
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
