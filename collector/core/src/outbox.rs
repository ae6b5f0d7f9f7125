//! What a session has for the sinks, in order.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use bytes::{Bytes, BytesMut};
use codec::{Position, StreamId};

use crate::{Batch, Cause, Gap, Output, Run, Session, buffers::Buffers, stream::Events};

/// Collects what streams settle, and makes batches of it.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) session: Arc<Session>,
    batch_bytes: usize,
    options: BytesMut,
    buffers: Buffers,
    bytes: Vec<u8>,
    runs: Vec<Run>,
    /// Whether the last run ends with the last event of its last packet, so that another packet can follow.
    ends_whole: bool,
    ready: VecDeque<Output>,
    /// Events passed on.
    pub(crate) written: u64,
    /// Events missing, by cause.
    pub(crate) missing: BTreeMap<Cause, u64>,
}

impl Outbox {
    pub(crate) fn new(session: Arc<Session>, batch_bytes: usize, buffers: Buffers) -> Self {
        Self {
            session,
            batch_bytes,
            options: BytesMut::new(),
            buffers,
            bytes: Vec::new(),
            runs: Vec::new(),
            ends_whole: false,
            ready: VecDeque::new(),
            written: 0,
            missing: BTreeMap::new(),
        }
    }

    /// The events from `position` on are settled: here they are.
    #[inline]
    pub(crate) fn events(&mut self, stream: StreamId, position: Position, events: &Events<'_>) {
        let Events { packet, skip, count, .. } = *events;
        // A packet has at most 4 GiB less one byte, and a batch is sealed long before it could hold two of those.
        let bytes = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        match self.runs.last_mut() {
            Some(run)
                if self.ends_whole
                    && skip == 0
                    && run.stream == stream
                    && run.first.0 + u64::from(run.events) == position.0
                    && run.events.checked_add(count).is_some() =>
            {
                run.events += count;
                run.bytes += bytes;
            }
            _ => self.runs.push(Run { stream, first: position, events: count, bytes, skip }),
        }
        self.ends_whole = events.ends_whole();
        if self.bytes.capacity() == 0 {
            self.bytes = self.buffers.take();
        }
        self.bytes.extend_from_slice(packet);
        self.written += u64::from(count);
        if self.bytes.len() >= self.batch_bytes {
            self.seal();
        }
    }

    /// So many events are missing.
    pub(crate) fn miss(&mut self, cause: &Cause, count: u64) {
        let missing = self.missing.entry(cause.clone()).or_default();
        *missing = missing.saturating_add(count);
    }

    /// The events from `first` on are settled: they are not here.
    pub(crate) fn gap(&mut self, stream: StreamId, first: Position, count: u64, cause: Cause) {
        self.seal();
        let gap = Gap { stream, first, count, cause };
        self.ready.push_back(Output::Gap(Arc::clone(&self.session), gap));
    }

    /// An option packet arrived.
    pub(crate) fn option(&mut self, packet: &[u8]) {
        self.options.extend_from_slice(packet);
        if self.options.len() >= self.batch_bytes {
            self.seal();
        }
    }

    /// Something else is to be told.
    pub(crate) fn push(&mut self, output: Output) {
        self.seal();
        self.ready.push_back(output);
    }

    /// Makes what has been collected ready to be taken. Options go first: they may describe the events.
    pub(crate) fn seal(&mut self) {
        if !self.options.is_empty() {
            let packets = std::mem::take(&mut self.options).freeze();
            self.ready.push_back(Output::Options(Arc::clone(&self.session), packets));
        }
        if !self.runs.is_empty() {
            // A batch waits in queues: it should not take more memory than it has bytes.
            let bytes = if self.bytes.len() < self.bytes.capacity() / 2 {
                let bytes = Bytes::copy_from_slice(&self.bytes);
                self.bytes.clear();
                bytes
            } else {
                self.buffers.share(std::mem::take(&mut self.bytes))
            };
            let batch = Batch { session: Arc::clone(&self.session), bytes, runs: std::mem::take(&mut self.runs) };
            self.ready.push_back(Output::Events(Arc::new(batch)));
        }
    }

    /// Takes everything that is there.
    pub(crate) fn drain_to(&mut self, outputs: &mut VecDeque<Output>) {
        self.seal();
        outputs.append(&mut self.ready);
    }
}
