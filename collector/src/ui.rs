//! `--ui`: the viewer beside a running collector.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as Listener},
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, Result, bail};
use collector_core::spans::SpanConfig;
use tokio::net::TcpListener;
use tracing::{info, warn};
use view::{Options, Token};

/// What receives comes before who looks on: the nice value of the viewer's threads.
const NICE: i32 = 10;

/// The viewer, before anybody is let in.
#[derive(Debug)]
pub(crate) struct Ui {
    listener: Listener,
    dir: PathBuf,
}

impl Ui {
    /// Opens the port.
    pub(crate) fn open(address: SocketAddr, dir: Option<&Path>) -> Result<Self> {
        let Some(dir) = dir else { bail!("--ui shows what is on disk: give --sink disk:DIR, too") };
        only_here("--ui", address)?;
        let listener = Listener::bind(address).with_context(|| {
            format!("cannot serve the viewer on {address} (is the port taken? try --ui 127.0.0.1:0)")
        })?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, dir: dir.into() })
    }

    /// Serves for as long as the program runs, on threads of its own that come last.
    pub(crate) fn start(self, config: SpanConfig) -> Result<()> {
        let (address, token) = (self.listener.local_addr()?, Token::random()?);
        info!("viewer {}", url(address, &token));
        let work = move || -> Result<()> {
            // Where it cannot be lowered, it is served all the same. Threads that this one starts inherit it.
            _ = rustix::process::setpriority_process(None, NICE);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let options = Options { dir: self.dir, token, config };
            runtime.block_on(async { Ok(view::serve(TcpListener::from_std(self.listener)?, options).await?) })
        };
        let serve = move || {
            if let Err(error) = work() {
                warn!("the viewer ended: {error:#}");
            }
        };
        thread::Builder::new().name("viewer".into()).spawn(serve).context("cannot start a thread for the viewer")?;
        Ok(())
    }
}

/// The address to open. What is behind `#` is sent to nobody, and stays out of logs of others.
pub(crate) fn url(address: SocketAddr, token: &Token) -> String {
    format!("http://{address}/#token={}", token.text())
}

/// Refuses addresses that others can reach.
pub(crate) fn only_here(option: &str, address: SocketAddr) -> Result<()> {
    if [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)].contains(&address.ip()) {
        return Ok(());
    }
    bail!(
        "{option} {address}: traces have registers and stacks, and are shown on 127.0.0.1 or [::1] alone; from another machine, forward \
         a port: `ssh -L 7080:127.0.0.1:7080 HOST`, with {option} 127.0.0.1:7080 there"
    );
}
