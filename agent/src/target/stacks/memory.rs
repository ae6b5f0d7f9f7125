//! Where shadows and their entries are. What is not needed any more is used again, and never unmapped.

use core::{
    ptr,
    sync::atomic::{Ordering, compiler_fence},
};

use super::{LEAST_ENTRIES, MOST_ENTRIES, Stacks};
use crate::target::{
    shadow::{Entry, Place, Shadow},
    sys,
};

/// How many shadows are mapped at once.
const SHADOWS: usize = 64;

// All shadows are valid for good, and the table's. SAFETY comments below say only what is beside that.
impl Stacks {
    /// A shadow of a stack that lies there.
    pub(super) fn make(&mut self, low: usize, high: usize, place: Place) -> Option<*mut Shadow> {
        // SAFETY: see above; fresh memory is large enough, and aligned to a page.
        unsafe {
            let mut shadow = self.unused;
            if shadow.is_null() {
                if self.room.1 == 0 {
                    self.room = (sys::map(SHADOWS * size_of::<Shadow>())?.cast(), SHADOWS);
                }
                shadow = self.room.0;
                self.room = (shadow.wrapping_add(1), self.room.1 - 1);
                shadow.write(Shadow { place, older: self.newest, ..Shadow::at(low, high) });
                compiler_fence(Ordering::SeqCst);
                self.newest = shadow;
            } else {
                self.unused = (*shadow).next[0];
                (*shadow).next[0] = ptr::null_mut();
                ((*shadow).low, (*shadow).size, (*shadow).place) = (low, high - low, place);
                (*shadow).unwinder = 0;
            }
            Some(shadow)
        }
    }

    /// Removes a shadow that nobody runs on, with all that is on it.
    pub(super) fn remove(&mut self, shadow: *mut Shadow) {
        self.take_memory(shadow);
        // SAFETY: see above.
        unsafe {
            match (*shadow).place {
                Place::Told => self.told.remove(shadow),
                Place::Main | Place::Own | Place::Mapped => self.mapped.remove(shadow),
            }
            (*shadow).next[0] = self.unused;
            self.unused = shadow;
        }
    }

    /// Sees to it that a shadow has memory for its entries.
    pub(super) fn give_memory(&mut self, shadow: *mut Shadow) -> bool {
        // SAFETY: see above; fresh memory is large enough, and aligned to a page.
        unsafe {
            if !(*shadow).base.is_null() {
                return true;
            }
            // No two return addresses are closer than sixteen bytes: one would be the other's.
            let wanted = ((*shadow).size / 16).clamp(1 << LEAST_ENTRIES, 1 << MOST_ENTRIES).next_power_of_two();
            let class = wanted.trailing_zeros() as usize - LEAST_ENTRIES;
            let mut base = self.memory[class];
            if base.is_null() {
                let Some(memory) = sys::map((wanted + 2) * size_of::<Entry>()) else { return false };
                base = memory.cast();
            } else {
                self.memory[class] = (*base).real as *mut Entry;
            }
            base.write(Entry::ground());
            ((*shadow).class, (*shadow).base) = (class, base);
            compiler_fence(Ordering::SeqCst);
            (*shadow).top = base;
            true
        }
    }

    /// Takes the memory of a shadow that nobody runs on, with all that is on it.
    pub(super) fn take_memory(&mut self, shadow: *mut Shadow) {
        // SAFETY: see above.
        unsafe {
            let base = (*shadow).base;
            if !base.is_null() {
                (*shadow).top = ptr::null_mut();
                compiler_fence(Ordering::SeqCst);
                (*shadow).base = ptr::null_mut();
                (*base).real = self.memory[(*shadow).class] as usize;
                self.memory[(*shadow).class] = base;
            }
        }
    }
}
