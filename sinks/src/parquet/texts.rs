//! The texts of a row group, each known by a number.

use std::{collections::HashMap, sync::Arc};

use ahash::RandomState;
use codec::{
    FunctionId, StreamId,
    span::{Span, What},
};

use crate::{Catalog, NameCache};

/// Texts by number, and the numbers of those that were seen.
#[derive(Default)]
pub(super) struct Texts {
    names: NameCache,
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32, RandomState>,
    /// What functions are called, where their names are known: asked for every span.
    functions: HashMap<FunctionId, Name, RandomState>,
    /// The thread that was asked for last, with its id and name: mostly the next is the same.
    thread: Option<(StreamId, Thread)>,
}

/// The id of a thread with the operating system, and its name.
pub(super) type Thread = (Option<u64>, Option<u32>);

/// The name of what ran, its symbol and its module.
pub(super) type Name = [Option<u32>; 3];

impl Texts {
    /// What a span is called.
    #[inline]
    pub(super) fn name(&mut self, catalog: &Catalog, span: &Span) -> Name {
        match &span.what {
            What::Function(function) => match self.functions.get(function) {
                Some(name) => *name,
                None => self.look_up(catalog, span, Some(*function)),
            },
            _ => self.look_up(catalog, span, None),
        }
    }

    /// What a thread is called.
    #[inline]
    pub(super) fn thread(&mut self, catalog: &Catalog, stream: StreamId) -> Thread {
        if let Some((_, known)) = self.thread.filter(|(last, _)| *last == stream) {
            return known;
        }
        let known = catalog.thread(stream);
        let name = known.filter(|known| !known.name.is_empty()).map(|known| self.number(&known.name));
        let thread = (known.map(|known| known.os_id).filter(|id| *id != 0), name);
        self.thread = Some((stream, thread));
        thread
    }

    #[inline(never)]
    fn look_up(&mut self, catalog: &Catalog, span: &Span, function: Option<FunctionId>) -> Name {
        let name = self.names.of(catalog, span);
        let texts = [Some(name.pretty.clone()), name.raw.clone(), name.module.clone()];
        // One that is not known yet may be later.
        let known = function.filter(|_| name.raw.is_some() && name.module.is_some());
        let name = texts.map(|text| text.map(|text| self.number(&text)));
        if let Some(function) = known {
            self.functions.insert(function, name);
        }
        name
    }

    /// The number of a text.
    pub(super) fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        // A row group does not have so many rows.
        let number = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        let text: Arc<str> = text.into();
        self.texts.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }

    /// The text with this number.
    pub(super) fn text(&self, number: u64) -> &str {
        usize::try_from(number).ok().and_then(|number| self.texts.get(number)).map_or("", |text| text)
    }

    pub(super) fn clear(&mut self) {
        self.texts.clear();
        self.numbers.clear();
        self.functions.clear();
        self.thread = None;
    }
}
