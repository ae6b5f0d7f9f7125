//! Grand Central Dispatch: submitted, executed, complete.
//!
//! Block (or context) and the function that it invokes join a submission to its execution. Blocks are used again, so an
//! execution belongs to the oldest submission of that block that has not run. Where several wait on different queues,
//! that is a guess, and said to be one.

use std::collections::{HashMap, VecDeque};

use codec::{
    EventKind, SessionNs, StreamId,
    profile::Key,
    span::{Ending, Reason, Span, SpanFlags, SpanId, SpanKind, SpanStatus, What},
};

use super::{
    out::Out,
    store::{Store, begin, more},
    told::{Runtime, Told},
};

/// What joins a submission to its execution.
type BlockKey = (u64, u64);

/// The blocks and groups of a session.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// Submissions that have not run, the oldest first.
    submitted: HashMap<BlockKey, VecDeque<Submitted>>,
    /// Blocks that run, by the thread that runs them, the innermost last.
    executing: HashMap<StreamId, Vec<SpanId>>,
    groups: HashMap<u64, Group>,
    /// Calls that run one block many times, by the frame of the call.
    repeated: HashMap<SpanId, BlockKey>,
    /// Whether an execution was ever seen.
    has_executed: bool,
}

#[derive(Debug, Clone)]
struct Submitted {
    id: SpanId,
    queue: Option<u64>,
    stream: StreamId,
    is_sync: bool,
    /// How often it has run, of those that run many times.
    runs: Option<u64>,
}

/// A group that has been entered.
#[derive(Debug)]
struct Group {
    id: SpanId,
    inside: u64,
}

impl Blocks {
    pub(super) fn event(&mut self, told: &Told, event: &Runtime, store: &mut Store, out: &mut Out) {
        match (&*event.function, event.phase) {
            ("_dispatch_client_callout" | "_dispatch_client_callout2", EventKind::Call) => {
                self.execute(told, event, store, out);
            }
            ("_dispatch_client_callout" | "_dispatch_client_callout2", phase) => {
                self.complete(told, phase, store, out);
            }
            ("dispatch_group_enter", EventKind::Call) => self.enter(told, event.key(Key::Group), store, out),
            ("dispatch_group_leave", EventKind::Call) => self.leave(told, event.key(Key::Group), store, out),
            (_, EventKind::Call) => self.submit(told, event, store, out),
            _ => {}
        }
    }

    fn submit(&mut self, told: &Told, event: &Runtime, store: &mut Store, out: &mut Out) {
        let Some(block) = event.key(Key::Block) else { return };
        let name = event.function.trim_end_matches("_f");
        let invoke = event.key(Key::Invoke).unwrap_or(0);
        let mut span = begin(told.id(), SpanKind::Block, told.stream, told.at, Some(block));
        let logical = store.running(told.stream);
        span.parent = logical.or(event.caller);
        let is_sync = name.ends_with("sync") && !name.ends_with("async") || name.ends_with("_and_wait");
        let is_sync = is_sync || name == "dispatch_apply";
        span.flags = SpanFlags::default()
            .with(SpanFlags::SYNC, is_sync)
            .with(SpanFlags::BARRIER, name.contains("barrier"))
            .with(SpanFlags::AFTER, name == "dispatch_after")
            .with(SpanFlags::NOTIFY, name == "dispatch_group_notify");
        span.what = What::Address(invoke);
        let level = store.level_below(logical);
        let group = event.key(Key::Group);
        let queue = event.key(Key::Queue);
        let more = more(&mut span);
        (more.created, more.creator, more.origin) = (Some(told.at), Some(told.stream), event.own.or(event.caller));
        (more.queue, more.group, more.level) = (queue, group, level);
        if name == "dispatch_group_async" {
            self.enter(told, group, store, out);
        }
        let runs = (name == "dispatch_apply").then_some(0);
        if let (Some(own), Some(_)) = (event.own, runs) {
            self.repeated.insert(own, (block, invoke));
        }
        let submitted = Submitted { id: span.id, queue, stream: told.stream, is_sync, runs };
        self.submitted.entry((block, invoke)).or_default().push_back(submitted);
        store.open(span, out);
    }

