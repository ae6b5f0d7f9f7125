//! What the calls of a time range come to.

use std::collections::{HashMap, HashSet};

use ahash::RandomState;
use anyhow::Result;

use super::{
    Overview, Row, RowKind,
    arrange::Special,
    chunks_in, flags,
    layout::{Bytes, Chunk, ContextSum, Record},
};

/// What slices without an end have.
const ENDLESS: u8 = flags::CUT | flags::OPEN;

/// How many calls without an end are looked into that are in one another.
const MOST_NESTED: u32 = 256;

/// What calls come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum {
    /// How many ran in the range.
    pub count: u64,
    /// Of how many of them nobody knows how long they took.
    pub untimed: u64,
    /// How long they took inside the range.
    pub total_ns: u64,
    /// The same without what they called.
    pub self_ns: u64,
    /// What they took themselves, or something that they called and that is missing.
    pub unsure_ns: u64,
    /// How long the longest took inside the range.
    pub max_ns: u64,
}

/// What the calls of each context come to.
#[derive(Debug)]
pub struct Sums {
    /// The contexts that ran, in the order of their numbers: callers come before what they called.
    pub nodes: Vec<(u32, Sum)>,
}

/// A node of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeNode {
    /// What it is of, by its number.
    pub what: u32,
    /// The node above, by its place in the list, which is smaller.
    pub parent: Option<usize>,
    /// What its calls come to.
    pub sum: Sum,
}

