//! One ring while a thread has it: what has been read of it, and what its records mean.

use codec::{
    EventKind, FunctionId, Position, SessionNs, SubstreamId,
    heph::{Attribute, Stamp, Value},
    profile::{Detail, Key, MAX_STACK_WORDS, Queue, Registers, RunEvent, RuntimeEvent},
};

use super::{
    Counts, Functions,
    clock::Clock,
    creations::Creation,
    depths::{Depths, Nesting},
    levels::Levels,
    queues::Queues,
    selection::Selection,
    sieve::Sieve,
    threads::{TracedThread, text},
};
use crate::{
    shared::{Kind, Level, MAX_KEYS, RUNTIME_FUNCTIONS, Record, SKIP, parse},
    ship::{Shipper, text::cut},
};

/// The most bytes of a queue's label that are told.
const MOST_LABEL_BYTES: usize = 512;

/// A ring that a thread has taken.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) thread: TracedThread,
    /// The position of the next event.
    next: u64,
    substream: SubstreamId,
    /// The time of the last event: none is told to be before it.
    latest: SessionNs,
    /// Drops that the thread has told in records.
    reported_dropped: u64,
    /// Whether the thread is known to be gone.
    pub(super) is_gone: bool,
    /// What is not passed on, where not everything is asked for.
    pub(super) sieve: Sieve,
    /// What it is in, where that matters.
    pub(super) nesting: Nesting,
}

/// What reading a ring needs of its surroundings.
pub(super) struct DrainContext<'a> {
    /// Why events do not fit a ring.
    pub(super) full: &'static str,
    pub(super) clock: &'a Clock,
    pub(super) functions: &'a Functions,
    /// A copy of those that were known when they were last needed.
    pub(super) known: &'a mut Vec<FunctionId>,
    pub(super) queues: &'a mut Queues,
    pub(super) counts: &'a mut Counts,
    pub(super) shipper: &'a mut Shipper,
    /// Threads that were created: the handle, by whom and when.
    pub(super) created: &'a mut Vec<(u64, Creation)>,
    pub(super) levels: &'a mut Levels,
    /// What is asked for, if that is not everything.
    pub(super) selection: Option<&'a mut Selection>,
    pub(super) depths: &'a mut Depths,
    /// What the counter shows: nothing in a ring is later.
    pub(super) now: u64,
}

/// What became of words that were copied out of a ring.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    /// How many words were records.
    pub(super) words: usize,
    /// How many records they were.
    pub(super) records: usize,
    /// Whether what follows is none.
    pub(super) is_damaged: bool,
}

impl Ring {
    pub(super) fn new(thread: TracedThread) -> Self {
        let latest = thread.start;
        Self {
            thread,
            next: 0,
            substream: SubstreamId(0),
            latest,
            reported_dropped: 0,
            is_gone: false,
            sieve: Sieve::default(),
            nesting: Nesting::default(),
        }
    }

    /// The time of the last event.
    pub(super) fn latest(&self) -> SessionNs {
        self.latest
    }

    /// Makes events of the records at the start of these words. Stops at one that is not all there, and at the ring's
    /// end.
    pub(super) fn take(&mut self, words: &[u64], context: &mut DrainContext<'_>) -> Taken {
        if context.selection.is_some() {
            return self.sift(words, context);
        }
        each_record(words, |record, _| {
            self.note(record, context);
            if context.depths.is_on() && self.is_too_deep(record, context) {
                return true;
            }
            (record.kind != Kind::Dropped || self.note_dropped(record)) && self.record(record, context)
        })
    }

    /// Whether an event is nested too deep below a function.
    pub(super) fn is_too_deep(&mut self, record: &Record<'_>, context: &mut DrainContext<'_>) -> bool {
        let is_of_function = matches!(record.kind, Kind::Call | Kind::Return | Kind::Exception);
        let is = is_of_function && context.depths.leaves_out(&mut self.nesting, record);
        context.counts.too_deep += u64::from(is && record.kind == Kind::Call);
        is
    }

    /// Takes note of what counts whether it is sent or not.
    #[inline(always)]
    pub(super) fn note(&mut self, record: &Record<'_>, context: &mut DrainContext<'_>) {
        match record.kind {
            Kind::Call => context.levels.called(record.function),
            Kind::Runtime => self.note_creation(record, context),
            _ => {}
        }
    }

