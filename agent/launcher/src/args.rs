//! The command line.

mod ctl;
mod destination;
mod rules;
mod selection;
mod variable;

use std::{ffi::OsString, path::PathBuf, str::FromStr, time::Duration};

use clap::{
    Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, builder::BoolishValueParser, error::ErrorKind,
};
use steering::Budget;

pub(crate) use self::{
    ctl::CtlArgs,
    destination::{AccessArgs, DestinationArgs, Transport, Wire},
    rules::RuleArgs,
    selection::{Selected, SelectionArgs},
};
use crate::{
    engine::Engine,
    quantity::{Period, Size},
};

const EXAMPLES: &str = "\
Examples:
  agent record -o traces -- ls -l
      Run a program and write every call it makes to a directory; `collector top traces` shows them.
  agent run -- ls -l
      Run a program and send every call it makes to a collector on this machine.
  agent run --to workstation:7000 --transport tcp --exclude 'libcrypto.so*' -- ./server --port 80
      Send them to another machine, and exclude a library.
  agent record --only 'my_*' --exclude my_hot --max-depth my_main:4 -- ./server
      Record only some functions, and limit the depth of calls.
  agent run --to workstation:7000 --transport quic --tls-pin sha256:3f0c… --token-file token -- ./server
      Send them encrypted, to a collector with `--tls self --token-file token`.
  agent attach --to workstation:7000 4711
      Trace a running process; Ctrl-C detaches and leaves it as it was.
  agent list ./server
      Print which functions would be hooked and, for the others, why not.

Exit codes: 0 success, 1 failure, 2 wrong usage. `agent run` and `agent record` exit as the program did, or with 125 if this
command failed before the program began (no collector, no permission), 126 if the program cannot be run, and 127 if it does not
exist.";

/// Traces every function call of a program and sends it to a collector
#[derive(Debug, Parser)]
#[command(name = "agent", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program and trace it from its first instruction to its end
    Run(RunArgs),
    /// Run a program, trace it as `run` does, and write the trace to a directory on this machine
    Record(RecordArgs),
    /// Trace a running process, until it ends or this command is stopped
    Attach(AttachArgs),
    /// Show the status of a running trace, or change what it records
    Ctl(CtlArgs),
    /// Print which functions of a program would be hooked and, for the others, why not
    List(ListArgs),
    /// Check whether this machine can trace and, if not, print what to do
    Doctor(DoctorArgs),
    /// Install Frida, in a version that is known to work, into a private environment
    Setup {
        /// Print errors only
        #[arg(long, short)]
        quiet: bool,
    },
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, in roff
    Man,
    /// Wait until standard input ends: what `doctor` practises on
    #[command(hide = true)]
    Idle,
    /// Keep the main thread of a process out of Frida's way until standard input ends
    #[command(hide = true)]
    Park { pid: i32 },
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) destination: DestinationArgs,
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    /// Which child processes to trace, too: none, forked children, or also other programs
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Follow::All, help_heading = "What to record")]
    pub(crate) follow: Follow,
    /// The program, searched for in PATH as a shell does, and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub(crate) program: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// The directory to write to; each session gets a directory in it
    #[arg(long, short, value_name = "DIR", default_value = "traces")]
    pub(crate) output: PathBuf,
    /// The collector to write with; by default the one beside this command, else the one in PATH
    #[arg(long, value_name = "PATH")]
    pub(crate) collector: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    /// Which child processes to trace, too: none, forked children, or also other programs
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Follow::All, help_heading = "What to record")]
    pub(crate) follow: Follow,
    /// The program, searched for in PATH as a shell does, and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub(crate) program: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    pub(crate) destination: DestinationArgs,
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    /// Which child processes started from now on to trace, too: none, forked children, or also other programs
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Follow::None, help_heading = "What to record")]
    pub(crate) follow: Follow,
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: i32,
}

