//! A file of Heph packets, taken the way of what comes over the network.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    process::ExitCode,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use collector_core::{Config, How};
use sinks::EarlierSessions;
use tracing::{info, warn};

use crate::{
    archive::Archiving,
    args::{self, IngestArgs},
    log,
    notices::Notices,
    receiver::Receiver,
    recorder::Recorders,
    service, settings,
    sink_spec::Target,
};

/// What is read at a time.
const READ_BYTES: usize = 256 << 10;

pub(crate) fn run(args: &IngestArgs) -> Result<ExitCode> {
    let sinks = settings::sinks(&args.sinks).unwrap_or_else(|wrong| args::wrong_usage(wrong));
    settings::set_mode(args.sinks.mode);
    let name = args.input.display().to_string();
    let mut input: Box<dyn Read> = if args.input == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(&args.input).with_context(|| format!("cannot open {name}"))?)
    };
    let notices = Arc::new(Notices::new());
    log::start(args.log.log, args.log.log_format, &notices);
    // There is one file, and its sessions follow one another.
    let directories = sinks.iter().filter_map(|sink| match &sink.target {
        Target::Disk { dir, .. } => Some(dir.clone()),
        _ => None,
    });
    let (recorders, tables) = Recorders::start(&sinks, &args.spans.config(), args.limits.memory.0, 1, &notices)?;
    let dirs = directories.collect();
    let archive = args.sinks.archive();
    let archiving = archive.map(|wanted| Archiving::start(wanted, dirs, &recorders.disks, false)).transpose()?;
    // A file is never silent, and nobody floods us with one. Where it has more sessions than may be open, the one that
    // was longest without a packet is over.
    let config = Config {
        wants_claims: false,
        openings_per_second: u64::MAX,
        evict_time: Duration::ZERO,
        ..settings::core_config(&args.limits, Duration::MAX)
    };
    let receiver =
        Receiver::new(config, settings::catalog_limits(&args.limits), recorders, EarlierSessions::default(), notices);
    receiver.post.add_stream(0, format!("file {name}"), None);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(async {
        let mut buffer = vec![0; READ_BYTES];
        let mut filled = 0;
        let result = loop {
            if filled == buffer.len() {
                buffer.resize(buffer.len() * 2, 0);
            }
            let read = match input.read(buffer.get_mut(filled..).unwrap_or_default()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => break Err(error),
                Ok(read) => read,
            };
            receiver.ledger.tcp_bytes.fetch_add(read as u64, Relaxed);
            filled += read;
            let consumed = receiver.bytes(0, buffer.get(..filled).unwrap_or_default(), read == 0);
            if read == 0 {
                break Ok(());
            }
            buffer.copy_within(consumed..filled, 0);
            filled -= consumed;
            receiver.tick();
            receiver.room().await;
        };
        receiver.disconnected(0);
        let finished = receiver.finish(How::Closed).await;
        tables.finish(|line| receiver.notices.status(line));
        let archived = archiving.is_none_or(Archiving::finish);
        info!("{}", service::total(&receiver, finished));
        let skipped = receiver.ledger.core().skipped_bytes;
        if skipped > 0 {
            warn!("{skipped} bytes of {name} are no packets and were skipped");
        }
        receiver.notices.finish();
        result.with_context(|| format!("cannot read {name} to its end"))?;
        let core = receiver.ledger.core();
        if core.sessions == 0 {
            bail!("{name} has no packet in it");
        }
        let refused = core.refused_sessions > 0 || core.refused_stream_events > 0;
        let whole = !refused && receiver.ledger.lost_by_disks() == 0 && receiver.ledger.refused_spans() == 0;
        Ok(if finished && whole && archived { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}
