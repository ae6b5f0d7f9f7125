//! What has been counted, where everybody can read it.

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use collector_core::{Collector, Counts};
use sinks::DiskCounters;

use crate::{
    archive::ArchiveCounters,
    door::Refusals,
    otlp::OtlpCounters,
    recorder::{Recorders, SinkCounters},
    summary::NotTaken,
};

/// The counts of all parts. Each number is read alone, so the order of reads and writes does not matter.
#[derive(Debug)]
pub(crate) struct Ledger {
    core: Mutex<Counts>,
    /// The sinks, by name.
    pub(crate) sinks: Vec<(String, Arc<SinkCounters>)>,
    /// The disk sinks, by name.
    pub(crate) disks: Vec<(String, Arc<DiskCounters>)>,
    /// The sinks for OpenTelemetry, by name.
    pub(crate) otlps: Vec<(String, Arc<OtlpCounters>)>,
    /// The archive, if there is one.
    pub(crate) archive: OnceLock<Arc<ArchiveCounters>>,
    /// Bytes that arrived over UDP.
    pub(crate) udp_bytes: AtomicU64,
    /// Bytes that arrived over TCP, or in a file.
    pub(crate) tcp_bytes: AtomicU64,
    /// Bytes that arrived over TLS, decrypted.
    pub(crate) tls_bytes: AtomicU64,
    /// Bytes that arrived over QUIC, decrypted.
    pub(crate) quic_bytes: AtomicU64,
    /// Bytes that other collectors have received and handed on.
    pub(crate) nats_bytes: AtomicU64,
    /// Senders that did not get in.
    pub(crate) refusals: Refusals,
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
    /// Bytes that wait for the recorders.
    queued_bytes: Vec<Arc<AtomicU64>>,
}

impl Ledger {
    pub(super) fn new(recorders: &Recorders, core: &Collector) -> Self {
        Self {
            core: Mutex::default(),
            sinks: recorders.sinks.clone(),
            disks: recorders.disks.clone(),
            otlps: recorders.otlps.clone(),
            archive: OnceLock::new(),
            udp_bytes: AtomicU64::new(0),
            tcp_bytes: AtomicU64::new(0),
            tls_bytes: AtomicU64::new(0),
            quic_bytes: AtomicU64::new(0),
            nats_bytes: AtomicU64::new(0),
            refusals: Refusals::default(),
            receive_errors: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            connections_open: AtomicU64::new(0),
            connections_refused: AtomicU64::new(0),
            catalog_bytes: core.catalog_bytes(),
            queued_bytes: recorders.queued_bytes.clone(),
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
        [&self.udp_bytes, &self.tcp_bytes, &self.tls_bytes, &self.quic_bytes, &self.nats_bytes]
            .map(|bytes| bytes.load(Relaxed))
            .iter()
            .sum()
    }

    /// A number that changes whenever a sink takes something.
    pub(crate) fn taken(&self) -> u64 {
        let sinks = self.sinks.iter().map(|(_, sink)| sink.taken.load(Relaxed));
        let disks = self.disks.iter().map(|(_, disk)| disk.bytes_written.get());
        sinks.chain(disks).fold(0, u64::wrapping_add)
    }

    /// Bytes that wait for a sink: for the recorders, and behind it.
    pub(crate) fn waiting_bytes(&self, counters: &SinkCounters) -> u64 {
        let queued: u64 = self.queued_bytes.iter().map(|bytes| bytes.load(Relaxed)).sum();
        queued.saturating_add(counters.backlog_bytes.load(Relaxed))
    }

    /// Events that a sink does not have. A disk knows exactly what of a batch it could not keep.
    pub(crate) fn lost_by(&self, sink: &str, counters: &SinkCounters) -> u64 {
        let disk = self.disks.iter().find(|(name, _)| name == sink).map(|(_, disk)| disk.lost_events.get());
        let not_kept = disk.unwrap_or_else(|| counters.not_kept.load(Relaxed));
        counters.not_given.load(Relaxed).saturating_add(not_kept)
    }

    /// Events that sinks do not have.
    pub(crate) fn lost_by_sinks(&self) -> u64 {
        self.sinks.iter().fold(0, |sum, (sink, counters)| sum.saturating_add(self.lost_by(sink, counters)))
    }

    /// Spans that receivers of OpenTelemetry have refused.
    pub(crate) fn refused_spans(&self) -> u64 {
        self.otlps.iter().map(|(_, sent)| sent.refused.load(Relaxed)).sum()
    }

    /// What it is that has not taken everything, where something has not.
    pub(crate) fn not_taken(&self) -> NotTaken {
        NotTaken::by(!self.disks.is_empty(), self.sinks.iter().map(|(name, _)| name.as_str()))
    }

    /// Events that could not be written to disk: to the one that lacks most, where there are several.
    pub(crate) fn lost_by_disks(&self) -> u64 {
        self.disks.iter().map(|(_, disk)| disk.lost_events.get()).max().unwrap_or(0)
    }
}
