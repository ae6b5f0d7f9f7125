//! Bytes on their way to a file or pipe.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::Arc,
};

use crate::{Batch, Gap, Session, SinkError};

/// Collects bytes and writes them, many at a time. What could not be written waits, and goes on at the very byte.
#[derive(Debug)]
pub struct Output<W> {
    out: W,
    pending: Vec<u8>,
    closed: bool,
    /// Whether the last attempt to write failed.
    failing: bool,
    /// Gaps that no line or packet reports yet, in the order in which they come.
    unreported: VecDeque<(Arc<Session>, Gap)>,
}

/// With this much, it is written.
const FLUSH_BYTES: usize = 64 << 10;
/// With this much, nothing more is taken while nothing can be written.
const STUCK_BYTES: usize = 4 << 20;
/// How many gaps are remembered until they can be reported. Beyond that they are not.
const MOST_UNREPORTED: usize = 65_536;

const CAUSE: &str = "collector:output-error";

impl<W: Write> Output<W> {
    pub(crate) fn new(out: W) -> Self {
        Self::starting_with(out, b"")
    }

    /// An output that starts with these bytes.
    pub(crate) fn starting_with(out: W, head: &[u8]) -> Self {
        Self { out, pending: head.to_vec(), closed: false, failing: false, unreported: VecDeque::new() }
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

    /// Whether it can be written to, as far as is known.
    pub(crate) fn takes_more(&self) -> bool {
        !self.failing
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
        let (written, result) = write_some(&mut self.out, &self.pending);
        self.pending.drain(..written);
        let result = result.map_err(|error| SinkError::from_io("cannot write the trace", error));
        self.closed = matches!(result, Err(SinkError::Closed));
        self.failing = result.is_err() && !self.closed;
        result
    }

    /// The events of a batch were not taken.
    pub(crate) fn lose(&mut self, batch: &Batch) {
        for run in &batch.runs {
            let (stream, first, count) = (run.stream, run.first, run.events.into());
            self.add_unreported(&batch.session, Gap { stream, first, count, cause: CAUSE.into() });
        }
    }

    /// A gap is to be reported before anything else is written.
    pub(crate) fn add_unreported(&mut self, session: &Arc<Session>, gap: Gap) {
        let room = self.unreported.len() < MOST_UNREPORTED;
        let mut latest = self.unreported.iter_mut().rev().take(64);
        match latest.find(|(owner, known)| Arc::ptr_eq(owner, session) && known.stream == gap.stream) {
            Some((_, known))
                if known.first.0.checked_add(known.count) == Some(gap.first.0) && known.cause == gap.cause =>
            {
                known.count = known.count.saturating_add(gap.count);
            }
            _ if room => self.unreported.push_back((Arc::clone(session), gap)),
            _ => {}
        }
    }

    /// The first gap that is to be reported.
    pub(crate) fn next_unreported(&mut self) -> Option<(Arc<Session>, Gap)> {
        self.unreported.pop_front()
    }

    /// The gap could not be reported yet.
    pub(crate) fn put_back(&mut self, session: Arc<Session>, gap: Gap) {
        self.unreported.push_front((session, gap));
    }
}

/// Writes bytes as far as they are taken, and tells how many were and why not all.
pub(crate) fn write_some(out: &mut (impl Write + ?Sized), bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut rest = bytes;
    let result = loop {
        if rest.is_empty() {
            break out.flush();
        }
        match out.write(rest) {
            Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    (bytes.len() - rest.len(), result)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use codec::{Position, StreamId};

    use super::*;
    use crate::{Catalog, CatalogLimits, HephSink, LineSink, Run, Sink};

    /// Takes all, or nothing while it is full.
    #[derive(Clone, Default)]
    struct Full(Arc<std::sync::Mutex<Vec<u8>>>, Arc<AtomicBool>);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.1.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0.lock().expect("nobody panicked").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// So many streams lose events that reporting it fills the buffer again before all is reported.
    #[test]
    fn a_gap_stays_unreported_until_it_is_written() {
        const STREAMS: u32 = 60_000;
        type Make = fn(Full) -> Box<dyn Sink>;
        let sinks: [(Make, &str); 2] =
            [(|out| Box::new(HephSink::new(out)), "drops"), (|out| Box::new(LineSink::events(out)), "\"gap\"")];
        for (make, mark) in sinks {
            let out = Full::default();
            let mut sink = make(out.clone());
            let catalog = Catalog::new(CatalogLimits::default(), Arc::new(AtomicU64::new(0)));
            let session = Arc::new(Session::new("s".repeat(200), None, String::new(), 0, catalog));
            out.1.store(true, Ordering::Relaxed);
            let filler = vec![b'x'; STUCK_BYTES];
            let batch = |stream, bytes: &[u8]| {
                let (stream, length) = (StreamId(stream), u32::try_from(bytes.len()).expect("small"));
                let run = Run { stream, first: Position(0), events: 1, bytes: length, skip: 0 };
                Arc::new(Batch { session: Arc::clone(&session), bytes: bytes.to_vec().into(), runs: vec![run] })
            };
            // Fills the buffer with what is no packet, or with gaps.
            let _ = sink.events(&batch(STREAMS, &filler));
            let told = |stream, count| Gap { stream: StreamId(stream), first: Position(0), count, cause: "n".into() };
            let mut filled = 0_u32;
            while sink.gap(&session, &told(STREAMS + 1 + filled, 1)).is_ok() {
                filled += 1;
            }
            (0..STREAMS).for_each(|stream| assert!(sink.events(&batch(stream, b"")).is_err()));
            // The disk takes one buffer, and is full again; then it has room.
            for _ in 0..20 {
                out.1.store(false, Ordering::Relaxed);
                let _ = sink.end(&session, &crate::Ended::default());
                out.1.store(true, Ordering::Relaxed);
                let _ = sink.flush();
            }
            out.1.store(false, Ordering::Relaxed);
            sink.close().expect("there is room");
            let bytes = out.0.lock().expect("nobody panicked").clone();
            let found = bytes.windows(mark.len()).filter(|window| *window == mark.as_bytes()).count();
            assert_eq!(found, (STREAMS + filled + 1) as usize, "every gap is reported once");
        }
    }
}
