//! How long functions took, by their numbers.

use std::{collections::HashMap, mem};

use ahash::RandomState;

/// Most calls reach few functions, so a table starts as a list.
#[derive(Debug, Default)]
pub(super) struct Times {
    few: Vec<(usize, u64)>,
    /// All of them, once they are too many for a list.
    many: HashMap<usize, u64, RandomState>,
}

/// How many functions are searched one by one.
const FEW: usize = 16;

impl Times {
    /// A function took so much longer.
    pub(super) fn add(&mut self, number: usize, ns: u64) {
        let sum = self.entry(number);
        *sum = sum.saturating_add(ns);
    }

    /// A function took so long, whatever was known before. Returns that.
    pub(super) fn set(&mut self, number: usize, ns: u64) -> u64 {
        mem::replace(self.entry(number), ns)
    }

    /// Adds all of another table, and leaves that one empty.
    pub(super) fn absorb(&mut self, other: &mut Self) {
        // The fewer go to the more.
        if other.len() > self.len() {
            mem::swap(self, other);
        }
        other.few.drain(..).for_each(|(number, ns)| self.add(number, ns));
        other.many.drain().for_each(|(number, ns)| self.add(number, ns));
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = (usize, u64)> {
        self.few.into_iter().chain(self.many)
    }

    fn len(&self) -> usize {
        self.few.len() + self.many.len()
    }

    fn entry(&mut self, number: usize) -> &mut u64 {
        if self.many.is_empty() {
            if let Some(place) = self.few.iter().position(|(known, _)| *known == number) {
                return &mut self.few[place].1;
            }
            if self.few.len() < FEW {
                let place = self.few.len();
                self.few.push((number, 0));
                return &mut self.few[place].1;
            }
            self.many.extend(self.few.drain(..));
        }
        self.many.entry(number).or_default()
    }
}
