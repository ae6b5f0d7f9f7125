//! The part of [`CallTree`] that finds the calls in which other processes were made.

use std::collections::BTreeMap;

use ahash::{HashMap, HashSet};
use codec::{
    SessionNs, StreamId,
    span::{Reason, Span, SpanKind},
};

use super::{
    CallTree, Node,
    arena::{Arena, Index},
};

/// How well the call is known that another process was made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BirthPlace {
    /// It was made in this call: the innermost that was open there.
    Call,
    /// It was made in this call, but events are missing there: the innermost call is not known.
    Inside,
    /// Events are missing there, and no call is known to have been open.
    Missing,
    /// No call was open there, as far as functions were traced.
    NoCall,
}

/// The births that are looked for, and the calls they were in so far.
#[derive(Debug, Default)]
pub(super) struct Births {
    /// By thread and time.
    wanted: BTreeMap<(StreamId, SessionNs), Vec<usize>>,
    /// For each birth, the innermost call that is known to have been open then, and the innermost of those whose ends are
    /// missing.
    known: Vec<Option<Call>>,
    lost: Vec<Option<Call>>,
    /// Where events of these threads are missing.
    gaps: HashMap<StreamId, Vec<(SessionNs, SessionNs)>>,
    places: Vec<BirthPlace>,
    /// The births of each node, once the tree is finished, and the nodes that have some below them.
    at: HashMap<Index, Vec<usize>>,
    above: HashSet<Index>,
}

#[derive(Debug, Clone, Copy)]
struct Call {
    start: SessionNs,
    depth: u32,
    node: Index,
}

impl Call {
    /// Whether it is called by the other, of two that were open at one time.
    fn is_inside(&self, other: Option<&Self>) -> bool {
        other.is_none_or(|other| (self.start, self.depth) >= (other.start, other.depth))
    }
}

impl CallTree {
    /// Looks for the call that was open on a thread at this time, and returns the number of the birth. It must be told
    /// before the spans.
    pub fn find_birth(&mut self, stream: StreamId, at: SessionNs) -> usize {
        let number = self.births.known.len();
        self.births.wanted.entry((stream, at)).or_default().push(number);
        self.births.known.push(None);
        self.births.lost.push(None);
        number
    }

    /// What is known of the call of a birth. The tree must be finished.
    pub fn birth_place(&self, birth: usize) -> BirthPlace {
        self.births.places.get(birth).copied().unwrap_or(BirthPlace::NoCall)
    }

    /// The births in a call itself.
    pub fn births_in(&self, node: &Node<'_>) -> &[usize] {
        self.births.at.get(&node.index).map_or(&[], Vec::as_slice)
    }

    /// Whether there are births in a call, or in what it called.
    pub fn leads_to_birth(&self, node: &Node<'_>) -> bool {
        self.births.above.contains(&node.index)
    }

    /// The births in a call and in all that it called.
    pub fn births_below(&self, node: &Node<'_>) -> Vec<usize> {
        let mut found = Vec::new();
        let mut rest = vec![*node];
        while let Some(node) = rest.pop() {
            if self.leads_to_birth(&node) {
                found.extend_from_slice(self.births_in(&node));
                rest.extend(node.children());
            }
        }
        found.sort_unstable();
        found
    }

    /// A call has closed that has this node.
    pub(super) fn note_births(&mut self, span: &Span, node: Index) {
        // Of a function of which only the entry is watched, nobody knows how long it was open.
        if self.births.wanted.is_empty() || span.reason == Some(Reason::EntryOnly) {
            return;
        }
        let end = span.end.unwrap_or(SessionNs(u64::MAX));
        if end < span.start {
            return;
        }
        let Births { wanted, known, lost, .. } = &mut self.births;
        let calls = if span.has_lost_its_end() { lost } else { known };
        let call = Call { start: span.start, depth: span.depth, node };
        let mut is_used = false;
        for birth in wanted.range((span.stream, span.start)..=(span.stream, end)).flat_map(|(_, births)| births) {
            if let Some(best) = calls.get_mut(*birth).filter(|best| call.is_inside(best.as_ref())) {
                *best = Some(call);
                is_used = true;
            }
        }
        if is_used {
            self.arena.pin(node);
        }
    }

    /// Events of a thread are missing.
    pub(super) fn note_gap(&mut self, span: &Span) {
        if span.kind == SpanKind::Gap && !self.births.wanted.is_empty() {
            let end = span.end.unwrap_or(SessionNs(u64::MAX));
            self.births.gaps.entry(span.stream).or_default().push((span.start, end));
        }
    }

    /// Decides which call each was in.
    pub(super) fn finish_births(&mut self) {
        let Births { wanted, known, lost, gaps, .. } = &self.births;
        let mut places = vec![BirthPlace::NoCall; known.len()];
        let mut at: HashMap<Index, Vec<usize>> = HashMap::default();
        for ((stream, time), births) in wanted {
            let gaps = gaps.get(stream).map_or(&[][..], Vec::as_slice);
            let behind = |call: &Call| gaps.iter().any(|(start, _)| (call.start..=*time).contains(start));
            for birth in births {
                let known = known.get(*birth).copied().flatten();
                // One whose end is missing was open for sure only until events are missing.
                let lost = lost.get(*birth).copied().flatten().filter(|call| !behind(call));
                let call = match (known, lost) {
                    (Some(known), Some(lost)) if lost.is_inside(Some(&known)) => Some(lost),
                    (known, lost) => known.or(lost),
                };
                // A call that began where events are missing is known from its end.
                let is_missing = |(start, end): &(SessionNs, SessionNs)| {
                    (*start..=*end).contains(time) && call.is_none_or(|call| call.start <= *start)
                };
                let is_missing = gaps.iter().any(is_missing);
                let place = match (call, is_missing) {
                    (Some(_), false) => BirthPlace::Call,
                    (Some(_), true) => BirthPlace::Inside,
                    (None, true) => BirthPlace::Missing,
                    (None, false) => BirthPlace::NoCall,
                };
                if let Some(known) = places.get_mut(*birth) {
                    *known = place;
                }
                if let Some(call) = call {
                    at.entry(self.arena.find(call.node)).or_default().push(*birth);
                }
            }
        }
        at.values_mut().for_each(|births| births.sort_unstable());
        let above = ancestors(&self.arena, self.roots.values().copied(), &at);
        (self.births.places, self.births.at, self.births.above) = (places, at, above);
    }
}

/// The nodes that have one of these below them, and these.
fn ancestors(arena: &Arena, roots: impl Iterator<Item = Index>, below: &HashMap<Index, Vec<usize>>) -> HashSet<Index> {
    let mut found = HashSet::default();
    if below.is_empty() {
        return found;
    }
    // Each node before those below it, so that backwards each comes after them.
    let mut order: Vec<(Index, Option<Index>)> = roots.map(|root| (root, None)).collect();
    let mut next = 0;
    while let Some((node, _)) = order.get(next).copied() {
        next += 1;
        order.extend(arena.children(node).map(|child| (child, Some(node))));
    }
    for (node, parent) in order.into_iter().rev() {
        if below.contains_key(&node) || found.contains(&node) {
            found.insert(node);
            found.extend(parent);
        }
    }
    found
}
