//! A session made into what other programs read, for the command and for the viewer.

use std::sync::Arc;

use anyhow::Result;
use codec::span::Span;
use collector_core::spans::SpanConfig;
use sinks::{Ended, Session, Sink};

use super::{
    filter::{Filter, Pick},
    spanning,
    trace::Trace,
};

/// Writes what is asked for of a session, and tells how many spans that is. Tells how many events were read; an error stops
/// that.
pub fn write(
    trace: &Trace,
    config: SpanConfig,
    filter: &Filter,
    sink: &mut impl Sink,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<u64> {
    let session = trace.session();
    sink.start(&session)?;
    let mut count = 0_u64;
    spans(trace, config, filter, progress, |spans| {
        count = count.saturating_add(spans.len() as u64);
        Ok(sink.spans(&session, spans)?)
    })?;
    end(trace, &session, sink)?;
    sink.close()?;
    Ok(count)
}

/// Hands over the spans of a session that are asked for.
pub fn spans(
    trace: &Trace,
    config: SpanConfig,
    filter: &Filter,
    progress: &mut dyn FnMut(u64) -> Result<()>,
    mut take: impl FnMut(&[Span]) -> Result<()>,
) -> Result<()> {
    let mut wanted = Pick::new(trace, filter);
    let is_all = !filter.is_any() && filter.limit().is_none();
    spanning::batches(trace, spanning::engine(trace, config), false, |batch| {
        progress(batch.events)?;
        if is_all {
            return take(&batch.spans);
        }
        let spans: Vec<Span> = batch.spans.iter().filter(|span| wanted.has(span)).cloned().collect();
        take(&spans)
    })
}

/// Tells a sink how a session ended.
pub fn end(trace: &Trace, session: &Arc<Session>, sink: &mut impl Sink) -> Result<()> {
    let end = trace.manifest.end.clone().unwrap_or_default();
    Ok(sink.end(session, &Ended { end, limits: Vec::new() })?)
}
