//! `collector export`: a session, or a family of them, made into what other programs read.

mod family;
mod folded;
mod heph;
mod watch;

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use answers::{
    export,
    filter::{Filter, Pick},
    trace::Trace,
};
use anyhow::{Context, Result};
use sinks::{ChromeSink, FoldedSink, PerfettoSink, Sink, SinkError};

use self::watch::Watch;
use super::{table, whole::Whole, writer::Writer};
use crate::{
    args::{ExportArgs, ExportFormat, wrong_usage},
    quantity::{Size, count, counted},
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
    if let (ExportFormat::Heph, Some(option)) = (args.format, args.filter.any()) {
        wrong_usage(format!(
            "--format heph has all events of a session, with none missing: {option} does not go with it"
        ));
    }
    let chosen = super::choose(&args.session.dir, &args.filter)?;
    let others = chosen.all().len().saturating_sub(1);
    let is_picture = matches!(args.format, ExportFormat::Perfetto | ExportFormat::Chrome);
    let family = Some(&chosen).filter(|_| is_picture && others > 0 && !args.alone);
    if others > 0 && !is_picture && !args.alone {
        let (dir, others) = (chosen.dir().display(), count(others as u64));
        note!("{dir}: the processes that came from it ({others}) are left out; perfetto and chrome take them too");
    }
    // With a family, each session is opened in its turn, and counted by one clock.
    let trace = Trace::open(chosen.dir())?.aligned(args.align && family.is_none())?.named();
    // What is asked for has to be possible before a file is overwritten.
    let filter = Filter::new(&trace, &args.filter.wanted())?;
    let name = args.output.display();
    let bytes = Arc::new(AtomicU64::new(0));
    let (whole, out): (Option<Whole>, Box<dyn Write + Send>) = match args.output == Path::new("-") {
        true => (None, Box::new(io::stdout())),
        false => {
            let (whole, file) = Whole::create(&args.output).with_context(|| format!("cannot make {name}"))?;
            (Some(whole), Box::new(file))
        }
    };
    let mut writer = Writer::start(Counting { out, bytes: Arc::clone(&bytes) })?;
    let out = &mut writer;
    let progress = Arc::new(Progress::default());
    let watch = Watch::start(&progress);
    let mut is_whole = true;
    let written = match (args.format, family) {
        (ExportFormat::Perfetto, Some(family)) => {
            family::write(family, args, &progress, &mut PerfettoSink::new(out), &mut is_whole)
        }
        (ExportFormat::Chrome, Some(family)) => {
            family::write(family, args, &progress, &mut ChromeSink::new(out), &mut is_whole)
        }
        (ExportFormat::Perfetto, None) => write_one(&trace, args, &filter, &progress, &mut PerfettoSink::new(out)),
        (ExportFormat::Chrome, None) => write_one(&trace, args, &filter, &progress, &mut ChromeSink::new(out)),
        (ExportFormat::Folded, _) if args.filter.any().is_some() => {
            folded::write(&trace, args, &filter, &progress, out)
        }
        (ExportFormat::Folded, _) => write_one(&trace, args, &filter, &progress, &mut FoldedSink::new(out)),
        (ExportFormat::Parquet, _) => {
            let mut wanted = Pick::new(&trace, &filter);
            let config = args.session.making.config();
            let rows = table::write(&trace, config, args.registers, &progress, out, |span| wanted.has(span));
            rows.map(|rows| {
                super::say_if_nothing(&trace.dir, &filter, rows == 0);
                counted(rows, "span")
            })
        }
        (ExportFormat::Heph, _) => {
            heph::write(&trace, args.wire.unwrap_or_default(), &progress, out).map(|events| counted(events, "event"))
        }
    };
    drop(watch);
    let end =
        |what| writer.finish().map(|()| what).map_err(|error| SinkError::from_io("cannot write it", error).into());
    match written.and_then(end) {
        Ok(what) => {
            whole.map_or(Ok(()), Whole::finish).with_context(|| format!("cannot write {name}"))?;
            note!("{name}: {what}, {}", Size(bytes.load(Relaxed)));
        }
        Err(error) if matches!(error.downcast_ref(), Some(SinkError::Closed)) => {}
        Err(error) => return Err(error).with_context(|| format!("cannot write {name}")),
    }
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes a session, and tells how many spans it has.
fn write_one(
    trace: &Trace,
    args: &ExportArgs,
    filter: &Filter,
    progress: &Progress,
    sink: &mut impl Sink,
) -> Result<String> {
    begin(trace, progress);
    let count = export::write(trace, args.session.making.config(), filter, sink, &mut |events| progress.reach(events))?;
    super::say_if_nothing(&trace.dir, filter, count == 0);
    Ok(counted(count, "span"))
}

/// Work on a session begins.
fn begin(trace: &Trace, progress: &Progress) {
    progress.begin(trace.name(), trace.events());
    super::say_if_unfinished(trace);
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
