//! What collectors have lost.

use std::collections::BTreeMap;

/// How many causes of losses are told apart, and how many accounts of them. There are a few, unless somebody makes them up.
const MOST_CAUSES: usize = 64;
const MOST_ACCOUNTS: usize = 1_024;

/// How many events were lost, by account and cause. A collector that is started again, or that had forgotten the session,
/// begins another account.
#[derive(Debug, Default)]
pub(super) struct Losses(BTreeMap<u64, BTreeMap<Box<str>, u64>>);

impl Losses {
    /// An account that was begun at some time says that so many events were lost for this cause so far.
    pub(super) fn add(&mut self, since: u64, cause: &str, count: u64) {
        let accounts = self.0.len();
        if accounts >= MOST_ACCOUNTS && !self.0.contains_key(&since) {
            return;
        }
        let account = self.0.entry(since).or_default();
        if let Some(known) = account.get_mut(cause) {
            // An older packet may arrive later.
            *known = count.max(*known);
        } else if account.len() < MOST_CAUSES {
            account.insert(cause.into(), count);
        }
    }

    /// What was lost in all, by cause.
    pub(super) fn sum(&self) -> BTreeMap<Box<str>, u64> {
        let mut sum = BTreeMap::<_, u64>::new();
        for (cause, count) in self.0.values().flatten() {
            let known = sum.entry(cause.clone()).or_default();
            *known = known.saturating_add(*count);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_add_up_and_each_only_grows() {
        let mut losses = Losses::default();
        for (since, cause, count) in [(1, "network", 5), (1, "network", 9), (1, "network", 7), (2, "network", 3)] {
            losses.add(since, cause, count);
        }
        losses.add(2, "collector:disk-full", 4);
        let sum = losses.sum();
        let sum: Vec<_> = sum.iter().map(|(cause, count)| (&**cause, *count)).collect();
        assert_eq!(sum, [("collector:disk-full", 4), ("network", 12)]);
    }

    #[test]
    fn known_causes_are_updated_however_many_there_are() {
        let mut losses = Losses::default();
        (0..1_000).for_each(|number| losses.add(1, &number.to_string(), 1));
        losses.add(1, "0", 50);
        assert_eq!((losses.sum().len(), losses.sum()["0"]), (MOST_CAUSES, 50));
    }
}
