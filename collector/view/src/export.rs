//! A part of a session as a Perfetto trace, handed over while it is written: what `collector export --alone` writes.

use std::{
    io::{self, ErrorKind, Write},
    sync::Arc,
    time::Duration,
};

use answers::{
    export,
    filter::{Filter, Wanted},
    trace::Trace,
};
use axum::{
    body::Body,
    http::header,
    response::{IntoResponse, Response},
};
use codec::quantity::Moment;
use collector_core::spans::SpanConfig;
use futures_util::stream;
use sinks::{PerfettoSink, SinkError};
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc},
    task::spawn_blocking,
};

use crate::{asked::Asked, refusal::Refusal, server::Server};

/// How many are written at a time, and how many pieces of one may wait for a browser.
pub(crate) const WRITERS: usize = 4;
const AHEAD: usize = 8;

type Piece = io::Result<Vec<u8>>;

/// `perfetto`: a file to be saved. Ends when the browser goes away.
pub(crate) async fn answer(server: &Server, name: String, asked: Asked) -> Result<Response, Refusal> {
    let turn = Arc::clone(&server.writers).try_acquire_owned().map_err(|_| Refusal::Busy)?;
    let (library, wanted) = (Arc::clone(&server.library), wanted(&asked)?);
    let file = file_name(&name);
    let open = move || {
        let trace = Trace::open(&library.find(&name)?).map_err(|error| Refusal::Broken(format!("{error:#}")))?.named();
        let filter = Filter::new(&trace, &wanted).map_err(|error| Refusal::Wrong(format!("{error:#}")))?;
        Ok((trace, filter))
    };
    let (trace, filter) = server.read(open).await?;
    let (to, pieces) = mpsc::channel(AHEAD);
    let config = server.shelf.config();
    spawn_blocking(move || write(&trace, &filter, config, &to, turn));
    let pieces = stream::unfold(pieces, |mut pieces| async { pieces.recv().await.map(|piece| (piece, pieces)) });
    let disposition = format!("attachment; filename=\"{file}\"");
    let head = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_DISPOSITION, &disposition),
    ];
    Ok((head, Body::from_stream(pieces)).into_response())
}

/// Writes it. What goes wrong cuts the answer off, so that the browser does not take it for whole.
fn write(trace: &Trace, filter: &Filter, config: SpanConfig, to: &mpsc::Sender<Piece>, _turn: OwnedSemaphorePermit) {
    // Where little is asked for, nothing may be written for long.
    let mut progress = |_| if to.is_closed() { Err(SinkError::Closed.into()) } else { Ok(()) };
    if let Err(error) = export::write(trace, config, filter, &mut PerfettoSink::new(Pieces(to)), &mut progress) {
        // Nobody hears it who has gone away.
        let _ = to.blocking_send(Err(io::Error::other(format!("{error:#}"))));
    }
}

fn wanted(asked: &Asked) -> Result<Wanted, Refusal> {
    let text = |key: &str| asked.text(key).map(ToOwned::to_owned);
    let moment = |key: &str| Ok(asked.number(key)?.map(|ns| Moment(Duration::from_nanos(ns))));
    let (from, to) = (moment("from")?, moment("to")?);
    if from.zip(to).is_some_and(|(from, to)| from.0 >= to.0) {
        return Err(Refusal::Wrong("`from` has to be before `to`".into()));
    }
    Ok(Wanted {
        from,
        to,
        thread: text("thread"),
        task: asked.number("task")?,
        process: None,
        module: text("module"),
        function: text("function"),
        min_duration_ns: asked.number("min_duration")?.unwrap_or(0),
        depth: asked.number("depth")?,
        limit: asked.number("limit")?,
    })
}

/// What it is saved as: no more than letters, digits and the like, whatever the session is called.
fn file_name(session: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '_' };
    session.chars().map(plain).chain(".perfetto-trace".chars()).collect()
}

/// Hands over what is written, when there is room for it.
struct Pieces<'a>(&'a mpsc::Sender<Piece>);

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.blocking_send(Ok(bytes.to_vec())).map_err(|_| ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
