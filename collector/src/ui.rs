//! The viewer: where it is served and by which names it is reached, and `--ui`, beside a running collector.

use std::{
    convert::Infallible,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as Listener},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use anyhow::{Context, Result, bail};
use collector_core::spans::SpanConfig;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tracing::{info, warn};
use view::{Options, Token};

/// What receives comes before who looks on: the nice value of the viewer's threads.
const NICE: i32 = 19;

/// How browsers get there.
#[derive(Debug)]
pub(crate) struct Reach {
    /// The names and addresses, as they are in an address, the one that is printed first.
    pub(crate) names: Vec<String>,
    /// What encrypts, where others can reach it.
    pub(crate) tls: Option<Arc<ServerConfig>>,
}

/// The viewer, before anybody is let in.
#[derive(Debug)]
pub(crate) struct Ui {
    listener: Listener,
    dir: PathBuf,
    reach: Reach,
}

impl Ui {
    /// Opens the port.
    pub(crate) fn open(address: SocketAddr, dir: Option<&Path>, reach: Reach) -> Result<Self> {
        let Some(dir) = dir else { bail!("--ui shows what is on disk: give --sink disk:DIR, too") };
        let listener = Listener::bind(address).with_context(|| {
            format!("cannot serve the viewer on {address} (is the port taken? try --ui {}:0)", host(address.ip()))
        })?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, dir: dir.into(), reach })
    }

    /// Serves for as long as the program runs, on threads of its own that come last.
    pub(crate) fn start(self, config: SpanConfig) -> Result<()> {
        let (address, token) = (self.listener.local_addr()?, Token::random()?);
        info!("viewer {}", self.reach.url(address, &token));
        let work = move || -> Result<Infallible> {
            // Where it cannot be lowered, it is served all the same. Threads that this one starts inherit it.
            _ = rustix::process::setpriority_process(None, NICE);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let options = self.reach.options(self.dir, token, config);
            runtime.block_on(async { Ok(view::serve(TcpListener::from_std(self.listener)?, options).await?) })
        };
        let serve = move || {
            let Err(error) = work();
            warn!("the viewer ended: {error:#}");
        };
        thread::Builder::new().name("viewer".into()).spawn(serve).context("cannot start a thread for the viewer")?;
        Ok(())
    }
}

impl Reach {
    /// How browsers get to an address that an option gives, by these names or else by its own. Beyond this machine only over
    /// TLS.
    pub(crate) fn new(
        option: &str,
        address: SocketAddr,
        names: &[String],
        tls: Option<Arc<ServerConfig>>,
    ) -> Result<Self> {
        if tls.is_none() && !is_here(address) {
            bail!(
                "{option} {address}: traces have registers and stacks, and go beyond 127.0.0.1 and [::1] only encrypted: give \
                 --tls self, or --tls-cert and --tls-key; or forward a port: `ssh -L 7080:127.0.0.1:7080 HOST`, with {option} \
                 127.0.0.1:7080 there"
            );
        }
        let names = match names {
            [] => vec![own_name(option, address)?],
            names => names.to_vec(),
        };
        Ok(Self { names, tls })
    }

    /// The address to open. What is behind `#` is sent to nobody, and stays out of logs of others.
    pub(crate) fn url(&self, address: SocketAddr, token: &Token) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let name = self.names.first().map_or("localhost", String::as_str);
        format!("{scheme}://{name}:{}/#token={}", address.port(), token.text())
    }

    /// What is served.
    pub(crate) fn options(self, dir: PathBuf, token: Token, config: SpanConfig) -> Options {
        Options { dir, token, config, names: self.names, tls: self.tls }
    }
}

/// Whether only this machine reaches an address.
pub(crate) fn is_here(address: SocketAddr) -> bool {
    [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)].contains(&address.ip())
}

/// What to call an address where nobody says: all addresses of this machine go by its name.
fn own_name(option: &str, address: SocketAddr) -> Result<String> {
    if !address.ip().is_unspecified() {
        return Ok(host(address.ip()));
    }
    let system = rustix::system::uname();
    let name = system.nodename().to_str().ok().and_then(|name| name_of_server(name).ok());
    let option = if option == "--ui" { "--ui-name" } else { "--name" };
    name.with_context(|| format!("this machine has no name: give {option} NAME, by which browsers reach it"))
}

/// An IP address as it is in an address of a page.
fn host(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

/// A name or an IP address that browsers use, as they write it in `Host`.
pub(crate) fn name_of_server(text: &str) -> Result<String, String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(host(ip));
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    match !text.is_empty() && text.chars().all(is_name) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err("expected a name or an IP address, without a port".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_browsers_write_them() {
        for (text, name) in
            [("Build.Example", "build.example"), ("10.0.0.7", "10.0.0.7"), ("::1", "[::1]"), ("[FE80::1]", "[fe80::1]")]
        {
            assert_eq!(name_of_server(text).as_deref(), Ok(name));
        }
        for text in ["", "a b", "host:7080", "[::1]:7080", "https://host", "a/b", "é"] {
            assert!(name_of_server(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_goes_by_its_own_name() {
        let named = |address: &str| own_name("--ui", address.parse().expect("an address")).expect("a name");
        assert_eq!(named("127.0.0.1:7080"), "127.0.0.1");
        assert_eq!(named("[2001:db8::7]:0"), "[2001:db8::7]");
        assert!(!["0.0.0.0", "[::]", ""].contains(&named("0.0.0.0:7080").as_str()));
        assert_eq!(named("0.0.0.0:1"), named("[::]:1"));
    }
}
