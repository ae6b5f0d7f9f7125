//! Return addresses of frames that seemed to be gone, in case they are not.

use core::{ptr, sync::atomic::Ordering};

use super::{GRAVES_AT, THREADS, Thread, control};
use crate::target::shadow::{Entry, STACKS};

/// How many are kept, and how many bytes that takes.
const GRAVES: usize = 4096;
pub(super) const BYTES: usize = GRAVES * size_of::<Grave>();

/// The return address of a frame that seemed to be gone.
#[derive(Clone, Copy)]
#[repr(C)]
struct Grave {
    slot: usize,
    real: usize,
}

impl Thread {
    fn graves(&self) -> *mut Grave {
        // SAFETY: they lie there, see the type.
        unsafe { ptr::from_ref(self).cast_mut().cast::<u8>().add(GRAVES_AT).cast() }
    }

    /// Keeps the return address of a frame that seems to be gone, in case it is not.
    pub(in crate::target) fn remember(&mut self, entry: &Entry) {
        // SAFETY: within the graves.
        unsafe { *self.graves().add(self.buried % GRAVES) = Grave { slot: entry.slot(), real: entry.real } };
        self.buried += 1;
    }

    /// The return address that belongs into a slot, from wherever it is known.
    pub(in crate::target) fn recover(&mut self, slot: usize) -> Option<usize> {
        self.save();
        let found = self.find(slot).or_else(|| {
            // A coroutine that has changed threads. The other thread is not running on that stack now.
            THREADS.iter().find_map(|state| {
                // ORDERING: pairs with the release when it was made.
                // SAFETY: states are never unmapped. What another thread writes meanwhile does not concern this slot.
                unsafe { (state.load(Ordering::Acquire) as *const Self).as_ref()?.find(slot) }
            })
        });
        if let Some(control) = control() {
            // ORDERING: a count.
            control.recovered.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    fn find(&self, slot: usize) -> Option<usize> {
        for back in 1..=self.buried.min(GRAVES) {
            // SAFETY: within the graves.
            let grave = unsafe { *self.graves().add((self.buried - back) % GRAVES) };
            if grave.slot == slot {
                return Some(grave.real);
            }
        }
        for shadow in &self.shadows[..self.count.min(STACKS)] {
            let mut entry = shadow.top;
            while entry > shadow.base {
                // SAFETY: entries above the base are initialised.
                let this = unsafe { &*entry };
                if this.slot() == slot {
                    return Some(this.real);
                }
                entry = entry.wrapping_sub(1);
            }
        }
        None
    }
}
