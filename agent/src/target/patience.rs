//! How long a thread waits for the outside.

use core::sync::atomic::Ordering;

use super::sys;
use crate::shared::{Control, ReaderState};

/// How long an outside may give no sign of life, be it stopped or slow.
const SILENCE_MS: u64 = 5_000;

/// Waiting as long as the outside gives signs of life, and not for ever for one that lives and is stopped.
pub(super) struct Patience<'a> {
    control: &'a Control,
    heard: u32,
    since_ms: u64,
}

impl<'a> Patience<'a> {
    pub(super) fn new(control: &'a Control) -> Self {
        Self { control, heard: heartbeat(control), since_ms: sys::milliseconds() }
    }

    /// Whether there is still something to wait for.
    pub(super) fn lasts(&mut self) -> bool {
        let limit_ms = match ReaderState::of(&self.control.reader) {
            ReaderState::Dead => return false,
            ReaderState::None => SILENCE_MS,
            // ORDERING: a hint.
            ReaderState::Alive => self.control.stall_ms.load(Ordering::Relaxed).max(SILENCE_MS),
        };
        let (now, heard) = (sys::milliseconds(), heartbeat(self.control));
        if heard != self.heard {
            (self.heard, self.since_ms) = (heard, now);
        }
        now.saturating_sub(self.since_ms) < limit_ms
    }
}

/// Counts up as long as the outside does something.
pub(super) fn heartbeat(control: &Control) -> u32 {
    // ORDERING: a hint.
    control.heartbeat.load(Ordering::Relaxed)
}
