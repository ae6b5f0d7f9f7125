//! What has to be done inside the target, by one of its threads, and where its stubs can be.

use std::{
    path::PathBuf,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use agent::{shared::Command, stub::Block};
use anyhow::Result;

use super::{
    Installer, is_frida,
    maps::{Mapped, Maps},
    module::Planned,
    stop::Stopped,
};
use crate::{
    native::{Borrowed, Library},
    process,
};

/// How long threads may wait in the system, and how long they may take to stop, where that is not needed.
const WAITING: Duration = Duration::from_millis(50);
const STOPPING: Duration = Duration::from_secs(1);

/// Where the library is in a target.
#[derive(Debug)]
pub(crate) enum LibraryPlace {
    /// The loader has loaded it from this file. A thread waits in the mailbox while hooks are installed.
    File(PathBuf),
    /// It was mapped by hand. Threads are borrowed.
    Native(Library),
}

impl Installer {
    /// The file that the loader has loaded the library from, if it has.
    pub(crate) fn library_file(&self) -> Option<PathBuf> {
        match &self.library {
            LibraryPlace::File(path) => Some(path.clone()),
            LibraryPlace::Native(_) => None,
        }
    }

    /// Lets the thread go on that waits in the mailbox.
    pub(crate) fn go_on(&self, deadline: Instant) -> Result<()> {
        self.ask(None, Command::GoOn, &[], deadline).map(drop)
    }

    /// Has a thread of the target do something: the one that waits in the mailbox, or one that is borrowed.
    pub(super) fn ask(
        &self,
        stopped: Option<&Stopped>,
        command: Command,
        arguments: &[u64],
        deadline: Instant,
    ) -> Result<u64> {
        let is_there = || !self.arena.has_ended() && !self.is_replaced();
        let ask_waiting = || Ok(self.arena.ask_while(command, arguments, deadline, &is_there)?);
        let LibraryPlace::Native(library) = &self.library else { return ask_waiting() };
        // ORDERING: it waits in the mailbox.
        let waiting = self.arena.control().mailbox.owner.load(Ordering::Relaxed) as i32;
        if self.arena.request().is_some() && !stopped.is_some_and(|stopped| stopped.holds(waiting)) {
            return ask_waiting();
        }
        let mut thread = match stopped {
            Some(stopped) => stopped.borrow(self.pid)?,
            None => Borrowed::take(self.pid, deadline)?,
        };
        let answer = library.execute(&mut thread, command, arguments, deadline)?;
        thread.give_back()?;
        Ok(answer)
    }

    /// Where stubs of an earlier time can be replaced, of an agent that has left, or of a module that was unloaded: they are
    /// the same, or their module is gone, and nobody is in them.
    pub(super) fn find_block(&self, planned: &Planned, bytes: usize, deadline: Instant) -> Result<Option<u64>> {
        let maps = Maps::read(self.pid)?;
        let (modules, near) = (maps.modules(), maps.reach_of(planned.mapped(), bytes as u64));
        let (mut there, mut left) = (vec![0; bytes], Vec::new());
        for at in maps.code_without_file(bytes as u64).filter(|at| near.contains(at)) {
            let is_read = self.memory.read(at, &mut there).is_ok();
            let Some(bias) = Block::bias_of(&there).filter(|_| is_read) else { continue };
            if bias == planned.bias() && self.block_of(planned, at, 0).0.can_replace(&there) {
                return Ok(Some(at));
            }
            // A program that was not linked to be moved is never gone.
            if bias != 0 && !modules.iter().any(|mapped| mapped.base == bias && !is_frida(mapped)) {
                left.push(at);
            }
        }
        if left.is_empty() {
            return Ok(None);
        }
        // A thread may wait for a child that waits for us. Then there is other memory.
        let waiting = deadline.min(Instant::now() + WAITING);
        if !process::threads(self.pid)?.into_iter().all(|tid| process::becomes_stoppable(tid, waiting)) {
            return Ok(None);
        }
        let Ok(stopped) = Stopped::stop(self.pid, &[], deadline.min(Instant::now() + STOPPING)) else {
            return Ok(None);
        };
        Ok(left.into_iter().find(|block| !stopped.is_any_in(|at| (*block..block + bytes as u64).contains(&at))))
    }

    pub(super) fn map_near(&self, module: &Mapped, bytes: u64, deadline: Instant) -> Result<Option<u64>> {
        let heap = process::start_of_heap(self.pid);
        // Read anew for each module, since each takes some.
        for place in Maps::read(self.pid)?.room_near(module, bytes, heap) {
            if self.ask(None, Command::Map, &[place, bytes], deadline)? == place {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }
}
