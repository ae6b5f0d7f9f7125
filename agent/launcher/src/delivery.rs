//! Delivering what the rings hold, on a thread of its own, from the first event to the end of the session.

mod asked;
mod environment;
mod outcome;

use std::{
    fs,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use agent::{
    drain::{Clock, Drain, Functions, ProcTasks, SetLevels},
    shared::{Arena, Level, Lifeline},
    ship::{self, Birth, Shipper, Who},
};
use anyhow::{Context, Result};
use codec::{
    Arch, FunctionId, ModuleId, Os, SessionId, SessionNs, access,
    demangle::demangle,
    profile::{EndReason, FunctionName, Limit, Module, SourceLine},
};
use ring::rand::{SecureRandom, SystemRandom};
use steering::Status;

use self::outcome::{ModuleCode, left_out};
pub(crate) use self::outcome::{Outcome, many};
use crate::{
    args::Wire,
    control::{self, Session},
    family::Family,
    install::{Hooked, Report},
    notices::Notices,
    settings::Settings,
    signals::SignalTriggers,
    summary::Traced,
    symbols::FileLines,
};

/// How long to wait for the collector's answers while there is nothing to send.
const IDLE: Duration = Duration::from_millis(2);

/// How often it is looked whether delivery is over, or somebody is tired of waiting.
const GLANCE: Duration = Duration::from_millis(5);

/// How long source lines are read on when the program has ended.
const READING: Duration = Duration::from_secs(5);

/// After how long it is said that the collector is waited for.
const SILENCE: Duration = Duration::from_secs(1);

/// How long a collector that this command has started may take to answer.
const OWN_COLLECTOR: Duration = Duration::from_secs(60);

/// How long a session that could not start takes at most to end.
const GIVING_UP: Duration = Duration::from_secs(1);

/// A session that is being delivered.
#[derive(Debug)]
pub(crate) struct Delivery {
    family: Arc<Family>,
    session: SessionId,
    functions: Arc<Functions>,
    orders: Sender<Order>,
    /// What the thread will work with, until it does.
    work: Option<(Shipper, Clock, Receiver<Order>, Traced)>,
    thread: Option<JoinHandle<Outcome>>,
    pid: i32,
    stall: Option<Duration>,
    notices: Notices,
    linger: Duration,
}

/// What the thread is told.
#[derive(Debug)]
pub(crate) enum Order {
    /// Nothing: whether it would hear.
    Nothing,
    /// To tell how it is.
    Status(Sender<Status>),
    /// To tell which modules there are.
    Modules(Sender<Vec<Arc<Hooked>>>),
    /// To set levels, or with none to leave them to what tracing may cost.
    Levels {
        functions: Vec<u32>,
        level: Option<Level>,
        done: Sender<SetLevels>,
    },
    /// That tracing may cost something else from here on.
    Pace,
    /// To send, or to send nothing more. Whether that can be chosen.
    Trigger {
        is_start: bool,
        done: Sender<bool>,
    },
    /// To tell the collector what came of what it asked for.
    Answer {
        number: u64,
        result: Result<String, String>,
    },
    Hooked(Arc<Hooked>),
    Unloaded(u32),
    Lines(u32, Arc<FileLines>),
    Limit {
        reason: String,
        count: u64,
        detail: String,
    },
    End(EndReason),
}

impl Delivery {
    /// Makes contact with the collector, on behalf of a process. One that came from another is not held up for that: the
    /// collector has answered before.
    pub(crate) fn start(family: &Arc<Family>, pid: i32, birth: Option<Birth>) -> Result<Self> {
        let (settings, clock) = (&family.settings, family.clock());
        let mut who = who(pid, &clock, birth)?;
        let session = who.session;
        who.root = family.root(session);
        let connect = if who.birth.is_some() { Shipper::new } else { Shipper::connect };
        let shipper = connect(ship_settings(settings), &who)?;
        let (orders, received) = mpsc::channel();
        let work = Some((shipper, clock, received, Traced::from(&who)));
        let notices = Notices::new(&settings.collector.name, settings.stall);
        let Settings { stall, linger, .. } = *settings;
        let functions = Arc::default();
        Ok(Self {
            family: Arc::clone(family),
            session,
            functions,
            orders,
            work,
            thread: None,
            pid,
            stall,
            notices,
            linger,
        })
    }

    /// The session, by its id.
    pub(crate) fn session(&self) -> SessionId {
        self.session
    }

    /// The numbers of functions.
    pub(crate) fn functions(&self) -> Arc<Functions> {
        Arc::clone(&self.functions)
    }

    /// Has functions be known by these numbers. To be said before it begins.
    pub(crate) fn number_by(&mut self, functions: &Arc<Functions>) {
        self.functions = Arc::clone(functions);
    }

    /// Begins to empty the rings.
    pub(crate) fn begin(&mut self, arena: Arc<Arena>) -> Result<()> {
        let Some((shipper, clock, orders, traced)) = self.work.take() else { return Ok(()) };
        let tied = Arc::clone(&arena);
        let drain = Drain::new(arena, clock, Arc::clone(&self.functions), ProcTasks::new(self.pid));
        let session = Session { pid: self.pid, orders: self.orders.clone(), functions: Arc::clone(&self.functions) };
        let settings = &self.family.settings;
        let drain = drain.with_stall(self.stall).at_pace(settings.drain_pace());
        let drain = drain.sending(settings.selected.wanted.clone());
        let worker = Worker {
            family: Arc::clone(&self.family),
            arena: Arc::clone(&tied),
            shipper,
            drain,
            orders,
            session: session.clone(),
            modules: Vec::new(),
            unread: 0,
            notices: self.notices.clone(),
            linger: self.linger,
            traced,
            triggers: SignalTriggers::new(&settings.selected),
        };
        let thread = thread::Builder::new().name("delivery".into()).spawn(|| {
            let _lifeline = Lifeline::tie(tied);
            worker.work()
        });
        self.thread = Some(thread.context("cannot start a thread")?);
        self.family.sessions.add(session);
        // It may have changed since the rings were made.
        self.order(Order::Pace);
        Ok(())
    }

    /// Reports what is about to be hooked, and what cannot be.
    pub(crate) fn report(&self, report: &Report) {
        for module in &report.modules {
            if !module.missing.is_empty() {
                let names = module.missing.join(", ");
                say!("{} has no {names}: its calls are traced, but not what it runs", module.path);
            }
            for runtime in &module.linked {
                say!("{} has {runtime} linked into it: its calls are traced, but not what it runs", module.path);
            }
            self.order(Order::Hooked(Arc::clone(module)));
            if let Some(file) = lines_of(module, &self.family) {
                let addresses = module.functions.iter().map(|(offset, _)| offset.wrapping_add(module.link_base));
                let (id, orders) = (module.id, self.orders.clone());
                // Once the session is over nobody listens.
                let tell = move |lines| drop(orders.send(Order::Lines(id, lines)));
                self.family.lines.read(Arc::clone(file), addresses.collect(), tell);
            }
        }
        for module in &report.unreadable {
            say!("{} is not traced: {}", module.path, module.why);
            self.limit("module-not-hooked", 1, &format!("{}: {}", module.path, module.why));
        }
    }

    /// Tells that a module is gone.
    pub(crate) fn unloaded(&self, module: u32) {
        self.order(Order::Unloaded(module));
    }

    /// Tells what could not be captured.
    pub(crate) fn limit(&self, reason: &str, count: u64, detail: &str) {
        if count > 0 {
            self.order(Order::Limit { reason: reason.into(), count, detail: detail.into() });
        }
    }

    /// The session is over; nothing more is recorded. The first end counts.
    pub(crate) fn end(&self, reason: EndReason) {
        self.order(Order::End(reason));
    }

    fn order(&self, order: Order) {
        // Once the session is over nobody listens.
        let _ = self.orders.send(order);
    }

    /// Ends a session in which nothing was traced.
    pub(crate) fn give_up(self) {
        self.end(EndReason::Detached);
        // Nobody waits for what could not even start.
        let deadline = Instant::now() + GIVING_UP;
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) && Instant::now() < deadline {
            thread::sleep(GLANCE);
        }
    }

    /// Waits until everything is delivered, or that is given up. What came of it, if that is known.
    pub(crate) fn finish(mut self) -> Option<Outcome> {
        let thread = self.thread.take()?;
        let Family { settings, signals, .. } = &*self.family;
        let (asked, begun) = (signals.asked(), Instant::now());
        let mut has_told = settings.quiet;
        while !thread.is_finished() {
            if signals.asked() != asked {
                say!("stopped before everything was delivered");
                return None;
            }
            if !has_told && begun.elapsed() >= SILENCE {
                has_told = true;
                self.family.tell_waiting();
            }
            thread::sleep(GLANCE);
        }
        let outcome = thread.join();
        if outcome.is_err() {
            say!("delivery failed: the trace is incomplete (this is a bug)");
        }
        outcome.ok()
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        // The collector has heard of it already.
        if let Some((mut shipper, clock, ..)) = self.work.take() {
            shipper.finish(EndReason::Detached, clock.now(), GIVING_UP);
        }
    }
}