    /// Takes note of a thread that was created.
    fn note_creation(&mut self, record: &Record<'_>, context: &mut DrainContext<'_>) {
        let function = RUNTIME_FUNCTIONS.get(record.function as usize);
        let is_return = EventKind::from_number(record.depth.into()) == Some(EventKind::Return);
        let handle = record.keys().find(|(key, value)| *key == Key::Pthread && *value != 0);
        if let (Some(&"pthread_create"), true, Some((_, handle))) = (function, is_return, handle) {
            let entered = record.rest.first().copied().unwrap_or(record.time);
            context.created.push((handle, Creation { by: self.thread.stream, entered }));
        }
    }

    /// Takes note of events that did not fit before this record. A number that cannot be is not believed.
    pub(super) fn note_dropped(&mut self, record: &Record<'_>) -> bool {
        let count = record.rest.first().copied().unwrap_or(0);
        self.reported_dropped += if count >> 40 == 0 { count } else { 0 };
        self.nesting.has_gap();
        count >> 40 == 0
    }

    /// Sends a record, or does what it says. Whether it makes sense.
    #[inline]
    pub(super) fn record(&mut self, record: &Record<'_>, context: &mut DrainContext<'_>) -> bool {
        match record.kind {
            Kind::Call => self.function(EventKind::Call, record, context),
            Kind::Return => self.function(EventKind::Return, record, context),
            Kind::Exception => self.function(EventKind::Exception, record, context),
            Kind::Dropped => self.drop_events(record.rest.first().copied().unwrap_or(0), context.full, context),
            Kind::Runtime => return self.runtime(record, context),
            Kind::Label => label(record, context),
            Kind::Substream => self.substream = SubstreamId(record.rest.first().copied().unwrap_or(0)),
            Kind::Level => {
                let Some(level) = Level::from_number(record.depth) else { return false };
                let time = context.clock.at(record.time.min(context.now));
                context.levels.changed(time, record.function, level);
            }
            Kind::Name => {
                if self.thread.rename(&bytes(record.rest)) {
                    self.thread.report(context.shipper);
                }
            }
        }
        true
    }

    #[inline(always)]
    fn function(&mut self, kind: EventKind, record: &Record<'_>, context: &mut DrainContext<'_>) {
        let (start, end) = self.times(record, context);
        let Some(function) = context.function(record.function) else {
            return self.drop_events(1, "unknown-function", context);
        };
        let event = RunEvent { kind, depth: record.depth, function: Some(function), ip: 0, start, end, detail: None };
        match record.rest {
            [] | [_] => self.push(&event, context),
            _ => self.push_detailed(&event, record, context),
        }
    }

    #[inline(never)]
    fn push_detailed(&mut self, event: &RunEvent<'_>, record: &Record<'_>, context: &mut DrainContext<'_>) {
        let mut registers = [0; Registers::WORDS];
        let detail = match (record.kind, record.rest) {
            (Kind::Call, [general @ .., _, _, _]) if general.len() < 6 => None,
            (Kind::Call, rest) => {
                let (given, stack) = rest.split_at(9);
                registers[..6].copy_from_slice(&given[..6]);
                registers[8..].copy_from_slice(&given[6..]);
                Some(stack.get(..MAX_STACK_WORDS).unwrap_or(stack))
            }
            (Kind::Return, &[_, rax, rdx, address, frame, stack, ..]) => {
                registers = [rax, rdx, 0, 0, 0, 0, 0, 0, address, frame, stack];
                Some(&[][..])
            }
            _ => None,
        };
        let detail = detail.map(|stack| Detail::new(&registers, stack));
        self.push(&RunEvent { detail, ..*event }, context);
    }

    #[inline(always)]
    fn push(&mut self, event: &RunEvent<'_>, context: &mut DrainContext<'_>) {
        match context.shipper.push_function(self.thread.stream, self.substream, Position(self.next), event) {
            Ok(()) => self.count(context),
            // All of its parts were cut to size; should one not fit all the same, it is not lost in silence.
            Err(_) => self.drop_events(1, "not-encodable", context),
        }
    }

