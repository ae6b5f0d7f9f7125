//! Threads: created, started, ended, joined.
//!
//! A thread is known by its handle, which the start routine is told at once and its creator when `pthread_create`
//! returns, often later. Until then start routine and argument tell which creation a start belongs to. Handles are used
//! again as soon as a thread is gone, so a handle means the thread that was created last before the event.
//!
//! Where the start routine is not hooked, the thread's first event says that it has started, and its last one when it was
//! still there.

mod ended;
mod making;

use std::collections::{HashMap, HashSet};

use codec::{
    EventKind, SessionNs, StreamId,
    profile::{Key, Thread},
    span::{Ending, Reason, Span, SpanFlags, SpanId, SpanKind, SpanStatus, What},
};

use super::{
    order::{OrderedEvent, Runtime},
    out::Out,
    store::{Store, begin, more},
};
use ended::Ended;
use making::{Making, Makings};

/// What stands for a start routine that nobody saw.
const PLACEHOLDER: &str = "pthread_start_routine";

/// What a thread that was canceled ends with: `PTHREAD_CANCELED`.
const CANCELED: u64 = u64::MAX;

/// How long the agent may take to see that a thread is gone. Of one that is gone so shortly before its process nobody can
/// say that it went by itself.
const LAST_MOMENTS_NS: u64 = 250_000_000;

/// Of how many threads the lifetime is remembered.
const MOST_STREAMS: usize = 1 << 16;

/// The threads of a session.
#[derive(Debug, Clone, Default)]
pub(super) struct Threads {
    making: Makings,
    /// Threads that have not ended, by their handles.
    by_handle: HashMap<u64, Known>,
    /// The same, by the streams they run on.
    by_stream: HashMap<StreamId, u64>,
    ended: Ended,
    /// Calls of `pthread_join` that have not returned.
    joining: HashMap<StreamId, SessionNs>,
    /// Threads that the agent has told of, for those whose start routine is not hooked.
    streams: HashMap<StreamId, Lifetime>,
    /// Streams that were seen to start.
    seen: HashSet<StreamId>,
    /// Those of them that have left it.
    left: HashSet<StreamId>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    id: SpanId,
    started: bool,
    /// Whether its start routine is hooked: else nobody sees that leave.
    hooked: bool,
    canceled: bool,
}

impl Known {
    /// A thread that has not run yet.
    fn new(id: SpanId) -> Self {
        Self { id, started: false, hooked: false, canceled: false }
    }
}

/// Tells when the latest event of a stream was.
pub(super) type Latest<'a> = &'a dyn Fn(StreamId) -> SessionNs;

#[derive(Debug, Clone, Copy)]
struct Lifetime {
    start: SessionNs,
    end: Option<SessionNs>,
    creator: Option<StreamId>,
}

impl Threads {
    /// The agent tells of a thread.
    pub(super) fn lifetime(&mut self, thread: &Thread<'_>) {
        let Thread { start, end, creator, .. } = *thread;
        if self.streams.len() < MOST_STREAMS || self.streams.contains_key(&thread.stream) {
            self.streams.insert(thread.stream, Lifetime { start, end, creator });
        }
    }

    /// When a thread ended, if the agent has told, and if it did not just go with the process, which ended at `at`.
    fn end_of(&self, stream: StreamId, at: SessionNs) -> Option<SessionNs> {
        let end = self.streams.get(&stream)?.end?;
        (end.0.saturating_add(LAST_MOMENTS_NS) < at.0).then_some(end)
    }

    /// Whether a thread ended before its process did, at `at`.
    pub(super) fn has_ended(&self, stream: StreamId, at: SessionNs) -> bool {
        self.left.contains(&stream) || self.end_of(stream, at).is_some()
    }