/// The file that the source lines of a module are read from, if they are.
fn lines_of<'a>(module: &'a Hooked, family: &Family) -> Option<&'a Arc<fs::File>> {
    module.lines.as_ref().filter(|_| family.settings.lines)
}

/// What runs on the thread.
struct Worker {
    family: Arc<Family>,
    arena: Arc<Arena>,
    shipper: Shipper,
    drain: Drain,
    orders: Receiver<Order>,
    /// How it is asked itself.
    session: Session,
    /// The modules that were told of, and when they were loaded.
    modules: Vec<(Arc<Hooked>, SessionNs)>,
    /// Of how many modules the source lines are still being read.
    unread: u64,
    notices: Notices,
    linger: Duration,
    traced: Traced,
    triggers: SignalTriggers,
}

impl Worker {
    fn work(mut self) -> Outcome {
        loop {
            while let Ok(order) = self.orders.try_recv() {
                if let Some(reason) = self.execute(order) {
                    return self.end(reason);
                }
            }
            while let Some(asked) = self.shipper.next_ask() {
                control::answer_collector(asked, self.session.clone(), &self.family);
            }
            for is_start in self.triggers.look() {
                self.drain.trigger(is_start);
            }
            let taken = self.drain.turn(&mut self.shipper);
            self.notices.look(&self.drain, &self.shipper);
            self.shipper.turn(if taken == 0 { IDLE } else { Duration::ZERO });
        }
    }

