//! A session as Heph packets: what `collector ingest` makes the same trace of.

use std::{collections::BTreeMap, io::Write, sync::Arc};

use answers::{
    export, options,
    scan::{MessageConsumer, Messages, Scan},
    trace::Trace,
};
use anyhow::{Context, Result};
use bytes::Bytes;
use codec::{
    Position, SessionNs, StreamId,
    atf::GapEntry,
    heph::{Encode, List},
    profile::{Dropped, Drops, End, EndReason, Message, ProfileOption, StreamPosition},
};
use sinks::{Batch, HephSink, Packer, Run, Session, Sink};

use crate::{args::WireForm, tables::Progress};

/// Events are handed over when their packets have so many bytes.
const BATCH_BYTES: usize = 256 << 10;

/// What the list of an `end` may take.
const LIST_BYTES: usize = 32 << 10;

/// Writes the options, events and gaps of a session, and returns how many events there are.
pub(super) fn write(trace: &Trace, form: WireForm, progress: &Progress, out: impl Write + Send) -> Result<u64> {
    let session = trace.session();
    let mut sink = HephSink::new(out);
    sink.start(&session)?;
    let mut packets = Vec::new();
    options::each(trace, &mut |option| {
        // What came in a packet fits into one.
        let _ = option.encode(&mut packets);
    });
    sink.options(&session, &packets)?;
    let replay = Replay {
        session,
        sink,
        form,
        packed: BTreeMap::new(),
        packed_bytes: 0,
        bytes: Vec::new(),
        runs: Vec::new(),
        next: BTreeMap::new(),
        events: 0,
        progress,
    };
    progress.begin(trace.name(), trace.events());
    let mut messages = Messages::new(trace, replay);
    Scan::open(trace, &trace.threads())?.run(&mut messages)?;
    messages.consumer.finish(trace)
}

/// Sends events again.
struct Replay<'a, W> {
    session: Arc<Session>,
    sink: HephSink<W>,
    form: WireForm,
    /// Events that are being packed into runs, by stream: threads take turns too often for runs across all of them.
    packed: BTreeMap<StreamId, Packed>,
    packed_bytes: usize,
    /// Single events, in the order of time.
    bytes: Vec<u8>,
    runs: Vec<Run>,
    /// The position that comes next, of each stream.
    next: BTreeMap<StreamId, Position>,
    events: u64,
    progress: &'a Progress,
}

/// Events of one stream without a gap between them, in runs.
struct Packed {
    packer: Packer,
    bytes: Vec<u8>,
    first: Position,
    events: u32,
}

impl<W: Write + Send> Replay<'_, W> {
    fn pack(&mut self, stream: StreamId, position: Position, message: &Message<'_>) -> Result<()> {
        let new = || Packed { packer: Packer::default(), bytes: Vec::new(), first: position, events: 0 };
        let packed = self.packed.entry(stream).or_insert_with(new);
        let before = packed.bytes.len();
        packed.packer.push(message, &mut packed.bytes)?;
        packed.events += 1;
        self.packed_bytes += packed.bytes.len() - before;
        Ok(())
    }

    fn append(&mut self, stream: StreamId, position: Position, message: &Message<'_>) -> Result<()> {
        let before = self.bytes.len();
        message.encode(&mut self.bytes)?;
        let bytes = u32::try_from(self.bytes.len() - before)?;
        match self.runs.last_mut() {
            Some(run) if run.stream == stream => {
                run.events += 1;
                run.bytes += bytes;
            }
            _ => self.runs.push(Run { stream, first: position, events: 1, bytes, skip: 0 }),
        }
        Ok(())
    }

    fn hand_over(&mut self) -> Result<()> {
        self.progress.reach(self.events)?;
        self.packed_bytes = 0;
        for (stream, Packed { mut packer, mut bytes, first, events }) in std::mem::take(&mut self.packed) {
            packer.finish(&mut bytes);
            self.runs.push(Run { stream, first, events, bytes: u32::try_from(bytes.len())?, skip: 0 });
            self.bytes.append(&mut bytes);
        }
        if self.runs.is_empty() {
            return Ok(());
        }
        let (bytes, runs) = (Bytes::from(std::mem::take(&mut self.bytes)), std::mem::take(&mut self.runs));
        Ok(self.sink.events(&Arc::new(Batch { session: Arc::clone(&self.session), bytes, runs }))?)
    }

    fn option(&mut self, option: &ProfileOption<'_>) -> Result<()> {
        self.hand_over()?;
        let mut packet = Vec::new();
        option.encode(&mut packet).with_context(|| format!("the option {:?} has no room", option.name()))?;
        Ok(self.sink.options(&self.session, &packet)?)
    }

    fn finish(mut self, trace: &Trace) -> Result<u64> {
        self.hand_over()?;
        if let Some((reason, at)) = ending(trace) {
            let position = |(stream, next): (&StreamId, &Position)| StreamPosition { stream: *stream, next: *next };
            let streams: Vec<_> = self.next.iter().map(position).collect();
            let stream_count = u32::try_from(streams.len()).unwrap_or(u32::MAX);
            // One without streams is an end too.
            let none = streams.is_empty().then_some(&[] as &[StreamPosition]);
            for part in none.into_iter().chain(List::parts(&streams, LIST_BYTES)) {
                self.option(&ProfileOption::End(End { reason, at, stream_count, streams: part.into() }))?;
            }
        }
        export::end(trace, &self.session, &mut self.sink)?;
        self.sink.close()?;
        Ok(self.events)
    }
}

impl<W: Write + Send> MessageConsumer for Replay<'_, W> {
    fn message(&mut self, stream: StreamId, position: Position, message: &Message<'_>) -> Result<()> {
        let written = match self.form {
            WireForm::Runs => self.pack(stream, position, message),
            WireForm::Plain => self.append(stream, position, message),
        };
        written.with_context(|| format!("thread {}: event {} cannot be sent", stream.0, position.0))?;
        self.next.insert(stream, Position(position.0.saturating_add(1)));
        self.events += 1;
        if self.bytes.len() + self.packed_bytes >= BATCH_BYTES {
            self.hand_over()?;
        }
        Ok(())
    }

    fn gap(&mut self, gap: &GapEntry, _: Option<SessionNs>) -> Result<()> {
        let stream = StreamId(gap.thread);
        let first = self.next.get(&stream).copied().unwrap_or(Position(gap.first));
        self.next.insert(stream, Position(first.0.saturating_add(gap.count)));
        // The agent's own drops have no prefix; for other causes the option carries the whole name.
        let reason = gap.cause.strip_prefix("agent:").unwrap_or(&gap.cause);
        let drops = [Dropped { stream, first, count: gap.count, reason }];
        self.option(&ProfileOption::Drops(Drops { drops: (&drops).into() }))
    }
}

/// How the session ended and when, where its agent said so.
fn ending(trace: &Trace) -> Option<(EndReason, SessionNs)> {
    let end = trace.manifest.end.as_ref()?;
    let code = end.code.unwrap_or(0);
    let reason = match end.how.as_str() {
        "exited" => EndReason::Exited(code),
        "signaled" => EndReason::Signaled(code),
        "detached" => EndReason::Detached,
        "replaced" => EndReason::Replaced,
        _ => return None,
    };
    Some((reason, SessionNs(end.at_ns?.saturating_sub(trace.zero_ns()))))
}
