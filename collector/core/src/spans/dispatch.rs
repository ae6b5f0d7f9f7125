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
    order::{OrderedEvent, Runtime},
    out::Out,
    store::{Store, begin, more, push_bounded},
};

/// What joins a submission to its execution.
type BlockKey = (u64, u64);

/// The blocks and groups of a session.
#[derive(Debug, Clone, Default)]
pub(super) struct Blocks {
    /// Submissions that have not run, the oldest first.
    submitted: HashMap<BlockKey, Waiting>,
    /// Blocks that run, by the thread that runs them, the innermost last.
    executing: HashMap<StreamId, Vec<Executing>>,
    groups: HashMap<u64, Group>,
    /// Calls that run one block many times, by the frame of the call.
    repeated: HashMap<SpanId, (BlockKey, SpanId)>,
    /// Handlers of sources. Some are told without the context that they will be given.
    handlers: HashMap<(Option<u64>, u64), Handler>,
    /// The queues of sources.
    sources: HashMap<u64, Option<u64>>,
    /// Whether an execution was ever seen.
    has_executed: bool,
}

/// The submissions of one block that have not run, each the oldest first.
#[derive(Debug, Clone, Default)]
struct Waiting {
    /// Those whose callers wait: there are at most as many as threads.
    sync: VecDeque<Submitted>,
    others: VecDeque<Submitted>,
    /// How many there are of each queue.
    queues: HashMap<Option<u64>, u64>,
}

/// How many submissions of one block have callers that wait.
const MOST_SYNC: usize = 4096;

#[derive(Debug, Clone, Copy)]
struct Submitted {
    id: SpanId,
    at: SessionNs,
    queue: Option<u64>,
    stream: StreamId,
    /// How often it has run, of those that run many times.
    runs: Option<u64>,
}

/// How many sources are remembered, and how many handlers of sources.
const MOST_SOURCES: usize = 1 << 16;

/// A handler of a source.
#[derive(Debug, Clone, Copy)]
struct Handler {
    /// What stands for its executions.
    id: SpanId,
    has_run: bool,
}

/// A block that runs.
#[derive(Debug, Clone, Copy)]
struct Executing {
    id: SpanId,
    entered: SessionNs,
}

impl Waiting {
    fn add(&mut self, submitted: Submitted, is_sync: bool) {
        let count = self.queues.entry(submitted.queue).or_default();
        *count = count.saturating_add(1);
        if !is_sync {
            return self.others.push_back(submitted);
        }
        if self.sync.len() >= MOST_SYNC {
            self.sync.pop_front();
        }
        self.sync.push_back(submitted);
    }

    /// The one that runs on this thread now, and whether that is a guess.
    fn next(&mut self, stream: StreamId) -> Option<(Submitted, bool)> {
        // What its caller waits for may be run by the caller itself.
        let own = self.sync.iter().position(|submitted| submitted.stream == stream);
        let uncertain = own.is_none() && self.queues.len() > 1;
        let is_sync = match (self.sync.front(), self.others.front()) {
            _ if own.is_some() => true,
            (Some(sync), Some(other)) => sync.at <= other.at,
            (sync, _) => sync.is_some(),
        };
        let from = if is_sync { &mut self.sync } else { &mut self.others };
        let place = own.unwrap_or(0);
        let chosen = from.get_mut(place)?;
        let before = *chosen;
        if let Some(runs) = &mut chosen.runs {
            *runs = runs.saturating_add(1);
            return Some((before, uncertain));
        }
        from.remove(place);
        self.one_less(before.queue);
        Some((before, uncertain))
    }

    fn remove(&mut self, id: SpanId) -> Option<Submitted> {
        let from = [&mut self.sync, &mut self.others];
        let removed = from.into_iter().find_map(|from| {
            let place = from.iter().position(|submitted| submitted.id == id)?;
            from.remove(place)
        })?;
        self.one_less(removed.queue);
        Some(removed)
    }

