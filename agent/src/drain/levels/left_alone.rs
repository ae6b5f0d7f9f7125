//! Functions that are left alone for good: even to jump past their hooks costs too much.
//!
//! What is called so often that it is turned off again and again will be called so often for as long as the program runs. Whoever
//! has put the hooks in takes those out.

use super::{Down, Levels};

/// How often a function may be turned off.
const MOST_OFF: u32 = 3;

impl Down {
    pub(super) fn is_left_alone(&self) -> bool {
        self.turned_off >= MOST_OFF
    }
}

impl Levels {
    /// A function was turned off, at once for good or not.
    pub(super) fn turned_off(&mut self, function: u32, for_good: bool) {
        let Some(down) = self.down.get_mut(&function) else { return };
        down.turned_off = if for_good { MOST_OFF } else { down.turned_off + 1 };
        if down.is_left_alone() {
            self.left_alone.push(function);
        }
    }

    /// Functions that are left alone from now on.
    pub(in super::super) fn take_left_alone(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.left_alone)
    }

    /// Takes over those of the process that this one was forked from.
    pub(in super::super) fn inherit_left_alone(&mut self, functions: &[u32]) {
        for function in functions {
            if let Some(down) = self.down.get_mut(function) {
                down.turned_off = MOST_OFF;
            }
        }
    }

    /// Whether a function is left alone.
    pub(super) fn is_left_alone(&self, function: u32) -> bool {
        self.down.get(&function).is_some_and(Down::is_left_alone)
    }
}