    pub(super) fn event(
        &mut self,
        told: &OrderedEvent,
        event: &Runtime,
        latest: Latest<'_>,
        store: &mut Store,
        out: &mut Out,
    ) {
        match (&*event.function, event.phase) {
            ("pthread_create", EventKind::Call) => self.create(told, event, told.at, store, out),
            ("pthread_create", _) => self.created(told, event, latest, store, out),
            (PLACEHOLDER | "pthread_started", EventKind::Call) => self.start(told, event, told.at, latest, store, out),
            (PLACEHOLDER, phase) => self.leave(told, event, phase, latest, store, out),
            ("pthread_exit", EventKind::Call) => {
                self.end(told, event.key(Key::ExitValue), (Ending::Exited, None), store, out);
            }
            ("pthread_cancel", EventKind::Call) => {
                let known = event.key(Key::Pthread).and_then(|handle| self.by_handle.get_mut(&handle));
                if let Some(known) = known {
                    known.canceled = true;
                    store.get(known.id, told.at, out);
                }
            }
            ("pthread_detach", EventKind::Return) if event.key(Key::Result) == Some(0) => {
                self.detach(event.key(Key::Pthread), told.at, store, out);
            }
            (name, phase) if name.contains("join") => match phase {
                EventKind::Call => drop(self.joining.insert(told.stream, told.at)),
                _ => self.joined(told, event, latest, store, out),
            },
            _ => {}
        }
    }

    /// A thread is being created since `at`.
    fn create(&mut self, told: &OrderedEvent, event: &Runtime, at: SessionNs, store: &mut Store, out: &mut Out) {
        let mut span = begin(told.id(), SpanKind::Thread, told.stream, at, None);
        let logical = store.running(told.stream);
        span.parent = logical.or(event.caller);
        let detached = event.key(Key::Detached).is_some_and(|detached| detached != 0);
        span.flags = SpanFlags::default().with(SpanFlags::DETACHED, detached);
        let (routine, argument) = (event.key(Key::StartRoutine), event.key(Key::Argument));
        span.what = routine.map_or(What::Unknown, What::Address);
        let level = store.level_below(logical);
        let more = more(&mut span);
        (more.created, more.creator, more.origin) = (Some(at), Some(told.stream), event.own.or(event.caller));
        (more.argument, more.level) = (argument, level);
        let making = Making { id: span.id, entered: event.entered, routine, argument, started: None };
        self.making.add(told.stream, making);
        store.open(span, out);
    }

    fn created(&mut self, told: &OrderedEvent, event: &Runtime, latest: Latest<'_>, store: &mut Store, out: &mut Out) {
        let handle = event.key(Key::Pthread);
        let failed = event.phase != EventKind::Return || event.key(Key::Result).is_some_and(|result| result != 0);
        let mut making = self.making.take(told.stream, event.entered);
        if making.is_none() {
            // The call was not seen. A thread that runs already has a span of its own.
            if failed || handle.is_some_and(|handle| self.by_handle.contains_key(&handle)) {
                return;
            }
            self.create(told, event, event.entered.min(told.at), store, out);
            making = self.making.take(told.stream, event.entered);
        }
        let Some(making) = making else { return };
        if failed {
            // There is no thread.
            store.drop_unstarted(making.id, out);
            return;
        }
        let Some(handle) = handle else { return };
        match making.started {
            Some(started) if started == handle => {}
            // Two were created at once that look the same, and the wrong one was taken.
            Some(started) => {
                for id in [Some(making.id), self.by_handle.get(&started).map(|known| known.id)].into_iter().flatten() {
                    if let Some(span) = store.get(id, told.at, out) {
                        span.flags.set(SpanFlags::UNCERTAIN);
                    }
                }
            }
            None => {
                if let Some(span) = store.get(making.id, told.at, out) {
                    more(span).key = Some(handle);
                }
                self.replace(handle, Known::new(making.id), told.at, latest, store, out);
            }
        }
    }