    fn one_less(&mut self, queue: Option<u64>) {
        if let Some(count) = self.queues.get_mut(&queue) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.queues.remove(&queue);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.sync.is_empty() && self.others.is_empty()
    }
}

/// A group that has been entered.
#[derive(Debug, Clone)]
struct Group {
    id: SpanId,
    inside: u64,
}

impl Handler {
    /// It will not run any more. If it never has, that is all that is known of it.
    fn forget(self, store: &mut Store, out: &mut Out) {
        match store.peek_mut(self.id).filter(|_| !self.has_run) {
            Some(span) => span.reason = Some(Reason::Pending),
            None => store.drop_unstarted(self.id, out),
        }
    }
}

impl Blocks {
    pub(super) fn event(&mut self, told: &OrderedEvent, event: &Runtime, store: &mut Store, out: &mut Out) {
        match (&*event.function, event.phase) {
            ("_dispatch_client_callout" | "_dispatch_client_callout2", EventKind::Call) => {
                self.execute(told, event, told.at, store, out);
            }
            ("_dispatch_client_callout" | "_dispatch_client_callout2", phase) => {
                self.complete(told, event, phase, store, out);
            }
            ("dispatch_group_enter", EventKind::Call) => self.enter(told, event.key(Key::Group), store, out),
            ("dispatch_group_leave", EventKind::Call) => self.leave(told, event.key(Key::Group), store, out),
            ("dispatch_block_cancel", EventKind::Call) => self.cancel(told, event, store, out),
            ("dispatch_source_create", EventKind::Call) => {
                if let Some(source) = event.key(Key::Source).filter(|_| self.sources.len() < MOST_SOURCES) {
                    self.sources.insert(source, event.key(Key::Queue));
                }
            }
            (_, EventKind::Call) => self.submit(told, event, store, out),
            _ => {}
        }
    }

    fn submit(&mut self, told: &OrderedEvent, event: &Runtime, store: &mut Store, out: &mut Out) {
        let (block, source) = (event.key(Key::Block), event.key(Key::Source));
        if block.or(source).is_none() {
            return;
        }
        let name = event.function.trim_end_matches("_f");
        let invoke = event.key(Key::Invoke).unwrap_or(0);
        // It may be told only when the function has done its work.
        let at = event.entered.min(told.at);
        let mut span = begin(told.id(), SpanKind::Block, told.stream, at, block);
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
        let of_source = source.and_then(|source| self.sources.get(&source)).copied().flatten();
        let queue = event.key(Key::Queue).or(of_source);
        let more = more(&mut span);
        (more.created, more.creator, more.origin) = (Some(at), Some(told.stream), event.own.or(event.caller));
        (more.queue, more.group, more.level) = (queue, group, level);
        if name == "dispatch_group_async" {
            self.enter(told, group, store, out);
        }
        if source.is_some() {
            if self.handlers.len() < MOST_SOURCES {
                let handler = Handler { id: span.id, has_run: false };
                if let Some(before) = self.handlers.insert((block, invoke), handler) {
                    before.forget(store, out);
                }
            }
            return store.open_silently(span, out);
        }
        let block = block.unwrap_or(0);
        let runs = (name == "dispatch_apply").then_some(0);
        if let (Some(own), Some(_)) = (event.own, runs) {
            self.repeated.insert(own, ((block, invoke), span.id));
        }
        let submitted = Submitted { id: span.id, at: told.at, queue, stream: told.stream, runs };
        self.submitted.entry((block, invoke)).or_default().add(submitted, is_sync);
        if runs.is_some() { store.open_silently(span, out) } else { store.open(span, out) }
    }

