//! What is missing from one part of a session.

use std::collections::{BTreeMap, HashMap};

use codec::atf::GapEntry;

use crate::{Budget, Cause, cut};

/// The gaps of one part, bounded: beyond a number, or where the budget that all sessions share is spent, they are
/// merged by thread and cause, and at last by thread.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    room: Budget,
    gaps: Vec<Missing>,
    /// The latest gap of each thread, which the next may continue.
    latest: HashMap<u32, usize>,
    /// Where gaps are merged to, by thread and cause.
    merged: HashMap<(u32, Cause), usize>,
}

/// A gap, or several of one thread and cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) stream: u32,
    pub(super) first: u64,
    pub(super) count: u64,
    pub(super) cause: Cause,
    pub(super) at_index: u64,
    pub(super) ranges: u64,
}

/// How many gaps are kept apart, and how many entries there are for merged ones.
const MOST: usize = 65_536;
const MOST_CAUSE_BYTES: usize = 128;
/// What a gap is taken to need beside its cause.
const ENTRY_BYTES: u64 = 192;
/// The cause of gaps that have no room even with others of their own.
const OTHER: &str = "collector:other";

impl Ledger {
    pub(super) fn new(room: Budget) -> Self {
        Self { room, ..Self::default() }
    }

    /// Enters a gap.
    pub(super) fn add(&mut self, mut gap: Missing) {
        gap.cause = short_cause(&gap.cause);
        let latest = self.latest.get(&gap.stream).copied();
        if let Some(latest) = latest.and_then(|at| self.gaps.get_mut(at))
            && latest.continues_with(&gap)
        {
            latest.count = latest.count.saturating_add(gap.count);
            return;
        }
        if self.gaps.len() < MOST && self.has_room(&gap) {
            self.latest.insert(gap.stream, self.gaps.len());
            self.gaps.push(gap);
            return;
        }
        self.latest.remove(&gap.stream);
        if !self.merged.contains_key(&(gap.stream, gap.cause.clone()))
            && (self.gaps.len() >= 2 * MOST || !self.has_room(&gap))
        {
            // One entry for each thread there always is: no event goes uncounted.
            gap.cause = OTHER.into();
        }
        let next = self.gaps.len();
        let at = *self.merged.entry((gap.stream, gap.cause.clone())).or_insert(next);
        match self.gaps.get_mut(at) {
            Some(all) => all.absorb(&gap),
            None => self.gaps.push(gap),
        }
    }

    fn has_room(&mut self, gap: &Missing) -> bool {
        self.room.take(ENTRY_BYTES.saturating_add(gap.cause.as_str().len() as u64))
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
            if let Some(reason) = gap.cause.agent_reason() {
                let count: &mut u64 = drops.entry(reason.to_owned()).or_default();
                *count = count.saturating_add(gap.count);
            }
        }
        drops
    }
}

/// A cause of bounded length.
pub(super) fn short_cause(cause: &Cause) -> Cause {
    match cause.as_str().len() <= MOST_CAUSE_BYTES {
        true => cause.clone(),
        false => cut(cause.as_str(), MOST_CAUSE_BYTES).into(),
    }
}

impl Missing {
    /// Takes in what is missing of the same thread elsewhere.
    pub(super) fn absorb(&mut self, other: &Self) {
        if !self.continues_with(other) {
            self.ranges = self.ranges.saturating_add(other.ranges);
        }
        if self.cause != other.cause {
            self.cause = OTHER.into();
        }
        self.count = self.count.saturating_add(other.count);
    }

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
    use std::sync::Arc;

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
    #[test]
    fn gaps_of_all_sessions_share_one_budget_and_all_are_counted() {
        let budget = Budget::new(50_000, Arc::default());
        let mut ledgers = [(); 8].map(|()| Ledger::new(budget.share()));
        for ledger in &mut ledgers {
            for at in 0..1000 {
                ledger.add(gap(2 * at, 1, &format!("agent:{at}"), at));
                ledger.add(Missing { stream: 2, ..gap(2 * at, 1, "network", at) });
            }
        }
        let entries: usize = ledgers.iter().map(|ledger| ledger.iter().count()).sum();
        assert!(entries < 300, "{entries}");
        for ledger in &ledgers {
            assert_eq!(ledger.counts(), HashMap::from([(1, 1000), (2, 1000)]));
            assert_eq!(ledger.iter().map(|gap| gap.ranges).sum::<u64>(), 2000);
        }
        drop(ledgers);
        assert_eq!(budget.in_use(), 0);
    }
}
