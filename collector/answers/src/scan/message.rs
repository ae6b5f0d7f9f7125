//! Events as they came over the wire, made again from what is on disk.

use std::collections::HashMap;

use anyhow::{Context, Result};
use codec::{
    EventKind, FunctionId, ModuleId, Position, SessionNs, StreamId, SubstreamId,
    atf::{DetailBody, DetailEvents, FunctionDetail, GapEntry, IndexEvent, Keys, MAX_STACK_BYTES},
    heph::{Attribute, Attributes, Event, Stamp, Value},
    profile::{Detail, FunctionEvent, MAX_STACK_WORDS, Message, Runtime, RuntimeEvent},
};

use super::{Consumer, Raw, Run};
use crate::trace::Trace;

/// What takes the events of a session as they came over the wire.
pub trait MessageConsumer {
    /// By how much an event may come before earlier ones of other streams.
    const SLACK_NS: u64 = 0;

    /// An event. Those of one stream come in order.
    fn message(&mut self, stream: StreamId, position: Position, message: &Message<'_>) -> Result<()>;

    /// The same, of a function.
    #[inline]
    fn function(&mut self, stream: StreamId, position: Position, event: FunctionEvent<'_>) -> Result<()> {
        self.message(stream, position, &Message::Function(event))
    }

    /// Events of a stream are missing, between those before this call and those behind it; `next` is the time of the
    /// event behind them, if there is one.
    fn gap(&mut self, gap: &GapEntry, next: Option<SessionNs>) -> Result<()>;

    /// Nothing from before this time comes any more.
    fn settle(&mut self, until: SessionNs) -> Result<()> {
        let _ = until;
        Ok(())
    }
}

/// Makes messages of events, and hands them on.
pub struct Messages<'a, C> {
    trace: &'a Trace,
    zero_ns: u64,
    depths: Depths,
    /// The stream of the event before, and its place: mostly the next is of the same.
    last: (u32, usize),
    /// Who takes them.
    pub consumer: C,
}

/// What is known of threads from their events so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Depths {
    threads: Vec<Known>,
    by_stream: HashMap<u32, usize>,
}

/// What is known of a thread from its events so far.
#[derive(Debug, Clone, Default)]
struct Known {
    substream: SubstreamId,
    /// When the latest call at each depth was.
    starts: Vec<SessionNs>,
}

/// How many depths are remembered. Depths come from a file, which may say anything; our writer relies on fewer.
const MOST_DEPTHS: usize = 1 << 16;
/// No call was seen at this depth.
const NO_START: SessionNs = SessionNs(u64::MAX);

impl Known {
    fn start(&self, depth: u32) -> Option<SessionNs> {
        self.starts.get(usize::try_from(depth).ok()?).copied().filter(|start| *start != NO_START)
    }

    fn note(&mut self, depth: u32, start: SessionNs) {
        let depth = usize::try_from(depth).unwrap_or(usize::MAX);
        if depth >= self.starts.len() && depth < MOST_DEPTHS {
            self.starts.resize(depth + 1, NO_START);
        }
        if let Some(known) = self.starts.get_mut(depth) {
            *known = start;
        }
    }
}

/// The details of one event, by what they are.
#[derive(Default)]
struct Parts<'a> {
    captured: Option<FunctionDetail<'a>>,
    keys: Option<Keys<'a>>,
    context: Option<codec::atf::Context>,
}

impl<'a> Parts<'a> {
    fn of(details: DetailEvents<'a>) -> Result<Self> {
        let mut parts = Self::default();
        for detail in details {
            match detail?.body {
                DetailBody::Call(captured) | DetailBody::Return(captured) => parts.captured = Some(captured),
                DetailBody::Keys(keys) => parts.keys = Some(keys),
                DetailBody::Context(context) => parts.context = Some(context),
                DetailBody::Other { .. } => {}
            }
        }
        Ok(parts)
    }
}

/// What an event of module 0 stands for.
enum StandIn<'a> {
    /// A function of which only the address is known.
    Address(u64),
    /// A function that its sender numbered in a way that is not ours.
    Function(FunctionId),
    /// An event that is on no function.
    Event(&'a str),
}

