//! A trace from its start to its end.

mod children;
mod entered;
mod hottest;
mod leaving;
mod member;
mod start;
mod timing;

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use agent::{
    shared::{Arena, MailboxRequest},
    stub::Routines,
};
use anyhow::{Context, Result, anyhow, bail};
use codec::profile::EndReason;

pub(crate) use self::start::{attach, run};
use self::{
    children::Replacement,
    entered::{Entered, or_ended},
    timing::timing,
};
use crate::{
    delivery::Delivery,
    end_state::EndState,
    family::{Family, Seat},
    frida::{self, Event, Host, Starting},
    install::{Installer, Report},
    native, process,
    signals::is_interrupted,
};

/// How long getting into the program may take, besides what the number of functions calls for.
const ENTERING: Duration = Duration::from_secs(30);

/// How long a thread that loads a module may be held up.
const LOADING: Duration = Duration::from_secs(10);

/// How long taking all hooks out may take.
const LEAVING: Duration = Duration::from_secs(10);

/// How long a program that seems to be gone may take to end.
const ENDING: Duration = Duration::from_millis(100);

/// How long one look at everything that may happen lasts, and how long where something is about to.
const GLANCE: Duration = Duration::from_millis(20);
const MOMENT: Duration = Duration::from_micros(100);

/// How often is looked for modules where the loader does not tell of them.
const LOOKING: Duration = Duration::from_millis(100);

/// A target with hooks in it.
struct Trace {
    family: Arc<Family>,
    /// Its place among those that are traced at once.
    seat: Option<Seat>,
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
    /// When was last looked for modules that nobody has told of.
    looked: Instant,
    /// When hooks are next taken out of functions that are called too often.
    next_settling: Instant,
    /// How many forked children were heard of.
    forked: u32,
    /// The program that it is about to run in its place.
    replacement: Option<Replacement>,
    /// Whether the process runs another program, which is not traced, and whether that was told before it did.
    is_over: bool,
    is_told: bool,
}

impl Trace {
    /// Lets Frida in, and hooks everything that is loaded.
    fn begin(
        family: &Arc<Family>,
        starting: Starting,
        pid: i32,
        library: &Path,
        delivery: Delivery,
        started: Instant,
        before: &[i32],
    ) -> Result<Self> {
        let deadline = started + family.settings.startup_timeout.unwrap_or(ENTERING);
        let host = starting.attach(pid, library, deadline).map_err(Into::into);
        let entered = host.and_then(|host| Entered::with_frida(&family.settings, host, pid, library, before));
        let trace = entered.and_then(|entered| Self::install(family, entered, delivery, started));
        trace.map_err(|error| or_ended(pid, error))
    }

    /// Hooks everything that is loaded, for all threads but the foreign ones. On failure everything is undone.
    fn install(family: &Arc<Family>, entered: Entered, mut delivery: Delivery, started: Instant) -> Result<Self> {
        let settings = &family.settings;
        let Entered { pid, host, foreign, library, is_serving, arena, routines } = entered;
        let routines = Routines::new(&routines, settings.detail)
            .ok_or_else(|| anyhow!("the library in the program is another than this command's"))?;
        let rules = Arc::clone(&settings.rules);
        let names = delivery.functions();
        let symbols = Arc::clone(&settings.symbols);
        let mut installer = Installer::new(pid, library, Arc::clone(&arena), routines, rules, symbols, names)?;
        if is_serving && host.is_none() {
            installer.share(&family.plans);
        }
        let needed = installer.time_needed()?;
        let deadline = started + settings.startup_timeout.unwrap_or(ENTERING + needed);
        Self::deliver(family, &arena, &mut delivery)?;
        let with_frida = host.is_some();
        let mut trace = Self::new(family, pid, arena, installer, delivery);
        (trace.host, trace.foreign) = (host, foreign);
        let entered = started.elapsed();
        let hooked = match with_frida {
            true => trace.hook(deadline),
            false => trace.hook_natively(is_serving, deadline),
        };
        match hooked {
            Ok(report) => {
                trace.is_loading = is_serving && !with_frida && report.modules.len() > 1;
                if !with_frida && report.modules.len() > 1 && !trace.installer.hears_of_modules() {
                    let why = "its loader does not tell of modules: those that are loaded later are hooked late, or not at all";
                    trace.delivery.limit("loader-not-watched", 1, why);
                }
                if !trace.is_loading {
                    family.warn_once(|| settings.rules.warn_of_unmatched());
                }
                if settings.verbose {
                    say!("{}", timing(with_frida, &report, entered, started.elapsed()));
                }
                Ok(trace)
            }
            Err(error) => {
                native::let_go_of_left(ENDING);
                // Whoever has asked to stop, even twice, wants that, too. Nothing more can be done where it fails.
                let removed = loop {
                    family.signals.acknowledge();
                    match trace.installer.remove(&trace.foreign, Instant::now() + LEAVING) {
                        Err(error) if is_interrupted(&error) => {}
                        removed => break removed,
                    }
                };
                let _ = trace.arena.go_on(Instant::now() + GLANCE);
                trace.delivery.give_up();
                if removed.is_ok() {
                    // ORDERING: as where it is detached from. Else who attaches next would find hooks there.
                    trace.arena.control().recording.store(0, Ordering::Relaxed);
                    trace.arena.release();
                }
                Err(error)
            }
        }
    }

