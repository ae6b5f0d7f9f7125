//! Spans as traces of OpenTelemetry, in requests of OTLP.

mod births;
mod ids;
mod message;
mod recording;
mod resource;
#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fmt,
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use codec::{SessionId, span::Span};

use self::{
    births::{Births, ProcessSpan},
    recording::{Exported, Recording},
    resource::resource,
};
use crate::{Budget, Catalog, Ended, Session, Sink, SinkError};

pub use resource::OtlpOptions;

/// How many spans are encoded before it is looked at how many bytes they have.
const CHUNK: usize = 1024;

/// With this much, a request is sent. Receivers take 4 MiB by default.
const REQUEST_BYTES: usize = 512 << 10;

/// For how long spans wait for others to be sent with.
const WAIT: Duration = Duration::from_secs(1);

/// A clock that is further from the collector's than this is told.
const CLOCKS_APART_NS: u64 = 500_000_000;

/// Writes spans as requests of OTLP, each in one call: how many spans are in it, in four bytes with the highest first, and
/// the `ExportTraceServiceRequest`.
///
/// A family of processes is one trace: each process is a span below the call that made it, or below the span that the
/// environment of the program names. Threads are below their process, and frames below what called them. A span comes
/// once, when nothing more is to be said of it; that of a process comes last.
pub struct OtlpSink<W> {
    out: W,
    options: OtlpOptions,
    budget: Budget,
    sessions: HashMap<String, Recording>,
    births: Births,
    /// Since when something waits.
    since: Option<Instant>,
    say: Box<dyn FnMut(String) + Send>,
}

impl<W> fmt::Debug for OtlpSink<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtlpSink").field("options", &self.options).finish_non_exhaustive()
    }
}

impl<W: Write> OtlpSink<W> {
    /// Writes to `out`, and has `say` tell people what they should know.
    pub fn new(out: W, options: OtlpOptions, say: impl FnMut(String) + Send + 'static) -> Self {
        Self {
            out,
            options,
            budget: Budget::default(),
            sessions: HashMap::new(),
            births: Births::default(),
            since: None,
            say: Box::new(say),
        }
    }

    /// The same, and it remembers no more than a budget that others share has room for.
    pub fn within(self, budget: &Budget) -> Self {
        Self { budget: budget.share(), ..self }
    }

    /// Makes ready for spans of a session, once something is known of it, and looks where it came from.
    fn begin(&mut self, session: &Arc<Session>) {
        let catalog = session.catalog();
        if !self.sessions.contains_key(&session.name) {
            let recording = Recording::new(session, &catalog, &self.budget);
            if let Some(id) = session_id(session, &catalog) {
                self.births.start(id, session, &recording.identity);
            }
            self.sessions.insert(session.name.clone(), recording);
        }
        let birth = catalog.birth();
        drop(catalog);
        birth.into_iter().for_each(|birth| self.births.born(session, birth));
    }

    fn exported(&mut self, id: Option<SessionId>, frames: Vec<Exported>) -> Result<(), SinkError> {
        let Some(id) = id else { return Ok(()) };
        frames.into_iter().for_each(|frame| self.births.exported(id, frame));
        self.births.settled(id).into_iter().try_for_each(|request| write(&mut self.out, &request, 1))
    }

    /// Sends what waits of a session.
    fn send(&mut self, session: &str) -> Result<(), SinkError> {
        let Some(recording) = self.sessions.get_mut(session) else { return Ok(()) };
        let (session, waiting) = (&recording.session, std::mem::take(&mut recording.waiting));
        if waiting.spans == 0 {
            return Ok(());
        }
        let request = resource(session, &session.catalog(), &self.options).request(&waiting.bytes);
        write(&mut self.out, &request, waiting.spans)
    }

    /// Sends all that waits.
    fn send_all(&mut self) -> Result<(), SinkError> {
        self.since = None;
        let waiting: Vec<String> = self.sessions.keys().cloned().collect();
        waiting.iter().try_for_each(|session| self.send(session))
    }
}

impl<W: Write + Send> Sink for OtlpSink<W> {
    fn start(&mut self, _: &Arc<Session>) -> Result<(), SinkError> {
        Ok(())
    }

