//! Recorders: threads that take what the receiver has settled, make spans of it where a sink wants them, and give both
//! to the sinks. Each session belongs to one recorder, with its one span engine.

mod background;
mod engines;
mod kept;
mod queue;
mod slot;
mod unreported;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant, UNIX_EPOCH},
};

use anyhow::{Context, Result, anyhow};
use codec::span::Span;
use collector_core::{Cause, Output, spans::SpanConfig};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use fleet::NatsSink;
use sinks::{
    Budget, ChromeSink, DiskCounters, DiskOptions, DiskSink, HephCompatSink, HephSink, LineSink, OtlpSink,
    PerfettoSink, Session, Sink, SinkError, SpansWhen,
};
use tracing::{info, info_span, warn};

pub(crate) use self::{
    background::BackgroundWriter,
    kept::{Kept, KeptPositions},
    slot::SinkCounters,
};
use self::{
    engines::Engines,
    kept::Recorded,
    queue::Queue,
    slot::{Closing, Slot},
};
use crate::{
    notices::Notices,
    otlp::{self, Exporter, OtlpCounters},
    settings::{Shares, SinkSetting},
    sink_spec::{OnFull, Target},
    summary,
    tables::{Making, Tables},
};

/// How long a sink may keep something before it is flushed. The promise to users is 200 ms.
const FLUSH_TIME: Duration = Duration::from_millis(20);

/// All recorders, and what they count.
pub(crate) struct Recorders {
    queues: Vec<Queue>,
    threads: Vec<JoinHandle<bool>>,
    shared: Vec<SharedSink>,
    pub(crate) backlogs: Vec<BackgroundWriter>,
    /// What they have written.
    pub(crate) kept: Arc<KeptPositions>,
    /// Whether they are to end, and wait for nothing any longer.
    closing: Arc<Closing>,
    /// Bytes that wait for each recorder.
    pub(crate) queued_bytes: Vec<Arc<AtomicU64>>,
    /// What each sink counts, with its name.
    pub(crate) sinks: Vec<(String, Arc<SinkCounters>)>,
    /// What the disk sinks count, with their names.
    pub(crate) disks: Vec<(String, Arc<DiskCounters>)>,
    /// What the sinks for OpenTelemetry count, with their names.
    pub(crate) otlps: Vec<(String, Arc<OtlpCounters>)>,
}

impl fmt::Debug for Recorders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorders").field("queues", &self.queues).field("sinks", &self.sinks).finish_non_exhaustive()
    }
}

/// A sink that several recorders write to.
type SharedSink = Arc<Mutex<Box<dyn Sink>>>;

impl Recorders {
    /// Opens all sinks, or none, and starts the recorders, and what makes tables of spans of the sessions they finish.
    pub(crate) fn start(
        settings: &[SinkSetting],
        spans: &SpanConfig,
        memory: u64,
        count: usize,
        notices: &Arc<Notices>,
    ) -> Result<(Self, Making)> {
        let shares = Shares::of(memory);
        let count = count.max(1);
        // The engine of the tables is another one.
        let max_open = usize::try_from(shares.open_spans).unwrap_or(usize::MAX) / (count + 1);
        let spans = SpanConfig { max_open, ..spans.clone() };
        let mut recorders = Self {
            queues: Vec::new(),
            threads: Vec::new(),
            shared: Vec::new(),
            backlogs: Vec::new(),
            kept: Arc::default(),
            closing: Arc::default(),
            queued_bytes: Vec::new(),
            sinks: Vec::new(),
            disks: Vec::new(),
            otlps: Vec::new(),
        };
        let budget = Budget::new(shares.written, Arc::default());
        let disks = settings.iter().filter(|setting| matches!(setting.target, Target::Disk { .. })).count();
        let hands_on = settings.iter().any(|setting| matches!(setting.target, Target::Nats(_)));
        let disk_memory = shares.disks / disks.max(1) as u64;
        let mut tables = Tables::new();
        let mut slots: Vec<Vec<Slot>> = (0..count).map(|_| Vec::new()).collect();
        for setting in settings {
            let counters = Arc::new(SinkCounters::default());
            let name = setting.target.to_string();
            let opened = recorders.open(setting, count, &counters, &mut tables, (&budget, disk_memory), notices);
            let opened = opened.map_err(|error| anyhow!("cannot open sink {name}: {error}"))?;
            // What others record from is what keeps events; without one a disk, and without a disk a file.
            let is_durable = match setting.target {
                Target::Nats(_) => true,
                Target::Disk { .. } => !hands_on,
                _ => setting.target.is_file() && !hands_on && disks == 0,
            };
            for (slots, (sink, backlog)) in slots.iter_mut().zip(opened) {
                let mut slot = Slot::new(&name, setting, sink, backlog, &recorders.closing, &counters, notices);
                slot.is_durable = is_durable;
                slots.push(slot);
            }
            recorders.sinks.push((name, counters));
        }
        let making = tables.start(spans.clone(), Arc::clone(notices))?;
        for slots in slots {
            let (queue, outputs) = Queue::new(shares.queues / count as u64);
            recorders.queued_bytes.push(queue.bytes());
            let recorder = Recorder {
                engines: slots.iter().any(|slot| slot.wants_spans).then(|| Engines::new(spans.clone())),
                slots,
                spans: Vec::new(),
                recorded: Recorded::new(&recorders.kept),
                disks: recorders.disks.clone(),
                started: HashMap::new(),
                queued_bytes: queue.bytes(),
                notices: Arc::clone(notices),
            };
            let thread = thread::Builder::new().name("recorder".into()).spawn(move || recorder.run(&outputs));
            recorders.threads.push(thread.context("cannot start a recorder's thread")?);
            recorders.queues.push(queue);
        }
        Ok((recorders, making))
    }

