//! Threads: created, started, ended, joined.
//!
//! A thread is known by its handle, which the start routine is told at once and its creator when `pthread_create`
//! returns, often later. Until then start routine and argument tell which creation a start belongs to. Handles are used
//! again as soon as a thread is gone, so a handle means the thread that was created last before the event.

use std::collections::{BTreeSet, HashMap, HashSet};

use codec::{
    EventKind, SessionNs, StreamId,
    profile::{Key, Thread},
    span::{Ending, Reason, Span, SpanFlags, SpanId, SpanKind, SpanStatus, What},
};

use super::{
    order::{OrderedEvent, Runtime},
    out::Out,
    store::{Store, begin, more, push_bounded},
};

/// What stands for a start routine that nobody saw.
const PLACEHOLDER: &str = "pthread_start_routine";

/// What a thread that was canceled ends with: `PTHREAD_CANCELED`.
const CANCELED: u64 = u64::MAX;

/// How long the agent may take to see that a thread is gone. Of one that is gone so shortly before its process nobody can
/// say that it went by itself.
const LAST_MOMENTS_NS: u64 = 250_000_000;

/// Of how many threads the lifetime is remembered, and how many that have ended wait to be joined.
const MOST_STREAMS: usize = 1 << 16;

/// How many calls of `pthread_create` a thread can be in at once: one may be another's, and a handler may make one more.
const MOST_UNDER_WAY: usize = 4;

/// The threads of a session.
#[derive(Debug, Default)]
pub(super) struct Threads {
    /// Calls of `pthread_create` that have not returned, by the thread that makes them.
    making: HashMap<StreamId, Vec<Making>>,
    /// Threads that have not ended, by their handles.
    by_handle: HashMap<u64, Known>,
    /// The same, by the streams they run on.
    by_stream: HashMap<StreamId, u64>,
    /// Threads that have ended and may be joined.
    ended: HashMap<u64, Span>,
    /// The same, by the time that they ended.
    by_end: BTreeSet<(SessionNs, u64)>,
    /// Calls of `pthread_join` that have not returned.
    joining: HashMap<StreamId, SessionNs>,
    /// Threads that the agent has told of, for those whose start routine is not hooked.
    streams: HashMap<StreamId, Lifetime>,
    /// Streams whose start routine was seen.
    seen: HashSet<StreamId>,
    /// Those of them that have left it.
    left: HashSet<StreamId>,
}

