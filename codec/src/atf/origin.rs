//! Where the events of a file come from: what its header says before any event is written.

use super::{Corrupt, Corruption};
use crate::{Arch, ClockKind, Os};

/// The machine and thread that a file's events come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The processor.
    pub arch: Arch,
    /// The operating system.
    pub os: Os,
    /// The clock of the timestamps. Detail files do not say it.
    pub clock: ClockKind,
    /// The thread's id with the operating system.
    pub thread: u32,
}

/// The byte that says a file is little-endian; there is no other.
pub(crate) const LITTLE_ENDIAN: u8 = 1;

/// The version of the file layout.
pub(crate) const VERSION: u8 = 1;

/// Checks what index and detail headers start with alike.
pub(crate) fn check_start(
    magic: [u8; 4],
    expected: [u8; 4],
    endian: u8,
    version: u8,
    events_offset: (u64, u64),
) -> Result<(), Corrupt> {
    let (offset, what) = if magic != expected {
        (0, Corruption::Magic { expected, found: magic })
    } else if endian != LITTLE_ENDIAN {
        (4, Corruption::Endian { found: endian })
    } else if version != VERSION {
        (5, Corruption::Version { found: version })
    } else if events_offset.1 != super::EDGE_BYTES as u64 {
        (events_offset.0, Corruption::EventsOffset { found: events_offset.1 })
    } else {
        return Ok(());
    };
    Err(Corrupt { offset, what })
}
