//! The part of [`CallTree`] that is for [`Grouping::Causes`](super::Grouping::Causes): spans that are no frames, each
//! below the one that created it.

use std::mem;

use ahash::HashMap;
use codec::{
    StreamId, SubstreamId,
    span::{Span, SpanFlags, SpanId, SpanKind, What},
};

use super::{CallTree, Grouping, Owner, arena::Index};

/// How many logical spans are remembered. What is created by those beyond is shown below their threads.
const MOST_LOGICAL: usize = 1 << 20;

/// The nodes of spans that are no frames.
#[derive(Debug, Default)]
pub(super) struct Causes {
    /// By span, also of those that are only known from what they created.
    logical: HashMap<SpanId, Index>,
    /// By task, also of those that are only known from the calls in them.
    tasks: HashMap<u64, Index>,
    /// Of which nobody can tell how much time was theirs: events of their code are missing.
    unsure: Vec<SpanId>,
}

impl CallTree {
    /// A thread, block, task or callback has ended.
    pub(super) fn close_logical(&mut self, span: &Span) {
        let known = self.logical_node(span.id);
        let node = known.unwrap_or_else(|| self.arena.insert());
        self.arena.count(node, 1, span.duration().unwrap_or(0), 0);
        if span.kind == SpanKind::Task
            && let Some(task) = span.key()
            && let Some(calls) = self.causes.tasks.get(&task).copied().map(|calls| self.arena.find(calls))
            && self.arena.data(calls).key.is_none()
        {
            self.arena.merge(node, calls);
        }
        if let (SpanKind::Task, Some(task), Some(_)) = (span.kind, span.key(), known) {
            self.causes.tasks.insert(task, node);
        }
        let above = span.parent.and_then(|parent| self.logical_node(parent)).unwrap_or_else(|| {
            let creator = span.more.as_ref().and_then(|more| more.creator);
            self.root_index(Owner::Thread(creator.unwrap_or(span.stream)))
        });
        // A span that is entered twice stays where it is.
        if self.arena.data(node).key.is_none() && above != node {
            self.arena.attach(above, span.kind, &span.what, node);
        }
    }

    /// The node of the span that a frame is the code of.
    pub(super) fn logical_of(&mut self, frame: &Span) -> Option<Index> {
        let twin = frame.twin.filter(|_| self.grouping == Grouping::Causes)?;
        let node = self.logical_node(twin)?;
        if frame.has_lost_its_end() || frame.flags.has(SpanFlags::ACROSS_GAP) {
            self.causes.unsure.push(twin);
        }
        Some(node)
    }

    /// The node of a task, for the calls that were made in it.
    pub(super) fn task_node(&mut self, task: SubstreamId) -> Index {
        let arena = &mut self.arena;
        let node = *self.causes.tasks.entry(task.0).or_insert_with(|| arena.insert_pinned());
        arena.find(node)
    }

    /// Puts what is under no other node below its thread.
    pub(super) fn finish_causes(&mut self) {
        let Causes { logical, tasks, unsure } = mem::take(&mut self.causes);
        for node in unsure.iter().filter_map(|id| logical.get(id)) {
            let node = self.arena.find(*node);
            self.arena.doubt(node);
        }
        for (id, node) in logical {
            let node = self.arena.find(node);
            if self.arena.data(node).key.is_none() {
                // It is a frame that is in no logical span: that of a thread of which nobody saw the start.
                let root = self.root_index(Owner::Thread(id.stream()));
                self.arena.merge(root, node);
            }
        }
        for (task, node) in tasks {
            let node = self.arena.find(node);
            if self.arena.data(node).key.is_none() {
                self.arena.count(node, 1, 0, 0);
                let root = self.root_index(Owner::Thread(StreamId(0)));
                self.arena.attach(root, SpanKind::Task, &What::Named(format!("task {task}").into()), node);
            }
        }
    }

    /// The node of a logical span, unless there are too many.
    fn logical_node(&mut self, id: SpanId) -> Option<Index> {
        if let Some(node) = self.causes.logical.get(&id) {
            return Some(self.arena.find(*node));
        }
        let room = self.causes.logical.len() < MOST_LOGICAL;
        room.then(|| {
            let node = self.arena.insert_pinned();
            self.causes.logical.insert(id, node);
            node
        })
    }
}