    /// A block has run since `at`.
    fn execute(&mut self, told: &OrderedEvent, event: &Runtime, at: SessionNs, store: &mut Store, out: &mut Out) {
        self.has_executed = true;
        let (block, invoke) = (event.key(Key::Block).unwrap_or(0), event.key(Key::Invoke).unwrap_or(0));
        let mut which = self.which((block, invoke), told.stream);
        if which.0.is_none() {
            // Of some submissions the function is not known.
            which = self.which((block, 0), told.stream);
        }
        let (found, uncertain) = which;
        let handler = if found.is_none() { self.handler(block, invoke) } else { None };
        let mut span = begin(told.id(), SpanKind::Block, told.stream, at, Some(block));
        let template = handler.or(found.filter(|submitted| submitted.runs.is_some()).map(|submitted| submitted.id));
        let id = match (template.and_then(|id| store.peek(id)), found) {
            // One of the many runs of one submission: each is a span of its own.
            (Some(submission), _) => {
                (span.parent, span.flags) = (submission.parent, submission.flags);
                span.more = submission.more.clone();
                let more = more(&mut span);
                more.key = Some(block);
                if handler.is_some() {
                    // Nobody knows when the event came that it handles.
                    more.created = None;
                }
                store.open(span, out);
                told.id()
            }
            (None, Some(submitted)) if store.peek(submitted.id).is_some() => submitted.id,
            _ => {
                span.flags.set(SpanFlags::ORPHAN);
                span.parent = store.running(told.stream);
                store.open(span, out);
                told.id()
            }
        };
        if let Some(span) = store.get(id, told.at, out) {
            (span.start, span.stream) = (at, told.stream);
            span.flags = span.flags.with(SpanFlags::UNCERTAIN, uncertain);
            span.what = event.own_function.map_or(What::Address(invoke), What::from);
            let more = more(span);
            more.latency = more.created.map(|created| at.0.saturating_sub(created.0));
            more.threads = vec![told.stream];
        }
        if let Some(own) = event.own {
            store.twins(own, id);
        }
        push_bounded(self.executing.entry(told.stream).or_default(), Executing { id, entered: event.entered });
        store.run(told.stream, id);
    }

    /// What stands for the executions of a source's handler.
    fn handler(&mut self, block: u64, invoke: u64) -> Option<SpanId> {
        let key = [(Some(block), invoke), (None, invoke)].into_iter().find(|key| self.handlers.contains_key(key))?;
        let handler = self.handlers.get_mut(&key)?;
        handler.has_run = true;
        Some(handler.id)
    }

    /// A block was canceled: what has not begun to run will not.
    fn cancel(&mut self, told: &OrderedEvent, event: &Runtime, store: &mut Store, out: &mut Out) {
        let (block, invoke) = (event.key(Key::Block).unwrap_or(0), event.key(Key::Invoke).unwrap_or(0));
        for key in [(block, invoke), (block, 0)] {
            let Some(waiting) = self.submitted.remove(&key) else { continue };
            for submitted in waiting.sync.into_iter().chain(waiting.others) {
                store.get(submitted.id, told.at, out);
                let Some(mut span) = store.take(submitted.id, out) else { continue };
                (span.status, span.reason) = (SpanStatus::Canceled, Some(Reason::Canceled));
                span.end = Some(told.at);
                let notify = span.flags.has(SpanFlags::NOTIFY);
                let more = more(&mut span);
                more.ending = Some(Ending::Canceled);
                let group = more.group.filter(|_| !notify);
                store.emit(span, out);
                self.leave(told, group, store, out);
            }
        }
    }

    /// The submission that an execution belongs to, and whether that is a guess.
    fn which(&mut self, key: BlockKey, stream: StreamId) -> (Option<Submitted>, bool) {
        let Some(waiting) = self.submitted.get_mut(&key) else { return (None, false) };
        let next = waiting.next(stream);
        if waiting.is_empty() {
            self.submitted.remove(&key);
        }
        next.map_or((None, false), |(submitted, uncertain)| (Some(submitted), uncertain))
    }

