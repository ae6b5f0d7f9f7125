//! Swift concurrency: tasks, their turns on threads, their suspensions.
//!
//! All events of a task carry its id, whichever thread they are on. A continuation joins a suspension to what ends it.
//! Whatever a task waited for, it does not wait any more when it gets its next turn.

mod task;

use std::collections::{BTreeSet, HashMap, VecDeque};

use codec::{
    EventKind, SessionNs, StreamId, SubstreamId,
    profile::Key,
    span::{Ending, Reason, Span, SpanFlags, SpanId, SpanKind, SpanStatus, What},
};

use super::{
    logical::TraceEnd,
    order::{OrderedEvent, Runtime},
    out::Out,
    stack::Ran,
    store::{Store, begin, more, push_bounded},
};
use task::{CHILD, Job, Suspended, Task, Wait, name, resumed_by};

/// The tasks of a session.
#[derive(Debug, Clone, Default)]
pub(super) struct Tasks {
    tasks: HashMap<u64, Task>,
    /// Jobs that run, by the thread that runs them, the innermost last.
    jobs: HashMap<StreamId, Vec<Job>>,
    /// Tasks that are suspended, by continuation.
    continuations: HashMap<u64, Suspended>,
    /// Jobs that will resume a task that has only yielded, with the continuation and the task.
    yielded: HashMap<u64, (u64, Option<u64>)>,
    /// Tasks that were canceled, the oldest first.
    canceled: VecDeque<(u64, SpanId)>,
}

/// How many tasks that were canceled are remembered, and how many jobs that will resume one.
const MOST_KEPT: usize = 1 << 16;

impl Tasks {
    pub(super) fn event(&mut self, told: &OrderedEvent, event: &Runtime, store: &mut Store, out: &mut Out) {
        let task = event.key(Key::Task);
        let function = &*event.function;
        match (function, event.phase) {
            ("swift_job_run", EventKind::Call) => self.run(told, event, told.at, store, out),
            ("swift_job_run", phase) => self.stop(told, event, phase, store, out),
            (_, EventKind::Return | EventKind::Exception) => {}
            ("swift_task_create", _) => self.create(told, event, store, out),
            ("swift_continuation_init", _) => self.suspend(told, event, store, out),
            ("swift_task_cancel", _) => self.cancel(told, task, store, out),
            ("swift_task_future_complete", _) => self.complete(told, event, store, out),
            _ if function.starts_with("swift_task_enqueue") => {
                self.enqueued(told, event.key(Key::Job).filter(|_| task.is_none()));
            }
            _ if function.starts_with("swift_continuation_") && function.to_ascii_lowercase().contains("resume") => {
                self.resume(told, event, store, out);
            }
            ("swift_taskGroup_cancelAll", _) => {
                let known = task.and_then(|task| self.tasks.get(&task));
                let of_group = |child: &u64| self.tasks.get(child).is_some_and(|it| it.group == event.key(Key::Group));
                let children = known.into_iter().flat_map(|known| &known.children).copied().filter(of_group);
                for child in children.collect::<Vec<_>>() {
                    self.cancel(told, Some(child), store, out);
                }
            }
            (_, EventKind::Call) => {
                let Some(known) = task.and_then(|task| self.tasks.get_mut(&task)) else { return };
                match (function, event.key(Key::Job).zip(event.key(Key::Group))) {
                    ("swift_taskGroup_attachChild", attached) => known.attaching = attached,
                    ("swift_asyncLet_begin", _) => known.begins = true,
                    _ => {}
                }
                let wait = Wait::of(told, event);
                if wait.is_some() {
                    (known.waits, known.suspended) = (wait, false);
                } else if !known.suspended {
                    // Whatever else a task does shows that it did not wait.
                    known.waits = None;
                }
            }
        }
    }

