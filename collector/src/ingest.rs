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

use crate::{
    args::{self, IngestArgs},
    hub::Hub,
    notices::Notices,
    service, settings,
    tee::Tee,
};

/// What is read at a time.
const READ_BYTES: usize = 256 << 10;

pub(crate) fn run(args: &IngestArgs) -> Result<ExitCode> {
    let sinks = settings::sinks(&args.sinks).unwrap_or_else(|wrong| args::wrong_usage(wrong));
    let name = args.input.display().to_string();
    let mut input: Box<dyn Read> = if args.input == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(&args.input).with_context(|| format!("cannot open {name}"))?)
    };
    let notices = Arc::new(Notices::new());
    let tee = Tee::open(&sinks, &args.spans.config(), args.limits.memory.0, &notices)?;
    // A file is never silent, and nobody floods us with one. Where it has more sessions than may be open, the one that
    // was longest without a packet is over.
    let config = Config {
        openings_per_second: u64::MAX,
        evict_time: Duration::ZERO,
        ..settings::core_config(&args.limits, Duration::MAX)
    };
    let hub = Hub::new(config, settings::catalog_limits(&args.limits), tee, notices);
    hub.post.add_stream(0, format!("file {name}"), None);
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
            hub.ledger.tcp_bytes.fetch_add(read as u64, Relaxed);
            filled += read;
            let consumed = hub.bytes(0, buffer.get(..filled).unwrap_or_default(), read == 0).await;
            if read == 0 {
                break Ok(());
            }
            buffer.copy_within(consumed..filled, 0);
            filled -= consumed;
            hub.tick().await;
        };
        hub.disconnected(0).await;
        let finished = hub.finish(How::Closed).await;
        hub.notices.say_always(service::total(&hub));
        let skipped = hub.ledger.core().skipped_bytes;
        if skipped > 0 {
            hub.notices.say_always(format!("{skipped} bytes of {name} are no packets and were skipped"));
        }
        hub.notices.finish();
        result.with_context(|| format!("cannot read {name} to its end"))?;
        let core = hub.ledger.core();
        if core.sessions == 0 {
            bail!("{name} has no packet in it");
        }
        let refused = core.refused_sessions > 0 || core.refused_stream_events > 0;
        let whole = !refused && hub.ledger.lost_by_disks() == 0;
        Ok(if finished && whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}
