//! The service: sockets, tasks, and the way to the end.

use std::{
    net::SocketAddr,
    os::unix::net::UnixStream,
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use collector_core::How;
use quinn::VarInt;
use sinks::{
    EarlierSessions,
    disk::{Leftover, finish_ended},
};
use tokio::{
    net::{TcpListener, UdpSocket},
    signal::unix::{SignalKind, signal},
    sync::Notify,
    task::JoinHandle,
    time::MissedTickBehavior,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{error, info, warn};

use crate::{
    archive::Archiving,
    args::{self, RunArgs},
    control,
    door::Door,
    listen::{self, Listening, Wanted},
    log, metrics,
    notices::Notices,
    quantity::{Size, count, counted},
    quic,
    receiver::Receiver,
    recorder::Recorders,
    settings::{self, Shares},
    sink_spec::Target,
    source::{self, Opened, Source},
    status, stdin,
    summary::NotTaken,
    tables::Making,
    tcp, udp,
    ui::{Reach, Ui, is_here},
};

/// How long sinks that take nothing are waited for at the end.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the ends of connections are waited for.
const LAST_WORD: Duration = Duration::from_millis(200);

/// How long agents are answered after the last session, where answers may be lost on the way.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// How often the core is told the time.
const TICK: Duration = Duration::from_millis(10);

/// Runs until it is told to stop.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    let sinks = settings::sinks(&args.sinks).unwrap_or_else(|wrong| args::wrong_usage(wrong));
    settings::set_mode(args.sinks.mode);
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let result = runtime.block_on(async {
        // Everything that can fail is opened before anything is told to be ready.
        let door = Arc::new(Door::new(&args.access)?);
        let socket = args.stdin.then(stdin::open).transpose()?;
        let listening = if args.stdin || args.source.is_some() { Vec::new() } else { open(args)? };
        let metrics = match args.metrics {
            Some(address) => Some(TcpListener::bind(address).await.with_context(|| {
                format!("cannot serve metrics on {address} (is the port taken? try --metrics {}:0)", address.ip())
            })?),
            None => None,
        };
        let directories = sinks.iter().filter_map(|sink| match &sink.target {
            Target::Disk { dir, .. } => Some(dir.as_path()),
            _ => None,
        });
        let ui = match args.ui {
            Some(address) => {
                // On loopback it needs none, whatever agents need.
                let tls = if is_here(address) { None } else { door.for_pages()? };
                let reach = Reach::new("--ui", address, &args.ui_names, tls)?;
                Some(Ui::open(address, directories.clone().next(), reach)?)
            }
            None => None,
        };
        let notices = Arc::new(Notices::new());
        log::start(args.log.log, args.log.log_format, &notices);
        let (memory, recorders) = (args.limits.memory.0, settings::recorders(args.recorders));
        if args.source.is_none() {
            // What a recorder has left others may be about to go on with.
            directories.clone().for_each(finish_leftover);
        }
        let (recorders, tables) = Recorders::start(&sinks, &args.spans.config(), memory, recorders, &notices)?;
        let dirs = directories.clone().map(Into::into).collect();
        let archive = args.sinks.archive();
        let archiving = archive.map(|wanted| Archiving::start(wanted, dirs, &recorders.disks, true)).transpose()?;
        let mut config = settings::core_config(&args.limits, args.session_timeout.0);
        if let Some(smallest) = listening.iter().filter(|one| one.udp.is_some()).map(|one| one.receive_buffer).min() {
            // Datagrams take more room in the system than they have bytes.
            config.window_bytes = (smallest as u64 / 4).max(64 << 10);
        }
        config.hands_on = sinks.iter().any(|sink| matches!(sink.target, Target::Nats(_)));
        let source = match &args.source {
            Some(address) => {
                config = source::core_config(config);
                Some(source::open(address, args, directories.clone()).await?)
            }
            None => None,
        };
        let earlier = EarlierSessions::find(directories);
        let limits = settings::catalog_limits(&args.limits);
        let receiver = Arc::new(Receiver::new(config, limits, recorders, earlier, notices));
        if let Some(archiving) = &archiving {
            _ = receiver.ledger.archive.set(archiving.counters.clone());
        }
        serve(args, &receiver, (tables, archiving), (listening, source), socket, door, (metrics, ui)).await
    });
    // A sink that hangs has been given up by now, and is not to be waited for again.
    runtime.shutdown_background();
    result
}

/// Finishes what a killed collector has left in a directory, where its agents are done, and tells of the rest.
fn finish_leftover(dir: &Path) {
    let Leftover { finished, unfinished } = finish_ended(dir);
    for session in finished {
        let name = session.file_name().unwrap_or_default().to_string_lossy();
        info!("session {name} had ended when its collector was killed, and is finished now; in {}", session.display());
    }
    if unfinished > 0 {
        let (sessions, dir) = (counted(unfinished, "session"), dir.display());
        info!("unfinished in {dir}: {sessions} to go on when the agents come back (`collector repair` ends them)");
    }
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
    receiver: &Arc<Receiver>,
    (tables, archiving): (Making, Option<Archiving>),
    (listening, source): (Vec<Listening>, Option<Opened>),
    socket: Option<UnixStream>,
    door: Arc<Door>,
    (metrics, ui): (Option<TcpListener>, Option<Ui>),
) -> Result<ExitCode> {
    let mut interrupts = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
    let mut terminations = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
    let stop = CancellationToken::new();
    let failed = Arc::new(Notify::new());
    let receiving = TaskTracker::new();
    let (mut sockets, mut endpoints, mut accepting) = (Vec::new(), Vec::new(), Vec::new());
    warn_of_strangers(&door, &listening)?;
    let room = Shares::of(args.limits.memory.0).connections;
    let connections = Arc::new(tcp::Connections::new(args.max_connections, args.session_timeout.0, room));
    for one in listening {
        if let (Some(socket), Some(certificate)) = (&one.udp, door.quic()) {
            let (address, buffer) = (socket.local_addr()?, one.receive_buffer);
            let endpoint =
                quic::listen(receiver, socket.try_clone()?, certificate).context("cannot receive over QUIC")?;
            info!("listening quic {address} receive-buffer {buffer}");
            tokio::spawn(quic::accept(receiver.clone(), endpoint.clone(), connections.clone(), door.clone()));
            endpoints.push(endpoint);
        } else if let Some(socket) = one.udp {
            let socket = Arc::new(UdpSocket::from_std(socket)?);
            let (address, buffer) = (socket.local_addr()?, one.receive_buffer);
            info!("listening udp {address} receive-buffer {buffer}");
            let datagrams = udp::receive(receiver.clone(), sockets.len(), socket.clone(), stop.clone());
            let failed = failed.clone();
            receiving.spawn(async move {
                if let Err(error) = datagrams.await {
                    // A collector that hears nothing should not go on as if it did.
                    error!("cannot receive over UDP any more: {error}");
                    failed.notify_one();
                }
            });
            sockets.push(socket);
        }
        if let Some(listener) = one.tcp {
            let listener = TcpListener::from_std(listener)?;
            let address = listener.local_addr()?;
            info!("listening {} {address}", if door.tls().is_some() { "tls" } else { "tcp" });
            let accept = tcp::accept(receiver.clone(), listener, connections.clone(), door.clone());
            accepting.push(tokio::spawn(accept));
        }
    }
    let over = socket.map(|socket| stdin::serve(receiver, &connections, socket)).transpose()?;
    receiver.post.set_sockets(sockets);
    if let Some(pin) = door.pin() {
        info!("certificate {pin}");
    }
    if let Some(listener) = metrics {
        let address = listener.local_addr()?;
        info!("metrics http://{address}/metrics");
        tokio::spawn(metrics::serve(receiver.clone(), listener));
    }
    if let Some(ui) = ui {
        ui.start(args.spans.config())?;
    }
    let _reachable = control::listen(receiver);
    for (sink, _) in &receiver.ledger.sinks {
        info!("writing to {sink}");
    }
    let mut source = source.map(|source| source.start(receiver));
    tokio::spawn(tick(receiver.clone(), source.as_ref().map(Source::contact)));
    let reporting = tokio::spawn(status::report(receiver.clone(), tables.progress.clone(), args.stats.0));

    let mut good = true;
    tokio::select! {
        _ = interrupts.recv() => {}
        _ = terminations.recv() => {}
        () = one_session(receiver), if args.once => {}
        () = ended(over.as_ref()) => {}
        () = failed.notified() => good = false,
        () = read(source.as_mut()) => {}
    }
    // What the system has received is received, and nobody else is let in. Whoever does not want to wait says so again.
    accepting.iter().for_each(JoinHandle::abort);
    stop.cancel();
    receiving.close();
    let finish = async {
        receiving.wait().await;
        receiver.finish(How::Stopped).await
    };
    let gave_up = AtomicBool::new(false);
    let finished = tokio::select! {
        finished = finish => finished && !gave_up.load(Relaxed),
        () = stalled(receiver, &gave_up) => false,
        _ = interrupts.recv() => false,
        _ = terminations.recv() => false,
    };
    if let Some(source) = source {
        source.release().await;
    }
    receiver.post.settle().await;
    for endpoint in endpoints {
        endpoint.close(VarInt::from_u32(0), b"the collector stopped");
        _ = tokio::time::timeout(LAST_WORD, endpoint.wait_idle()).await;
    }
    // The next collector may have the ports, and its agents, while this one makes tables.
    connections.end_all();
    receiver.post.close();
    let progress = tables.progress.clone();
    let archive = archiving.as_ref().map(|archiving| archiving.counters.clone());
    let making = tokio::task::spawn_blocking(move || {
        tables.finish(|_| {});
        archiving.is_none_or(Archiving::finish)
    });
    let interrupted = async {
        // A sink that was given up may keep its part of the work open for ever.
        if finished {
            tokio::select! {
                _ = interrupts.recv() => {}
                _ = terminations.recv() => {}
            }
        }
        progress.interrupt();
        archive.iter().for_each(|archive| archive.interrupt());
        if archive.is_none() {
            std::future::pending::<()>().await;
        }
        // A store that does not answer takes its time.
        tokio::time::sleep(PATIENCE).await;
        warn!("the archive does not end: the next collector goes on with it");
    };
    let archived = tokio::select! {
        archived = making => archived.unwrap_or(false),
        () = interrupted => false,
    };
    reporting.abort();
    receiver.notices.status(String::new());
    info!("{}", total(receiver, finished));
    match receiver.ledger.not_taken() {
        _ if finished => {}
        NotTaken::Disk => error!("not every sink could be finished; for disk: see `collector repair`"),
        NotTaken::JetStream => {
            error!("JetStream has not taken everything: agents that still run keep the rest for the next collector");
        }
    }
    receiver.notices.finish();
    let whole =
        finished && good && archived && receiver.ledger.lost_by_disks() == 0 && receiver.ledger.refused_spans() == 0;
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns when the connection that is standard input has ended, if there is one.
async fn ended(over: Option<&CancellationToken>) {
    match over {
        Some(over) => over.cancelled().await,
        None => std::future::pending().await,
    }
}

/// Reads from other collectors, if it is to.
async fn read(source: Option<&mut Source>) {
    match source {
        Some(source) => source.read().await,
        None => std::future::pending().await,
    }
}

/// Says so where anybody on the network can send.
fn warn_of_strangers(door: &Door, listening: &[Listening]) -> Result<()> {
    let addresses = listening.iter().map(|one| match (&one.udp, &one.tcp) {
        (Some(udp), _) => udp.local_addr().map(Some),
        (None, Some(tcp)) => tcp.local_addr().map(Some),
        (None, None) => Ok(None),
    });
    let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
    let beyond = addresses.into_iter().flatten().find(|address| !address.ip().is_loopback());
    if let Some(address) = beyond.filter(|_| door.is_open()) {
        warn!(
            "anybody who can reach {address} may send: --token-file FILE with --tls self lets in only who knows a token"
        );
    }
    Ok(())
}

/// Returns when no sink has taken anything for too long, although something waits. Outputs that nobody reads are given up
/// first, so that the other sinks can be finished.
async fn stalled(receiver: &Receiver, gave_up: &AtomicBool) {
    let mut last = (receiver.ledger.taken(), Instant::now());
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let taken = receiver.ledger.taken();
        if taken != last.0 {
            last = (taken, Instant::now());
        } else if last.1.elapsed() >= PATIENCE {
            if gave_up.load(Relaxed) {
                return;
            }
            let ledger = &receiver.ledger;
            let waiting = ledger.sinks.iter().map(|(sink, counters)| (sink, ledger.waiting_bytes(counters)));
            for (sink, bytes) in waiting.filter(|(_, bytes)| *bytes > 0) {
                let left = Size(bytes);
                let otlp = ledger.otlps.iter().find(|(name, _)| name == sink).map(|(_, sent)| sent.waiting());
                let spans = otlp.map(|spans| format!(", with {},", counted(spans, "span"))).unwrap_or_default();
                error!(sink = %sink, "sink {sink} takes nothing any more: {left}{spans} are given up");
            }
            if !receiver.give_up_outputs() {
                return;
            }
            gave_up.store(true, Relaxed);
            last.1 = Instant::now();
        }
    }
}

/// Returns when a session has ended, and its agent has had the time to ask again whether that has arrived.
async fn one_session(receiver: &Receiver) {
    receiver.session_ended.notified().await;
    if receiver.ledger.udp_bytes.load(Relaxed) > 0 {
        tokio::time::sleep(LAST_ANSWERS).await;
    }
}

/// Tells the core the time. That stands still while a source cannot be reached: nobody is silent for that.
async fn tick(receiver: Arc<Receiver>, has_contact: Option<impl Fn() -> bool>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        if has_contact.as_ref().is_none_or(|has_contact| has_contact()) {
            receiver.tick();
        }
    }
}

