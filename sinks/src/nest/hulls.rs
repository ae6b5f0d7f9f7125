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
}

impl Hulls {
    /// Takes the time from `start` to `end`, unless that overlaps with what is taken and does not enclose it.
    pub(super) fn admit(&mut self, parent: Option<SpanId>, start: u64, end: u64) -> bool {
        // Mostly everything that is known ended before this one.
        let later = self.0.iter().rev().take_while(|hull| hull.start > end || (hull.start == end && hull.end > end));
        let until = self.0.len() - later.count();
        let (known, later) = self.0.split_at(until);
        if later.first().is_some_and(|hull| hull.start == end) {
            return false;
        }
        let is_sibling = |hull: &Hull| parent.is_some() && hull.parent == parent;
        let inside = known.iter().rev().take_while(|hull| hull.start >= start && !is_sibling(hull));
        let inside = inside.count();
        let (before, inside) = known.split_at(until - inside);
        if inside.iter().any(|hull| hull.end > end) || before.last().is_some_and(|hull| hull.end > start) {
            return false;
        }
        let mut hull = Hull { parent, start, end };
        let mut from = before.len();
        if let Some(sibling) = before.last().filter(|hull| is_sibling(hull)) {
            hull.start = sibling.start;
            from -= 1;
        }
        self.0.splice(from..until, [hull]);
        if self.0.len() > MOST {
            self.0.drain(..MOST / 2);
        }
        true
    }
}
