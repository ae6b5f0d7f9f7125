//! The functions that are hooked.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{PoisonError, RwLock},
};

use codec::FunctionId;

use super::levels::Pinned;

/// The functions that are hooked, by the numbers that records name them by. Shared by whoever hooks and whoever drains.
#[derive(Debug, Default)]
pub struct Functions(RwLock<Numbered>);

#[derive(Debug, Clone, Default)]
struct Numbered {
    ids: Vec<FunctionId>,
    /// How many levels of calls are told below some of them, by their numbers.
    limits: Vec<(u32, u32)>,
    /// The levels that the user has set.
    set: Pinned,
    /// Those whose hooks are to be out, and those whose hooks are, or are about to be.
    unwanted: BTreeSet<u32>,
    unhooked: BTreeSet<u32>,
}

impl Functions {
    /// Gives numbers to functions, the first of which is returned. To be done before they are hooked.
    pub fn add(&self, functions: impl IntoIterator<Item = FunctionId>) -> u32 {
        self.add_limited(functions, &[])
    }

    /// The same with limits: below some of them, by their places among these, only so many levels of calls are told.
    pub fn add_limited(&self, functions: impl IntoIterator<Item = FunctionId>, limits: &[(u32, u32)]) -> u32 {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let first = all.ids.len() as u32;
        all.ids.extend(functions);
        all.limits.extend(limits.iter().map(|(place, levels)| (first + place, *levels)));
        first
    }

    /// A copy, for a child that has inherited what is hooked.
    pub fn inherit(&self) -> Self {
        Self(RwLock::new(self.0.read().unwrap_or_else(PoisonError::into_inner).clone()))
    }

    pub(super) fn levels_set(&self) -> Pinned {
        self.0.read().unwrap_or_else(PoisonError::into_inner).set.clone()
    }

    /// Keeps what the user has set, for children that inherit it.
    pub(super) fn keep_levels_set(&self, set: &Pinned) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).set.clone_from(set);
    }

    /// Has functions be what they are without a hook.
    pub(super) fn unhook(&self, functions: &[u32]) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).unwanted.extend(functions);
    }

    /// Has functions have their hooks back. Returns those that have: every call of them goes through its hook.
    pub(super) fn hook_again(&self, functions: &BTreeSet<u32>) -> Vec<u32> {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.unwanted.retain(|function| !functions.contains(function));
        functions.difference(&all.unhooked).copied().collect()
    }

    /// The functions that have no hooks, or will have none.
    pub(super) fn left_alone(&self) -> Vec<u32> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.unwanted.union(&all.unhooked).copied().collect()
    }

    /// The functions whose hooks are to be taken out. Nobody relies on those any more.
    pub fn take_unwanted(&self) -> Vec<u32> {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let unwanted: Vec<u32> = all.unwanted.difference(&all.unhooked).copied().collect();
        all.unhooked.extend(&unwanted);
        unwanted
    }

    /// The functions whose hooks are to be put back.
    pub fn wanted_again(&self) -> Vec<u32> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.unhooked.difference(&all.unwanted).copied().collect()
    }

    /// A function was found to have its hook, or not to have it.
    pub fn found(&self, function: u32, is_hooked: bool) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match is_hooked {
            true => all.unhooked.remove(&function),
            false => all.unhooked.insert(function),
        };
    }

    /// The functions, by their numbers.
    pub fn ids(&self) -> Vec<FunctionId> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).ids.clone()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).ids.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies those that are new.
    pub(super) fn copy_to(&self, known: &mut Vec<FunctionId>) {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.extend_from_slice(all.ids.get(known.len()..).unwrap_or_default());
    }

    /// Copies the limits from the one with this place on.
    pub(super) fn limits_from(&self, place: &mut usize, known: &mut BTreeMap<u32, u32>) {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.extend(all.limits.get(*place..).unwrap_or_default().iter().copied());
        *place = all.limits.len();
    }
}
