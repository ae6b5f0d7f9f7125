//! A trace from its start to its end.

mod entered;
mod timing;

use std::{
    ffi::{OsStr, OsString},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    path::Path,
    process::ExitCode,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use agent::{
    shared::{Arena, MailboxRequest},
    stub::Routines,
};
use anyhow::{Context, Result, anyhow, bail};
use codec::profile::EndReason;

use self::{
    entered::{Entered, threads_since},
    timing::timing,
};
use crate::{
    args::Engine,
    delivery::Delivery,
    descriptors::DescriptorRoom,
    end_state::EndState,
    exclude::Exclude,
    executable::Executable,
    frida::{Event, Failure, Host, Starting},
    install::{Installer, Report},
    library::{self, Reader},
    native::Borrowed,
    process::{self, Process},
    program::Gated,
    settings::Settings,
    signals::{self, Asked, Interrupted, Signals},
};

/// How long getting into the program may take, besides what the number of functions calls for.
const ENTERING: Duration = Duration::from_secs(30);

/// How long a thread that loads a module may be held up.
const LOADING: Duration = Duration::from_secs(10);

/// How long taking all hooks out may take.
const LEAVING: Duration = Duration::from_secs(10);

/// How long one look at everything that may happen lasts.
const GLANCE: Duration = Duration::from_millis(20);

/// Starts a program and traces it until it ends.
pub(crate) fn run(settings: &Settings, command: &[OsString]) -> Result<EndState> {
    let [name, args @ ..] = command else { unreachable!("clap wants a program") };
    let executable = Executable::find(name, settings.engine)?;
    let signals = Signals::watch()?;
    let (mut trace, gated, _own_room) = match settings.engine {
        Engine::Frida => run_with_frida(settings, &executable, name, args)?,
        Engine::Native => run_natively(settings, &executable, name, args)?,
    };
    signals::check()?;
    signals.forward_to(gated.pid())?;
    let mut program = gated.open()?;
    let ending = loop {
        if let Some(ending) = program.try_wait()? {
            break ending;
        }
        trace.poll();
    };
    signals.stop_forwarding();
    trace.ended(ending, settings, &signals);
    Ok(ending)
}

fn run_with_frida(
    settings: &Settings,
    executable: &Executable,
    name: &OsStr,
    args: &[OsString],
) -> Result<(Trace, Gated, DescriptorRoom)> {
    let library = library::place(Reader::Own)?;
    let own_room = DescriptorRoom::make_own()?;
    let starting = Starting::launch(&settings.frida)?;
    let started = Instant::now();
    let gated = Gated::start(executable, name, args, &library, started + ENTERING)?;
    let _room = own_room.of(gated.pid());
    let delivery = Delivery::start(settings, gated.pid())?;
    let trace = Trace::begin(settings, starting, gated.pid(), &library, delivery, started, &[gated.pid()])?;
    Ok((trace, gated, own_room))
}

fn run_natively(
    settings: &Settings,
    executable: &Executable,
    name: &OsStr,
    args: &[OsString],
) -> Result<(Trace, Gated, DescriptorRoom)> {
    let started = Instant::now();
    let mut gated = Gated::stopped(executable, name, args)?;
    let own_room = DescriptorRoom::make_own()?;
    let pid = gated.pid();
    let delivery = Delivery::start(settings, pid)?;
    let deadline = started + settings.startup_timeout.unwrap_or(ENTERING);
    let mut thread = Borrowed::of_stopped(pid, pid)?;
    let mut entered = Entered::natively(settings, pid, &mut thread, deadline)?;
    gated.lend(thread, &entered.library)?;
    entered.is_serving = true;
    let trace = Trace::install(settings, entered, delivery, started).map_err(|error| or_ended(pid, error))?;
    Ok((trace, gated, own_room))
}

/// Traces a process that is there already, until it ends or somebody asks to stop.
pub(crate) fn attach(settings: &Settings, pid: i32) -> Result<ExitCode> {
    // Held to the end: two that attach at once would take each other's hooks for the program's.
    let name = SocketAddr::from_abstract_name(format!("spoor-attach-{pid}"))?;
    let _alone = UnixListener::bind_addr(&name)
        .map_err(|_| anyhow!("cannot attach to process {pid}: another agent is tracing it (end that first)"))?;
    let process = Process::find(pid, settings.engine)?;
    let signals = Signals::watch()?;
    let _own_room = DescriptorRoom::make_own()?;
    let mut trace = match settings.engine {
        Engine::Frida => attach_with_frida(settings, pid, process.is_foreign)?,
        Engine::Native => attach_natively(settings, pid)?,
    };
    loop {
        if let Some(ending) = process.wait(Duration::ZERO)? {
            let ending = trace.ending_told().filter(|_| ending == EndState::Unknown).unwrap_or(ending);
            trace.ended(ending, settings, &signals);
            if let EndState::Signaled(_) = ending {
                say!("process {pid} {ending}");
            }
            return Ok(ExitCode::SUCCESS);
        }
        if signals.asked() != Asked::Nothing {
            return trace.detach(settings, &signals);
        }
        trace.poll();
    }
}

fn attach_with_frida(settings: &Settings, pid: i32, is_foreign: bool) -> Result<Trace> {
    let library = library::place(if is_foreign { Reader::Other } else { Reader::Own })?;
    let starting = Starting::launch(&settings.frida)?;
    let started = Instant::now();
    let delivery = Delivery::start(settings, pid)?;
    let _room = DescriptorRoom::make(pid)?;
    let before = process::threads(pid)?;
    Trace::begin(settings, starting, pid, &library, delivery, started, &before)
}

fn attach_natively(settings: &Settings, pid: i32) -> Result<Trace> {
    let started = Instant::now();
    let delivery = Delivery::start(settings, pid)?;
    let deadline = started + settings.startup_timeout.unwrap_or(ENTERING);
    let entered = Borrowed::take(pid, deadline).and_then(|mut thread| {
        let entered = Entered::natively(settings, pid, &mut thread, deadline)?;
        thread.give_back()?;
        Ok(entered)
    });
    let trace = entered.and_then(|entered| Trace::install(settings, entered, delivery, started));
    trace.map_err(|error| or_ended(pid, error))
}

/// A target with hooks in it.
struct Trace {
    pid: i32,
    /// Frida in it, unless it had to leave, or was not needed.
    host: Option<Host>,
    arena: Arc<Arena>,
    installer: Installer,
    delivery: Delivery,
    /// Frida's threads.
    foreign: Vec<i32>,
    /// Whether the loader has yet to load what the program is linked to.
    is_loading: bool,
}

impl Trace {
    /// Lets Frida in, and hooks everything that is loaded.
    fn begin(
        settings: &Settings,
        starting: Starting,
        pid: i32,
        library: &Path,
        delivery: Delivery,
        started: Instant,
        before: &[i32],
    ) -> Result<Self> {
        let deadline = started + settings.startup_timeout.unwrap_or(ENTERING);
        let host = starting.attach(pid, library, deadline).map_err(Into::into);
        let entered = host.and_then(|host| Entered::with_frida(settings, host, pid, library, before));
        let trace = entered.and_then(|entered| Self::install(settings, entered, delivery, started));
        trace.map_err(|error| or_ended(pid, error))
    }

    /// Hooks everything that is loaded, for all threads but the foreign ones. On failure everything is undone.
    fn install(settings: &Settings, entered: Entered, mut delivery: Delivery, started: Instant) -> Result<Self> {
        let Entered { pid, host, foreign, library, is_serving, arena, routines } = entered;
        if let Some(depth) = settings.max_depth {
            // ORDERING: before anything is hooked.
            arena.control().max_depth.store(depth.into(), Ordering::Relaxed);
        }
        let routines = Routines::new(&routines, settings.detail)
            .ok_or_else(|| anyhow!("the library in the program is another than this command's"))?;
        let exclude = Exclude::new(&settings.exclude);
        let names = delivery.functions();
        let symbols = Arc::clone(&settings.symbols);
        let installer = Installer::new(pid, library, Arc::clone(&arena), routines, exclude, symbols, names)?;
        let needed = installer.time_needed()?;
        let deadline = started + settings.startup_timeout.unwrap_or(ENTERING + needed);
        // ORDERING: nothing is hooked yet.
        arena.control().recording.store(1, Ordering::Relaxed);
        delivery.begin(Arc::clone(&arena))?;
        let engine = settings.engine;
        let mut trace = Self { pid, host, arena, installer, delivery, foreign, is_loading: false };
        let entered = started.elapsed();
        let hooked = match engine {
            Engine::Frida => trace.hook(deadline),
            Engine::Native => trace.hook_natively(is_serving, deadline),
        };
        match hooked {
            Ok(report) => {
                trace.is_loading = is_serving && engine == Engine::Native && report.modules.len() > 1;
                if !trace.is_loading {
                    trace.installer.warn_of_unmatched();
                }
                if settings.verbose {
                    say!("{}", timing(engine, &report, entered, started.elapsed()));
                }
                Ok(trace)
            }
            Err(error) => {
                // Nothing more can be done where this fails too.
                let _ = trace.installer.remove(&trace.foreign, Instant::now() + LEAVING);
                let _ = trace.arena.go_on(Instant::now() + GLANCE);
                trace.delivery.give_up();
                Err(error)
            }
        }
    }

    fn hook(&mut self, deadline: Instant) -> Result<Report> {
        let host = self.host.as_ref().context("Frida is not there")?;
        let serving = host.serve();
        if self.arena.wait_request(deadline) != Some(MailboxRequest::Ready) {
            serving.wait(Instant::now() + GLANCE)?;
            return Err(anyhow!("not ready in time: the library in the program does not answer"));
        }
        self.installer.ignore(&self.foreign, deadline)?;
        let Self { installer, delivery, .. } = self;
        let report = installer.install(deadline, &mut |report| delivery.report(report))?;
        self.arena.go_on(deadline)?;
        serving.wait(deadline)?;
        // What cannot be masked takes the program's signals now and then, which is told with the rest.
        let unmasked = host.mask_threads(&self.foreign)?;
        self.delivery.limit("frida-threads-take-signals", unmasked.len() as u64, "");
        let gum = host.attach_gum(&report.for_gum, deadline)?;
        self.delivery.limit("refused-by-frida", gum.failed.len() as u64, "");
        host.watch_modules()?;
        self.hook_what_came_meanwhile(deadline)?;
        Ok(report)
    }

    /// Hooks everything, where the main thread serves or threads can be borrowed.
    fn hook_natively(&mut self, is_serving: bool, deadline: Instant) -> Result<Report> {
        if is_serving && self.arena.wait_request(deadline) != Some(MailboxRequest::Ready) {
            bail!("not ready in time: the library in the program does not answer");
        }
        let Self { installer, delivery, .. } = self;
        let report = installer.install(deadline, &mut |report| delivery.report(report))?;
        if is_serving {
            self.arena.go_on(deadline)?;
            return Ok(report);
        }
        // What was loaded before the loader could tell.
        while !installer.has_all()? && self.arena.request().is_none() {
            installer.install(deadline, &mut |report| delivery.report(report))?;
        }
        Ok(report)
    }

    /// Hooks what a running program has loaded before modules were watched.
    fn hook_what_came_meanwhile(&mut self, deadline: Instant) -> Result<()> {
        let has_all = self.installer.has_all()?;
        let Some(host) = self.host.as_ref().filter(|_| !has_all) else { return Ok(()) };
        let serving = host.serve();
        while let Some(told) = self.arena.wait_request(deadline) {
            if told == MailboxRequest::Ready {
                let Self { installer, delivery, .. } = self;
                installer.install(deadline, &mut |report| delivery.report(report))?;
                self.arena.go_on(deadline)?;
                break;
            }
            self.poll();
        }
        serving.wait(deadline)?;
        Ok(())
    }

    /// Handles what has happened, and waits for it for a moment.
    fn poll(&mut self) {
        match self.arena.wait_request(Instant::now() + GLANCE) {
            Some(MailboxRequest::Loaded(base)) => {
                self.loaded(Some(base));
            }
            Some(MailboxRequest::Changed) => {
                let gone = self.installer.unloaded_meanwhile().unwrap_or_default();
                gone.into_iter().for_each(|id| self.delivery.unloaded(id));
                let is_new = self.loaded(None);
                self.warn_once(is_new);
            }
            Some(MailboxRequest::Unloaded(base)) => {
                if let Some(id) = self.installer.unloaded(base) {
                    self.delivery.unloaded(id);
                }
                let _ = self.arena.go_on(Instant::now() + LOADING);
            }
            Some(MailboxRequest::Alone) => {
                self.leave_alone(Instant::now() + LOADING);
                let _ = self.arena.go_on(Instant::now() + LOADING);
            }
            Some(MailboxRequest::Ready) | None => {}
        }
        if self.installer.is_replaced() {
            self.replaced();
        }
        while let Some(event) = self.host.as_ref().and_then(|host| host.next_event(Duration::ZERO)) {
            match event {
                Event::Detached(reason) if reason == "process-replaced" => self.replaced(),
                // That is seen where the program is waited for.
                Event::Detached(reason) if reason == "process-terminated" => {}
                Event::Detached(reason) => {
                    self.delivery.limit(
                        "frida-gone",
                        1,
                        &format!("modules loaded after that are not hooked: {reason}"),
                    );
                }
                Event::Gone => {
                    say!("Frida's helper was ended: modules loaded from now on are not hooked");
                    self.delivery.limit("frida-gone", 1, "modules loaded after that are not hooked");
                    self.host = None;
                }
            }
        }
    }

    /// Says what is worth saying when all is loaded that the program is linked to.
    fn warn_once(&mut self, is_loaded: bool) {
        if self.is_loading && is_loaded {
            self.is_loading = false;
            self.installer.warn_of_unmatched();
        }
    }

    /// Hooks a module, or all, that a thread has just loaded, which waits. Whether there was any.
    fn loaded(&mut self, base: Option<u64>) -> bool {
        let deadline = Instant::now() + LOADING;
        let Self { installer, delivery, foreign, .. } = self;
        let mut is_new = false;
        let mut tell = |report: &Report| {
            is_new |= !report.modules.is_empty() || !report.unreadable.is_empty();
            delivery.report(report);
        };
        match installer.loaded(base, foreign, deadline, &mut tell) {
            Ok(replaced) => replaced.into_iter().for_each(|id| delivery.unloaded(id)),
            Err(error) => delivery.limit("module-not-hooked", 1, &format!("{error:#}")),
        }
        // A thread that is not there any more has not waited.
        let _ = self.arena.go_on(deadline);
        is_new
    }

    /// Has Frida leave the program, which is about to do something that its threads would not survive. Hooks stay.
    fn leave_alone(&mut self, deadline: Instant) {
        let Some(host) = self.host.take() else { return };
        let own = process::threads(self.pid).unwrap_or_default();
        // Another thread may just be loading something. It would wait for us, so this is not waited for.
        let _ = host.unwatch_modules().wait(Instant::now() + GLANCE);
        let _ = host.detach_gum(deadline);
        drop(host);
        // It starts a thread to end the others. The program may start some, too.
        let is_left = |tid: &i32| self.foreign.contains(tid) || !own.contains(tid);
        while process::threads(self.pid).is_ok_and(|threads| threads.iter().any(is_left)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.delivery.limit(
            "frida-gone",
            1,
            "the program needed to be alone: modules loaded after that are not hooked",
        );
    }

    /// Whether the program has asked the system to run another one in its place, and has not come back from that.
    fn is_executing(&self) -> bool {
        // ORDERING: a hint while the program runs, and final when it is gone.
        self.arena.control().executing.load(Ordering::Relaxed) != 0
    }

    /// The process runs another program now.
    fn replaced(&self) {
        self.host.as_ref().inspect(|host| host.target_is_gone());
        self.delivery.end(EndReason::Replaced);
    }

    /// How the program said it would end.
    fn ending_told(&self) -> Option<EndState> {
        // ORDERING: the process is gone.
        let told = self.arena.control().exit_code.load(Ordering::Relaxed);
        told.checked_sub(1).map(|code| EndState::Exited(code as i32 & 0xFF))
    }

    /// The program has ended: ships what is left.
    fn ended(mut self, ending: EndState, settings: &Settings, signals: &Signals) {
        self.warn_once(true);
        self.host.as_ref().inspect(|host| host.target_is_gone());
        if self.is_executing() {
            self.replaced();
        }
        self.delivery.end(ending.into());
        self.delivery.finish(settings, signals);
    }

    /// Has Frida enter a program again that it had to leave.
    fn come_back(&mut self, settings: &Settings, library: &Path, deadline: Instant) -> Result<Host> {
        let starting = Starting::launch(&settings.frida)?;
        let _room = DescriptorRoom::make(self.pid)?;
        let before = process::threads(self.pid)?;
        let host = starting.attach(self.pid, library, deadline)?;
        self.foreign = threads_since(self.pid, &before)?;
        Ok(host)
    }

    /// Takes everything out of the program, which goes on.
    fn detach(mut self, settings: &Settings, signals: &Signals) -> Result<ExitCode> {
        signals.acknowledge();
        let removed = match self.installer.library_file() {
            Some(library) => self.leave_with_frida(settings, &library)?,
            None => {
                // A thread may just be loading something, and waits for us.
                while self.arena.request().is_some() {
                    self.poll();
                }
                self.installer.remove(&[], Instant::now() + LEAVING)
            }
        };
        self.delivery.end(EndReason::Detached);
        self.delivery.finish(settings, signals);
        if let Err(error) = removed {
            // The hooks find out that nobody reads the rings. Whoever attaches next finds out that they are there.
            return Err(or_ended(self.pid, error.context("cannot take all hooks out of the program")));
        }
        // ORDERING: whoever still waits for room in a ring sees it sooner or later.
        self.arena.control().recording.store(0, Ordering::Relaxed);
        self.arena.release();
        Ok(ExitCode::SUCCESS)
    }

    /// Takes all hooks out, and has Frida leave. An error in the result if only a part of that could be done.
    fn leave_with_frida(&mut self, settings: &Settings, library: &Path) -> Result<Result<()>> {
        let host = match self.host.take() {
            Some(host) => host,
            None => self.come_back(settings, library, Instant::now() + ENTERING)?,
        };
        let deadline = Instant::now() + LEAVING;
        // A thread may just be loading something, and waits for us.
        let unwatching = host.unwatch_modules();
        while !unwatching.is_done() && Instant::now() < deadline {
            self.poll();
        }
        let serving = host.serve();
        while !matches!(self.arena.wait_request(deadline), Some(MailboxRequest::Ready) | None) {
            self.poll();
        }
        let removed = self.installer.remove(&self.foreign, deadline);
        let _ = self.arena.go_on(deadline);
        let removed = removed.and(serving.wait(deadline).map(drop).map_err(Into::into));
        let removed = removed.and(host.detach_gum(deadline).map_err(Into::into));
        drop(host);
        Ok(removed)
    }
}

/// Why a program could not be prepared: if it has ended, that is why, whatever failed for it.
fn or_ended(pid: i32, error: anyhow::Error) -> anyhow::Error {
    let is_asked_to_stop = error.chain().any(|cause| cause.is::<Interrupted>());
    if !is_asked_to_stop && process::has_ended(pid) { Failure::TargetEnded.into() } else { error }
}
