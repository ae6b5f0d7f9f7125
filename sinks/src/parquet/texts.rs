//! The texts of a row group, each known by a number.

use std::{collections::HashMap, sync::Arc};

use ahash::RandomState;
use codec::span::SpanFlags;

/// Texts by number, and the numbers of those that were seen.
#[derive(Default)]
pub(super) struct Texts {
    texts: Vec<Arc<str>>,
    by_text: HashMap<Arc<str>, u32, RandomState>,
    /// By where they are in memory: names come over and over from the same place, and are long.
    by_place: HashMap<Place, u32, RandomState>,
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
            let number = self.by_place.get(&place).copied().unwrap_or_else(|| {
                self.kept.push(Arc::clone(text));
                let number = self.add(text, || Arc::clone(text));
                self.by_place.insert(place, number);
                number
            });
            self.recent.set(place, number)
        })
    }

    /// The number of a word of ours.
    pub(super) fn word(&mut self, word: &'static str) -> u32 {
        let place = place(word);
        self.recent.get(place).unwrap_or_else(|| {
            let number = self.add(word, || word.into());
            self.recent.set(place, number)
        })
    }

    /// The number of the names of flags, with commas between them.
    pub(super) fn flags(&mut self, flags: SpanFlags) -> u32 {
        if flags == SpanFlags::default() {
            return self.word("");
        }
        match self.flags.get(&flags) {
            Some(number) => *number,
            None => {
                let number = self.add(&flags.to_string(), || flags.to_string().into());
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
                let number = self.add(label, || label.into());
                self.labels.insert(queue, (label.into(), number));
                number
            }
        }
    }

    /// The number of a text that has another place. Each text has one number.
    fn add(&mut self, text: &str, shared: impl FnOnce() -> Arc<str>) -> u32 {
        if let Some(number) = self.by_text.get(text) {
            return *number;
        }
        // A row group does not have so many rows.
        let number = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        let shared = shared();
        self.by_text.insert(Arc::clone(&shared), number);
        self.texts.push(shared);
        number
    }

    /// How many there are. The first one has the number 0.
    pub(super) fn count(&self) -> usize {
        self.texts.len()
    }

    /// The text with this number.
    pub(super) fn text(&self, number: u64) -> &str {
        usize::try_from(number).ok().and_then(|number| self.texts.get(number)).map_or("", |text| text)
    }

    pub(super) fn clear(&mut self) {
        self.texts.clear();
        self.by_text.clear();
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
        // Words of ours are next to each other, names are far apart.
        ((place.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % Self::SLOTS
    }

    #[inline]
    fn get(&self, place: Place) -> Option<u32> {
        self.0.get(Self::slot(place)).filter(|(known, _)| *known == place).map(|(_, number)| *number)
    }

    fn set(&mut self, place: Place, number: u32) -> u32 {
        if let Some(slot) = self.0.get_mut(Self::slot(place)) {
            *slot = (place, number);
        }
        number
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