    /// A handle means another thread from now on.
    fn replace(
        &mut self,
        handle: u64,
        known: Known,
        at: SessionNs,
        latest: Latest<'_>,
        store: &mut Store,
        out: &mut Out,
    ) {
        self.ended.release(handle, out);
        let Some(before) = self.by_handle.insert(handle, known).filter(|before| before.id != known.id) else { return };
        // Its end was not seen.
        if let Some(mut span) = store.take(before.id, out) {
            store.stop(span.stream, span.id);
            if before.started && !before.hooked {
                self.left(span.stream);
                let end = latest(span.stream).min(at);
                gone(&mut span, before, end, None);
            } else {
                (span.status, span.reason) = (SpanStatus::Unmatched, Some(Reason::Gap));
                span.flags.set(SpanFlags::UNCERTAIN);
                more(&mut span).resumed = Some(at);
            }
            store.emit(span, out);
        }
    }

    /// A thread has run since `at`.
    fn start(
        &mut self,
        told: &OrderedEvent,
        event: &Runtime,
        at: SessionNs,
        latest: Latest<'_>,
        store: &mut Store,
        out: &mut Out,
    ) {
        let hooked = &*event.function == PLACEHOLDER;
        let (routine, argument) = (event.key(Key::StartRoutine), event.key(Key::Argument));
        let handle = event.key(Key::Pthread).unwrap_or(0);
        // It may have been taken for one whose routine is not hooked.
        let is_known = |known: &&Known| !known.started || !known.hooked && self.by_stream.contains_key(&told.stream);
        let waiting = self.by_handle.get(&handle).filter(is_known).map(|known| known.id);
        let (id, uncertain) = match waiting {
            Some(id) => (Some(id), false),
            None => self.making.guess(handle, routine, argument),
        };
        let id = match id.filter(|id| store.peek(*id).is_some()) {
            Some(id) => id,
            None => {
                // It was created before the trace began, or by nobody who is traced.
                let mut span = begin(told.id(), SpanKind::Thread, told.stream, at, Some(handle));
                span.flags.set(SpanFlags::ORPHAN);
                span.what = routine.map_or(What::Unknown, What::Address);
                more(&mut span).argument = argument;
                store.open(span, out);
                told.id()
            }
        };
        let canceled = self.by_handle.get(&handle).is_some_and(|known| known.id == id && known.canceled);
        self.replace(handle, Known { id, started: true, hooked, canceled }, told.at, latest, store, out);
        self.by_stream.insert(told.stream, handle);
        self.seen.insert(told.stream);
        store.stop(told.stream, id);
        if let Some(span) = store.get(id, told.at, out) {
            (span.start, span.stream) = (at, told.stream);
            let flags = span.flags.without(SpanFlags::PLACEHOLDER).with(SpanFlags::UNCERTAIN, uncertain);
            span.flags = flags.with(SpanFlags::PLACEHOLDER, !hooked);
            span.what = match (event.own_function.filter(|_| hooked), routine) {
                (Some(ran), _) => ran.into(),
                (None, _) if !hooked && span.what != What::Unknown => span.what.clone(),
                (None, Some(address)) => What::Address(address),
                (None, None) => What::Named(PLACEHOLDER.into()),
            };
            let more = more(span);
            more.key = Some(handle);
            more.latency = more.created.map(|created| at.0.saturating_sub(created.0));
            more.threads = vec![told.stream];
        }
        if let Some(own) = event.own.filter(|_| hooked) {
            store.twins(own, id);
        }
        store.run(told.stream, id);
    }

    /// The start routine was left.
    fn leave(
        &mut self,
        told: &OrderedEvent,
        event: &Runtime,
        phase: EventKind,
        latest: Latest<'_>,
        store: &mut Store,
        out: &mut Out,
    ) {
        if !self.seen.contains(&told.stream) {
            // It was not seen to start; its end tells when it did.
            self.start(told, event, event.entered.min(told.at), latest, store, out);
            let id = event.key(Key::Pthread).and_then(|handle| self.by_handle.get(&handle)).map(|known| known.id);
            if let Some(span) = id.and_then(|id| store.get(id, told.at, out)) {
                span.flags.set(SpanFlags::NO_CALL);
                span.flags.set(SpanFlags::ACROSS_GAP);
            }
        }
        let handle = self.by_stream.get(&told.stream);
        let canceled = handle.and_then(|handle| self.by_handle.get(handle)).is_some_and(|known| known.canceled);
        let ending = match (phase, event.why) {
            (EventKind::Exception, Some(Reason::Canceled)) => Ending::Canceled,
            (EventKind::Exception, _) if canceled => Ending::Canceled,
            (EventKind::Exception, Some(Reason::ThreadExit)) => Ending::Exited,
            (EventKind::Exception, _) => Ending::Unwound,
            _ => Ending::Returned,
        };
        self.end(told, event.key(Key::ExitValue), (ending, event.why), store, out);
    }

