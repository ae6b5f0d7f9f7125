//! What has been counted, where everybody can read it.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use collector_core::Counts;
use sinks::{Applied, DiskCounters};

use crate::tee::{LaneCounters, Tee};

/// The counts of all parts. Each number is read alone, so the order of reads and writes does not matter.
#[derive(Debug)]
pub(crate) struct Ledger {
    core: Mutex<Counts>,
    /// The sinks, by name.
    pub(crate) lanes: Vec<(String, Arc<LaneCounters>)>,
    /// The disk sinks, by name.
    pub(crate) disks: Vec<(String, Arc<DiskCounters>)>,
    /// Bytes that arrived over UDP.
    pub(crate) udp_bytes: AtomicU64,
    /// Bytes that arrived over TCP, or in a file.
    pub(crate) tcp_bytes: AtomicU64,
    /// Times that receiving or accepting failed.
    pub(crate) receive_errors: AtomicU64,
    /// Connections that have been accepted.
    pub(crate) connections: AtomicU64,
    /// Connections that are open.
    pub(crate) connections_open: AtomicU64,
    /// Connections refused or ended because there were too many, or because they sent nothing whole for too long.
    pub(crate) connections_refused: AtomicU64,
    /// Bytes that all catalogs take.
    pub(crate) catalog_bytes: Arc<AtomicU64>,
    /// What catalogs had no room for.
    pub(crate) refused: Refused,
}

/// What catalogs had no room for.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    pub(crate) functions: AtomicU64,
    pub(crate) modules: AtomicU64,
    pub(crate) threads: AtomicU64,
    pub(crate) others: AtomicU64,
    pub(crate) names_cut: AtomicU64,
}

impl Refused {
    pub(super) fn add(&self, applied: &Applied) {
        if applied.is_whole() {
            return;
        }
        self.functions.fetch_add(applied.functions, Relaxed);
        self.modules.fetch_add(applied.modules, Relaxed);
        self.threads.fetch_add(applied.threads, Relaxed);
        self.others.fetch_add(applied.others, Relaxed);
        self.names_cut.fetch_add(applied.names_cut, Relaxed);
    }
}

impl Ledger {
    pub(super) fn new(tee: &Tee) -> Self {
        Self {
            core: Mutex::default(),
            lanes: tee.counters(),
            disks: tee.disks().to_vec(),
            udp_bytes: AtomicU64::new(0),
            tcp_bytes: AtomicU64::new(0),
            receive_errors: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            connections_open: AtomicU64::new(0),
            connections_refused: AtomicU64::new(0),
            catalog_bytes: Arc::default(),
            refused: Refused::default(),
        }
    }

    /// Enters what the core has counted.
    pub(super) fn enter(&self, counts: &Counts) {
        self.core.lock().unwrap_or_else(PoisonError::into_inner).clone_from(counts);
    }

    /// What the core had counted when it last did something.
    pub(crate) fn core(&self) -> Counts {
        self.core.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bytes that arrived.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.udp_bytes.load(Relaxed) + self.tcp_bytes.load(Relaxed)
    }

    /// A number that changes whenever a sink takes something.
    pub(crate) fn taken(&self) -> u64 {
        let lanes = self.lanes.iter().map(|(_, lane)| lane.taken.load(Relaxed));
        let disks = self.disks.iter().map(|(_, disk)| disk.bytes_written());
        lanes.chain(disks).fold(0, u64::wrapping_add)
    }

    /// Events that a sink does not have. A disk knows exactly what of a batch it could not keep.
    pub(crate) fn lost_by(&self, sink: &str, lane: &LaneCounters) -> u64 {
        let disk = self.disks.iter().find(|(name, _)| name == sink).map(|(_, disk)| disk.lost_events());
        let not_kept = disk.unwrap_or_else(|| lane.not_kept.load(Relaxed));
        lane.not_given.load(Relaxed).saturating_add(not_kept)
    }

    /// Events that sinks do not have.
    pub(crate) fn lost_by_sinks(&self) -> u64 {
        self.lanes.iter().fold(0, |sum, (sink, lane)| sum.saturating_add(self.lost_by(sink, lane)))
    }

    /// Events that could not be written to disk.
    pub(crate) fn lost_by_disks(&self) -> u64 {
        self.disks.iter().fold(0, |sum, (_, disk)| sum.saturating_add(disk.lost_events()))
    }
}