    fn create(&mut self, told: &OrderedEvent, event: &Runtime, store: &mut Store, out: &mut Out) {
        let Some(task) = event.key(Key::Task) else { return };
        let creator = store.running(told.stream);
        let by_key = event.key(Key::Parent).and_then(|parent| self.tasks.get(&parent)).map(|parent| parent.id);
        let at = event.entered.min(told.at);
        let mut span = begin(told.id(), SpanKind::Task, told.stream, at, Some(task));
        span.parent = by_key.or_else(|| self.task_of(creator, store)).or(creator).or(event.caller);
        let level = store.level_below(span.parent);
        let more = more(&mut span);
        (more.created, more.creator, more.origin) = (Some(at), Some(told.stream), event.own.or(event.caller));
        more.level = level;
        self.enter(task, span, told.at, store, out);
        // Children are canceled with their parent.
        let Some(parent) = event.key(Key::Parent) else { return };
        let Some(above) = self.tasks.get_mut(&parent) else { return };
        let is_child = event.key(Key::Flags).is_some_and(|flags| flags & CHILD != 0) || above.begins;
        above.begins = false;
        if is_child {
            above.children.insert(task);
            let attached = above.attaching.take().filter(|(job, _)| Some(*job) == event.key(Key::Job));
            let is_canceled = above.closed;
            if let Some(known) = self.tasks.get_mut(&task) {
                (known.parent, known.group) = (Some(parent), attached.map(|(_, group)| group));
            }
            if is_canceled {
                self.cancel(told, Some(task), store, out);
            }
        }
    }

    /// The task of a job.
    fn task_of(&self, running: Option<SpanId>, store: &Store) -> Option<SpanId> {
        let running = store.peek(running?)?;
        if running.kind == SpanKind::Job { running.parent } else { None }
    }

    fn enter(&mut self, task: u64, span: Span, at: SessionNs, store: &mut Store, out: &mut Out) {
        let known = Task::new(span.id);
        store.open(span, out);
        if let Some(before) = self.tasks.insert(task, known).filter(|before| !before.closed)
            && let Some(mut span) = store.take(before.id, out)
        {
            // The id is used again: the end of the one before was not seen.
            (span.status, span.reason) = (SpanStatus::Unmatched, Some(Reason::Gap));
            span.flags.set(SpanFlags::UNCERTAIN);
            more(&mut span).resumed = Some(at);
            store.emit(span, out);
        }
    }

    /// A job has run since `at`.
    fn run(&mut self, told: &OrderedEvent, event: &Runtime, at: SessionNs, store: &mut Store, out: &mut Out) {
        let task = event.key(Key::Task);
        if let Some(task) = task {
            if !self.tasks.contains_key(&task) {
                // It was created before the trace began.
                let mut span = begin(told.second_id(), SpanKind::Task, told.stream, at, Some(task));
                span.flags.set(SpanFlags::ORPHAN);
                self.enter(task, span, told.at, store, out);
            }
            self.started(told, task, at, store, out);
        } else if let Some((continuation, task)) = event.key(Key::Job).and_then(|job| self.yielded.remove(&job))
            && let Some(suspended) = self.continuations.get(&continuation).filter(|at| at.task == task).copied()
        {
            self.let_go(suspended, continuation, told, event, store, out);
        }
        let mut span = begin(told.id(), SpanKind::Job, told.stream, at, event.key(Key::Job).or(task));
        self.belongs(&mut span, task);
        span.what = event.own_function.map_or(What::Named("swift_job_run".into()), What::from);
        let more = more(&mut span);
        (more.threads, more.executor) = (vec![told.stream], event.key(Key::Executor));
        let id = span.id;
        store.open(span, out);
        if let Some(own) = event.own {
            store.twins(own, id);
        }
        store.run(told.stream, id);
        // A thread that runs a job within another has run that to where it waits.
        let outside =
            self.jobs.get(&told.stream).and_then(|jobs| jobs.last()?.task).filter(|outer| Some(*outer) != task);
        if let Some(known) = outside.and_then(|task| self.tasks.get_mut(&task)) {
            known.leaves_turn(told.stream);
        }
        push_bounded(self.jobs.entry(told.stream).or_default(), Job { id, entered: event.entered, task });
        if let Some(ran) = event.own_function {
            self.named(told, ran, false, store, out);
        }
    }

    /// Makes a span one of a task. It lies outside of one that was canceled before.
    fn belongs(&self, span: &mut Span, task: Option<u64>) {
        let known = task.and_then(|task| self.tasks.get(&task));
        span.substream = SubstreamId(task.unwrap_or(0));
        span.parent = known.map(|task| task.id);
        span.flags = span.flags.with(SpanFlags::OUTSIDE_PARENT, known.is_some_and(|task| task.closed));
    }

