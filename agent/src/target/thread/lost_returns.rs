//! Return addresses of frames that seemed to be gone, in case they are not.

use core::{ptr, sync::atomic::Ordering};

use super::{LOST_RETURNS_AT, THREADS, Thread};
use crate::target::shadow::{Entry, STACKS, Shadow};

/// How many are kept, and how many bytes that takes.
const LOST_RETURNS: usize = 4096;
pub(super) const BYTES: usize = LOST_RETURNS * size_of::<LostReturn>();

/// The return address of a frame that seemed to be gone.
#[derive(Clone, Copy)]
#[repr(C)]
struct LostReturn {
    slot: usize,
    real: usize,
}

impl Thread {
    fn lost_returns(&self) -> *mut LostReturn {
        // SAFETY: they lie there, see the type.
        unsafe { ptr::from_ref(self).cast_mut().cast::<u8>().add(LOST_RETURNS_AT).cast() }
    }

    /// Keeps the return address of a frame that seems to be gone, in case it is not.
    pub(in crate::target) fn remember(&mut self, entry: &Entry) {
        // SAFETY: within the lost returns.
        unsafe {
            *self.lost_returns().add(self.lost_count % LOST_RETURNS) =
                LostReturn { slot: entry.slot(), real: entry.real }
        };
        self.lost_count += 1;
    }

    /// The return address that belongs into a slot, from wherever it is known.
    pub(in crate::target) fn recover(&mut self, slot: usize) -> Option<usize> {
        self.save();
        self.find(slot).or_else(|| {
            // A coroutine that has changed threads. The other thread is not running on that stack now.
            THREADS.iter().find_map(|state| {
                // ORDERING: pairs with the release when it was made.
                // SAFETY: states are never unmapped. What another thread writes meanwhile does not concern this slot.
                unsafe { (state.load(Ordering::Acquire) as *const Self).as_ref()?.find(slot) }
            })
        })
    }

    fn find(&self, slot: usize) -> Option<usize> {
        for back in 1..=self.lost_count.min(LOST_RETURNS) {
            // SAFETY: within the lost returns.
            let lost = unsafe { *self.lost_returns().add((self.lost_count - back) % LOST_RETURNS) };
            if lost.slot == slot {
                return Some(lost.real);
            }
        }
        for shadow in &self.shadows[..self.count.min(STACKS)] {
            // SAFETY: entries above the base are initialised.
            let mut entries = unsafe { Shadow::entries(shadow.base, shadow.top) };
            if let Some(entry) = entries.find(|entry| entry.slot() == slot) {
                return Some(entry.real);
            }
        }
        None
    }
}