    fn end(
        &mut self,
        told: &OrderedEvent,
        result: Option<u64>,
        (ending, why): (Ending, Option<Reason>),
        store: &mut Store,
        out: &mut Out,
    ) {
        let Some(handle) = self.left(told.stream) else { return };
        let Some(known) = self.by_handle.get(&handle).copied().filter(|known| known.started) else { return };
        self.by_handle.remove(&handle);
        store.stop(told.stream, known.id);
        store.get(known.id, told.at, out);
        let Some(mut span) = store.take(known.id, out) else { return };
        span.end = Some(told.at);
        (span.status, span.reason) = match ending {
            Ending::Canceled => (SpanStatus::Canceled, Some(Reason::Canceled)),
            Ending::Unwound => (SpanStatus::Unmatched, why.or(Some(Reason::Unwind))),
            _ => (SpanStatus::Matched, None),
        };
        let more = more(&mut span);
        (more.ending, more.result, more.end_stream) = (Some(ending), result, Some(told.stream));
        if span.flags.has(SpanFlags::DETACHED) {
            return store.emit(span, out);
        }
        store.conclude(&mut span, out);
        self.ended.add(handle, span, out);
    }

    /// A stream has ended. Returns the handle of its thread.
    fn left(&mut self, stream: StreamId) -> Option<u64> {
        let handle = self.by_stream.remove(&stream)?;
        self.left.insert(stream);
        Some(handle)
    }

    fn detach(&mut self, handle: Option<u64>, at: SessionNs, store: &mut Store, out: &mut Out) {
        let Some(handle) = handle else { return };
        match self.by_handle.get(&handle).map(|known| known.id) {
            Some(id) => drop(store.get(id, at, out).map(|span| span.flags.set(SpanFlags::DETACHED))),
            None => self.ended.detached(handle, out),
        }
    }

    fn joined(&mut self, told: &OrderedEvent, event: &Runtime, latest: Latest<'_>, store: &mut Store, out: &mut Out) {
        let called = self.joining.remove(&told.stream);
        let Some(handle) = event.key(Key::Pthread) else { return };
        if event.phase != EventKind::Return || event.key(Key::Result).is_some_and(|result| result != 0) {
            return;
        }
        let result = event.key(Key::ExitValue);
        let waited = called.map(|called| told.at.0.saturating_sub(called.0));
        // Its end was not seen, but it is gone now.
        if let Some(known) = self.by_handle.remove(&handle)
            && let Some(mut span) = store.take(known.id, out)
        {
            let mut end = told.at;
            if !known.started {
                stand_in(&mut span, SessionNs(0), Some(told.at));
            } else {
                store.stop(span.stream, span.id);
                self.left(span.stream);
                end = if known.hooked { end } else { latest(span.stream).min(end) };
            }
            gone(&mut span, known, end, result);
            more(&mut span).result = result;
            store.conclude(&mut span, out);
            self.ended.add(handle, span, out);
        }
        self.ended.joined(handle, told.stream, waited, result, out);
    }

    /// The start routine of this thread was left, and the event that says so is missing.
    pub(super) fn lost(&mut self, stream: StreamId) {
        if let Some(handle) = self.by_stream.remove(&stream) {
            self.by_handle.remove(&handle);
        }
    }

