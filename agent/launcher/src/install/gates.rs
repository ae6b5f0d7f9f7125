//! The levels that functions begin with.

use std::sync::atomic::Ordering;

use agent::{
    shared::{pinned_slot, read_slot},
    stub::Block,
};

use super::Installer;

impl Installer {
    /// Has functions that can be turned down be full, of which these are the last numbers that are given.
    pub(super) fn open_gates(&self, block: &Block, numbers: u32) {
        for (number, full) in block.gates() {
            if let Some(slot) = self.arena.slot(*number) {
                // ORDERING: nobody jumps there yet.
                slot.store(*full, Ordering::Relaxed);
            }
        }
        // ORDERING: a child that is forked meanwhile has not these functions yet, or not their jumps.
        self.arena.control().slots_used.store(numbers.into(), Ordering::Relaxed);
    }

    /// Has functions stay full.
    pub(super) fn keep_full(&self, numbers: impl Iterator<Item = u32>) {
        for slot in numbers.filter_map(|number| self.arena.slot(number)) {
            // ORDERING: nobody jumps there yet.
            if let Some((.., header)) = read_slot(slot.load(Ordering::Relaxed)) {
                slot.store(pinned_slot(header), Ordering::Relaxed);
            }
        }
    }
}
