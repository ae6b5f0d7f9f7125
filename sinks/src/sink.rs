//! The contract.

use std::{io, sync::Arc};

use codec::span::Span;
use thiserror::Error;

use crate::{Batch, Ended, Gap, Session, disk::is_full};

/// Something that takes a trace.
///
/// A recorder calls it from its thread, one call at a time. A call may block, and the recorder's sessions wait for it;
/// whoever receives goes on. Calls for one session come in this order, and calls for different sessions may come in any:
///
/// 1. [`start`](Self::start), or [`resume`](Self::resume), once;
/// 2. [`options`](Self::options), [`events`](Self::events), [`gap`](Self::gap) and [`spans`](Self::spans), any number.
///    For each stream, the positions of events and gaps follow one another without a hole and without overlap: what
///    is not in an event is in a gap;
/// 3. [`end`](Self::end), once. Nothing follows, unless the session is resumed.
///
/// [`flush`](Self::flush) comes at any time, at least every 200 ms. [`close`](Self::close) is the last call, and comes
/// after every session was ended.
///
/// # Answers
///
/// - `Ok`: the sink has it, though it may keep it in memory until the next flush.
/// - [`SinkError::Closed`]: nobody reads any more (a broken pipe). The sink is not called again but for `close`, and
///   what it does not get is counted. It is not a failure of the program.
/// - [`SinkError::Failed`]: the sink could not keep this, and has nothing of it. It is told once to the user,
///   counted, and the sink goes on being called: a full disk may get room again. What was lost this way is a gap of
///   the sink's own, and it says so wherever it says what is missing.
///
/// A call may block, but not while it holds the session's catalog: the collector needs that to go on.
///
/// A sink never panics over what it is given, never changes a batch, and never takes a file name from it.
pub trait Sink: Send {
    /// A session has started. Its [`catalog`](Session::catalog) may still be empty.
    fn start(&mut self, session: &Arc<Session>) -> Result<(), SinkError>;

    /// A session goes on that an earlier collector, or this sink, has recorded. Most sinks know nothing of that any more.
    fn resume(&mut self, session: &Arc<Session>) -> Result<(), SinkError> {
        self.start(session)
    }

    /// Options of the session arrived: whole packets, as they came. The catalog knows them already, so most sinks
    /// leave this as it is.
    fn options(&mut self, session: &Arc<Session>, packets: &[u8]) -> Result<(), SinkError> {
        let _ = (session, packets);
        Ok(())
    }

    /// The session is about to end, as these packets say. They come again as options; only a sink that may be asked how a
    /// session ended that it did not see the end of needs them.
    fn ending(&mut self, session: &Arc<Session>, packets: &[u8]) -> Result<(), SinkError> {
        let _ = (session, packets);
        Ok(())
    }

    /// Events arrived. Sinks that write only spans leave this as it is.
    fn events(&mut self, batch: &Arc<Batch>) -> Result<(), SinkError> {
        let _ = batch;
        Ok(())
    }

    /// Events are missing. Sinks that write only spans leave this as it is: a gap is a span too.
    fn gap(&mut self, session: &Arc<Session>, gap: &Gap) -> Result<(), SinkError> {
        let _ = (session, gap);
        Ok(())
    }

    /// Spans were closed, or are told to be still open: a span that is told as [open](codec::span::SpanStatus::Open)
    /// before the session's end comes again. Sinks that do not write spans leave this as it is.
    fn spans(&mut self, session: &Arc<Session>, spans: &[Span]) -> Result<(), SinkError> {
        let _ = (session, spans);
        Ok(())
    }

    /// The session has ended.
    fn end(&mut self, session: &Arc<Session>, ended: &Ended) -> Result<(), SinkError>;

    /// Leaves a session as its files are: it goes on with another collector, from an agent that has the rest.
    fn leave(&mut self, session: &Arc<Session>) {
        let _ = session;
    }

    /// Hands everything taken so far to the operating system.
    fn flush(&mut self) -> Result<(), SinkError>;

    /// Whether it can take more without a loss. One that cannot may be able to after a flush.
    fn takes_more(&self) -> bool {
        true
    }

    /// Whether what was flushed counts as kept. A sink may first have to see to it that it survives a power failure.
    fn is_kept(&self) -> bool {
        true
    }

    /// Finishes what is still open.
    fn close(&mut self) -> Result<(), SinkError> {
        self.flush()
    }
}

/// Why a sink did not take something. What each means for the caller is said at [`Sink`].
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SinkError {
    /// Nobody reads any more.
    #[error("nobody reads it any more")]
    Closed,
    /// It could not be kept.
    #[error("{what}: {source}")]
    Failed {
        /// What was tried, on what.
        what: String,
        /// What went wrong.
        source: io::Error,
    },
}

impl SinkError {
    /// Whether it failed for want of room, which may come.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Failed { source, .. } if is_full(source.kind()))
    }

    /// The error for a failed attempt at `what`. A broken pipe is [`SinkError::Closed`].
    pub fn from_io(what: impl Into<String>, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Failed { what: what.into(), source },
        }
    }
}
