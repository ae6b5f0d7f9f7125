//! The call tree: what called what, how often and for how long, made from spans as they close.
//!
//! ```text
//! let mut tree = CallTree::new(Grouping::Threads);
//! tree.add(&span);                                  // every span, in the order in which they close
//! tree.finish();                                    // once, before it is read
//! for (owner, root) in tree.roots() {               // a thread or a task
//!     for node in root.children() {                 // its outermost functions, those that took longest first
//!         (node.what(), node.count(), node.total_ns(), node.self_ns(), node.children());
//!     }
//! }
//! ```
//!
//! Where events are missing, nothing is put below a caller that may have ended before: only what is known to have been
//! called inside it. A node of the kind [`SpanKind::Gap`] stands for callers that are missing, and for the time of which nobody
//! can tell whether its caller or something that is missing took it.
//!
//! Calls of the same function from the same place are one node. What waits for its caller to close is a subtree that is
//! already folded, so memory grows with the number of different call paths and not with the number of calls.

mod arena;
mod births;
mod causes;
mod passing;

use std::{cmp::Reverse, collections::BTreeMap};

use ahash::HashMap;
use codec::{
    StreamId, SubstreamId,
    span::{Span, SpanFlags, SpanId, SpanKind, SpanStatus, What},
};

use crate::open_spans::OpenSpans;
use arena::{Arena, Index};
pub use births::BirthPlace;
use births::Births;
use causes::Causes;

/// How many nodes there may be. Beyond that, what a function called is counted as its own time.
const MOST_NODES: usize = 4 << 20;
/// Only subtrees with fewer nodes than this are given up so: what stands near the root is worth most.
const SMALL_NODES: usize = 1024;
/// How many callers may be waited for. Beyond that, what waits is taken to be called by nobody.
const MOST_WAITING: usize = 1 << 20;

/// What a call tree belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// A thread.
    Thread(StreamId),
    /// A task, on whichever threads it ran.
    Task(SubstreamId),
}

/// How many trees there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Grouping {
    /// One for each thread, with whatever it ran.
    #[default]
    Threads,
    /// One for each task, and one for each thread with what it ran beside tasks.
    Tasks,
    /// One for each thread, with the threads, blocks, tasks and callbacks that it created, each below the one that
    /// created it, with the calls that were made in it.
    ///
    /// A frame that is the code of such a span is not shown: the span stands for both. What was created by a frame that
    /// belongs to none of them is below that frame's thread.
    Causes,
}

/// The call trees of all threads, or of all tasks and threads.
#[derive(Debug)]
pub struct CallTree {
    grouping: Grouping,
    arena: Arena,
    open: OpenSpans,
    /// What was called by spans that have not closed yet.
    waiting: HashMap<SpanId, Waiting>,
    roots: BTreeMap<Owner, Index>,
    causes: Causes,
    births: Births,
    most_nodes: usize,
    cut: u64,
}

/// What a span that has not closed yet has called so far.
#[derive(Debug, Default)]
struct Waiting {
    /// A node without a name for each thread or task that the calls belong to: mostly one.
    nodes: Vec<(Owner, Index)>,
    /// How long the calls took.
    called_ns: u64,
    /// The same for calls behind a gap: they were made inside it, if it has an end.
    behind: Vec<(Owner, Index)>,
    behind_ns: u64,
}

impl CallTree {
    /// A tree of nothing.
    pub fn new(grouping: Grouping) -> Self {
        Self {
            grouping,
            arena: Arena::default(),
            open: OpenSpans::default(),
            waiting: HashMap::default(),
            roots: BTreeMap::new(),
            causes: Causes::default(),
            births: Births::default(),
            most_nodes: MOST_NODES,
            cut: 0,
        }
    }

    /// Enters a span. Frames and events count; a span that is only reported to be open counts when it ends.
    pub fn add(&mut self, span: &Span) {
        if span.status == SpanStatus::Open && self.grouping != Grouping::Causes {
            self.open.open(span);
        } else {
            self.open.close(span);
            self.close(span);
        }
    }

    /// Enters those that never closed, as if they had at the end of the trace.
    pub fn finish(&mut self) {
        for span in self.open.finish() {
            self.close(&span);
        }
        self.abandon();
        self.finish_causes();
        self.finish_births();
    }

    /// The trees: under each root are the outermost functions.
    pub fn roots(&self) -> impl Iterator<Item = (Owner, Node<'_>)> {
        self.roots.iter().map(|(owner, index)| (*owner, Node { arena: &self.arena, index: *index }))
    }

