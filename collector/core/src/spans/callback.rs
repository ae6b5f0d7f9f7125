//! Callbacks: functions that were given to others, by the user's rules.
//!
//! A rule says which argument of which function is a callback. The address that is found there is a function of the
//! program; from then on its calls are callbacks, on whatever thread, joined to what they were given by their context
//! where the rule names one.

use std::collections::{HashMap, HashSet};

use codec::{
    FunctionId, SessionNs,
    profile::FunctionEvent,
    span::{Ending, More, Reason, Span, SpanFlags, SpanId, SpanKind, SpanStatus, What},
};

use super::{
    CallbackRule,
    frames::FrameContext,
    order::{Body, OrderedEvent},
    out::Out,
    stack::Ran,
    store::{Store, begin, more},
};
use crate::Catalog;

/// How many registrations of one callback are remembered, and how many callbacks.
const MOST_REGISTERED: usize = 4096;
const MOST_CALLBACKS: usize = 1 << 16;

/// What a call has to do with callbacks, seen from its own thread.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    rules: Vec<CallbackRule>,
    /// The rule of a function, once its name is known.
    takers: HashMap<FunctionId, Option<usize>>,
    /// Functions that were given to others.
    callbacks: HashSet<Ran>,
}

impl Watch {
    pub(super) fn new(rules: Vec<CallbackRule>) -> Self {
        Self { rules, takers: HashMap::new(), callbacks: HashSet::new() }
    }

    /// Whether there is anything to watch.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.rules.is_empty()
    }

    /// What a call has to tell: that it takes a callback, or that it is one. `frames` links those around it.
    pub(super) fn call(
        &mut self,
        event: &FunctionEvent<'_>,
        frame: SpanId,
        frames: impl FnOnce() -> FrameContext,
        names: &Catalog,
    ) -> Option<Body> {
        let function = event.function?;
        let registers = event.detail.map(|detail| detail.registers().general);
        let argument = |index: usize| registers.and_then(|general| general.get(index).copied());
        if let Some(rule) = self.rule(function, names).and_then(|index| self.rules.get(index)) {
            let address = argument(rule.callback).filter(|address| *address != 0)?;
            let context = rule.context.and_then(argument);
            let callback = names.function_at(address, event.stamp.start);
            let callback = callback.map_or(Ran::Address(address), Ran::Function);
            if self.callbacks.len() < MOST_CALLBACKS {
                self.callbacks.insert(callback);
            }
            let (own, caller) = (Some(frame), frames().caller);
            return Some(Body::Registered { callback, address, context, own, caller });
        }
        let callback = Ran::Function(function);
        self.callbacks.contains(&callback).then(|| {
            frames();
            let arguments = registers.and_then(|general| general.first_chunk().copied());
            Body::CallbackEntered { callback, frame, arguments }
        })
    }

    fn rule(&mut self, function: FunctionId, names: &Catalog) -> Option<usize> {
        if let Some(known) = self.takers.get(&function) {
            return *known;
        }
        let name = names.symbol(function)?;
        let rule = self.rules.iter().position(|rule| rule.function == name);
        self.takers.insert(function, rule);
        rule
    }
}

/// The callbacks of a session.
#[derive(Debug, Clone, Default)]
pub(super) struct Callbacks {
    registered: HashMap<Ran, Vec<Registered>>,
    /// Callbacks that run, by their frames.
    running: HashMap<SpanId, SpanId>,
}

#[derive(Debug, Clone)]
struct Registered {
    id: SpanId,
    context: Option<u64>,
    has_run: bool,
    parent: Option<SpanId>,
    more: More,
}

impl Callbacks {
    pub(super) fn registered(&mut self, told: &OrderedEvent, store: &mut Store, out: &mut Out) {
        let Body::Registered { callback, address, context, own, caller } = &told.body else { return };
        let mut span = begin(told.second_id(), SpanKind::Callback, told.stream, told.at, Some(*address));
        let logical = store.running(told.stream);
        span.parent = logical.or(*caller);
        span.what = (*callback).into();
        let level = store.level_below(logical);
        let parts = more(&mut span);
        (parts.created, parts.creator, parts.origin) = (Some(told.at), Some(told.stream), *own);
        (parts.argument, parts.level) = (*context, level);
        let parts = parts.clone();
        if self.registered.len() >= MOST_CALLBACKS && !self.registered.contains_key(callback) {
            return store.open(span, out);
        }
        let all = self.registered.entry(*callback).or_default();
        // One that is given again for the same context stands for the one before, if that has run.
        all.retain(|before| !before.has_run || before.context != *context);
        if all.len() >= MOST_REGISTERED {
            all.remove(0);
        }
        all.push(Registered { id: span.id, context: *context, has_run: false, parent: span.parent, more: parts });
        store.open(span, out);
    }

