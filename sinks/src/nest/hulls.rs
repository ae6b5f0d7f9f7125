//! What is taken on a track, so that it can be told whether one more span nests.

use codec::span::SpanId;

/// How many are remembered. What is longer ago is taken to nest.
const MOST: usize = 1 << 16;

/// The times that are taken on a track, in order and without overlap.
///
/// Siblings are one: who began between two of them and is not their parent belongs to another stack. So there are no
/// more of them than spans that are open, beside those that nothing called.
#[derive(Debug, Default)]
pub(super) struct Hulls(Vec<Hull>);

#[derive(Debug, Clone, Copy)]
struct Hull {
    parent: Option<SpanId>,
    start: u64,
    end: u64,
    /// From when to when nothing is taken before the last of the siblings, where what that one replaced belongs.
    free: (u64, u64),
}

/// What a hull takes.
pub(super) const HULL_BYTES: usize = size_of::<Hull>();

impl Hulls {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// When the last ended that a span called, which began at `start`, as far as that is known.
    pub(super) fn end_within(&self, span: SpanId, start: u64) -> Option<u64> {
        let since = self.0.iter().rev().take_while(|hull| hull.start >= start);
        since.filter(|hull| hull.parent == Some(span)).map(|hull| hull.end).next()
    }

    /// When those end that go on at this time.
    pub(super) fn end_around(&self, at: u64) -> Option<u64> {
        self.0.iter().rev().find(|hull| hull.start <= at).map(|hull| hull.end).filter(|end| *end > at)
    }

    /// Takes the time from `start` to `end`, unless that overlaps with what is taken and does not enclose it. Tells when
    /// it is to end in the picture.
    ///
    /// What ended in a tail call is told behind what took its place, which begins as it ends. So that the one is seen to
    /// end before the other begins, it ends there a nanosecond before.
    pub(super) fn admit(&mut self, parent: Option<SpanId>, start: u64, end: u64) -> Option<u64> {
        if self.append(parent, start, end) { Some(end) } else { self.insert(parent, start, end) }
    }

    /// Takes the time of a span that ends after all that is known and encloses one hull at most, as nearly every one does.
    #[inline]
    fn append(&mut self, parent: Option<SpanId>, start: u64, end: u64) -> bool {
        let is_sibling = |hull: &Hull| parent.is_some() && hull.parent == parent;
        let is_inside = |hull: &&Hull| hull.start >= start && !is_sibling(hull);
        let inside = self.0.last().filter(is_inside);
        let outside = self.0.len() - usize::from(inside.is_some());
        let ends_last = self.0.last().is_none_or(|last| last.start < end) && inside.is_none_or(|hull| hull.end <= end);
        let Some(before) = outside.checked_sub(1).and_then(|last| self.0.get_mut(last)) else {
            // One has taken the place of all.
            if ends_last {
                self.0.clear();
                self.0.push(Hull::new(parent, start, end));
            }
            return ends_last;
        };
        if !ends_last || before.end > start || is_inside(&&*before) {
            return false;
        }
        if is_sibling(before) {
            (before.free, before.end) = ((before.end, start), end);
            self.0.truncate(outside);
            return true;
        }
        let has_room = self.0.len() < MOST;
        if has_room {
            self.0.truncate(outside);
            self.0.push(Hull::new(parent, start, end));
        }
        has_room
    }

    /// The same, wherever it is.
    #[inline(never)]
    fn insert(&mut self, parent: Option<SpanId>, start: u64, end: u64) -> Option<u64> {
        // Mostly everything that is known ended before this one.
        let later = self.0.iter().rev().take_while(|hull| hull.start > end || (hull.start == end && hull.end > end));
        let until = self.0.len() - later.count();
        let (known, later) = self.0.split_at(until);
        let next = later.first().filter(|hull| hull.start == end);
        let is_sibling = |hull: &Hull| parent.is_some() && hull.parent == parent;
        let inside = known.iter().rev().take_while(|hull| hull.start >= start && !is_sibling(hull));
        let inside = inside.count();
        let (before, inside) = known.split_at(until - inside);
        let shortened = end.saturating_sub(1).max(start);
        let latest = if next.is_some() { shortened } else { end };
        let overlaps =
            inside.iter().any(|hull| hull.end > latest) || before.last().is_some_and(|hull| hull.end > start);
        let (sibling_before, from) = (before.last().copied().filter(is_sibling), before.len());
        let sibling_behind = next.copied().filter(is_sibling);
        if let Some(last) = from.checked_sub(1)
            && let Some(hull) = self.0.get_mut(last).filter(|hull| is_sibling(hull) && hull.has_room(start, end))
        {
            let latest = if end == hull.free.1 { shortened } else { end };
            hull.free.1 = start;
            return Some(latest);
        }
        if overlaps {
            return None;
        }
        let mut hull = Hull::new(parent, start, end);
        let (mut from, mut until) = (from, until);
        if let Some(sibling) = sibling_behind {
            hull.end = sibling.end;
            until += 1;
        }
        if let Some(sibling) = sibling_before {
            (hull.start, hull.free) = (sibling.start, (sibling.end, start));
            from -= 1;
        }
        self.0.splice(from..until, [hull]);
        if self.0.len() > MOST {
            self.0.drain(..MOST / 2);
        }
        Some(latest)
    }
}

impl Hull {
    fn new(parent: Option<SpanId>, start: u64, end: u64) -> Self {
        Self { parent, start, end, free: (start, start) }
    }

    /// Whether this time is free between the last of the siblings and the one before.
    fn has_room(&self, start: u64, end: u64) -> bool {
        self.free.0 <= start && end <= self.free.1 && end < self.end
    }
}
