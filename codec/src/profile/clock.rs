//! The session's zero, on the wall and on the traced machine's own clock.

use crate::{ClockKind, ClockNs, SessionNs, heph::wire::wire_struct};

wire_struct! {
    /// When the session's zero was by the wall clock. The one option that plain Heph knows too.
    pub struct Epoch as "epoch" {
        /// Nanoseconds since the Unix epoch.
        pub unix_ns: u64,
    }
}

wire_struct! {
    /// When the session's zero was by the clock that the trace on disk uses.
    pub struct Clock as "clock" {
        /// The clock.
        pub clock: ClockKind,
        /// What it showed at the session's zero.
        pub zero_ns: u64,
    }
}

impl Clock {
    /// A time on the wire as a time of this clock. Saturates, since the times come from outside.
    pub fn at(&self, time: SessionNs) -> ClockNs {
        ClockNs(self.zero_ns.saturating_add(time.0))
    }
}
