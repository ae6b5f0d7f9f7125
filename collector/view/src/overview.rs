//! Temporary: the overview in memory, until the one of `answers` is there.
#![allow(missing_docs, dead_code)]

use std::collections::{BTreeMap, HashMap};

use answers::{spanning, trace::Trace};
use anyhow::Result;
use codec::{
    StreamId,
    span::{Span, SpanKind, SpanRuntime, SpanStatus, What},
};
use collector_core::spans::SpanConfig;

pub struct Overview {
    range: (u64, u64),
    rows: Vec<Row>,
    slices: Vec<Vec<Slice>>,
    nodes: Vec<Node>,
    whats: Vec<(What, SpanKind)>,
    gaps: Vec<Gap>,
}
pub struct Row {
    pub kind: RowKind,
    pub depths: u32,
    pub first: u64,
    pub last: u64,
    pub slices: u64,
}
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowKind {
    Thread(StreamId),
    Lane(StreamId, u32),
    Logical(SpanRuntime),
}
#[derive(Clone, Copy)]
pub struct Slice {
    pub depth: u32,
    pub start: u64,
    pub end: u64,
    pub node: u32,
    pub count: u32,
    pub busy: u64,
    pub flags: u8,
}
#[derive(Clone, Copy)]
pub struct Node {
    pub parent: Option<u32>,
    pub what: u32,
}
pub struct Gap {
    pub row: u32,
    pub from: u64,
    pub to: u64,
    pub missing: u64,
    pub cause: String,
}
#[derive(Clone, Copy, Default)]
pub struct Sum {
    pub count: u64,
    pub total_ns: u64,
    pub self_ns: u64,
    pub max_ns: u64,
}
pub struct Sums {
    pub nodes: Vec<(u32, Sum)>,
}
pub struct TreeNode {
    pub node: u32,
    pub parent: Option<usize>,
    pub sum: Sum,
}

impl Overview {
    pub fn open(_: &Trace) -> Result<Option<Self>> {
        Ok(None)
    }

