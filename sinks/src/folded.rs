//! Spans as folded stacks.

use std::{cmp::Reverse, fs::File, io::Write};

use ahash::HashMap;
use codec::span::Span;

use crate::{
    Catalog, Session, SinkError, name,
    output::Output,
    tree::{CallTree, Grouping, Node, Owner, Rank},
    view::{Encoder, ViewSink},
};

/// How deep a stack is written. What is deeper counts for the last that is.
const MOST_FRAMES: usize = 512;

/// Writes folded stacks, from which `flamegraph.pl`, inferno and speedscope make flame graphs: a line
/// `thread;main;work 1234` says for how many nanoseconds `work` itself ran where `main` called it.
///
/// It is written when a session ends. Memory grows with the number of different call paths.
pub type FoldedSink<W = File> = ViewSink<FoldedEncoder, W>;

impl<W: Write> FoldedSink<W> {
    /// Sets whether tasks have stacks of their own.
    #[must_use]
    pub fn by(self, grouping: Grouping) -> Self {
        self.options(grouping)
    }
}

/// Folds the stacks of one session.
#[derive(Debug)]
pub struct FoldedEncoder(CallTree);

impl Encoder for FoldedEncoder {
    type Options = Grouping;

    fn new(_: u32, grouping: &Grouping) -> Self {
        Self(CallTree::new(*grouping))
    }

    fn spans<W: Write>(&mut self, _: &Session, spans: &[Span], _: u64, _: &mut Output<W>) -> Result<(), SinkError> {
        spans.iter().for_each(|span| self.0.add(span));
        Ok(())
    }

    fn end<W: Write>(mut self, session: &Session, _: u64, out: &mut Output<W>) -> Result<(), SinkError> {
        self.0.finish();
        // Names are looked up before anything is written: that may block, and the catalog must be free.
        let folds = Folds::new(&session.catalog(), &self.0);
        folds.each(
            |_| true,
            |stack, ns| {
                let buffer = out.buffer()?;
                buffer.extend_from_slice(stack.as_bytes());
                buffer.push(b' ');
                buffer.extend_from_slice(itoa::Buffer::new().format(ns).as_bytes());
                buffer.push(b'\n');
                out.relieve()
            },
        )
    }
}

/// The stacks of a finished tree, with the names of what is in them.
#[derive(Debug)]
pub struct Folds<'a> {
    tree: &'a CallTree,
    names: Names,
}

impl<'a> Folds<'a> {
    /// Looks up the names.
    pub fn new(catalog: &Catalog, tree: &'a CallTree) -> Self {
        Self { tree, names: Names::new(catalog, tree) }
    }

    /// Hands over each stack that took time, with how many nanoseconds its innermost function took itself. Nodes that are
    /// not wanted are left out with all that is below them.
    pub fn each<E>(
        &self,
        wants: impl Fn(&Node<'_>) -> bool,
        mut take: impl FnMut(&str, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        // The stack is kept as a text that grows and shrinks, since programs recurse deeply.
        let mut path = String::new();
        let mut rest = Vec::new();
        for (owner, root) in self.tree.roots() {
            path.clear();
            path.push_str(self.names.owners.get(&owner).map_or("?", |name| name));
            below(&root, 0, path.len(), &mut rest);
            while let Some(Place { node, depth, length, .. }) = rest.pop() {
                if !wants(&node) {
                    continue;
                }
                path.truncate(length);
                path.push(';');
                path.push_str(
                    node.what_place().and_then(|what| self.names.functions.get(what)).map_or("?", |name| name),
                );
                let deepest = depth >= MOST_FRAMES;
                let time_ns = if deepest { node.total_ns() } else { node.self_ns() };
                if time_ns > 0 {
                    take(&path, time_ns)?;
                }
                if !deepest {
                    below(&node, depth, path.len(), &mut rest);
                }
            }
        }
        Ok(())
    }
}

/// The names that a tree needs, as stacks have them.
#[derive(Debug)]
struct Names {
    owners: HashMap<Owner, String>,
    /// In the order of [`CallTree::whats`].
    functions: Vec<Box<str>>,
}

impl Names {
    fn new(catalog: &Catalog, tree: &CallTree) -> Self {
        let owner = |owner| match owner {
            Owner::Thread(stream) => match catalog.thread(stream) {
                Some(thread) if !thread.name.is_empty() => format!("{} [{}]", thread.name, thread.os_id),
                Some(thread) => format!("thread [{}]", thread.os_id),
                None => format!("thread {}", stream.0),
            },
            Owner::Task(task) => format!("task {:#x}", task.0),
        };
        let function = |what| part(&name(catalog, what).pretty).into();
        let owners = tree.roots().map(|(one, _)| (one, part(&owner(one)))).collect();
        Self { owners, functions: tree.whats().map(function).collect() }
    }
}

/// A node that is to be written: its rank among its siblings, how deep it is, and how long the text of its callers.
struct Place<'a> {
    node: Node<'a>,
    rank: Rank,
    depth: usize,
    length: usize,
}

/// Adds what a node called, the last first.
fn below<'a>(node: &Node<'a>, depth: usize, length: usize, rest: &mut Vec<Place<'a>>) {
    let from = rest.len();
    rest.extend(node.unordered().map(|node| Place { rank: node.rank(), node, depth: depth + 1, length }));
    rest.get_mut(from..).unwrap_or_default().sort_unstable_by_key(|place| Reverse(place.rank));
}

/// A name as a part of a stack, without what would be taken for the end of a frame or a line.
fn part(name: &str) -> String {
    let harmless = |c: char| match c {
        ';' => ':',
        c if c.is_control() => ' ',
        c => c,
    };
    name.chars().map(harmless).collect()
}

#[cfg(test)]
mod tests;
