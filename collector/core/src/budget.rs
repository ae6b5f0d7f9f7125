//! Memory that many share.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// The bytes that one holder has of a limit that it shares with others. They are given back when it is dropped.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    in_use: Arc<AtomicU64>,
    charged: u64,
}

impl Budget {
    /// Nothing yet of this limit. Holders that are given the same counter share it.
    pub fn new(limit: u64, in_use: Arc<AtomicU64>) -> Self {
        Self { limit, in_use, charged: 0 }
    }

    /// Another holder that has nothing yet.
    pub fn share(&self) -> Self {
        Self::new(self.limit, Arc::clone(&self.in_use))
    }

    /// Takes more, if there is room.
    pub fn take(&mut self, bytes: u64) -> bool {
        self.take_below(bytes, self.limit)
    }

    /// Takes more, if all holders together then have less than half: the other half is for what matters more.
    pub fn take_of_half(&mut self, bytes: u64) -> bool {
        self.take_below(bytes, self.limit / 2)
    }

    fn take_below(&mut self, bytes: u64, limit: u64) -> bool {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= limit);
        // ORDERING: the counter guards no other memory.
        let taken = self.in_use.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if taken {
            self.charged = self.charged.saturating_add(bytes);
        }
        taken
    }

    /// Gives up `before` bytes and takes `after` instead, if there is room.
    pub fn exchange(&mut self, before: u64, after: u64) -> bool {
        match after.checked_sub(before) {
            Some(0) => true,
            Some(more) => self.take(more),
            None => {
                self.release(before.saturating_sub(after));
                true
            }
        }
    }

    /// Gives back.
    pub fn release(&mut self, bytes: u64) {
        let bytes = bytes.min(self.charged);
        self.charged -= bytes;
        // ORDERING: the counter guards no other memory.
        self.in_use.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What all holders have.
    pub fn in_use(&self) -> u64 {
        // ORDERING: the counter guards no other memory.
        self.in_use.load(Ordering::Relaxed)
    }
}

/// One that has no limit.
impl Default for Budget {
    fn default() -> Self {
        Self::new(u64::MAX, Arc::default())
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        self.release(self.charged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_given_back() {
        let mut one = Budget::new(100, Arc::default());
        let mut other = one.share();
        assert!(one.take_of_half(50) && !one.take_of_half(1) && other.take(50) && !one.take(1));
        assert!(!one.exchange(50, 51) && one.exchange(50, 40) && other.take(10) && !other.take(u64::MAX));
        drop(other);
        assert_eq!(one.in_use(), 40);
        one.release(u64::MAX);
        assert_eq!(one.in_use(), 0);
    }
}
