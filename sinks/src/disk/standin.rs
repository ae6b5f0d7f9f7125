//! Functions of module 0, made here: they stand for events that are on no function of a module.

use std::collections::HashMap;

use codec::{FunctionId, ModuleId, atf::FunctionEntry};

/// The functions made so far. Names come from outside, so there are only so many; all others share one.
#[derive(Debug, Default)]
pub(super) struct StandIns {
    by_name: HashMap<Box<str>, u32>,
    by_address: HashMap<u64, u32>,
    made: Vec<StandIn>,
    bytes: usize,
    /// The one that stands for all that have no room.
    other: Option<u32>,
}

/// A function that stands for something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StandIn {
    /// The address, where it stands for one.
    pub(super) offset: u64,
    /// Its name.
    pub(super) name: Box<str>,
}

const MOST: usize = 65_536;
const MOST_BYTES: usize = 16 << 20;
const OTHER: &str = "(other)";

impl StandIns {
    /// The function for events with this description.
    pub(super) fn named(&mut self, name: &str) -> FunctionId {
        let index = match self.by_name.get(name) {
            Some(index) => *index,
            None => match self.make(0, name) {
                Some(index) => {
                    self.by_name.insert(name.into(), index);
                    index
                }
                None => self.other(),
            },
        };
        FunctionId::new(ModuleId(0), index)
    }

    /// The function at an address of which no more is known.
    pub(super) fn at(&mut self, address: u64) -> FunctionId {
        let index = match self.by_address.get(&address) {
            Some(index) => *index,
            None => match self.make(address, &format!("{address:#x}")) {
                Some(index) => {
                    self.by_address.insert(address, index);
                    index
                }
                None => self.other(),
            },
        };
        FunctionId::new(ModuleId(0), index)
    }

    /// All of them; the place of each is its index in module 0.
    pub(super) fn made(&self) -> &[StandIn] {
        &self.made
    }

    /// How they are listed in the manifest.
    pub(super) fn entries(&self) -> impl Iterator<Item = FunctionEntry> {
        (0..).zip(&self.made).map(|(id, made)| made.entry(id))
    }

    fn make(&mut self, offset: u64, name: &str) -> Option<u32> {
        if self.made.len() >= MOST || self.bytes.saturating_add(name.len()) > MOST_BYTES {
            return None;
        }
        self.bytes += name.len();
        let index = u32::try_from(self.made.len()).ok()?;
        self.made.push(StandIn { offset, name: name.into() });
        Some(index)
    }

    fn other(&mut self) -> u32 {
        *self.other.get_or_insert_with(|| {
            self.made.push(StandIn { offset: 0, name: OTHER.into() });
            u32::try_from(self.made.len().saturating_sub(1)).unwrap_or(u32::MAX)
        })
    }
}

impl StandIn {
    pub(super) fn entry(&self, id: u64) -> FunctionEntry {
        FunctionEntry { id, offset: self.offset, name: self.name.to_string(), ..FunctionEntry::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_shares_one_function() {
        let mut stand_ins = StandIns::default();
        assert_eq!(stand_ins.named("a"), stand_ins.named("a"));
        assert_ne!(stand_ins.named("0x1"), stand_ins.at(1), "a name that looks like an address is none");
        (0..MOST as u64).for_each(|address| _ = stand_ins.at(address));
        let other = stand_ins.named("one more");
        assert_eq!(stand_ins.at(u64::MAX), other);
        assert_eq!(stand_ins.entries().nth(other.0 as usize).map(|entry| entry.name), Some(OTHER.into()));
        assert_eq!(stand_ins.made().len(), MOST + 1);
        assert_eq!(stand_ins.named("a"), FunctionId(0), "known ones stay");
    }
}
