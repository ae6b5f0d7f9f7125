//! One sink, its thread and its queue.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use sinks::{Sink, SinkError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Item, owed::Owed};
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
    counters: Arc<LaneCounters>,
    thread: JoinHandle<bool>,
}

/// What is in the queue, with the room that it takes there.
type Queued = (Item, Option<OwnedSemaphorePermit>);

/// What is counted of a sink. Each number is read alone, so their order does not matter.
#[derive(Debug, Default)]
pub(crate) struct LaneCounters {
    /// Bytes that wait.
    pub(crate) queued_bytes: AtomicU64,
    /// Calls that have returned.
    pub(crate) taken: AtomicU64,
    /// Events that it took.
    pub(crate) events: AtomicU64,
    /// Events that it was not given or could not keep.
    pub(crate) lost_events: AtomicU64,
    /// Packets of options that it was not given.
    pub(crate) lost_option_bytes: AtomicU64,
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
        notices: Arc<Notices>,
    ) -> Result<Self> {
        let capacity = u32::try_from(queue_bytes / UNIT as u64).unwrap_or(u32::MAX).clamp(64, 1 << 28);
        let (queue, items) = mpsc::channel();
        let counters = Arc::new(LaneCounters::default());
        let worker = Worker { name: name.clone(), sink, counters: counters.clone(), notices, failing: false };
        let thread = thread::Builder::new().name("sink".into()).spawn(move || worker.run(&items));
        Ok(Self {
            name,
            on_full,
            queue,
            room: Arc::new(Semaphore::new(capacity as usize)),
            capacity,
            owed: Owed::default(),
            full: "collector:sink-full".into(),
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
            if let Item::Events(batch) = &item {
                self.counters.lost_events.fetch_add(batch.events(), Relaxed);
            }
            return;
        }
        let bytes = bytes(&item);
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).clamp(1, self.capacity);
        let room = match (&item, self.on_full) {
            // Sessions are few, and a sink must know of every one.
            (Item::Started(_) | Item::Ended(..), _) => None,
            (_, OnFull::Block) => self.room.clone().acquire_many_owned(units).await.ok(),
            (_, OnFull::Drop) => match self.room.clone().try_acquire_many_owned(units) {
                Ok(room) => Some(room),
                Err(_) => return self.leave_out(&item),
            },
        };
        for gap in self.owed.take(item.session()) {
            self.send(Item::Gap(item.session().clone(), gap), None);
        }
        self.counters.queued_bytes.fetch_add(bytes as u64, Relaxed);
        self.send(item, room);
    }

    fn leave_out(&mut self, item: &Item) {
        let events = self.owed.enter(item, &self.full);
        self.counters.lost_events.fetch_add(events, Relaxed);
        if let Item::Options(_, packets) = item {
            self.counters.lost_option_bytes.fetch_add(packets.len() as u64, Relaxed);
        }
    }

    fn send(&self, item: Item, room: Option<OwnedSemaphorePermit>) {
        // The thread ends only when this sender is gone.
        _ = self.queue.send((item, room));
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
        Item::Started(_) | Item::Gap(..) | Item::Ended(..) => 0,
    }
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
    fn run(mut self, items: &Receiver<Queued>) -> bool {
        let mut flushed = Instant::now();
        let mut dirty = false;
        loop {
            match items.recv_timeout(FLUSH_TIME.saturating_sub(flushed.elapsed())) {
                Ok((item, room)) => {
                    self.offer(&item);
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
        let events = match item {
            Item::Events(batch) => batch.events(),
            _ => 0,
        };
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
        let counter = if taken { &self.counters.events } else { &self.counters.lost_events };
        counter.fetch_add(events, Relaxed);
    }

    /// Counts what went wrong, and tells it once until it goes right again. Returns whether it went right.
    fn judge(&mut self, result: Result<(), SinkError>) -> bool {
        match result {
            Ok(()) => return true,
            Err(SinkError::Closed) => {
                self.counters.closed.store(true, Relaxed);
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
