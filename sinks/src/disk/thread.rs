//! One thread of an open part: its events on their way to its two files.

use std::{io, iter::Take, path::Path};

use codec::{
    ClockNs, EventKind, FunctionId, ModuleId, SubstreamId,
    atf::{AppendError, Context, DetailBody, FunctionDetail, IndexEvent, Keys, MAX_STACK_BYTES, Origin, ThreadWriter},
    heph::{Attribute, Attributes, Stamp, Value},
    profile::{FunctionEvent, Message, RunEvents as RunPacketEvents},
};

use super::{
    files::{HandleKey, Handles},
    standin::StandIns,
    starts::Starts,
};
use crate::RunEvents;

/// A thread that is being written.
#[derive(Debug)]
pub(super) struct OpenThread {
    pub(super) writer: ThreadWriter,
    /// The id that all its events in this part have: what was known when it was started.
    thread: u32,
    /// What a reader takes the thread to be busy with, where that is known.
    substream: Option<SubstreamId>,
    starts: Starts,
    /// The position of its first event or gap in this part.
    pub(super) first: u64,
    /// The position that comes next.
    pub(super) next: u64,
    /// How many events are in gaps.
    pub(super) missing: u64,
    /// The earliest and latest timestamp.
    pub(super) times: Option<(u64, u64)>,
}

/// What appending needs to know beside the thread.
#[derive(Debug)]
pub(super) struct Appending<'s> {
    /// The session's zero by the trace's clock.
    pub(super) zero_ns: u64,
    /// For the stack of one event, kept so that it need not be cleared for each.
    pub(super) stack: &'s mut [u8; MAX_STACK_BYTES],
    /// The functions of module 0.
    pub(super) stand_ins: &'s mut StandIns,
    /// How many bytes may wait before somebody has to look.
    pub(super) pending_bytes: usize,
    /// How many events an index may have.
    pub(super) most_events: u32,
}

/// Why appending stopped.
#[derive(Debug, PartialEq)]
pub(super) enum Stop<'a> {
    /// There are no more events.
    End,
    /// Enough waits to be written.
    Pending,
    /// The files are full. This event is the first that has no room.
    Full(Message<'a>),
    /// An event came that the format cannot hold. It is left out.
    Refused,
}

/// How many events of a run are appended before it is looked at how much waits.
const EVENTS_PER_LOOK: u64 = 1024;

impl OpenThread {
    /// A thread whose first event or gap here has this position.
    pub(super) fn new(origin: Origin, first: u64, starts: Starts) -> Self {
        Self {
            writer: ThreadWriter::new(origin),
            thread: origin.thread,
            substream: Some(SubstreamId(0)),
            starts,
            first,
            next: first,
            missing: 0,
            times: None,
        }
    }

    /// A thread that goes on behind what is in its files. What a reader can tell from that is not looked up: the next
    /// events say it again.
    pub(super) fn resume(
        writer: ThreadWriter,
        thread: u32,
        times: Option<(u64, u64)>,
        first: u64,
        starts: Starts,
    ) -> Self {
        let next = first.saturating_add(writer.len().into());
        Self { writer, thread, substream: None, starts, first, next, missing: 0, times }
    }