    /// Opens a sink: once for each recorder, or once for all where it has one output.
    fn open(
        &mut self,
        setting: &SinkSetting,
        count: usize,
        counters: &Arc<SinkCounters>,
        tables: &mut Tables,
        (budget, disk_memory): (&Budget, u64),
        notices: &Arc<Notices>,
    ) -> Result<Vec<(SinkRef, Option<BackgroundWriter>)>, SinkError> {
        let mut backlog = None;
        let mut stdout = || {
            let writer = BackgroundWriter::stdout(counters, setting.on_full == OnFull::Block);
            backlog = writer.as_background().cloned();
            writer
        };
        let sink: Box<dyn Sink> = match &setting.target {
            Target::Disk { dir, spans } => {
                let options = DiskOptions {
                    max_bytes: setting.max_bytes,
                    rotate_bytes: setting.rotate_bytes,
                    rotate_every: setting.rotate_every,
                    sync: setting.sync,
                    spans: *spans,
                    memory: Some(disk_memory),
                    ..DiskOptions::new(dir)
                };
                let mut disks = DiskSink::open_many(options, count)?;
                if *spans != SpansWhen::No {
                    tables.make_for(&mut disks);
                }
                self.disks.extend(disks.first().map(|disk| (setting.target.to_string(), disk.counters())));
                return Ok(disks.into_iter().map(|disk| (SinkRef::Own(Box::new(disk)), None)).collect());
            }
            Target::Nats(address) => {
                let (access, keeping) = &setting.nats;
                let sinks = NatsSink::open_many(address, access, *keeping, count)?;
                return Ok(sinks.into_iter().map(|sink| (SinkRef::Own(Box::new(sink)), None)).collect());
            }
            Target::StdoutEvents => Box::new(LineSink::events(stdout())),
            Target::StdoutSpans => Box::new(LineSink::spans(stdout()).within(budget)),
            Target::StdoutHeph => Box::new(HephSink::new(stdout())),
            Target::Perfetto(file) => Box::new(PerfettoSink::create(file)?.within(budget)),
            Target::Chrome(file) => Box::new(ChromeSink::create(file)?.within(budget)),
            Target::Otlp(endpoint) => {
                let (name, sent) = (setting.target.to_string(), Arc::new(OtlpCounters::default()));
                let exporter = Exporter::new(&name, endpoint, &sent, notices)?;
                let writer = BackgroundWriter::new(exporter, counters, setting.on_full == OnFull::Block);
                backlog = Some(writer.clone());
                let (out, says) = (otlp::Counted(writer, Arc::clone(&sent)), Arc::clone(notices));
                self.otlps.push((name, sent));
                Box::new(
                    OtlpSink::new(out, otlp::options(setting.otlp_min)?, move |line| says.warn(line)).within(budget),
                )
            }
            Target::Heph { file, compat: false } => Box::new(HephSink::create(file)?),
            Target::Heph { file, compat: true } => Box::new(HephCompatSink::open(file)?.within(budget)),
        };
        let shared = Arc::new(Mutex::new(sink));
        self.shared.push(Arc::clone(&shared));
        self.backlogs.extend(backlog.clone());
        Ok((0..count).map(|_| (SinkRef::Shared(Arc::clone(&shared)), backlog.clone())).collect())
    }

