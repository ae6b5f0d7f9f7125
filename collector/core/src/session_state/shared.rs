//! What all sessions of a collector share.

use std::{collections::VecDeque, time::Duration};

use crate::{Answered, Config, Counts, buffers::Buffers};

/// What a session needs of the collector.
pub(crate) struct SessionContext<'a> {
    pub(crate) config: &'a Config,
    pub(crate) counts: &'a mut Counts,
    pub(crate) buffers: &'a Buffers,
    /// How many bytes the driver has room for.
    pub(crate) room: u64,
    pub(crate) now: Duration,
    /// The wall clock, or 0.
    pub(crate) unix_ns: u64,
    pub(crate) answers: &'a mut VecDeque<Answered>,
}

/// What all sessions of a collector share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) counts: Counts,
    buffers: Buffers,
    /// How many bytes the driver has room for.
    pub(crate) room: u64,
    /// The wall clock, or 0 while nobody has told.
    pub(crate) unix_ns: u64,
    /// What agents have answered.
    pub(crate) answers: VecDeque<Answered>,
}

impl Shared {
    pub(crate) fn new(config: Config) -> Self {
        let counts = Counts { ending_room_now: config.held_bytes / 2, ..Counts::default() };
        // A batch is passed on when it has more than that, so it ends within one packet of it.
        let buffers = Buffers::new(config.batch_bytes + 2048);
        Self { config, counts, buffers, room: u64::MAX, unix_ns: 0, answers: VecDeque::new() }
    }

    pub(crate) fn context(&mut self, now: Duration) -> SessionContext<'_> {
        let Self { config, counts, buffers, room, unix_ns, answers } = self;
        SessionContext { config, counts, buffers, room: *room, now, unix_ns: *unix_ns, answers }
    }
}
