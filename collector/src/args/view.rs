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
    /// Address to serve on; port 0 picks a free port. An address that others can reach needs TLS
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// A name or address of this machine by which browsers connect, without the port. May be repeated
    ///
    /// The viewer does not answer requests for other names. By default the name is the address of --listen or, if that
    /// stands for all addresses, the name of this machine.
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
