//! One sink, its thread and its queue.

#[cfg(test)]
mod tests;

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use codec::span::Span;
use collector_core::spans::SpanConfig;
use sinks::{Sink, SinkError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Ending, Item, owed::Owed, spanner::Spanner};
use crate::{notices::Notices, sink_spec::OnFull};

/// How long a sink may keep something before it is flushed. The promise to users is 200 ms.
const FLUSH_TIME: Duration = Duration::from_millis(20);

/// The unit that room in a queue is counted in.
const UNIT: usize = 1024;

/// The way to one sink.
#[derive(Debug)]
pub(super) struct Lane {
    name: String,
    on_full: OnFull,
    queue: Sender<Queued>,
    room: Arc<Semaphore>,
    capacity: u32,
    owed: Owed,
    full: Arc<str>,
    /// Sessions that the sink has not been told of yet, since there was no room when they started.
    untold: HashSet<String>,
    /// Whether it is full, and that has been said.
    is_full: bool,
    /// Whether it was given up at the end.
    given_up: bool,
    ending: Arc<Ending>,
    notices: Arc<Notices>,
    counters: Arc<LaneCounters>,
    thread: JoinHandle<bool>,
}

/// What is in the queue, with the room that it takes there.
type Queued = (Item, Option<OwnedSemaphorePermit>);

/// The same with the spans that it completes.
type Spanned = (Item, Vec<Span>, Option<OwnedSemaphorePermit>);

/// How many items may be between the thread that makes spans and the sink's.
const SPANNED: usize = 16;

/// What is counted of a sink. Each number is read alone, so their order does not matter.
#[derive(Debug, Default)]
pub(crate) struct LaneCounters {
    /// Bytes that wait.
    pub(crate) queued_bytes: AtomicU64,
    /// Calls that have returned.
    pub(crate) taken: AtomicU64,
    /// Events that it took.
    pub(crate) events: AtomicU64,
    /// Events that it was not given.
    pub(crate) not_given: AtomicU64,
    /// Events that it was given and answered that it could not keep.
    pub(crate) not_kept: AtomicU64,
    /// Packets of options that it was not given.
    pub(crate) lost_option_bytes: AtomicU64,
    /// Spans that it was given, notices included.
    pub(crate) spans: AtomicU64,
    /// Calls that failed.
    pub(crate) errors: AtomicU64,
    /// Whether nobody reads it any more.
    pub(crate) closed: AtomicBool,
}

