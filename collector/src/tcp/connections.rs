//! The connections that are open, and how many there may be.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::Connection;
use crate::receiver::Receiver;

/// After how much time without a whole packet a connection makes room for another when all are taken.
const EVICT_TIME: Duration = Duration::from_secs(2);

/// The unit that room is counted in.
const UNIT: usize = 1024;

/// All open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    limit: usize,
    patience: Duration,
    /// Room for buffers beyond what each connection has anyway.
    room: Arc<Semaphore>,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    by_number: HashMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    progressed: Instant,
    leave: Arc<Notify>,
    leaving: bool,
    /// Whether what it has received is being worked on: it is not idle because a sink is waited for.
    busy: bool,
}

impl Connections {
    pub(crate) fn new(limit: usize, patience: Duration, room_bytes: u64) -> Self {
        let units = usize::try_from(room_bytes / UNIT as u64).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Self { limit, patience, room: Arc::new(Semaphore::new(units)), open: Mutex::default() }
    }

    /// How long a connection may go without a whole packet.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Room for so many more bytes, if there is any.
    pub(crate) fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).ok()?;
        self.room.clone().try_acquire_many_owned(units).ok()
    }

    /// Serves a connection, or refuses it where there are too many.
    pub(crate) fn start<F: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        receiver: &Arc<Receiver>,
        serve: impl FnOnce(Connection) -> F,
    ) {
        let mut open = self.open();
        if open.by_number.len() >= self.limit {
            receiver.ledger.connections_refused.fetch_add(1, Relaxed);
            receiver.notices.warn(format!("too many connections; see --max-connections, which is {}", self.limit));
            let staying = open.by_number.values_mut().filter(|entry| !entry.leaving && !entry.busy);
            match staying.min_by_key(|entry| entry.progressed) {
                Some(idlest) if idlest.progressed.elapsed() >= EVICT_TIME => {
                    idlest.leaving = true;
                    idlest.leave.notify_one();
                }
                _ => return,
            }
            // Those that leave need a moment. Twice as many as allowed are too many even for that.
            if open.by_number.len() >= 2 * self.limit {
                return;
            }
        }
        let number = open.next;
        open.next += 1;
        let leave = Arc::new(Notify::new());
        let entry = Entry { progressed: Instant::now(), leave: leave.clone(), leaving: false, busy: false };
        open.by_number.insert(number, entry);
        receiver.ledger.connections_open.fetch_add(1, Relaxed);
        let connection = Connection { receiver: receiver.clone(), connections: self.clone(), number, leave };
        // It takes itself out of the list when it ends, so that has to be free by then.
        drop(open);
        tokio::spawn(serve(connection));
    }

    /// Ends all connections.
    pub(crate) fn end_all(&self) {
        self.open().by_number.values().for_each(|entry| entry.leave.notify_one());
    }

    /// What a connection has received is worked on from now on.
    pub(super) fn begin_work(&self, number: u64) {
        if let Some(entry) = self.open().by_number.get_mut(&number) {
            entry.busy = true;
        }
    }

    /// It has been worked on, and there was a whole packet in it or not.
    pub(super) fn end_work(&self, number: u64, progressed: bool) {
        if let Some(entry) = self.open().by_number.get_mut(&number) {
            entry.busy = false;
            if progressed {
                entry.progressed = Instant::now();
            }
        }
    }

    /// A connection has ended.
    pub(super) fn ended(&self, number: u64) {
        self.open().by_number.remove(&number);
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
