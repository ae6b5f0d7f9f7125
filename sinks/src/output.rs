//! Bytes on their way to a file or pipe.

use std::{
    io::{self, Write},
    sync::Arc,
};

use codec::{Position, StreamId};

use crate::{Batch, Gap, Session, SinkError};

/// Collects bytes and writes them, many at a time. What could not be written waits, and goes on at the very byte.
#[derive(Debug)]
pub(crate) struct Output<W> {
    out: W,
    pending: Vec<u8>,
    closed: bool,
    /// Gaps of our own that nobody was told of yet.
    owed: Vec<(Arc<Session>, Gap)>,
    lost_events: u64,
}

/// With this much, it is written.
const FLUSH_BYTES: usize = 64 << 10;
/// With this much, nothing more is taken while nothing can be written.
const STUCK_BYTES: usize = 4 << 20;
/// How many gaps are remembered to be told. Beyond that they are only counted.
const MOST_OWED: usize = 65_536;

const CAUSE: &str = "collector:output-error";

impl<W: Write> Output<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, pending: Vec::new(), closed: false, owed: Vec::new(), lost_events: 0 }
    }

    /// Where to put bytes, unless it cannot take any. What was put there is whole packets or lines.
    pub(crate) fn buffer(&mut self) -> Result<&mut Vec<u8>, SinkError> {
        if self.closed {
            return Err(SinkError::Closed);
        }
        if self.pending.len() >= STUCK_BYTES {
            self.flush()?;
        }
        Ok(&mut self.pending)
    }

    /// Writes what waits if that is much. An error is one only once nothing more is taken, or nobody reads.
    pub(crate) fn relieve(&mut self) -> Result<(), SinkError> {
        if self.pending.len() < FLUSH_BYTES {
            return Ok(());
        }
        match self.flush() {
            Err(SinkError::Failed { .. }) => Ok(()),
            other => other,
        }
    }

    /// Writes all that waits.
    pub(crate) fn flush(&mut self) -> Result<(), SinkError> {
        if self.closed {
            return Err(SinkError::Closed);
        }
        let mut written = 0;
        let result = loop {
            match self.pending.get(written..) {
                None | Some([]) => break self.out.flush(),
                Some(rest) => match self.out.write(rest) {
                    Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => written += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => break Err(error),
                },
            }
        };
        self.pending.drain(..written.min(self.pending.len()));
        let result = result.map_err(|error| SinkError::from_io("cannot write the trace", error));
        self.closed = matches!(result, Err(SinkError::Closed));
        result
    }

    /// The events of a batch were not taken.
    pub(crate) fn lose(&mut self, batch: &Batch) {
        for run in &batch.runs {
            self.lose_range(&batch.session, run.stream, run.first, run.events.into());
        }
    }

    fn lose_range(&mut self, session: &Arc<Session>, stream: StreamId, first: Position, count: u64) {
        self.lost_events = self.lost_events.saturating_add(count);
        let room = self.owed.len() < MOST_OWED;
        let mut latest = self.owed.iter_mut().rev().take(64);
        match latest.find(|(owner, gap)| Arc::ptr_eq(owner, session) && gap.stream == stream) {
            Some((_, gap)) if gap.first.0.checked_add(gap.count) == Some(first.0) => {
                gap.count = gap.count.saturating_add(count);
            }
            _ if room => {
                self.owed.push((Arc::clone(session), Gap { stream, first, count, cause: CAUSE.into() }));
            }
            _ => {}
        }
    }

    /// The gaps that are to be told before anything else is written.
    pub(crate) fn take_owed(&mut self) -> Vec<(Arc<Session>, Gap)> {
        std::mem::take(&mut self.owed)
    }

    /// Whether there are any.
    pub(crate) fn owes(&self) -> bool {
        !self.owed.is_empty()
    }

    /// How many events were lost here.
    pub(crate) fn lost_events(&self) -> u64 {
        self.lost_events
    }
}