    /// Gives an output to the recorder of its session. Never waits.
    pub(crate) fn push(&mut self, output: Output) {
        let session = session_of(&output);
        // Names end in a number that counts sessions.
        let number = session.name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0_usize);
        let at = number % self.queues.len().max(1);
        if let Some(queue) = self.queues.get_mut(at) {
            queue.push(output);
        }
    }

    /// How many more bytes can wait: as many as in the fullest queue.
    pub(crate) fn free_bytes(&mut self) -> u64 {
        self.queues.iter_mut().map(Queue::free_bytes).min().unwrap_or(0)
    }

    /// Ends all recorders and closes all sinks. Blocks until they have written everything. Returns whether all could.
    /// What a full disk does not take then is left to the agents, where they keep it.
    pub(crate) fn close(mut self, agents_keep: bool) -> bool {
        self.closing.agents_keep.store(agents_keep, Relaxed);
        self.closing.now.store(true, Relaxed);
        for queue in &mut self.queues {
            queue.push_all();
        }
        // All are told before any is waited for.
        self.queues.clear();
        let mut closed = true;
        for thread in std::mem::take(&mut self.threads) {
            closed &= thread.join().unwrap_or(false);
        }
        let failed = |sink: &SharedSink| matches!(lock(sink).close(), Err(SinkError::Failed { .. }));
        let failed = self.shared.iter().filter(|sink| failed(sink)).count();
        let unwritten = self.backlogs.iter().filter(|backlog| !backlog.finish()).count();
        for (name, sent) in &self.otlps {
            let sink = self.sinks.iter().find(|(sink, _)| sink == name);
            sent.tell(name, sink.map_or(0, |(_, sink)| sink.lost_spans.load(Relaxed)));
        }
        closed && failed == 0 && unwritten == 0
    }
}

/// A sink of one recorder, or one that it shares with others.
enum SinkRef {
    Own(Box<dyn Sink>),
    Shared(SharedSink),
}

impl SinkRef {
    fn with<T>(&mut self, act: impl FnOnce(&mut dyn Sink) -> T) -> T {
        match self {
            Self::Own(sink) => act(&mut **sink),
            Self::Shared(sink) => act(&mut **lock(sink)),
        }
    }
}

fn lock(sink: &SharedSink) -> std::sync::MutexGuard<'_, Box<dyn Sink>> {
    // A sink never panics, by contract.
    sink.lock().unwrap_or_else(PoisonError::into_inner)
}

fn session_of(output: &Output) -> &Arc<Session> {
    match output {
        Output::Events(batch) => &batch.session,
        Output::Started(session)
        | Output::Resumed(session)
        | Output::Options(session, _)
        | Output::Ending(session, _)
        | Output::Gap(session, _)
        | Output::Ended(session, _) => session,
    }
}

/// What each disk has not kept of a session.
fn lost_of(disks: &[(String, Arc<DiskCounters>)], session: &Session) -> impl Iterator<Item = BTreeMap<Cause, u64>> {
    disks.iter().map(|(_, disk)| disk.lost_of(&session.name))
}

fn sum(lost: &BTreeMap<Cause, u64>) -> u64 {
    lost.values().sum()
}

/// The thread of one recorder.
struct Recorder {
    slots: Vec<Slot>,
    /// The span engines, where a sink wants spans.
    engines: Option<Engines>,
    /// The spans that one output completes.
    spans: Vec<Span>,
    /// What the sinks have been given since the last flush.
    recorded: Recorded,
    /// Where the sessions are.
    disks: Vec<(String, Arc<DiskCounters>)>,
    /// When the sessions started, by name.
    started: HashMap<String, Instant>,
    queued_bytes: Arc<AtomicU64>,
    notices: Arc<Notices>,
}