    /// A task gets a turn.
    fn started(&mut self, told: &OrderedEvent, task: u64, at: SessionNs, store: &mut Store, out: &mut Out) {
        let Some(known) = self.tasks.get_mut(&task) else { return };
        let first = !known.has_run;
        known.has_run = true;
        // A turn that is known from its end may be the one in which it began to wait.
        let waited = known.waits.take_if(|wait| wait.since <= at);
        known.suspended = false;
        let parent = known.id;
        if let Some(span) = store.get(parent, told.at, out) {
            if first {
                (span.start, span.stream) = (at, told.stream);
                let more = more(span);
                more.latency = more.created.map(|created| at.0.saturating_sub(created.0));
            }
            if !more(span).threads.contains(&told.stream) {
                more(span).threads.push(told.stream);
            }
        }
        if let Some(wait) = waited {
            let mut span = self.wait(wait, task);
            span.end = Some(at);
            let more = more(&mut span);
            more.end_stream = Some(told.stream);
            if wait.stream != told.stream {
                more.threads.push(told.stream);
                span.flags.set(SpanFlags::CROSS_THREAD);
            }
            self.resumed(task, at.0.saturating_sub(wait.since.0), told.at, store, out);
            out.made(span);
        }
    }

    /// A job was given to an executor. A task that yields gives one away that is no task, and that resumes it.
    fn enqueued(&mut self, told: &OrderedEvent, job: Option<u64>) {
        let here = self.jobs.get(&told.stream).and_then(|jobs| jobs.last()?.task);
        let known = here.and_then(|task| self.tasks.get(&task));
        let Some((continuation, job)) = known.and_then(|known| known.continuations.last()).copied().zip(job) else {
            return;
        };
        // Those that never run are not kept for ever.
        if self.yielded.len() >= MOST_KEPT {
            self.yielded.clear();
        }
        self.yielded.insert(job, (continuation, here));
    }

    /// The suspension of a task on a continuation.
    fn suspended_on(&self, continuation: u64, task: u64) -> Option<Suspended> {
        self.continuations.get(&continuation).copied().filter(|suspended| suspended.task == Some(task))
    }

    /// The span of a task that waits.
    fn wait(&self, wait: Wait, task: u64) -> Span {
        let mut span = begin(wait.id, SpanKind::Suspension, wait.stream, wait.since, Some(wait.awaited));
        self.belongs(&mut span, Some(task));
        span.what = What::Named(wait.what.into());
        more(&mut span).threads = vec![wait.stream];
        span
    }

    /// A task was suspended for so long, and goes on.
    fn resumed(&self, task: u64, suspended: u64, at: SessionNs, store: &mut Store, out: &Out) {
        let known = self.tasks.get(&task).map(|known| known.id);
        if let Some(span) = known.and_then(|id| store.get(id, at, out)) {
            let more = more(span);
            more.suspended = more.suspended.saturating_add(suspended);
            more.suspensions = more.suspensions.saturating_add(1);
        }
    }

    fn stop(&mut self, told: &OrderedEvent, event: &Runtime, phase: EventKind, store: &mut Store, out: &mut Out) {
        let of = |job: &Job| job.entered == event.entered;
        let place = self.jobs.get(&told.stream).and_then(|all| all.iter().rposition(of));
        if place.is_none() {
            // It was not seen to start; its end tells when it did.
            self.run(told, event, event.entered.min(told.at), store, out);
        }
        let Some(all) = self.jobs.get_mut(&told.stream) else { return };
        let inner = all.split_off(place.map_or(all.len(), |place| place.saturating_add(1)));
        let Some(job) = all.pop() else { return };
        if all.is_empty() {
            self.jobs.remove(&told.stream);
        }
        for lost in inner.into_iter().rev() {
            if let Some(mut span) = store.take(lost.id, out) {
                (span.status, span.reason) = (SpanStatus::Unmatched, Some(Reason::Gap));
                store.emit(span, out);
            }
        }
        if place.is_none()
            && let Some(span) = store.get(job.id, told.at, out)
        {
            span.flags.set(SpanFlags::NO_CALL);
            span.flags.set(SpanFlags::ACROSS_GAP);
        }
        store.stop(told.stream, job.id);
        if let Some(span) = store.get(job.id, told.at, out)
            && phase == EventKind::Exception
        {
            (span.status, span.reason) = (SpanStatus::Unmatched, event.why.or(Some(Reason::Unwind)));
        }
        store.close(job.id, told.at, out);
        if let Some(known) = job.task.and_then(|task| self.tasks.get_mut(&task)) {
            known.leaves_turn(told.stream);
        }
    }