impl Lane {
    pub(super) fn start(
        name: String,
        sink: Box<dyn Sink>,
        on_full: OnFull,
        queue_bytes: u64,
        spans: Option<SpanConfig>,
        notices: Arc<Notices>,
        ending: Arc<Ending>,
    ) -> Result<Self> {
        let capacity = u32::try_from(queue_bytes / UNIT as u64).unwrap_or(u32::MAX).clamp(64, 1 << 28);
        let (queue, items) = mpsc::channel();
        let counters = Arc::new(LaneCounters::default());
        let (said, told) = (notices.clone(), counters.clone());
        let worker = Worker { name: name.clone(), sink, counters: told, notices: said, failing: false };
        let items = match spans {
            Some(config) => make_spans(&name, items, config, notices.clone(), counters.clone())?,
            None => Incoming::Items(items),
        };
        let thread = thread::Builder::new().name("sink".into()).spawn(move || worker.run(&items));
        Ok(Self {
            name,
            on_full,
            queue,
            room: Arc::new(Semaphore::new(capacity as usize)),
            capacity,
            owed: Owed::default(),
            full: "collector:sink-full".into(),
            untold: HashSet::new(),
            is_full: false,
            given_up: false,
            ending,
            notices,
            counters,
            thread: thread.context("cannot start a thread for a sink")?,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn counters(&self) -> Arc<LaneCounters> {
        self.counters.clone()
    }

    /// Puts an item into the queue, or enters it as lost.
    pub(super) async fn give(&mut self, item: Item) {
        if self.counters.closed.load(Relaxed) {
            self.counters.not_given.fetch_add(item.events(), Relaxed);
            return;
        }
        // What has to be told before it has to fit too.
        let owed = self.owed.count(item.session()) * size_of::<Queued>();
        let untold = self.untold.contains(&item.session().name);
        let bytes = bytes(&item) + owed + if untold { UNIT } else { 0 };
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).clamp(1, self.capacity);
        let room = self.room_for(units).await;
        match (&room, &item) {
            (Some(_), _) => {}
            // A sink that knows of a session must know of its end.
            (None, Item::Ended(..)) if !untold => {}
            (None, _) => return self.leave_out(&item),
        }
        if self.untold.remove(&item.session().name) {
            self.send(Item::Started(item.session().clone()), None);
        }
        // Not for every bit of room: one that lags would be reported all the time.
        if self.is_full && self.room.available_permits() >= self.capacity as usize / 2 {
            self.is_full = false;
            self.notices.say(format!("sink {}: has room again", self.name));
        }
        for gap in self.owed.take(item.session()) {
            self.send(Item::Gap(item.session().clone(), gap), None);
        }
        self.send(item, room);
    }

    /// Room in the queue, as soon as there is some or at once, or not at all.
    async fn room_for(&mut self, units: u32) -> Option<OwnedSemaphorePermit> {
        let room = self.room.clone();
        if let Ok(room) = room.clone().try_acquire_many_owned(units) {
            return Some(room);
        }
        if self.on_full == OnFull::Drop || self.given_up {
            return None;
        }
        let ending = self.ending.clone();
        tokio::select! {
            room = room.acquire_many_owned(units) => room.ok(),
            () = ending.is_too_late() => {
                self.given_up = true;
                None
            }
        }
    }

    fn leave_out(&mut self, item: &Item) {
        if !self.is_full {
            self.is_full = true;
            self.notices.say(format!("sink {}: is full; what it does not get is counted", self.name));
        }
        let events = match item {
            Item::Started(session) => {
                self.untold.insert(session.name.clone());
                0
            }
            // It came and went, and the sink has never heard of it.
            Item::Ended(session, _) => {
                self.untold.remove(&session.name);
                self.owed.take(session).for_each(drop);
                0
            }
            item => self.owed.enter(item, &self.full),
        };
        self.counters.not_given.fetch_add(events, Relaxed);
        if let Item::Options(_, packets) = item {
            self.counters.lost_option_bytes.fetch_add(packets.len() as u64, Relaxed);
        }
    }

    fn send(&self, item: Item, room: Option<OwnedSemaphorePermit>) {
        self.counters.queued_bytes.fetch_add(bytes(&item) as u64, Relaxed);
        // The thread ends only when this sender is gone, or by a defect; then nobody has the events.
        if let Err(unsent) = self.queue.send((item, room)) {
            self.counters.not_given.fetch_add(unsent.0.0.events(), Relaxed);
            self.counters.errors.fetch_add(1, Relaxed);
        }
    }

    /// Says that nothing more will come. The thread ends when the sink has everything and has been closed, and tells
    /// whether it could be.
    pub(super) fn end(self) -> JoinHandle<bool> {
        self.thread
    }
}

/// The memory that an item keeps while it waits.
fn bytes(item: &Item) -> usize {
    match item {
        Item::Options(_, packets) => packets.len(),
        Item::Events(batch) => batch.bytes.len() + batch.runs.len() * size_of::<sinks::Run>(),
        Item::Gap(..) => size_of::<Queued>(),
        Item::Started(_) | Item::Ended(..) => UNIT,
    }
}

/// What a sink's thread gets.
enum Incoming {
    Items(Receiver<Queued>),
    Spanned(Receiver<Spanned>),
}

impl Incoming {
    fn next(&self, patience: Duration) -> Result<Spanned, RecvTimeoutError> {
        match self {
            Self::Items(items) => items.recv_timeout(patience).map(|(item, room)| (item, Vec::new(), room)),
            Self::Spanned(items) => items.recv_timeout(patience),
        }
    }
}

/// Starts a thread that makes spans of the items on their way to the sink, beside the sink's own: both are work.
fn make_spans(
    name: &str,
    items: Receiver<Queued>,
    config: SpanConfig,
    notices: Arc<Notices>,
    counters: Arc<LaneCounters>,
) -> Result<Incoming> {
    let (onward, spanned) = mpsc::sync_channel(SPANNED);
    let mut spanner = Spanner::new(config);
    let sink = format!("sink {name}: ");
    let say = move |line: String| notices.say(format!("{sink}{line}"));
    let work = move || {
        while let Ok((mut item, room)) = items.recv() {
            let spans = if counters.closed.load(Relaxed) {
                spanner.forget();
                Vec::new()
            } else {
                spanner.take(&mut item, &say)
            };
            // The sink's thread ends only after this one, or by a defect.
            if onward.send((item, spans, room)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("spans".into()).spawn(work).context("cannot start a thread for spans")?;
    Ok(Incoming::Spanned(spanned))
}

/// The thread of a sink.
struct Worker {
    name: String,
    sink: Box<dyn Sink>,
    counters: Arc<LaneCounters>,
    notices: Arc<Notices>,
    failing: bool,
}

impl Worker {
    fn run(mut self, items: &Incoming) -> bool {
        let mut flushed = Instant::now();
        let mut dirty = false;
        loop {
            match items.next(FLUSH_TIME.saturating_sub(flushed.elapsed())) {
                Ok((item, spans, room)) => {
                    // What a session's end completes belongs before it, and what events complete behind them.
                    let ends = matches!(item, Item::Ended(..));
                    if ends {
                        self.offer_spans(&item, &spans);
                    }
                    self.offer(&item);
                    if !ends {
                        self.offer_spans(&item, &spans);
                    }
                    self.counters.taken.fetch_add(1, Relaxed);
                    self.counters.queued_bytes.fetch_sub(bytes(&item) as u64, Relaxed);
                    drop(room);
                    dirty = true;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if flushed.elapsed() >= FLUSH_TIME {
                // A sink that fails has something to try again.
                if (dirty || self.failing) && !self.is_closed() {
                    let result = self.sink.flush();
                    if self.judge(result) && self.failing {
                        self.failing = false;
                        self.notices.say(format!("sink {}: works again", self.name));
                    }
                }
                dirty = false;
                flushed = Instant::now();
            }
        }
        let result = self.sink.close();
        self.judge(result) || self.is_closed()
    }

    fn is_closed(&self) -> bool {
        self.counters.closed.load(Relaxed)
    }

    fn offer(&mut self, item: &Item) {
        let events = item.events();
        let taken = !self.is_closed() && {
            let result = match item {
                Item::Started(session) => self.sink.start(session),
                Item::Options(session, packets) => self.sink.options(session, packets),
                Item::Events(batch) => self.sink.events(batch),
                Item::Gap(session, gap) => self.sink.gap(session, gap),
                Item::Ended(session, ended) => self.sink.end(session, ended),
            };
            self.judge(result)
        };
        let counter = if taken { &self.counters.events } else { &self.counters.not_kept };
        counter.fetch_add(events, Relaxed);
    }

    fn offer_spans(&mut self, item: &Item, spans: &[Span]) {
        if !spans.is_empty() && !self.is_closed() {
            let result = self.sink.spans(item.session(), spans);
            if self.judge(result) {
                self.counters.spans.fetch_add(spans.len() as u64, Relaxed);
            }
        }
    }

    /// Counts what went wrong, and tells it once until it goes right again. Returns whether it went right.
    fn judge(&mut self, result: Result<(), SinkError>) -> bool {
        match result {
            Ok(()) => return true,
            Err(SinkError::Closed) if self.counters.closed.swap(true, Relaxed) => {}
            Err(SinkError::Closed) => {
                self.notices.say(format!("sink {}: nobody reads it any more; the others go on", self.name));
            }
            Err(error) => {
                self.counters.errors.fetch_add(1, Relaxed);
                if !self.failing {
                    self.notices.say(format!("sink {}: {error}; what it cannot keep is counted", self.name));
                }
                self.failing = true;
            }
        }
        false
    }
}