    /// The tree of one thread or task.
    pub fn root(&self, owner: Owner) -> Option<Node<'_>> {
        self.roots.get(&owner).map(|index| Node { arena: &self.arena, index: *index })
    }

    /// All that ran, each once.
    pub fn whats(&self) -> impl Iterator<Item = &What> {
        self.arena.whats()
    }

    /// How many nodes were too many: what was called there is in their callers' own time.
    pub fn cut(&self) -> u64 {
        self.cut
    }

    fn close(&mut self, span: &Span) {
        let waiting = self.waiting.remove(&span.id);
        if !matches!(span.kind, SpanKind::Frame | SpanKind::Event) {
            if let Some(waiting) = waiting {
                self.promote(waiting, None);
            }
            self.note_gap(span);
            if self.grouping == Grouping::Causes && span.kind.is_logical() {
                self.close_logical(span);
            }
            return;
        }
        let owner = self.owner(span);
        let is_lost = span.has_lost_its_end();
        let waiting = waiting.map(|waiting| self.decide(waiting, span, is_lost));
        let called_ns = waiting.as_ref().map_or(0, |waiting| waiting.called_ns);
        // What has no end took as long as what it called, and who knows how much longer.
        let has_no_call = span.flags.has(SpanFlags::NO_CALL);
        let total_ns = match span.end {
            // What it called is elsewhere, and would count twice.
            Some(_) if has_no_call => 0,
            Some(end) => end.0.saturating_sub(span.start.0),
            None => called_ns,
        };
        let mut node = waiting.and_then(|waiting| self.promote(waiting, Some(owner)));
        if let Some(logical) = self.logical_of(span) {
            self.note_births(span, logical);
            self.arena.count(logical, 0, 0, called_ns);
            if let Some(callees) = node {
                self.arena.merge(logical, callees);
            }
            if span.parent.is_some() {
                self.above(span, owner, total_ns);
            }
            return;
        }
        let mut called_ns = called_ns.min(total_ns);
        if let Some(callees) = node.filter(|_| self.arena.len() > self.most_nodes)
            && let Some(removed) = self.arena.remove_if_small(callees, SMALL_NODES)
        {
            self.cut = self.cut.saturating_add(removed.saturating_sub(1));
            (node, called_ns) = (None, 0);
        }
        let node = node.unwrap_or_else(|| self.arena.insert());
        self.arena.count(node, 1, total_ns, called_ns);
        self.note_births(span, node);
        if span.flags.has(SpanFlags::ACROSS_GAP) {
            // Whether it was itself, or something that it called, nobody knows.
            self.arena.set_missing(node, total_ns.saturating_sub(called_ns));
        }
        if is_lost || has_no_call {
            self.arena.set_untimed(node);
        }
        let mut above = self.above(span, owner, total_ns);
        if span.flags.has(SpanFlags::NO_CALLER) {
            above = self.arena.missing(above);
        }
        let kind = if self.grouping == Grouping::Causes { span.kind } else { SpanKind::Frame };
        self.arena.attach(above, kind, &span.what, node);
    }

    /// The node of what a span is in: of a caller that has not closed yet, or of its thread or task.
    fn above(&mut self, span: &Span, owner: Owner, called_ns: u64) -> Index {
        let Some(parent) = span.parent else {
            return match self.grouping {
                Grouping::Causes if span.substream.0 != 0 => self.task_node(span.substream),
                _ => self.root_index(owner),
            };
        };
        if self.waiting.len() >= MOST_WAITING && !self.waiting.contains_key(&parent) {
            self.abandon();
        }
        let Waiting { nodes, called_ns: ns, behind, behind_ns } = self.waiting.entry(parent).or_default();
        let (nodes, ns) = if span.flags.has(SpanFlags::BEHIND_GAP) { (behind, behind_ns) } else { (nodes, ns) };
        *ns = ns.saturating_add(called_ns);
        match nodes.iter().find(|(known, _)| *known == owner) {
            Some((_, node)) => *node,
            None => {
                let node = self.arena.insert();
                nodes.push((owner, node));
                node
            }
        }
    }

    /// A span has closed: decides what becomes of the calls behind a gap. They were made inside it if it was still open; if
    /// not, inside what it is in itself, by something that is missing.
    fn decide(&mut self, mut waiting: Waiting, span: &Span, is_lost: bool) -> Waiting {
        let (behind, behind_ns) = (std::mem::take(&mut waiting.behind), std::mem::take(&mut waiting.behind_ns));
        if !is_lost {
            waiting.called_ns = waiting.called_ns.saturating_add(behind_ns);
            for (owner, node) in behind {
                match waiting.nodes.iter().find(|(known, _)| *known == owner) {
                    Some((_, known)) => self.arena.merge(*known, node),
                    None => waiting.nodes.push((owner, node)),
                }
            }
            return waiting;
        }
        let outside = Span { flags: SpanFlags::BEHIND_GAP, more: None, ..span.clone() };
        let mut ns = behind_ns;
        for (owner, node) in behind {
            let above = self.above(&outside, owner, std::mem::take(&mut ns));
            let missing = self.arena.missing(above);
            self.arena.merge(missing, node);
        }
        waiting
    }

    /// Nobody is waited for any longer.
    fn abandon(&mut self) {
        for (_, waiting) in std::mem::take(&mut self.waiting) {
            self.promote(waiting, None);
        }
    }

    /// Of what a span called, that which belongs to its own thread or task; the rest was called by nobody there.
    fn promote(&mut self, waiting: Waiting, own: Option<Owner>) -> Option<Index> {
        let mut found = None;
        for (owner, node) in waiting.behind {
            let root = self.root_index(owner);
            let missing = self.arena.missing(root);
            self.arena.merge(missing, node);
        }
        for (owner, node) in waiting.nodes {
            match (own, found) {
                (Some(own), None) if own == owner || self.grouping == Grouping::Causes => found = Some(node),
                (Some(_), Some(first)) if self.grouping == Grouping::Causes => self.arena.merge(first, node),
                _ => {
                    let root = self.root_index(owner);
                    self.arena.merge(root, node);
                }
            }
        }
        found
    }

    fn root_index(&mut self, owner: Owner) -> Index {
        let arena = &mut self.arena;
        *self.roots.entry(owner).or_insert_with(|| arena.insert())
    }

    fn owner(&self, span: &Span) -> Owner {
        match (self.grouping, span.substream) {
            (Grouping::Tasks, task) if task.0 != 0 => Owner::Task(task),
            _ => Owner::Thread(span.stream),
        }
    }
}