    /// Appends up to `most` events, `held` before the others. Tells how many, and why it stopped.
    pub(super) fn append_all<'a>(
        &mut self,
        held: &mut Option<Message<'a>>,
        events: &mut RunEvents<'a>,
        most: u64,
        appending: &mut Appending<'_>,
    ) -> (u64, Stop<'a>) {
        let mut done = 0;
        while done < most {
            if self.writer.pending_bytes() >= appending.pending_bytes {
                return (done, Stop::Pending);
            }
            if held.is_none() {
                let some = (most - done).min(EVENTS_PER_LOOK);
                match events.with_run(some, |stamp, number, run| self.append_run(stamp, number, run, appending)) {
                    Some((taken, Some(stop))) => return (done + taken, stop),
                    Some((taken, None)) if taken > 0 => {
                        done += taken;
                        continue;
                    }
                    _ => {}
                }
            }
            let Some(message) = held.take().or_else(|| events.next()) else { return (done, Stop::End) };
            let appended = match &message {
                _ if self.writer.len() >= appending.most_events => return (done, Stop::Full(message)),
                Message::Function(event) => self.append_function(event, appending),
                Message::Runtime(event) => {
                    self.append_other(&event.stamp, event.function, event.phase, event.keys, appending)
                }
                Message::Event(event) => {
                    let (kind, attributes) = (EventKind::Call, event.attributes);
                    self.append_other(&event.stamp, event.description, kind, attributes, appending)
                }
                Message::Run(_) | Message::Option(_) | Message::Metadata(_) | Message::BadOption { .. } => {
                    return (done, Stop::Refused);
                }
            };
            match appended {
                Ok(_) => done += 1,
                Err(AppendError::Full { .. }) => return (done, Stop::Full(message)),
                Err(_) => return (done, Stop::Refused),
            }
        }
        (done, Stop::End)
    }

    /// Appends events of a run. Tells how many, how many were taken, and why it stopped, unless it came to the end.
    fn append_run<'a>(
        &mut self,
        stamp: &Stamp,
        number: u32,
        run: Take<&mut RunPacketEvents<'a>>,
        to: &mut Appending<'_>,
    ) -> (u32, (u64, Option<Stop<'a>>)) {
        let mut taken = 0_u32;
        let mut times = None;
        let (zero_ns, thread) = (to.zero_ns, self.thread);
        let is_known = Some(stamp.substream) == self.substream;
        let stop = 'stop: {
            for event in run {
                taken += 1;
                // Most events say nothing that a reader of the index could not tell.
                if let Some(function) = event.function
                    && event.detail.is_none()
                    && function.module() != ModuleId(0)
                    && is_known
                    && (event.kind == EventKind::Call || self.starts.get(event.depth) == Some(event.start.0))
                    && self.writer.len() < to.most_events
                {
                    let timestamp = ClockNs(zero_ns.saturating_add(event.end.0));
                    let (kind, depth) = (event.kind, event.depth);
                    let index = IndexEvent { timestamp, function, thread, kind, depth, detail: None };
                    if self.writer.append_plain(&index).is_ok() {
                        if kind == EventKind::Call {
                            self.starts.note(depth, event.start.0);
                        }
                        // Times of a run rise.
                        times = Some((times.map_or(timestamp, |(first, _)| first), timestamp));
                        continue;
                    }
                }
                let event = event.function_event(stamp, number + taken - 1);
                if self.writer.len() >= to.most_events {
                    break 'stop Some(Stop::Full(Message::Function(event)));
                }
                match self.append_function(&event, to) {
                    Ok(_) => {}
                    Err(AppendError::Full { .. }) => break 'stop Some(Stop::Full(Message::Function(event))),
                    Err(_) => break 'stop Some(Stop::Refused),
                }
            }
            None
        };
        if let Some((first, last)) = times {
            self.note_time(first);
            self.note_time(last);
        }
        // The one that it stopped at was taken, but not appended.
        let appended = u64::from(taken) - u64::from(stop.is_some());
        (taken, (appended, stop))
    }

    #[inline]
    fn append_function(&mut self, event: &FunctionEvent<'_>, to: &mut Appending<'_>) -> Result<u32, AppendError> {
        let stamp = &event.stamp;
        let function = match event.function {
            Some(function) if function.module() != ModuleId(0) => function,
            _ => stand_in(event, to.stand_ins),
        };
        let timestamp = ClockNs(to.zero_ns.saturating_add(stamp.end.0));
        let index =
            IndexEvent { timestamp, function, thread: self.thread, kind: event.kind, depth: event.depth, detail: None };
        let context = self.needs_context(event);
        let sequence = if event.detail.is_none() && !context && event.ip.is_none() && event.extra.is_empty() {
            self.writer.append(&index, &[])?
        } else {
            self.append_details(event, &index, context, to)?
        };
        // Only now: what was not appended, no reader knows of.
        self.substream = Some(stamp.substream);
        if event.kind == EventKind::Call {
            self.starts.note(event.depth, stamp.start.0);
        }
        self.note_time(timestamp);
        Ok(sequence)
    }

    /// Whether a reader could not tell the event's substream and start from the events before.
    #[inline]
    fn needs_context(&self, event: &FunctionEvent<'_>) -> bool {
        let stamp = &event.stamp;
        let start = match event.kind {
            EventKind::Call => Some(stamp.end.0),
            EventKind::Return | EventKind::Exception => self.starts.get(event.depth),
        };
        Some(stamp.substream) != self.substream || start != Some(stamp.start.0)
    }

    #[inline(never)]
    fn append_details(
        &mut self,
        event: &FunctionEvent<'_>,
        index: &IndexEvent,
        context: bool,
        to: &mut Appending<'_>,
    ) -> Result<u32, AppendError> {
        let stamp = &event.stamp;
        let start = ClockNs(to.zero_ns.saturating_add(stamp.start.0));
        let context = context.then_some(DetailBody::Context(Context { substream: stamp.substream, start }));
        let registers = event.detail.map(|detail| {
            let function = index.function;
            let (registers, stack) = (detail.registers(), detail.stack_bytes(to.stack));
            DetailBody::function(event.kind, FunctionDetail { function, registers, stack })
        });
        // Where there is a function, nothing else of the index keeps the address.
        let both = event.function.and(event.ip);
        let mut more = Vec::new();
        let attributes = match both {
            Some(ip) => {
                more.push(Attribute { name: "ip", value: Value::U64(ip) });
                more.extend(event.extra.iter());
                Attributes::from(more.as_slice())
            }
            None => event.extra,
        };
        let keys = (!attributes.is_empty()).then_some(DetailBody::Keys(Keys {
            function: index.function,
            start,
            end: index.timestamp,
            substream: stamp.substream,
            attributes,
        }));
        match (registers, keys, context) {
            (Some(a), Some(b), Some(c)) => self.writer.append(index, &[a, b, c]),
            (Some(a), Some(b), None) | (Some(a), None, Some(b)) | (None, Some(a), Some(b)) => {
                self.writer.append(index, &[a, b])
            }
            (Some(a), None, None) | (None, Some(a), None) | (None, None, Some(a)) => self.writer.append(index, &[a]),
            (None, None, None) => self.writer.append(index, &[]),
        }
    }

    /// Appends an event that is on no function.
    fn append_other(
        &mut self,
        stamp: &Stamp,
        description: &str,
        kind: EventKind,
        attributes: Attributes<'_>,
        to: &mut Appending<'_>,
    ) -> Result<u32, AppendError> {
        let function = to.stand_ins.named(description);
        let start = ClockNs(to.zero_ns.saturating_add(stamp.start.0));
        let end = ClockNs(to.zero_ns.saturating_add(stamp.end.0));
        let index = IndexEvent { timestamp: end, function, thread: self.thread, kind, depth: 0, detail: None };
        let keys = Keys { function, start, end, substream: stamp.substream, attributes };
        let sequence = self.writer.append(&index, &[DetailBody::Keys(keys)])?;
        self.note_time(end);
        Ok(sequence)
    }

    #[inline]
    fn note_time(&mut self, timestamp: ClockNs) {
        let at = timestamp.0;
        self.times = Some(self.times.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
    }

    /// Writes what waits. Tells how many bytes that were, and what went wrong.
    pub(super) fn flush(&mut self, handles: &mut Handles, key: HandleKey, dir: &Path) -> (u64, io::Result<()>) {
        let waited = self.writer.pending_bytes();
        if waited == 0 {
            return (0, Ok(()));
        }
        let (index_bytes, detail_bytes) = self.writer.written_bytes();
        let result = handles.get(key, dir, index_bytes, detail_bytes).and_then(|handle| match &mut handle.detail {
            Some(detail) => self.writer.flush_to(&mut handle.index, detail),
            None => self.writer.flush_to(&mut handle.index, &mut io::sink()),
        });
        if result.is_err() {
            // Where the files stand is known; where their handles stand may not be.
            handles.close(key);
        }
        (waited.saturating_sub(self.writer.pending_bytes()) as u64, result)
    }

    /// Whether nothing was written of it, so that its header can still change.
    pub(super) fn is_new(&self) -> bool {
        self.writer.is_empty() && self.writer.written_bytes().0 == 0
    }

    /// Says anew where it comes from: more may be known than when it was first heard of.
    pub(super) fn set_origin(&mut self, origin: Origin) {
        self.writer = ThreadWriter::new(origin);
        self.thread = origin.thread;
    }
}

/// The function of module 0 for an event that is on none of another module.
#[cold]
fn stand_in(event: &FunctionEvent<'_>, stand_ins: &mut StandIns) -> FunctionId {
    match (event.function, event.ip) {
        (None, Some(ip)) => stand_ins.at(ip),
        // Module 0 is ours: what a sender means by a function of it is told by name.
        (function, _) => stand_ins.named(&function.unwrap_or_default().to_string()),
    }
}