    /// The first function of the program that a job calls: the task is named by it, and the job.
    pub(super) fn named(&mut self, told: &OrderedEvent, ran: Ran, is_thunk: bool, store: &mut Store, out: &Out) {
        let Some(job) = self.jobs.get(&told.stream).and_then(|jobs| jobs.last()).copied() else { return };
        if let Some(span) = store.get(job.id, told.at, out) {
            span.what = ran.into();
        }
        let Some(task) = job.task.and_then(|task| self.tasks.get_mut(&task)) else { return };
        if let Some(span) = store.get(task.id, told.at, out)
            && (span.what == What::Unknown || task.named_by_thunk && !is_thunk)
        {
            span.what = ran.into();
            task.named_by_thunk = is_thunk;
        }
    }

    fn suspend(&mut self, told: &OrderedEvent, event: &Runtime, store: &mut Store, out: &mut Out) {
        let Some(continuation) = event.key(Key::Continuation) else { return };
        let task = event.key(Key::Task);
        let mut span = begin(told.id(), SpanKind::Suspension, told.stream, told.at, Some(continuation));
        if let Some(known) = task.and_then(|task| self.tasks.get_mut(&task)) {
            known.waits = None;
            push_bounded(&mut known.continuations, continuation);
        }
        self.belongs(&mut span, task);
        span.what = What::Named("swift_continuation".into());
        more(&mut span).threads = vec![told.stream];
        let suspended = Suspended { id: span.id, task, since: told.at, open: true };
        store.open(span, out);
        if let Some(before) = self.continuations.insert(continuation, suspended)
            && let Some(mut span) = store.take(before.id, out)
        {
            // It was never seen to be resumed, and its place is used again.
            (span.status, span.reason) = (SpanStatus::Unmatched, Some(Reason::Gap));
            span.flags.set(SpanFlags::UNCERTAIN);
            store.emit(span, out);
        }
    }

    fn resume(&mut self, told: &OrderedEvent, event: &Runtime, store: &mut Store, out: &mut Out) {
        let Some(continuation) = event.key(Key::Continuation) else { return };
        let Some(suspended) = self.continuations.get(&continuation).copied() else {
            // Nobody saw the suspension: it is told, and kept.
            let mut span = begin(told.id(), SpanKind::Suspension, told.stream, told.at, Some(continuation));
            (span.status, span.reason) = (SpanStatus::Unmatched, Some(Reason::Orphan));
            span.end = Some(told.at);
            span.flags.set(SpanFlags::ORPHAN);
            span.what = What::Named("swift_continuation".into());
            resumed_by(&mut span, told, event);
            self.belongs(&mut span, event.key(Key::Task));
            out.counts.orphans += 1;
            return out.made(span);
        };
        self.let_go(suspended, continuation, told, event, store, out);
    }

    /// What a task is suspended on lets it go on.
    fn let_go(
        &mut self,
        suspended: Suspended,
        continuation: u64,
        told: &OrderedEvent,
        event: &Runtime,
        store: &mut Store,
        out: &mut Out,
    ) {
        self.continuations.remove(&continuation);
        if let Some(known) = suspended.task.and_then(|task| self.tasks.get_mut(&task)) {
            known.continuations.retain(|one| *one != continuation);
        }
        if !suspended.open {
            return;
        }
        if let Some(task) = suspended.task {
            self.resumed(task, told.at.0.saturating_sub(suspended.since.0), told.at, store, out);
        }
        if let Some(span) = store.get(suspended.id, told.at, out) {
            resumed_by(span, told, event);
            let more = more(span);
            more.end_stream = Some(told.stream);
            if !more.threads.contains(&told.stream) {
                more.threads.push(told.stream);
            }
        }
        store.close(suspended.id, told.at, out);
    }

    /// Closes the span of a task at once, with what it waits for, and with those of its children. They may still run, and be
    /// told to complete.
    fn cancel(&mut self, told: &OrderedEvent, task: Option<u64>, store: &mut Store, out: &mut Out) {
        let mut all = Vec::from_iter(task);
        while let Some(task) = all.pop() {
            all.extend(self.cancel_alone(told, task, store, out));
        }
    }

