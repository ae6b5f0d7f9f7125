//! How it goes: a line that changes on a terminal, lines now and then elsewhere.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use collector_core::Cause;
use tokio::time::MissedTickBehavior;

use crate::{
    hub::Hub,
    quantity::{Size, count, counted},
};

/// How often the line on a terminal changes.
const LIVE: Duration = Duration::from_millis(500);

/// Tells how it goes, for ever.
pub(crate) async fn report(hub: Arc<Hub>, every: Duration) {
    let live = hub.notices.is_terminal();
    let mut interval = tokio::time::interval(if live { LIVE } else { every });
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval.tick().await;
    let mut last = Reading::of(&hub);
    loop {
        interval.tick().await;
        let now = Reading::of(&hub);
        let line = line(&hub, &last, &now);
        if live {
            hub.notices.status(line);
        } else if now.bytes != last.bytes || hub.ledger.core().sessions_open > 0 {
            hub.notices.say_always(line);
        }
        last = now;
    }
}

/// What is compared from one time to the next.
struct Reading {
    at: Instant,
    events: u64,
    bytes: u64,
}

impl Reading {
    fn of(hub: &Hub) -> Self {
        Self { at: Instant::now(), events: hub.ledger.core().written, bytes: hub.ledger.received_bytes() }
    }
}

fn line(hub: &Hub, last: &Reading, now: &Reading) -> String {
    let core = hub.ledger.core();
    let seconds = now.at.duration_since(last.at).as_secs_f64().max(1e-3);
    let rate = |now: u64, last: u64| (now.saturating_sub(last) as f64 / seconds) as u64;
    let agents = core.missing.iter().filter(|(cause, _)| matches!(cause, Cause::Agent(_)));
    let agents = agents.fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
    let mut line = format!(
        "{}, {} missing, {} events/s, {}/s, {}, {} dropped by agents",
        counted(core.sessions_open, "session"),
        count(core.missing()),
        count(rate(now.events, last.events)),
        Size(rate(now.bytes, last.bytes)),
        counted(core.written, "event"),
        count(agents),
    );
    for (name, lane) in &hub.ledger.lanes {
        let lost = hub.ledger.lost_by(name, lane);
        line += &format!("; {name} {} behind", Size(lane.queued_bytes.load(Relaxed)));
        if lost > 0 {
            line += &format!(", {} lost", count(lost));
        }
    }
    line
}