    fn runtime(&mut self, record: &Record<'_>, context: &mut DrainContext<'_>) -> bool {
        let (start, end) = self.times(record, context);
        let Self { next, substream, ref thread, .. } = *self;
        let stamp = Stamp { stream: thread.stream, counter: Position(next).counter(), substream, start, end };
        let function = RUNTIME_FUNCTIONS.get(record.function as usize);
        let phase = EventKind::from_number(record.depth.into());
        let (Some(function), Some(phase)) = (function, phase) else { return false };
        let mut keys = [Attribute { name: "", value: Value::U64(0) }; MAX_KEYS];
        let mut count = 0;
        for (place, (key, value)) in keys.iter_mut().zip(record.keys()) {
            let value = if key == Key::Queue { context.queues.number(value) } else { value };
            *place = Attribute { name: key.name(), value: Value::U64(value) };
            count += 1;
        }
        let keys = keys.get(..count).unwrap_or_default().into();
        let event = RuntimeEvent { stamp, function, phase, keys };
        match context.shipper.push(self.thread.stream, Position(self.next), &event) {
            Ok(()) => self.count(context),
            Err(_) => self.drop_events(1, "not-encodable", context),
        }
        true
    }

    #[inline]
    fn count(&mut self, context: &mut DrainContext<'_>) {
        self.next += 1;
        context.counts.events += 1;
    }

    /// When the function was entered, and when this happened. No event is before the one before it, and none starts
    /// after it ends.
    #[inline(always)]
    fn times(&mut self, record: &Record<'_>, context: &DrainContext<'_>) -> (SessionNs, SessionNs) {
        let end = context.clock.at(record.time.min(context.now)).max(self.latest);
        self.latest = end;
        let start = match (record.kind, record.rest) {
            (Kind::Call, _) | (_, []) => end,
            (_, [entered, ..]) => context.clock.at(*entered).min(end),
        };
        (start, end)
    }

    /// The thread is gone and the ring is empty: how many of all events that did not fit were the last.
    pub(super) fn take_tail(&mut self, dropped: u64) -> u64 {
        let count = dropped.saturating_sub(self.reported_dropped);
        let count = if count >> 40 == 0 { count } else { 0 };
        self.reported_dropped += count;
        count
    }

    /// Notes that events were not kept.
    pub(super) fn drop_events(&mut self, count: u64, reason: &'static str, context: &mut DrainContext<'_>) {
        if count > 0 {
            context.shipper.dropped(self.thread.stream, Position(self.next), count, reason);
            context.counts.drop_events(count, reason);
            self.next += count;
            self.nesting.has_gap();
        }
    }

    /// Counts the events at the start of these words as not kept, and takes nothing else of them.
    pub(super) fn give_up(&mut self, words: &[u64], context: &mut DrainContext<'_>) -> Taken {
        let mut events = 0;
        let taken = each_record(words, |record, _| {
            match record.kind {
                kind if kind.is_event() => events += 1,
                Kind::Dropped if self.note_dropped(record) => {
                    self.drop_events(std::mem::take(&mut events), "not-sent", context);
                    self.drop_events(record.rest.first().copied().unwrap_or(0), context.full, context);
                }
                _ => {}
            }
            true
        });
        self.drop_events(events, "not-sent", context);
        taken
    }
}

/// Passes on the records at the start of these words, with the words of each, up to one that is not all there or does not make sense, and at
/// most to the ring's end.
#[inline(always)]
pub(super) fn each_record(words: &[u64], mut each: impl FnMut(&Record<'_>, &[u64]) -> bool) -> Taken {
    let mut taken = Taken::default();
    while let Some(rest) = words.get(taken.words..)
        && rest.first().is_some_and(|first| *first != SKIP)
    {
        match parse(rest) {
            Ok(Some((record, length))) if each(&record, &rest[..length]) => {
                taken.words += length;
                taken.records += 1;
            }
            Ok(None) => break,
            Ok(Some(_)) | Err(_) => {
                taken.is_damaged = true;
                break;
            }
        }
    }
    taken
}

impl DrainContext<'_> {
    #[inline]
    pub(super) fn function(&mut self, number: u32) -> Option<FunctionId> {
        match self.known.get(number as usize) {
            Some(function) => Some(*function),
            None => self.learn(number),
        }
    }

    #[cold]
    fn learn(&mut self, number: u32) -> Option<FunctionId> {
        self.functions.copy_to(self.known);
        self.known.get(number as usize).copied()
    }
}

fn label(record: &Record<'_>, context: &mut DrainContext<'_>) {
    let [address, label @ ..] = record.rest else { return };
    let label = text(&bytes(label));
    let label = cut(&label, MOST_LABEL_BYTES);
    if let Some(id) = context.queues.label(*address, label) {
        context.shipper.option(Queue { id, label }.into());
    }
}

/// Words as the bytes they were in the target's memory.
fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
