//! The service: sockets, tasks, and the way to the end.

use std::{
    net::SocketAddr,
    process::ExitCode,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use collector_core::How;
use tokio::{
    net::{TcpListener, UdpSocket},
    signal::unix::{SignalKind, signal},
    sync::{Notify, watch},
    time::MissedTickBehavior,
};

use crate::{
    args::{self, RunArgs},
    hub::Hub,
    listen::{self, Listening, Wanted},
    metrics,
    notices::Notices,
    quantity::{Size, count, counted},
    settings::{self, Shares},
    status, tcp,
    tee::{PATIENCE, Tee},
    udp,
};

/// How often the core is told the time.
const TICK: Duration = Duration::from_millis(10);

/// Runs until it is told to stop.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    let sinks = settings::sinks(&args.sinks).unwrap_or_else(|wrong| args::wrong_usage(wrong));
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let result = runtime.block_on(async {
        // Everything that can fail is opened before anything is told to be ready.
        let listening = open(args)?;
        let metrics = match args.metrics {
            Some(address) => Some(TcpListener::bind(address).await.with_context(|| {
                format!("cannot serve metrics on {address} (is the port taken? try --metrics {}:0)", address.ip())
            })?),
            None => None,
        };
        let notices = Arc::new(Notices::new());
        let tee = Tee::open(&sinks, &args.spans.config(), args.limits.memory.0, &notices)?;
        let mut config = settings::core_config(&args.limits, args.session_timeout.0);
        if let Some(smallest) = listening.iter().filter(|one| one.udp.is_some()).map(|one| one.receive_buffer).min() {
            // Datagrams take more room in the system than they have bytes.
            config.window_bytes = (smallest as u64 / 4).max(64 << 10);
        }
        let hub = Arc::new(Hub::new(config, settings::catalog_limits(&args.limits), tee, notices));
        serve(args, &hub, listening, metrics).await
    });
    // A sink that hangs has been given up by now, and is not to be waited for again.
    runtime.shutdown_background();
    result
}

/// A session has two files for each of its threads.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Without it there are fewer files open at a time, and they are opened more often.
    _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

fn open(args: &RunArgs) -> Result<Vec<Listening>> {
    let open = |address: &SocketAddr| {
        let taken_for_v4 =
            |other: &SocketAddr| other.is_ipv4() && other.port() == address.port() && address.port() != 0;
        let wanted = Wanted {
            udp: !args.tcp,
            tcp: !args.udp,
            receive_buffer: usize::try_from(args.receive_buffer.0).unwrap_or(usize::MAX).min(1 << 30),
            only_v6: args.listen.iter().any(taken_for_v4),
        };
        listen::listen(*address, wanted)
    };
    args.listen.iter().map(open).collect()
}

async fn serve(
    args: &RunArgs,
    hub: &Arc<Hub>,
    listening: Vec<Listening>,
    metrics: Option<TcpListener>,
) -> Result<ExitCode> {
    let mut interrupts = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
    let mut terminations = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
    let (stop, stopping) = watch::channel(false);
    let failed = Arc::new(Notify::new());
    let mut receivers = Vec::new();
    let mut sockets = Vec::new();
    let room = Shares::of(args.limits.memory.0).connections;
    let connections = Arc::new(tcp::Connections::new(args.max_connections, args.session_timeout.0, room));
    for one in listening {
        if let Some(socket) = one.udp {
            let socket = Arc::new(UdpSocket::from_std(socket)?);
            hub.notices.say_always(format!(
                "listening udp {} receive-buffer {}",
                socket.local_addr()?,
                one.receive_buffer
            ));
            let receiving = udp::receive(hub.clone(), sockets.len(), socket.clone(), stopping.clone());
            let (notices, failed) = (hub.notices.clone(), failed.clone());
            receivers.push(tokio::spawn(async move {
                if let Err(error) = receiving.await {
                    // A collector that hears nothing should not go on as if it did.
                    notices.say_always(format!("cannot receive over UDP any more: {error}"));
                    failed.notify_one();
                }
            }));
            sockets.push(socket);
        }
        if let Some(listener) = one.tcp {
            let listener = TcpListener::from_std(listener)?;
            hub.notices.say_always(format!("listening tcp {}", listener.local_addr()?));
            tokio::spawn(tcp::accept(hub.clone(), listener, connections.clone()));
        }
    }
    hub.post.set_sockets(sockets);
    if let Some(listener) = metrics {
        hub.notices.say_always(format!("metrics http://{}/metrics", listener.local_addr()?));
        tokio::spawn(metrics::serve(hub.clone(), listener));
    }
    for (sink, _) in &hub.ledger.lanes {
        hub.notices.say_always(format!("writing to {sink}"));
    }
    tokio::spawn(tick(hub.clone()));
    let reporting = tokio::spawn(status::report(hub.clone(), args.stats.0));

    let mut good = true;
    tokio::select! {
        _ = interrupts.recv() => {}
        _ = terminations.recv() => {}
        () = hub.session_ended.notified(), if args.once => {}
        () = failed.notified() => good = false,
    }
    // What the system has received is received. Whoever does not want to wait says so again.
    hub.begin_end();
    let finish = async {
        _ = stop.send(true);
        for receiver in receivers {
            _ = receiver.await;
        }
        hub.finish(How::Stopped).await
    };
    let finished = tokio::select! {
        finished = finish => finished,
        () = stalled(hub) => false,
        _ = interrupts.recv() => false,
        _ = terminations.recv() => false,
    };
    hub.post.settle().await;
    reporting.abort();
    hub.notices.status(String::new());
    hub.notices.say_always(total(hub));
    if !finished {
        hub.notices.say_always("not every sink could be finished; for disk: see `collector repair`");
    }
    hub.notices.finish();
    let whole = finished && good && hub.ledger.lost_by_disks() == 0;
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns when no sink has taken anything for too long, although something waits.
async fn stalled(hub: &Hub) {
    let mut last = (hub.ledger.taken(), Instant::now());
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let taken = hub.ledger.taken();
        if taken != last.0 {
            last = (taken, Instant::now());
        } else if last.1.elapsed() >= PATIENCE + PATIENCE / 2 {
            for (sink, lane) in hub.ledger.lanes.iter().filter(|(_, lane)| lane.queued_bytes.load(Relaxed) > 0) {
                let left = Size(lane.queued_bytes.load(Relaxed));
                hub.notices.say_always(format!("sink {sink} takes nothing any more: {left} are given up"));
            }
            return;
        }
    }
}

async fn tick(hub: Arc<Hub>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        hub.tick().await;
    }
}

/// What all sessions came to.
pub(crate) fn total(hub: &Hub) -> String {
    let core = hub.ledger.core();
    let mut line = format!(
        "{}, {} received: {} produced = {} written + {} missing",
        counted(core.sessions, "session"),
        Size(hub.ledger.received_bytes()),
        counted(core.produced(), "event"),
        count(core.written),
        count(core.missing()),
    );
    let refused = core.refused_session_events.saturating_add(core.refused_stream_events);
    if refused > 0 || core.refused_datagrams > 0 {
        let (events, datagrams) = (count(refused), count(core.refused_datagrams));
        line += &format!("; refused by limits: {events} events, {datagrams} datagrams");
    }
    let lost = hub.ledger.lost_by_sinks();
    if lost > 0 {
        line += &format!("; {} times an event was not kept by a sink", count(lost));
    }
    line
}
