//! Arguments of `collector view`.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

use super::{CertificateArgs, MakingArgs, place};
use crate::ui::name_of_server;

#[derive(Debug, Args)]
pub(crate) struct ViewArgs {
    /// A directory of sessions, or a session directory; also in a bucket: s3://BUCKET/PREFIX
    #[arg(value_name = "DIR", default_value = "./traces", value_parser = place())]
    pub(crate) dir: PathBuf,
    /// Address to serve on; port 0 picks a free port. One that others can reach needs TLS
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// A name or an address of this machine that browsers use, without the port: others are not answered. The address of
    /// --listen by default, or if that is of all the name of this machine. May be repeated
    #[arg(long = "name", value_name = "NAME", value_parser = name_of_server)]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) certificate: CertificateArgs,
    /// Do not open a browser
    #[arg(long)]
    pub(crate) no_open: bool,
    #[command(flatten)]
    pub(crate) making: MakingArgs,
}
