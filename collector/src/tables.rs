//! Tables of spans, made in the background of sessions that are finished.

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result};
use collector_core::spans::SpanConfig;
use sinks::{DiskSink, PendingTable, disk::lacks_table};
use tracing::{info, warn};

use crate::{
    notices::Notices,
    offline::table,
    quantity::{Size, counted},
};

/// How often the thread looks whether it is to stop.
const GLANCE: Duration = Duration::from_millis(50);

/// What receives comes before what makes tables: the nice value of the thread.
const NICE: i32 = 10;

/// What makes the tables of all disk sinks, one at a time, the oldest session first.
#[derive(Debug)]
pub(crate) struct Tables {
    pending: Sender<PendingTable>,
    receiver: Receiver<PendingTable>,
    earlier: VecDeque<PendingTable>,
    pub(crate) progress: Arc<Progress>,
}

/// How far the table is that is being made. Each number is read alone, so their order does not matter.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The name of the session, and how many events it has.
    session: Mutex<Option<(String, u64)>>,
    /// How many of them are done.
    done: AtomicU64,
    stop: AtomicBool,
}

/// The program ends before the table is made.
#[derive(Debug)]
struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

impl Progress {
    /// Work on a session with this many events begins.
    pub(crate) fn begin(&self, session: String, events: u64) {
        self.done.store(0, Relaxed);
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some((session, events));
    }

    /// So many events are done. Fails if the work is to stop.
    pub(crate) fn reach(&self, events: u64) -> Result<()> {
        self.done.store(events, Relaxed);
        if self.stop.load(Relaxed) { Err(Interrupted.into()) } else { Ok(()) }
    }

    /// Stops the work. What is not made is left to the next collector.
    pub(crate) fn interrupt(&self) {
        self.stop.store(true, Relaxed);
    }

    fn end(&self) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What people are told, while there is something to tell.
    pub(crate) fn line(&self) -> Option<String> {
        let name = self.session.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.0.clone();
        Some(format!("making spans of {name}: {} %", self.percent()?))
    }

    /// How many hundredths are done, while something is being done.
    pub(crate) fn percent(&self) -> Option<u64> {
        let events = self.session.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.1;
        Some(self.done.load(Relaxed).saturating_mul(100).checked_div(events).unwrap_or(0).min(99))
    }
}

impl Tables {
    pub(crate) fn new() -> Self {
        let (pending, receiver) = mpsc::channel();
        Self { pending, receiver, earlier: VecDeque::new(), progress: Arc::default() }
    }

    /// Makes the tables of what sinks on one directory finish, and those that an earlier collector did not make.
    pub(crate) fn make_for(&mut self, sinks: &mut [DiskSink]) {
        self.earlier.extend(sinks.first().map(DiskSink::earlier_tables).unwrap_or_default());
        sinks.iter_mut().for_each(|sink| sink.report_pending_tables(self.pending.clone()));
    }

    /// Starts to work, until all sinks are closed.
    pub(crate) fn start(self, config: SpanConfig, notices: Arc<Notices>) -> Result<Making> {
        let Self { receiver, earlier: queue, progress, .. } = self;
        let worker = Worker { receiver, config, notices, progress: progress.clone(), queue };
        let thread = thread::Builder::new().name("tables".into()).spawn(move || worker.run());
        let thread = thread.context("cannot start a thread for tables of spans")?;
        Ok(Making { progress, thread })
    }
}

/// The work on tables.
#[derive(Debug)]
pub(crate) struct Making {
    pub(crate) progress: Arc<Progress>,
    thread: JoinHandle<()>,
}

impl Making {
    /// Blocks until all sinks are closed and all tables are made, or until the work is interrupted. Says how far it is.
    pub(crate) fn finish(self, say: impl Fn(String)) {
        while !self.thread.is_finished() {
            thread::sleep(GLANCE);
            say(self.progress.line().unwrap_or_default());
        }
    }
}

struct Worker {
    receiver: Receiver<PendingTable>,
    config: SpanConfig,
    notices: Arc<Notices>,
    progress: Arc<Progress>,
    queue: VecDeque<PendingTable>,
}

