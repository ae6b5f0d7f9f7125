//! The command line.

mod access;
mod ctl;
mod diff;
mod filter;
mod nats;
mod sessions;
mod spans;
mod sql;
mod view;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{
    Args, CommandFactory, Parser, Subcommand, ValueEnum,
    builder::{OsStringValueParser, TypedValueParser},
    error::ErrorKind,
};
use fleet::Address;
use sinks::SyncWhen;

use crate::{
    archive::Wanted,
    log::{LogFormat, LogLevel},
    quantity::{Period, Size},
    sink_spec::{OnFull, SinkSpec},
    ui::name_of_server,
};

pub(crate) use self::access::{AccessArgs, CertificateArgs, TlsMode};
pub(crate) use self::ctl::CtlArgs;
pub(crate) use self::diff::DiffArgs;
pub(crate) use self::filter::FilterArgs;
pub(crate) use self::nats::NatsArgs;
pub(crate) use self::sessions::{SessionOrder, SessionsArgs};
pub(crate) use self::spans::{
    AskingArgs, ExportArgs, ExportFormat, MakingArgs, SpanOrder, SpansArgs, StatsArgs, TableArgs, TopArgs, TopOrder,
    TreeArgs, WireForm,
};
pub(crate) use self::sql::SqlArgs;
#[cfg(feature = "sql")]
pub(crate) use self::sql::SqlFormat;
pub(crate) use self::view::ViewArgs;

const EXAMPLES: &str = "\
Examples:
  collector --listen 0.0.0.0:7000
      Receive traces over UDP and TCP, and write each session to ./traces.
  collector --tls self --token-file token
      Receive them encrypted, from senders that know the token.
  collector --listen 127.0.0.1:0 --once --sink disk:/var/traces --sink stdout:events
      Receive one session on a free port, write it, and print its events as JSON.
  collector sessions traces --program nginx --since 2h
      List the sessions of a program that ran in the last two hours.
  collector info traces/20260101-120000-1
      Print what a session directory holds.
  collector spans traces/20260101-120000-1 --sort duration --limit 20
      Print the 20 longest spans.
  collector diff traces/before traces/after --sort self
      Print what functions take more or less time than before.
  collector sql 'select program, sum(missing) from sessions group by program' traces
      Query all sessions in SQL.
  collector top traces --live
      Watch the session that is being recorded.
  collector ctl 20260101-120000-1 level off 'libcrypto.so*'
      Make the agent of a running session record nothing of a library.
  collector verify traces && echo complete
      Check all checksums and links, and that every event is accounted for.