    /// Returns its children.
    fn cancel_alone(&mut self, told: &OrderedEvent, task: u64, store: &mut Store, out: &mut Out) -> BTreeSet<u64> {
        let Some(known) = self.tasks.get_mut(&task).filter(|known| !known.closed) else { return BTreeSet::new() };
        known.closed = true;
        let id = known.id;
        let wait = known.waits.take().filter(|_| known.suspended);
        let (waiting, children) = (known.continuations.clone(), known.children.clone());
        self.canceled.push_back((task, id));
        if self.canceled.len() > MOST_KEPT
            && let Some((oldest, id)) = self.canceled.pop_front()
            && self.tasks.get(&oldest).is_some_and(|task| task.id == id)
        {
            self.remove(oldest);
        }
        for continuation in waiting {
            let Some(suspended) = self.suspended_on(continuation, task).filter(|suspended| suspended.open) else {
                continue;
            };
            // Whoever was to resume it, or the handler of the cancellation, will do so now.
            self.continuations.insert(continuation, Suspended { open: false, ..suspended });
            self.resumed(task, told.at.0.saturating_sub(suspended.since.0), told.at, store, out);
            if let Some(span) = store.get(suspended.id, told.at, out) {
                (span.status, span.reason) = (SpanStatus::Canceled, Some(Reason::Canceled));
            }
            store.close(suspended.id, told.at, out);
        }
        if let Some(wait) = wait {
            let mut span = self.wait(wait, task);
            span.flags = SpanFlags::default();
            (span.status, span.reason, span.end) = (SpanStatus::Canceled, Some(Reason::Canceled), Some(told.at));
            self.resumed(task, told.at.0.saturating_sub(wait.since.0), told.at, store, out);
            out.made(span);
        }
        if let Some(span) = store.get(id, told.at, out) {
            (span.status, span.reason) = (SpanStatus::Canceled, Some(Reason::Canceled));
            let more = more(span);
            (more.ending, more.end_stream) = (Some(Ending::Canceled), Some(told.stream));
        }
        name(id, told.at, store, out);
        store.close(id, told.at, out);
        children
    }

    /// Forgets a task, and what it was suspended on when it was canceled.
    fn remove(&mut self, task: u64) -> Option<Task> {
        let known = self.tasks.remove(&task)?;
        for continuation in &known.continuations {
            if self.suspended_on(*continuation, task).is_some_and(|suspended| !suspended.open) {
                self.continuations.remove(continuation);
            }
        }
        if let Some(parent) = known.parent.and_then(|parent| self.tasks.get_mut(&parent)) {
            parent.children.remove(&task);
        }
        Some(known)
    }

    fn complete(&mut self, told: &OrderedEvent, event: &Runtime, store: &mut Store, out: &mut Out) {
        let Some(task) = event.key(Key::Task) else { return };
        let Some(known) = self.remove(task) else { return };
        let error = event.key(Key::Error).filter(|error| *error != 0);
        if let Some(span) = store.get(known.id, told.at, out) {
            let more = more(span);
            more.ending = Some(if error.is_some() { Ending::Failed } else { Ending::Returned });
            (more.result, more.end_stream) = (error, Some(told.stream));
        }
        name(known.id, told.at, store, out);
        store.close(known.id, told.at, out);
    }

    /// A job was left, and the event that says so is missing.
    pub(super) fn lost(&mut self, stream: StreamId, id: SpanId) {
        if let Some(all) = self.jobs.get_mut(&stream) {
            all.retain(|job| job.id != id);
        }
    }

    /// Tells what tasks that have not ended wait for.
    pub(super) fn finish(&mut self, store: &mut Store, ending: &TraceEnd<'_>, out: &mut Out) {
        let waits = |(task, known): (&u64, &Task)| Some((*task, known.waits.filter(|_| known.suspended)?));
        let mut waiting: Vec<(u64, Wait)> = self.tasks.iter().filter_map(waits).collect();
        waiting.sort_by_key(|(_, wait)| wait.id);
        for (task, wait) in waiting {
            let mut span = self.wait(wait, task);
            (span.status, span.reason) = ending.why_open(&span);
            out.made(span);
        }
        let mut unnamed: Vec<SpanId> = self.tasks.values().filter(|task| !task.closed).map(|task| task.id).collect();
        unnamed.sort_unstable();
        for id in unnamed {
            name(id, ending.at, store, out);
        }
    }

    /// Forgets a span that was evicted.
    pub(super) fn forget(&mut self, span: &Span) {
        let Some(key) = span.key() else { return };
        match span.kind {
            SpanKind::Task if self.tasks.get(&key).is_some_and(|task| task.id == span.id) => {
                self.remove(key);
            }
            SpanKind::Suspension if self.continuations.get(&key).is_some_and(|at| at.id == span.id) => {
                self.continuations.remove(&key);
            }
            _ => {}
        }
    }
}
