//! Shadows by where their stacks lie: a skip list, since there may be a hundred thousand.

use core::{ops::Range, ptr};

use crate::target::shadow::Shadow;

/// Enough for all stacks that fit into memory.
pub(in crate::target) const LEVELS: usize = 12;

/// From one shadow, or from the start, to the next on each level.
pub(in crate::target) type Links = [*mut Shadow; LEVELS];

/// Shadows whose stacks do not overlap. They are the table's, and changed only by whoever has locked it.
pub(super) struct Index {
    first: Links,
    random: u64,
}

impl Index {
    pub(super) const fn new() -> Self {
        Self { first: [ptr::null_mut(); LEVELS], random: 0x9E37_79B9_7F4A_7C15 }
    }

    /// The shadow of the stack that holds an address.
    pub(super) fn find(&mut self, address: usize) -> Option<*mut Shadow> {
        // SAFETY: shadows in the index are valid.
        self.last_at(address).filter(|shadow| unsafe { (**shadow).holds(address) })
    }

    /// The last one that begins at or below an address.
    pub(super) fn last_at(&mut self, address: usize) -> Option<*mut Shadow> {
        let links = self.links_before(address.saturating_add(1))[0];
        // SAFETY: links other than the first are a shadow's.
        (links != &raw mut self.first).then(|| unsafe { Shadow::of_links(links) })
    }

    /// The first one that begins above an address.
    pub(super) fn first_above(&mut self, address: usize) -> Option<*mut Shadow> {
        // SAFETY: links are those of shadows in the index, or the first.
        let next = unsafe { (*self.links_before(address.saturating_add(1))[0])[0] };
        (!next.is_null()).then_some(next)
    }

    /// The part of a range around an address that is on none of the stacks.
    pub(super) fn beside(&mut self, range: Range<usize>, address: usize) -> Range<usize> {
        // SAFETY: shadows are never unmapped.
        unsafe {
            let low = self.last_at(address).map_or(range.start, |before| range.start.max((*before).end()));
            low..self.first_above(address).map_or(range.end, |behind| range.end.min((*behind).low))
        }
    }

    pub(super) fn insert(&mut self, shadow: *mut Shadow) {
        // SAFETY: the caller's shadow, and those in the index.
        unsafe {
            let before = self.links_before((*shadow).low);
            for (level, links) in before.into_iter().enumerate().take(self.height()) {
                (*shadow).next[level] = (*links)[level];
                (*links)[level] = shadow;
            }
        }
    }

    pub(super) fn remove(&mut self, shadow: *mut Shadow) {
        // SAFETY: as above.
        unsafe {
            let before = self.links_before((*shadow).low);
            for (level, links) in before.into_iter().enumerate() {
                if (*links)[level] == shadow {
                    (*links)[level] = (*shadow).next[level];
                }
            }
            (*shadow).next = [ptr::null_mut(); LEVELS];
        }
    }

    /// On each level, the links of the last shadow that begins below an address.
    fn links_before(&mut self, address: usize) -> [*mut Links; LEVELS] {
        let mut at = &raw mut self.first;
        let mut before = [at; LEVELS];
        for level in (0..LEVELS).rev() {
            // SAFETY: links are those of shadows in the index, or the first.
            unsafe {
                while let Some(next) = (*at)[level].as_mut()
                    && next.low < address
                {
                    at = &raw mut next.next;
                }
            }
            before[level] = at;
        }
        before
    }

    /// On how many levels the next one is: one in four is on one more.
    fn height(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (1 + self.random.trailing_zeros() as usize / 2).min(LEVELS)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_finds_what_a_sorted_map_finds() {
        let (mut index, mut model) = (Index::new(), BTreeMap::<usize, *mut Shadow>::new());
        let mut random = 7_u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % bound as usize
        };
        for _ in 0..20_000 {
            let low = 1 + below(500);
            match model.remove(&(16 * low)) {
                Some(shadow) => {
                    index.remove(shadow);
                    // SAFETY: it came from a box, below.
                    drop(unsafe { Box::from_raw(shadow) });
                }
                None => {
                    let shadow = Box::into_raw(Box::new(Shadow::at(16 * low, 16 * low + 1 + below(16))));
                    index.insert(shadow);
                    model.insert(16 * low, shadow);
                }
            }
            let address = below(9000);
            let last = model.range(..=address).next_back().map(|(_, shadow)| *shadow);
            assert_eq!(index.last_at(address), last);
            // SAFETY: they are valid until they are removed.
            assert_eq!(index.find(address), last.filter(|shadow| unsafe { (**shadow).holds(address) }));
            assert_eq!(index.first_above(address), model.range(address + 1..).next().map(|(_, shadow)| *shadow));
        }
        // SAFETY: they came from boxes.
        model.into_values().for_each(|shadow| drop(unsafe { Box::from_raw(shadow) }));
    }
}
