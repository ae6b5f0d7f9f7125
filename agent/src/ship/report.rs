//! What became of what was to be delivered.

use std::{collections::BTreeMap, fmt};

/// What was delivered, and what was not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Events that were sent, or are about to be.
    pub events: u64,
    /// Those of them that the collector has not kept.
    pub unsettled: u64,
    /// Events that were dropped before, by reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Events that the collector lost, by cause.
    pub lost: BTreeMap<Box<str>, u64>,
    /// Options that the collector has not acknowledged.
    pub unacknowledged: usize,
    /// Whether all was sent and everything is settled and acknowledged, the end included.
    pub complete: bool,
    /// Bytes of packets that were sent, all in all.
    pub bytes: u64,
    /// Events that the collector asked for again and got.
    pub again: u64,
    /// How often contact was lost and made again.
    pub reconnects: u64,
}

impl Report {
    /// How many events were dropped, for whatever reason.
    pub fn dropped_in_all(&self) -> u64 {
        self.dropped.values().sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} events, {} dropped", self.events, self.dropped_in_all())?;
        for (at, (reason, count)) in self.dropped.iter().enumerate() {
            write!(f, "{}{reason} {count}", if at == 0 { ": " } else { ", " })?;
        }
        for (cause, count) in &self.lost {
            write!(f, ", lost by the collector: {cause} {count}")?;
        }
        if !self.complete {
            let Self { unsettled, unacknowledged, .. } = self;
            write!(f, "; not acknowledged: {unsettled} events and {unacknowledged} options")?;
        }
        Ok(())
    }
}
