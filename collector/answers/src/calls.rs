//! Who called what: the call tree of what is asked for.

use std::collections::HashSet;

use anyhow::Result;
use codec::{SessionNs, SubstreamId, span::SpanKind};
use collector_core::spans::SpanConfig;
use sinks::{
    NameCache,
    tree::{CallTree, Grouping, Node, Owner},
};

use super::{
    filter::{Filter, Share},
    spanning,
    trace::Trace,
};

/// The calls of a session that are asked for.
#[derive(Debug)]
pub struct Calls {
    /// Who called what.
    pub tree: CallTree,
    /// Whose trees are asked for, where those are not all.
    owners: Option<Vec<Owner>>,
    /// The nodes that match, lead to one that does, or were called by one; none where all do.
    shown: Option<HashSet<u32>>,
}

/// How calls are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// By cause, or where a thread or a task is asked for, of that. Whoever shows it leaves out what is too deep.
    Tree,
    /// By thread. What is too deep is not in it.
    Stacks,
}

impl Calls {
    /// Nothing yet. What births are looked for has to be told to the tree before it is read.
    pub fn new(filter: &Filter, form: Form) -> Self {
        let (grouping, owners) = match (form, filter.task(), filter.streams()) {
            (_, Some(task), _) => (Grouping::Tasks, Some(vec![Owner::Task(SubstreamId(task))])),
            (_, None, Some(streams)) => {
                (Grouping::Threads, Some(streams.iter().map(|stream| Owner::Thread(*stream)).collect()))
            }
            (Form::Tree, None, None) => (Grouping::Causes, None),
            (Form::Stacks, None, None) => (Grouping::Threads, None),
        };
        Self { tree: CallTree::new(grouping), owners, shown: None }
    }

    /// Reads the session. It is told of every batch how many events were read, and may stop there.
    pub fn read(
        &mut self,
        trace: &Trace,
        config: SpanConfig,
        filter: &Filter,
        form: Form,
        mut reached: impl FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let engine = spanning::engine(trace, config);
        spanning::batches(trace, engine, false, |batch| {
            for span in &batch.spans {
                match filter.share(span, form == Form::Tree) {
                    Share::Counts(span) => self.tree.add(&span),
                    Share::Hidden(span) => self.tree.pass(&span),
                    Share::None => {}
                }
            }
            reached(batch.events)
        })?;
        self.tree.finish();
        if filter.has_names() {
            let shown = self.find_shown(trace, filter);
            self.shown = Some(shown);
        }
        Ok(())
    }

    /// The trees that are asked for.
    pub fn roots(&self) -> Vec<(Owner, Node<'_>)> {
        match &self.owners {
            Some(owners) => owners.iter().filter_map(|owner| Some((*owner, self.tree.root(*owner)?))).collect(),
            None => self.tree.roots().collect(),
        }
    }

    /// Whether a node is asked for: it matches, leads to one that does, or was called by one.
    pub fn shows(&self, node: &Node<'_>) -> bool {
        self.shown.as_ref().is_none_or(|shown| shown.contains(&node.number()))
    }

    fn find_shown(&self, trace: &Trace, filter: &Filter) -> HashSet<u32> {
        let mut names = NameCache::new();
        // Each node before those below it: its number, the place of the one above, and whether it is in a match.
        let mut order: Vec<(Node<'_>, Option<usize>, bool)> =
            self.roots().into_iter().map(|(_, root)| (root, None, false)).collect();
        let mut next = 0;
        while let Some((node, above, is_inside)) = order.get(next).copied() {
            // A root is no call, and what is missing is in no module.
            let is_call = above.is_some() && node.kind() != SpanKind::Gap;
            let is_inside =
                is_inside || is_call && filter.has_name(names.name(&trace.catalog, node.what(), SessionNs(0)));
            if let Some(known) = order.get_mut(next) {
                known.2 = is_inside;
            }
            order.extend(node.children().into_iter().map(|child| (child, Some(next), is_inside)));
            next += 1;
        }
        let mut shown = HashSet::new();
        for (node, above, is_inside) in order.iter().rev() {
            if *is_inside || shown.contains(&node.number()) {
                shown.insert(node.number());
                shown.extend(above.and_then(|above| order.get(above)).map(|(node, ..)| node.number()));
            }
        }
        shown
    }
}