    pub(super) fn entered(&mut self, told: &OrderedEvent, store: &mut Store, out: &mut Out) {
        let Body::CallbackEntered { callback, frame, arguments } = &told.body else { return };
        let Some(all) = self.registered.get_mut(callback) else { return };
        let fits = |one: &Registered| match (one.context, arguments) {
            (Some(context), Some(arguments)) => arguments.contains(&context),
            _ => true,
        };
        let fitting = all.iter().filter(|one| fits(one)).count();
        let waiting = all.iter().position(|one| fits(one) && !one.has_run);
        let Some(place) = waiting.or_else(|| all.iter().rposition(fits)) else { return };
        let Some(chosen) = all.get_mut(place) else { return };
        let first = !std::mem::replace(&mut chosen.has_run, true);
        let uncertain = fitting > 1 && chosen.context.is_none();
        let id = if first && store.peek(chosen.id).is_some() {
            chosen.id
        } else {
            let mut span = begin(told.second_id(), SpanKind::Callback, told.stream, told.at, None);
            (span.parent, span.more) = (chosen.parent, Some(Box::new(chosen.more.clone())));
            span.what = (*callback).into();
            store.open(span, out);
            told.second_id()
        };
        if let Some(span) = store.get(id, told.at, out) {
            (span.start, span.stream) = (told.at, told.stream);
            span.flags = span.flags.with(SpanFlags::UNCERTAIN, uncertain);
            let more = more(span);
            more.latency = more.created.map(|created| told.at.0.saturating_sub(created.0));
            more.threads = vec![told.stream];
        }
        store.twins(*frame, id);
        store.run(told.stream, id);
        self.running.insert(*frame, id);
    }

    /// A frame was left: a callback, perhaps. One that ended in a tail call runs until what took its place returns, at
    /// `left`.
    pub(super) fn frame_left(&mut self, frame: &Span, left: Option<SessionNs>, store: &mut Store, out: &mut Out) {
        let Some(id) = self.running.remove(&frame.id) else { return };
        store.stop(frame.stream, id);
        let end = left.or(frame.end);
        store.get(id, end.unwrap_or(frame.start), out);
        let Some(mut span) = store.take(id, out) else { return };
        (span.status, span.reason, span.end) = match left {
            Some(_) => (SpanStatus::Matched, None, left),
            None => (frame.status, frame.reason, frame.end),
        };
        let more = more(&mut span);
        more.end_stream = frame.end.map(|_| frame.stream);
        more.ending = match (frame.status, frame.reason) {
            (SpanStatus::Matched, _) => Some(Ending::Returned),
            (_, Some(Reason::TailCall)) => left.map(|_| Ending::Returned),
            (_, Some(Reason::Exception | Reason::Unwind | Reason::Longjmp)) => Some(Ending::Unwound),
            _ => None,
        };
        store.emit(span, out);
    }

    /// Forgets a span that was evicted.
    pub(super) fn forget(&mut self, span: &Span) {
        if let Some(frame) = span.twin {
            self.running.remove(&frame);
        }
        let ran = match span.what {
            What::Function(function) => Ran::Function(function),
            What::Address(address) => Ran::Address(address),
            _ => return,
        };
        if let Some(all) = self.registered.get_mut(&ran) {
            if let Some(place) = all.iter().position(|one| one.id == span.id) {
                all.remove(place);
            }
            if all.is_empty() {
                self.registered.remove(&ran);
            }
        }
    }

    /// Says of what has not run that it is pending.
    pub(super) fn finish(&mut self, store: &mut Store, at: SessionNs, out: &mut Out) {
        for one in std::mem::take(&mut self.registered).into_values().flatten().filter(|one| !one.has_run) {
            if let Some(span) = store.get(one.id, at, out) {
                span.reason = Some(Reason::Pending);
            }
        }
    }
}