Exit codes: 0 success, 1 failure, 2 wrong usage.";

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
    /// Read Heph packets from a file or standard input, as if they had arrived over the network
    Ingest(IngestArgs),
    /// Describe a session, or each session of a directory
    ///
    /// If sessions of a directory are parents and children, prints one line per session, below its parent.
    Info(InfoArgs),
    /// List sessions: time, machine, program, how they ended, size, and what is missing
    ///
    /// Exits with 1 if one cannot be read.
    Sessions(SessionsArgs),
    /// Print the events of a session
    Events(EventsArgs),
    /// Print the spans of a session: what ran, from when to when, and what caused it
    ///
    /// Derives spans from the events, by the same rules as while recording. Prints each span once: when it ends, or at the
    /// end of the trace if it is still open.
    Spans(SpansArgs),
    /// Print the functions that took most of the time
    ///
    /// Prints for each function the number of calls, the time with and without its callees, and percentiles of single
    /// calls, which are at most 1.6 % too high. For a recursive function, the total counts only the outermost calls.
    Top(TopArgs),
    /// Print the call tree; calls of one function from the same place share a line
    ///
    /// Without --thread and --task, prints the whole session by cause: threads, blocks, tasks and callbacks appear below the
    /// one of these that created them, marked with their kind, with the calls that were made in them. The frame of the code
    /// of such a span is not shown separately. Child processes appear below the calls that made them, if their sessions are
    /// in the same directory.
    Tree(TreeArgs),
    /// Compare the functions of two sessions: calls, total time and self time
    ///
    /// Matches functions by name and by the file name of their module. Lists those that differ by more than the calls of a
    /// function vary by chance, those that differ most first.
    Diff(DiffArgs),
    /// Print statistics of spans by runtime: how many matched, why others did not, durations and latencies
    Stats(StatsArgs),
    /// Query any number of sessions in SQL
    ///
    /// The tables are spans, functions, modules, threads, sessions and gaps. `describe spans` prints the columns of one.
    /// Exits with 1 if the query is wrong, or if a session cannot be read; the answer leaves that session out.
    Sql(SqlArgs),
    /// Write a session as a file for other tools
    ///
    /// With --format perfetto and chrome, the file also contains its child processes.
    Export(ExportArgs),
    /// Show sessions in a browser: what ran when, what took the time, what is missing
    ///
    /// Serves on this machine alone, or beyond it over TLS, prints the address, opens it, and ends with Ctrl-C. Only those
    /// who have the address can connect.
    View(ViewArgs),
    /// Check checksums, counts, links, order and spans; exit with 1 if anything is wrong, and list what was not checked
    Verify(DirArgs),
    /// Complete sessions whose collector was killed
    Repair(RepairArgs),
    /// Show the status of a session that is being traced, or change what its agent records
    ///
    /// Sends the request to the collectors of this user on this machine, which pass it on to the agent of the session.
    Ctl(CtlArgs),
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
    /// Address to listen on, for both UDP and TCP; port 0 picks a free port. May be repeated
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:7000")]
    pub(crate) listen: Vec<SocketAddr>,
    /// Accept only UDP, or with TLS only QUIC
    #[arg(long, conflicts_with = "tcp")]
    pub(crate) udp: bool,
    /// Accept only TCP, or with TLS only TLS over TCP
    #[arg(long)]
    pub(crate) tcp: bool,
    /// Receive only over sockets that are passed over standard input
    ///
    /// Standard input is a socket itself. The collector stops when it and the passed sockets are closed.
    #[arg(long, conflicts_with_all = ["listen", "udp", "tcp", "once", "tls", "tls_cert", "tls_ca", "token_file"])]
    pub(crate) stdin: bool,
    /// Exit after the first session
    #[arg(long)]
    pub(crate) once: bool,
    /// Record sessions from this JetStream stream, and do not listen
    ///
    /// Other collectors publish the sessions with a nats: sink. Any number of recorders share them.
    #[arg(long, value_name = "nats://HOST:PORT/STREAM")]
    #[arg(conflicts_with_all = ["listen", "udp", "tcp", "stdin", "once", "tls", "tls_cert", "tls_ca", "token_file"])]
    pub(crate) source: Option<Address>,
    /// Interval at which to print counters; on a terminal a live status line replaces them
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = tenth_of_a_second)]
    pub(crate) stats: Period,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    /// Number of recorder threads; each session belongs to one of them. By default half the number of processors
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub(crate) recorders: Option<u64>,
    /// Serve all counters as Prometheus text at this address
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Serve the viewer of `collector view` at this address, also for sessions that are being recorded
    ///
    /// It shows the sessions of the first disk sink. An address that others can reach needs --tls, or --tls-cert and
    /// --tls-key.
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) ui: Option<SocketAddr>,
    /// A name or address of this machine by which browsers connect, without the port. May be repeated
    ///
    /// The viewer does not answer requests for other names. By default the name is the address of --ui or, if that stands
    /// for all addresses, the name of this machine.
    #[arg(long = "ui-name", value_name = "NAME", requires = "ui", value_parser = name_of_server)]
    pub(crate) ui_names: Vec<String>,
    /// Close a session after this much silence
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = tenth_of_a_second)]
    pub(crate) session_timeout: Period,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    #[command(flatten)]
    pub(crate) sinks: SinkArgs,
    #[command(flatten)]
    pub(crate) spans: MakingArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    /// Receive buffer to request for each UDP socket
    #[arg(long, value_name = "SIZE", default_value = "32MiB", help_heading = "Limits")]
    pub(crate) receive_buffer: Size,
    /// Maximum number of concurrent TCP and QUIC connections
    #[arg(long, value_name = "N", default_value_t = 512, help_heading = "Limits", value_parser = at_least_one)]
    pub(crate) max_connections: usize,
}

#[derive(Debug, Args)]
pub(crate) struct SinkArgs {
    /// Where to write sessions, such as disk:DIR. May be repeated
    ///
    /// disk:DIR, stdout:events, stdout:spans, stdout:heph, heph:FILE, heph:FILE,compat, perfetto:FILE, chrome:FILE,
    /// otlp:http://HOST:4318, otlp+grpc:http://HOST:4317, or nats://HOST:PORT/STREAM for other collectors to record.
    ///
    /// Append `,on-full=block` or `,on-full=drop` to override --on-full. disk:DIR,spans=live makes spans.parquet while
    /// events arrive and not after the session; disk:DIR,spans=no makes none.
    #[arg(long = "sink", value_name = "SPEC", default_value = "disk:./traces", help_heading = "Sinks")]
    pub(crate) sinks: Vec<SinkSpec>,
    /// What to do when the queue of a sink is full: block, or drop events and record a gap
    ///
    /// Blocking eventually blocks the senders. By default disk: and a sole sink block; others drop.
    #[arg(long, value_enum, value_name = "WHAT", help_heading = "Sinks")]
    pub(crate) on_full: Option<OnFull>,
    /// Do not send shorter frames to otlp: receivers, unless they created something [default: 1ms]
    #[arg(long, value_name = "TIME", help_heading = "Sinks")]
    pub(crate) otlp_min: Option<Period>,
    /// Maximum size of each disk:DIR; the collector removes the oldest finished sessions
    #[arg(long, value_name = "SIZE", help_heading = "Sinks")]
    pub(crate) max_bytes: Option<Size>,
    /// Continue a session in a new directory when its directory reaches this size
    #[arg(long, value_name = "SIZE", help_heading = "Sinks")]
    pub(crate) rotate_bytes: Option<Size>,
    /// Continue a session in a new directory when its directory reaches this age
    #[arg(long, value_name = "TIME", help_heading = "Sinks")]
    pub(crate) rotate_every: Option<Period>,
    /// When to write the files of disk: sinks to survive a power failure: never, at each session's end, or every TIME
    ///
    /// With end or TIME, the agent keeps its events until the files survive a power failure.
    #[arg(long, value_name = "none|end|TIME", default_value = "none", value_parser = sync, help_heading = "Sinks")]
    pub(crate) sync: SyncWhen,
    /// Permissions of new directories, in octal; new files have the same without execution
    ///
    /// Traces contain registers and stacks, so by default only their owner may read them.
    #[arg(long, value_name = "MODE", default_value = "700", value_parser = mode, help_heading = "Sinks")]
    pub(crate) mode: u32,
    /// Archive finished sessions of disk: sinks: s3://BUCKET/PREFIX, file:///DIR or a directory
    ///
    /// All commands that look at sessions open them there.
    #[arg(long, value_name = "PLACE", value_parser = place(), help_heading = "Sinks")]
    archive: Option<PathBuf>,
    /// Remove sessions from disk: sinks once they are archived, after reading the archive back
    #[arg(long, requires = "archive", help_heading = "Sinks")]
    archive_remove: bool,
    #[command(flatten)]
    pub(crate) nats: NatsArgs,
}

