//! The table of spans of a session, made from its files.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use anyhow::Result;
use collector_core::spans::SpanConfig;
use sinks::{PendingTable, SinkError, SpanTable};

use super::{spanning, trace::Trace};
use crate::tables::Progress;

/// A table that was made.
pub(crate) struct Made {
    pub(crate) spans: u64,
    pub(crate) bytes: u64,
    pub(crate) took: Duration,
}

/// Makes the table of a finished session. There is none where another collector makes it, or the session is gone.
pub(crate) fn make(table: &PendingTable, config: SpanConfig, progress: &Progress) -> Result<Option<Made>> {
    let started = Instant::now();
    let Some(mut file) = table.create()? else { return Ok(None) };
    let spans = write(&Trace::open(table.dir())?, config, progress, &mut file)?;
    Ok(file.finish(spans)?.map(|bytes| Made { spans, bytes, took: started.elapsed() }))
}

/// Writes the table of a session, and returns how many spans it has.
pub(super) fn write(trace: &Trace, config: SpanConfig, progress: &Progress, mut out: impl Write) -> Result<u64> {
    let session = trace.session();
    let engine = spanning::engine(trace, config);
    let mut table = SpanTable::new()?;
    let written = |result: io::Result<()>| result.map_err(|error| SinkError::from_io("cannot write the table", error));
    progress.begin(trace.name(), trace.events());
    let mut write = |bytes: &[u8]| written(if bytes.is_empty() { Ok(()) } else { out.write_all(bytes) });
    spanning::batches(trace, engine, |batch| {
        let catalog = session.catalog();
        batch.spans.iter().try_for_each(|span| table.push(&catalog, span))?;
        progress.reach(batch.events)?;
        Ok(write(&table.take_bytes())?)
    })?;
    let rows = table.rows();
    write(&table.finish(&session)?)?;
    written(out.flush())?;
    Ok(rows)
}
