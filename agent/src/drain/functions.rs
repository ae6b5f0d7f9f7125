//! What the numbers in records stand for.

use std::sync::{PoisonError, RwLock};

use codec::FunctionId;

/// The functions that are hooked, by the numbers that records name them by. Shared by whoever hooks and whoever drains.
#[derive(Debug, Default)]
pub struct Functions(RwLock<Vec<FunctionId>>);

impl Functions {
    /// Gives numbers to functions, the first of which is returned. To be done before they are hooked.
    pub fn add(&self, functions: impl IntoIterator<Item = FunctionId>) -> u32 {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let first = all.len() as u32;
        all.extend(functions);
        first
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies those that are new.
    pub(super) fn copy_to(&self, known: &mut Vec<FunctionId>) {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.extend_from_slice(all.get(known.len()..).unwrap_or_default());
    }
}
