//! Who is being traced, by which clock, and on which threads and queues.

use crate::{
    Arch, ClockKind, ClockNs, Os, SessionId, SessionNs, StreamId,
    heph::{List, wire::wire_struct},
};

/// The version of the profile described in `docs/wire-format.md`.
pub const PROFILE_VERSION: u16 = 1;

wire_struct! {
    /// When the session's zero was by the wall clock. The one option that plain Heph knows too.
    pub struct Epoch as "epoch" {
        /// Nanoseconds since the Unix epoch.
        pub unix_ns: u64,
    }

    /// When the session's zero was by the clock that the trace on disk uses.
    pub struct Clock as "clock" {
        /// The clock.
        pub clock: ClockKind,
        /// What it showed at the session's zero.
        pub zero_ns: u64,
    }

    /// When the session's zero was by the collector's clock, as the agent reckons from the way of packets there and back.
    pub struct Offset as "offset" {
        /// Nanoseconds since the Unix epoch.
        pub zero_unix_ns: u64,
        /// By how many nanoseconds it may be wrong, at the time of the measurement.
        pub error_ns: u64,
        /// When that was.
        pub at: SessionNs,
    }

    /// One traced run of one process.
    ///
    /// Strings are UTF-8; a sender replaces what is not (a path, an argument) by U+FFFD.
    pub struct Session<'a> as "session" {
        /// The session's id. It stays the same when the agent reconnects.
        pub id: SessionId,
        /// The version of the profile that the agent speaks. 0 where what follows is plain Heph: then a collector has
        /// made the id up, to tell sessions apart in a file.
        pub profile: u16,
        /// The processor.
        pub arch: Arch,
        /// The operating system.
        pub os: Os,
        /// The process id.
        pub pid: u32,
        /// The version of the agent.
        pub agent_version: &'a str,
        /// The name of the machine.
        pub host: &'a str,
        /// The path of the executable.
        pub executable: &'a str,
        /// How many arguments the process has, its own name included.
        pub argument_count: u32,
        /// The first of them. Fewer than `argument_count` where they would not fit.
        pub arguments: List<'a, &'a str>,
    }

    /// A thread of the traced process. Sent when it starts, again when its name changes and when it ends.
    pub struct Thread<'a> as "thread" {
        /// The stream that carries its events.
        pub stream: StreamId,
        /// Its id with the operating system.
        pub os_id: u64,
        /// When it was first seen.
        pub start: SessionNs,
        /// When it ended, if it has.
        pub end: Option<SessionNs>,
        /// The stream of the thread that created it, where that is known.
        pub creator: Option<StreamId>,
        /// Its name, possibly empty.
        pub name: &'a str,
    }

    /// The label of a dispatch queue.
    pub struct Queue<'a> as "queue" {
        /// The number that runtime events use for the queue.
        pub id: u64,
        /// Its label.
        pub label: &'a str,
    }
}

impl Clock {
    /// A time on the wire as a time of this clock. Saturates, since the times come from outside.
    pub fn at(&self, time: SessionNs) -> ClockNs {
        ClockNs(self.zero_ns.saturating_add(time.0))
    }
}