    pub fn make(trace: &Trace, config: SpanConfig, progress: &mut dyn FnMut(u64) -> Result<()>) -> Result<Self> {
        let mut spans: Vec<Span> = Vec::new();
        spanning::batches(trace, spanning::engine(trace, config), false, |batch| {
            spans.extend(batch.spans.iter().cloned());
            progress(batch.events)
        })?;
        let last = spans.iter().filter_map(|span| span.end).map(|end| end.0).max().unwrap_or(0);
        spans.sort_by_key(|span| (span.start, span.depth));
        let mut rows: BTreeMap<(u8, u32), Vec<usize>> = BTreeMap::new();
        for (at, span) in spans.iter().enumerate() {
            if span.kind == SpanKind::Gap || span.kind == SpanKind::Event {
                continue;
            }
            let key = match span.kind {
                SpanKind::Frame => (0, span.stream.0),
                kind => (1, SpanRuntime::ALL.iter().position(|one| *one == kind.runtime()).unwrap_or(0) as u32),
            };
            rows.entry(key).or_default().push(at);
        }
        let mut overview =
            Self { range: (0, last), rows: vec![], slices: vec![], nodes: vec![], whats: vec![], gaps: vec![] };
        let mut numbers: HashMap<(What, SpanKind), u32> = HashMap::new();
        let mut places: HashMap<(Option<u32>, u32), u32> = HashMap::new();
        for ((kind, id), members) in rows {
            let mut open: Vec<(u64, u32)> = Vec::new();
            let mut slices = Vec::new();
            for at in members {
                let span = &spans[at];
                let what = *numbers.entry((span.what.clone(), span.kind)).or_insert_with(|| {
                    overview.whats.push((span.what.clone(), span.kind));
                    overview.whats.len() as u32 - 1
                });
                let end = span.end.map_or(last, |end| end.0);
                let depth = if kind == 0 {
                    while open.last().is_some_and(|(until, _)| *until <= span.start.0) {
                        open.pop();
                    }
                    open.len() as u32
                } else {
                    let free = open.iter().position(|(until, _)| *until <= span.start.0);
                    let lane = free.unwrap_or(open.len());
                    if lane == open.len() {
                        open.push((0, 0));
                    }
                    open[lane].0 = end;
                    lane as u32
                };
                let parent = if kind == 0 { open.last().map(|(_, node)| *node) } else { None };
                let node = *places.entry((parent, what)).or_insert_with(|| {
                    overview.nodes.push(Node { parent, what });
                    overview.nodes.len() as u32 - 1
                });
                if kind == 0 {
                    open.push((end, node));
                }
                let mut flags = 0;
                if span.has_lost_its_end() {
                    flags |= 1;
                }
                if span.status == SpanStatus::Open {
                    flags |= 2;
                }
                if span.kind == SpanKind::Suspension {
                    flags |= 8;
                }
                let start = span.start.0;
                slices.push(Slice { depth, start, end, node, count: 1, busy: end - start, flags });
            }
            overview.rows.push(Row {
                kind: if kind == 0 {
                    RowKind::Thread(StreamId(id))
                } else {
                    RowKind::Logical(SpanRuntime::ALL[id as usize])
                },
                depths: slices.iter().map(|slice| slice.depth + 1).max().unwrap_or(0),
                first: slices.iter().map(|slice| slice.start).min().unwrap_or(0),
                last: slices.iter().map(|slice| slice.end).max().unwrap_or(0),
                slices: slices.len() as u64,
            });
            overview.slices.push(slices);
        }
        for span in spans.iter().filter(|span| span.kind == SpanKind::Gap) {
            let row = overview.rows.iter().position(|row| row.kind == RowKind::Thread(span.stream)).unwrap_or(0) as u32;
            let cause = span.more.as_ref().and_then(|more| more.cause.clone()).map_or(String::new(), |c| c.to_string());
            let missing = span.key().unwrap_or(0);
            let (from, to) = (span.start.0, span.end.map_or(last, |end| end.0));
            overview.gaps.push(Gap { row, from, to, missing, cause });
        }
        overview.range.0 = overview.rows.iter().map(|row| row.first).min().unwrap_or(0);
        Ok(overview)
    }

    pub fn range(&self) -> (u64, u64) {
        self.range
    }
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }
    pub fn whats(&self) -> &[(What, SpanKind)] {
        &self.whats
    }
    pub fn node(&self, node: u32) -> Option<Node> {
        self.nodes.get(node as usize).copied()
    }

    pub fn boxes(&self, row: u32, from: u64, to: u64, step: u64) -> Result<Vec<Slice>> {
        let mut out: Vec<Slice> = Vec::new();
        let mut folding: HashMap<u32, usize> = HashMap::new();
        for slice in self.slices.get(row as usize).into_iter().flatten() {
            if slice.end < from || slice.start >= to {
                continue;
            }
            if slice.end - slice.start >= step {
                out.push(*slice);
                continue;
            }
            match folding.get(&slice.depth).and_then(|at| out.get_mut(*at)) {
                Some(fold) if fold.start / step == slice.start / step => {
                    if slice.end - slice.start > fold.busy {
                        fold.node = slice.node;
                    }
                    fold.end = fold.end.max(slice.end);
                    fold.count += 1;
                    fold.busy += slice.busy;
                    fold.flags |= slice.flags;
                }
                _ => {
                    folding.insert(slice.depth, out.len());
                    out.push(*slice);
                }
            }
        }
        Ok(out)
    }

    pub fn sums(&self, from: u64, to: u64, rows: Option<&[u32]>) -> Result<Sums> {
        let mut sums: BTreeMap<u32, Sum> = BTreeMap::new();
        for (row, slices) in self.slices.iter().enumerate() {
            let is_thread = !matches!(self.rows[row].kind, RowKind::Logical(_));
            if !rows.map_or(is_thread, |rows| rows.contains(&(row as u32))) {
                continue;
            }
            for slice in slices.iter().filter(|slice| slice.end >= from && slice.start < to) {
                let ns = slice.end.min(to) - slice.start.max(from);
                let sum = sums.entry(slice.node).or_default();
                sum.count += 1;
                sum.total_ns += ns;
                sum.self_ns += ns;
                sum.max_ns = sum.max_ns.max(ns);
                if let Some(parent) = self.nodes[slice.node as usize].parent {
                    let sum = sums.entry(parent).or_default();
                    sum.self_ns = sum.self_ns.wrapping_sub(ns);
                }
            }
        }
        Ok(Sums { nodes: sums.into_iter().collect() })
    }

    pub fn find(
        &self,
        wanted: &dyn Fn(u32) -> bool,
        from: u64,
        forward: bool,
        rows: Option<&[u32]>,
    ) -> Result<Option<(u32, Slice)>> {
        let all = self.slices.iter().enumerate().flat_map(|(row, slices)| slices.iter().map(move |s| (row as u32, *s)));
        let fits = all.filter(|(row, slice)| {
            rows.is_none_or(|rows| rows.contains(row))
                && wanted(self.nodes[slice.node as usize].what)
                && if forward { slice.start > from } else { slice.start < from }
        });
        Ok(if forward { fits.min_by_key(|(_, s)| s.start) } else { fits.max_by_key(|(_, s)| s.start) })
    }
}

