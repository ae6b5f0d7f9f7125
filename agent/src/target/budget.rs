//! What recording may cost a thread: looked at whenever it has filled another part of its ring.

use core::sync::atomic::Ordering;

use super::sys;
use crate::shared::{Control, FLAG_TURN_DOWN};

/// Bytes of records after which a thread looks: while it may record, and while it has recorded too much.
const USUAL_BYTES: usize = 16 << 10;
const STRICT_BYTES: usize = 2 << 10;

/// How many nanoseconds a thread may be ahead of what it may: what it has saved while it called little.
const MOST_CREDIT: i64 = 2_000_000;

/// What recording may cost a thread, and has cost it.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// Whether functions may be turned down at all.
    is_on: bool,
    /// What part of its time may go into recording, in 65,536ths; 0 for any.
    share: u64,
    /// What a byte costs, in 256ths of a nanosecond.
    cost: u64,
    /// What it may still spend, in nanoseconds.
    credit: i64,
    /// How long the thread had run when it was looked at last, and how much it had written.
    settled_ns: u64,
    settled: usize,
    /// After how many bytes that is done again.
    chunk: usize,
    /// Whether the function at hand is to be turned down.
    is_over: bool,
}

impl Budget {
    /// That of a thread which begins to record, into a ring of this size.
    pub(super) fn new(control: &Control, size: usize) -> Self {
        let mut budget = Self { chunk: usize::MAX, ..Self::default() };
        budget.update(control, 0, size);
        budget
    }

    /// Takes up what recording may cost from here on, in a thread that has written so much.
    pub(super) fn update(&mut self, control: &Control, written: usize, size: usize) {
        // ORDERING: hints; who begins to record sees all of it, since it was written before.
        let load = |word: &core::sync::atomic::AtomicU64| word.load(Ordering::Relaxed);
        let (share, cost) = (load(&control.share), load(&control.cost));
        let is_on = control.flags.load(Ordering::Relaxed) & FLAG_TURN_DOWN != 0;
        if (is_on, share, cost) == (self.is_on, self.share, self.cost) {
            return;
        }
        (self.is_on, self.share, self.cost) = (is_on, share, cost);
        (self.credit, self.settled) = (MOST_CREDIT, written);
        self.settled_ns = if share > 0 { sys::thread_nanoseconds() } else { 0 };
        self.chunk = if is_on { USUAL_BYTES.min(size / 16) } else { usize::MAX };
    }

    /// How many more bytes may be written without another look, where so many were, `largest` may be the next, and the ring
    /// has so much room left. A ring that is half full has a function turned down now and then, more and more often the fuller
    /// it is, and at last every one that is called.
    pub(super) fn settle(&mut self, written: usize, largest: usize, free: usize, size: usize) -> usize {
        if !self.is_on {
            return usize::MAX;
        }
        let bytes = written.wrapping_sub(self.settled);
        if bytes.saturating_add(largest) < self.chunk {
            return self.chunk - bytes;
        }
        self.settled = written;
        let is_in_debt = self.share > 0 && self.pay(bytes);
        let usual = if is_in_debt { STRICT_BYTES } else { USUAL_BYTES };
        let is_pressed = free < size / 2;
        // Programs that do the same again and again are not looked at in the same place of that again and again.
        let jitter = 40 * (crate::shared::tsc::now() as usize >> 4 & 0x1F);
        self.chunk = match is_pressed {
            true => (free.saturating_sub(size / 8) / 32).min(usual) + jitter / 8,
            false => (usual + jitter).min(size / 16),
        };
        self.is_over = is_in_debt || is_pressed;
        self.chunk
    }

    /// Pays for so many bytes. Whether that was too much.
    fn pay(&mut self, bytes: usize) -> bool {
        /// The longest time that counts, in nanoseconds.
        const LONGEST: u64 = 1 << 36;
        let now = sys::thread_nanoseconds();
        let elapsed = now.wrapping_sub(self.settled_ns).min(LONGEST);
        self.settled_ns = now;
        let cost = (bytes as u64).saturating_mul(self.cost) >> 8;
        let earned = (elapsed.saturating_sub(cost) * self.share.min(1 << 24)) >> 16;
        self.credit = (self.credit + earned as i64 - cost as i64).clamp(-4 * cost as i64, MOST_CREDIT);
        self.credit < 0
    }

    /// Whether the function at hand is to be turned down. It is asked once.
    pub(super) fn take_over(&mut self) -> bool {
        core::mem::take(&mut self.is_over)
    }
}
