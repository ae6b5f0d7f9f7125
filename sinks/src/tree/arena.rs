//! The nodes of call trees, in one piece of memory.
//!
//! Programs recurse deeper than this one could, so nothing here does.

use std::collections::HashMap;

use codec::span::What;

/// How many different things are told apart. What is beyond has no name.
const MOST_KINDS: usize = 1 << 20;

/// Where a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Index(usize);

/// What a node stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Kind(pub(super) u32);

/// What is known of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Data {
    pub(crate) kind: Kind,
    pub(crate) count: u64,
    pub(crate) total_ns: u64,
    pub(crate) self_ns: u64,
    first_child: Option<Index>,
    sibling: Option<Index>,
}

const EMPTY: Data = Data { kind: Kind::NONE, count: 0, total_ns: 0, self_ns: 0, first_child: None, sibling: None };

#[derive(Debug, Default)]
pub(crate) struct Arena {
    nodes: Vec<Data>,
    free: Vec<Index>,
    /// The child of each node for each kind.
    edges: HashMap<(Index, Kind), Index>,
    kinds: HashMap<What, Kind>,
    whats: Vec<What>,
}

impl Arena {
    /// How many nodes there are.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// A new node, which nothing calls yet.
    pub(crate) fn insert(&mut self) -> Index {
        match self.free.pop() {
            Some(index) => {
                self.set(index, |data| *data = EMPTY);
                index
            }
            None => {
                self.nodes.push(EMPTY);
                Index(self.nodes.len() - 1)
            }
        }
    }

    pub(crate) fn data(&self, index: Index) -> &Data {
        self.nodes.get(index.0).unwrap_or(&EMPTY)
    }

    pub(crate) fn children(&self, index: Index) -> impl Iterator<Item = Index> {
        std::iter::successors(self.data(index).first_child, |child| self.data(*child).sibling)
    }

    pub(crate) fn what(&self, kind: Kind) -> &What {
        self.whats.get(kind.0 as usize).unwrap_or(&What::Unknown)
    }

    pub(crate) fn whats(&self) -> impl Iterator<Item = &What> {
        self.whats.iter()
    }

    pub(crate) fn kind(&mut self, what: &What) -> Kind {
        if let Some(kind) = self.kinds.get(what) {
            return *kind;
        }
        if self.whats.len() >= MOST_KINDS {
            return Kind::NONE;
        }
        let kind = u32::try_from(self.whats.len()).map_or(Kind::NONE, Kind);
        self.whats.push(what.clone());
        self.kinds.insert(what.clone(), kind);
        kind
    }

    /// One more call.
    pub(crate) fn count(&mut self, index: Index, total_ns: u64, self_ns: u64) {
        self.set(index, |data| data.add(1, total_ns, self_ns));
    }

    /// Puts a node under another, with all that is under it.
    pub(crate) fn attach(&mut self, above: Index, kind: Kind, node: Index) {
        self.set(node, |data| data.kind = kind);
        if let Some(known) = self.link(above, node) {
            self.merge(known, node);
        }
    }

    /// Adds a node, with all that is under it, to another. It is gone then.
    pub(crate) fn merge(&mut self, into: Index, from: Index) {
        let mut pairs = vec![(into, from)];
        while let Some((into, from)) = pairs.pop() {
            let Data { count, total_ns, self_ns, .. } = *self.data(from);
            self.set(into, |data| data.add(count, total_ns, self_ns));
            let mut next = self.data(from).first_child;
            while let Some(child) = next {
                next = self.data(child).sibling;
                self.edges.remove(&(from, self.data(child).kind));
                if let Some(known) = self.link(into, child) {
                    pairs.push((known, child));
                }
            }
            self.free.push(from);
        }
    }

    /// Removes a node that nothing calls yet, with all that is under it, and tells how many that were. Does nothing
    /// if they are `most` or more.
    pub(crate) fn remove_if_small(&mut self, node: Index, most: usize) -> Option<u64> {
        let mut found = vec![node];
        let mut at = 0;
        while let Some(index) = found.get(at).copied() {
            at += 1;
            for child in self.children(index) {
                found.push(child);
                if found.len() >= most {
                    return None;
                }
            }
        }
        for index in &found {
            let mut next = self.data(*index).first_child;
            while let Some(child) = next {
                next = self.data(child).sibling;
                self.edges.remove(&(*index, self.data(child).kind));
            }
        }
        self.free.extend_from_slice(&found);
        Some(found.len() as u64)
    }

    /// Makes a node the child of another, unless that has one of the same kind, which is told.
    fn link(&mut self, above: Index, node: Index) -> Option<Index> {
        let kind = self.data(node).kind;
        if let Some(known) = self.edges.get(&(above, kind)) {
            return Some(*known);
        }
        self.edges.insert((above, kind), node);
        let first = self.data(above).first_child;
        self.set(node, |data| data.sibling = first);
        self.set(above, |data| data.first_child = Some(node));
        None
    }

    fn set(&mut self, index: Index, change: impl FnOnce(&mut Data)) {
        if let Some(data) = self.nodes.get_mut(index.0) {
            change(data);
        }
    }
}

impl Data {
    fn add(&mut self, count: u64, total_ns: u64, self_ns: u64) {
        self.count = self.count.saturating_add(count);
        self.total_ns = self.total_ns.saturating_add(total_ns);
        self.self_ns = self.self_ns.saturating_add(self_ns);
    }
}