/// By what nodes are in order that were called from one place.
pub(crate) type Rank = (Reverse<u64>, Option<arena::Key>);

/// A function, called from one place of the tree.
#[derive(Debug, Clone, Copy)]
pub struct Node<'tree> {
    arena: &'tree Arena,
    index: Index,
}

impl<'tree> Node<'tree> {
    /// Its number in its tree.
    pub fn number(&self) -> u32 {
        self.index.number()
    }

    /// What ran. Of a root nobody knows.
    pub fn what(&self) -> &'tree What {
        self.data().key.map_or(&What::Unknown, |(_, what)| self.arena.what(what))
    }

    /// Where what ran is among all of it, in the order of [`CallTree::whats`].
    pub(crate) fn what_place(&self) -> Option<usize> {
        self.data().key.map(|(_, what)| what.place())
    }

    /// What it is: a frame, but with [`Grouping::Causes`] any span.
    pub fn kind(&self) -> SpanKind {
        self.data().key.map_or(SpanKind::Frame, |(kind, _)| kind)
    }

    /// How often it was called. Of a root, 0.
    pub fn count(&self) -> u64 {
        self.data().count
    }

    /// How long it took, in nanoseconds, with all that it called. Of a root, all that its children took.
    pub fn total_ns(&self) -> u64 {
        match self.data().count {
            0 => self.unordered().map(|node| node.total_ns()).fold(self.data().total_ns, u64::saturating_add),
            // A thread or task without an end took as long as what was called in it.
            _ => self.data().total_ns.max(self.data().called_ns),
        }
    }

    /// How long it took itself, in nanoseconds.
    pub fn self_ns(&self) -> u64 {
        self.data().total_ns.saturating_sub(self.data().called_ns)
    }

    /// Of how many of the calls nobody knows how long they took, since events are missing: their times lack those.
    pub fn untimed(&self) -> u64 {
        self.data().untimed
    }

    /// What it called, that which took longest first.
    pub fn children(&self) -> Vec<Self> {
        let mut children: Vec<Self> = self.unordered().collect();
        children.sort_by_key(Self::rank);
        children
    }

    /// That which took longest is first.
    pub(crate) fn rank(&self) -> Rank {
        (Reverse(self.total_ns()), self.data().key)
    }

    /// The same in no order.
    pub(crate) fn unordered(&self) -> impl Iterator<Item = Self> + use<'tree> {
        let arena = self.arena;
        arena.children(self.index).map(move |index| Node { arena, index })
    }

    fn data(&self) -> &'tree arena::Data {
        self.arena.data(self.index)
    }
}

#[cfg(test)]
mod tests;