    fn execute(&mut self, told: &Told, event: &Runtime, store: &mut Store, out: &mut Out) {
        self.has_executed = true;
        let (block, invoke) = (event.key(Key::Block).unwrap_or(0), event.key(Key::Invoke).unwrap_or(0));
        let (id, uncertain) = self.which((block, invoke), told.stream);
        let id = match id {
            Some((id, None)) if store.peek(id).is_some() => id,
            // One of the many runs of one submission: each is a span of its own.
            Some((id, Some(_))) if store.peek(id).is_some() => {
                let submission = store.peek(id).cloned();
                let mut span = begin(told.id(), SpanKind::Block, told.stream, told.at, Some(block));
                if let Some(submission) = submission {
                    (span.parent, span.flags, span.more) = (submission.parent, submission.flags, submission.more);
                }
                store.open(span, out);
                told.id()
            }
            _ => {
                let mut span = begin(told.id(), SpanKind::Block, told.stream, told.at, Some(block));
                span.flags.set(SpanFlags::ORPHAN);
                span.parent = store.running(told.stream);
                store.open(span, out);
                told.id()
            }
        };
        if let Some(span) = store.get(id, told.at, out) {
            (span.start, span.stream) = (told.at, told.stream);
            span.flags = span.flags.with(SpanFlags::UNCERTAIN, uncertain);
            span.what = event.own_function.map_or(What::Address(invoke), What::from);
            let more = more(span);
            more.latency = more.created.map(|created| told.at.0.saturating_sub(created.0));
            more.threads = vec![told.stream];
        }
        if let Some(own) = event.own {
            store.twins(own, id);
        }
        self.executing.entry(told.stream).or_default().push(id);
        store.run(told.stream, id);
    }

    /// The submission that an execution belongs to, and whether that is a guess.
    fn which(&mut self, key: BlockKey, stream: StreamId) -> (Option<(SpanId, Option<u64>)>, bool) {
        let Some(waiting) = self.submitted.get_mut(&key) else { return (None, false) };
        // What its caller waits for may be run by the caller itself.
        let own = waiting.iter().position(|submitted| submitted.is_sync && submitted.stream == stream);
        let Some(chosen) = waiting.get(own.unwrap_or(0)).cloned() else { return (None, false) };
        let others = waiting.iter().filter(|other| other.id != chosen.id);
        let uncertain = own.is_none() && others.clone().any(|other| other.queue != chosen.queue);
        match chosen.runs {
            Some(_) => {
                for submitted in waiting.iter_mut().filter(|submitted| submitted.id == chosen.id) {
                    submitted.runs = submitted.runs.map(|runs| runs.saturating_add(1));
                }
            }
            None => {
                waiting.retain(|submitted| submitted.id != chosen.id);
                if waiting.is_empty() {
                    self.submitted.remove(&key);
                }
            }
        }
        (Some((chosen.id, chosen.runs)), uncertain)
    }

    fn complete(&mut self, told: &Told, phase: EventKind, store: &mut Store, out: &mut Out) {
        let Some(id) = self.executing.get_mut(&told.stream).and_then(Vec::pop) else { return };
        store.stop(told.stream, id);
        let mut group = None;
        if let Some(span) = store.get(id, told.at, out) {
            let notify = span.flags.has(SpanFlags::NOTIFY);
            if phase == EventKind::Exception {
                (span.status, span.reason) = (SpanStatus::Unmatched, Some(Reason::Unwind));
            }
            let more = more(span);
            more.ending = Some(if phase == EventKind::Exception { Ending::Unwound } else { Ending::Returned });
            more.end_stream = Some(told.stream);
            group = more.group.filter(|_| !notify);
        }
        store.close(id, told.at, out);
        // A block that was submitted to a group leaves it with its end.
        if group.is_some() {
            self.leave(told, group, store, out);
        }
    }

