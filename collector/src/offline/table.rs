//! The table of spans of a session, made from its files.

use std::{
    io::{self, Write},
    slice,
    time::{Duration, Instant},
};

use answers::{
    overview::{Begun, Building},
    spanning,
    trace::Trace,
};
use anyhow::Result;
use codec::{Arch, span::Span};
use collector_core::spans::SpanConfig;
use sinks::{PendingTable, SinkError, SpanTable};
use tracing::warn;

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
    let trace = Trace::open(table.dir())?;
    let mut overview = Beside::begin(&trace);
    let spans = write(&trace, config, false, progress, &mut file, |span| overview.add(span))?;
    overview.finish();
    Ok(file.finish(spans)?.map(|bytes| Made { spans, bytes, took: started.elapsed() }))
}

/// The overview that is made of the same spans. The table does not wait for it: the viewer makes it where it is missing.
struct Beside<'a> {
    trace: &'a Trace,
    building: Option<Box<Building<'a>>>,
}

impl<'a> Beside<'a> {
    fn begin(trace: &'a Trace) -> Self {
        let mut beside = Self { trace, building: None };
        match Building::begin(trace) {
            Ok(Begun::Building(building)) => beside.building = Some(building),
            Ok(Begun::Made(_) | Begun::Elsewhere) => {}
            Err(error) => beside.give_up(&error),
        }
        beside
    }

    /// A session that was removed to make room needs none.
    fn give_up(&mut self, error: &anyhow::Error) {
        self.building = None;
        if self.trace.dir.exists() {
            warn!("cannot make an overview: {error:#}; whoever looks at the session makes it");
        }
    }

    /// Takes a span, which the table gets too.
    fn add(&mut self, span: &Span) -> bool {
        if let Some(building) = &mut self.building
            && let Err(error) = building.add(slice::from_ref(span))
        {
            self.give_up(&error);
        }
        true
    }

    fn finish(mut self) {
        if let Some(Err(error)) = self.building.take().map(|building| building.finish()) {
            self.give_up(&error);
        }
    }
}

/// Writes the table of the spans of a session that are wanted, with the registers of frames if they are asked for, and returns how
/// many spans it has.
pub(super) fn write(
    trace: &Trace,
    config: SpanConfig,
    registers: bool,
    progress: &Progress,
    mut out: impl Write,
    mut wants: impl FnMut(&Span) -> bool,
) -> Result<u64> {
    let session = trace.session();
    let engine = spanning::engine(trace, config);
    let mut table = if registers { SpanTable::with_arguments() } else { SpanTable::new() }?;
    let passed = passed(trace);
    let written = |result: io::Result<()>| result.map_err(|error| SinkError::from_io("cannot write the table", error));
    progress.begin(trace.name(), trace.events());
    let mut write = |bytes: &[u8]| written(if bytes.is_empty() { Ok(()) } else { out.write_all(bytes) });
    super::say_if_unfinished(trace);
    spanning::batches(trace, engine, registers, |batch| {
        let catalog = session.catalog();
        for span in batch.spans.iter().filter(|span| wants(span)) {
            let arguments = batch.arguments.get(&span.id).and_then(|all| all.get(..passed)).unwrap_or_default();
            table.push_with(&catalog, span, arguments)?;
        }
        progress.reach(batch.events)?;
        Ok(write(&table.take_bytes())?)
    })?;
    let rows = table.rows();
    write(&table.finish(&session)?)?;
    written(out.flush())?;
    Ok(rows)
}

/// How many registers arguments are passed in.
fn passed(trace: &Trace) -> usize {
    let is_arm64 = trace.manifest.process.as_ref().is_some_and(|process| process.arch == Arch::Arm64.name());
    if is_arm64 { 8 } else { 6 }
}
