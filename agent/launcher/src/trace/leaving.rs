//! Leaving a program that goes on.

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use agent::shared::MailboxRequest;
use anyhow::Result;
use codec::profile::EndReason;

use super::{ENDING, ENTERING, LEAVING, Trace, entered::threads_since};
use crate::{
    descriptors::DescriptorRoom,
    end_state::EndState,
    frida::{Host, Starting},
    process,
    signals::{Asked, is_interrupted},
};

/// How often it is tried again.
const AGAIN: Duration = Duration::from_secs(1);

impl Trace {
    /// Has Frida enter a program again that it had to leave.
    fn come_back(&mut self, library: &Path, deadline: Instant) -> Result<Host> {
        let starting = Starting::launch(&self.family.settings.frida)?;
        let _room = DescriptorRoom::make(self.pid)?;
        let before = process::threads(self.pid)?;
        let host = starting.attach(self.pid, library, deadline)?;
        self.foreign = threads_since(self.pid, &before)?;
        Ok(host)
    }

    /// Takes everything out of the program, which goes on. Where that cannot be done yet it is tried again if `waits`, until somebody
    /// asks to stop.
    pub(super) fn detach(mut self, waits: bool) -> Result<()> {
        self.replacement = None;
        let mut is_told = false;
        while let Err(error) = self.remove_hooks() {
            if process::wait_for_end(self.pid, ENDING).unwrap_or(false) {
                let ending = self.ending(EndState::Unknown);
                self.ended(ending);
                return Ok(());
            }
            if self.installer.is_replaced() {
                self.replaced_untraced();
                self.close(EndReason::Replaced);
                return Ok(());
            }
            let is_asked = self.family.signals.asked() != Asked::Nothing || is_interrupted(&error);
            self.family.signals.acknowledge();
            if !(waits || is_interrupted(&error)) || (is_told && is_asked) {
                // It is as if this command was killed: threads find out that nobody reads their rings. Were the session ended, others
                // would be given them.
                return Err(error.context("the hooks stay in the program, and pass everything through"));
            }
            if !is_told && !is_interrupted(&error) {
                is_told = true;
                say!("cannot leave process {} yet: {error:#}; Ctrl-C leaves the hooks in it", self.pid);
            }
            let next = Instant::now() + AGAIN;
            while is_told && Instant::now() < next && self.family.signals.asked() == Asked::Nothing {
                self.poll();
            }
        }
        self.await_forked();
        let arena = Arc::clone(&self.arena);
        self.close(EndReason::Detached);
        // ORDERING: whoever still waits for room in a ring sees it sooner or later.
        arena.control().recording.store(0, Ordering::Relaxed);
        arena.release();
        Ok(())
    }

    fn remove_hooks(&mut self) -> Result<()> {
        if let Some(library) = self.installer.library_file() {
            return self.leave_with_frida(&library);
        }
        // A thread may just be loading something, and waits for us.
        while self.arena.request().is_some() {
            self.poll();
        }
        self.installer.remove(&[], Instant::now() + LEAVING)
    }

    /// Takes all hooks out, and has Frida leave.
    fn leave_with_frida(&mut self, library: &Path) -> Result<()> {
        let host = match self.host.take() {
            Some(host) => host,
            None => self.come_back(library, Instant::now() + ENTERING)?,
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
        removed.and(host.detach_gum(deadline).map_err(Into::into))
    }
}
