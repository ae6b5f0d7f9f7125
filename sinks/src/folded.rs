//! The sink that writes folded stacks.

use std::{collections::HashMap, fs::File, io::Write, path::Path, sync::Arc};

use codec::span::{Span, What};

use crate::{
    Batch, Catalog, Ended, Gap, Session, Sink, SinkError, name,
    output::Output,
    tree::{CallTree, Grouping, Node, Owner},
};

/// How deep a stack is written. What is deeper counts for the last that is.
const MOST_FRAMES: usize = 512;

/// Writes folded stacks, from which `flamegraph.pl`, inferno and speedscope make flame graphs: a line
/// `thread;main;work 1234` says for how many nanoseconds `work` itself ran where `main` called it.
///
/// It is written when a session ends. Memory grows with the number of different call paths.
#[derive(Debug)]
pub struct FoldedSink<W = File> {
    out: Output<W>,
    sessions: HashMap<String, CallTree>,
    grouping: Grouping,
}

impl FoldedSink<File> {
    /// Writes to a new file, or over one that is there.
    pub fn create(path: &Path) -> Result<Self, SinkError> {
        let file = File::create(path);
        let failed = |error| SinkError::from_io(format!("cannot create {}", path.display()), error);
        file.map(Self::new).map_err(failed)
    }
}

impl<W: Write> FoldedSink<W> {
    /// Writes to `out`, a stack for every thread.
    pub fn new(out: W) -> Self {
        Self { out: Output::new(out), sessions: HashMap::new(), grouping: Grouping::Threads }
    }

    /// Tasks have stacks of their own.
    #[must_use]
    pub fn by(mut self, grouping: Grouping) -> Self {
        self.grouping = grouping;
        self
    }

    /// Writes all lines of a tree. The stack is kept as a text that grows and shrinks, since programs recurse deeply.
    fn write(&mut self, names: &Names, owner: Owner, root: Node<'_>) -> Result<(), SinkError> {
        let mut path = String::new();
        push(&mut path, names.owners.get(&owner).map_or("?", |name| name));
        let mut rest = below(&root, 0, path.len());
        while let Some(Place { node, depth, length }) = rest.pop() {
            path.truncate(length);
            path.push(';');
            push(&mut path, names.functions.get(node.what()).map_or("?", |name| name));
            let deepest = depth >= MOST_FRAMES;
            let time_ns = if deepest { node.total_ns() } else { node.self_ns() };
            if time_ns > 0 {
                // Nothing fails that is written to memory.
                let _ = writeln!(self.out.buffer()?, "{path} {time_ns}");
                self.out.relieve()?;
            }
            if !deepest {
                rest.append(&mut below(&node, depth, path.len()));
            }
        }
        Ok(())
    }
}

/// The names that a tree needs, looked up before anything is written: that may block, and the catalog must be free.
#[derive(Debug)]
struct Names {
    owners: HashMap<Owner, String>,
    functions: HashMap<What, Box<str>>,
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
        let function = |what: &What| (what.clone(), name(catalog, what).pretty.into());
        let owners = tree.roots().map(|(one, _)| (one, owner(one))).collect();
        Self { owners, functions: tree.whats().map(function).collect() }
    }
}

/// A node that is to be written: how deep it is, and how long the text of its callers.
struct Place<'a> {
    node: Node<'a>,
    depth: usize,
    length: usize,
}

/// What a node called, the last first.
fn below<'a>(node: &Node<'a>, depth: usize, length: usize) -> Vec<Place<'a>> {
    node.children().into_iter().rev().map(|node| Place { node, depth: depth + 1, length }).collect()
}

/// Adds a name, without what would be taken for the end of a frame or a line.
fn push(path: &mut String, name: &str) {
    path.extend(name.chars().map(|c| match c {
        ';' => ':',
        c if c.is_control() => ' ',
        c => c,
    }));
}

impl<W: Write + Send> Sink for FoldedSink<W> {
    fn start(&mut self, session: &Arc<Session>) -> Result<(), SinkError> {
        self.sessions.insert(session.name.clone(), CallTree::new(self.grouping));
        Ok(())
    }

    fn options(&mut self, _: &Arc<Session>, _: &[u8]) -> Result<(), SinkError> {
        Ok(())
    }

    fn events(&mut self, _: &Arc<Batch>) -> Result<(), SinkError> {
        Ok(())
    }

    fn gap(&mut self, _: &Arc<Session>, _: &Gap) -> Result<(), SinkError> {
        Ok(())
    }

    fn spans(&mut self, session: &Arc<Session>, spans: &[Span]) -> Result<(), SinkError> {
        if let Some(tree) = self.sessions.get_mut(&session.name) {
            spans.iter().for_each(|span| tree.add(span));
        }
        Ok(())
    }

    fn end(&mut self, session: &Arc<Session>, _: &Ended) -> Result<(), SinkError> {
        let Some(mut tree) = self.sessions.remove(&session.name) else { return Ok(()) };
        tree.finish();
        let names = Names::new(&session.catalog(), &tree);
        tree.roots().try_for_each(|(owner, root)| self.write(&names, owner, root))?;
        self.out.relieve()
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.out.flush()
    }

    fn close(&mut self) -> Result<(), SinkError> {
        self.flush()
    }
}

#[cfg(test)]
mod tests;