/// What to trace, and how.
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    pub(crate) rules: RuleArgs,
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
    /// Whether to read the source file and line of each function
    ///
    /// This takes time where debug files are large.
    #[arg(long, value_enum, value_name = "WHETHER", default_value_t = Lines::Read, env = "SPOOR_LINES",
        help_heading = "Names")]
    pub(crate) lines: Lines,
    /// Bytes of stack to record with each call, from the stack pointer upward: 0 to 512, a multiple of 8
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = stack_bytes, help_heading = "What to record")]
    pub(crate) stack_bytes: u32,
    /// Record only functions and times, no registers and no stack
    #[arg(long, help_heading = "What to record")]
    pub(crate) no_detail: bool,
    /// Record no calls that are nested deeper than N. May be repeated
    ///
    /// With FUNCTION:N, record no calls that are more than N calls below that function. Calls outside of it are recorded as
    /// without this option.
    #[arg(long, value_name = "[FUNCTION:]N", help_heading = "What to record", value_parser = rules::depth)]
    pub(crate) max_depth: Vec<String>,
    /// Processor time that tracing may take, as a share of the program's own: 10%, 50%, 2x, or none for no limit
    ///
    /// 2x is as much time again as the program takes. To stay within the budget, the agent only counts the calls of the
    /// functions that are called most, and records some of them now and then. Without this option, it does so only where
    /// events would be lost. With none, it never does: it drops events that do not fit.
    #[arg(long, value_name = "SHARE", conflicts_with = "complete", help_heading = "Limits")]
    pub(crate) budget: Option<Budget>,
    /// Record every call: a thread waits if its calls cannot be sent fast enough
    #[arg(long, help_heading = "Limits")]
    pub(crate) complete: bool,
    /// How long --complete may stop a thread while the collector takes nothing: a time, 0s, or never
    ///
    /// After that time the program goes on, and the agent drops events until the collector takes something again. 0s never
    /// stops the program for that, and never stops it until the collector is back.
    #[arg(long, value_name = "TIME", default_value = "10s", help_heading = "Limits")]
    pub(crate) stall: Stall,
    /// Size of the ring buffer of each thread; a power of two
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = ring_bytes, help_heading = "Limits")]
    pub(crate) ring_bytes: Size,
    /// Memory for sent events that the collector has not confirmed yet
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = replay_bytes, help_heading = "Limits")]
    pub(crate) replay_bytes: Size,
    /// How long hooking all functions may take. By default it depends on how many there are
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    pub(crate) startup_timeout: Option<Period>,
    /// How long to wait at the end for a collector that takes nothing
    ///
    /// The command waits for the collector to confirm all events, as long as the collector takes something.
    #[arg(long, value_name = "TIME", default_value = "10s", help_heading = "Limits")]
    pub(crate) linger: Period,
    /// Maximum number of processes to trace at once; others run untraced
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = "Limits",
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) max_processes: u32,
    /// How to inject the library into the program. By default with Frida where it is installed, else natively
    #[arg(long, value_enum, value_name = "ENGINE", env = "SPOOR_ENGINE")]
    pub(crate) engine: Option<Engine>,
    /// Refuse requests from the collector (`collector ctl`)
    #[arg(long, env = "SPOOR_NO_REMOTE_CONTROL", value_parser = BoolishValueParser::new())]
    pub(crate) no_remote_control: bool,
    #[command(flatten)]
    pub(crate) frida: FridaArgs,
    /// At the end, write a summary of the trace to this file, as a JSON object; - is standard error
    #[arg(long, value_name = "FILE|-")]
    pub(crate) summary: Option<PathBuf>,
    /// Print errors only
    #[arg(long, short, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print more
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// Whether source lines are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Lines {
    /// Read them where there is debug information
    Read,
    /// Read none
    None,
}

/// Which processes that a program starts are traced, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Follow {
    /// No child processes
    None,
    /// Forked children, but no other programs
    Fork,
    /// Forked children, and all programs that are started
    All,
}

/// Where to find the names of functions of stripped modules.
#[derive(Debug, Args)]
#[command(next_help_heading = "Names")]
pub(crate) struct SymbolArgs {
    /// Also search this directory for debug files; it has the layout of /usr/lib/debug. May be repeated
    #[arg(long, value_name = "DIR")]
    pub(crate) debug_dir: Vec<PathBuf>,
    /// Download debug files that are not on this machine from the servers in DEBUGINFOD_URLS
    #[arg(long)]
    pub(crate) debuginfod: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Frida")]
pub(crate) struct FridaArgs {
    /// The Python interpreter that loads Frida. By default that of `agent setup`, else the one in PATH
    #[arg(long, value_name = "PATH")]
    pub(crate) frida_python: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) rules: RuleArgs,
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
    /// List every function
    #[arg(long)]
    pub(crate) functions: bool,
    /// Print JSON, one object for each module
    #[arg(long)]
    pub(crate) json: bool,
    /// The program, searched for in PATH as a shell does
    #[arg(value_name = "PROGRAM")]
    pub(crate) program: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// The collector, to check that it can be reached
    #[arg(long, value_name = "HOST:PORT", env = "SPOOR_TO", value_parser = destination::host_and_port)]
    pub(crate) to: Option<String>,
    /// The engine to check: with `native`, Frida is not checked
    #[arg(long, value_enum, value_name = "ENGINE", env = "SPOOR_ENGINE")]
    pub(crate) engine: Option<Engine>,
    #[command(flatten)]
    pub(crate) frida: FridaArgs,
}

/// How long a thread may wait for a collector that takes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stall(pub(crate) Option<Duration>);

impl FromStr for Stall {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "never" => Ok(Self(None)),
            _ => text.parse().map(|Period(time)| Self(Some(time))).map_err(|error| format!("{error}, or never")),
        }
    }
}

/// Reads the command line, and what the environment says where that is silent. Ends where one of them is wrong, and for
/// `--help` and the like.
pub(crate) fn parse() -> Cli {
    let mut command = Cli::command();
    let parsed = command.try_get_matches_from_mut(std::env::args_os()).and_then(|matches| {
        let mut cli = Cli::from_arg_matches(&matches)?;
        if let (Some((_, matches)), Some(destination)) = (matches.subcommand(), cli.destination()) {
            destination.access.prefer_command_line(matches)?;
        }
        Ok(cli)
    });
    parsed.unwrap_or_else(|error| variable::name_in(error, &command).exit())
}

impl Cli {
    fn destination(&mut self) -> Option<&mut DestinationArgs> {
        match &mut self.command {
            Command::Run(args) => Some(&mut args.destination),
            Command::Attach(args) => Some(&mut args.destination),
            _ => None,
        }
    }
}

/// Says what is wrong with an argument that clap could not check, and ends as clap does.
pub(crate) fn wrong_usage(message: &str) -> ! {
    Cli::command().error(ErrorKind::ValueValidation, message).exit()
}

fn stack_bytes(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(bytes @ 0..=512) if bytes % 8 == 0 => Ok(bytes),
        _ => Err("expected a multiple of 8 from 0 to 512".into()),
    }
}

fn ring_bytes(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    let fits = size.0.is_power_of_two() && (64 << 10..=1 << 30).contains(&size.0);
    if fits { Ok(size) } else { Err("expected a power of two from 64KiB to 1GiB".into()) }
}

fn replay_bytes(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    if (1 << 20..=64 << 30).contains(&size.0) { Ok(size) } else { Err("expected from 1MiB to 64GiB".into()) }
}