impl Recorder {
    /// Records until the receiver has ended. Returns whether all sinks of its own could be closed.
    fn run(mut self, outputs: &Receiver<Output>) -> bool {
        let mut flushed = Instant::now();
        loop {
            match outputs.recv_timeout(FLUSH_TIME.saturating_sub(flushed.elapsed())) {
                Ok(output) => self.record(output),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if flushed.elapsed() >= FLUSH_TIME {
                self.flush();
                flushed = Instant::now();
            }
        }
        self.flush();
        let unclosed = self.slots.into_iter().map(Slot::close).filter(|closed| !closed).count();
        unclosed == 0
    }

    fn flush(&mut self) {
        // What a sink that drops does not take is settled too.
        let flushed: Vec<_> =
            self.slots.iter_mut().map(|slot| (slot.is_durable, slot.flush() || slot.drops())).collect();
        let mut durable = flushed.iter().filter(|(is_durable, _)| *is_durable).peekable();
        // One that keeps it is enough. Where none is there that could, nobody waits for it.
        if durable.peek().is_none() || durable.any(|(_, flushed)| *flushed) {
            self.recorded.is_kept(|session| lost_of(&self.disks, session).min_by_key(sum).unwrap_or_default());
        }
    }

    fn record(&mut self, output: Output) {
        let mut ended = match &output {
            Output::Ended(session, summary) => Some(summary::ended(session, summary)),
            _ => None,
        };
        if let Some(engines) = &mut self.engines {
            match self.slots.iter().any(|slot| slot.wants_spans && !slot.is_closed()) {
                true => engines.take(&output, ended.as_mut(), &mut self.spans, &self.notices),
                false => engines.forget(),
            }
        }
        for slot in &mut self.slots {
            slot.offer(&output, ended.as_ref(), &self.spans);
        }
        self.spans.clear();
        let session = session_of(&output);
        let mut durable = self.slots.iter().filter(|slot| slot.is_durable).peekable();
        let has_left = durable.peek().is_some() && durable.all(|slot| slot.has_left(session));
        match has_left {
            true => self.recorded.forget(session),
            false => self.recorded.add(&output),
        }
        match &output {
            Output::Started(session) | Output::Resumed(session) => {
                let (now, seen) = (Instant::now(), Duration::from_nanos(session.seen_unix_ns));
                // One that goes on may have started long before this collector.
                let before = UNIX_EPOCH.elapsed().unwrap_or_default().saturating_sub(seen);
                let started = Some(before).filter(|_| !seen.is_zero()).and_then(|before| now.checked_sub(before));
                _ = self.started.insert(session.name.clone(), started.unwrap_or(now));
            }
            Output::Ended(session, summary) => {
                let lasted = self.started.remove(&session.name).map_or(Duration::ZERO, |started| started.elapsed());
                let _about = info_span!("session", session = %session.name, peer = %session.source).entered();
                let places = self.disks.iter().filter_map(|(_, disk)| disk.place(&session.name));
                // However many others there are, nobody should have to guess how a session ended that had any events.
                let is_told = summary.written > 0 || !summary.missing.is_empty();
                match has_left {
                    true if is_told => warn!("{}", summary::left(session, summary, places)),
                    true => self.notices.warn(summary::left(session, summary, places)),
                    false => {
                        let lost = lost_of(&self.disks, session).max_by_key(sum).unwrap_or_default();
                        let is_taken = self.slots.iter_mut().all(|slot| slot.takes_more());
                        let lost = if is_taken {
                            Ok(lost)
                        } else {
                            Err(summary::NotTaken::by(!self.disks.is_empty(), self.slots.iter().map(Slot::name)))
                        };
                        let line = summary::line(session, summary, lost, lasted, places);
                        match is_told {
                            true => info!("{line}"),
                            false => self.notices.say(line),
                        }
                    }
                }
            }
            Output::Options(..) | Output::Ending(..) | Output::Events(_) | Output::Gap(..) => {}
        }
        // Each number is read alone.
        self.queued_bytes.fetch_sub(queue::bytes(&output), Relaxed);
    }
}
