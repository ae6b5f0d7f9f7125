//! Which of its stacks a thread runs on.

use core::{
    ptr,
    sync::atomic::{Ordering, compiler_fence},
};

use super::{SCRATCH_AT, SCRATCH_BYTES, Thread, control};
use crate::target::{
    shadow::{STACKS, Shadow},
    stack, sys,
};

impl Thread {
    /// Whether an address is on the stack that was last run on.
    pub(in crate::target) fn is_on_stack(&self, address: usize) -> bool {
        self.shadows[self.current].holds(address)
    }

    /// Makes the shadow of the stack that holds this slot the current one. Whether that could be done.
    pub(in crate::target) fn select(&mut self, slot: usize) -> bool {
        if slot.wrapping_sub(self.low) < self.size {
            return true;
        }
        // A child that `posix_spawn` has made has our memory, and a stack of its own, until it is another program.
        if self.writer().is_open() && !self.writer().is_of_this_thread() {
            return false;
        }
        // A handler that jumps out in the middle of this would leave it torn.
        let signals = sys::block_signals();
        self.save();
        // What was found in the map, and is not run on, may be gone, and another stack be in its place.
        let is_there = |at: usize, shadow: &Shadow| at == self.current || shadow.is_learned || !shadow.is_empty();
        let holds = |at: &usize| self.shadows[*at].holds(slot) && is_there(*at, &self.shadows[*at]);
        let found = (0..self.count).find(holds).or_else(|| self.new_shadow(slot));
        if let Some(at) = found {
            self.current = at;
            self.load();
        }
        compiler_fence(Ordering::SeqCst);
        sys::set_signals(signals);
        found.is_some()
    }

    pub(super) fn save(&mut self) {
        if self.count > 0 {
            self.shadows[self.current].top = self.top;
        }
    }

    fn load(&mut self) {
        let shadow = self.shadows[self.current];
        (self.top, self.base, self.limit) = (shadow.top, shadow.base, shadow.limit);
        (self.low, self.size) = (shadow.low, shadow.size);
    }

    /// Finds the stack that holds this slot, and a shadow for it.
    fn new_shadow(&mut self, slot: usize) -> Option<usize> {
        if self.crowded {
            return None;
        }
        // SAFETY: the scratch memory lies there, see the type.
        let scratch = unsafe { ptr::from_mut(self).cast::<u8>().add(SCRATCH_AT).cast::<[u8; SCRATCH_BYTES]>() };
        // SAFETY: nobody else uses it.
        let (mut low, mut high) = stack::around(slot, unsafe { &mut *scratch })?;
        // Stacks that are known more closely may lie in the same mapping.
        for shadow in &self.shadows[..self.count] {
            let end = shadow.low + shadow.size;
            if shadow.size == 0 || shadow.top == shadow.base {
                continue;
            }
            if end <= slot && end > low {
                low = end;
            }
            if shadow.low > slot && shadow.low < high {
                high = shadow.low;
            }
        }
        let at = self.shadow_for(low, high)?;
        self.assign_stack(at, low, high).then_some(at)
    }

    /// Puts the real return addresses back on all its stacks.
    pub(super) fn restore_stacks(&self) {
        for (at, shadow) in self.shadows.iter().enumerate().take(self.count.min(STACKS)) {
            let top = if at == self.current { self.top } else { shadow.top };
            // SAFETY: entries above the base are initialised.
            for entry in unsafe { Shadow::entries(shadow.base, top) } {
                sys::replace(entry.slot(), entry.armed(), entry.real);
            }
        }
    }

    /// Tells that a stack lies there, before it is run on.
    pub(in crate::target) fn learn_stack(&mut self, low: usize, high: usize) {
        if low >= high
            || slot_within(self.low, self.size, low) && slot_within(self.low, self.size, high - 1) && {
                // On the very stack we are on: only what is below us can be another.
                high > self.top_slot()
            }
        {
            return;
        }
        let signals = sys::block_signals();
        self.save();
        let current = self.current;
        let at = self.shadow_for(low, high);
        self.crowded |= at.is_none();
        if let Some(at) = at.filter(|at| *at != current)
            && self.assign_stack(at, low, high)
        {
            self.shadows[at].is_learned = true;
            // Others that claim a part of it are cut back to what is above, or below, or lose it.
            for other in (0..self.count).filter(|other| *other != at) {
                let shadow = &mut self.shadows[other];
                if shadow.overlaps(low, high) {
                    let end = shadow.low + shadow.size;
                    match shadow.is_empty() || end <= high {
                        true if shadow.low < low => shadow.size = low - shadow.low,
                        true => shadow.size = 0,
                        false => (shadow.low, shadow.size) = (high, end - high),
                    }
                }
            }
        }
        self.load();
        compiler_fence(Ordering::SeqCst);
        sys::set_signals(signals);
    }

    fn top_slot(&mut self) -> usize {
        self.youngest().map_or(usize::MAX, |entry| entry.slot())
    }

    fn assign_stack(&mut self, at: usize, low: usize, high: usize) -> bool {
        // ORDERING: set before hooks were in place.
        let depth = control().map_or(usize::MAX, |control| control.max_depth.load(Ordering::Relaxed) as usize);
        self.shadows[at].assign(low, high, depth)
    }

    /// A shadow to use for a stack: that of one that lay in the same place and is gone, or one with nothing on it. None
    /// where there are too many stacks: what runs on the others is passed through.
    fn shadow_for(&mut self, low: usize, high: usize) -> Option<usize> {
        let same = (0..self.count).find(|at| {
            let shadow = &self.shadows[*at];
            shadow.low == low && shadow.size > 0
                || shadow.overlaps(low, high) && shadow.is_empty() && !shadow.is_learned
        });
        if let Some(at) = same.or_else(|| (0..self.count).find(|at| self.shadows[*at].size == 0)) {
            self.give_up_stack(at);
            return Some(at);
        }
        if self.count < STACKS {
            self.count += 1;
            return Some(self.count - 1);
        }
        let is_unused = |shadow: &Shadow| shadow.is_empty() && !shadow.is_learned;
        (0..STACKS).find(|at| *at != self.current && is_unused(&self.shadows[*at]))
    }

    fn give_up_stack(&mut self, at: usize) {
        while !self.shadows[at].is_empty() {
            // SAFETY: entries above the base are initialised.
            let entry = unsafe { *self.shadows[at].top };
            self.shadows[at].top = self.shadows[at].top.wrapping_sub(1);
            // Whether that stack is still there nobody knows. If it is, its functions return unseen.
            sys::replace(entry.slot(), entry.armed(), entry.real);
        }
    }
}

fn slot_within(low: usize, size: usize, address: usize) -> bool {
    address.wrapping_sub(low) < size
}
