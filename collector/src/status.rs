//! How it goes: a line that changes on a terminal, lines now and then elsewhere.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::MissedTickBehavior;
use tracing::info;

use crate::{
    quantity::{Size, count, counted},
    receiver::Receiver,
    tables::Progress,
};

/// How often the line on a terminal changes.
const LIVE: Duration = Duration::from_millis(500);

/// Tells how it goes, for ever.
pub(crate) async fn report(receiver: Arc<Receiver>, tables: Arc<Progress>, every: Duration) {
    let live = receiver.notices.is_terminal();
    let mut interval = tokio::time::interval(if live { LIVE } else { every });
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval.tick().await;
    let mut last = Reading::of(&receiver);
    loop {
        interval.tick().await;
        let now = Reading::of(&receiver);
        let mut line = line(&receiver, &last, &now);
        let making = tables.line();
        if let Some(making) = &making {
            line += &format!("; {making}");
        }
        if live {
            receiver.notices.status(line);
        } else if now.bytes != last.bytes || making.is_some() || receiver.ledger.core().sessions_open > 0 {
            info!("{line}");
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
    fn of(receiver: &Receiver) -> Self {
        Self { at: Instant::now(), events: receiver.ledger.core().written, bytes: receiver.ledger.received_bytes() }
    }
}

fn line(receiver: &Receiver, last: &Reading, now: &Reading) -> String {
    let core = receiver.ledger.core();
    let seconds = now.at.duration_since(last.at).as_secs_f64().max(1e-3);
    let rate = |now: u64, last: u64| (now.saturating_sub(last) as f64 / seconds) as u64;
    let agents = core.missing.iter().filter(|(cause, _)| cause.agent_reason().is_some());
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
    for (name, counters) in &receiver.ledger.sinks {
        let lost = receiver.ledger.lost_by(name, counters);
        line += &format!("; {name} {} behind", Size(receiver.ledger.waiting_bytes(counters)));
        if lost > 0 {
            line += &format!(", {} lost", count(lost));
        }
    }
    line
}