/// What all sessions came to, and whether all sinks could be finished.
pub(crate) fn total(receiver: &Receiver, finished: bool) -> String {
    let (core, lost_by_disks) = (receiver.ledger.core(), receiver.ledger.lost_by_disks());
    let has_left = receiver.ledger.sinks.iter().any(|(_, sink)| sink.left.load(Relaxed) > 0);
    let not_taken = receiver.ledger.not_taken();
    let is_taken = !has_left && (finished || not_taken == NotTaken::Disk);
    let kept = if is_taken { "written".into() } else { not_taken.to_string() };
    let mut line = format!(
        "{}, {} received: {} produced = {} {kept} + {} missing",
        counted(core.sessions, "session"),
        Size(receiver.ledger.received_bytes()),
        counted(core.produced(), "event"),
        count(core.written.saturating_sub(lost_by_disks)),
        count(core.missing().saturating_add(lost_by_disks)),
    );
    let refused = core.refused_session_events.saturating_add(core.refused_stream_events);
    if refused > 0 || core.refused_datagrams > 0 {
        let (events, datagrams) = (count(refused), count(core.refused_datagrams));
        line += &format!("; refused by limits: {events} events, {datagrams} datagrams");
    }
    let lost = receiver.ledger.lost_by_sinks();
    if lost > 0 {
        line += &format!("; {} times an event was not kept by a sink", count(lost));
    }
    line
}
