//! Arguments of `collector view`.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

use super::MakingArgs;

#[derive(Debug, Args)]
pub(crate) struct ViewArgs {
    /// A directory of sessions, or a session directory
    #[arg(value_name = "DIR", default_value = "./traces")]
    pub(crate) dir: PathBuf,
    /// Address to serve on, which has to be one of this machine alone; port 0 picks a free port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Do not open a browser
    #[arg(long)]
    pub(crate) no_open: bool,
    #[command(flatten)]
    pub(crate) making: MakingArgs,
}