    /// Executes an order. Returns how the session ends, if it does.
    fn execute(&mut self, order: Order) -> Option<EndReason> {
        let now = self.drain.now();
        match order {
            Order::Hooked(module) => {
                self.report(&module, now, None);
                if self.drain.is_selective() {
                    self.learn_names(&module);
                }
                self.unread += u64::from(lines_of(&module, &self.family).is_some());
                self.modules.push((module, now));
            }
            Order::Unloaded(id) => {
                if let Some(at) = self.modules.iter().position(|(module, _)| module.id == id) {
                    let (module, loaded) = self.modules.swap_remove(at);
                    self.report(&module, loaded, Some(now));
                }
            }
            Order::Lines(module, files) => {
                self.unread = self.unread.saturating_sub(1);
                for (file, lines) in files.iter() {
                    let lines: Vec<_> = lines.iter().map(|&(index, line)| SourceLine { index, line }).collect();
                    self.shipper.sources(ModuleId(module), file, &lines);
                }
            }
            Order::Limit { reason, count, detail } => {
                let limit = Limit { module: ModuleId(0), count, reason: &reason, detail: &detail };
                self.shipper.limits(&[limit]);
            }
            Order::Trigger { is_start, done } => drop(done.send(self.drain.trigger(is_start))),
            Order::End(reason) => return Some(reason),
            asked => self.control(asked),
        }
        None
    }

    fn learn_names(&mut self, module: &Hooked) {
        for (index, (_, name)) in (0..).zip(module.functions.iter()) {
            let names = [Some(name.clone()), demangle(name)];
            let function = FunctionId::new(ModuleId(module.id), index);
            self.drain.learn(function, names.iter().flatten(), module.probed.contains(index));
        }
    }

