//! Arguments of `collector ctl`.

use clap::Args;
use steering::Action;

#[derive(Debug, Args)]
pub(crate) struct CtlArgs {
    /// The session: its id, its name, or its directory. Without one, list the running sessions
    ///
    /// Of an id, as many digits are enough as distinguish it from others.
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Print the status as JSON, or one object per session
    #[arg(long)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) action: Option<Action>,
}
