//! The nodes of call trees, in one piece of memory.
//!
//! Programs recurse deeper than this one could, so nothing here does.

use std::num::NonZeroU32;

use ahash::HashMap;
use codec::span::{SpanKind, What};

/// How many different functions are told apart. Those beyond have no name.
const MOST_WHATS: usize = 1 << 20;

/// What stands for functions whose events are missing.
const MISSING: &str = "(missing)";

/// How many children are searched one by one.
const FEW: u32 = 8;

/// Where a node is: its place, counted from 1, so that none takes no more room. There are millions of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Index(NonZeroU32);

impl Index {
    /// The trees' owner stops long before there are too many.
    fn new(place: usize) -> Self {
        Self(NonZeroU32::MIN.saturating_add(u32::try_from(place).unwrap_or(u32::MAX)))
    }

    /// As a number.
    pub(crate) fn number(self) -> u32 {
        self.0.get() - 1
    }

    fn place(self) -> usize {
        self.number() as usize
    }
}

/// The number of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct WhatId(u32);

impl WhatId {
    const NONE: Self = Self(u32::MAX);

    /// Where it is among all functions.
    pub(crate) fn place(self) -> usize {
        self.0 as usize
    }
}

/// What a node stands for. Those of one caller that stand for the same are one.
pub(crate) type Key = (SpanKind, WhatId);

/// What is known of a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Data {
    /// None of a root, and of a span that is known only from what it created.
    pub(crate) key: Option<Key>,
    pub(crate) count: u64,
    pub(crate) total_ns: u64,
    /// How much of it passed in what was called.
    pub(crate) called_ns: u64,
    /// Of how many of the calls nobody knows how long they took, since events are missing.
    pub(crate) untimed: u64,
    /// How many are called from here, and the latest of them.
    children: u32,
    first_child: Option<Index>,
    sibling: Option<Index>,
    /// Whether others may refer to it later: then it stays, and says where it was merged into.
    pinned: bool,
    moved: Option<Index>,
}

const EMPTY: Data = Data {
    key: None,
    count: 0,
    total_ns: 0,
    called_ns: 0,
    untimed: 0,
    children: 0,
    first_child: None,
    sibling: None,
    pinned: false,
    moved: None,
};

