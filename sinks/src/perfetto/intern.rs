//! Texts that are written once and then called by a number.

use std::sync::Arc;

use ahash::HashMap;
use codec::FunctionId;

use super::{fields::interned, proto::Message};
use crate::Budget;

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

/// What the reader knows, and what the next packet adds to it.
#[derive(Debug, Default)]
pub(super) struct Intern {
    categories: HashMap<Box<str>, u64>,
    names: HashMap<Box<str>, u64>,
    note_names: HashMap<Box<str>, u64>,
    texts: HashMap<Box<str>, u64>,
    functions: HashMap<FunctionId, (u64, Option<Arc<str>>)>,
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

    /// The name of a function that was looked up before, and its symbol if that differs.
    pub(super) fn function(&self, function: FunctionId) -> Option<(u64, Option<Arc<str>>)> {
        self.functions.get(&function).cloned()
    }

    /// Remembers it.
    pub(super) fn remember(&mut self, function: FunctionId, number: u64, symbol: Option<Arc<str>>) {
        self.grow(ENTRY_BYTES);
        self.functions.insert(function, (number, symbol));
    }

    /// Whether there is too much of it.
    pub(super) fn is_full(&self) -> bool {
        self.bytes > MOST_BYTES || self.refused
    }
}
