//! The `agent` command: starts a program or attaches to one, has Frida load the agent library into it, hooks what the
//! plan says, and ships what the library records.
//!
//! ```text
//! args ─▶ settings ─▶ program (gate) or process ─▶ frida (library, modules) ─▶ trace (hooks, rings, shipping)
//! ```
//!
//! A crate of its own, so that no argument parser enters a target.

#![cfg_attr(not(feature = "frida-core"), forbid(unsafe_code))]
// The one exception is where Frida's crate is started, which it says is unsafe.
#![cfg_attr(feature = "frida-core", deny(unsafe_code))]

/// Says a line on stderr. Where that cannot be written to, the program that is traced must not suffer for it.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        _ = writeln!(std::io::stderr(), "agent: {}", format_args!($($words)*));
    }};
}

mod access;
mod args;
mod control;
mod ctl;
mod delivery;
mod descriptors;
mod doctor;
mod end_state;
mod engine;
mod executable;
mod family;
mod frida;
mod install;
mod library;
mod list;
mod manual;
mod native;
mod notices;
mod parked;
mod process;
mod program;
mod record;
mod rules;
mod settings;
mod signals;
mod summary;
mod symbols;
mod trace;

use std::process::ExitCode;

use anyhow::Result;
use codec::quantity;

use self::{
    args::{Command, DestinationArgs, Follow, TraceArgs},
    end_state::EndState,
    executable::Unrunnable,
    settings::{Settings, SettingsError},
    signals::Interrupted,
};

/// The exit code where the program has not begun because of this command, as `env` and `timeout` have it.
const NOT_BEGUN: u8 = 125;

fn main() -> ExitCode {
    let cli = args::parse();
    let result = match &cli.command {
        Command::Run(args) => {
            let settings = settings(&args.destination, &args.trace, args.follow);
            settings.and_then(|settings| trace::run(settings, &args.program)).map(EndState::pass_on)
        }
        Command::Record(args) => record::run(args).map(EndState::pass_on),
        Command::Attach(args) => {
            settings(&args.destination, &args.trace, args.follow).and_then(|settings| trace::attach(settings, args.pid))
        }
        Command::Ctl(args) => ctl::run(args),
        Command::List(args) => list::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Setup { quiet } => frida::python::set_up(*quiet).map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Command::Completions { shell } => manual::completions(*shell),
        Command::Man => manual::man(),
        Command::Idle => doctor::idle(),
        Command::Park { pid } => parked::keep(*pid),
    };
    result.unwrap_or_else(|error| {
        if let Some(Interrupted(signal)) = error.chain().find_map(|cause| cause.downcast_ref()) {
            if let Command::Attach(args) = &cli.command {
                say!("{}: process {} goes on untraced", Interrupted(*signal), args.pid);
            }
            return end_state::die_of(*signal);
        }
        say!("{error:#}");
        match (error.downcast_ref::<Unrunnable>(), &cli.command) {
            (Some(unrunnable), _) => ExitCode::from(unrunnable.code),
            (None, Command::Run(_) | Command::Record(_)) => ExitCode::from(NOT_BEGUN),
            (None, _) => ExitCode::FAILURE,
        }
    })
}

fn settings(to: &DestinationArgs, args: &TraceArgs, follow: Follow) -> Result<Settings> {
    process::require_ground()?;
    Ok(Settings::new(to, args, follow).map_err(SettingsError::or_wrong_usage)?)
}
