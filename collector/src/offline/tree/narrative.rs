//! The story of a session: what was meant to run, by what caused it, and the calls in each.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
};

use codec::{
    StreamId,
    span::{Span, SpanId, SpanKind, What},
};

use super::{Branch, View};

/// Threads, blocks, tasks and callbacks, each below the one that created it, with the calls that were made in it. What is
/// of the same kind and function at the same place is one node.
///
/// A frame that is the code of such a span is not shown: the span stands for both. What was created by a frame that
/// belongs to none of them is below that frame's thread.
#[derive(Debug, Default)]
pub(super) struct Narrative {
    nodes: Vec<Node>,
    /// Nodes that are nobody's.
    free: Vec<usize>,
    whats: HashMap<What, u32>,
    names: Vec<What>,
    threads: BTreeMap<StreamId, usize>,
    /// Calls made by frames that have not ended.
    frames: HashMap<SpanId, Waiting>,
    /// The nodes of logical spans, also of those that are only known from what they created.
    logical: HashMap<SpanId, usize>,
    tasks: HashMap<u64, usize>,
}

#[derive(Debug, Default)]
struct Node {
    key: Option<Key>,
    count: u64,
    total_ns: u64,
    called_ns: u64,
    children: HashMap<Key, usize>,
    /// Whether it is known by a span that others may name later: then it says where it went.
    pinned: bool,
    /// Where it went when it turned out to be the same as another.
    moved: Option<usize>,
}

type Key = (SpanKind, u32);

#[derive(Debug, Clone, Copy)]
struct Waiting {
    node: usize,
    stream: StreamId,
    called_ns: u64,
}

/// How many logical spans are remembered. What is created by those beyond is shown below their threads.
const MOST_LOGICAL: usize = 1 << 20;
/// How many callers are waited for.
const MOST_WAITING: usize = 1 << 20;

impl Narrative {
    pub(super) fn add(&mut self, span: &Span) {
        match span.kind {
            SpanKind::Frame | SpanKind::Event => self.add_frame(span),
            kind if kind.is_logical() => self.add_logical(span),
            _ => {}
        }
    }

    fn add_frame(&mut self, span: &Span) {
        let waiting = self.frames.remove(&span.id);
        let called_ns = waiting.map_or(0, |waiting| waiting.called_ns);
        // What has no end took as long as what it called, and who knows how much longer.
        let took = span.duration().unwrap_or(called_ns);
        let above = span.parent.map(|parent| self.caller(parent, span.stream, took));
        if let Some(node) = span.twin.and_then(|logical| self.logical_node(logical)) {
            self.change(node, |node| node.called_ns = node.called_ns.saturating_add(called_ns));
            if let Some(waiting) = waiting {
                self.absorb(node, waiting.node);
            }
            return;
        }
        let node = waiting.map_or_else(|| self.insert(), |waiting| waiting.node);
        self.count(node, took, called_ns);
        let above = above.unwrap_or_else(|| match span.substream.0 {
            0 => self.thread(span.stream),
            task => self.task(task),
        });
        self.attach(above, (span.kind, &span.what), node);
    }

    fn add_logical(&mut self, span: &Span) {
        let node = self.logical_node(span.id).unwrap_or_else(|| self.insert());
        self.count(node, span.duration().unwrap_or(0), 0);
        if span.kind == SpanKind::Task
            && let Some(task) = span.key()
            && let Some(calls) = self.tasks.insert(task, node)
        {
            self.absorb(node, calls);
        }
        let above = span.parent.and_then(|parent| self.logical_node(parent)).unwrap_or_else(|| {
            let creator = span.more.as_ref().and_then(|more| more.creator);
            self.thread(creator.unwrap_or(span.stream))
        });
        self.attach(above, (span.kind, &span.what), node);
    }

    /// Nothing more comes. What nobody called is called by its thread.
    pub(super) fn finish(&mut self) {
        for waiting in mem::take(&mut self.frames).into_values() {
            let thread = self.thread(waiting.stream);
            self.absorb(thread, waiting.node);
        }
        for (id, node) in mem::take(&mut self.logical) {
            let node = self.find(node);
            if self.nodes.get(node).is_some_and(|node| node.key.is_none()) {
                // It is a frame that is in no logical span: that of a thread of which nobody saw the start.
                let thread = self.thread(id.stream());
                self.absorb(thread, node);
            }
        }
        for (task, node) in mem::take(&mut self.tasks) {
            let node = self.find(node);
            if self.nodes.get(node).is_some_and(|node| node.key.is_none()) {
                self.count(node, 0, 0);
                let name = What::Named(format!("task {task}").into());
                let root = self.thread(StreamId(0));
                self.attach(root, (SpanKind::Task, &name), node);
            }
        }
    }

    /// The threads that have a story of their own, each with what it did.
    pub(super) fn roots(&self) -> impl Iterator<Item = (StreamId, Leaf<'_>)> {
        self.threads.iter().map(|(stream, node)| (*stream, Leaf { of: self, node: self.find_now(*node) }))
    }

    fn caller(&mut self, parent: SpanId, stream: StreamId, took: u64) -> usize {
        if !self.frames.contains_key(&parent) {
            if self.frames.len() >= MOST_WAITING {
                for waiting in mem::take(&mut self.frames).into_values() {
                    let thread = self.thread(waiting.stream);
                    self.absorb(thread, waiting.node);
                }
            }
            let node = self.insert();
            self.frames.insert(parent, Waiting { node, stream, called_ns: 0 });
        }
        self.frames.get_mut(&parent).map_or(0, |waiting| {
            waiting.called_ns = waiting.called_ns.saturating_add(took);
            waiting.node
        })
    }

