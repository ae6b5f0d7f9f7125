//! What the thread does where somebody asks it to while the program runs. None of it takes long: rings have to be emptied.

use std::sync::{Arc, atomic::Ordering};

use agent::{
    drain::LevelCounts,
    shared::{FLAG_BLOCK, FLAG_TURN_DOWN},
};
use steering::{ByLevel, Status};

use super::{Order, Worker};

impl Worker {
    /// Does what it is asked to. Nobody may be there any more to hear of it.
    pub(super) fn control(&mut self, asked: Order) {
        match asked {
            Order::Status(tell) => drop(tell.send(self.status())),
            Order::Modules(tell) => {
                drop(tell.send(self.modules.iter().map(|(module, _)| Arc::clone(module)).collect()));
            }
            Order::Levels { functions, level, done } => {
                let _ = done.send(self.drain.set_functions(&functions, level));
            }
            Order::Pace => self.change_pace(),
            Order::Answer { number, result } => {
                self.shipper.answer(number, result.as_deref().map_err(String::as_str));
            }
            _ => {}
        }
    }

    fn status(&mut self) -> Status {
        let (counts, report) = (self.drain.counts(), self.shipper.report());
        let dropped = report.dropped.iter().map(|(reason, count)| (reason.to_string(), *count)).collect();
        let LevelCounts { full, counted, off, set } = self.drain.level_counts();
        let lost = report.lost.iter().map(|(cause, count)| (cause.to_string(), *count)).collect();
        Status {
            pid: self.traced.pid,
            program: self.traced.program.clone(),
            session: self.traced.session.clone(),
            agent: std::process::id(),
            threads: counts.threads,
            events: counts.events,
            functions: ByLevel { full, counted, off, set },
            dropped,
            lost,
            unconfirmed: report.unsettled,
            // Of these others know more.
            sessions: 1,
            events_per_second: 0,
            budget: String::new(),
        }
    }

    /// Has tracing cost what it may by now. Threads find out when they have filled another part of their rings.
    fn change_pace(&mut self) {
        let (control, settings) = (self.arena.control(), &self.family.settings);
        let (share, cost) = settings.thread_pace();
        // ORDERING: hints for who records; each is right by itself.
        control.share.store(share, Ordering::Relaxed);
        control.cost.store(cost, Ordering::Relaxed);
        let flags = control.flags.load(Ordering::Relaxed) & !(FLAG_BLOCK | FLAG_TURN_DOWN);
        control.flags.store(flags | settings.pace_flags(), Ordering::Relaxed);
        self.drain.set_pace(settings.drain_pace());
    }
}
