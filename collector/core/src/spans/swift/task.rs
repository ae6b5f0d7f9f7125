//! What is known of a task.

use std::collections::BTreeSet;

use codec::{
    SessionNs, StreamId,
    profile::Key,
    span::{Span, SpanFlags, SpanId, What},
};

use super::super::{
    order::{OrderedEvent, Runtime},
    out::Out,
    store::{Store, more},
};

/// In the flags of a new task: it is a child, and canceled with its parent. Children that an `async let` makes have no flag.
pub(super) const CHILD: u64 = 1 << 8;

/// What may suspend a task until its next turn.
const WAITS: [&str; 8] = [
    "swift_task_future_wait",
    "swift_task_future_wait_throwing",
    "swift_taskGroup_wait_next_throwing",
    "swift_taskGroup_waitAll",
    "swift_asyncLet_get",
    "swift_asyncLet_get_throwing",
    "swift_asyncLet_finish",
    // An executor: mostly an actor that others run on.
    "swift_task_switch",
];

/// A task that has not ended, or was canceled and may still run.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub(super) id: SpanId,
    /// The task whose child it is, and the group that it is in there.
    pub(super) parent: Option<u64>,
    pub(super) group: Option<u64>,
    /// Its own children that have not ended.
    pub(super) children: BTreeSet<u64>,
    /// What it is about to make: a job for a group, or a child for an `async let`.
    pub(super) attaching: Option<(u64, u64)>,
    pub(super) begins: bool,
    /// What it waits for, if that may suspend it.
    pub(super) waits: Option<Wait>,
    /// Whether the turn ended in which it began to wait.
    pub(super) suspended: bool,
    pub(super) has_run: bool,
    pub(super) closed: bool,
    /// Whether nothing better is known to name it by than a thunk.
    pub(super) named_by_thunk: bool,
    /// The continuations that it is suspended on.
    pub(super) continuations: Vec<u64>,
}

impl Task {
    pub(super) fn new(id: SpanId) -> Self {
        Self {
            id,
            parent: None,
            group: None,
            children: BTreeSet::new(),
            attaching: None,
            begins: false,
            waits: None,
            suspended: false,
            has_run: false,
            closed: false,
            named_by_thunk: false,
            continuations: Vec::new(),
        }
    }
}

impl Task {
    /// A turn of it has ended on this thread: what it began to wait for in that turn suspends it. By then it may have begun
    /// its next turn on another thread, and what it says there is not about this one.
    pub(super) fn leaves_turn(&mut self, stream: StreamId) {
        if self.waits.is_none_or(|wait| wait.stream == stream) {
            self.suspended = self.waits.is_some();
        }
    }
}

/// A task waits for another, for a group, or for an executor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    pub(super) id: SpanId,
    pub(super) what: &'static str,
    pub(super) awaited: u64,
    pub(super) since: SessionNs,
    pub(super) stream: StreamId,
}

impl Wait {
    /// What a task begins to wait for by calling this function of the runtime, if it may.
    pub(super) fn of(told: &OrderedEvent, event: &Runtime) -> Option<Self> {
        let what = WAITS.into_iter().find(|wait| *wait == &*event.function)?;
        let awaited = [Key::Job, Key::Group, Key::Executor].into_iter().find_map(|key| event.key(key)).unwrap_or(0);
        Some(Self { id: told.id(), what, awaited, since: told.at, stream: told.stream })
    }
}

/// A turn of a task on a thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub(super) id: SpanId,
    pub(super) entered: SessionNs,
    pub(super) task: Option<u64>,
}

/// A task that is suspended on a continuation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Suspended {
    pub(super) id: SpanId,
    pub(super) task: Option<u64>,
    pub(super) since: SessionNs,
    /// Whether its span is open. What a canceled task is suspended on may still be resumed.
    pub(super) open: bool,
}

/// What nobody could name says so.
pub(super) fn name(id: SpanId, at: SessionNs, store: &mut Store, out: &Out) {
    if let Some(span) = store.get(id, at, out)
        && span.what == What::Unknown
    {
        span.what = What::Named("swift_task".into());
        span.flags.set(SpanFlags::PLACEHOLDER);
    }
}

/// Enters who resumed a task.
pub(super) fn resumed_by(span: &mut Span, told: &OrderedEvent, event: &Runtime) {
    let more = more(span);
    (more.resumer, more.resumed_by) = (Some(told.stream), event.own.or(event.caller));
}