    fn enter(&mut self, told: &Told, group: Option<u64>, store: &mut Store, out: &mut Out) {
        let Some(key) = group else { return };
        if let Some(group) = self.groups.get_mut(&key) {
            group.inside = group.inside.saturating_add(1);
            return;
        }
        let mut span = begin(told.second_id(), SpanKind::Group, told.stream, told.at, Some(key));
        span.what = What::Named("dispatch_group".into());
        span.parent = store.running(told.stream);
        let more = more(&mut span);
        (more.created, more.creator, more.group) = (Some(told.at), Some(told.stream), Some(key));
        more.threads = vec![told.stream];
        self.groups.insert(key, Group { id: span.id, inside: 1 });
        store.open(span, out);
    }

    fn leave(&mut self, told: &Told, group: Option<u64>, store: &mut Store, out: &mut Out) {
        let Some(key) = group else { return };
        let Some(group) = self.groups.get_mut(&key) else { return };
        if let Some(span) = store.get(group.id, told.at, out)
            && !more(span).threads.contains(&told.stream)
        {
            more(span).threads.push(told.stream);
        }
        group.inside = group.inside.saturating_sub(1);
        if group.inside == 0 {
            let id = group.id;
            if let Some(span) = store.get(id, told.at, out) {
                more(span).end_stream = Some(told.stream);
            }
            self.groups.remove(&key);
            store.close(id, told.at, out);
        }
    }

    /// A call that runs one block many times has returned: what stood for it did all its runs.
    pub(super) fn frame_left(&mut self, frame: SpanId, end: Option<SessionNs>, store: &mut Store, out: &mut Out) {
        let Some(key) = self.repeated.remove(&frame) else { return };
        let Some(waiting) = self.submitted.get_mut(&key) else { return };
        let Some(place) = waiting.iter().position(|submitted| submitted.runs.is_some()) else { return };
        let Some(submitted) = waiting.remove(place) else { return };
        if waiting.is_empty() {
            self.submitted.remove(&key);
        }
        match (submitted.runs, end) {
            (Some(0), Some(end)) => {
                if let Some(span) = store.get(submitted.id, end, out) {
                    (span.status, span.reason) = (SpanStatus::Unmatched, Some(Reason::Gap));
                }
                store.close(submitted.id, end, out);
            }
            _ => store.drop_unstarted(submitted.id, out),
        }
    }

    /// Forgets a span that was evicted.
    pub(super) fn forget(&mut self, span: &Span) {
        match span.kind {
            SpanKind::Group => self.groups.retain(|_, group| group.id != span.id),
            _ => {
                let Some(block) = span.key() else { return };
                let What::Address(invoke) = span.what else { return };
                if let Some(waiting) = self.submitted.get_mut(&(block, invoke)) {
                    waiting.retain(|submitted| submitted.id != span.id);
                    if waiting.is_empty() {
                        self.submitted.remove(&(block, invoke));
                    }
                }
            }
        }
    }

    /// Says of what has been submitted and has not run that it is pending; and of all of it that its execution is not
    /// watched, if none ever was.
    pub(super) fn finish(&mut self, store: &mut Store, at: SessionNs, out: &mut Out) {
        let unwatched = !self.has_executed;
        for submitted in std::mem::take(&mut self.submitted).into_values().flatten() {
            if submitted.runs.is_some_and(|runs| runs > 0) {
                store.drop_unstarted(submitted.id, out);
            } else if let Some(span) = store.get(submitted.id, at, out) {
                span.reason = Some(Reason::Pending);
                span.flags = span.flags.with(SpanFlags::PLACEHOLDER, unwatched);
            }
        }
    }
}
