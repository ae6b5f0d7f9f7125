//! The texts of a row group, each known by a number.

use std::{collections::HashMap, sync::Arc};

use codec::span::SpanFlags;
use parquet::data_type::ByteArray;

/// Texts by number, and the numbers of those that were seen.
#[derive(Default)]
pub(super) struct Texts {
    texts: Vec<ByteArray>,
    /// By where they are in memory: names come over and over from the same place, and are long.
    by_place: HashMap<(usize, usize), u32>,
    /// So that nothing else comes to be where they are.
    kept: Vec<Arc<str>>,
    flags: HashMap<SpanFlags, u32>,
    labels: HashMap<u64, (Arc<str>, u32)>,
}

impl Texts {
    /// The number of a text that is shared.
    pub(super) fn shared(&mut self, text: &Arc<str>) -> u32 {
        let place = place(text);
        match self.by_place.get(&place) {
            Some(number) => *number,
            None => {
                self.kept.push(Arc::clone(text));
                let number = self.add(text);
                self.by_place.insert(place, number);
                number
            }
        }
    }

    /// The number of a word of ours.
    pub(super) fn word(&mut self, word: &'static str) -> u32 {
        let place = place(word);
        match self.by_place.get(&place) {
            Some(number) => *number,
            None => {
                let number = self.add(word);
                self.by_place.insert(place, number);
                number
            }
        }
    }

    /// The number of the names of flags, with commas between them.
    pub(super) fn flags(&mut self, flags: SpanFlags) -> u32 {
        match self.flags.get(&flags) {
            Some(number) => *number,
            None => {
                let number = self.add(&flags.to_string());
                self.flags.insert(flags, number);
                number
            }
        }
    }

    /// The number of a queue's label, which may change.
    pub(super) fn label(&mut self, queue: u64, label: &str) -> u32 {
        match self.labels.get(&queue) {
            Some((known, number)) if **known == *label => *number,
            _ => {
                let number = self.add(label);
                self.labels.insert(queue, (label.into(), number));
                number
            }
        }
    }

    fn add(&mut self, text: &str) -> u32 {
        // A row group does not have so many rows.
        let number = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.texts.push(ByteArray::from(text.as_bytes().to_vec()));
        number
    }

    /// The text with this number.
    pub(super) fn text(&self, number: u32) -> ByteArray {
        self.texts.get(number as usize).cloned().unwrap_or_else(|| ByteArray::from(Vec::new()))
    }

    pub(super) fn clear(&mut self) {
        self.texts.clear();
        self.by_place.clear();
        self.kept.clear();
        self.flags.clear();
        self.labels.clear();
    }
}

/// Where a text is, and how long.
fn place(text: &str) -> (usize, usize) {
    (text.as_ptr().addr(), text.len())
}
