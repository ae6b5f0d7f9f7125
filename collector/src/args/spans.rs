//! Arguments of the commands that make spans.

use std::path::PathBuf;

use answers::top::Order;
use clap::{
    Args, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};
use codec::access::Pin;
use codec::span::{Reason, Span, SpanKind, SpanRuntime, SpanStatus};
use collector_core::spans::{CallbackRule, SpanConfig};

use super::{FilterArgs, place};
use crate::quantity::{Moment, Period};

/// How spans are made.
#[derive(Debug, Args)]
pub(crate) struct MakingArgs {
    /// Report a span as open when it has not ended after this time
    #[arg(long, value_name = "TIME", default_value = "5s", help_heading = "Making spans")]
    pub(crate) span_timeout: Period,
    /// A function that takes a callback: FUNCTION:argN, or FUNCTION:argN:argM, where argument M is the context passed to
    /// the callback. Arguments count from 0. May be repeated
    #[arg(long = "callback", value_name = "RULE", help_heading = "Making spans")]
    pub(crate) callbacks: Vec<CallbackRule>,
}

impl MakingArgs {
    pub(crate) fn config(&self) -> SpanConfig {
        let timeout_ns = u64::try_from(self.span_timeout.0.as_nanos()).unwrap_or(u64::MAX);
        SpanConfig { timeout_ns, callbacks: self.callbacks.clone(), ..SpanConfig::default() }
    }
}

/// The session that spans are made of.
#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// A session directory; also in a bucket: s3://BUCKET/PREFIX/SESSION
    #[arg(value_name = "DIR", value_parser = place())]
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) making: MakingArgs,
}

/// How a table is written.
#[derive(Debug, Args)]
pub(crate) struct TableArgs {
    /// Print one JSON object per line
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// Print comma-separated values (RFC 4180) with a header line
    #[arg(long)]
    pub(crate) csv: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SpansArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    #[command(flatten)]
    pub(crate) which: WhichArgs,
    /// Only the spans that were open at this moment, by thread, the outermost first
    #[arg(long, value_name = "TIME", conflicts_with_all = ["from", "to", "sort"])]
    pub(crate) around: Option<Moment>,
    /// Sort order; durations and latencies are in descending order. By default, spans appear as they end
    #[arg(long, value_enum, value_name = "ORDER")]
    pub(crate) sort: Option<SpanOrder>,
    /// Count times by the collector's clock, since 1970, and not from the session's zero
    ///
    /// This makes sessions of several machines comparable.
    #[arg(long)]
    pub(crate) align: bool,
    #[command(flatten)]
    pub(crate) table: TableArgs,
}

/// Which spans are wanted.
#[derive(Debug, Default, Args)]
pub(crate) struct WhichArgs {
    /// Only spans of this runtime. This option and the next three may be repeated
    #[arg(long, value_name = "RUNTIME", value_parser = runtime())]
    pub(crate) runtime: Vec<SpanRuntime>,
    /// Only spans of this kind
    #[arg(long, value_name = "KIND", value_parser = kind())]
    pub(crate) kind: Vec<SpanKind>,
    /// Only spans with this status
    #[arg(long, value_name = "STATUS", value_parser = status())]
    pub(crate) status: Vec<SpanStatus>,
    /// Only spans with this reason
    #[arg(long, value_name = "REASON", value_parser = reason())]
    pub(crate) reason: Vec<Reason>,
}

impl WhichArgs {
    /// Whether a span is one of these.
    pub(crate) fn has(&self, span: &Span) -> bool {
        let any = |none: bool, found: bool| none || found;
        any(self.kind.is_empty(), self.kind.contains(&span.kind))
            && any(self.runtime.is_empty(), self.runtime.contains(&span.kind.runtime()))
            && any(self.status.is_empty(), self.status.contains(&span.status))
            && any(self.reason.is_empty(), span.reason.is_some_and(|reason| self.reason.contains(&reason)))
    }
}

/// An order of spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SpanOrder {
    /// Earliest first
    Start,
    /// Longest first
    Duration,
    /// Longest time from creation to start first
    Latency,
    /// Longest suspended first
    Suspended,
    /// By name
    Function,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Rank the spans of this runtime instead of all functions
    #[arg(long, value_name = "RUNTIME", value_parser = runtime(), default_value = "native")]
    pub(crate) runtime: SpanRuntime,
    /// Sort order, descending
    #[arg(long, value_enum, value_name = "BY", default_value = "total")]
    pub(crate) sort: TopOrder,
    /// Show the functions of the last seconds of a session that is being recorded, until it ends or q is pressed
    ///
    /// Counts calls that began, and the time that functions ran. Of a directory of sessions, it takes the latest that is
    /// being written. DIR may also be the address of a viewer: as a collector with --ui has printed it, or HOST:PORT with
    /// --token-file.
    #[arg(long, conflicts_with_all = ["from", "to", "task", "min_duration", "runtime", "csv"])]
    pub(crate) live: bool,
    /// How much time of the session --live shows
    #[arg(long, value_name = "TIME", default_value = "5s", requires = "live", value_parser = super::tenth_of_a_second)]
    pub(crate) last: Period,
    /// How often --live refreshes
    #[arg(long, value_name = "TIME", default_value = "1s", requires = "live", value_parser = super::tenth_of_a_second)]
    pub(crate) every: Period,
    #[command(flatten)]
    pub(crate) asking: AskingArgs,
    #[command(flatten)]
    pub(crate) table: TableArgs,
}