    /// Reports threads that ended long ago and may still be joined.
    pub(super) fn report(&mut self, now: SessionNs, out: &mut Out) {
        self.ended.report(now, out);
    }

    /// Forgets a span that was evicted.
    pub(super) fn forget(&mut self, span: &Span) {
        if let Some(handle) = span.key().filter(|handle| self.by_handle.get(handle).is_some_and(|it| it.id == span.id))
        {
            self.by_handle.remove(&handle);
        }
        self.making.forget(span);
    }

    /// Tells what has ended. What was created and never seen to start gets the lifetime of a thread that the agent has
    /// told of and that nothing else stands for, in the order of time.
    pub(super) fn finish(&mut self, at: SessionNs, latest: Latest<'_>, store: &mut Store, out: &mut Out) {
        self.ended.finish(out);
        let mut started: Vec<Known> = self.by_handle.values().filter(|known| known.started).copied().collect();
        started.sort_by_key(|known| known.id);
        for known in started {
            let Some(stream) = store.peek(known.id).map(|span| span.stream) else { continue };
            match self.end_of(stream, at) {
                Some(end) => {
                    let Some(mut span) = store.take(known.id, out) else { continue };
                    gone(&mut span, known, if known.hooked { end } else { latest(stream) }, None);
                    store.emit(span, out);
                }
                None if known.canceled => drop(store.peek_mut(known.id).map(canceled)),
                None => {}
            }
        }
        let mut unstarted: Vec<(SessionNs, SpanId)> = Vec::new();
        for known in self.by_handle.values().filter(|known| !known.started) {
            unstarted.extend(store.peek(known.id).map(|span| (span.start, known.id)));
        }
        unstarted.sort();
        let mut free: Vec<(StreamId, Lifetime)> = self.streams.iter().map(|(id, life)| (*id, *life)).collect();
        free.retain(|(stream, _)| !self.seen.contains(stream));
        free.sort_by_key(|(stream, life)| (life.start, *stream));
        for (created, id) in unstarted {
            let Some(creator) = store.peek(id).and_then(|span| span.more.as_ref()?.creator) else { continue };
            let is = |(_, life): &(StreamId, Lifetime)| life.creator == Some(creator) && life.start >= created;
            let Some(place) = free.iter().position(is) else { continue };
            let (stream, life) = free.remove(place);
            let Some(mut span) = store.take(id, out) else { continue };
            stand_in(&mut span, life.start, life.end);
            span.flags.set(SpanFlags::UNCERTAIN);
            span.stream = stream;
            more(&mut span).threads = vec![stream];
            more(&mut span).latency = Some(life.start.0.saturating_sub(created.0));
            store.emit(span, out);
        }
    }
}

/// Makes a span of a thread of which nothing was seen.
fn stand_in(span: &mut Span, start: SessionNs, end: Option<SessionNs>) {
    span.what = What::Named(PLACEHOLDER.into());
    span.flags.set(SpanFlags::PLACEHOLDER);
    span.start = start.max(span.start);
    span.end = end;
    (span.status, span.reason) = match end {
        Some(_) => (SpanStatus::Matched, None),
        None => (SpanStatus::Open, None),
    };
}

/// A thread is gone, and was not seen to end. What joined it was perhaps given its result.
fn gone(span: &mut Span, known: Known, end: SessionNs, result: Option<u64>) {
    span.end = Some(end);
    if result.map_or(known.canceled, |result| result == CANCELED) {
        canceled(span);
    } else if known.hooked {
        (span.status, span.reason) = (SpanStatus::Unmatched, Some(Reason::ThreadExit));
    } else if known.started {
        // Nobody saw its start routine return, but nothing else can have ended it.
        (span.status, span.reason) = (SpanStatus::Matched, None);
        more(span).ending = Some(Ending::Returned);
    }
}

fn canceled(span: &mut Span) {
    (span.status, span.reason) = (SpanStatus::Canceled, Some(Reason::Canceled));
    more(span).ending = Some(Ending::Canceled);
}