impl Worker {
    fn run(mut self) {
        // Where it cannot be lowered, the table is made all the same.
        _ = rustix::process::setpriority_process(None, NICE);
        if !self.queue.is_empty() {
            let count = counted(self.queue.len() as u64, "session");
            info!("spans of {count} are not made yet, and are now");
        }
        let mut left = Vec::new();
        while let Some(table) = self.next() {
            if self.progress.stop.load(Relaxed) {
                left.push(table.dir().to_owned());
                continue;
            }
            match table::make(&table, self.config.clone(), &self.progress) {
                Err(error) if error.is::<Interrupted>() => left.push(table.dir().to_owned()),
                // Another thread of this collector may have removed the part, to keep within `--max-bytes`, or it goes on.
                Err(_) if !lacks_table(table.dir()) => {}
                made => self.report(&table, made),
            }
            self.progress.end();
        }
        self.say_left(&left);
    }

    /// The session that comes next. None once all sinks are closed, or it is time to stop.
    fn next(&mut self) -> Option<PendingTable> {
        loop {
            // What an earlier collector has left comes first.
            if let Some(table) = self.queue.pop_front() {
                return Some(table);
            }
            if self.progress.stop.load(Relaxed) {
                return self.receiver.try_recv().ok();
            }
            match self.receiver.recv_timeout(GLANCE) {
                Ok(table) => return Some(table),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn report(&self, table: &PendingTable, made: Result<Option<table::Made>>) {
        let name = table.dir().file_name().unwrap_or_default().to_string_lossy();
        match made {
            Ok(None) => {}
            Ok(Some(table::Made { spans, bytes, took })) => {
                let (spans, size) = (counted(spans, "span"), Size(bytes));
                self.notices.say(format!("spans of {name}: {spans}, {size}, made in {:.1} s", took.as_secs_f64()));
            }
            Err(error) => {
                warn!(
                    "cannot make spans of {name}: {error:#}; its events are whole, and the next collector tries again"
                );
            }
        }
    }

    fn say_left(&self, left: &[PathBuf]) {
        let Some(first) = left.first() else { return };
        let (count, dir) = (counted(left.len() as u64, "session"), first.parent().unwrap_or(first).display());
        warn!("spans of {count} are not made: the next collector on {dir} makes them");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use codec::atf::EndEntry;
    use sinks::{Catalog, CatalogLimits, DiskOptions, Ended, Session, Sink};

    use super::*;

    #[test]
    fn progress_is_said_while_there_is_any() {
        let progress = Progress::default();
        assert_eq!(progress.line(), None);
        progress.begin("s".into(), 200);
        progress.reach(87).expect("it goes on");
        assert_eq!(progress.line().as_deref(), Some("making spans of s: 43 %"));
        progress.interrupt();
        assert!(progress.reach(100).is_err_and(|error| error.is::<Interrupted>()));
        progress.end();
        assert_eq!(progress.line(), None);
    }

    #[test]
    fn what_is_interrupted_is_made_by_the_next_collector() {
        let dir = std::env::temp_dir().join(format!("spoor-tables-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let table = |name: &str| dir.join(name).join("spans.parquet");
        let collect = |name: &str, interrupted: bool| {
            let mut tables = Tables::new();
            let mut sink = DiskSink::open(DiskOptions::new(&dir)).expect("it opens");
            tables.make_for(std::slice::from_mut(&mut sink));
            if interrupted {
                tables.progress.interrupt();
            }
            let making = tables.start(SpanConfig::default(), Arc::new(Notices::new())).expect("it starts");
            let catalog = Catalog::new(CatalogLimits::default(), Arc::default());
            let session = Arc::new(Session::new(name.into(), None, String::new(), 0, catalog));
            let end = EndEntry { how: "exited".into(), ..EndEntry::default() };
            sink.start(&session).expect("it starts");
            sink.end(&session, &Ended { end, limits: Vec::new() }).expect("it ends");
            drop(sink);
            making.finish(|_| {});
        };
        let names = ["20260101-000000-1", "20260101-000000-2"];
        collect(names[0], true);
        assert!(!table(names[0]).exists());
        collect(names[1], false);
        assert!(table(names[0]).exists() && table(names[1]).exists());
        fs::remove_dir_all(&dir).expect("it is there");
    }
}
