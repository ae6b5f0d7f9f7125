//! `collector export`: a session, made into what other programs read.

mod heph;
mod watch;

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use anyhow::{Context, Result};
use sinks::{ChromeSink, Ended, FoldedSink, PerfettoSink, Session, Sink, SinkError};

use self::watch::Watch;
use super::{spanning, table, trace::Trace};
use crate::{
    args::{ExportArgs, ExportFormat, wrong_usage},
    quantity::{Size, counted},
    tables::Progress,
};

pub(crate) fn run(args: &ExportArgs) -> Result<ExitCode> {
    if args.wire.is_some() && args.format != ExportFormat::Heph {
        wrong_usage("--wire needs --format heph".into());
    }
    if args.registers && args.format != ExportFormat::Parquet {
        wrong_usage("--registers needs --format parquet".into());
    }
    if args.align && !matches!(args.format, ExportFormat::Perfetto | ExportFormat::Chrome) {
        wrong_usage("--align needs --format perfetto or chrome".into());
    }
    let trace = Trace::open_aligned(&args.session.dir, args.align)?.named();
    let name = args.output.display();
    let bytes = Arc::new(AtomicU64::new(0));
    let out: Box<dyn Write + Send> = match args.output == Path::new("-") {
        true => Box::new(io::stdout()),
        false => Box::new(File::create(&args.output).with_context(|| format!("cannot make {name}"))?),
    };
    let out = Counting { out, bytes: Arc::clone(&bytes) };
    let progress = Arc::new(Progress::default());
    let watch = Watch::start(&progress);
    let written = match args.format {
        ExportFormat::Perfetto => write_spans(&trace, args, &progress, &mut PerfettoSink::new(out)),
        ExportFormat::Chrome => write_spans(&trace, args, &progress, &mut ChromeSink::new(out)),
        ExportFormat::Folded => write_spans(&trace, args, &progress, &mut FoldedSink::new(out)),
        ExportFormat::Parquet => {
            let rows = table::write(&trace, args.session.making.config(), args.registers, &progress, out);
            rows.map(|rows| counted(rows, "span"))
        }
        ExportFormat::Heph => {
            heph::write(&trace, args.wire.unwrap_or_default(), &progress, out).map(|events| counted(events, "event"))
        }
    };
    drop(watch);
    match written {
        Ok(what) => eprintln!("{name}: {what}, {}", Size(bytes.load(Relaxed))),
        Err(error) if matches!(error.downcast_ref(), Some(SinkError::Closed)) => {}
        Err(error) => return Err(error).with_context(|| format!("cannot write {name}")),
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes all spans of a session, and tells how many there are.
fn write_spans(trace: &Trace, args: &ExportArgs, progress: &Progress, sink: &mut impl Sink) -> Result<String> {
    let session = trace.session();
    sink.start(&session)?;
    let engine = spanning::engine(trace, args.session.making.config());
    let mut count = 0_u64;
    progress.begin(trace.name(), trace.events());
    spanning::batches(trace, engine, false, |batch| {
        count = count.saturating_add(batch.spans.len() as u64);
        progress.reach(batch.events)?;
        Ok(sink.spans(&session, &batch.spans)?)
    })?;
    end(trace, &session, sink)?;
    Ok(counted(count, "span"))
}

fn end(trace: &Trace, session: &Arc<Session>, sink: &mut impl Sink) -> Result<()> {
    let end = trace.manifest.end.clone().unwrap_or_default();
    sink.end(session, &Ended { end, limits: Vec::new() })?;
    Ok(sink.close()?)
}

/// Counts what is written.
struct Counting {
    out: Box<dyn Write + Send>,
    bytes: Arc<AtomicU64>,
}

impl Write for Counting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes.fetch_add(written as u64, Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
