//! The sink for files that viewers open: one sink, with an encoder for each format.

use std::{collections::HashMap, fmt, fs::File, io::Write, path::Path, sync::Arc};

use codec::span::Span;

use crate::{
    Budget, Ended, Session, Sink, SinkError,
    family::{BirthPoint, ProcessLabel},
    output::Output,
};

/// Encodes one session of a file.
pub trait Encoder: fmt::Debug + Send + Sized {
    /// What a user may choose.
    type Options: fmt::Debug + Default + Send;
    /// What a file starts with.
    const HEAD: &'static [u8] = b"";
    /// What a file ends with.
    const FOOT: &'static [u8] = b"";

    /// An encoder for the session with this number in the file, from 1.
    fn new(number: u32, options: &Self::Options) -> Self;

    /// Takes spans, and reports that `lost` of them could not be taken before. With an error it has taken none.
    fn spans<W: Write>(
        &mut self,
        session: &Session,
        spans: &[Span],
        lost: u64,
        out: &mut Output<W>,
    ) -> Result<(), SinkError>;

    /// Shows the process like this, where there are several. It comes first.
    fn label(&mut self, label: ProcessLabel) {
        let _ = label;
    }

    /// Writes one end of an arrow from process to process, where the format has arrows.
    fn birth<W: Write>(&mut self, session: &Session, point: &BirthPoint, out: &mut Output<W>) -> Result<(), SinkError> {
        let _ = (session, point, out);
        Ok(())
    }

    /// Writes the rest.
    fn end<W: Write>(self, session: &Session, lost: u64, out: &mut Output<W>) -> Result<(), SinkError>;
}

/// Writes spans to a file in the format of its encoder.
#[derive(Debug)]
pub struct ViewSink<E: Encoder, W = File> {
    out: Output<W>,
    options: E::Options,
    sessions: HashMap<String, Recording<E>>,
    /// How many sessions there were.
    started: u32,
    finished: bool,
}

/// A session that goes on.
#[derive(Debug)]
struct Recording<E> {
    encoder: E,
    /// Spans that could not be written, and that no line of the file counts yet.
    lost: u64,
}

impl<E: Encoder> ViewSink<E, File> {
    /// Writes to a new file, or over one that is there.
    pub fn create(path: &Path) -> Result<Self, SinkError> {
        let file = File::create(path);
        let failed = |error| SinkError::from_io(format!("cannot create {}", path.display()), error);
        file.map(Self::new).map_err(failed)
    }
}

impl<E: Encoder<Options = Budget>, W: Write> ViewSink<E, W> {
    /// The same, and it remembers no more than a budget that others share has room for.
    pub fn within(self, budget: &Budget) -> Self {
        self.options(budget.share())
    }
}

impl<E: Encoder, W: Write> ViewSink<E, W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        Self::with(out, E::Options::default())
    }

    /// Writes to `out` as the options say.
    pub(crate) fn with(out: W, options: E::Options) -> Self {
        let out = Output::starting_with(out, E::HEAD);
        Self { out, options, sessions: HashMap::new(), started: 0, finished: false }
    }

    /// The same with other options.
    pub(crate) fn options(self, options: E::Options) -> Self {
        Self { options, ..self }
    }
}

impl<E: Encoder, W: Write> ViewSink<E, W> {
    /// Does something with the encoder of a session that goes on.
    pub(crate) fn with_encoder(
        &mut self,
        session: &Session,
        act: impl FnOnce(&mut E, &mut Output<W>) -> Result<(), SinkError>,
    ) -> Result<(), SinkError> {
        let recording = self.sessions.get_mut(&session.name);
        recording.map_or(Ok(()), |recording| act(&mut recording.encoder, &mut self.out))
    }
}

impl<E: Encoder, W: Write + Send> Sink for ViewSink<E, W> {
    fn start(&mut self, session: &Arc<Session>) -> Result<(), SinkError> {
        self.started = self.started.wrapping_add(1);
        let encoder = E::new(self.started, &self.options);
        self.sessions.insert(session.name.clone(), Recording { encoder, lost: 0 });
        Ok(())
    }

    fn spans(&mut self, session: &Arc<Session>, spans: &[Span]) -> Result<(), SinkError> {
        let Some(Recording { encoder, lost }) = self.sessions.get_mut(&session.name) else { return Ok(()) };
        let result = encoder.spans(session, spans, *lost, &mut self.out);
        *lost = match result {
            Ok(()) => 0,
            Err(_) => lost.saturating_add(spans.len() as u64),
        };
        result?;
        self.out.relieve()
    }

    fn end(&mut self, session: &Arc<Session>, _: &Ended) -> Result<(), SinkError> {
        let Some(Recording { encoder, lost }) = self.sessions.remove(&session.name) else { return Ok(()) };
        encoder.end(session, lost, &mut self.out)?;
        self.out.relieve()
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.out.flush()
    }

    fn takes_more(&self) -> bool {
        self.out.takes_more()
    }

    fn close(&mut self) -> Result<(), SinkError> {
        if !self.finished {
            self.out.buffer()?.extend_from_slice(E::FOOT);
            self.finished = true;
        }
        self.flush()
    }
}