#[derive(Debug, Default)]
pub(crate) struct Arena {
    nodes: Vec<Data>,
    free: Vec<Index>,
    /// The child for each key, of nodes with more than a few children.
    edges: HashMap<(Index, Key), Index>,
    ids: HashMap<What, WhatId>,
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
                let next = Index::new(self.nodes.len());
                self.nodes.push(EMPTY);
                next
            }
        }
    }

    /// Lets a node be referred to after it was merged into another.
    pub(crate) fn pin(&mut self, index: Index) {
        self.set(index, |data| data.pinned = true);
    }

    /// A new node that can be referred to after it was merged into another.
    pub(crate) fn insert_pinned(&mut self) -> Index {
        let index = self.insert();
        self.pin(index);
        index
    }

    /// The node that a pinned one was merged into. The way there is shortened.
    pub(crate) fn find(&mut self, index: Index) -> Index {
        let mut found = index;
        while let Some(next) = self.data(found).moved {
            found = next;
        }
        let mut at = index;
        while let Some(next) = self.data(at).moved {
            self.set(at, |data| data.moved = Some(found));
            at = next;
        }
        found
    }

    pub(crate) fn data(&self, index: Index) -> &Data {
        self.nodes.get(index.place()).unwrap_or(&EMPTY)
    }

    pub(crate) fn children(&self, index: Index) -> impl Iterator<Item = Index> {
        std::iter::successors(self.data(index).first_child, |child| self.data(*child).sibling)
    }

    pub(crate) fn what(&self, id: WhatId) -> &What {
        self.whats.get(id.place()).unwrap_or(&What::Unknown)
    }

    pub(crate) fn whats(&self) -> impl Iterator<Item = &What> {
        self.whats.iter()
    }

    fn id(&mut self, what: &What) -> WhatId {
        if let Some(id) = self.ids.get(what) {
            return *id;
        }
        if self.whats.len() >= MOST_WHATS {
            return WhatId::NONE;
        }
        let id = u32::try_from(self.whats.len()).map_or(WhatId::NONE, WhatId);
        self.whats.push(what.clone());
        self.ids.insert(what.clone(), id);
        id
    }

    /// Adds calls, their time, and how much of it passed in what they called.
    pub(crate) fn count(&mut self, index: Index, count: u64, total_ns: u64, called_ns: u64) {
        self.set(index, |data| data.add(count, total_ns, called_ns));
    }

    /// Says of a call that was added that nobody knows how long it took.
    pub(crate) fn set_untimed(&mut self, index: Index) {
        self.set(index, |data| data.untimed = data.untimed.saturating_add(1));
    }

    /// What a node took without what it called may have been itself, or something that it called and that is missing.
    pub(crate) fn doubt(&mut self, index: Index) {
        let Data { total_ns, called_ns, .. } = *self.data(index);
        self.set_missing(index, total_ns.saturating_sub(called_ns));
    }

    /// So much of what a node took may have been something that it called and that is missing.
    pub(crate) fn set_missing(&mut self, index: Index, unsure_ns: u64) {
        let missing = self.missing(index);
        self.count(missing, 0, unsure_ns, 0);
        self.count(index, 0, 0, unsure_ns);
    }

    /// The node below another that stands for what is missing there. Such a node has none below it.
    pub(crate) fn missing(&mut self, above: Index) -> Index {
        let key = (SpanKind::Gap, self.id(&What::Named(MISSING.into())));
        if self.data(above).is_missing() {
            return above;
        }
        match self.child(above, key) {
            Some(known) => known,
            None => {
                let node = self.insert();
                self.set(node, |data| data.key = Some(key));
                self.link(above, node);
                node
            }
        }
    }

    /// Puts a node that is under no other yet under one, with all that is under it.
    pub(crate) fn attach(&mut self, above: Index, kind: SpanKind, what: &What, node: Index) {
        let key = Some((kind, self.id(what)));
        self.set(node, |data| data.key = key);
        if let Some(known) = self.link(above, node) {
            self.merge(known, node);
        }
    }

    /// Adds a node that is under no other, with all that is under it, to another.
    pub(crate) fn merge(&mut self, into: Index, from: Index) {
        let mut pairs = vec![(into, from)];
        while let Some((into, from)) = pairs.pop() {
            if into == from {
                continue;
            }
            let Data { count, total_ns, called_ns, untimed, first_child, pinned, .. } = *self.data(from);
            self.set(into, |data| {
                data.add(count, total_ns, called_ns);
                data.untimed = data.untimed.saturating_add(untimed);
            });
            let mut next = first_child;
            while let Some(child) = next {
                next = self.data(child).sibling;
                self.unlink(from, child);
                let known = if self.data(child).is_missing() && self.data(into).is_missing() {
                    Some(into)
                } else {
                    self.link(into, child)
                };
                pairs.extend(known.map(|known| (known, child)));
            }
            if pinned {
                self.set(from, |data| *data = Data { pinned, moved: Some(into), ..EMPTY });
            } else {
                self.free.push(from);
            }
        }
    }

    /// Removes a node that nothing calls yet, with all that is under it, and returns how many that were. Does nothing
    /// if they are `most` or more, or others refer to one of them.
    pub(crate) fn remove_if_small(&mut self, node: Index, most: usize) -> Option<u64> {
        let mut found = vec![node];
        let mut at = 0;
        while let Some(index) = found.get(at).copied() {
            at += 1;
            if self.data(index).pinned {
                return None;
            }
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
                self.unlink(*index, child);
            }
        }
        self.free.extend_from_slice(&found);
        Some(found.len() as u64)
    }

    /// Makes a node the child of another, unless that has one with the same key: returns that one.
    fn link(&mut self, above: Index, node: Index) -> Option<Index> {
        let key = self.data(node).key?;
        if let Some(known) = self.child(above, key) {
            return Some(known);
        }
        let Data { children, first_child, .. } = *self.data(above);
        self.set(node, |data| data.sibling = first_child);
        self.set(above, |data| (data.children, data.first_child) = (children + 1, Some(node)));
        if children == FEW {
            let all: Vec<_> = self.children(above).filter_map(|child| Some((self.data(child).key?, child))).collect();
            self.edges.extend(all.into_iter().map(|(key, child)| ((above, key), child)));
        } else if children > FEW {
            self.edges.insert((above, key), node);
        }
        None
    }

    fn child(&self, above: Index, key: Key) -> Option<Index> {
        if self.data(above).children > FEW {
            return self.edges.get(&(above, key)).copied();
        }
        self.children(above).find(|child| self.data(*child).key == Some(key))
    }

    fn unlink(&mut self, above: Index, child: Index) {
        if let Some(key) = self.data(child).key.filter(|_| self.data(above).children > FEW) {
            self.edges.remove(&(above, key));
        }
    }

    fn set(&mut self, index: Index, change: impl FnOnce(&mut Data)) {
        if let Some(data) = self.nodes.get_mut(index.place()) {
            change(data);
        }
    }
}

impl Data {
    /// Whether it stands for what is missing.
    fn is_missing(&self) -> bool {
        self.key.is_some_and(|(kind, _)| kind == SpanKind::Gap)
    }

    fn add(&mut self, count: u64, total_ns: u64, called_ns: u64) {
        self.count = self.count.saturating_add(count);
        self.total_ns = self.total_ns.saturating_add(total_ns);
        self.called_ns = self.called_ns.saturating_add(called_ns);
    }
}
