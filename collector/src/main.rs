//! The `collector` command: receives traces over UDP, TCP, TLS and QUIC, accounts for every event, and writes them; and looks at
//! what was written.
//!
//! ```text
//! udp, tcp, quic, ingest ─▶ receiver (core) ─▶ recorders, by session ─▶ sinks
//!                      └─▶ post ─▶ the agents
//! ```

#![forbid(unsafe_code)]

/// Prints a line for people on standard error. That nobody reads it any more is no reason to end otherwise.
macro_rules! note {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

mod archive;
mod args;
mod asking;
mod control;
mod ctl;
mod door;
mod ingest;
mod listen;
mod log;
mod manual;
mod metrics;
mod names;
mod notices;
mod offline;
mod otlp;
mod quic;
mod receiver;
mod recorder;
mod service;
mod settings;
mod sink_spec;
mod source;
mod status;
mod stdin;
mod summary;
mod tables;
mod tcp;
mod udp;
mod ui;
mod view;

use std::process::ExitCode;

use clap::Parser;
use codec::quantity;

use self::args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        None => service::run(&cli.run),
        Some(Command::Ingest(args)) => ingest::run(args),
        Some(Command::Info(args)) => offline::info::run(args),
        Some(Command::Sessions(args)) => offline::sessions::run(args),
        Some(Command::Events(args)) => offline::events::run(args),
        Some(Command::Spans(args)) => offline::spans::run(args),
        Some(Command::Top(args)) => offline::top::run(args),
        Some(Command::Tree(args)) => offline::tree::run(args),
        Some(Command::Diff(args)) => offline::diff::run(args),
        Some(Command::Stats(args)) => offline::stats::run(args),
        Some(Command::Sql(args)) => offline::sql::run(args),
        Some(Command::Export(args)) => offline::export::run(args),
        Some(Command::View(args)) => view::run(args),
        Some(Command::Verify(args)) => offline::verify::run(args),
        Some(Command::Repair(args)) => offline::repair::run(args),
        Some(Command::Ctl(args)) => ctl::run(args),
        Some(Command::Completions { shell }) => manual::completions(*shell),
        Some(Command::Man) => manual::man(),
    };
    result.unwrap_or_else(|error| {
        note!("collector: {error:#}");
        ExitCode::FAILURE
    })
}