impl Sums {
    pub fn top(&self, overview: &Overview) -> Vec<(u32, Sum)> {
        let mut tops: BTreeMap<u32, Sum> = BTreeMap::new();
        for (node, sum) in &self.nodes {
            let Node { parent, what } = overview.nodes[*node as usize];
            let mut up = parent;
            let mut recursive = false;
            while let Some(node) = up {
                recursive |= overview.nodes[node as usize].what == what;
                up = overview.nodes[node as usize].parent;
            }
            let top = tops.entry(what).or_default();
            top.count += sum.count;
            top.total_ns += if recursive { 0 } else { sum.total_ns };
            top.self_ns += sum.self_ns;
            top.max_ns = top.max_ns.max(sum.max_ns);
        }
        tops.into_iter().collect()
    }

    pub fn tree(&self, overview: &Overview) -> Vec<TreeNode> {
        let mut places: HashMap<u32, usize> = HashMap::new();
        let mut out: Vec<TreeNode> = Vec::new();
        for (node, sum) in &self.nodes {
            let parent = overview.nodes[*node as usize].parent.and_then(|parent| places.get(&parent).copied());
            places.insert(*node, out.len());
            out.push(TreeNode { node: *node, parent, sum: *sum });
        }
        out
    }

    pub fn callers(&self, overview: &Overview, what: u32) -> Vec<TreeNode> {
        let mut out: Vec<TreeNode> = vec![];
        for (node, sum) in self.nodes.iter().filter(|(node, _)| overview.nodes[*node as usize].what == what) {
            if out.is_empty() {
                out.push(TreeNode { node: *node, parent: None, sum: Sum::default() });
            }
            let mut at = 0;
            let mut next = Some(*node);
            while let Some(node) = next {
                let add = &mut out[at].sum;
                add.count += sum.count;
                add.total_ns += sum.total_ns;
                next = overview.nodes[node as usize].parent;
                if let Some(parent) = next {
                    let what = overview.nodes[parent as usize].what;
                    let known = out.iter().position(|one| {
                        one.parent == Some(at) && overview.nodes[one.node as usize].what == what
                    });
                    at = known.unwrap_or_else(|| {
                        out.push(TreeNode { node: parent, parent: Some(at), sum: Sum::default() });
                        out.len() - 1
                    });
                }
            }
        }
        out
    }

    pub fn callees(&self, overview: &Overview, what: u32) -> Vec<TreeNode> {
        let mut out: Vec<TreeNode> = vec![];
        let mut places: HashMap<u32, usize> = HashMap::new();
        for (node, sum) in &self.nodes {
            let here = overview.nodes[*node as usize];
            let parent = here.parent.and_then(|parent| places.get(&parent).copied());
            if parent.is_some() || here.what == what {
                places.insert(*node, out.len());
                out.push(TreeNode { node: *node, parent, sum: *sum });
            }
        }
        out
    }
}
