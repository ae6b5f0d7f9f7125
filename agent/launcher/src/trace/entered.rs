//! Getting the library into a target, and sharing memory with it.

use std::{fs::OpenOptions, io, path::Path, sync::Arc, time::Instant};

use agent::shared::{Arena, FLAG_DETAIL, FLAG_FOLLOW_FORKS, FLAG_FOLLOW_PROGRAMS, FLAG_WRITE_GS};
use anyhow::{Context, Result};

use super::ENDING;
use crate::{
    args::Follow,
    frida::{Failure, Host},
    install::LibraryPlace,
    native::{Borrowed, Library},
    process::{self, Running},
    settings::Settings,
    signals::is_interrupted,
};

/// The most memory that rings may take up, in addresses; they use what is written to. And how many there may be.
const MOST_RING_BYTES: u64 = 64 << 30;
const MOST_RINGS: u64 = 4096;
const LEAST_RINGS: u64 = 16;

/// The library in a target, with the memory that it shares.
pub(super) struct Entered {
    pub(super) pid: i32,
    /// Frida, where it has let the library in.
    pub(super) host: Option<Host>,
    /// Frida's threads.
    pub(super) foreign: Vec<i32>,
    pub(super) library: LibraryPlace,
    /// Whether a thread waits in the mailbox, or is about to.
    pub(super) is_serving: bool,
    pub(super) arena: Arc<Arena>,
    pub(super) routines: Vec<u64>,
}

impl Entered {
    /// Through Frida. Threads that are not among these are Frida's.
    pub(super) fn with_frida(
        settings: &Settings,
        host: Host,
        pid: i32,
        library: &Path,
        before: &[i32],
    ) -> Result<Self> {
        let foreign = threads_since(pid, before)?;
        let descriptor = open_rings(settings, |bytes, rings, stack, flags| Ok(host.open(bytes, rings, stack, flags)?))?;
        let arena = shared_memory(pid, descriptor)?;
        host.close(descriptor)?;
        let routines = host.routines()?;
        Ok(Self {
            pid,
            host: Some(host),
            foreign,
            library: LibraryPlace::File(library.into()),
            is_serving: true,
            arena,
            routines,
        })
    }

    /// Through a thread that is borrowed.
    pub(super) fn natively(settings: &Settings, pid: i32, thread: &mut Borrowed, deadline: Instant) -> Result<Self> {
        let library = Library::enter(thread, pid, deadline)?;
        let descriptor = open_rings(settings, |bytes, rings, stack, flags| {
            let arguments = [bytes, rings, u64::from(stack), u64::from(flags)];
            opened(thread.call(&library, "spoor_open", &arguments, deadline)?)
        })?;
        let arena = shared_memory(pid, descriptor)?;
        thread.call(&library, "spoor_close", &[descriptor as u64], deadline)?;
        let routines = library.routines(pid)?;
        let library = LibraryPlace::Native(library);
        Ok(Self { pid, host: None, foreign: Vec::new(), library, is_serving: false, arena, routines })
    }
}

/// The memory behind a descriptor of the target's.
pub(super) fn shared_memory(pid: i32, descriptor: i32) -> Result<Arc<Arena>> {
    let file = process::look_into(pid, |folder| {
        OpenOptions::new().read(true).write(true).open(folder.join(format!("fd/{descriptor}")))
    });
    let arena = Arc::new(Arena::map(file.context("cannot open the memory that is shared with the program")?)?);
    arena.is_of(process::open(pid)?);
    Ok(arena)
}

/// Has the rings made, as many as the program's limits allow. `open` is given their size, how many there are, how much stack
/// is recorded, and flags.
pub(super) fn open_rings(settings: &Settings, mut open: impl FnMut(u64, u64, u32, u32) -> Result<i32>) -> Result<i32> {
    let detail = if settings.detail { FLAG_DETAIL } else { 0 };
    let pace = settings.pace_flags();
    let follow = match settings.follow {
        Follow::None => 0,
        Follow::Fork => FLAG_FOLLOW_FORKS,
        Follow::All => FLAG_FOLLOW_FORKS | FLAG_FOLLOW_PROGRAMS,
    };
    let flags = detail | pace | follow | gs_flag();
    let mut rings = (MOST_RING_BYTES / settings.ring_bytes).clamp(LEAST_RINGS, MOST_RINGS);
    loop {
        match open(settings.ring_bytes, rings, settings.stack_bytes, flags) {
            Err(error) if rings > LEAST_RINGS && matches!(error.downcast_ref(), Some(Failure::Memory(_))) => {
                rings = (rings / 4).max(LEAST_RINGS);
            }
            opened => return opened,
        }
    }
}

/// The descriptor that the library answers with, or why it could not make the rings.
pub(super) fn opened(answer: u64) -> Result<i32> {
    match answer as i64 as i32 {
        error @ ..0 => Err(Failure::Memory(io::Error::from_raw_os_error(-error)).into()),
        descriptor => Ok(descriptor),
    }
}

/// Whether programs may write `gs` on this machine.
fn gs_flag() -> u32 {
    if process::may_use_bases() { FLAG_WRITE_GS } else { 0 }
}

/// The threads that a process has and had not before.
pub(super) fn threads_since(pid: i32, before: &[i32]) -> Result<Vec<i32>> {
    Ok(process::threads(pid)?.into_iter().filter(|tid| !before.contains(tid)).collect())
}

/// Why a program could not be prepared: if it has ended, that is why, whatever failed for it.
pub(super) fn or_ended(pid: i32, error: anyhow::Error) -> anyhow::Error {
    if is_interrupted(&error) {
        return error;
    }
    // Its memory is gone a moment before it has ended.
    if process::wait_for_end(pid, ENDING).unwrap_or(false) {
        return Failure::TargetEnded.into();
    }
    // Frida is gone as if it had.
    if matches!(error.downcast_ref(), Some(Failure::TargetEnded)) { Failure::Replaced.into() } else { error }
}

/// The same where the process may run another program by now.
pub(super) fn or_replaced(program: &Running, error: anyhow::Error) -> anyhow::Error {
    if program.is_replaced() && !is_interrupted(&error) { Failure::Replaced.into() } else { error }
}
