//! Texts that are written once and then called by a number.

use ahash::HashMap;
use codec::FunctionId;

use super::fields::interned;
use crate::{Budget, proto::Message};

/// With more than this all is forgotten, here and by the reader.
const MOST_BYTES: usize = 32 << 20;
/// What an entry is taken to need beside its text.
const ENTRY_BYTES: usize = 96;

/// What a text is. Each kind has numbers of its own.
#[derive(Debug, Clone, Copy)]
pub(super) enum TextKind {
    Category,
    Name,
    NoteName,
    Text,
}

/// The numbers of a function's name, of its symbol if that differs, and of where it is in its sources if that is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct FunctionName {
    pub(super) name: u64,
    pub(super) symbol: Option<u64>,
    pub(super) source: Option<u64>,
}

/// What the reader knows, and what the next packet adds to it.
#[derive(Debug, Default)]
pub(super) struct Intern {
    categories: HashMap<Box<str>, u64>,
    names: HashMap<Box<str>, u64>,
    note_names: HashMap<Box<str>, u64>,
    texts: HashMap<Box<str>, u64>,
    functions: HashMap<FunctionId, FunctionName>,
    /// The words that were asked for last: mostly the next ones are the same.
    last: [Option<(&'static str, u64)>; 2],
    bytes: usize,
    budget: Budget,
    /// Whether there is no more room for all of them together.
    refused: bool,
    pub(super) news: Message,
}

impl Intern {
    /// Nothing yet, and no more than a budget that others share has room for.
    pub(super) fn within(budget: Budget) -> Self {
        Self { budget, ..Self::default() }
    }

    fn grow(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.refused |= !self.budget.take(bytes as u64);
    }

    /// The number of a text.
    pub(super) fn text(&mut self, kind: TextKind, text: &str) -> u64 {
        let (known, field) = match kind {
            TextKind::Category => (&mut self.categories, interned::EVENT_CATEGORIES),
            TextKind::Name => (&mut self.names, interned::EVENT_NAMES),
            TextKind::NoteName => (&mut self.note_names, interned::DEBUG_ANNOTATION_NAMES),
            TextKind::Text => (&mut self.texts, interned::DEBUG_ANNOTATION_STRING_VALUES),
        };
        if let Some(number) = known.get(text) {
            return *number;
        }
        let number = known.len() as u64 + 1;
        known.insert(text.into(), number);
        self.grow(text.len().saturating_add(ENTRY_BYTES));
        let mut entry = Message::new();
        entry.number(interned::IID, number).text(interned::NAME, text);
        self.news.message(field, &entry);
        number
    }

    /// The number of a category.
    pub(super) fn category(&mut self, word: &'static str) -> u64 {
        self.word(0, TextKind::Category, word)
    }

    /// The number of a note's name.
    pub(super) fn note_name(&mut self, word: &'static str) -> u64 {
        self.word(1, TextKind::NoteName, word)
    }

    fn word(&mut self, place: usize, kind: TextKind, word: &'static str) -> u64 {
        match self.last.get(place) {
            Some(Some((last, number))) if std::ptr::eq(*last, word) => *number,
            _ => {
                let number = self.text(kind, word);
                if let Some(last) = self.last.get_mut(place) {
                    *last = Some((word, number));
                }
                number
            }
        }
    }

    /// The name of a function that was looked up before.
    pub(super) fn function(&self, function: FunctionId) -> Option<FunctionName> {
        self.functions.get(&function).copied()
    }

    /// Remembers it.
    pub(super) fn remember(&mut self, function: FunctionId, name: FunctionName) {
        self.grow(ENTRY_BYTES);
        self.functions.insert(function, name);
    }

    /// Whether there is too much of it.
    pub(super) fn is_full(&self) -> bool {
        self.bytes > MOST_BYTES || self.refused
    }
}