    fn options(&mut self, session: &Arc<Session>, _: &[u8]) -> Result<(), SinkError> {
        // That comes last of what is told of a process.
        let is_known = session.catalog().context().is_some();
        if is_known {
            self.begin(session);
        }
        Ok(())
    }

    fn spans(&mut self, session: &Arc<Session>, spans: &[Span]) -> Result<(), SinkError> {
        self.begin(session);
        self.since.get_or_insert_with(Instant::now);
        let mut id = None;
        if let Some(recording) = self.sessions.get_mut(&session.name) {
            spans.iter().for_each(|span| recording.see(span));
        }
        for chunk in spans.chunks(CHUNK) {
            let Some(recording) = self.sessions.get_mut(&session.name) else { return Ok(()) };
            let catalog = session.catalog();
            id = id.or_else(|| session_id(session, &catalog));
            let min_ns = self.options.min_ns;
            let exported = chunk.iter().filter_map(|span| recording.add(&catalog, span, min_ns)).collect();
            // Sending may block, and the collector must be able to enter what it receives meanwhile.
            drop(catalog);
            let is_full = recording.waiting.bytes.len() >= REQUEST_BYTES;
            self.exported(id, exported)?;
            if is_full {
                self.send(&session.name)?;
            }
        }
        Ok(())
    }

    fn end(&mut self, session: &Arc<Session>, ended: &Ended) -> Result<(), SinkError> {
        self.begin(session);
        let Some(recording) = self.sessions.get_mut(&session.name) else { return Ok(()) };
        let catalog = session.catalog();
        let id = session_id(session, &catalog);
        for stream in id.into_iter().flat_map(|id| self.births.unfound(id).collect::<Vec<_>>()) {
            recording.name_thread(stream);
        }
        let (message, exported) = recording.finish(session, &catalog, ended, self.options.min_ns);
        let span = ProcessSpan {
            resource: resource(session, &catalog, &self.options),
            message,
            identity: recording.identity.clone(),
        };
        let apart = clocks_apart(&catalog);
        let birth = catalog.birth();
        drop(catalog);
        if let Some(apart) = apart {
            (self.say)(format!("session {}: {apart}", session.name));
        }
        self.exported(id, exported)?;
        self.send(&session.name)?;
        self.sessions.remove(&session.name);
        let children = id.map(|id| self.births.end(id)).unwrap_or_default();
        let own = self.births.died(&session.name, birth, span);
        own.into_iter().chain(children).try_for_each(|request| write(&mut self.out, &request, 1))
    }

    /// Sends what has waited for long enough.
    fn flush(&mut self) -> Result<(), SinkError> {
        match self.since {
            Some(since) if since.elapsed() >= WAIT => self.send_all(),
            _ => Ok(()),
        }
    }

    fn is_kept(&self) -> bool {
        self.since.is_none()
    }

    fn close(&mut self) -> Result<(), SinkError> {
        self.send_all()
    }
}

fn session_id(session: &Session, catalog: &Catalog) -> Option<SessionId> {
    session.id.or_else(|| catalog.session().map(|process| process.id))
}

/// Hands a request over, in one call.
fn write(out: &mut impl Write, request: &[u8], spans: u64) -> Result<(), SinkError> {
    let count = u32::try_from(spans).unwrap_or(u32::MAX).to_be_bytes();
    out.write_all(&[&count, request].concat()).map_err(|error| SinkError::from_io("cannot send spans", error))
}

/// Says so where the clock of the traced machine is far from the collector's.
fn clocks_apart(catalog: &Catalog) -> Option<String> {
    let (epoch, offset, process) = (catalog.epoch()?, catalog.offset()?, catalog.session()?);
    let apart = epoch.unix_ns.abs_diff(offset.zero_unix_ns);
    if apart <= CLOCKS_APART_NS.saturating_add(offset.error_ns) {
        return None;
    }
    let which = if epoch.unix_ns > offset.zero_unix_ns { "ahead of" } else { "behind" };
    let (host, seconds) = (&process.host, Duration::from_nanos(apart).as_secs_f64());
    Some(format!("the clock of {host} is {seconds:.3} s {which} this collector's; its spans have the times of {host}"))
}