impl<'a, C> Messages<'a, C> {
    /// Makes messages for a consumer.
    pub fn new(trace: &'a Trace, consumer: C) -> Self {
        Self::go_on(trace, Depths::default(), consumer)
    }

    /// The same, of threads of which something is known.
    pub(crate) fn go_on(trace: &'a Trace, depths: Depths, consumer: C) -> Self {
        Self { trace, zero_ns: trace.zero_ns(), depths, last: (u32::MAX, usize::MAX), consumer }
    }

    /// What is known of the threads now, and who took their events.
    pub(crate) fn into_parts(self) -> (Depths, C) {
        (self.depths, self.consumer)
    }

    #[inline]
    fn known(&mut self, stream: u32) -> usize {
        if self.last.0 != stream || self.last.1 == usize::MAX {
            let threads = &mut self.depths.threads;
            let place = *self.depths.by_stream.entry(stream).or_insert_with(|| {
                threads.push(Known::default());
                threads.len() - 1
            });
            self.last = (stream, place);
        }
        self.last.1
    }

    fn session_time(&self, clock_ns: u64) -> SessionNs {
        SessionNs(clock_ns.saturating_sub(self.zero_ns))
    }

    fn stand_in(&self, event: &IndexEvent, parts: &Parts<'_>) -> StandIn<'a> {
        let (name, offset) = self.trace.catalog.function(event.function).unwrap_or(("", 0));
        let is_plain = parts.keys.is_some() && parts.captured.is_none() && parts.context.is_none() && event.depth == 0;
        let is_address = || name.strip_prefix("0x").is_some_and(|digits| u64::from_str_radix(digits, 16) == Ok(offset));
        match name.split_once(':') {
            _ if offset != 0 || (!is_plain && is_address()) => StandIn::Address(offset),
            _ if is_plain => StandIn::Event(name),
            Some((module, index)) => match (module.parse(), index.parse()) {
                (Ok(module), Ok(index)) => StandIn::Function(FunctionId::new(ModuleId(module), index)),
                _ => StandIn::Function(event.function),
            },
            None => StandIn::Function(event.function),
        }
    }
}

impl<C: MessageConsumer> Messages<'_, C> {
    fn function(&mut self, raw: &Raw<'_>, on: (Option<FunctionId>, Option<u64>), parts: &Parts<'_>) -> Result<()> {
        let event = &raw.event;
        let end = self.session_time(event.timestamp.0);
        let context = parts.context.map(|context| (context.substream, self.session_time(context.start.0)));
        let place = self.known(raw.stream);
        let Some(known) = self.depths.threads.get_mut(place) else { return Ok(()) };
        if let Some((substream, _)) = context {
            known.substream = substream;
        }
        let start = match (context, event.kind) {
            (Some((_, start)), _) => start,
            (None, EventKind::Call) => end,
            (None, EventKind::Return | EventKind::Exception) => known.start(event.depth).unwrap_or(end),
        };
        if event.kind == EventKind::Call {
            known.note(event.depth, start);
        }
        let stamp = stamp((raw.stream, raw.position), known.substream, start, end);
        let (words, mut stack);
        let detail = match &parts.captured {
            Some(captured) => {
                words = captured.registers.to_words();
                stack = [0; MAX_STACK_WORDS];
                let chunks = captured.stack.get(..MAX_STACK_BYTES).unwrap_or(captured.stack).as_chunks().0;
                stack.iter_mut().zip(chunks).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
                Some(Detail::new(&words, stack.get(..chunks.len()).unwrap_or_default()))
            }
            None => None,
        };
        let attributes = parts.keys.map_or_else(Attributes::default, |keys| keys.attributes);
        // The address of a function that is known lies beside what is not of the profile.
        let (ip, rest) = split_address(attributes, on.0.is_some());
        let extra = rest.as_ref().map_or(attributes, |rest| rest.as_slice().into());
        let (function, ip) = (on.0, on.1.or(ip));
        let event = FunctionEvent { stamp, kind: event.kind, function, ip, depth: event.depth, detail, extra };
        self.consumer.function(StreamId(raw.stream), Position(raw.position), event)
    }