impl Sum {
    fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.untimed = self.untimed.saturating_add(other.untimed);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.self_ns = self.self_ns.saturating_add(other.self_ns);
        self.unsure_ns = self.unsure_ns.saturating_add(other.unsure_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

impl Overview {
    /// Whether times of a part of the time may be others than those that are read from its events: events are missing there, or
    /// the ends of what began there, or there is more than one stack. What is drawn is where there is room then, and not
    /// always in what has called it.
    pub fn is_doubtful(&self, from: u64, to: u64) -> bool {
        let is_in = |start: u64, end: u64| start < to && end >= from;
        let is_lane = |row: &Row| matches!(row.kind, RowKind::Lane(..)) && is_in(row.first, row.last);
        self.gaps.iter().any(|gap| is_in(gap.from, gap.to))
            || self.special.iter().any(|one| !one.has_end && !one.is_timed && is_in(one.start, one.end))
            || self.rows.iter().any(is_lane)
    }

    /// What the calls from one time to another come to, in these rows, or on all threads.
    pub fn sums(&self, from: u64, to: u64, rows: Option<&[u32]>) -> Result<Sums> {
        let mut sums = vec![Sum::default(); self.contexts.len()];
        let mut buffer = Vec::new();
        let mut add = |context: u32, sum: &Sum| {
            if let Some(known) = sums.get_mut(context as usize) {
                known.add(sum);
            }
        };
        for (_, row) in self.wanted(rows) {
            for chunk in row.depths.iter().flat_map(|chunks| chunks_in(chunks, from, to)) {
                if from <= chunk.fold.start && chunk.fold.end < to {
                    self.add_whole(chunk, &mut add, &mut buffer)?;
                } else {
                    self.add_part(chunk, (from, to), &mut add, &mut buffer)?;
                }
            }
        }
        let rows = rows.map(|rows| rows.iter().copied().collect::<HashSet<u32>>());
        let special =
            self.special.iter().filter(|special| rows.as_ref().is_none_or(|rows| rows.contains(&special.row)));
        for special in special.filter(|special| special.start < to && special.end >= from) {
            let inside = special.end.min(to).saturating_sub(special.start.max(from));
            // One whose end is missing may have ended before.
            if !special.is_timed && special.start < from {
                continue;
            }
            let called = self.called_in(special, from, to, 0, &mut buffer)?;
            let Some(sum) = sums.get_mut(special.context as usize) else { continue };
            if special.has_end {
                sum.unsure_ns = sum.unsure_ns.saturating_add(inside.saturating_sub(called));
            } else {
                sum.total_ns = sum.total_ns.saturating_sub(inside).saturating_add(called);
                sum.max_ns = sum.max_ns.max(if special.is_timed { called } else { 0 });
            }
        }
        let mut called = vec![0_u64; sums.len()];
        for (node, sum) in self.contexts.iter().zip(&sums) {
            if let Some(called) = node.parent.and_then(|parent| called.get_mut(parent as usize)) {
                *called = called.saturating_add(sum.total_ns);
            }
        }
        for (sum, called) in sums.iter_mut().zip(called) {
            sum.self_ns = sum.total_ns.saturating_sub(called).saturating_sub(sum.unsure_ns);
        }
        let ran = (0..).zip(sums).filter(|(_, sum)| sum.count > 0);
        Ok(Sums { nodes: ran.collect() })
    }

    /// How long what a slice called took inside a range. What has no end took as long as what it called itself.
    fn called_in(&self, special: &Special, from: u64, to: u64, nested: u32, buffer: &mut Vec<u8>) -> Result<u64> {
        if from <= special.start && special.end < to {
            return Ok(special.called);
        }
        let (from, to) = (from.max(special.start), to.min(special.end));
        let (row, depth) = (self.rows.get(special.row as usize), special.depth.saturating_add(1));
        let below = row.and_then(|row| row.depths.get(depth as usize)).map_or(&[][..], Vec::as_slice);
        let (mut called, mut endless) = (0_u64, Vec::new());
        for chunk in chunks_in(below, from, to) {
            let is_inside = from <= chunk.fold.start && chunk.fold.end <= to;
            if is_inside && chunk.fold.flags & ENDLESS == 0 {
                called = called.saturating_add(chunk.fold.busy);
                continue;
            }
            let records = self.records(chunk, 0, chunk.fold.count as usize, buffer)?;
            for record in records.iter().filter(|record| record.start < to && record.end > from) {
                match self.special_at(special.row, depth, record) {
                    Some(callee) if nested < MOST_NESTED => endless.push(callee),
                    _ => called = called.saturating_add(record.end.min(to) - record.start.max(from)),
                }
            }
        }
        for callee in endless {
            called = called.saturating_add(self.called_in(callee, from, to, nested + 1, buffer)?);
        }
        Ok(called.min(to.saturating_sub(from)))
    }

    /// What is special about a slice that has no end.
    fn special_at(&self, row: u32, depth: u32, record: &Record) -> Option<&Special> {
        if record.flags & ENDLESS == 0 {
            return None;
        }
        let place =
            self.special.binary_search_by_key(&(row, depth, record.start), |one| (one.row, one.depth, one.start));
        place.ok().and_then(|place| self.special.get(place)).filter(|special| !special.has_end)
    }

    fn add_whole(&self, chunk: &Chunk, add: &mut impl FnMut(u32, &Sum), buffer: &mut Vec<u8>) -> Result<()> {
        self.read(chunk.sums_at(), buffer)?;
        let mut bytes = Bytes(buffer);
        for _ in 0..chunk.sums {
            let ContextSum { context, count, untimed, total, max } = ContextSum::read(&mut bytes)?;
            let (count, untimed) = (count.into(), untimed.into());
            add(context, &Sum { count, untimed, total_ns: total, max_ns: max, ..Sum::default() });
        }
        Ok(())
    }

    fn add_part(
        &self,
        chunk: &Chunk,
        (from, to): (u64, u64),
        add: &mut impl FnMut(u32, &Sum),
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        let records = self.records(chunk, 0, chunk.fold.count as usize, buffer)?;
        let first = records.partition_point(|record| record.end < from);
        let rest = records.get(first..).unwrap_or_default();
        for record in rest.iter().take_while(|record| record.start < to) {
            let inside = record.end.min(to).saturating_sub(record.start.max(from));
            // What only touches the range is not in it, and what lost its end may have ended before.
            if record.start < from && (record.end == from || record.flags & flags::CUT != 0) {
                continue;
            }
            let untimed = u64::from(record.flags & flags::CUT != 0);
            let has_end = record.flags & ENDLESS == 0;
            let max_ns = if has_end { inside } else { 0 };
            add(record.context, &Sum { count: 1, untimed, total_ns: inside, max_ns, ..Sum::default() });
        }
        Ok(())
    }
}

impl Sums {
    /// By what ran, unsorted. Where something was called by itself, directly or not, only the outermost call counts for
    /// its total.
    pub fn top(&self, overview: &Overview) -> Vec<(u32, Sum)> {
        let mut found: HashMap<u32, Sum, RandomState> = HashMap::default();
        for (number, sum) in &self.nodes {
            let Some(node) = overview.node(*number) else { continue };
            let total_ns = if node.is_recursive { 0 } else { sum.total_ns };
            found.entry(node.what).or_default().add(&Sum { total_ns, ..*sum });
        }
        found.into_iter().collect()
    }

    /// What called what: callers before what they called.
    pub fn tree(&self, overview: &Overview) -> Vec<TreeNode> {
        let mut places: HashMap<u32, usize, RandomState> = HashMap::default();
        let mut tree = Vec::new();
        for (number, sum) in &self.nodes {
            let Some(node) = overview.node(*number) else { continue };
            places.insert(*number, tree.len());
            let parent = node.parent.and_then(|parent| places.get(&parent).copied());
            tree.push(TreeNode { what: node.what, parent, sum: *sum });
        }
        tree
    }

    /// Who called something: the first node is that, below it who called it, below those who called them. Times are what
    /// it took, called from there.
    pub fn callers(&self, overview: &Overview, what: u32) -> Vec<TreeNode> {
        let mut tree = Growing::new(what);
        for (number, sum) in &self.nodes {
            let Some(node) = overview.node(*number).filter(|node| node.what == what) else { continue };
            let sum = Sum { total_ns: if node.is_recursive { 0 } else { sum.total_ns }, ..*sum };
            let mut place = tree.add(None, what, &sum);
            let mut next = node.parent;
            while let Some(caller) = next.and_then(|caller| overview.node(caller)) {
                place = tree.add(Some(place), caller.what, &sum);
                next = caller.parent;
            }
        }
        tree.nodes
    }

    /// What something called: the first node is that, and below it what it called, from wherever it was called itself.
    pub fn callees(&self, overview: &Overview, what: u32) -> Vec<TreeNode> {
        let mut tree = Growing::new(what);
        // Where each context is in the tree: below the outermost call.
        let mut places: HashMap<u32, usize, RandomState> = HashMap::default();
        for (number, sum) in &self.nodes {
            let Some(node) = overview.node(*number) else { continue };
            let above = node.parent.and_then(|parent| places.get(&parent).copied());
            let place = match above {
                Some(above) => tree.add(Some(above), node.what, sum),
                None if node.what == what => tree.add(None, what, sum),
                None => continue,
            };
            places.insert(*number, place);
        }
        tree.nodes
    }
}

/// A tree that nodes are added to.
struct Growing {
    nodes: Vec<TreeNode>,
    places: HashMap<(usize, u32), usize, RandomState>,
}

impl Growing {
    fn new(what: u32) -> Self {
        let root = TreeNode { what, parent: None, sum: Sum::default() };
        Self { nodes: vec![root], places: HashMap::default() }
    }

    fn add(&mut self, parent: Option<usize>, what: u32, sum: &Sum) -> usize {
        let next = self.nodes.len();
        let place = match parent {
            None => 0,
            Some(parent) => *self.places.entry((parent, what)).or_insert(next),
        };
        if place == next {
            self.nodes.push(TreeNode { what, parent, sum: Sum::default() });
        }
        self.nodes[place].sum.add(sum);
        place
    }
}