    fn report(&mut self, module: &Hooked, loaded: SessionNs, unloaded: Option<SessionNs>) {
        let functions = module.functions.iter().map(|(offset, name)| FunctionName { offset: *offset, name });
        let functions: Vec<_> = functions.collect();
        let told = Module {
            id: ModuleId(module.id),
            base: module.base,
            size: module.size,
            loaded,
            unloaded,
            function_count: 0,
            table_hash: 0,
            build_id: &module.build_id,
            path: &module.path,
        };
        self.shipper.module(&told, &functions);
        let left = module.left.iter().map(|(reason, left)| (*reason, left.count, left.why));
        let probed = module.probed.details();
        let probed = probed.iter().map(|(count, which)| ("entry-only", *count, which.as_str()));
        let missing = module.missing.iter().map(|name| ("missing-symbol", 1, *name));
        let linked = module.linked.iter().map(|runtime| ("runtime-linked-in", 1, *runtime));
        let unread = module.unread_lines.iter().map(|why| ("source-lines-unread", 1, why.as_str()));
        let limits = left
            .chain(probed)
            .chain(missing)
            .chain(linked)
            .chain(unread)
            .map(|(reason, count, detail)| Limit { module: ModuleId(module.id), count: count as u64, reason, detail });
        let limits: Vec<_> = limits.collect();
        self.shipper.limits(&limits);
    }

    /// Waits for the source lines that are still being read. What the rings hold waits too: that threads have ended is
    /// found out when everything has.
    fn finish_lines(&mut self, deadline: Instant) {
        while self.unread > 0 && Instant::now() < deadline {
            self.shipper.turn(Duration::ZERO);
            if let Ok(order) = self.orders.recv_timeout(IDLE) {
                self.execute(order);
            }
        }
        if self.unread > 0 {
            let limit = Limit { module: ModuleId(0), count: self.unread, reason: "source-lines-unread", detail: "" };
            self.shipper.limits(&[limit]);
        }
    }

    fn end(mut self, reason: EndReason) -> Outcome {
        self.finish_lines(Instant::now() + READING);
        let report = self.drain.finish(&mut self.shipper, reason, self.linger);
        let hooked = self.modules.iter().map(|(module, _)| module.hooked + module.probed.len()).sum();
        let left_out = self.modules.iter().map(|(module, _)| left_out(module)).sum();
        let least = ModuleCode::least(self.modules.iter().map(|(module, _)| &**module));
        Outcome {
            sessions: 1,
            counts: self.drain.counts(),
            report,
            hooked,
            left_out,
            unfollowed: 0,
            least,
            traced: self.traced,
            end: reason,
        }
    }
}

fn ship_settings(settings: &Settings) -> ship::Settings {
    let usual = ship::Settings::new(settings.collector.addresses.clone(), settings.transport);
    let wire = match settings.wire {
        Wire::Runs => ship::Wire::Runs,
        Wire::Plain => ship::Wire::Plain,
    };
    // The collector at the other end of a socket of ours is there, however busy it is.
    let is_own = settings.transport == ship::Transport::Socket;
    ship::Settings {
        wire,
        patience: if is_own { OWN_COLLECTOR } else { usual.patience },
        tunnel: settings.tunnel.clone(),
        datagram_bytes: settings.datagram_bytes.map_or(usual.datagram_bytes, usize::from),
        replay_bytes: usize::try_from(settings.replay_bytes).unwrap_or(usize::MAX),
        ..usual
    }
}

/// What is known of a process.
fn who(pid: i32, clock: &Clock, birth: Option<Birth>) -> Result<Who> {
    let mut secret = [0; 32];
    SystemRandom::new().fill(&mut secret).ok().context("the system has no random numbers")?;
    let executable = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let arguments = arguments.strip_suffix(b"\0").unwrap_or(&arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let session = access::claimed_id(&secret);
    Ok(Who {
        session,
        secret: Some(secret),
        arch: if cfg!(target_arch = "aarch64") { Arch::Arm64 } else { Arch::X86_64 },
        os: Os::Linux,
        pid: pid.unsigned_abs(),
        agent_version: env!("CARGO_PKG_VERSION").into(),
        host: fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim_end().into(),
        executable: executable.to_string_lossy().into_owned(),
        arguments: arguments.split(|byte| *byte == 0).map(text).collect(),
        epoch_unix_ns: clock.epoch_unix_ns(),
        clock_zero_ns: clock.zero_ns(),
        birth,
        root: session,
        trace: environment::trace_of(&fs::read(format!("/proc/{pid}/environ")).unwrap_or_default()),
    })
}
