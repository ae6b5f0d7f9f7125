//! Arguments of `agent ctl`.

use clap::Args;
use steering::Action;

#[derive(Debug, Args)]
pub(crate) struct CtlArgs {
    /// The traced process: the program, or a child process that is traced, too
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: i32,
    /// Print the status as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) action: Option<Action>,
}