    /// Has events delivered, of a target that makes none yet.
    fn deliver(family: &Family, arena: &Arc<Arena>, delivery: &mut Delivery) -> Result<()> {
        let control = arena.control();
        if let Some(depth) = family.settings.rules.max_depth {
            // ORDERING: before anything is recorded.
            control.max_depth.store(depth.into(), Ordering::Relaxed);
        }
        let (share, cost) = family.settings.thread_pace();
        // ORDERING: as above.
        control.share.store(share, Ordering::Relaxed);
        control.cost.store(cost, Ordering::Relaxed);
        // ORDERING: as above.
        control.recording.store(1, Ordering::Relaxed);
        delivery.begin(Arc::clone(arena))
    }

    fn new(family: &Arc<Family>, pid: i32, arena: Arc<Arena>, installer: Installer, delivery: Delivery) -> Self {
        Self {
            family: Arc::clone(family),
            seat: None,
            pid,
            host: None,
            arena,
            installer,
            delivery,
            foreign: Vec::new(),
            is_loading: false,
            looked: Instant::now(),
            next_settling: Instant::now(),
            forked: 0,
            replacement: None,
            is_over: false,
            is_told: false,
        }
    }

    fn hook(&mut self, deadline: Instant) -> Result<Report> {
        let host = self.host.as_ref().context("Frida is not there")?;
        let serving = host.serve();
        let is_none = || self.arena.wait_request(deadline.min(Instant::now() + GLANCE)).is_none();
        while is_none() && Instant::now() < deadline && !serving.is_over() {}
        if self.arena.request() != Some(MailboxRequest::Ready) {
            serving.wait(Instant::now() + GLANCE)?;
            return Err(anyhow!("not ready in time: the library in the program does not answer"));
        }
        self.installer.ignore(&self.foreign, deadline)?;
        let Self { installer, delivery, .. } = self;
        let report = installer.install(deadline, &mut |report| delivery.report(report))?;
        self.installer.go_on(deadline)?;
        serving.wait(deadline)?;
        // What cannot be masked takes the program's signals now and then, which is told with the rest.
        self.delivery.limit("frida-threads-take-signals", frida::mask(&self.foreign) as u64, "");
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
            self.installer.go_on(deadline)?;
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
                self.installer.go_on(deadline)?;
                break;
            }
            self.poll();
        }
        serving.wait(deadline)?;
        Ok(())
    }

    /// Handles what has happened, and waits for it for a moment.
    fn poll(&mut self) {
        native::let_go_of_left(Duration::ZERO);
        let glance = if self.replacement.is_some() { MOMENT } else { GLANCE };
        match self.arena.wait_request(Instant::now() + glance) {
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
            Some(MailboxRequest::Forked(told)) => self.forked(&told),
            Some(MailboxRequest::Executes(told)) => self.executes(&told),
            Some(MailboxRequest::Ready) | None => {}
        }
        if self.replacement.is_none() && self.installer.is_replaced() {
            self.replaced_untraced();
        }
        self.look_for_modules();
        self.settle_hooks();
        while let Some(event) = self.host.as_ref().and_then(|host| host.next_event(Duration::ZERO)) {
            match event {
                Event::Detached(reason) if reason == "process-replaced" => {
                    if self.replacement.is_none() {
                        self.replaced_untraced();
                    }
                }
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

    /// Hooks what was loaded where the loader does not tell of that, as in programs that are linked to musl. What ran of it before is
    /// not recorded.
    fn look_for_modules(&mut self) {
        let is_told = self.host.is_some() || self.replacement.is_some() || self.installer.hears_of_modules();
        if is_told || self.looked.elapsed() < LOOKING || self.arena.request().is_some() {
            return;
        }
        self.looked = Instant::now();
        let Self { installer, delivery, .. } = self;
        if installer.has_all().unwrap_or(true) {
            return;
        }
        let hooked = installer.install(Instant::now() + LOADING, &mut |report| {
            report.modules.iter().for_each(|module| delivery.limit("module-hooked-late", 1, &module.path));
            delivery.report(report);
        });
        if let Err(error) = hooked {
            delivery.limit("module-not-hooked", 1, &format!("{error:#}"));
        }
    }

    /// Says what is worth saying when all is loaded that the program is linked to.
    fn warn_once(&mut self, is_loaded: bool) {
        if self.is_loading && is_loaded {
            self.is_loading = false;
            self.family.warn_once(|| self.family.settings.rules.warn_of_unmatched());
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

    /// The process runs another program now, of which nothing is known. That is told once.
    fn replaced_untraced(&mut self) {
        self.host.take().inspect(|host| host.target_is_gone());
        if !self.is_over {
            self.is_over = true;
            if !self.is_told {
                self.unfollowed("the program ran another one in its place");
            }
            self.delivery.end(EndReason::Replaced);
        }
    }

    /// How the program ended: as it was seen to, else as it said it would.
    fn ending(&self, seen: EndState) -> EndState {
        // ORDERING: the process is gone.
        let told = self.arena.control().exit_code.load(Ordering::Relaxed);
        match (seen, told.checked_sub(1)) {
            (EndState::Unknown, Some(code)) => EndState::Exited(code as i32 & 0xFF),
            _ => seen,
        }
    }

    /// The program has ended: ships what is left.
    fn ended(mut self, ending: EndState) {
        self.warn_once(true);
        self.host.as_ref().inspect(|host| host.target_is_gone());
        self.await_forked();
        if self.is_executing() {
            self.replaced_untraced();
        }
        self.close(ending.into());
    }

    /// Ends the session, and waits until everything is delivered.
    fn close(self, reason: EndReason) {
        self.delivery.end(reason);
        let outcome = self.delivery.finish();
        self.family.add(self.pid, outcome);
    }
}