#[derive(Debug, Clone, Copy)]
struct Making {
    id: SpanId,
    entered: SessionNs,
    routine: Option<u64>,
    argument: Option<u64>,
    /// The handle that a thread said it has which seems to be the one.
    started: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    id: SpanId,
    started: bool,
    canceled: bool,
}

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

    pub(super) fn event(&mut self, told: &OrderedEvent, event: &Runtime, store: &mut Store, out: &mut Out) {
        self.expire(told.at, out);
        match (&*event.function, event.phase) {
            ("pthread_create", EventKind::Call) => self.create(told, event, told.at, store, out),
            ("pthread_create", _) => self.created(told, event, store, out),
            (PLACEHOLDER, EventKind::Call) => self.start(told, event, told.at, store, out),
            (PLACEHOLDER, phase) => self.leave(told, event, phase, store, out),
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
            ("pthread_join", EventKind::Call) => {
                self.joining.insert(told.stream, told.at);
            }
            ("pthread_join", _) => self.joined(told, event, store, out),
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
        push_bounded(self.making.entry(told.stream).or_default(), making);
        store.open(span, out);
    }

    fn created(&mut self, told: &OrderedEvent, event: &Runtime, store: &mut Store, out: &mut Out) {
        let handle = event.key(Key::Pthread);
        let failed = event.phase != EventKind::Return || event.key(Key::Result).is_some_and(|result| result != 0);
        let of = |making: &Making| making.entered == event.entered;
        let place = self.making.get(&told.stream).and_then(|all| all.iter().rposition(of));
        if place.is_none() {
            // The call was not seen. A thread that runs already has a span of its own.
            if failed || handle.is_some_and(|handle| self.by_handle.contains_key(&handle)) {
                return;
            }
            self.create(told, event, event.entered.min(told.at), store, out);
        }
        let Some(all) = self.making.get_mut(&told.stream) else { return };
        // Those within it have not been seen to return.
        all.truncate(place.map_or(all.len(), |place| place.saturating_add(1)));
        let Some(making) = all.pop() else { return };
        if all.is_empty() {
            self.making.remove(&told.stream);
        }
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
                self.replace(handle, Known { id: making.id, started: false, canceled: false }, told.at, store, out);
            }
        }
    }

    /// A handle means another thread from now on.
    fn replace(&mut self, handle: u64, known: Known, at: SessionNs, store: &mut Store, out: &mut Out) {
        self.release(handle, out);
        let Some(before) = self.by_handle.insert(handle, known).filter(|before| before.id != known.id) else { return };
        // Its end was not seen.
        if let Some(mut span) = store.take(before.id, out) {
            (span.status, span.reason) = (SpanStatus::Unmatched, Some(Reason::Gap));
            span.flags.set(SpanFlags::UNCERTAIN);
            store.stop(span.stream, span.id);
            more(&mut span).resumed = Some(at);
            store.emit(span, out);
        }
    }

    /// A thread has run since `at`.
    fn start(&mut self, told: &OrderedEvent, event: &Runtime, at: SessionNs, store: &mut Store, out: &mut Out) {
        let (routine, argument) = (event.key(Key::StartRoutine), event.key(Key::Argument));
        let handle = event.key(Key::Pthread).unwrap_or(0);
        let waiting = self.by_handle.get(&handle).filter(|known| !known.started).map(|known| known.id);
        let (id, uncertain) = match waiting {
            Some(id) => (Some(id), false),
            None => self.guess(handle, routine, argument),
        };
        let id = match id.filter(|id| store.peek(*id).is_some()) {
            Some(id) => id,
            None => {
                // It was created before the trace began, or by nobody who is traced.
                let mut span = begin(told.id(), SpanKind::Thread, told.stream, at, Some(handle));
                span.flags.set(SpanFlags::ORPHAN);
                more(&mut span).argument = argument;
                store.open(span, out);
                told.id()
            }
        };
        self.replace(handle, Known { id, started: true, canceled: false }, told.at, store, out);
        self.by_stream.insert(told.stream, handle);
        self.seen.insert(told.stream);
        if let Some(span) = store.get(id, told.at, out) {
            (span.start, span.stream) = (at, told.stream);
            span.flags = span.flags.with(SpanFlags::UNCERTAIN, uncertain);
            span.what = match (event.own_function, routine) {
                (Some(ran), _) => ran.into(),
                (None, Some(address)) => What::Address(address),
                (None, None) => What::Named(PLACEHOLDER.into()),
            };
            let more = more(span);
            more.key = Some(handle);
            more.latency = more.created.map(|created| at.0.saturating_sub(created.0));
            more.threads = vec![told.stream];
        }
        if let Some(own) = event.own {
            store.twins(own, id);
        }
        store.run(told.stream, id);
    }

    /// Which of the threads that are being created this is, and whether that is a guess among several.
    fn guess(&mut self, handle: u64, routine: Option<u64>, argument: Option<u64>) -> (Option<SpanId>, bool) {
        let same =
            |making: &&mut Making| making.started.is_none() && making.routine == routine && making.argument == argument;
        // What a thread began to create before that, it is not creating any more: only its return is missing.
        let under_way = self.making.values_mut().flat_map(|all| all.iter_mut().rev().take(MOST_UNDER_WAY));
        let mut candidates: Vec<&mut Making> = under_way.filter(same).collect();
        let several = candidates.len() > 1;
        candidates.sort_by_key(|making| making.id);
        let Some(first) = candidates.into_iter().next() else { return (None, false) };
        first.started = Some(handle);
        (Some(first.id), several)
    }

    /// The start routine was left.
    fn leave(&mut self, told: &OrderedEvent, event: &Runtime, phase: EventKind, store: &mut Store, out: &mut Out) {
        if !self.seen.contains(&told.stream) {
            // It was not seen to start; its end tells when it did.
            self.start(told, event, event.entered.min(told.at), store, out);
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
        let Some(handle) = self.by_stream.remove(&told.stream) else { return };
        self.left.insert(told.stream);
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
        self.wait_for_join(handle, span, told.at, store, out);
    }

    /// A thread has ended. What is told of it waits for a while for whoever joins it.
    fn wait_for_join(&mut self, handle: u64, mut span: Span, at: SessionNs, store: &mut Store, out: &mut Out) {
        self.release(handle, out);
        if self.ended.len() >= MOST_STREAMS
            && let Some((_, oldest)) = self.by_end.first().copied()
        {
            self.release(oldest, out);
        }
        store.conclude(&mut span, out);
        self.by_end.insert((at, handle));
        self.ended.insert(handle, span);
        out.opened(1);
    }

    fn detach(&mut self, handle: Option<u64>, at: SessionNs, store: &mut Store, out: &mut Out) {
        let Some(handle) = handle else { return };
        if let Some(known) = self.by_handle.get(&handle) {
            if let Some(span) = store.get(known.id, at, out) {
                span.flags.set(SpanFlags::DETACHED);
            }
        } else if let Some(span) = self.ended.get_mut(&handle) {
            span.flags.set(SpanFlags::DETACHED);
            self.release(handle, out);
        }
    }

    fn joined(&mut self, told: &OrderedEvent, event: &Runtime, store: &mut Store, out: &mut Out) {
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
            span.end = Some(told.at);
            if !known.started {
                self.stand_in(&mut span, SessionNs(0), Some(told.at));
            } else if known.canceled || result == Some(CANCELED) {
                canceled(&mut span);
            } else {
                (span.status, span.reason) = (SpanStatus::Unmatched, Some(Reason::ThreadExit));
            }
            if known.started {
                store.stop(span.stream, span.id);
                self.by_stream.remove(&span.stream);
            }
            more(&mut span).result = result;
            self.wait_for_join(handle, span, told.at, store, out);
        }
        let Some(span) = self.ended.get_mut(&handle) else { return };
        span.flags.set(SpanFlags::JOINED);
        let more = more(span);
        (more.joiner, more.join_latency) = (Some(told.stream), waited);
        more.result = more.result.or(result);
        self.release(handle, out);
    }

    /// The start routine of this thread was left, and the event that says so is missing.
    pub(super) fn lost(&mut self, stream: StreamId) {
        if let Some(handle) = self.by_stream.remove(&stream) {
            self.by_handle.remove(&handle);
        }
    }

    /// Makes a span of a thread whose start routine is not watched.
    fn stand_in(&self, span: &mut Span, start: SessionNs, end: Option<SessionNs>) {
        span.what = What::Named(PLACEHOLDER.into());
        span.flags.set(SpanFlags::PLACEHOLDER);
        span.start = start.max(span.start);
        span.end = end;
        (span.status, span.reason) = match end {
            Some(_) => (SpanStatus::Matched, None),
            None => (SpanStatus::Open, None),
        };
    }

    /// Tells a thread that has ended: nobody else will join it.
    fn release(&mut self, handle: u64, out: &mut Out) {
        if let Some(span) = self.ended.remove(&handle) {
            if let Some(end) = span.end {
                self.by_end.remove(&(end, handle));
            }
            out.gone(1);
            out.made(span);
        }
    }

    /// Tells threads that ended so long ago that nobody waits for them.
    pub(super) fn expire(&mut self, now: SessionNs, out: &mut Out) {
        let timeout = out.timeout_ns();
        while let Some((end, handle)) = self.by_end.first().copied()
            && end.0.saturating_add(timeout) < now.0
        {
            self.release(handle, out);
            self.by_end.remove(&(end, handle));
        }
    }

    /// Forgets a span that was evicted.
    pub(super) fn forget(&mut self, span: &Span) {
        if let Some(handle) = span.key().filter(|handle| self.by_handle.get(handle).is_some_and(|it| it.id == span.id))
        {
            self.by_handle.remove(&handle);
        }
        if let Some(creator) = span.more.as_ref().and_then(|more| more.creator)
            && let Some(making) = self.making.get_mut(&creator)
        {
            making.retain(|making| making.id != span.id);
        }
    }

    /// Tells what has ended. What was created and never seen to start gets the lifetime of a thread that the agent has
    /// told of and that nothing else stands for, in the order of time.
    pub(super) fn finish(&mut self, at: SessionNs, store: &mut Store, out: &mut Out) {
        let handles: Vec<u64> = self.by_end.iter().map(|(_, handle)| *handle).collect();
        for handle in handles {
            self.release(handle, out);
        }
        let mut rest: Vec<Span> = std::mem::take(&mut self.ended).into_values().collect();
        rest.sort_by_key(|span| span.id);
        for span in rest {
            out.gone(1);
            out.made(span);
        }
        for known in self.by_handle.values().filter(|known| known.started) {
            let Some(stream) = store.peek(known.id).map(|span| span.stream) else { continue };
            let end = self.end_of(stream, at);
            let Some(span) = store.peek_mut(known.id) else { continue };
            if known.canceled {
                canceled(span);
                span.end = end;
            } else if end.is_some() {
                (span.status, span.reason, span.end) = (SpanStatus::Unmatched, Some(Reason::ThreadExit), end);
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
            self.stand_in(&mut span, life.start, life.end);
            span.flags.set(SpanFlags::UNCERTAIN);
            span.stream = stream;
            more(&mut span).threads = vec![stream];
            more(&mut span).latency = Some(life.start.0.saturating_sub(created.0));
            store.emit(span, out);
        }
    }
}

fn canceled(span: &mut Span) {
    (span.status, span.reason) = (SpanStatus::Canceled, Some(Reason::Canceled));
    more(span).ending = Some(Ending::Canceled);
}
