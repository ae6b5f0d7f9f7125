//! From arguments to what the parts are to work with. Everything is checked here, before anything is started.

use std::{
    hint::black_box,
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use agent::{
    drain,
    shared::{FLAG_BLOCK, FLAG_TURN_DOWN, tsc},
    ship::{self, Tunnel},
};
use steering::{Budget, Pace};

use crate::{
    access,
    args::{self, DestinationArgs, Follow, FridaArgs, Lines, Selected, SymbolArgs, TraceArgs, Wire},
    engine::Choice,
    frida,
    rules::Rules,
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
    pub(crate) rules: Arc<Rules>,
    pub(crate) symbols: Arc<SymbolFinder>,
    /// Whether source lines are read.
    pub(crate) lines: bool,
    pub(crate) stack_bytes: u32,
    pub(crate) detail: bool,
    pub(crate) selected: Selected,
    /// What becomes of too many calls: of all processes, and it may change.
    pub(crate) pace: CurrentPace,
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
    /// Whether the collector may ask for something.
    pub(crate) remote_control: bool,
    pub(crate) summary: Option<SummaryOutput>,
    pub(crate) quiet: bool,
    pub(crate) verbose: bool,
}

/// What becomes of a program that calls more than can be followed, as the arguments say.
fn pace_of(args: &TraceArgs) -> Pace {
    match (args.complete, args.budget) {
        (true, _) => Pace::Complete,
        (false, None) => Pace::Rings,
        (false, Some(Budget(None))) => Pace::Lossy,
        (false, Some(Budget(Some(share)))) => Pace::Share(share),
    }
}

/// A pace that all processes have, and that may change while they run.
#[derive(Debug, Clone)]
pub(crate) struct CurrentPace(Arc<Mutex<Pace>>);

impl CurrentPace {
    fn new(pace: Pace) -> Self {
        Self(Arc::new(Mutex::new(pace)))
    }

    pub(crate) fn get(&self) -> Pace {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, pace: Pace) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = pace;
    }
}

impl Settings {
    /// What a call costs that is followed, in nanoseconds: in the program, where hooks and records of many functions take turns
    /// in the caches, and in what competes with it for the machine. And how many bytes its records have.
    fn call_cost(&self) -> (f64, f64) {
        // A call and its return each read the processor's counter.
        let times_ns = 2.0 * counter_ns();
        match self.detail {
            true => (times_ns + 260.0, 152.0 + f64::from(self.stack_bytes)),
            false => (times_ns + 160.0, 40.0),
        }
    }

    /// How much tracing may cost, for who empties the rings.
    pub(crate) fn drain_pace(&self) -> drain::Pace {
        match self.pace.get() {
            Pace::Complete | Pace::Lossy => drain::Pace::Any,
            Pace::Rings => drain::Pace::Rings,
            Pace::Share(share) => drain::Pace::Share { share, call_ns: self.call_cost().0 },
        }
    }

    /// Which of the flags of the shared memory say so.
    pub(crate) fn pace_flags(&self) -> u32 {
        match self.pace.get() {
            Pace::Complete => FLAG_BLOCK,
            Pace::Lossy => 0,
            Pace::Rings | Pace::Share(_) => FLAG_TURN_DOWN,
        }
    }

    /// The same for threads of the program: which part of their time, in 65,536ths, and what a byte costs, in 256ths of a
    /// nanosecond.
    pub(crate) fn thread_pace(&self) -> (u64, u64) {
        let (call_ns, call_bytes) = self.call_cost();
        match self.pace.get() {
            Pace::Share(share) => ((share * 65_536.0) as u64, (call_ns / call_bytes * 256.0) as u64),
            Pace::Complete | Pace::Lossy | Pace::Rings => (0, 0),
        }
    }
}

/// How long it takes on this machine to read the processor's counter, in nanoseconds: some 20, or a microsecond and more where
/// a hypervisor does it.
fn counter_ns() -> f64 {
    static MEASURED: OnceLock<f64> = OnceLock::new();
    const TRIES: u32 = 8;
    const READS: u32 = 256;
    let read = || {
        let started = Instant::now();
        (0..READS).for_each(|_| _ = black_box(tsc::now()));
        started.elapsed().as_nanos() as f64 / f64::from(READS)
    };
    // Whatever interrupts one of them adds to it.
    *MEASURED.get_or_init(|| (0..TRIES).map(|_| read()).fold(f64::INFINITY, f64::min))
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
        let depths = args.max_depth.iter().map(|depth| ("max-depth", depth.as_str()));
        let mut rules = Rules::new(args.rules.list().chain(depths))?;
        for (option, glob) in args.selection.names() {
            rules.keep_full(format!("{option} {glob}"), glob).map_err(SettingsError::Usage)?;
        }
        Ok(Self {
            collector,
            transport,
            tunnel,
            wire: Wire::Runs,
            rules: Arc::new(rules),
            symbols: Arc::new(symbol_finder(&args.symbols).map_err(SettingsError::Usage)?),
            lines: args.lines == Lines::Read,
            stack_bytes: if args.no_detail { 0 } else { args.stack_bytes },
            detail: !args.no_detail,
            selected: args.selection.selected(!args.no_detail).map_err(SettingsError::Usage)?,
            pace: CurrentPace::new(pace_of(args)),
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
            remote_control: !args.no_remote_control,
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