impl SinkArgs {
    /// Where sessions are to be archived, if they are.
    pub(crate) fn archive(&self) -> Option<Wanted> {
        let place = self.archive.clone()?;
        Some(Wanted { place, remove: self.archive_remove })
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Maximum number of packets of a stream that wait for a missing event
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub(crate) reorder_packets: u64,
    /// How long events wait for a missing one whose sender does not retransmit
    #[arg(long, value_name = "TIME", default_value = "500ms")]
    pub(crate) reorder_time: Period,
    /// How long the collector requests a missing event from its agent before it gives up
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(crate) replay_time: Period,
    /// Memory limit of the collector
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = memory)]
    pub(crate) memory: Size,
    /// Maximum packet size
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = packet_size)]
    pub(crate) max_packet_bytes: Size,
    /// Maximum number of open sessions
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = at_least_one)]
    pub(crate) max_sessions: usize,
    /// Maximum number of streams (threads) per session; all sessions together may have four times as many
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = at_least_one)]
    pub(crate) max_streams: usize,
    /// Maximum number of function names per session
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) max_functions: usize,
    /// Maximum length of a name
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    pub(crate) max_name_bytes: Size,
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Log events of this level and above on standard error
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "info")]
    pub(crate) log: LogLevel,
    /// Log plain lines, or JSON with level, time, session, peer and sink
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    pub(crate) log_format: LogFormat,
}

#[derive(Debug, Args)]
pub(crate) struct IngestArgs {
    /// The file, or - for standard input
    #[arg(value_name = "FILE|-")]
    pub(crate) input: PathBuf,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) sinks: SinkArgs,
    #[command(flatten)]
    pub(crate) spans: MakingArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DirArgs {
    /// A session directory, or a directory of sessions; also in a bucket: s3://BUCKET/PREFIX
    #[arg(value_name = "DIR", value_parser = place())]
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    /// Print the manifest as JSON, one object per session, with times since the session's zero
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    pub(crate) dir: DirArgs,
    /// Also truncate a thread at the first event whose details are lost, and skip unreadable parts of the journal
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// A session directory; also in a bucket: s3://BUCKET/PREFIX/SESSION
    #[arg(value_name = "DIR", value_parser = place())]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Count times by the collector's clock, since 1970, and not from the session's zero
    ///
    /// This makes sessions of several machines comparable.
    #[arg(long)]
    pub(crate) align: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

impl ValueEnum for OnFull {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Block, Self::Drop]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.name()))
    }
}

/// A directory, or what is like one in a bucket.
fn place() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|text| match text.to_str() {
        // `top --live` looks at collectors, too.
        Some(text) if !["http://", "https://"].iter().any(|scheme| text.starts_with(scheme)) => storage::place(text),
        _ => Ok(text.into()),
    })
}

/// Reports arguments that conflict, and exits as clap does.
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

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && mode & 0o700 == 0o700);
    mode.ok_or_else(|| "expected octal digits that allow the owner everything, such as 750".into())
}

fn sync(text: &str) -> Result<SyncWhen, String> {
    match text {
        "none" => Ok(SyncWhen::Never),
        "end" => Ok(SyncWhen::End),
        time => match time.parse::<Period>() {
            Ok(Period(time)) if time >= Duration::from_millis(10) => Ok(SyncWhen::Every(time)),
            _ => Err("expected none, end, or a time of at least 10ms, such as 200ms".into()),
        },
    }
}

fn packet_size(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    let limit = u64::from(codec::heph::MAX_PACKET_BYTES);
    if (1024..=limit).contains(&size.0) { Ok(size) } else { Err("expected from 1KiB to 1MiB".into()) }
}
