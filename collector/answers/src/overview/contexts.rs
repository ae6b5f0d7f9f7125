//! The calling contexts of a session: each function by the chain of calls that led to it.

use std::collections::HashMap;

use ahash::RandomState;

use super::layout::MOST_CONTEXTS;

/// No context, of what nothing called.
pub(super) const NONE: u32 = u32::MAX;

/// A context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// The context that it was called in, which has a smaller number.
    pub parent: Option<u32>,
    /// What was called, by its number.
    pub what: u32,
    /// Whether the same is among its callers.
    pub is_recursive: bool,
}

/// Contexts while they are found.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    pub(super) nodes: Vec<Node>,
    numbers: HashMap<(u32, u32), u32, RandomState>,
    /// How many calls are shown without their callers, since there are too many contexts.
    pub(super) cut: u64,
}

impl Contexts {
    /// The context of a call in another one.
    #[inline]
    pub(super) fn child(&mut self, parent: u32, what: u32) -> u32 {
        match self.numbers.get(&(parent, what)) {
            Some(number) => *number,
            None => self.add(parent, what),
        }
    }

    #[cold]
    fn add(&mut self, parent: u32, what: u32) -> u32 {
        if self.nodes.len() >= MOST_CONTEXTS && parent != NONE {
            self.cut = self.cut.saturating_add(1);
            return self.child(NONE, what);
        }
        let number = u32::try_from(self.nodes.len()).unwrap_or(NONE);
        let parent_node = Some(parent).filter(|parent| *parent != NONE);
        let is_recursive = self.callers(parent_node).any(|node| node.what == what);
        self.nodes.push(Node { parent: parent_node, what, is_recursive });
        self.numbers.insert((parent, what), number);
        number
    }

    fn callers(&self, first: Option<u32>) -> impl Iterator<Item = Node> {
        let node = |number: u32| self.nodes.get(number as usize).copied();
        std::iter::successors(first.and_then(node), move |below| below.parent.and_then(node))
    }
}