    fn complete(&mut self, told: &OrderedEvent, event: &Runtime, phase: EventKind, store: &mut Store, out: &mut Out) {
        let of = |executing: &Executing| executing.entered == event.entered;
        let place = self.executing.get(&told.stream).and_then(|all| all.iter().rposition(of));
        if place.is_none() {
            // It was not seen to start; its end tells when it did.
            self.execute(told, event, event.entered.min(told.at), store, out);
        }
        let Some(all) = self.executing.get_mut(&told.stream) else { return };
        let inner = all.split_off(place.map_or(all.len(), |place| place.saturating_add(1)));
        let Some(Executing { id, .. }) = all.pop() else { return };
        if all.is_empty() {
            self.executing.remove(&told.stream);
        }
        for lost in inner.into_iter().rev().filter(|lost| lost.id != id) {
            if let Some(mut span) = store.take(lost.id, out) {
                (span.status, span.reason) = (SpanStatus::Unmatched, Some(Reason::Gap));
                store.emit(span, out);
            }
        }
        if place.is_none()
            && let Some(span) = store.get(id, told.at, out)
        {
            span.flags.set(SpanFlags::NO_CALL);
            span.flags.set(SpanFlags::ACROSS_GAP);
        }
        store.stop(told.stream, id);
        let mut group = None;
        if let Some(span) = store.get(id, told.at, out) {
            let notify = span.flags.has(SpanFlags::NOTIFY);
            if phase == EventKind::Exception {
                (span.status, span.reason) = (SpanStatus::Unmatched, event.why.or(Some(Reason::Unwind)));
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

    fn enter(&mut self, told: &OrderedEvent, group: Option<u64>, store: &mut Store, out: &mut Out) {
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

    fn leave(&mut self, told: &OrderedEvent, group: Option<u64>, store: &mut Store, out: &mut Out) {
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
        let Some((key, id)) = self.repeated.remove(&frame) else { return };
        let Some(waiting) = self.submitted.get_mut(&key) else { return };
        let Some(submitted) = waiting.remove(id) else { return };
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
            SpanKind::Group => {
                if let Some(key) =
                    span.key().filter(|key| self.groups.get(key).is_some_and(|group| group.id == span.id))
                {
                    self.groups.remove(&key);
                }
            }
            _ => {
                let What::Address(invoke) = span.what else { return };
                if self.handlers.get(&(span.key(), invoke)).is_some_and(|handler| handler.id == span.id) {
                    self.handlers.remove(&(span.key(), invoke));
                }
                let Some(block) = span.key() else { return };
                if let Some(waiting) = self.submitted.get_mut(&(block, invoke)) {
                    waiting.remove(span.id);
                    if waiting.is_empty() {
                        self.submitted.remove(&(block, invoke));
                    }
                }
            }
        }
    }

    /// A block was left, and the event that says so is missing.
    pub(super) fn lost(&mut self, stream: StreamId, id: SpanId) {
        if let Some(all) = self.executing.get_mut(&stream) {
            all.retain(|executing| executing.id != id);
        }
    }

    /// Says of what has been submitted and has not run that it is pending; and of all of it that its execution is not
    /// watched, if none ever was.
    pub(super) fn finish(&mut self, store: &mut Store, at: SessionNs, out: &mut Out) {
        for handler in std::mem::take(&mut self.handlers).into_values() {
            handler.forget(store, out);
        }
        let unwatched = !self.has_executed;
        let waiting = std::mem::take(&mut self.submitted).into_values();
        for submitted in waiting.flat_map(|waiting| waiting.sync.into_iter().chain(waiting.others)) {
            if submitted.runs.is_some_and(|runs| runs > 0) {
                store.drop_unstarted(submitted.id, out);
            } else if let Some(span) = store.get(submitted.id, at, out) {
                span.reason = Some(Reason::Pending);
                span.flags = span.flags.with(SpanFlags::PLACEHOLDER, unwatched);
            }
        }
    }
}
