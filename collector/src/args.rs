//! What can be said on the command line.

mod spans;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, error::ErrorKind};

use crate::{
    quantity::{Period, Size},
    sink_spec::{OnFull, SinkSpec},
};

pub(crate) use self::spans::{
    ExportArgs, ExportFormat, MakingArgs, SpanOrder, SpansArgs, StatsArgs, TableArgs, TopArgs, TopOrder, TreeArgs,
    WhichArgs,
};

const EXAMPLES: &str = "\
Examples:
  collector --listen 0.0.0.0:7000
      Take traces over UDP and TCP, and write each session to ./traces.
  collector --listen 127.0.0.1:0 --once --sink disk:/var/traces --sink stdout:events
      Take one session on a free port, write it, and print its events as JSON.
  collector info traces/20260101-120000-1
      Say what a session directory holds.
  collector spans traces/20260101-120000-1 --sort duration --limit 20
      Print what took longest.
  collector verify traces && echo complete
      Check every checksum, every link and the sum of all events.

Exit codes: 0 done, 1 failed, 2 wrong usage.";

/// Receives traces over UDP and TCP, accounts for every event, and writes them
#[derive(Debug, Parser)]
#[command(name = "collector", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
#[command(disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Take a file of Heph packets, or standard input, through the same way as what comes over the network
    Ingest(IngestArgs),
    /// Say what a session directory, or a directory of sessions, holds
    Info(InfoArgs),
    /// Print the events of a session
    Events(EventsArgs),
    /// Print the spans of a session: what ran, from when to when, and what caused it
    ///
    /// Spans are made again from the events, as they were while the trace was recorded. Each is printed once: when it ends,
    /// or at the end where it has not.
    Spans(SpansArgs),
    /// Print the functions of a session by how long they took
    ///
    /// For each function how often it was called, how long it took with and without what it called, and how its calls are
    /// spread. Percentiles are at most 1.6 % too high. Where a function calls itself, directly or not, the total counts
    /// only the outermost call.
    Top(TopArgs),
    /// Print what called what, with the calls of one function from one place together
    ///
    /// Without --thread and --task, the story of the whole session: threads, blocks, tasks and callbacks, each below the one
    /// that created it and marked with its kind, with the calls that were made in it. A function that is the code of such a
    /// span is not shown beside it.
    Tree(TreeArgs),
    /// Say how well the spans of a session fit together, by runtime: how many matched, why others did not, how long they
    /// waited
    Stats(StatsArgs),
    /// Make a session into a file for other programs
    Export(ExportArgs),
    /// Check every checksum, every link and the accounting; exit with 1 if anything is wrong
    Verify(DirArgs),
    /// Finish sessions whose collector was killed
    Repair(RepairArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, in roff
    Man,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Where to listen, for UDP and TCP on one port; port 0 takes a free one. May be given more than once
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:7000")]
    pub(crate) listen: Vec<SocketAddr>,
    /// Take only UDP
    #[arg(long, conflicts_with = "tcp")]
    pub(crate) udp: bool,
    /// Take only TCP
    #[arg(long)]
    pub(crate) tcp: bool,
    /// End after the first session
    #[arg(long)]
    pub(crate) once: bool,
    /// Tell what has been counted every so often; on a terminal there is a live line instead
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = tenth_of_a_second)]
    pub(crate) stats: Period,
    /// Record with this many threads; each session belongs to one of them. Half as many as there are processors by default
    #[arg(long, value_name = "COUNT")]
    pub(crate) recorders: Option<usize>,
    /// Serve all counters as Prometheus text at this address
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Close a session that has been silent for so long
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = tenth_of_a_second)]
    pub(crate) session_timeout: Period,
    #[command(flatten)]
    pub(crate) sinks: SinkArgs,
    #[command(flatten)]
    pub(crate) spans: MakingArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    /// The receive buffer to ask the system for, for each UDP socket
    #[arg(long, value_name = "SIZE", default_value = "32MiB", help_heading = "Limits")]
    pub(crate) receive_buffer: Size,
    /// TCP connections at a time
    #[arg(long, value_name = "N", default_value_t = 512, help_heading = "Limits", value_parser = at_least_one)]
    pub(crate) max_connections: usize,
}

