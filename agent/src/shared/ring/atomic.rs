//! What the rings need of an atomic word.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A word that several threads use.
pub trait Atomic<T> {
    /// What it is.
    fn load(&self, ordering: Ordering) -> T;
    /// Makes it something else.
    fn store(&self, value: T, ordering: Ordering);
    /// Makes it something else, if it is what it was thought to be. Whether it was.
    fn exchange(&self, old: T, new: T, ordering: Ordering) -> bool;
}

macro_rules! atomic {
    ($($atomic:ty: $word:ty),*) => {
        $(impl Atomic<$word> for $atomic {
            #[inline(always)]
            fn load(&self, ordering: Ordering) -> $word {
                self.load(ordering)
            }

            #[inline(always)]
            fn store(&self, value: $word, ordering: Ordering) {
                self.store(value, ordering);
            }

            #[inline(always)]
            fn exchange(&self, old: $word, new: $word, ordering: Ordering) -> bool {
                self.compare_exchange(old, new, ordering, Ordering::Relaxed).is_ok()
            }
        })*
    };
}

#[cfg(test)]
pub(super) use atomic;

atomic!(AtomicU64: u64, AtomicU32: u32);
