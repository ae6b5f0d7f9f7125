//! What is missing from one part of a session.

use std::collections::{BTreeMap, HashMap};

use codec::atf::GapEntry;

use crate::Budget;

/// The gaps of one part, bounded: beyond a number, or where the budget that all sessions share is spent, they are
/// merged by thread and cause, and at last by thread.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    room: Budget,
    gaps: Vec<GapEntry>,
    /// The latest gap of each thread, which the next may continue.
    latest: HashMap<u32, usize>,
    /// Where gaps are merged to, by thread and cause.
    merged: HashMap<(u32, String), usize>,
}

/// How many gaps are kept apart, and how many entries there are for merged ones.
const MOST: usize = 65_536;
/// What a gap is taken to need beside its cause.
const ENTRY_BYTES: u64 = 192;
/// The cause of gaps that have no room even with others of their own.
const OTHER: &str = "collector:other";

impl Ledger {
    pub(super) fn new(room: Budget) -> Self {
        Self { room, ..Self::default() }
    }

    /// Enters a gap.
    pub(super) fn add(&mut self, mut gap: GapEntry) {
        let latest = self.latest.get(&gap.thread).copied();
        if let Some(latest) = latest.and_then(|at| self.gaps.get_mut(at))
            && continues_with(latest, &gap)
        {
            latest.count = latest.count.saturating_add(gap.count);
            return;
        }
        if self.gaps.len() < MOST && self.has_room(&gap) {
            self.latest.insert(gap.thread, self.gaps.len());
            self.gaps.push(gap);
            return;
        }
        self.latest.remove(&gap.thread);
        if !self.merged.contains_key(&(gap.thread, gap.cause.clone()))
            && (self.gaps.len() >= 2 * MOST || !self.has_room(&gap))
        {
            // One entry for each thread there always is: no event goes uncounted.
            gap.cause = OTHER.into();
        }
        let next = self.gaps.len();
        let at = *self.merged.entry((gap.thread, gap.cause.clone())).or_insert(next);
        match self.gaps.get_mut(at) {
            Some(all) => absorb(all, &gap),
            None => self.gaps.push(gap),
        }
    }

    fn has_room(&mut self, gap: &GapEntry) -> bool {
        self.room.take(ENTRY_BYTES.saturating_add(gap.cause.len() as u64))
    }

    /// Whether nothing is missing.
    pub(super) fn is_empty(&self) -> bool {
        self.gaps.is_empty()
    }

    /// The gaps.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &GapEntry> {
        self.gaps.iter()
    }

    /// How many events are missing, by thread.
    #[cfg(test)]
    pub(super) fn counts(&self) -> HashMap<u32, u64> {
        let mut counts = HashMap::new();
        for gap in &self.gaps {
            let count: &mut u64 = counts.entry(gap.thread).or_default();
            *count = count.saturating_add(gap.count);
        }
        counts
    }

    /// The gaps as the manifest lists them, by thread and then as they came.
    pub(super) fn entries(&self) -> Vec<GapEntry> {
        let mut entries = self.gaps.clone();
        entries.sort_by_key(|gap| gap.thread);
        entries
    }

    /// What the agent dropped, by its reasons.
    pub(super) fn drops(&self) -> BTreeMap<String, u64> {
        drops_of(&self.gaps)
    }
}

/// What the agent dropped of what is missing, by its reasons.
pub(super) fn drops_of<'a>(gaps: impl IntoIterator<Item = &'a GapEntry>) -> BTreeMap<String, u64> {
    let mut drops = BTreeMap::new();
    for gap in gaps {
        if let Some(reason) = gap.cause.strip_prefix("agent:") {
            let count: &mut u64 = drops.entry(reason.to_owned()).or_default();
            *count = count.saturating_add(gap.count);
        }
    }
    drops
}

/// Takes in what is missing of the same thread elsewhere.
pub(super) fn absorb(gap: &mut GapEntry, other: &GapEntry) {
    if !continues_with(gap, other) {
        gap.ranges = Some(gap.ranges.unwrap_or(1).saturating_add(other.ranges.unwrap_or(1)));
    }
    if gap.cause != other.cause {
        gap.cause = OTHER.into();
    }
    gap.count = gap.count.saturating_add(other.count);
}

fn continues_with(gap: &GapEntry, next: &GapEntry) -> bool {
    gap.first.checked_add(gap.count) == Some(next.first)
        && gap.at_index == next.at_index
        && gap.cause == next.cause
        && gap.ranges.is_none()
        && next.ranges.is_none()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn gap(first: u64, count: u64, cause: &str, at_index: u64) -> GapEntry {
        GapEntry { thread: 1, first, count, cause: cause.into(), at_index: Some(at_index), ..GapEntry::default() }
    }

    fn ranges(ledger: &Ledger) -> u64 {
        ledger.iter().map(|gap| gap.ranges.unwrap_or(1)).sum()
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
        assert_eq!(ranges(&ledger), many, "every range is in some entry");
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
                ledger.add(GapEntry { thread: 2, ..gap(2 * at, 1, "network", at) });
            }
        }
        let entries: usize = ledgers.iter().map(|ledger| ledger.iter().count()).sum();
        assert!(entries < 300, "{entries}");
        for ledger in &ledgers {
            assert_eq!(ledger.counts(), HashMap::from([(1, 1000), (2, 1000)]));
            assert_eq!(ranges(ledger), 2000);
        }
        drop(ledgers);
        assert_eq!(budget.in_use(), 0);
    }
}