#[derive(Debug, Args)]
pub(crate) struct SinkArgs {
    /// Where to write: disk:DIR, stdout:events, stdout:spans, stdout:heph, heph:FILE, heph:FILE,compat, perfetto:FILE,
    /// chrome:FILE. May be given more than once; `,on-full=block` or `,on-full=drop` may follow; disk:DIR,spans=no
    /// writes no spans
    #[arg(long = "sink", value_name = "SPEC", default_value = "disk:./traces", help_heading = "Sinks")]
    pub(crate) sinks: Vec<SinkSpec>,
    /// What to do when a sink's queue is full: wait for it, which in time makes the senders wait, or leave events out
    /// and say so. By default disk: waits, and so does a sink that is alone; others leave out
    #[arg(long, value_enum, value_name = "WHAT", help_heading = "Sinks")]
    pub(crate) on_full: Option<OnFull>,
    /// Keep at most so much under each disk:DIR; the oldest finished sessions are removed
    #[arg(long, value_name = "SIZE", help_heading = "Sinks")]
    pub(crate) max_bytes: Option<Size>,
    /// Go on in another directory when a session's has so much
    #[arg(long, value_name = "SIZE", help_heading = "Sinks")]
    pub(crate) rotate_bytes: Option<Size>,
    /// Go on in another directory when a session's is so old
    #[arg(long, value_name = "TIME", help_heading = "Sinks")]
    pub(crate) rotate_every: Option<Period>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Events of a stream that may wait for one that is missing
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub(crate) reorder_packets: u64,
    /// How long they wait
    #[arg(long, value_name = "TIME", default_value = "500ms")]
    pub(crate) reorder_time: Period,
    /// Memory that everything together may take
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = memory)]
    pub(crate) memory: Size,
    /// The largest packet that is taken
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = packet_size)]
    pub(crate) max_packet_bytes: Size,
    /// Sessions open at a time
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = at_least_one)]
    pub(crate) max_sessions: usize,
    /// Streams, which are threads, of one session; all sessions together may have four times as many
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = at_least_one)]
    pub(crate) max_streams: usize,
    /// Functions of one session whose names are kept
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) max_functions: usize,
    /// Bytes of a name that are kept
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    pub(crate) max_name_bytes: Size,
}

#[derive(Debug, Args)]
pub(crate) struct IngestArgs {
    /// The file, or - for standard input
    #[arg(value_name = "FILE|-")]
    pub(crate) input: PathBuf,
    #[command(flatten)]
    pub(crate) sinks: SinkArgs,
    #[command(flatten)]
    pub(crate) spans: MakingArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DirArgs {
    /// A session directory, or a directory of sessions
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    /// Print the manifest's contents as JSON, one object a session
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    /// Also cut off events whose details are gone, and those behind them
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// A session directory
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Only this thread: its stream, its id with the operating system, or its name
    #[arg(long, value_name = "THREAD")]
    pub(crate) thread: Option<String>,
    /// Only functions whose names match: * stands for any characters, ? for one
    #[arg(long, value_name = "GLOB")]
    pub(crate) function: Option<String>,
    /// Only from this time on: since the session's start (1.5s), or in nanoseconds of its clock (123456789ns)
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<Moment>,
    /// Only before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) to: Option<Moment>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// A time in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Since the first event.
    Since(Period),
    /// In nanoseconds of the trace's clock.
    Clock(u64),
}

impl Moment {
    /// In nanoseconds of the trace's clock, where the trace starts at `start`.
    pub(crate) fn on(self, start: u64) -> u64 {
        match self {
            Self::Since(period) => start.saturating_add(u64::try_from(period.0.as_nanos()).unwrap_or(u64::MAX)),
            Self::Clock(nanoseconds) => nanoseconds,
        }
    }
}

impl std::str::FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(number) = text.strip_suffix("ns") {
            let wrong = |_| format!("expected a number of nanoseconds before \"ns\", found {number:?}");
            return number.parse().map(Self::Clock).map_err(wrong);
        }
        text.parse().map(Self::Since)
    }
}

impl ValueEnum for OnFull {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Block, Self::Drop]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.name()))
    }
}

/// Says what is wrong with the arguments together, and ends as clap does where one alone is wrong.
pub(crate) fn wrong_usage(message: String) -> ! {
    Cli::command().error(ErrorKind::ArgumentConflict, message).exit()
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("expected at least 1".into()),
        Ok(number) => Ok(number),
        Err(_) => Err("expected a number".into()),
    }
}

fn tenth_of_a_second(text: &str) -> Result<Period, String> {
    let period: Period = text.parse()?;
    if period.0 < Duration::from_millis(100) { Err("expected at least 100ms".into()) } else { Ok(period) }
}

fn memory(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    if size.0 < 64 << 20 { Err("expected at least 64MiB".into()) } else { Ok(size) }
}

fn packet_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    let limit = u64::from(codec::heph::MAX_PACKET_BYTES);
    if (1024..=limit).contains(&size.0) { Ok(size) } else { Err("expected from 1KiB to 1MiB".into()) }
}