    fn other(&mut self, raw: &Raw<'_>, name: &str, keys: &Keys<'_>) -> Result<()> {
        let (start, end) = (self.session_time(keys.start.0), self.session_time(keys.end.0));
        let stamp = stamp((raw.stream, raw.position), keys.substream, start, end);
        // What has a name of a runtime but a phase that is none came as any other event.
        let message = match Runtime::of(name).is_some() && keys.attributes.find("phase").is_none() {
            true => {
                let (phase, keys) = (raw.event.kind, keys.attributes);
                Message::Runtime(RuntimeEvent { stamp, function: name, phase, keys })
            }
            false => Message::Event(Event { stamp, description: name, attributes: keys.attributes }),
        };
        self.consumer.message(StreamId(raw.stream), Position(raw.position), &message)
    }
}

#[inline]
fn stamp((stream, position): (u32, u64), substream: SubstreamId, start: SessionNs, end: SessionNs) -> Stamp {
    Stamp { stream: StreamId(stream), counter: Position(position).counter(), substream, start, end }
}

/// The address among these attributes, and the others: none where there is nothing to take out.
fn split_address<'a>(attributes: Attributes<'a>, known: bool) -> (Option<u64>, Option<Vec<Attribute<'a>>>) {
    let first = attributes.iter().next().filter(|_| known);
    match first {
        Some(Attribute { name: "ip", value: Value::U64(ip) }) => (Some(ip), Some(attributes.iter().skip(1).collect())),
        _ => (None, None),
    }
}

impl<C: MessageConsumer> Consumer for Messages<'_, C> {
    const SLACK_NS: u64 = C::SLACK_NS;

    fn run(&mut self, run: Run<'_>) -> Result<()> {
        let (stream, place) = (StreamId(run.stream), self.known(run.stream));
        for (position, event) in run.events() {
            if event.function.module() == ModuleId(0) {
                let details = DetailEvents::at(&[], 0);
                self.event(Raw { stream: run.stream, position, event, details })?;
                continue;
            }
            let end = self.session_time(event.timestamp.0);
            let Some(known) = self.depths.threads.get_mut(place) else { return Ok(()) };
            let start = match event.kind {
                EventKind::Call => {
                    known.note(event.depth, end);
                    end
                }
                EventKind::Return | EventKind::Exception => known.start(event.depth).unwrap_or(end),
            };
            let event = FunctionEvent {
                stamp: stamp((run.stream, position), known.substream, start, end),
                kind: event.kind,
                function: Some(event.function),
                ip: None,
                depth: event.depth,
                detail: None,
                extra: Attributes::default(),
            };
            self.consumer.function(stream, Position(position), event)?;
        }
        Ok(())
    }

    #[inline]
    fn event(&mut self, mut raw: Raw<'_>) -> Result<()> {
        let details = std::mem::replace(&mut raw.details, DetailEvents::at(&[], 0));
        let parts = match raw.event.detail {
            None => Parts::default(),
            Some(_) => Parts::of(details)
                .with_context(|| format!("{}", self.trace.thread_dir(raw.stream).join("detail.atf").display()))?,
        };
        let function = raw.event.function;
        if function.module() != ModuleId(0) {
            return self.function(&raw, (Some(function), None), &parts);
        }
        match (self.stand_in(&raw.event, &parts), &parts.keys) {
            (StandIn::Address(ip), _) => self.function(&raw, (None, Some(ip)), &parts),
            (StandIn::Event(name), Some(keys)) => self.other(&raw, name, keys),
            (StandIn::Function(function), _) => self.function(&raw, (Some(function), None), &parts),
            (StandIn::Event(_), None) => self.function(&raw, (Some(function), None), &parts),
        }
    }

    fn gap(&mut self, gap: &GapEntry, time: u64) -> Result<()> {
        let next = Some(self.session_time(time)).filter(|_| time != u64::MAX);
        self.consumer.gap(gap, next)
    }

    fn settle(&mut self, until: u64) -> Result<()> {
        self.consumer.settle(self.session_time(until))
    }
}
