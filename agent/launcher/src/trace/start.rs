//! Starting a program, or attaching to one, and staying with it to its end.

use std::{
    ffi::{OsStr, OsString},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};

use super::{
    ENTERING, Trace,
    entered::{Entered, or_ended, or_replaced},
};
use crate::{
    control,
    delivery::Delivery,
    descriptors::DescriptorRoom,
    end_state::EndState,
    engine::Engine,
    executable::Executable,
    family::Family,
    frida::Starting,
    library::{self, Reader},
    native::{Borrowed, Library},
    process::{self, Process, Running},
    program::Gated,
    settings::Settings,
    signals::{self, Asked, Signals},
};

/// Starts a program and traces it, and what it starts, until it ends.
pub(crate) fn run(settings: Settings, command: &[OsString]) -> Result<EndState> {
    let [name, args @ ..] = command else { unreachable!("clap wants a program") };
    let (executable, engine) = Executable::find(name, settings.engine)?;
    let family = Family::new(settings, Signals::watch()?)?;
    let (mut trace, gated, _own_room) = match engine {
        Engine::Frida => run_with_frida(&family, &executable, name, args)?,
        Engine::Native => run_natively(&family, &executable, name, args)?,
    };
    signals::check()?;
    family.signals.forward_to(gated.pid())?;
    let mut program = gated.open()?;
    let _reachable = control::listen(&family);
    let ending = loop {
        // While it is held, it is asked elsewhere what has become of it.
        if trace.replacement.is_none()
            && let Some(ending) = program.try_wait()?
        {
            break ending;
        }
        trace.poll();
        if let Some(ending) = trace.follow_replacement() {
            program.has_ended(ending);
        }
    };
    family.signals.stop_forwarding();
    family.has_ended();
    trace.ended(ending);
    family.end();
    Ok(ending)
}

fn run_with_frida(
    family: &Arc<Family>,
    executable: &Executable,
    name: &OsStr,
    args: &[OsString],
) -> Result<(Trace, Gated, DescriptorRoom)> {
    let library = library::place(Reader::Own)?;
    let own_room = DescriptorRoom::make_own()?;
    let starting = Starting::launch(&family.settings.frida)?;
    let started = Instant::now();
    let gated = Gated::start(executable, name, args, &library, started + ENTERING)?;
    let _room = own_room.of(gated.pid());
    let delivery = Delivery::start(family, gated.pid(), None)?;
    let trace = Trace::begin(family, starting, gated.pid(), &library, delivery, started, &[gated.pid()])?;
    Ok((trace, gated, own_room))
}

fn run_natively(
    family: &Arc<Family>,
    executable: &Executable,
    name: &OsStr,
    args: &[OsString],
) -> Result<(Trace, Gated, DescriptorRoom)> {
    let started = Instant::now();
    let mut gated = Gated::stopped(executable, name, args)?;
    let own_room = DescriptorRoom::make_own()?;
    let pid = gated.pid();
    let delivery = Delivery::start(family, pid, None)?;
    let deadline = started + family.settings.startup_timeout.unwrap_or(ENTERING);
    let mut thread = Borrowed::of_stopped(pid, pid)?;
    let mut entered = Entered::natively(&family.settings, pid, &mut thread, deadline)?;
    gated.lend(thread, &entered.library)?;
    entered.is_serving = true;
    let trace = Trace::install(family, entered, delivery, started).map_err(|error| or_ended(pid, error))?;
    Ok((trace, gated, own_room))
}

/// Traces a process that is there already, until it ends or somebody asks to stop.
pub(crate) fn attach(settings: Settings, pid: i32) -> Result<ExitCode> {
    // Held to the end: two that attach at once would take each other's hooks for the program's.
    let name = SocketAddr::from_abstract_name(format!("spoor-attach-{pid}"))?;
    let _alone = UnixListener::bind_addr(&name)
        .map_err(|_| anyhow!("cannot attach to process {pid}: another agent is tracing it (end that first)"))?;
    let (process, engine) = Process::find(pid, settings.engine)?;
    let family = Family::new(settings, Signals::watch()?)?;
    let _own_room = DescriptorRoom::make_own()?;
    let program = Running::of(pid);
    let trace = match engine {
        Engine::Frida => attach_with_frida(&family, pid, process.is_foreign),
        Engine::Native => attach_natively(&family, pid),
    };
    let mut trace = trace.map_err(|error| or_replaced(&program, error))?;
    let _reachable = control::listen(&family);
    loop {
        if trace.replacement.is_none()
            && let Some(ending) = process.wait(Duration::ZERO)?
        {
            family.has_ended();
            let ending = trace.ending(ending);
            trace.ended(ending);
            family.end();
            if let EndState::Signaled(_) = ending {
                say!("process {pid} {ending}");
            }
            return Ok(ExitCode::SUCCESS);
        }
        if family.signals.asked() != Asked::Nothing {
            family.signals.acknowledge();
            family.has_ended();
            let detached = trace.detach(true);
            family.end();
            return detached.map(|()| ExitCode::SUCCESS);
        }
        trace.poll();
        trace.follow_replacement();
    }
}

fn attach_with_frida(family: &Arc<Family>, pid: i32, is_foreign: bool) -> Result<Trace> {
    let library = library::place(if is_foreign { Reader::Other } else { Reader::Own })?;
    let starting = Starting::launch(&family.settings.frida)?;
    let started = Instant::now();
    let delivery = Delivery::start(family, pid, None)?;
    let _room = DescriptorRoom::make(pid)?;
    let before = process::threads(pid)?;
    Trace::begin(family, starting, pid, &library, delivery, started, &before)
}

fn attach_natively(family: &Arc<Family>, pid: i32) -> Result<Trace> {
    let started = Instant::now();
    let delivery = Delivery::start(family, pid, None)?;
    let deadline = started + family.settings.startup_timeout.unwrap_or(ENTERING);
    let thread = Library::wait_for_borrowed(pid).and_then(|()| Borrowed::take(pid, deadline));
    let entered = thread.and_then(|mut thread| {
        let entered = Entered::natively(&family.settings, pid, &mut thread, deadline)?;
        thread.give_back()?;
        Ok(entered)
    });
    let trace = entered.and_then(|entered| Trace::install(family, entered, delivery, started));
    trace.map_err(|error| or_ended(pid, error))
}