    /// The node of a logical span, unless there are too many.
    fn logical_node(&mut self, id: SpanId) -> Option<usize> {
        if let Some(node) = self.logical.get(&id) {
            return Some(self.find(*node));
        }
        let room = self.logical.len() < MOST_LOGICAL;
        room.then(|| {
            let node = self.insert();
            self.change(node, |node| node.pinned = true);
            self.logical.insert(id, node);
            node
        })
    }

    fn thread(&mut self, stream: StreamId) -> usize {
        let nodes = &mut self.nodes;
        *self.threads.entry(stream).or_insert_with(|| pinned(nodes))
    }

    fn task(&mut self, task: u64) -> usize {
        let nodes = &mut self.nodes;
        let node = *self.tasks.entry(task).or_insert_with(|| pinned(nodes));
        self.find(node)
    }

    fn insert(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.nodes.push(Node::default());
            self.nodes.len() - 1
        })
    }

    fn change(&mut self, node: usize, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.nodes.get_mut(node) {
            change(node);
        }
    }

    fn count(&mut self, node: usize, took: u64, called_ns: u64) {
        self.change(node, |node| {
            node.count = node.count.saturating_add(1);
            node.total_ns = node.total_ns.saturating_add(took);
            node.called_ns = node.called_ns.saturating_add(called_ns);
        });
    }

    /// Puts a node below another, into the one that is the same there if there is one.
    fn attach(&mut self, above: usize, (kind, what): (SpanKind, &What), node: usize) {
        let what = match self.whats.get(what) {
            Some(number) => *number,
            None => {
                let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
                self.whats.insert(what.clone(), number);
                self.names.push(what.clone());
                number
            }
        };
        let (above, key) = (self.find(above), (kind, what));
        self.change(node, |node| node.key = Some(key));
        match self.nodes.get(above).and_then(|above| above.children.get(&key)).copied() {
            Some(same) => self.absorb(same, node),
            None => self.change(above, |above| _ = above.children.insert(key, node)),
        }
    }

    /// Makes one of two nodes. The tree may be deeper than the stack.
    fn absorb(&mut self, into: usize, from: usize) {
        let mut pairs = vec![(self.find(into), self.find(from))];
        while let Some((into, from)) = pairs.pop() {
            if into == from {
                continue;
            }
            let Some(gone) = self.nodes.get_mut(from) else { continue };
            let children = mem::take(&mut gone.children);
            let (count, total_ns, called_ns) = (gone.count, gone.total_ns, gone.called_ns);
            if gone.pinned {
                gone.moved = Some(into);
            } else {
                *gone = Node::default();
                self.free.push(from);
            }
            let Some(kept) = self.nodes.get_mut(into) else { continue };
            kept.count = kept.count.saturating_add(count);
            kept.total_ns = kept.total_ns.saturating_add(total_ns);
            kept.called_ns = kept.called_ns.saturating_add(called_ns);
            for (key, child) in children {
                match kept.children.get(&key) {
                    Some(same) => pairs.push((*same, child)),
                    None => _ = kept.children.insert(key, child),
                }
            }
        }
    }

    /// Where a node is now. The way there is shortened.
    fn find(&mut self, node: usize) -> usize {
        let found = self.find_now(node);
        let mut at = node;
        while let Some(moved) = self.nodes.get(at).and_then(|node| node.moved) {
            self.change(at, |node| node.moved = Some(found));
            at = moved;
        }
        found
    }

    fn find_now(&self, mut node: usize) -> usize {
        while let Some(moved) = self.nodes.get(node).and_then(|node| node.moved) {
            node = moved;
        }
        node
    }
}

fn pinned(nodes: &mut Vec<Node>) -> usize {
    nodes.push(Node { pinned: true, ..Node::default() });
    nodes.len() - 1
}

/// A node to be looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaf<'a> {
    of: &'a Narrative,
    node: usize,
}

impl Branch for Leaf<'_> {
    fn view(&self) -> View<'_> {
        let node = self.of.nodes.get(self.node);
        let key = node.and_then(|node| node.key);
        let what = key.and_then(|(_, what)| self.of.names.get(usize::try_from(what).ok()?)).unwrap_or(&What::Unknown);
        let kind = key.map_or(SpanKind::Frame, |(kind, _)| kind);
        let (count, total_ns, called_ns) = node.map_or((0, 0, 0), |node| (node.count, node.total_ns, node.called_ns));
        // Threads and the like that have no end took as long as what was called in them.
        let total_ns = total_ns.max(called_ns);
        View { what, kind, count, total_ns, self_ns: total_ns - called_ns }
    }

    fn children(&self) -> Vec<Self> {
        let node = self.of.nodes.get(self.node);
        let children = node.into_iter().flat_map(|node| node.children.values());
        let mut children: Vec<_> = children.map(|child| Leaf { of: self.of, node: self.of.find_now(*child) }).collect();
        let number = |leaf: &Self| self.of.nodes.get(leaf.node).and_then(|node| node.key);
        children.sort_by_key(|leaf| (std::cmp::Reverse(leaf.view().total_ns), number(leaf)));
        children
    }
}
