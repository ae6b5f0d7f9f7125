//! From arguments to what the parts are to work with. Everything is checked here, before anything is started.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

use agent::ship::{self, Tunnel};

use crate::{
    access,
    args::{self, DestinationArgs, Follow, FridaArgs, OnFull, SymbolArgs, TraceArgs, Wire},
    engine::Choice,
    frida,
    summary::SummaryOutput,
    symbols::SymbolFinder,
};

/// What to trace and where to send it.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) collector: Collector,
    pub(crate) transport: ship::Transport,
    pub(crate) tunnel: Option<Arc<dyn Tunnel>>,
    pub(crate) wire: Wire,
    pub(crate) exclude: Vec<String>,
    pub(crate) symbols: Arc<SymbolFinder>,
    pub(crate) stack_bytes: u32,
    pub(crate) detail: bool,
    pub(crate) max_depth: Option<u32>,
    pub(crate) on_full: OnFull,
    /// How long threads may wait for a collector that takes nothing. None: for ever.
    pub(crate) stall: Option<Duration>,
    pub(crate) ring_bytes: u64,
    pub(crate) replay_bytes: u64,
    /// The largest datagram that was asked for.
    pub(crate) datagram_bytes: Option<u16>,
    /// None: as the number of functions calls for.
    pub(crate) startup_timeout: Option<Duration>,
    pub(crate) linger: Duration,
    pub(crate) follow: Follow,
    pub(crate) max_processes: usize,
    pub(crate) engine: Choice,
    pub(crate) frida: frida::Options,
    pub(crate) summary: Option<SummaryOutput>,
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
}

/// Why there can be no settings.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub(crate) enum SettingsError {
    /// The arguments do not fit together.
    Usage(String),
    /// They may be right, but this machine does not have what they name: a host, a file.
    Machine(String),
}

impl SettingsError {
    /// Ends as clap does where the arguments are wrong.
    pub(crate) fn or_wrong_usage(self) -> Self {
        match self {
            Self::Usage(message) => args::wrong_usage(&message),
            Self::Machine(_) => self,
        }
    }
}

/// Where a collector is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Collector {
    /// As it was given.
    pub(crate) name: String,
    /// All that its name stands for, best first.
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Settings {
    /// Checks the arguments; what is wrong with them otherwise.
    pub(crate) fn new(to: &DestinationArgs, args: &TraceArgs, follow: Follow) -> Result<Self, SettingsError> {
        let collector = Collector::resolve(&to.to).map_err(SettingsError::Machine)?;
        let host = to.to.rsplit_once(':').map_or("", |(host, _)| host);
        let (transport, tunnel) = access::way(&to.access, to.transport, host)?;
        let tunnel = tunnel.map(|tunnel| Arc::new(tunnel) as _);
        let settings = Self::with(args, follow, collector, transport, tunnel)?;
        Ok(Self { wire: to.wire, datagram_bytes: to.datagram_bytes, ..settings })
    }

    /// The same for a collector at the other end of a socket, by whatever name.
    pub(crate) fn local(
        args: &TraceArgs,
        follow: Follow,
        name: String,
        socket: Arc<dyn Tunnel>,
    ) -> Result<Self, SettingsError> {
        // Nobody asks where that is.
        let collector = Collector { name, addresses: vec![SocketAddr::from(([127, 0, 0, 1], 0))] };
        Self::with(args, follow, collector, ship::Transport::Socket, Some(socket))
    }

    fn with(
        args: &TraceArgs,
        follow: Follow,
        collector: Collector,
        transport: ship::Transport,
        tunnel: Option<Arc<dyn Tunnel>>,
    ) -> Result<Self, SettingsError> {
        let frida = frida_options(&args.frida, args.verbose);
        Ok(Self {
            collector,
            transport,
            tunnel,
            wire: Wire::Runs,
            exclude: args.exclude.exclude.clone(),
            symbols: Arc::new(symbol_finder(&args.symbols).map_err(SettingsError::Usage)?),
            stack_bytes: if args.no_detail { 0 } else { args.stack_bytes },
            detail: !args.no_detail,
            max_depth: args.max_depth,
            on_full: args.on_full,
            stall: args.stall.0,
            ring_bytes: args.ring_bytes.0,
            replay_bytes: args.replay_bytes.0,
            datagram_bytes: None,
            startup_timeout: args.startup_timeout.map(|period| period.0),
            linger: args.linger.0,
            follow,
            max_processes: args.max_processes as usize,
            engine: Choice::new(args.engine, &frida, args.quiet),
            frida,
            summary: args.summary.as_deref().map(SummaryOutput::open).transpose().map_err(SettingsError::Machine)?,
            quiet: args.quiet,
            verbose: args.verbose,
        })
    }
}

/// What finds the debug files of modules.
pub(crate) fn symbol_finder(args: &SymbolArgs) -> Result<SymbolFinder, String> {
    SymbolFinder::new(&args.debug_dir, args.debuginfod)
}

/// What may be used to get at Frida.
pub(crate) fn frida_options(args: &FridaArgs, verbose: bool) -> frida::Options {
    frida::Options { python: args.frida_python.clone(), verbose }
}

impl Collector {
    /// Asks the system for the addresses of `HOST:PORT`.
    pub(crate) fn resolve(name: &str) -> Result<Self, String> {
        let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
        let why = |error: &io::Error| {
            // The system's words for it speak of "address information".
            let text = error.to_string();
            text.rsplit_once(": ").map_or(text.clone(), |(_, last)| last.to_string())
        };
        let found = name.to_socket_addrs().map_err(|error| {
            format!("--to {name}: cannot find the address of {host}: {} (is the name right?)", why(&error))
        })?;
        let addresses: Vec<_> = found.collect();
        if addresses.is_empty() {
            return Err(format!("--to {name}: {host} has no address"));
        }
        Ok(Self { name: name.into(), addresses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let found = |name| Collector::resolve(name).expect("resolved");
        assert_eq!(found("127.0.0.1:7000").addresses, ["127.0.0.1:7000".parse().expect("an address")]);
        assert_eq!(found("[::1]:7000").addresses, ["[::1]:7000".parse().expect("an address")]);
        assert!(found("localhost:7000").addresses.iter().all(|address| address.ip().is_loopback()));
    }
}
