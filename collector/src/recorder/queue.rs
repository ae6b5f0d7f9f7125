//! The way from the receiver to one recorder.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use collector_core::{Output, Run};
use crossbeam_channel::{Receiver, Sender, TrySendError};

/// How many outputs the channel holds. There are more only of small ones, and these wait with the receiver.
const OUTPUTS: usize = 4096;

/// What an output takes beside its bytes.
const OUTPUT_BYTES: u64 = 256;

/// A bounded channel that the receiver never waits for: it looks how much room there is before it takes anything in.
#[derive(Debug)]
pub(crate) struct Queue {
    sender: Sender<Output>,
    /// What the channel had no room for.
    waiting: VecDeque<Output>,
    /// Bytes that wait here.
    bytes: Arc<AtomicU64>,
    limit: u64,
}

impl Queue {
    pub(super) fn new(limit: u64) -> (Self, Receiver<Output>) {
        let (sender, receiver) = crossbeam_channel::bounded(OUTPUTS);
        (Self { sender, waiting: VecDeque::new(), bytes: Arc::default(), limit }, receiver)
    }

    pub(super) fn bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.bytes)
    }

    pub(super) fn push(&mut self, output: Output) {
        self.bytes.fetch_add(bytes(&output), Relaxed);
        self.waiting.push_back(output);
        self.send_waiting();
    }

    fn send_waiting(&mut self) {
        while let Some(output) = self.waiting.pop_front() {
            match self.sender.try_send(output) {
                Ok(()) => {}
                // The recorder ends only after this, or by a defect; then nobody takes it.
                Err(TrySendError::Disconnected(_)) => {}
                Err(TrySendError::Full(output)) => return self.waiting.push_front(output),
            }
        }
    }

    /// How many more bytes can wait.
    pub(super) fn free_bytes(&mut self) -> u64 {
        self.send_waiting();
        match self.waiting.is_empty() {
            true => self.limit.saturating_sub(self.bytes.load(Relaxed)),
            false => 0,
        }
    }

    /// Sends everything, and waits for room where there is none.
    pub(super) fn push_all(&mut self) {
        for output in self.waiting.drain(..) {
            _ = self.sender.send(output);
        }
    }
}

/// The memory that an output keeps while it waits.
pub(super) fn bytes(output: &Output) -> u64 {
    let more = match output {
        Output::Options(_, packets) | Output::Ending(_, packets) => packets.len(),
        Output::Events(batch) => batch.bytes.len() + batch.runs.len() * size_of::<Run>(),
        Output::Started(_) | Output::Resumed(_) | Output::Gap(..) | Output::Ended(..) => 0,
    };
    OUTPUT_BYTES + more as u64
}
