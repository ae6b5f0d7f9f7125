//! Functions of module 0, made here: they stand for events that are on no function of a module.

use std::{collections::HashMap, sync::Arc};

use codec::{FunctionId, ModuleId, atf::FunctionEntry};

use crate::{Budget, shorten};

/// The functions made so far. Names come from outside, so there are only so many, and all sessions share one budget
/// for them; all others share one function.
#[derive(Debug, Default)]
pub(super) struct StandIns {
    by_name: HashMap<Arc<str>, u32>,
    by_address: HashMap<u64, u32>,
    made: Vec<StandIn>,
    room: Budget,
    /// The one that stands for all that have no room.
    other: Option<u32>,
}

/// A function that stands for something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StandIn {
    /// The address, where it stands for one.
    pub(super) offset: u64,
    /// Its name.
    pub(super) name: Arc<str>,
}

const MOST: usize = 65_536;
/// A longer name is cut, and ends with `…`.
const MOST_NAME_BYTES: usize = 4096;
/// What a function is taken to need beside its name.
const ENTRY_BYTES: u64 = 128;
const OTHER: &str = "(other)";

impl StandIns {
    pub(super) fn new(room: Budget) -> Self {
        Self { room, ..Self::default() }
    }

    /// The function for events with this description.
    pub(super) fn named(&mut self, name: &str) -> FunctionId {
        let name = shorten(name, MOST_NAME_BYTES);
        let index = match self.by_name.get(&*name) {
            Some(index) => *index,
            None => match self.make(0, &name) {
                Some((index, name)) => {
                    self.by_name.insert(name, index);
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
                Some((index, _)) => {
                    self.by_address.insert(address, index);
                    index
                }
                None => self.other(),
            },
        };
        FunctionId::new(ModuleId(0), index)
    }

    /// A function that was made before, in the order in which they were. Of what is missing between, the name is lost.
    pub(super) fn restore(&mut self, made: &FunctionEntry) {
        let index = usize::try_from(made.id).unwrap_or(usize::MAX);
        self.lose_names(index);
        if index != self.made.len() || index > MOST {
            return;
        }
        let name: Arc<str> = made.name.as_str().into();
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        match made.offset {
            0 if made.name == OTHER => self.other = Some(index),
            0 => _ = self.by_name.insert(Arc::clone(&name), index),
            address => _ = self.by_address.insert(address, index),
        }
        self.room.take(ENTRY_BYTES.saturating_add(name.len() as u64));
        self.made.push(StandIn { offset: made.offset, name });
    }

    /// Events use this many functions: those that have no name here keep their places.
    pub(super) fn lose_names(&mut self, count: usize) {
        let lost = StandIn { offset: 0, name: OTHER.into() };
        self.made.resize(self.made.len().max(count.min(MOST + 1)), lost);
    }

    /// All of them; the place of each is its index in module 0.
    pub(super) fn made(&self) -> &[StandIn] {
        &self.made
    }

    /// How they are listed in the manifest.
    pub(super) fn entries(&self) -> impl Iterator<Item = FunctionEntry> {
        (0..).zip(&self.made).map(|(id, made)| made.entry(id))
    }

    fn make(&mut self, offset: u64, name: &str) -> Option<(u32, Arc<str>)> {
        if self.made.len() >= MOST || !self.room.take(ENTRY_BYTES.saturating_add(name.len() as u64)) {
            return None;
        }
        let index = u32::try_from(self.made.len()).ok()?;
        let name: Arc<str> = name.into();
        self.made.push(StandIn { offset, name: Arc::clone(&name) });
        Some((index, name))
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
    #[test]
    fn all_sessions_share_one_budget_and_each_name_is_there_once() {
        let budget = Budget::new(100_000, Arc::default());
        let mut sessions = [(); 8].map(|()| StandIns::new(budget.share()));
        for (number, session) in sessions.iter_mut().enumerate() {
            (0..100).for_each(|name| _ = session.named(&format!("{number} {name} {}", "x".repeat(1000))));
        }
        assert!(budget.in_use() <= 100_000);
        let names: usize = sessions.iter().map(|session| session.made().len()).sum();
        assert!((80..120).contains(&names), "{names}");
        let [first, .., last] = &mut sessions;
        assert_eq!(Arc::strong_count(&first.made()[0].name), 2, "the list and the map have the same one");
        assert_eq!(last.named(&"x".repeat(2000)), FunctionId(0));
        assert_eq!(last.made(), [StandIn { offset: 0, name: OTHER.into() }]);
        drop(sessions);
        assert_eq!(budget.in_use(), 0);
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let mut stand_ins = StandIns::default();
        let long = "ä".repeat(40_000);
        let function = stand_ins.named(&long);
        assert_eq!(stand_ins.named(&long), function);
        let name = &stand_ins.made()[0].name;
        assert!(name.len() > MOST_NAME_BYTES - 4 && name.len() <= MOST_NAME_BYTES && name.ends_with("ä…"));
    }
}
