//! The texts of a row group, each known by a number.

use std::{collections::HashMap, sync::Arc};

use codec::span::SpanFlags;
use parquet::data_type::ByteArray;

/// Texts by number, and the numbers of those that were seen.
#[derive(Default)]
pub(super) struct Texts {
    texts: Vec<ByteArray>,
    /// By where they are in memory: names come over and over from the same place, and are long.
    by_place: HashMap<Place, u32>,
    /// Some of the same, found without hashing.
    recent: Recent,
    /// So that nothing else comes to be where they are.
    kept: Vec<Arc<str>>,
    flags: HashMap<SpanFlags, u32>,
    labels: HashMap<u64, (Arc<str>, u32)>,
}

impl Texts {
    /// The number of a text that is shared.
    pub(super) fn shared(&mut self, text: &Arc<str>) -> u32 {
        let place = place(text);
        self.recent.get(place).unwrap_or_else(|| {
            let number = match self.by_place.get(&place) {
                Some(number) => *number,
                None => {
                    self.kept.push(Arc::clone(text));
                    self.add(text)
                }
            };
            self.remember(place, number)
        })
    }

    /// The number of a word of ours.
    pub(super) fn word(&mut self, word: &'static str) -> u32 {
        let place = place(word);
        self.recent.get(place).unwrap_or_else(|| {
            let number = self.by_place.get(&place).copied().unwrap_or_else(|| self.add(word));
            self.remember(place, number)
        })
    }

    fn remember(&mut self, place: Place, number: u32) -> u32 {
        self.by_place.insert(place, number);
        self.recent.set(place, number);
        number
    }

    /// The number of the names of flags, with commas between them.
    pub(super) fn flags(&mut self, flags: SpanFlags) -> u32 {
        if flags == SpanFlags::default() {
            return self.word("");
        }
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
        self.recent = Recent::default();
        self.kept.clear();
        self.flags.clear();
        self.labels.clear();
    }
}

/// Where a text is, and how long.
type Place = (usize, usize);

/// The numbers of texts that were seen of late, by the lower bits of where they are.
struct Recent(Vec<(Place, u32)>);

impl Recent {
    const SLOTS: usize = 4096;

    fn slot(place: Place) -> usize {
        (place.0 >> 3 ^ place.0 >> 15) % Self::SLOTS
    }

    #[inline]
    fn get(&self, place: Place) -> Option<u32> {
        self.0.get(Self::slot(place)).filter(|(known, _)| *known == place).map(|(_, number)| *number)
    }

    fn set(&mut self, place: Place, number: u32) {
        if let Some(slot) = self.0.get_mut(Self::slot(place)) {
            *slot = (place, number);
        }
    }
}

impl Default for Recent {
    fn default() -> Self {
        Self(vec![((0, 0), 0); Self::SLOTS])
    }
}

fn place(text: &str) -> Place {
    (text.as_ptr().addr(), text.len())
}