/// How to authenticate a viewer, and to authenticate to it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Asking a collector")]
pub(crate) struct AskingArgs {
    /// A file with the token of the viewer; only its owner may have access to it
    ///
    /// Other users of this machine can see the arguments of programs, and so a token in an address.
    #[arg(long, value_name = "FILE", requires = "live")]
    pub(crate) token_file: Option<PathBuf>,
    /// Encrypt, and trust only the certificate with this SHA-256, as the collector prints it
    #[arg(long, value_name = "FINGERPRINT", requires = "live")]
    pub(crate) tls_pin: Option<Pin>,
    /// Encrypt, and trust certificates that were issued by one in this file, in PEM
    #[arg(long, value_name = "FILE", requires = "live", conflicts_with = "tls_pin")]
    pub(crate) tls_ca: Option<PathBuf>,
}

impl From<TopOrder> for Order {
    fn from(order: TopOrder) -> Self {
        match order {
            TopOrder::Total => Self::Total,
            TopOrder::Own => Self::Own,
            TopOrder::Count => Self::Count,
            TopOrder::P50 => Self::Percentile(500),
            TopOrder::P95 => Self::Percentile(950),
            TopOrder::P99 => Self::Percentile(990),
            TopOrder::Max => Self::Percentile(1000),
        }
    }
}

/// An order of functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopOrder {
    /// Time from entry to return; for recursive functions, of the outermost calls
    Total,
    /// Time without callees
    #[value(name = "self")]
    Own,
    /// Number of calls
    Count,
    /// Median duration of a call
    P50,
    /// 95th percentile of the durations
    P95,
    /// 99th percentile of the durations
    P99,
    /// The longest call
    Max,
}

#[derive(Debug, Args)]
pub(crate) struct TreeArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Only this process, without its child processes
    #[arg(long)]
    pub(crate) alone: bool,
    /// Print the callers of functions whose names match
    ///
    /// Below each function are its callers, and below those their callers, with the calls and times of the function that
    /// came through them. Of one process.
    #[arg(long, value_name = "GLOB", conflicts_with_all = ["function", "alone"])]
    pub(crate) callers: Option<String>,
    /// Hide entries that took less than this share of the whole
    #[arg(long, value_name = "PERCENT", default_value_t = 0.1, value_parser = percent)]
    pub(crate) min_percent: f64,
    /// Print one JSON object per line, one per node; `parent` is the number of its parent node
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatsArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Output file, which is overwritten if it exists; - for standard output
    #[arg(long, short, value_name = "FILE|-")]
    pub(crate) output: PathBuf,
    /// Output format
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: ExportFormat,
    /// Only this process, without its child processes
    ///
    /// By default the file of --format perfetto and chrome contains these, too; other formats are always of one process.
    #[arg(long)]
    pub(crate) alone: bool,
    /// Count times by the collector's clock. Only with --format perfetto and chrome
    ///
    /// Files of several machines then share a time line.
    #[arg(long)]
    pub(crate) align: bool,
    /// Add columns arg0, arg1, … with the argument registers of frames. Only with --format parquet
    ///
    /// The columns have values where registers were captured.
    #[arg(long)]
    pub(crate) registers: bool,
    /// How Heph packets carry function events: runs by default. Only with --format heph
    #[arg(long, value_enum, value_name = "FORM")]
    pub(crate) wire: Option<WireForm>,
}

/// How Heph packets carry function events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum WireForm {
    #[default]
    /// Many consecutive events of a thread in one packet, mostly 8 bytes each
    Runs,
    /// Each event in a packet of its own, for readers that do not know runs
    Plain,
}

/// An output format of `export`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// A Perfetto trace
    Perfetto,
    /// Chrome JSON trace, which many viewers read
    Chrome,
    /// Folded stacks, for flame graphs
    Folded,
    /// The table of spans, like spans.parquet of disk:
    Parquet,
    /// Heph packets, for `collector ingest`
    Heph,
}

fn named<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let parser = PossibleValuesParser::new(all.iter().map(move |one| name(*one)));
    let find = move |text: String| all.iter().copied().find(|one| name(*one) == text).ok_or("it has no such name");
    parser.try_map(find)
}

fn runtime() -> impl TypedValueParser<Value = SpanRuntime> {
    named(SpanRuntime::ALL, SpanRuntime::name)
}

fn kind() -> impl TypedValueParser<Value = SpanKind> {
    named(SpanKind::ALL, SpanKind::name)
}

fn status() -> impl TypedValueParser<Value = SpanStatus> {
    named(SpanStatus::ALL, SpanStatus::name)
}

fn reason() -> impl TypedValueParser<Value = Reason> {
    named(Reason::ALL, Reason::name)
}

/// A number, also in hexadecimal digits.
pub(super) fn number(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| "expected a number such as 17 or 0x7f00".into())
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| "expected a number from 0 to 100".into())
}
