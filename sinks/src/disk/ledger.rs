//! What is missing from one part of a session.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use codec::atf::GapEntry;

/// The gaps of one part, bounded: beyond a number they are merged by thread and cause.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    gaps: Vec<Missing>,
    /// The latest gap of each thread, which the next may continue.
    latest: HashMap<u32, usize>,
    /// Where gaps are merged to, by thread and cause.
    merged: HashMap<(u32, Arc<str>), usize>,
}

/// A gap, or several of one thread and cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) stream: u32,
    pub(super) first: u64,
    pub(super) count: u64,
    pub(super) cause: Arc<str>,
    pub(super) at_index: u64,
    pub(super) ranges: u64,
}

/// How many gaps are kept apart, and how many entries there are for merged ones.
const MOST: usize = 65_536;
const MOST_CAUSE_BYTES: usize = 128;
/// The cause of gaps that have no room even with others of their own.
const OTHER: &str = "collector:other";

impl Ledger {
    /// Enters a gap.
    pub(super) fn add(&mut self, mut gap: Missing) {
        if gap.cause.len() > MOST_CAUSE_BYTES {
            gap.cause = (0..=MOST_CAUSE_BYTES).rev().find_map(|end| gap.cause.get(..end)).unwrap_or_default().into();
        }
        let latest = self.latest.get(&gap.stream).copied();
        if let Some(latest) = latest.and_then(|at| self.gaps.get_mut(at))
            && latest.continues_with(&gap)
        {
            latest.count = latest.count.saturating_add(gap.count);
            return;
        }
        if self.gaps.len() < MOST {
            self.latest.insert(gap.stream, self.gaps.len());
            self.gaps.push(gap);
            return;
        }
        self.latest.remove(&gap.stream);
        if self.gaps.len() >= 2 * MOST && !self.merged.contains_key(&(gap.stream, Arc::clone(&gap.cause))) {
            gap.cause = OTHER.into();
        }
        let next = self.gaps.len();
        let at = *self.merged.entry((gap.stream, Arc::clone(&gap.cause))).or_insert(next);
        match self.gaps.get_mut(at) {
            Some(all) => {
                all.count = all.count.saturating_add(gap.count);
                all.ranges = all.ranges.saturating_add(1);
            }
            None => self.gaps.push(gap),
        }
    }

    /// Whether nothing is missing.
    pub(super) fn is_empty(&self) -> bool {
        self.gaps.is_empty()
    }

    /// The gaps.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Missing> {
        self.gaps.iter()
    }

    /// How many events are missing, by thread.
    pub(super) fn counts(&self) -> HashMap<u32, u64> {
        let mut counts = HashMap::new();
        for gap in &self.gaps {
            let count: &mut u64 = counts.entry(gap.stream).or_default();
            *count = count.saturating_add(gap.count);
        }
        counts
    }

    /// The gaps as the manifest lists them, by thread and then as they came.
    pub(super) fn entries(&self) -> Vec<GapEntry> {
        let mut entries: Vec<_> = self.gaps.iter().map(Missing::entry).collect();
        entries.sort_by_key(|gap| gap.thread);
        entries
    }

    /// What the agent dropped, by its reasons.
    pub(super) fn drops(&self) -> BTreeMap<String, u64> {
        let mut drops = BTreeMap::new();
        for gap in &self.gaps {
            if let Some(reason) = gap.cause.strip_prefix("agent:") {
                let count: &mut u64 = drops.entry(reason.to_owned()).or_default();
                *count = count.saturating_add(gap.count);
            }
        }
        drops
    }
}

impl Missing {
    fn continues_with(&self, next: &Self) -> bool {
        self.first.checked_add(self.count) == Some(next.first)
            && self.at_index == next.at_index
            && self.cause == next.cause
            && self.ranges == 1
            && next.ranges == 1
    }

    fn entry(&self) -> GapEntry {
        GapEntry {
            thread: self.stream,
            first: self.first,
            count: self.count,
            cause: self.cause.to_string(),
            at_index: Some(self.at_index),
            ranges: Some(self.ranges).filter(|ranges| *ranges > 1),
            ..GapEntry::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(first: u64, count: u64, cause: &str, at_index: u64) -> Missing {
        Missing { stream: 1, first, count, cause: cause.into(), at_index, ranges: 1 }
    }

    #[test]
    fn a_gap_goes_on_only_with_the_same_cause_in_the_same_place() {
        let mut ledger = Ledger::default();
        let gaps = [gap(0, 2, "network", 0), gap(2, 3, "network", 0), gap(5, 1, "agent:full", 0)];
        gaps.into_iter().for_each(|gap| ledger.add(gap));
        ledger.add(gap(9, 1, "agent:full", 3));
        let found: Vec<_> = ledger.iter().map(|gap| (gap.first, gap.count)).collect();
        assert_eq!(found, [(0, 5), (5, 1), (9, 1)]);
        assert_eq!(ledger.drops(), BTreeMap::from([("full".into(), 2)]));
    }

    #[test]
    fn too_many_gaps_are_merged_and_all_counted() {
        let mut ledger = Ledger::default();
        let many = 3 * MOST as u64;
        (0..many).for_each(|at| ledger.add(gap(2 * at, 1, &format!("agent:{at}"), at)));
        assert!(ledger.iter().count() <= 2 * MOST + 1);
        assert_eq!(ledger.counts(), HashMap::from([(1, many)]));
        let merged = ledger.iter().map(|gap| gap.ranges).sum::<u64>();
        assert_eq!(merged, many, "every range is in some entry");
        (0..10).for_each(|_| ledger.add(gap(u64::MAX, u64::MAX, "agent:0", 0)));
        assert_eq!(ledger.counts(), HashMap::from([(1, u64::MAX)]));
    }
}
