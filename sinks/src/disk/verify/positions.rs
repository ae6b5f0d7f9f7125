//! Whether every event of a thread is there once: within a part, and among the parts of a session.

use std::collections::{BTreeMap, HashMap};

use codec::atf::{GapEntry, Manifest, ThreadEntry};

use super::Verified;

/// What a part has of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) thread: u32,
    /// The position of its first event or gap, and the one behind its last.
    pub(super) first: u64,
    pub(super) end: u64,
}

impl Extent {
    pub(super) fn of(thread: &ThreadEntry) -> Option<Self> {
        let first = thread.first.unwrap_or(0);
        Some(Self { thread: thread.id, first, end: first.saturating_add(thread.produced?) })
    }
}

/// Checks that the gaps lie in order, inside what their threads have, and where events are missing: an event that is
/// there has no gap. `written` has the threads that are whole.
pub(super) fn verify_gaps(found: &mut Verified, manifest: &Manifest, written: &BTreeMap<u32, u64>) {
    let firsts: HashMap<u32, u64> =
        manifest.threads.iter().map(|thread| (thread.id, thread.first.unwrap_or(0))).collect();
    let mut latest: BTreeMap<u32, Latest> = BTreeMap::new();
    for gap in &manifest.gaps {
        found.missing = found.missing.saturating_add(gap.count);
        let (Some(at), Some(written)) = (gap.at_index, written.get(&gap.thread)) else { continue };
        let first = firsts.get(&gap.thread).copied().unwrap_or(0);
        let latest = latest.entry(gap.thread).or_insert(Latest { first, missing: 0, merged: false });
        if let Some(problem) = latest.enter(gap, at, *written) {
            found.problems.push(format!("thread_{}: the gap at {} {problem}", gap.thread, gap.first));
        }
    }
    let merged = latest.values().filter(|latest| latest.merged).count();
    if merged > 0 {
        found.unchecked.push(format!("the positions of gaps in {merged} threads: gaps were merged"));
    }
}

/// How far the gaps of a thread have come.
struct Latest {
    first: u64,
    missing: u64,
    /// Merged gaps lie anywhere, and those behind them too.
    merged: bool,
}

impl Latest {
    fn enter(&mut self, gap: &GapEntry, at: u64, written: u64) -> Option<String> {
        self.merged |= gap.ranges.is_some();
        let expected = self.first.saturating_add(at).saturating_add(self.missing);
        self.missing = self.missing.saturating_add(gap.count);
        if at > written {
            return Some(format!("is behind event {at} of {written}"));
        }
        let is_there = self.merged || gap.first == expected;
        (!is_there).then(|| format!("should be at {expected}: events are there twice, or neither there nor missing"))
    }
}

/// Checks that no two parts of a session have the same event.
pub(super) fn verify_parts(sessions: &mut [Verified]) {
    let mut extents: BTreeMap<(String, u32), Vec<(Extent, usize)>> = BTreeMap::new();
    for (at, session) in sessions.iter().enumerate() {
        for extent in &session.extents {
            extents.entry((session.session.clone(), extent.thread)).or_default().push((*extent, at));
        }
    }
    let mut behind: BTreeMap<usize, u64> = BTreeMap::new();
    for ((_, thread), mut extents) in extents {
        extents.sort_by_key(|(extent, at)| (extent.first, extent.end, *at));
        let (mut reached, mut before) = (0, None);
        for (extent, at) in extents {
            if let Some(other) = before.filter(|_| extent.first < reached && extent.first < extent.end) {
                let (first, last) = (extent.first, reached.min(extent.end).saturating_sub(1));
                let name = sessions.get::<usize>(other).map(Verified::name).unwrap_or_default();
                if let Some(session) = sessions.get_mut(at) {
                    let problem = format!("thread_{thread}: its events {first} to {last} are in {name} too");
                    session.problems.push(problem);
                }
            }
            if extent.first > reached {
                *behind.entry(at).or_default() += 1;
            }
            if extent.end >= reached {
                (reached, before) = (extent.end, Some(at));
            }
        }
    }
    for (at, threads) in behind {
        if let Some(session) = sessions.get_mut(at) {
            session.unchecked.push(format!("what comes before in {threads} threads: it is in a part that is not here"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(first: u64, at: u64, count: u64, ranges: Option<u64>) -> GapEntry {
        GapEntry { thread: 1, first, count, cause: "x".into(), at_index: Some(at), ranges, ..GapEntry::default() }
    }

    fn check(gaps: Vec<GapEntry>) -> Verified {
        let threads = vec![ThreadEntry { id: 1, first: Some(10), ..ThreadEntry::default() }];
        let (mut found, manifest) = (Verified::default(), Manifest { gaps, threads, ..Manifest::default() });
        verify_gaps(&mut found, &manifest, &BTreeMap::from([(1, 100)]));
        found
    }

    #[test]
    fn gaps_are_where_events_are_missing() {
        let found = check(vec![gap(10, 0, 5, None), gap(20, 5, 1, None), gap(21, 5, 2, None)]);
        assert_eq!((found.problems, found.unchecked), (Vec::new(), Vec::new()));
        assert_eq!(check(vec![gap(10, 0, 5, None), gap(14, 0, 1, None)]).problems.len(), 1, "they overlap");
        assert_eq!(check(vec![gap(12, 1, 5, None)]).problems.len(), 1, "an event is neither there nor missing");
        assert_eq!(check(vec![gap(111, 101, 5, None)]).problems.len(), 1, "it has no so many events");
    }

    #[test]
    fn gaps_that_were_merged_say_nothing_of_where_the_next_may_be() {
        let found = check(vec![gap(10, 0, 50, Some(5)), gap(20, 1, 1, None), gap(30, 9, 9, None)]);
        assert_eq!((found.problems.len(), found.unchecked.len()), (0, 1));
    }

    #[test]
    fn parts_have_no_event_twice() {
        let part = |name: &str, extents: &[(u64, u64)]| Verified {
            dir: name.into(),
            session: "s".into(),
            extents: extents.iter().map(|&(first, end)| Extent { thread: 3, first, end }).collect(),
            ..Verified::default()
        };
        let mut parts = [part("a", &[(0, 10)]), part("a.2", &[(10, 10)]), part("a.3", &[(10, 20)])];
        verify_parts(&mut parts);
        assert!(parts.iter().all(|part| part.problems.is_empty() && part.unchecked.is_empty()), "{parts:?}");
        let mut parts = [part("a", &[(0, 10)]), part("b", &[(8, 20)]), part("c", &[(30, 31)])];
        verify_parts(&mut parts);
        assert_eq!(parts[1].problems, ["thread_3: its events 8 to 9 are in a too"]);
        assert_eq!((parts[0].problems.len(), parts[2].problems.len(), parts[2].unchecked.len()), (0, 0, 1));
    }
}
