//! A process that the program has made, on a thread of ours.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use agent::{
    drain::Functions,
    shared::{Arena, Command, MailboxRequest},
    ship::Birth,
};
use anyhow::Result;

use super::{LOADING, Trace};
use crate::{
    delivery::Delivery,
    end_state::EndState,
    family::{Family, Seat},
    install::Installer,
    process::Process,
};

/// A child that has inherited its parent's hooks, and waits in a mailbox of its own.
pub(super) struct Forked {
    pub(super) seat: Seat,
    pub(super) pid: i32,
    pub(super) birth: Birth,
    pub(super) arena: Arc<Arena>,
    pub(super) installer: Installer,
    pub(super) functions: Arc<Functions>,
}

impl Forked {
    /// Traces it until it ends.
    pub(super) fn follow(self, family: &Arc<Family>) {
        let (pid, arena) = (self.pid, Arc::clone(&self.arena));
        match self.begin(family) {
            Ok(trace) => trace.attend(),
            Err(error) => {
                let _ = arena.ask(Command::GoOn, &[0], Instant::now() + LOADING);
                if !super::process::has_ended(pid) {
                    family.unfollowed();
                    say!("process {pid} is not traced: {error:#}");
                }
            }
        }
    }

    fn begin(self, family: &Arc<Family>) -> Result<Trace> {
        let Self { seat, pid, birth, arena, installer, functions } = self;
        let deadline = Instant::now() + LOADING;
        let mut delivery = Delivery::start(family, pid, Some(birth))?;
        delivery.number_by(&functions);
        Trace::deliver(family, &arena, &mut delivery)?;
        let mut trace = Trace::new(family, pid, Arc::clone(&arena), installer, delivery);
        trace.seat = Some(seat);
        let is_waiting = matches!(arena.wait_request(deadline), Some(MailboxRequest::Forked(_)));
        let Trace { installer, delivery, .. } = &mut trace;
        let completed = match is_waiting {
            true => installer.complete(deadline, &mut |report| delivery.report(report)),
            false => Err(anyhow::anyhow!("it does not answer")),
        };
        let told = completed.and_then(|()| Ok(arena.ask(Command::GoOn, &[1], deadline)?));
        if let Err(error) = told {
            trace.delivery.give_up();
            return Err(error);
        }
        Ok(trace)
    }
}

impl Trace {
    /// Traces a process that the program has made until it ends, or is let go of since the program has ended.
    pub(super) fn attend(mut self) {
        let pid = self.pid;
        let Ok(process) = Process::traced(pid) else {
            let ending = self.ending(EndState::Unknown);
            return self.ended(ending);
        };
        loop {
            if self.replacement.is_none()
                && let Some(ending) = process.wait(Duration::ZERO).unwrap_or(Some(EndState::Unknown))
            {
                let ending = self.ending(ending);
                return self.ended(ending);
            }
            if self.family.is_over() {
                let family = Arc::clone(&self.family);
                match self.detach(false) {
                    Ok(()) => family.let_go(),
                    Err(error) if super::process::has_ended(pid) => drop(error),
                    Err(error) => say!("process {pid}: {error:#}"),
                }
                return;
            }
            self.poll();
            self.follow_replacement();
        }
    }
}
